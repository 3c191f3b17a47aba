"""Defines the fields of a scenario file: names, types, what each is for."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trilithon.errors import InvalidScenario, Problem
from trilithon.spec.fields import Duration, IntentSpec, Name
from trilithon.spec.yaml_reader import Document

Above0 = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
Least0 = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
ArrivalsName = Literal["poisson", "bursty", "even"]
F = TypeVar("F", bound=BaseModel)


class ScenarioModel(BaseModel):
    """Nothing but the known fields, and no guessing of types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class MachinesForm(ScenarioModel):
    count: Annotated[int, Field(ge=1, le=10_000)]
    kind: Name | None = Field(None, description="One of the chosen kinds, else the usual one.")
    cores: Above0 | None = None
    memory_gb: Above0 | None = None


class LoadForm(ScenarioModel):
    """How many records come per second, over time."""

    shape: Literal["constant", "step", "spike", "ramp", "sine", "trace", "mmpp", "phases"] = (
        "constant"
    )
    rate: Above0 | None = Field(
        None, description="The low of a shape, the mean of a trace; else the chosen one of the job."
    )
    times: Above0 = Field(1.0, description="A factor on the rate, and on the peak.")
    peak: Above0 | None = Field(
        None,
        description="The high of a shape; else the chosen one of the job, or three times the rate.",
    )
    period: Duration | None = Field(
        None, description="Until a step, up a ramp, between spikes, of a wave, of a row or step."
    )
    trace: str | None = Field(None, description="A shipped trace, or a CSV file beside this one.")
    calm: Duration | None = Field(
        None, description="mmpp: how long the low lasts on average; else the chosen one of the job."
    )
    burst: Duration | None = Field(
        None,
        description="mmpp: how long the high lasts on average; else the chosen one of the job.",
    )
    steps: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        None, description="phases: steps from the low to the peak; else the chosen ones, or 8."
    )


class ScenarioJobForm(ScenarioModel):
    file: str = Field(description="A job file beside this one, or the name of a shipped job.")
    name: Name | None = Field(None, description="Another name than in the file.")
    tenant: Name | None = None
    count: Annotated[int, Field(ge=1, le=1000)] = Field(1, description="So many copies of it.")
    intent: IntentSpec | None = Field(None, description="In place of the one in the file.")
    parallelism: dict[Name, Annotated[int, Field(ge=1)]] = Field(
        {}, description="Instances at the start, by operator; `all` for those not named."
    )
    start: Duration = "0 s"
    load: LoadForm = LoadForm()
    loads: dict[Name, LoadForm] = Field({}, description="By source, for those that differ.")


class FaultForm(ScenarioModel):
    kind: Literal[
        "machine_crash",
        "metrics_stop",
        "slow_machine",
        "foreign_load",
        "slow_instance",
        "other_selectivity",
    ]
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
    """Something that is done at a time, whatever the policy thinks."""

    at: Duration
    job: Name
    parallelism: dict[Name, Annotated[int, Field(ge=1)]]


class RequestForm(ScenarioModel):
    """Machines that people add or take away; the policy `stela` carries it out."""

    at: Duration
    kind: Literal["scale_out", "scale_in"]
    machines: Annotated[int, Field(ge=1, le=1000)]
    job: Name | None = Field(None, description="Use new machines for this job alone.")


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
    engine: Literal["storm", "heron", "spark-rtm", "nephele"] = "storm"
    calibration: str | None = Field(
        None, description="A file that `trilithon calibrate` wrote: profiles, and spark-rtm."
    )
    way: Literal["fluid", "events"] = "fluid"
    arrivals: ArrivalsName = Field(
        "poisson",
        description="How irregularly records come: in a steady beat, as a Poisson stream, or with "
        "the chosen variation of measured traffic.",
    )
    machines: MachinesForm
    length: Duration
    step: Duration = "1 s"
    round: Duration = "10 s"
    cool_down: Duration = "60 s"
    warm_up: Duration = Field("0 s", description="How long the policy only looks.")
    seed: Annotated[int, Field(ge=0, le=2**32)] = 0
    slots: Annotated[int, Field(ge=1)] | None = None
    policy: PolicyForm | None = None
    jobs: list[ScenarioJobForm] = Field(min_length=1)
    faults: list[FaultForm] = []
    rescales: list[RescaleForm] = []
    requests: list[RequestForm] = []


def validated(kind: type[F], document: Document) -> F:
    """The document as a form; every problem with its line."""
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
