"""Owns the fields of a scenario and of the file of chosen numbers: names, types, what each is for."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from trilithon.spec.fields import Duration, IntentSpec, Name, ProfileSpec

Above0 = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
Least0 = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]


class ScenarioModel(BaseModel):
    """Nothing but the known fields, and no guessing of types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class MachineForm(ScenarioModel):
    cores: Above0
    memory_gb: Above0


class StormForm(ScenarioModel):
    """What the papers do not say of their engine."""

    transit: Duration = Field(description="How long a record travels between two instances.")
    outage: Duration = Field(description="How long a job stands when it is reconfigured.")
    restart: Duration = Field(description="From a crash until a job runs again.")
    state: Duration = Field("0 s", description="How much longer a job stands that has state.")
    waiting: Literal["kept", "dealt", "lost"] = Field(
        "lost", description="What becomes of records in queues when a job is reconfigured."
    )


class AssumedForm(ScenarioModel):
    """What is taken where neither a profile nor an expression tells."""

    service_ms: Above0
    service_cv: Least0
    distribution: Literal["deterministic", "exponential", "gamma", "lognormal"]
    cpu_share: Annotated[float, Field(ge=0, le=1)]
    selectivity: Least0
    zipf: Least0
    keys: Annotated[int, Field(ge=1, le=10_000_000)]
    record_bytes: Least0
    state_bytes_per_key: Least0


class HengeForm(ScenarioModel):
    """What Henge's two texts leave open of their experiments."""

    machine: MachineForm
    rates: dict[Name, Above0] = {}
    instances: dict[Name, Annotated[int, Field(ge=1)]] = {}
    tasks: Annotated[int, Field(ge=1)]
    per_worker: Above0
    workers_per_instance: Above0
    foreign_threads: Above0
    own_cores: Above0


class ChosenForm(ScenarioModel):
    """Every number of the simulated experiments that neither a paper nor a measurement gives."""

    machine: MachineForm
    machines: dict[Name, MachineForm] = {}
    storm: StormForm
    assumed: AssumedForm
    rates: dict[Name, Above0] = Field({}, description="Records per second to each source of a job.")
    profiles: dict[Name, dict[Name, ProfileSpec]] = Field(
        {}, description="What the operators of a job cost, by the name in its file."
    )
    henge: HengeForm | None = Field(None, description="Of Henge's experiments alone.")


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
    peak: Above0 | None = Field(None, description="The high of a shape; else three times the rate.")
    period: Duration | None = Field(
        None, description="Until a step, up a ramp, between spikes, of a wave, of a row or step."
    )
    trace: str | None = Field(None, description="A shipped trace, or a CSV file beside this one.")
    calm: Duration | None = Field(None, description="mmpp: how long the low lasts on average.")
    burst: Duration | None = Field(None, description="mmpp: how long the high lasts on average.")
    steps: Annotated[int, Field(ge=1, le=1000)] = Field(
        8, description="phases: steps from the low to the peak."
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
    """Something that is done at a time, whatever the policy thinks."""

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
    engine: Literal["storm", "spark-rtm"] = "storm"
    calibration: str | None = Field(
        None, description="A file that `trilithon calibrate` wrote: profiles, and spark-rtm."
    )
    way: Literal["fluid", "events"] = "fluid"
    arrivals: Literal["poisson", "even"] = "poisson"
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
