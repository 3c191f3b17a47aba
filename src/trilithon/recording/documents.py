"""Defines the fields of a snapshot in JSON.

Counters are cumulative. A number that is left out or null is missing, which differs from 0.
"""

import math
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trilithon.model.columns import Columns, Edges, Instances, Machines, Sinks, Sources
from trilithon.spec.fields import IntentSpec

SNAPSHOT_FORMAT = "trilithon-snapshot/1"
SERIES_FORMAT = "trilithon-series/1"

LARGEST_NUMBER = 1e300
Finite = Annotated[float, Field(allow_inf_nan=False)]

Count = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class RecordingModel(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True, strict=True)


class MeasuredRow(RecordingModel):
    """A row of a measured table: its key fields, and a number for any column of the table."""

    model_config = ConfigDict(extra="allow")
    table: ClassVar[type[Columns]]

    @model_validator(mode="after")
    def _only_columns(self) -> "MeasuredRow":
        for name, value in (self.model_extra or {}).items():
            if name not in self.table.names() or name == "machine":
                columns = [column for column in self.table.names() if column != "machine"]
                raise ValueError(f"there is no column {name!r}; use: {', '.join(columns)}")
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (is_number and abs(value) < LARGEST_NUMBER):
                raise ValueError(f"{name} must be a number or null")
        return self

    def number(self, name: str) -> float:
        """The number in a column; NaN if it is missing."""
        value = (self.model_extra or {}).get(name)
        return math.nan if value is None else float(value)


class RecordedInstance(MeasuredRow):
    table = Instances
    index: Annotated[int, Field(ge=0, le=1_000_000)]
    on: str | None = Field(None, description="The machine it runs on.")


class RecordedEdge(MeasuredRow):
    table = Edges
    from_: str = Field(alias="from")
    to: str
    grouping: Literal["shuffle", "by_key", "broadcast"] = "shuffle"


class RecordedSource(MeasuredRow):
    table = Sources
    name: str


class RecordedSink(MeasuredRow):
    table = Sinks
    name: str
    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    latencies_ms: list[Finite] | None = Field(
        None, description="Single latencies, in place of the histogram."
    )
    latency_buckets: dict[str, Count] | None = Field(
        None, description="A histogram: bucket k counts latencies in (γᵏ⁻¹, γᵏ] ms, γ = 1.01/0.99."
    )


class RecordedMachine(MeasuredRow):
    table = Machines
    name: str


class RecordedOperator(RecordingModel):
    name: str
    instances: list[RecordedInstance]


class RecordedJob(RecordingModel):
    """The measurements of one job. `spec` may hold its job file; without it, the edges and the
    intent given here describe the job.
    """

    tenant: str = "default"
    name: str
    spec: dict[str, Any] | None = None
    intent: IntentSpec | None = None
    sources: list[RecordedSource]
    operators: list[RecordedOperator]
    edges: list[RecordedEdge]
    sinks: list[RecordedSink]


class RecordedSnapshot(RecordingModel):
    """The measurements of all jobs and machines at one time."""

    format: Literal["trilithon-snapshot/1"] = "trilithon-snapshot/1"
    time_s: Finite
    since_s: Finite | None = Field(None, description="The time at which all counters were 0.")
    machines: list[RecordedMachine] = []
    jobs: list[RecordedJob]
