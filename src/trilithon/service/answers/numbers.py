"""Defines the shapes of measurements: figures, snapshots, series, columns over time, records."""

from typing import Any

from pydantic import BaseModel, Field

from trilithon.contract.condition import Health
from trilithon.control.journal.rows import SpecStatus
from trilithon.model.mode import Mode


class ConstraintFigures(BaseModel):
    """A constraint of a job: the mean latency along a path."""

    sequence: list[str]
    mean_ms: float | None
    at_most_ms: float
    over_s: float = Field(description="the time over which the mean is to be kept")
    met: bool | None


class OperatorFigures(BaseModel):
    """An operator in the last window. What was not measured is null."""

    operator: str
    parallelism: int
    input_per_s: float | None
    processed_per_s: float | None
    capacity: float | None
    queue: float | None
    held_back: float | None = Field(description="the most that one of its inputs is held back")
    congested: bool


class LatestFigures(BaseModel):
    """A job in the last window. A job that was not measured yet has none of the numbers."""

    job: str
    health: Health
    reason: str
    marks: list[str] = Field(description="what makes the figures uncertain")
    constraints: list[ConstraintFigures]
    operators: list[OperatorFigures]
    input_per_s: float | None = None
    output_per_s: float | None = None
    lag: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    juice: float | None = None
    utility: float | None = None
    max_utility: float | None = None
    met: bool | None = Field(
        default=None, description="the whole intent: thresholds and constraints"
    )


class SnapshotJob(BaseModel):
    """A job in the last round, in short. What was not measured is null."""

    job: str
    tenant: str
    state: str
    mode: Mode
    priority: float
    slots: int
    utility: float | None
    max_utility: float
    lost_utility: float | None
    met: bool | None
    p95_ms: float | None
    juice: float | None
    input_per_s: float | None
    output_per_s: float | None
    lag: float | None
    in_flight: bool
    hold_reason: str
    hungry: bool | None
    problem: str


class SnapshotAnswer(BaseModel):
    """The last round: the caller's jobs, and totals of those whose utility is known."""

    round: int
    time_s: float
    problem: str = Field(description="why the engine was not reached; empty if it was")
    utility: float
    max_utility: float
    slots: int | None
    slots_used: int
    jobs: list[SnapshotJob]


class JobColumns(BaseModel):
    """A job over time, a value per entry of `time_s`. What was not measured is null."""

    utility: list[float | None]
    max_utility: list[float | None]
    slots: list[float | None]
    p95_ms: list[float | None]
    juice: list[float | None]


class RecentRounds(BaseModel):
    """The last rounds: columns over time, of all of the caller's jobs and of each asked-for job."""

    time_s: list[float]
    utility: list[float | None]
    max_utility: list[float | None]
    slots_used: list[int]
    slots: list[int | None]
    jobs: dict[str, JobColumns]


class OperatorPoint(BaseModel):
    """An operator at one time."""

    parallelism: float | None
    capacity: float | None
    input_rate: float | None


class SeriesPoint(BaseModel):
    """A job at one time. Entries that versions before 0.3 wrote have the first five numbers."""

    time_s: float
    p95_ms: float | None
    juice: float | None
    throughput: float | None
    utility: float | None
    lag: float | None
    p50_ms: float | None = None
    p99_ms: float | None = None
    max_utility: float | None = None
    met: float | None = Field(default=None, description="1 if the intent was met, 0 if not")
    operators: dict[str, OperatorPoint]


class TopicRecord(BaseModel):
    """A record of a topic. A value that is JSON is data, any other one its text."""

    topic: str
    partition: int
    offset: int
    time: str | None
    key: str | None
    value: Any
    headers: dict[str, str | None]


class EdgeRecord(BaseModel):
    """A record that passed between two operators of one query, and the instance that got it."""

    instance: int
    time: str
    value: Any


class RecordsAnswer(BaseModel):
    """The latest records at a place of a job. An edge inside a query has no topic."""

    place: str
    topics: list[str]
    records: list[TopicRecord] | list[EdgeRecord]


class Event(BaseModel):
    """What happened: an event of the journal. Its `id` is also that of the event stream."""

    id: int
    time_s: float
    time: str
    kind: str = Field(description="such as decision, alert, alert_ended, accepted, failed")
    job: str | None = Field(description="null if it is about the whole cluster")
    text: str


class JobVersion(BaseModel):
    """A version of a job's spec."""

    generation: int
    standing: SpecStatus
    accepted_s: float
    accepted: str
    checkpoint: str
    told: str


class JobHistory(BaseModel):
    """The versions of a job's spec, and what happened to it, the oldest first."""

    job: str
    versions: list[JobVersion]
    events: list[Event]
