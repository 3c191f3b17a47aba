"""Loads a scenario file: machines, jobs, loads and faults; reports problems with their line."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from trilithon.engines.simulated.character import SPARK_RTM, Character
from trilithon.engines.simulated.engine import SimulationMode
from trilithon.engines.simulated.faults import (
    AnyFault,
    ForeignLoad,
    MachineCrash,
    MetricsStop,
    SlowInstance,
    SlowMachine,
)
from trilithon.engines.simulated.machines import MachineSpec
from trilithon.engines.simulated.operator_cost import Assumed
from trilithon.errors import InvalidScenario, Problem, TrilithonError
from trilithon.model.job import Job, Operator, Parallelism
from trilithon.policies.policy import Policy
from trilithon.policies.registry import policy
from trilithon.scenarios.calibration import load_calibration, with_profiles
from trilithon.scenarios.chosen import (
    JobLoadNumbers,
    assumed_costs,
    load_chosen,
    storm_character,
)
from trilithon.scenarios.forms import (
    FaultForm,
    LoadForm,
    ScenarioForm,
    ScenarioJobForm,
    validated,
)
from trilithon.spec.durations import parse_seconds
from trilithon.spec.fields import ProfileSpec
from trilithon.spec.job_builder import intent_of, profile_of
from trilithon.spec.job_file import load_job
from trilithon.spec.yaml_reader import Document, read_yaml_file
from trilithon.workloads import paper_jobs, shapes, trace

# Defaults of a load: its peak relative to its rate, its period, the row of a trace, its steps.
PEAK: Final = 3.0
PERIOD_S: Final = 60.0
ROW_S: Final = 600.0
STEPS: Final = 8
# Defaults of faults.
SLOW_FACTOR: Final = 2.0
SLOW_SPEED: Final = 0.5
FOREIGN_THREADS: Final = 1.0


@dataclass(frozen=True)
class ScheduledJob:
    """A job, the time of its submission, and the load of each of its sources."""

    job: Job
    start_s: float
    loads: dict[str, shapes.Shape]


@dataclass(frozen=True)
class Scenario:
    """A simulated run: everything that `simulate` needs."""

    name: str
    about: str
    machines: tuple[MachineSpec, ...]
    character: Character
    assumed: Assumed
    mode: SimulationMode
    # Whether records arrive at even intervals, rather than as a Poisson process.
    even: bool
    length_s: float
    step_s: float
    round_s: float
    cool_down_s: float
    warm_up_s: float
    seed: int
    slots: int | None
    policy: Policy | None
    jobs: tuple[ScheduledJob, ...]
    faults: tuple[AnyFault, ...]
    rescales: tuple[tuple[float, str, dict[str, int]], ...]


def load_scenario(path: Path, seed: int | None = None) -> Scenario:
    """Load a scenario, with another seed if given. Files that it names are relative to it."""
    document = read_yaml_file(path)
    form = validated(ScenarioForm, document)
    if seed is not None:
        form = form.model_copy(update={"seed": seed})
    reader = _ScenarioReader(path, document, form)
    return reader.scenario()


class _ScenarioReader:
    """Builds a scenario from its file and the files that it names."""

    def __init__(self, path: Path, document: Document, form: ScenarioForm) -> None:
        self.folder, self.document, self.form = path.parent, document, form
        self.chosen = load_chosen(self.folder / form.chosen if form.chosen else None)
        file = form.calibration
        self.calibration = load_calibration(self.folder / file) if file else None

    def refuse(self, code: str, path: str, message: str, hint: str = "") -> InvalidScenario:
        problem = self.document.locate(Problem(code, path, message, hint))
        return InvalidScenario([problem], self.document.file or "the scenario")

    def scenario(self) -> Scenario:
        form = self.form
        if form.paper is not None and form.paper not in self.chosen.papers:
            known = ", ".join(self.chosen.papers) or "none"
            message = f"The file of chosen numbers has no part {form.paper!r}."
            raise self.refuse("NOT_FOUND", "paper", message, f"It has: {known}.")
        scheduled: list[ScheduledJob] = []
        for i, job_form in enumerate(form.jobs):
            scheduled += self._jobs(job_form, f"jobs[{i}]")
        jobs = [entry.job for entry in scheduled]
        names = [job.id for job in jobs]
        if duplicates := {name for name in names if names.count(name) > 1}:
            message = f"Two jobs have the name {min(duplicates)}."
            raise self.refuse("DUPLICATE_JOB", "jobs", message, "Set `name` for one of them.")
        machines = self._machines()
        for i, rescale in enumerate(form.rescales):
            if rescale.job not in names:
                path = f"rescales[{i}].job"
                hint = f"The jobs are: {', '.join(names)}."
                raise self.refuse("NOT_FOUND", path, f"There is no job {rescale.job!r}.", hint)
        return Scenario(
            name=form.name,
            about=form.about,
            machines=machines,
            character=self._character(),
            assumed=assumed_costs(self.chosen),
            mode=SimulationMode(form.way),
            even=form.arrivals == "even",
            length_s=parse_seconds(form.length),
            step_s=parse_seconds(form.step),
            round_s=parse_seconds(form.round),
            cool_down_s=parse_seconds(form.cool_down),
            warm_up_s=parse_seconds(form.warm_up),
            seed=form.seed,
            slots=form.slots,
            policy=self._policy(),
            jobs=tuple(scheduled),
            faults=tuple(
                self._fault(fault, f"faults[{i}]", jobs, machines)
                for i, fault in enumerate(form.faults)
            ),
            rescales=tuple(
                (parse_seconds(rescale.at), rescale.job, dict(rescale.parallelism))
                for rescale in form.rescales
            ),
        )

    def _policy(self) -> Policy | None:
        if self.form.policy is None:
            return None
        try:
            return policy(self.form.policy.name, self.form.policy.parameters)
        except TrilithonError as error:
            raise self.refuse(error.code, "policy", error.message, error.hint) from error

    def _character(self) -> Character:
        if self.form.engine == "storm":
            return storm_character(self.chosen)
        return SPARK_RTM if self.calibration is None else self.calibration.character

    def _machines(self) -> tuple[MachineSpec, ...]:
        form = self.form.machines
        kinds = self.chosen.common.machines
        machine = self.chosen.common.machine
        if form.kind is not None:
            if form.kind not in kinds:
                message = f"There is no kind of machine {form.kind!r}."
                hint = f"The kinds are: {', '.join(kinds) or 'none'}."
                raise self.refuse("NOT_FOUND", "machines.kind", message, hint)
            machine = kinds[form.kind]
        cores, memory_gb = form.cores or machine.cores, form.memory_gb or machine.memory_gb
        return tuple(MachineSpec(f"m{i}", cores, memory_gb * 1e9) for i in range(form.count))

    def _jobs(self, form: ScenarioJobForm, path: str) -> list[ScheduledJob]:
        file = self.folder / form.file
        shipped = form.file in paper_jobs.topology_names() and not file.is_file()
        job = paper_jobs.load_topology(form.file) if shipped else load_job(file)
        if self.calibration is not None:
            job = with_profiles(job, self.calibration)
        profiles = self.chosen.common.profiles.get(job.name, {})
        names = [operator.name for operator in job.operators]
        if unknown := [name for name in form.parallelism if name not in {"all", *names}]:
            message = f"{job.name} has no operator {unknown[0]!r}."
            hint = f"It has: {', '.join(names)}."
            raise self.refuse("NOT_FOUND", f"{path}.parallelism", message, hint)
        operators = tuple(
            _operator(operator, profiles, form.parallelism) for operator in job.operators
        )
        intent = job.intent if form.intent is None else intent_of(form.intent)
        numbers = self.chosen.of_paper(self.form.paper)
        rate = self.chosen.rate(job.name, self.form.paper)
        load_numbers = numbers.loads.get(job.name, JobLoadNumbers())
        scheduled: list[ScheduledJob] = []
        for i in range(form.count):
            name = (form.name or job.name) + (f"-{i}" if form.count > 1 else "")
            copy = replace(
                job, name=name, tenant=form.tenant or job.tenant, operators=operators, intent=intent
            )
            loads = {
                source.name: self._load(
                    _with_chosen(form.loads.get(source.name, form.load), load_numbers),
                    f"{path}.load",
                    rate,
                    f"{copy.id}/{source.name}",
                )
                for source in job.sources
            }
            scheduled.append(ScheduledJob(copy, parse_seconds(form.start), loads))
        return scheduled

    def _load(
        self, form: LoadForm, path: str, chosen_rate: float | None, source: str
    ) -> shapes.Shape:
        rate = form.rate if form.rate is not None else chosen_rate
        if rate is None:
            raise self.refuse(
                "RATE_MISSING",
                path,
                f"The input rate of {source} is not given.",
                "Set `rate`, or a rate for this job in the file of chosen numbers.",
            )
        low = rate * form.times
        high = PEAK * low if form.peak is None else form.peak * form.times
        period_s = parse_seconds(form.period) if form.period else PERIOD_S
        if (form.trace is not None) != (form.shape == "trace"):
            message = "`shape: trace` and `trace` must be given together."
            raise self.refuse("BAD_LOAD", path, message, "Add the other one, or remove this one.")
        if form.trace is not None:
            file = self.folder / form.trace
            values = trace.load(str(file) if file.is_file() else form.trace)
            return shapes.Trace(low, values, parse_seconds(form.period) if form.period else ROW_S)
        if form.shape == "mmpp":
            calm_s = parse_seconds(form.calm) if form.calm else PERIOD_S
            burst_s = parse_seconds(form.burst) if form.burst else PERIOD_S / 6
            # The bursts of different sources are independent.
            seed = zlib.crc32(f"{self.form.seed}/{source}".encode())
            return shapes.Mmpp(low, high, calm_s, burst_s, seed)
        if form.shape == "phases":
            return shapes.Phases.prime_tester(low, high, form.steps or STEPS, period_s)
        if form.shape == "constant":
            return shapes.Constant(low)
        kind: Callable[[float, float, float], shapes.Shape] = {
            "step": shapes.StepChange,
            "spike": shapes.Spike,
            "ramp": shapes.Ramp,
            "sine": shapes.Sine,
        }[form.shape]
        return kind(low, high, period_s)

    def _fault(
        self, form: FaultForm, path: str, jobs: Sequence[Job], machines: Sequence[MachineSpec]
    ) -> AnyFault:
        at_s = parse_seconds(form.at)
        for_s = parse_seconds(form.for_) if form.for_ else None
        names = [*form.machines, *([form.machine] if form.machine else [])]
        existing = {machine.name for machine in machines}
        if unknown := [name for name in names if name not in existing]:
            hint = f"The machines are m0 to m{len(machines) - 1}."
            raise self.refuse("NOT_FOUND", path, f"There is no machine {unknown[0]!r}.", hint)
        if form.kind == "metrics_stop":
            return MetricsStop(at_s, for_s, tuple(names))
        if form.kind == "slow_instance":
            operator = self._slow_operator(form, path, jobs)
            return SlowInstance(
                at_s, for_s, str(form.job), operator, form.index, form.factor or SLOW_FACTOR
            )
        if form.machine is None:
            message = f"The fault {form.kind} needs a machine."
            raise self.refuse("MACHINE_MISSING", path, message, "Set `machine`.")
        if form.kind == "machine_crash":
            return MachineCrash(at_s, for_s, form.machine)
        if form.kind == "slow_machine":
            return SlowMachine(at_s, for_s, form.machine, form.speed or SLOW_SPEED)
        return ForeignLoad(at_s, for_s, form.machine, form.threads or FOREIGN_THREADS)

    def _slow_operator(self, form: FaultForm, path: str, jobs: Sequence[Job]) -> str:
        """The operator of a slow instance, after checking that the instance can exist."""
        job = next((job for job in jobs if job.id == form.job), None)
        if job is None:
            message = f"There is no job {form.job!r} in this scenario."
            hint = f"The jobs are: {', '.join(job.id for job in jobs)}."
            raise self.refuse("NOT_FOUND", path, message, hint)
        operators = {operator.name: operator for operator in job.operators}
        operator = operators.get(form.operator or "")
        if operator is None:
            message = f"{job.id} has no operator {form.operator!r}."
            raise self.refuse("NOT_FOUND", path, message, f"It has: {', '.join(operators)}.")
        if form.index >= operator.parallelism.max:
            message = f"{operator.name} has no instance {form.index}."
            hint = f"Its instances are 0 to {operator.parallelism.max - 1} at most."
            raise self.refuse("NOT_FOUND", path, message, hint)
        return operator.name


def _with_chosen(form: LoadForm, numbers: JobLoadNumbers) -> LoadForm:
    """The load, with the chosen numbers of the job where the scenario gives none."""
    defaults = {name: value for name, value in numbers if getattr(form, name) is None}
    return form.model_copy(update=defaults)


def _operator(
    operator: Operator, profiles: dict[str, ProfileSpec], initial: dict[str, int]
) -> Operator:
    """The operator with the initial parallelism, and the chosen profile if it has none."""
    profile = operator.profile
    if profile is None and operator.name in profiles:
        profile = profile_of(profiles[operator.name])
    bounds = operator.parallelism
    count = initial.get(operator.name, initial.get("all", bounds.initial))
    bounds = Parallelism(count, min(bounds.min, count), max(bounds.max, count))
    return replace(operator, profile=profile, parallelism=bounds)
