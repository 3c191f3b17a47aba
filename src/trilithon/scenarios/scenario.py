"""Owns reading a scenario: files become machines, jobs, loads and faults, every problem with its line."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from trilithon.engines.simulated.character import SPARK_RTM, Character, QueuedRecords, storm
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
from trilithon.model.profile import Distribution
from trilithon.policies.policy import Policy
from trilithon.policies.registry import policy
from trilithon.scenarios import calibration, shipped
from trilithon.scenarios.forms import (
    ChosenForm,
    FaultForm,
    LoadForm,
    ScenarioForm,
    ScenarioJobForm,
)
from trilithon.spec.durations import parse_seconds
from trilithon.spec.fields import ProfileSpec
from trilithon.spec.job_builder import intent_of, profile_of
from trilithon.spec.job_file import load_job
from trilithon.spec.yaml_reader import Document, read_yaml, read_yaml_file
from trilithon.workloads import shapes, trace

CHOSEN: Final = resources.files("trilithon.scenarios") / "chosen.yaml"
PEAK: Final = 3.0
PERIOD_S: Final = 60.0
ROW_S: Final = 600.0
# What a fault does that does not say how much.
SLOW_FACTOR: Final = 2.0
SLOW_SPEED: Final = 0.5
FOREIGN_THREADS: Final = 1.0
F = TypeVar("F", bound=BaseModel)


@dataclass(frozen=True)
class ScheduledJob:
    """A job, when it comes, and what comes to it."""

    job: Job
    start_s: float
    loads: dict[str, shapes.Shape]


@dataclass(frozen=True)
class Scenario:
    """A run, ready to begin."""

    name: str
    about: str
    machines: tuple[MachineSpec, ...]
    character: Character
    assumed: Assumed
    way: SimulationMode
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
    """The scenario of a file, with another seed if one is given. What it names is looked for beside it."""
    document = read_yaml_file(path)
    form = _form(ScenarioForm, document)
    if seed is not None:
        form = form.model_copy(update={"seed": seed})
    reader = _ScenarioReader(path, document, form)
    return reader.scenario()


def _form(kind: type[F], document: Document) -> F:
    try:
        return kind.model_validate(document.data)
    except ValidationError as error:
        problems = []
        for one in error.errors():
            path = _path(one["loc"])
            code = "UNKNOWN_FIELD" if one["type"] == "extra_forbidden" else "BAD_VALUE"
            message = one["msg"].removeprefix("Value error, ")
            problems.append(document.locate(Problem(code, path, f"{message}.", "")))
        problems.sort(key=lambda problem: problem.line or 0)
        raise InvalidScenario(problems, document.file or "the scenario") from None


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif not str(part).startswith("#"):
            path += f".{part}" if path else str(part)
    return path


def chosen(path: Path | None = None) -> ChosenForm:
    """The numbers that had to be chosen: one file for all experiments."""
    document = read_yaml_file(path) if path else read_yaml(CHOSEN.read_bytes(), "chosen.yaml")
    return _form(ChosenForm, document)


def assumed_of(form: ChosenForm) -> Assumed:
    told = form.assumed.model_dump()
    return Assumed(**{**told, "distribution": Distribution(told["distribution"])})


def storm_of(form: ChosenForm) -> Character:
    told = form.storm
    return storm(
        transit_s=parse_seconds(told.transit),
        outage_s=parse_seconds(told.outage),
        restart_s=parse_seconds(told.restart),
        state_s=parse_seconds(told.state),
        waiting=QueuedRecords(told.waiting),
    )


class _ScenarioReader:
    """Puts a scenario together; problems are told with the line of what they are about."""

    def __init__(self, path: Path, document: Document, form: ScenarioForm) -> None:
        self.folder, self.document, self.form = path.parent, document, form
        self.chosen = chosen(self.folder / form.chosen if form.chosen else None)
        learned = form.calibration
        self.learned = calibration.load_calibration(self.folder / learned) if learned else None

    def refuse(self, code: str, path: str, message: str, hint: str = "") -> InvalidScenario:
        found = self.document.locate(Problem(code, path, message, hint))
        return InvalidScenario([found], self.document.file or "the scenario")

    def scenario(self) -> Scenario:
        form = self.form
        fed: list[ScheduledJob] = []
        for i, one in enumerate(form.jobs):
            fed += self._jobs(one, f"jobs[{i}]")
        names = [each.job.id for each in fed]
        if twice := {name for name in names if names.count(name) > 1}:
            raise self.refuse(
                "DUPLICATE_JOB", "jobs", f"{min(twice)} is there twice.", "Name one of them anew."
            )
        machines = self._machines()
        for i, rescale in enumerate(form.rescales):
            if rescale.job not in names:
                path = f"rescales[{i}].job"
                raise self.refuse("NOT_FOUND", path, f"There is no job {rescale.job!r}.")
        return Scenario(
            name=form.name,
            about=form.about,
            machines=machines,
            character=self._character(),
            assumed=assumed_of(self.chosen),
            way=SimulationMode(form.way),
            even=form.arrivals == "even",
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
            return storm_of(self.chosen)
        return SPARK_RTM if self.learned is None else self.learned.character

    def _machines(self) -> tuple[MachineSpec, ...]:
        told = self.form.machines
        kind = self.chosen.machine
        if told.kind is not None:
            if told.kind not in self.chosen.machines:
                known = ", ".join(self.chosen.machines) or "none"
                raise self.refuse(
                    "NOT_FOUND", "machines.kind", f"There is no kind {told.kind!r}.",
                    f"There are: {known}.",
                )  # fmt: skip
            kind = self.chosen.machines[told.kind]
        cores, memory = told.cores or kind.cores, told.memory_gb or kind.memory_gb
        return tuple(MachineSpec(f"m{i}", cores, memory * 1e9) for i in range(told.count))

    def _jobs(self, form: ScenarioJobForm, path: str) -> list[ScheduledJob]:
        beside = self.folder / form.file
        known = form.file in shipped.shipped_job_names() and not beside.is_file()
        job = shipped.shipped_job(form.file) if known else load_job(beside)
        if self.learned is not None:
            job = calibration.with_profiles(job, self.learned)
        profiles = self.chosen.profiles.get(job.name, {})
        if strange := [n for n in form.parallelism if n != "all" and n not in _operators(job)]:
            raise self.refuse(
                "NOT_FOUND", f"{path}.parallelism", f"{job.name} has no operator {strange[0]!r}."
            )
        operators = tuple(
            _operator(operator, profiles, form.parallelism) for operator in job.operators
        )
        intent = job.intent if form.intent is None else intent_of(form.intent)
        rate = self.chosen.rates.get(job.name)
        found: list[ScheduledJob] = []
        for i in range(form.count):
            name = (form.name or job.name) + (f"-{i}" if form.count > 1 else "")
            copy = replace(
                job, name=name, tenant=form.tenant or job.tenant, operators=operators, intent=intent
            )
            loads = {
                source.name: self._load(
                    form.loads.get(source.name, form.load),
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
                "RATE_MISSING", path, "It is not said how many records come.",
                "Give `rate`, or a rate for this job in the file of chosen numbers.",
            )  # fmt: skip
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
            return shapes.Phases.prime_tester(low, high, form.steps, period_s)
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
        if form.machine is None:
            raise self.refuse("MACHINE_MISSING", path, "It names no machine.", "Give `machine`.")
        if form.kind == "machine_crash":
            return MachineCrash(at_s, for_s, form.machine)
        if form.kind == "slow_machine":
            return SlowMachine(at_s, for_s, form.machine, form.speed or SLOW_SPEED)
        return ForeignLoad(at_s, for_s, form.machine, form.threads or FOREIGN_THREADS)

    def _afflicted(self, form: FaultForm, path: str, jobs: Sequence[Job]) -> str:
        """The operator of which an instance is to be slow; job, operator and instance must be there."""
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
    bounds = Parallelism(count, min(bounds.min, count), max(bounds.max, count))
    return replace(operator, profile=profile, parallelism=bounds)
