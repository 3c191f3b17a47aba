"""Owns the fields of a job file: their names, types and what each is for.

The JSON Schema is made from these models. They check the form; what the parts mean together is
checked on the model that is built from them. Where Spark has a name for a thing, that is its name.
"""

import math
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    model_validator,
)

from trilithon.model.job import DEFAULT_BATCH_S, DEFAULT_TASKS
from trilithon.spec.durations import format_duration, parse_seconds


def _is_span(value: str) -> str:
    parse_seconds(value)
    return value


def _has_unit(value: Any) -> Any:
    if isinstance(value, int | float):
        raise ValueError(f"{value} of what? Write a unit: `{value} ms` or `{value} seconds`")
    return value


def _is_scalar(value: Any) -> Any:
    if not isinstance(value, str | bool | int | float):
        raise ValueError("a text, a number, true or false is expected")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a finite number is expected")
    return value


def _is_cell(value: Any) -> Any:
    return None if value is None else _is_scalar(value)


Duration = Annotated[
    str,
    BeforeValidator(_has_unit),
    AfterValidator(_is_span),
    Field(pattern=r"^\s*\d+(\.\d+)?\s*[A-Za-z]+\s*$", examples=["200 ms", "10 seconds"]),
]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=253)]
Scalar = Annotated[
    Any, AfterValidator(_is_scalar), WithJsonSchema({"type": ["string", "number", "boolean"]})
]
Cell = Annotated[
    Any, AfterValidator(_is_cell), WithJsonSchema({"type": ["string", "number", "boolean", "null"]})
]

# A field that takes a plain value or a mapping is judged as what it looks like: one error, not two.
PLAIN, MAPPING = "#plain", "#mapping"
ByShape = Discriminator(lambda value: MAPPING if isinstance(value, dict | BaseModel) else PLAIN)
Schema = Annotated[
    Annotated[str, Tag(PLAIN)] | Annotated[dict[str, str], Tag(MAPPING)],
    ByShape,
    Field(
        alias="schema",
        description="The columns: `user STRING, at TIMESTAMP`, or a mapping of column to type.",
    ),
]


class SpecModel(BaseModel):
    """Nothing but the known fields, and no guessing of types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class InputSpec(SpecModel):
    """One input, and how its records are divided among the instances."""

    from_: Name = Field(alias="from", description="The source or operator to read.")
    grouping: Literal["shuffle", "by_key", "broadcast"] = Field(
        "shuffle",
        description="shuffle: to any instance; by_key: records of one key to one instance; "
        "broadcast: to all instances.",
    )
    key: list[Name] = Field([], description="The columns that make the key, for by_key.")


Input = Annotated[Annotated[Name, Tag(PLAIN)] | Annotated[InputSpec, Tag(MAPPING)], ByShape]


class SourceSpec(SpecModel):
    """A Kafka topic whose values are JSON."""

    name: Name
    format: Literal["kafka"] = "kafka"
    options: dict[str, Scalar] = Field(
        description="Spark's options of the Kafka source; `subscribe` names the topic.",
        examples=[{"subscribe": "clicks", "startingOffsets": "latest"}],
    )
    schema_: Schema
    partitions: int | None = Field(
        None, description="How many partitions the topic has, for planning before it can be asked."
    )


class SinkSpec(SpecModel):
    """A Kafka topic that gets each row as JSON."""

    name: Name
    input: Input | None = Field(None, description="What it writes, if it is one thing.")
    inputs: list[Input] = Field([], description="What it writes, if it is several.")
    format: Literal["kafka"] = "kafka"
    options: dict[str, Scalar] = Field(
        description="Spark's options of the Kafka sink; `topic` names the topic.",
        examples=[{"topic": "clicks-by-host"}],
    )
    weight: Finite = Field(1.0, description="How much this sink counts in the job's figures.")


class TableSpec(SpecModel):
    """A small table to join with: its rows here, or a file in the engine's table folder."""

    name: Name
    schema_: Schema
    rows: list[list[Cell]] | None = Field(None, description="The rows, one list of values each.")
    path: str | None = Field(
        None,
        description="A file below the engine's table folder.",
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*$",
    )
    format: Literal["csv", "json", "parquet"] | None = None


class WatermarkSpec(SpecModel):
    """How late a record may be."""

    eventTime: Name  # noqa: N815 - Spark's name
    delayThreshold: Duration  # noqa: N815


class JoinSpec(SpecModel):
    """A join with a table of this file."""

    table: Name
    on: list[Name] = Field(min_length=1)
    how: Literal["inner", "left"] = "inner"


class WindowSpec(SpecModel):
    """A window over event time."""

    timeColumn: Name  # noqa: N815
    windowDuration: Duration  # noqa: N815
    slideDuration: Duration | None = None  # noqa: N815


class ParallelismSpec(SpecModel):
    """With how many instances an operator starts, and between which bounds it may be moved."""

    initial: int = 1
    min: int = 1
    max: int = DEFAULT_TASKS


