"""Defines the fields of a scenario file: their names, their types and what each is for."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trilithon.errors import InvalidScenario, Problem
from trilithon.spec.fields import MAPPING, PLAIN, Duration, IntentSpec, Name
from trilithon.spec.job_builder import path_of
from trilithon.spec.yaml_reader import Document

Above0 = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
Least0 = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
F = TypeVar("F", bound=BaseModel)


class ScenarioModel(BaseModel):
    """Base of all parts of a scenario file: unknown fields are errors, types are not coerced."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class MachinesForm(ScenarioModel):
    count: Annotated[int, Field(ge=1, le=10_000)]
    kind: Name | None = Field(
        None, description="A kind of machine in the file of chosen numbers; else its default."
    )
    cores: Above0 | None = None
    memory_gb: Above0 | None = None


class LoadForm(ScenarioModel):
    """The input rate of a source over time."""

    shape: Literal["constant", "step", "spike", "ramp", "sine", "trace", "mmpp", "phases"] = (
        "constant"
    )
    rate: Above0 | None = Field(
        None,
        description="Records per second: the low of a shape, the mean of a trace; else the chosen "
        "rate of the job.",
    )
    times: Above0 = Field(1.0, description="A factor on the rate and on the peak.")
    peak: Above0 | None = Field(
        None,
        description="The high of a shape; else the chosen peak, or three times the rate.",
    )
    period: Duration | None = Field(
        None,
        description="step: time until it; ramp, sine: length; spike: time between spikes; trace: "
        "length of a row; phases: length of a step.",
    )
    trace: str | None = Field(
        None, description="A shipped trace, or a CSV file in the folder of the scenario."
    )
    calm: Duration | None = Field(
        None, description="mmpp: mean length of the low; else the chosen one of the job."
    )
    burst: Duration | None = Field(
        None, description="mmpp: mean length of the high; else the chosen one of the job."
    )
    steps: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        None, description="phases: steps from the low to the peak; else the chosen number, or 8."
    )


class ScenarioJobForm(ScenarioModel):
    """A job of the scenario, or several copies of it."""

    file: str = Field(
        description="A job file in the folder of the scenario, or the name of a shipped job."
    )
    name: Name | None = Field(None, description="Replaces the name in the job file.")
    tenant: Name | None = Field(None, description="Replaces the tenant in the job file.")
    count: Annotated[int, Field(ge=1, le=1000)] = Field(1, description="Number of copies.")
    intent: IntentSpec | None = Field(None, description="Replaces the intent in the job file.")
    parallelism: dict[Name, Annotated[int, Field(ge=1)]] = Field(
        {}, description="Initial parallelism by operator; `all` for operators not named."
    )
    start: Duration = Field("0 s", description="When the job is submitted.")
    load: LoadForm = LoadForm()
    loads: dict[Name, LoadForm] = Field({}, description="By source, in place of `load`.")


class FaultForm(ScenarioModel):
    kind: Literal["machine_crash", "metrics_stop", "slow_machine", "foreign_load", "slow_instance"]
    at: Duration
    for_: Duration | None = Field(None, alias="for")
    machine: Name | None = None
    machines: list[Name] = []
    speed: Above0 | None = None
    threads: Above0 | None = None
    factor: Above0 | None = None
    job: Name | None = None
    operator: Name | None = None
    index: Annotated[int, Field(ge=0)] = 0


class RescaleForm(ScenarioModel):
    """A rescale at a given time, independent of the policy."""

    at: Duration
    job: Name
    parallelism: dict[Name, Annotated[int, Field(ge=1)]]


class PolicyForm(ScenarioModel):
    name: Name
    parameters: dict[str, Any] = {}


class ScenarioForm(ScenarioModel):
    """A run of the simulated cluster."""

    name: Name
    about: str = ""
    chosen: str | None = Field(None, description="A file of chosen numbers, else the shipped one.")
    paper: Name | None = Field(
        None, description="The paper whose chosen numbers are used before the common ones."
    )
    engine: Literal["storm", "spark-rtm"] = "storm"
    calibration: str | None = Field(
        None, description="A file written by `trilithon calibrate`: profiles, and the engine."
    )
    way: Literal["fluid", "events"] = "fluid"
    arrivals: Literal["poisson", "even"] = "poisson"
    machines: MachinesForm
    length: Duration
    step: Duration = "1 s"
    round: Duration = "10 s"
    cool_down: Duration = "60 s"
    warm_up: Duration = Field("0 s", description="How long the policy observes before it may act.")
    seed: Annotated[int, Field(ge=0, le=2**32)] = 0
    slots: Annotated[int, Field(ge=1)] | None = None
    policy: PolicyForm | None = None
    jobs: list[ScenarioJobForm] = Field(min_length=1)
    faults: list[FaultForm] = []
    rescales: list[RescaleForm] = []


def validated(kind: type[F], document: Document) -> F:
    """Validate a document. Raises `InvalidScenario` with every problem and its line."""
    try:
        return kind.model_validate(document.data)
    except ValidationError as error:
        problems = []
        for detail in error.errors():
            path = _path(detail["loc"])
            code = "UNKNOWN_FIELD" if detail["type"] == "extra_forbidden" else "BAD_VALUE"
            message = detail["msg"].removeprefix("Value error, ")
            problems.append(document.locate(Problem(code, path, f"{message}.", "")))
        problems.sort(key=lambda problem: problem.line or 0)
        raise InvalidScenario(problems, document.file or "the scenario") from None


def _path(location: tuple[int | str, ...]) -> str:
    return path_of([key for key in location if key not in {PLAIN, MAPPING}])
