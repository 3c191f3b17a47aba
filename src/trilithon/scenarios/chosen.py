"""Reads the chosen numbers: those that neither a paper nor a measurement gives.

One file has a common part and a part per paper. A number of a paper's part is used before the
common one of the same name.
"""

from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from trilithon.engines.simulated.arrivals import EVEN_CV2, POISSON_CV2, lognormal_cv2
from trilithon.engines.simulated.character import (
    Character,
    QueuedRecords,
    heron,
    nephele,
    storm,
)
from trilithon.engines.simulated.operator_cost import Assumed
from trilithon.model.profile import Distribution
from trilithon.scenarios.forms import Above0, ArrivalsName, Least0, ScenarioModel, validated
from trilithon.spec.durations import parse_seconds
from trilithon.spec.fields import Duration, Name, ProfileSpec
from trilithon.spec.yaml_reader import read_yaml, read_yaml_file

FILE: Final = resources.files("trilithon.scenarios") / "chosen.yaml"
Count = Annotated[int, Field(ge=1)]


class MachineNumbers(ScenarioModel):
    cores: Above0
    memory_gb: Above0


class StormNumbers(ScenarioModel):
    """What the papers do not say of their engine."""

    transit: Duration = Field(
        description="How long a record travels over an edge, if nothing waits: a floor per hop."
    )
    outage: Duration = Field(description="How long a job is down when it is reconfigured.")
    restart: Duration = Field(description="From a crash until a job runs again.")
    state: Duration = Field("0 s", description="How much longer a job with state is down.")
    waiting: Literal["kept", "dealt", "lost"] = Field(
        "lost", description="What becomes of records in queues when a job is reconfigured."
    )


class HeronNumbers(ScenarioModel):
    """What Dhalion's paper does not say of its engine."""

    queue: Count = Field(description="Records in the queue of an instance that stop the sources.")
    low_mark: Annotated[float, Field(ge=0, lt=1)] = Field(
        description="The part of a full queue at which the sources go on."
    )
    transit: Duration = Field(description="How long a record travels over an edge.")
    outage: Duration = Field(description="How long nothing flows when a job is reconfigured.")
    restart: Duration = Field(description="How long nothing flows when an instance restarts.")


class NepheleNumbers(ScenarioModel):
    """What the latency paper does not say of its engine."""

    ship: Duration = Field(description="CPU time that a shipment costs its sender.")
    record_bytes: Above0 = Field(description="Size of a record in the buffers.")
    buffer_kib: Above0 = Field(description="Size of an output buffer, one for each receiver.")
    transit: Duration = Field(description="How long a shipment travels over an edge.")
    queue: Count = Field(description="Records that an input queue holds.")
    start: Duration = Field(description="From a scaling action until new instances get records.")
    restart: Duration = Field(description="From a crash until a job runs again.")


class ThreadNumbers(ScenarioModel):
    """What threads cost, busy or not."""

    cores: Least0 = Field(description="The part of a core that a thread costs by being there.")
    switch: Duration = Field(
        description="What a switch costs, where there are more runnable threads than cores."
    )


class ArrivalNumbers(ScenarioModel):
    """How irregularly records come to a source."""

    default: ArrivalsName = Field("poisson", description="In the papers' experiments.")
    shape: Above0 = Field(description="bursty: the shape parameter of lognormal gaps.")


class AssumedNumbers(ScenarioModel):
    """The cost of an operator where neither a profile nor an expression gives it."""

    service_ms: Above0
    service_cv: Least0
    distribution: Literal["deterministic", "exponential", "gamma", "lognormal"]
    cpu_share: Annotated[float, Field(ge=0, le=1)]
    selectivity: Least0
    zipf: Least0
    keys: Annotated[int, Field(ge=1, le=10_000_000)]
    record_bytes: Least0
    state_bytes_per_key: Least0


class JobLoadNumbers(ScenarioModel):
    """How the load of a job varies where a scenario does not say: fields of a scenario's `load`."""

    peak: Above0 | None = None
    period: Duration | None = None
    calm: Duration | None = None
    burst: Duration | None = None
    steps: Count | None = None


class CommonNumbers(ScenarioModel):
    """What all papers' experiments share."""

    machine: MachineNumbers
    machines: dict[Name, MachineNumbers] = Field({}, description="Kinds of machines, by name.")
    storm: StormNumbers
    heron: HeronNumbers
    nephele: NepheleNumbers
    threads: ThreadNumbers
    arrivals: ArrivalNumbers
    assumed: AssumedNumbers
    rates: dict[Name, Above0] = Field({}, description="Records per second to each source of a job.")
    profiles: dict[Name, dict[Name, ProfileSpec]] = Field(
        {}, description="What the operators of a job cost, by the name in its file."
    )