class ProfileSpec(SpecModel):
    """What the operator costs, if its author knows; what is left out is learned."""

    service_ms: Finite | None = Field(None, description="Mean time of work per record.")
    service_cv: Finite | None = Field(None, description="Its coefficient of variation.")
    distribution: Literal["deterministic", "exponential", "gamma", "lognormal"] | None = None
    cpu_share: Finite | None = Field(None, description="0: all waiting, 1: all CPU.")
    selectivity: Finite | None = Field(None, description="Records out per record in.")
    zipf: Finite | None = Field(None, description="Exponent of the keys' distribution.")
    state_bytes_per_key: Finite | None = None


class OperatorSpec(SpecModel):
    """One step. Its parts apply in the order: watermark, join, where, explode, select, then
    deduplicate or group_by with window and aggregate.
    """

    name: Name
    input: Input | None = Field(None, description="What it reads, if it is one thing.")
    inputs: list[Input] = Field([], description="What it reads, if it is several.")
    watermark: WatermarkSpec | None = None
    join: JoinSpec | None = None
    where: str | None = Field(None, description="A condition; rows for which it is false go.")
    explode: dict[str, str] = Field(
        {}, description="A row per element: the new column, and the array that it comes from."
    )
    select: list[str] = Field([], description="Expressions, each a column or with AS and a name.")
    deduplicate: list[Name] = Field([], description="The columns by which rows are the same.")
    group_by: list[str] = Field([], description="Expressions to group by.")
    window: WindowSpec | None = None
    aggregate: dict[str, str] = Field({}, description="A name and an aggregate for each result.")
    parallelism: Annotated[
        Annotated[int, Tag(PLAIN)] | Annotated[ParallelismSpec, Tag(MAPPING)], ByShape
    ] = 1
    profile: ProfileSpec | None = None


class UtilitySpec(SpecModel):
    """What it is worth to come near a threshold."""

    function: str = Field("knee", description="knee, linear, step, piecewise, lognormal, or yours.")
    zero_at: Finite | None = Field(None, description="linear: where the utility is 0.")
    otherwise: Finite | None = Field(None, description="step: the fraction when it is missed.")
    points: list[tuple[Finite, Finite]] | None = Field(
        None, description="piecewise: pairs of value and fraction."
    )
    spread: Finite | None = Field(None, description="lognormal: how slowly it falls.")

    @model_validator(mode="before")
    @classmethod
    def _pairs(cls, data: Any) -> Any:
        """YAML has lists where pairs are meant."""
        if isinstance(data, dict) and isinstance(points := data.get("points"), list):
            pairs = [tuple(p) if isinstance(p, list) else p for p in points]
            return {**data, "points": pairs}
        return data


class ThresholdSpec(SpecModel):
    """One bound: `at_most` for latency, `at_least` for juice and throughput."""

    metric: Literal["latency", "juice", "throughput"]
    statistic: str | None = Field(None, description="mean, or p50 to p99.9; latency only.")
    at_most: Duration | None = None
    at_least: Finite | None = Field(None, description="juice: a share; throughput: records/s.")
    utility: Annotated[
        Annotated[str, Tag(PLAIN)] | Annotated[UtilitySpec, Tag(MAPPING)], ByShape
    ] = Field("knee", description="The utility function.")

    @model_validator(mode="after")
    def _one_bound(self) -> "ThresholdSpec":
        if self.metric == "latency" and (self.at_most is None or self.at_least is not None):
            raise ValueError("a latency has `at_most` and no `at_least`")
        if self.metric != "latency" and (self.at_least is None or self.at_most is not None):
            raise ValueError(f"{self.metric} has `at_least` and no `at_most`")
        return self


class ConstraintSpec(SpecModel):
    """The mean latency of a part of the job, in any span of time."""

    sequence: list[str] = Field(
        description="Operators, and edges as `from->to`; may begin or end with an edge.",
        examples=[["parse->enrich", "enrich", "enrich->out"]],
    )
    at_most: Duration
    over: Duration = "10 seconds"


class IntentSpec(SpecModel):
    """What the tenant needs of the job."""

    priority: Finite = Field(1.0, description="How much the job matters, relative to others.")
    slo: list[ThresholdSpec] = []
    constraints: list[ConstraintSpec] = []


class BoundsSpec(SpecModel):
    """What may be done to the job."""

    max_instances: int | None = None
    preserve_order: bool = Field(False, description="Move keys only between batches.")
    fixed: list[Name] = Field([], description="Operators whose parallelism must stay.")


class TriggerSpec(SpecModel):
    """Spark's real-time trigger: the length of a batch, which is not the latency."""

    realTime: Duration = format_duration(DEFAULT_BATCH_S)  # noqa: N815


class JobSpec(SpecModel):
    """A stream processing job, complete."""

    tenant: Name = "default"
    name: Name
    sources: list[SourceSpec]
    operators: list[OperatorSpec]
    sinks: list[SinkSpec]
    tables: list[TableSpec] = []
    intent: IntentSpec = IntentSpec()
    bounds: BoundsSpec = BoundsSpec()
    trigger: TriggerSpec = TriggerSpec()
    dead_letter_topic: str | None = Field(
        None, description="Where records go that cannot be parsed or fail in an expression."
    )
