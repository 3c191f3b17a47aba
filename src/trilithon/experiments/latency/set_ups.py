"""Builds the runs of the latency paper: single records on the engine `nephele`.

Rates, instances and machines are the paper's, at full scale. PrimeTester's sources send at a steady
rate each; 32 or 50 of them that are not in step are nearly a Poisson stream together.
"""

import math
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from trilithon.engines.simulated.arrivals import POISSON_CV2
from trilithon.engines.simulated.engine import SimulationMode
from trilithon.engines.simulated.faults import AnyFault, OtherSelectivity
from trilithon.engines.simulated.machines import MachineSpec
from trilithon.experiments.definition import Experiment, Variant
from trilithon.experiments.scenario_builder import TENANT, ScenarioBuilder
from trilithon.model.intent import EdgeName, Intent, Metric, Threshold
from trilithon.model.job import Bounds, Job, Operator, Parallelism
from trilithon.scenarios.chosen import assumed_costs, nephele_character
from trilithon.scenarios.scenario import Scenario, ScheduledJob
from trilithon.spec.job_builder import profile_of
from trilithon.workloads import shapes
from trilithon.workloads.paper_jobs import load_topology

ROUND_S: Final = 5.0
STEP_S: Final = 60.0
# Records per second in the warm-up, and more with each step; the peaks of sections III and V-A.
FIRST_PER_S: Final = 10_000.0
MOTIVATION_PEAK_PER_S: Final = 80_000.0
PEAK_PER_S: Final = 60_000.0
# Section V-A: sources and sinks, the most testers, those of the unelastic run.
ENDS, MOST_TESTERS, UNELASTIC_TESTERS = 32, 520, 175
# Section III: sources and sinks, testers, machines.
MOTIVATION_ENDS, MOTIVATION_TESTERS, MOTIVATION_MACHINES = 50, 200, 50
# The cluster of section V.
MACHINES: Final = 130
# Records leave when a buffer is full: longer than any buffer takes to fill.
WHEN_FULL_MS: Final = 60_000.0
# Section V-B: two weeks in 100 minutes, the burst at about 2,400 s with its peak. How low nights
# are, how much the rate varies from one piece of 10 s to the next, and how many times as many
# tweets of the burst are about hot topics is not said: chosen.
TWEETS_S: Final = 6000.0
BURST_S, BURST_LENGTH_S, BURST_PER_S = 2390.0, 60.0, 6734.0
NIGHT_PER_S, NOON_PER_S, VARIES, DAYS, PIECE_S = 1000.0, 4000.0, 0.1, 14, 10.0
BURST_SELECTIVITY: Final = 4.0
TWEETS_SEED: Final = 2014


@dataclass(frozen=True)
class PrimeTesterSetup:
    """One configuration of PrimeTester. `testers` are their number at the start and its bounds;
    `batching_ms` is that of all edges at the start, None for instant flushing.
    """

    promise_ms: float
    testers: Parallelism
    ends: int
    machines: int
    load: shapes.Phases
    batching_ms: float | None = None


def prime_tester_phases() -> shapes.Phases:
    """Section V-A: warm-up, five steps up, plateau, five down."""
    steps = round((PEAK_PER_S - FIRST_PER_S) / FIRST_PER_S)
    return shapes.Phases.prime_tester(FIRST_PER_S, PEAK_PER_S, steps, STEP_S)


def motivation_phases() -> shapes.Phases:
    """Section III up to the plateau: the way down shows nothing that the way up does not."""
    count = round(MOTIVATION_PEAK_PER_S / FIRST_PER_S)
    rates = [FIRST_PER_S * (i + 1) for i in range(count)]
    return shapes.Phases((*rates, rates[-1]), STEP_S)


def elastic(promise_ms: float) -> PrimeTesterSetup:
    testers = Parallelism(UNELASTIC_TESTERS, 1, MOST_TESTERS)
    return PrimeTesterSetup(promise_ms, testers, ENDS, MACHINES, prime_tester_phases())


def _fixed(count: int) -> Parallelism:
    return Parallelism(count, count, count)


def motivation(batching_ms: float | None = None) -> PrimeTesterSetup:
    return PrimeTesterSetup(
        20.0,
        _fixed(MOTIVATION_TESTERS),
        MOTIVATION_ENDS,
        MOTIVATION_MACHINES,
        motivation_phases(),
        batching_ms,
    )


PRIMETESTER: Final = {
    **{("primetester", f"{ms} ms"): elastic(float(ms)) for ms in (20, 30, 40, 50, 100)},
    ("primetester", "unelastic"): PrimeTesterSetup(
        20.0, _fixed(UNELASTIC_TESTERS), ENDS, MACHINES, prime_tester_phases(), WHEN_FULL_MS
    ),
    ("batching", "instant"): motivation(),
    ("batching", "adaptive"): motivation(),
    ("batching", "16 KiB"): motivation(WHEN_FULL_MS),
}


