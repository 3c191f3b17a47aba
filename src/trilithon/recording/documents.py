"""Owns the fields of the JSON form of a snapshot.

Counters are cumulative. Every number may be left out or null: then it is missing, which is not 0.
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
    """A form with a number for any column of its table, beside its own fields."""

    model_config = ConfigDict(extra="allow")
    table: ClassVar[type[Columns]]

    @model_validator(mode="after")
    def _only_columns(self) -> "MeasuredRow":
        for name, value in (self.model_extra or {}).items():
            if name not in self.table.names() or name == "machine":
                columns = [column for column in self.table.names() if column != "machine"]
                raise ValueError(f"there is no {name!r} here; there are: {', '.join(columns)}")
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (number and abs(value) < LARGEST_NUMBER):
                raise ValueError(f"{name} must be a number or null")
        return self

    def number(self, name: str) -> float:
        """The number in a column; NaN where it is missing."""
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
        None, description="Latencies one by one, in place of the histogram."
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
    """What was measured of one job. Its file may come along as `spec`; if it does not, the edges
    and the intent given here make the job.
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
    """Everything known at one moment."""

    format: Literal["trilithon-snapshot/1"] = "trilithon-snapshot/1"
    time_s: Finite
    since_s: Finite | None = Field(None, description="When the counters were 0.")
    machines: list[RecordedMachine] = []
    jobs: list[RecordedJob]
