"""Reads a scenario file into machines, jobs, loads and faults; reports problems with their line."""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from trilithon.engines.simulated.character import SPARK_RTM, Character
from trilithon.engines.simulated.engine import SimulationMode
from trilithon.engines.simulated.faults import (
    AnyFault,
    ForeignLoad,
    MachineCrash,
    MetricsStop,
    OtherSelectivity,
    SlowInstance,
    SlowMachine,
)
from trilithon.engines.simulated.machines import MachineSpec
from trilithon.engines.simulated.operator_cost import Assumed
from trilithon.errors import InvalidScenario, Problem, TrilithonError
from trilithon.model.intent import EdgeName
from trilithon.model.job import Job, Operator
from trilithon.plugins import policy
from trilithon.policies.policy import Policy
from trilithon.policies.requests import ScalingKind, TimedRequest
from trilithon.scenarios import calibration
from trilithon.scenarios.chosen import (
    JobLoadNumbers,
    arrival_cv2,
    assumed_costs,
    heron_character,
    load_chosen,
    nephele_character,
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

PEAK: Final = 3.0
PERIOD_S: Final = 60.0
ROW_S: Final = 600.0
STEPS: Final = 8
# What a fault does that does not say how much.
SLOW_FACTOR: Final = 2.0
SLOW_SPEED: Final = 0.5
FOREIGN_THREADS: Final = 1.0


@dataclass(frozen=True)
class ScheduledJob:
    """A job, when it comes, and what comes to it."""

    job: Job
    start_s: float
    loads: dict[str, shapes.Shape]
    # By operator, the machine of each instance at the start; the others are left to the engine.
    placement: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Scenario:
    """A run, ready to begin."""

    name: str
    about: str
    machines: tuple[MachineSpec, ...]
    character: Character
    assumed: Assumed
    way: SimulationMode
    # The squared coefficient of variation of the time between two records.
    arrival_cv2: float
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
    # What people ask for on the way; `stela` carries it out.
    requests: tuple[TimedRequest, ...] = ()
    # How long edges gather records from the start on, by job and edge; not at all if not named.
    batching_ms: Mapping[str, Mapping[EdgeName, float]] = field(default_factory=dict)


def load_scenario(path: Path, seed: int | None = None) -> Scenario:
    """The scenario of a file, with another seed if given. Files that it names lie beside it."""
    document = read_yaml_file(path)
    form = validated(ScenarioForm, document)
    if seed is not None:
        form = form.model_copy(update={"seed": seed})
    reader = _ScenarioReader(path, document, form)
    return reader.scenario()


class _ScenarioReader:
    """Puts a scenario together; problems are told with the line of what they are about."""

    def __init__(self, path: Path, document: Document, form: ScenarioForm) -> None:
        self.folder, self.document, self.form = path.parent, document, form
        self.chosen = load_chosen(self.folder / form.chosen if form.chosen else None)
        learned = form.calibration
        self.learned = calibration.load_calibration(self.folder / learned) if learned else None

    def refuse(self, code: str, path: str, message: str, hint: str = "") -> InvalidScenario:
        found = self.document.locate(Problem(code, path, message, hint))
        return InvalidScenario([found], self.document.file or "the scenario")

    def scenario(self) -> Scenario:
        form = self.form
        if form.paper is not None and form.paper not in self.chosen.papers:
            known = ", ".join(self.chosen.papers) or "none"
            message = f"The file of chosen numbers has no part {form.paper!r}."
            raise self.refuse("NOT_FOUND", "paper", message, f"It has: {known}.")
        fed: list[ScheduledJob] = []
        for i, one in enumerate(form.jobs):
            fed += self._jobs(one, f"jobs[{i}]")
        names = [each.job.id for each in fed]
        if twice := {name for name in names if names.count(name) > 1}:
            raise self.refuse(
                "DUPLICATE_JOB", "jobs", f"{min(twice)} is there twice.", "Name one of them anew."
            )
        character = self._character()
        if character.events_only and form.way != "events":
            message = f"The engine {form.engine} is simulated record by record only."
            raise self.refuse("NEEDS_EVENTS", "way", message, "Write `way: events`.")
        machines = self._machines()
        for i, rescale in enumerate(form.rescales):
            if rescale.job not in names:
                path = f"rescales[{i}].job"
                raise self.refuse("NOT_FOUND", path, f"There is no job {rescale.job!r}.")
        return Scenario(
            name=form.name,
            about=form.about,
            machines=machines,
            character=character,
            assumed=assumed_costs(self.chosen),
            way=SimulationMode(form.way),
            arrival_cv2=arrival_cv2(self.chosen, form.arrivals),
            length_s=parse_seconds(form.length),
            step_s=parse_seconds(form.step),
            round_s=parse_seconds(form.round),
            cool_down_s=parse_seconds(form.cool_down),
            warm_up_s=parse_seconds(form.warm_up),
            seed=form.seed,
            slots=form.slots,
            policy=self._policy(),
            jobs=tuple(fed),
            faults=tuple(
                self._fault(one, f"faults[{i}]", [each.job for each in fed], machines)
                for i, one in enumerate(form.faults)
            ),
            rescales=tuple(
                (parse_seconds(one.at), one.job, dict(one.parallelism)) for one in form.rescales
            ),
            requests=tuple(self._requests(names)),
        )

    def _requests(self, jobs: Sequence[str]) -> Iterator[TimedRequest]:
        for i, one in enumerate(self.form.requests):
            if one.job is not None and one.job not in jobs:
                path = f"requests[{i}].job"
                raise self.refuse("NOT_FOUND", path, f"There is no job {one.job!r}.")
            yield TimedRequest(parse_seconds(one.at), ScalingKind(one.kind), one.machines, one.job)

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
        if self.form.engine == "heron":
            if self.form.way == "events":
                raise self.refuse(
                    "BAD_VALUE", "way", "The engine heron runs as flows only.", "Use way: fluid."
                )
            return heron_character(self.chosen)
        if self.form.engine == "nephele":
            return nephele_character(self.chosen)
        return SPARK_RTM if self.learned is None else self.learned.character

    def _machines(self) -> tuple[MachineSpec, ...]:
        told = self.form.machines
        kind = self.chosen.common.machine
        if told.kind is not None:
            if told.kind not in self.chosen.common.machines:
                known = ", ".join(self.chosen.common.machines) or "none"
                raise self.refuse(
                    "NOT_FOUND",
                    "machines.kind",
                    f"There is no kind {told.kind!r}.",
                    f"There are: {known}.",
                )
            kind = self.chosen.common.machines[told.kind]
        cores, memory = told.cores or kind.cores, told.memory_gb or kind.memory_gb
        return tuple(MachineSpec(f"m{i}", cores, memory * 1e9) for i in range(told.count))

    def _jobs(self, form: ScenarioJobForm, path: str) -> list[ScheduledJob]:
        beside = self.folder / form.file
        known = form.file in paper_jobs.topology_names() and not beside.is_file()
        job = paper_jobs.load_topology(form.file) if known else load_job(beside)
        if self.learned is not None:
            job = calibration.with_profiles(job, self.learned)
        profiles = self.chosen.common.profiles.get(job.name, {})
        if strange := [n for n in form.parallelism if n != "all" and n not in _operators(job)]:
            raise self.refuse(
                "NOT_FOUND", f"{path}.parallelism", f"{job.name} has no operator {strange[0]!r}."
            )
        operators = tuple(
            _operator(operator, profiles, form.parallelism) for operator in job.operators
        )
        intent = job.intent if form.intent is None else intent_of(form.intent)
        numbers = self.chosen.of_paper(self.form.paper)
        rate = self.chosen.rate(job.name, self.form.paper)
        varies = numbers.loads.get(job.name, JobLoadNumbers())
        found: list[ScheduledJob] = []
        for i in range(form.count):
            name = (form.name or job.name) + (f"-{i}" if form.count > 1 else "")
            copy = replace(
                job, name=name, tenant=form.tenant or job.tenant, operators=operators, intent=intent
            )
            loads = {
                source.name: self._load(
                    _with_chosen(form.loads.get(source.name, form.load), varies),
                    f"{path}.load",
                    rate,
                    f"{copy.id}/{source.name}",
                )
                for source in job.sources
            }
            found.append(ScheduledJob(copy, parse_seconds(form.start), loads))
        return found

    def _load(self, form: LoadForm, path: str, usual: float | None, whose: str) -> shapes.Shape:
        rate = form.rate if form.rate is not None else usual
        if rate is None:
            raise self.refuse(
                "RATE_MISSING",
                path,
                "It is not said how many records come.",
                "Give `rate`, or a rate for this job in the file of chosen numbers.",
            )
        low = rate * form.times
        high = PEAK * low if form.peak is None else form.peak * form.times
        period_s = parse_seconds(form.period) if form.period else PERIOD_S
        if (form.trace is not None) != (form.shape == "trace"):
            raise self.refuse("BAD_LOAD", path, "`shape: trace` and `trace` belong together.")
        if form.trace is not None:
            beside = self.folder / form.trace
            values = trace.load(str(beside) if beside.is_file() else form.trace)
            return shapes.Trace(low, values, parse_seconds(form.period) if form.period else ROW_S)
        if form.shape == "mmpp":
            calm_s = parse_seconds(form.calm) if form.calm else PERIOD_S
            burst_s = parse_seconds(form.burst) if form.burst else PERIOD_S / 6
            # Each source has bursts of its own.
            seed = zlib.crc32(f"{self.form.seed}/{whose}".encode())
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
        named = [*form.machines, *([form.machine] if form.machine else [])]
        there = {machine.name for machine in machines}
        if strange := [name for name in named if name not in there]:
            raise self.refuse("NOT_FOUND", path, f"There is no machine {strange[0]!r}.")
        if form.kind == "metrics_stop":
            return MetricsStop(at_s, for_s, tuple(named))
        if form.kind == "slow_instance":
            operator = self._afflicted(form, path, jobs)
            return SlowInstance(
                at_s, for_s, str(form.job), operator, form.index, form.factor or SLOW_FACTOR
            )
        if form.kind == "other_selectivity":
            operator = self._afflicted(form, path, jobs)
            return OtherSelectivity(at_s, for_s, str(form.job), operator, form.factor or 1.0)
        if form.machine is None:
            raise self.refuse("MACHINE_MISSING", path, "It names no machine.", "Give `machine`.")
        if form.kind == "machine_crash":
            return MachineCrash(at_s, for_s, form.machine)
        if form.kind == "slow_machine":
            return SlowMachine(at_s, for_s, form.machine, form.speed or SLOW_SPEED)
        return ForeignLoad(at_s, for_s, form.machine, form.threads or FOREIGN_THREADS)

    def _afflicted(self, form: FaultForm, path: str, jobs: Sequence[Job]) -> str:
        """The operator of the slow instance; job, operator and instance must exist."""
        job = next((one for one in jobs if one.id == form.job), None)
        if job is None:
            raise self.refuse("NOT_FOUND", path, f"There is no job {form.job!r} in this scenario.")
        operator = next((one for one in job.operators if one.name == form.operator), None)
        if operator is None:
            hint = f"It has: {', '.join(one.name for one in job.operators)}."
            raise self.refuse(
                "NOT_FOUND", path, f"{job.id} has no operator {form.operator!r}.", hint
            )
        if form.index >= operator.parallelism.max:
            most = f"It never has more than {operator.parallelism.max}; they are counted from 0."
            raise self.refuse(
                "NOT_FOUND", path, f"{operator.name} has no instance {form.index}.", most
            )
        return operator.name


def _with_chosen(form: LoadForm, numbers: JobLoadNumbers) -> LoadForm:
    """A load with the chosen numbers of the job where the scenario gives none."""
    open_ = {name: value for name, value in numbers if getattr(form, name) is None}
    return form.model_copy(update=open_)


def _operators(job: Job) -> set[str]:
    return {operator.name for operator in job.operators}


def _operator(
    operator: Operator, profiles: dict[str, ProfileSpec], given: dict[str, int]
) -> Operator:
    """An operator with the chosen profile, where its file has none, and the instances asked for."""
    profile = operator.profile
    if profile is None and operator.name in profiles:
        profile = profile_of(profiles[operator.name])
    bounds = operator.parallelism
    count = given.get(operator.name, given.get("all", bounds.initial))
    bounds = replace(bounds, initial=count, min=min(bounds.min, count), max=max(bounds.max, count))
    return replace(operator, profile=profile, parallelism=bounds)