class PaperNumbers(ScenarioModel):
    """What one paper leaves open of its experiments. A paper gives what its experiments use."""

    machine: MachineNumbers | None = None
    rates: dict[Name, Above0] = Field({}, description="Records per second, before the common ones.")
    loads: dict[Name, JobLoadNumbers] = Field({}, description="How the load of a job varies.")
    instances: dict[Name, Count] = Field(
        {}, description="First parallelism of all operators of a job; else the one in its file."
    )
    tasks: Count | None = Field(None, description="The most instances of an operator.")
    per_worker: Above0 | None = Field(
        None,
        description="Records per second for each worker, where a paper gives sizes in workers.",
    )
    workers_per_instance: Above0 | None = Field(
        None, description="How many workers make one instance of each operator at the start."
    )
    foreign_threads: Above0 | None = Field(
        None, description="Threads of other processes on each machine in a CPU spike."
    )
    slots_per_core: Above0 | None = Field(
        None, description="Instances that may run for each core of a cluster; else any number."
    )
    cpu_share: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="The CPU share of operators whose profile gives none."
    )
    own_cores: Above0 | None = Field(
        None, description="Cores of the machine that a job has in a cluster of its own."
    )


class ChosenNumbers(ScenarioModel):
    """Every number of the simulated experiments that neither a paper nor a measurement gives."""

    common: CommonNumbers
    papers: dict[Name, PaperNumbers] = Field({}, description="By the name of the paper.")

    def of_paper(self, name: str | None) -> PaperNumbers:
        """The part of a paper; an empty one if it has none."""
        return self.papers.get(name or "", PaperNumbers())

    def rate(self, job: str, paper: str | None = None) -> float | None:
        """Records per second to each source of a job."""
        return self.of_paper(paper).rates.get(job) or self.common.rates.get(job)


def load_chosen(path: Path | None = None) -> ChosenNumbers:
    """The numbers of a file, or those that ship with the package."""
    if path is None:
        return _shipped()
    return validated(ChosenNumbers, read_yaml_file(path))


@cache
def _shipped() -> ChosenNumbers:
    return validated(ChosenNumbers, read_yaml(FILE.read_bytes(), "chosen.yaml"))


def assumed_costs(chosen: ChosenNumbers) -> Assumed:
    numbers = chosen.common.assumed.model_dump()
    return Assumed(**{**numbers, "distribution": Distribution(numbers["distribution"])})


def storm_character(chosen: ChosenNumbers) -> Character:
    numbers = chosen.common.storm
    return storm(
        transit_s=parse_seconds(numbers.transit),
        outage_s=parse_seconds(numbers.outage),
        restart_s=parse_seconds(numbers.restart),
        state_s=parse_seconds(numbers.state),
        waiting=QueuedRecords(numbers.waiting),
        thread_cores=chosen.common.threads.cores,
        switch_s=parse_seconds(chosen.common.threads.switch),
    )


def heron_character(chosen: ChosenNumbers) -> Character:
    numbers = chosen.common.heron
    return heron(
        queue=numbers.queue,
        low_mark=numbers.low_mark,
        transit_s=parse_seconds(numbers.transit),
        outage_s=parse_seconds(numbers.outage),
        restart_s=parse_seconds(numbers.restart),
    )


def nephele_character(chosen: ChosenNumbers) -> Character:
    numbers = chosen.common.nephele
    # The buffer is given in records of the size that is assumed for all edges.
    records = max(1, int(1024 * numbers.buffer_kib / numbers.record_bytes))
    return nephele(
        ship_s=parse_seconds(numbers.ship),
        buffer_bytes=records * chosen.common.assumed.record_bytes,
        transit_s=parse_seconds(numbers.transit),
        queue=numbers.queue,
        start_s=parse_seconds(numbers.start),
        restart_s=parse_seconds(numbers.restart),
        thread_cores=chosen.common.threads.cores,
        switch_s=parse_seconds(chosen.common.threads.switch),
    )


def arrival_cv2(chosen: ChosenNumbers, arrivals: ArrivalsName) -> float:
    """The squared coefficient of variation of the time between two records."""
    if arrivals == "bursty":
        return lognormal_cv2(chosen.common.arrivals.shape)
    return POISSON_CV2 if arrivals == "poisson" else EVEN_CV2
