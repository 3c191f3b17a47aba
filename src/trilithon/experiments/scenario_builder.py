"""Builds the simulated run of an experiment from the paper's data and the chosen numbers."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from trilithon.engines.simulated.character import SPARK_RTM, Character
from trilithon.engines.simulated.engine import SimulationMode
from trilithon.engines.simulated.faults import AnyFault, ForeignLoad, MetricsStop, SlowInstance
from trilithon.engines.simulated.machines import MachineSpec
from trilithon.errors import InvalidScenario, Problem
from trilithon.experiments.definition import (
    Experiment,
    FaultKind,
    JobSet,
    RelativeLoad,
    Topology,
    Variant,
)
from trilithon.model.job import Job, Operator, Parallelism, Work
from trilithon.model.profile import Profile
from trilithon.policies.requests import TimedRequest
from trilithon.scenarios.chosen import (
    ChosenNumbers,
    PaperNumbers,
    arrival_cv2,
    assumed_costs,
    heron_character,
    storm_character,
)
from trilithon.scenarios.scenario import Scenario, ScheduledJob
from trilithon.spec.fields import ProfileSpec
from trilithon.spec.job_builder import profile_of
from trilithon.workloads import shapes, trace
from trilithon.workloads.paper_jobs import load_topology

TENANT: Final = "papers"
ROUND_S: Final = 10.0
T = TypeVar("T")


@dataclass(frozen=True)
class ScenarioBuilder:
    """Builds scenarios with one set of chosen numbers, of which those of one paper come first."""

    chosen: ChosenNumbers
    paper: str

    @property
    def own(self) -> PaperNumbers:
        """The chosen numbers of the paper."""
        return self.chosen.of_paper(self.paper)

    def scenario(self, experiment: Experiment, variant: Variant) -> Scenario:
        """A run of the whole experiment without a policy."""
        machines = self.machines(variant)
        return Scenario(
            name=f"{experiment.name} {variant.name}",
            about=experiment.about,
            machines=machines,
            character=self._character(variant),
            assumed=assumed_costs(self.chosen),
            way=SimulationMode.FLUID,
            arrival_cv2=arrival_cv2(
                self.chosen, variant.arrivals or self.chosen.common.arrivals.default
            ),
            length_s=experiment.duration_s,
            step_s=1.0,
            round_s=ROUND_S,
            cool_down_s=0.0,
            warm_up_s=experiment.policy_from_s,
            seed=0,
            slots=self.slots(machines),
            policy=None,
            jobs=tuple(
                self._apart(job, machines) if variant.operators_apart else job
                for jobs in variant.jobs
                for job in self.jobs(jobs)
            ),
            faults=tuple(self._faults(variant, machines)),
            rescales=(),
            requests=()
            if variant.scaling is None
            else (
                TimedRequest(variant.scaling.at_s, variant.scaling.kind, variant.scaling.machines),
            ),
        )

    def _character(self, variant: Variant) -> Character:
        if variant.engine == "spark-rtm":
            return SPARK_RTM
        make = heron_character if variant.engine == "heron" else storm_character
        return make(self.chosen)

    def machines(self, variant: Variant) -> tuple[MachineSpec, ...]:
        usual = self.own.machine or self.chosen.common.machine
        if variant.machine_kind is not None:
            usual = self.chosen.common.machines[variant.machine_kind]
        count, cores = variant.machines, variant.cores or usual.cores
        if variant.resources is not None:
            # A cluster of its own is one machine per job; a share of that is so many of them.
            count = round(variant.resources * variant.count)
            cores = self._given(self.own.own_cores, "own_cores")
        memory_gb = variant.memory_gb or usual.memory_gb
        return tuple(MachineSpec(f"m{i}", cores, memory_gb * 1e9) for i in range(count))

    def slots(self, machines: Sequence[MachineSpec]) -> int | None:
        """Instances that may run on these machines: by their cores. None without a limit."""
        if self.own.slots_per_core is None:
            return None
        return int(self.own.slots_per_core * sum(machine.cores for machine in machines))

    def jobs(self, jobs: JobSet) -> Iterator[ScheduledJob]:
        base = self._sized(load_topology(str(jobs.topology)), jobs)
        rate = self._rate(jobs)
        for i, intent in enumerate(jobs.intents):
            name = f"{jobs.name}{i + 1}" if jobs.count > 1 else jobs.name
            job = replace(base, tenant=TENANT, name=name, intent=intent)
            loads = {source.name: load_shape(jobs.load, rate) for source in job.sources}
            yield ScheduledJob(job, jobs.arrive_s, loads)

    def _apart(self, scheduled: ScheduledJob, machines: Sequence[MachineSpec]) -> ScheduledJob:
        """The job with the machines divided among its operators, as evenly as can be."""
        operators = scheduled.job.operators
        shares = [
            [m.name for i, m in enumerate(machines) if i * len(operators) // len(machines) == o]
            for o in range(len(operators))
        ]
        placement = {
            operator.name: tuple(
                share[index % len(share)] for index in range(operator.parallelism.initial)
            )
            for operator, share in zip(operators, shares, strict=True)
        }
        return replace(scheduled, placement=placement)

    def _given(self, value: T | None, name: str) -> T:
        """A number of the paper's part that this run needs."""
        if value is None:
            path = f"papers.{self.paper}.{name}"
            problem = Problem("NUMBER_MISSING", path, "An experiment needs this number.", "")
            raise InvalidScenario([problem], "the chosen numbers")
        return value

    def _rate(self, jobs: JobSet) -> float:
        if jobs.workers is not None:
            return self._given(self.own.per_worker, "per_worker") * jobs.workers
        name = str(jobs.topology)
        return self._given(self.chosen.rate(name, self.paper), f"rates.{name}")

    def _sized(self, job: Job, jobs: JobSet) -> Job:
        """The topology with the profiles and the parallelism of this experiment."""
        profiles = self.chosen.common.profiles.get(job.name, {})
        given, first = dict(jobs.instances), self.own.instances.get(job.name)
        most = self.own.tasks or 0
        if jobs.workers is not None:
            per_instance = self._given(self.own.workers_per_instance, "workers_per_instance")
            first = max(1, round(jobs.workers / per_instance))
        if jobs.tasks is not None:
            most = max(1, jobs.tasks // len(job.operators))

        def sized(operator: Operator) -> Operator:
            count = given.get(operator.name, first or operator.parallelism.initial)
            profile = profile_of(self._profile(profiles[operator.name]))
            if jobs.hot_key is not None and jobs.hot_key[0] == operator.name:
                profile = replace(profile or Profile(), hot_key=jobs.hot_key[1])
            return replace(
                operator,
                work=_work(operator, keeps_state=operator.name == jobs.state),
                profile=profile,
                parallelism=Parallelism(count, 1, max(most or operator.parallelism.max, count)),
            )

        bounds = replace(job.bounds, fixed=(*job.bounds.fixed, *jobs.fixed))
        return replace(job, operators=tuple(map(sized, job.operators)), bounds=bounds)

    def _profile(self, given: ProfileSpec) -> ProfileSpec:
        if given.cpu_share is not None or self.own.cpu_share is None:
            return given
        return given.model_copy(update={"cpu_share": self.own.cpu_share})

    def _faults(self, variant: Variant, machines: tuple[MachineSpec, ...]) -> Iterator[AnyFault]:
        for fault in variant.faults:
            duration_s = fault.to_s - fault.from_s
            if fault.kind is FaultKind.METRICS_LOST:
                yield MetricsStop(fault.from_s, duration_s)
                continue
            if fault.kind is FaultKind.SLOW_INSTANCE:
                job = f"{TENANT}/{fault.job}"
                yield SlowInstance(fault.from_s, duration_s, job, fault.operator, 0, fault.slower)
                continue
            threads = fault.threads or self._given(self.own.foreign_threads, "foreign_threads")
            for machine in machines:
                yield ForeignLoad(fault.from_s, duration_s, machine.name, threads)


def check_numbers(chosen: ChosenNumbers, paper: str, topologies: set[Topology], file: str) -> None:
    """Refuses chosen numbers without the paper's part, or a rate or service time that it needs."""
    problems = []
    if paper not in chosen.papers:
        path = f"papers.{paper}"
        problems.append(Problem("NUMBER_MISSING", path, "The experiments need this part.", ""))
        raise InvalidScenario(problems, file)
    for name in sorted(map(str, topologies)):
        if chosen.rate(name, paper) is None:
            problems.append(Problem("NUMBER_MISSING", f"rates.{name}", "It has no rate.", ""))
        profiles = chosen.common.profiles.get(name, {})
        for operator in load_topology(name).operators:
            if operator.name not in profiles or profiles[operator.name].service_ms is None:
                path = f"common.profiles.{name}.{operator.name}"
                problems.append(Problem("NUMBER_MISSING", path, "It has no service time.", ""))
    if problems:
        raise InvalidScenario(problems, file)


def load_shape(load: RelativeLoad, rate: float) -> shapes.Shape:
    """The load of a job that was sized for this rate."""
    if load.trace is not None:
        assert load.row_s is not None  # noqa: S101 - a trace has rows of a length
        most = load.trace_most or math.inf
        values = [min(value, most) for value in trace.load(load.trace)]
        return shapes.Trace(rate * load.factor, values, load.row_s)
    if not load.changes:
        return shapes.Constant(rate * load.factor)
    factors = [load.factor, *(change.factor for change in load.changes)]
    starts_s = [0.0, *(change.at_s for change in load.changes)]
    return shapes.Pieces([rate * factor for factor in factors], starts_s)


def median_rate(shape: shapes.Shape, length_s: float) -> float:
    """The rate that is not exceeded for half of the time."""
    rates = sorted(shape.rate_per_s((i + 0.5) * length_s / 1000) for i in range(1000))
    return (rates[499] + rates[500]) / 2


def _work(operator: Operator, *, keeps_state: bool) -> Work:
    """The part of an operator's work that a simulated run needs: whether it keeps state."""
    if not keeps_state:
        return Work()
    return operator.work if operator.work.stateful else Work(aggregate=(("seen", "count(*)"),))