def tweet_rates() -> shapes.Pieces:
    """Two weeks of days and nights, one burst."""
    random = Random(TWEETS_SEED)  # noqa: S311 - load, no secret
    starts_s = [i * PIECE_S for i in range(round(TWEETS_S / PIECE_S))]
    rates = []
    for start_s in starts_s:
        wave = (1 - math.cos(math.tau * start_s * DAYS / TWEETS_S)) / 2
        rate = NIGHT_PER_S + (NOON_PER_S - NIGHT_PER_S) * wave
        burst = BURST_S <= start_s < BURST_S + BURST_LENGTH_S
        varied = rate * max(0.1, random.gauss(1.0, VARIES))
        rates.append(BURST_PER_S if burst else min(varied, BURST_PER_S))
    return shapes.Pieces(rates, starts_s)


class LatencyBuilder(ScenarioBuilder):
    """Builds the runs from the set-ups above."""

    def scenario(self, experiment: Experiment, variant: Variant) -> Scenario:
        if (setup := PRIMETESTER.get((experiment.name, variant.name))) is not None:
            job = self._prime_tester(setup)
            load: shapes.Shape = setup.load
            return self._scenario(experiment, variant, job, load, setup.machines)
        job = self._with_profiles(load_topology("twittersentiment"))
        job = replace(job, tenant=TENANT, intent=with_percentile(job.intent))
        burst = OtherSelectivity(BURST_S, BURST_LENGTH_S, job.id, "filter", BURST_SELECTIVITY)
        scenario = self._scenario(experiment, variant, job, tweet_rates(), MACHINES)
        return replace(scenario, faults=(burst,))

    def _scenario(
        self,
        experiment: Experiment,
        variant: Variant,
        job: Job,
        load: shapes.Shape,
        machines: int,
        faults: tuple[AnyFault, ...] = (),
    ) -> Scenario:
        machine = self.own.machine or self.chosen.common.machine
        specs = (
            MachineSpec(f"m{i}", machine.cores, machine.memory_gb * 1e9) for i in range(machines)
        )
        return Scenario(
            name=f"{experiment.name} {variant.name}",
            about=experiment.about,
            machines=tuple(specs),
            character=nephele_character(self.chosen),
            assumed=assumed_costs(self.chosen),
            way=SimulationMode.EVENTS,
            arrival_cv2=POISSON_CV2,
            length_s=experiment.duration_s,
            step_s=1.0,
            round_s=ROUND_S,
            cool_down_s=0.0,
            warm_up_s=experiment.policy_from_s,
            seed=0,
            slots=None,
            policy=None,
            jobs=(ScheduledJob(job, 0.0, {source.name: load for source in job.sources}),),
            faults=faults,
            rescales=(),
            batching_ms=_batching(job, PRIMETESTER.get((experiment.name, variant.name))),
        )

    def _prime_tester(self, setup: PrimeTesterSetup) -> Job:
        job = self._with_profiles(load_topology("primetester"))
        bounds = {"tester": setup.testers, "collect": _fixed(setup.ends)}
        (constraint,) = job.intent.constraints
        promised = replace(constraint, mean_latency_ms=setup.promise_ms)
        fixed = tuple(name for name, span in bounds.items() if span.min == span.max)
        return replace(
            job,
            tenant=TENANT,
            sources=tuple(replace(source, partitions=setup.ends) for source in job.sources),
            operators=tuple(replace(o, parallelism=bounds[o.name]) for o in job.operators),
            intent=with_percentile(Intent(latency_slo(setup.promise_ms), 1.0, (promised,))),
            bounds=Bounds(fixed=fixed),
        )

    def _with_profiles(self, job: Job) -> Job:
        profiles = self.chosen.common.profiles[job.name]

        def profiled(operator: Operator) -> Operator:
            return replace(operator, profile=profile_of(profiles[operator.name]))

        return replace(job, operators=tuple(map(profiled, job.operators)))


def latency_slo(ms: float) -> tuple[Threshold, ...]:
    return (Threshold(Metric.LATENCY, ms),)


def with_percentile(intent: Intent) -> Intent:
    """The intent with a threshold that only serves to measure the 95th percentile."""
    measured = Threshold(Metric.LATENCY, 1e6, "p95")
    return replace(intent, thresholds=(*intent.thresholds, measured), priority=1.0)


def _batching(job: Job, setup: PrimeTesterSetup | None) -> dict[str, dict[EdgeName, float]]:
    """The batching times at the start, by job and edge; none for instant flushing."""
    if setup is None or setup.batching_ms is None:
        return {}
    inner = [edge for edge in job.edges if edge.target not in {sink.name for sink in job.sinks}]
    return {job.id: {edge.name: setup.batching_ms for edge in inner}}
