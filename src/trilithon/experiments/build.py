"""Owns making a simulated run of an experiment: the paper's jobs, loads and faults, the chosen numbers for
what it leaves open.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from trilithon.engines.simulated.engine import SimulationMode
from trilithon.engines.simulated.faults import AnyFault, ForeignLoad, MetricsStop
from trilithon.engines.simulated.machines import MachineSpec
from trilithon.experiments.definition import Experiment, FaultKind, Jobs, Load, Variant
from trilithon.model.job import Job, Operator, Parallelism, Work
from trilithon.scenarios import shipped
from trilithon.scenarios.forms import ChosenForm, HengeForm
from trilithon.scenarios.scenario import Scenario, ScheduledJob, assumed_of, storm_of
from trilithon.spec.job_builder import profile_of
from trilithon.workloads import shapes, trace

TENANT: Final = "papers"
ROUND_S: Final = 10.0


@dataclass(frozen=True)
class Builder:
    """Makes scenarios with the numbers of one file of chosen ones."""

    chosen: ChosenForm

    @property
    def henge(self) -> HengeForm:
        assert self.chosen.henge is not None  # noqa: S101 - the shipped file has it
        return self.chosen.henge

    def scenario(self, experiment: Experiment, variant: Variant) -> Scenario:
        """A run without a policy, from the beginning to the end."""
        machines = self.machines(variant)
        return Scenario(
            name=f"{experiment.name} {variant.name}",
            about=experiment.about,
            machines=machines,
            character=storm_of(self.chosen),
            assumed=assumed_of(self.chosen),
            way=SimulationMode.FLUID,
            even=False,
            length_s=experiment.duration_s,
            step_s=1.0,
            round_s=ROUND_S,
            cool_down_s=0.0,
            warm_up_s=experiment.held_back_s,
            seed=0,
            slots=None,
            policy=None,
            jobs=tuple(fed for jobs in variant.jobs for fed in self.jobs(jobs)),
            faults=tuple(self._faults(variant, machines)),
            rescales=(),
        )

    def machines(self, variant: Variant) -> tuple[MachineSpec, ...]:
        told = self.henge.machine
        count, cores = variant.machines, variant.cores or told.cores
        if variant.resources is not None:
            # A cluster of its own is one machine per job; a share of that is so many of them.
            count, cores = round(variant.resources * variant.count), self.henge.own_cores
        memory_gb = variant.memory_gb or told.memory_gb
        return tuple(MachineSpec(f"m{i}", cores, memory_gb * 1e9) for i in range(count))

    def jobs(self, jobs: Jobs) -> Iterator[ScheduledJob]:
        base = self._operators(shipped.shipped_job(str(jobs.shape)), jobs)
        rate = self._rate(jobs)
        for i, intent in enumerate(jobs.intents):
            name = f"{jobs.name}{i + 1}" if jobs.count > 1 else jobs.name
            job = replace(base, tenant=TENANT, name=name, intent=intent)
            loads = {source.name: shape_of(jobs.load, rate) for source in job.sources}
            yield ScheduledJob(job, jobs.arrive_s, loads)

    def _rate(self, jobs: Jobs) -> float:
        if jobs.workers is not None:
            return self.henge.per_worker * jobs.workers
        name = str(jobs.shape)
        return self.henge.rates.get(name) or self.chosen.rates[name]

    def _operators(self, job: Job, jobs: Jobs) -> Job:
        profiles = self.chosen.profiles.get(job.name, {})
        given, first = dict(jobs.instances), self.henge.instances.get(job.name)
        most = self.henge.tasks
        if jobs.workers is not None:
            first = max(1, round(jobs.workers / self.henge.workers_per_instance))
        if jobs.tasks is not None:
            most = max(1, jobs.tasks // len(job.operators))

        def made(operator: Operator) -> Operator:
            count = given.get(operator.name, first or operator.parallelism.initial)
            return replace(
                operator,
                work=_work(operator, keeps_state=operator.name == jobs.state),
                profile=profile_of(profiles[operator.name]),
                parallelism=Parallelism(count, 1, max(most, count)),
            )

        return replace(job, operators=tuple(map(made, job.operators)))

    def _faults(self, variant: Variant, machines: tuple[MachineSpec, ...]) -> Iterator[AnyFault]:
        for fault in variant.faults:
            span_s = fault.to_s - fault.from_s
            if fault.kind is FaultKind.LOST:
                yield MetricsStop(fault.from_s, span_s)
                continue
            threads = fault.size or self.henge.foreign_threads
            for machine in machines:
                yield ForeignLoad(fault.from_s, span_s, machine.name, threads)


def shape_of(load: Load, rate: float) -> shapes.Shape:
    """What comes in, for a job that was sized for this rate."""
    if load.trace is not None:
        assert load.row_s is not None  # noqa: S101 - a trace has rows of a length
        return shapes.Trace(rate * load.factor, trace.load(load.trace), load.row_s)
    if not load.changes:
        return shapes.Constant(rate * load.factor)
    factors = [load.factor, *(change.factor for change in load.changes)]
    moments = [0.0, *(change.at_s for change in load.changes)]
    return shapes.Pieces([rate * factor for factor in factors], moments)


def median_rate(shape: shapes.Shape, length_s: float) -> float:
    """The rate that is not exceeded for half of the time."""
    found = sorted(shape.rate_per_s((i + 0.5) * length_s / 1000) for i in range(1000))
    return (found[499] + found[500]) / 2


def _work(operator: Operator, *, keeps_state: bool) -> Work:
    """What matters of an operator's work in a simulated run: whether it keeps state, and for how long."""
    if not keeps_state:
        return Work()
    return operator.work if operator.work.stateful else Work(aggregate=(("seen", "count(*)"),))
