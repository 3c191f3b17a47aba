"""Defines the fields of a job file: their names, their types and what each is for.

The JSON Schema is generated from these models. They check each field by itself; how the parts fit
together is checked on the job that is built from them. Where Spark has a name for a field, the
file uses Spark's name.
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


def _is_duration(value: str) -> str:
    parse_seconds(value)
    return value


def _has_unit(value: Any) -> Any:
    if isinstance(value, int | float):
        raise ValueError(f"{value} has no unit: write `{value} ms` or `{value} seconds`")
    return value


def _is_scalar(value: Any) -> Any:
    if not isinstance(value, str | bool | int | float):
        raise ValueError("a string, a number, true or false is expected")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a finite number is expected")
    return value


def _is_cell(value: Any) -> Any:
    return None if value is None else _is_scalar(value)


Duration = Annotated[
    str,
    BeforeValidator(_has_unit),
    AfterValidator(_is_duration),
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

# A field that takes a scalar or a mapping is validated as the one that was written: one error per
# mistake, not one per alternative.
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
    """Base of all parts of a job file: unknown fields are errors, types are not coerced."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class InputSpec(SpecModel):
    """One input, and how its records are distributed over the instances."""

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
        None, description="How many partitions the topic has, for planning without Kafka."
    )
    metadata: dict[str, Literal["key", "topic", "partition", "offset", "timestamp", "headers"]] = (
        Field(
            {},
            description="More columns: a name and the part of the Kafka record that it holds.",
            examples=[{"sent_at": "timestamp"}],
        )
    )


class SinkSpec(SpecModel):
    """A Kafka topic to which each row is written as JSON."""

    name: Name
    input: Input | None = Field(None, description="The source or operator whose rows it writes.")
    inputs: list[Input] = Field([], description="The same for several inputs.")
    format: Literal["kafka"] = "kafka"
    options: dict[str, Scalar] = Field(
        description="Spark's options of the Kafka sink; `topic` names the topic.",
        examples=[{"topic": "clicks-by-host"}],
    )
    key: str | None = Field(
        None, description="An expression for the records' key; without it they have none."
    )
    weight: Finite = Field(
        1.0, description="Weight of this sink in the job's latency and juice, relative to others."
    )


class TableSpec(SpecModel):
    """A small table to join with: rows in this file, or a file in the engine's table folder."""

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
    """How late a record may arrive, in event time."""

    eventTime: Name  # noqa: N815 - Spark's name
    delayThreshold: Duration  # noqa: N815


class JoinSpec(SpecModel):
    """A join with a table of this file, or with the latest rows of an input that is broadcast."""

    table: Name
    on: list[Name] = Field(min_length=1)
    how: Literal["inner", "left"] = "inner"


class WindowSpec(SpecModel):
    """A window over event time."""

    timeColumn: Name  # noqa: N815
    windowDuration: Duration  # noqa: N815
    slideDuration: Duration | None = None  # noqa: N815


class ParallelismSpec(SpecModel):
    """How many instances an operator starts with, and the bounds for rescaling it."""

    initial: int = 1
    min: int = 1
    max: int = DEFAULT_TASKS
    tasks: Literal["all", "follow"] | None = Field(
        None,
        description="On Spark: hold `max` tasks from the start, or follow the instances in use, "
        "with a restart when more tasks are needed. By default, all up to a `max` of 8.",
    )


class ProfileSpec(SpecModel):
    """What the operator costs, as far as its author knows; the rest is learned."""

    service_ms: Finite | None = Field(None, description="Mean service time per record.")
    service_cv: Finite | None = Field(
        None, description="Coefficient of variation of the service time."
    )
    distribution: Literal["deterministic", "exponential", "gamma", "lognormal"] | None = None
    cpu_share: Finite | None = Field(None, description="0: all waiting, 1: all CPU.")
    selectivity: Finite | None = Field(None, description="Records out per record in.")
    zipf: Finite | None = Field(
        None, description="Zipf exponent of the key distribution; 0: all keys equally frequent."
    )
    hot_key: Finite | None = Field(
        None, description="The part of the records that one key has beside that by `zipf`, 0…1."
    )
    state_bytes_per_key: Finite | None = None


class OperatorSpec(SpecModel):
    """One operator. Its parts apply in this order: watermark, join, where, explode, select, then
    deduplicate or group_by with window and aggregate.
    """

    name: Name
    input: Input | None = Field(None, description="The source or operator that it reads.")
    inputs: list[Input] = Field([], description="The same for several inputs.")
    watermark: WatermarkSpec | None = None
    join: JoinSpec | None = None
    where: str | None = Field(
        None, description="A condition; rows that do not meet it are dropped."
    )
    explode: dict[str, str] = Field(
        {}, description="One row per array element: the new column, and the array to explode."
    )
    select: list[str] = Field([], description="Columns, or expressions with AS and a name.")
    deduplicate: list[Name] = Field([], description="The columns that identify duplicate rows.")
    group_by: list[str] = Field([], description="Expressions to group by.")
    window: WindowSpec | None = None
    aggregate: dict[str, str] = Field(
        {}, description="The result columns: a name and an aggregate expression each."
    )
    parallelism: Annotated[
        Annotated[int, Tag(PLAIN)] | Annotated[ParallelismSpec, Tag(MAPPING)], ByShape
    ] = 1
    profile: ProfileSpec | None = None


class UtilitySpec(SpecModel):
    """The utility function: what a value is worth that misses the threshold."""

    function: str = Field(
        "knee", description="knee, linear, step, piecewise, lognormal, or a registered one."
    )
    zero_at: Finite | None = Field(None, description="linear: the value at which utility is 0.")
    otherwise: Finite | None = Field(
        None, description="step: the fraction of the maximum below the threshold."
    )
    points: list[tuple[Finite, Finite]] | None = Field(
        None, description="piecewise: pairs of value and fraction of the maximum."
    )
    spread: Finite | None = Field(
        None, description="lognormal: sigma; the larger, the slower utility falls."
    )

    @model_validator(mode="before")
    @classmethod
    def _pairs(cls, data: Any) -> Any:
        """Turn the lists that YAML gives into pairs."""
        if isinstance(data, dict) and isinstance(points := data.get("points"), list):
            pairs = [tuple(p) if isinstance(p, list) else p for p in points]
            return {**data, "points": pairs}
        return data


class ThresholdSpec(SpecModel):
    """One bound: `at_most` for latency, `at_least` for juice, throughput and emission."""

    metric: Literal["latency", "juice", "throughput", "emission"]
    statistic: str | None = Field(None, description="mean, or p50 to p99.9; latency only.")
    at_most: Duration | None = None
    at_least: Finite | None = Field(
        None, description="juice: a share; throughput and emission: records/s."
    )
    utility: Annotated[
        Annotated[str, Tag(PLAIN)] | Annotated[UtilitySpec, Tag(MAPPING)], ByShape
    ] = Field("knee", description="The utility function.")

    @model_validator(mode="after")
    def _one_bound(self) -> "ThresholdSpec":
        if self.metric == "latency" and (self.at_most is None or self.at_least is not None):
            raise ValueError("latency takes `at_most`, not `at_least`")
        if self.metric != "latency" and (self.at_least is None or self.at_most is not None):
            raise ValueError(f"{self.metric} takes `at_least`, not `at_most`")
        return self


class ConstraintSpec(SpecModel):
    """A bound on the mean latency of a path through the job, over a sliding time window."""

    sequence: list[str] = Field(
        description="The path: operators, and edges as `from->to`; may begin or end with an edge.",
        examples=[["parse->enrich", "enrich", "enrich->out"]],
    )
    at_most: Duration
    over: Duration = "10 seconds"


class IntentSpec(SpecModel):
    """What the tenant expects of the job."""

    priority: Finite = Field(
        1.0, description="The job's maximum utility, relative to that of other jobs."
    )
    slo: list[ThresholdSpec] = []
    constraints: list[ConstraintSpec] = []


class BoundsSpec(SpecModel):
    """Limits on how a policy may change the job."""

    max_instances: int | None = Field(None, description="Limit on instances of all operators.")
    preserve_order: bool = Field(
        False,
        description="Move keys only at batch boundaries, so that their records stay in order.",
    )
    fixed: list[Name] = Field([], description="Operators whose parallelism must not change.")


class TriggerSpec(SpecModel):
    """Spark's real-time trigger: the length of a batch. The latency does not depend on it."""

    realTime: Duration = format_duration(DEFAULT_BATCH_S)  # noqa: N815


class JobSpec(SpecModel):
    """A complete streaming job."""

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
        None, description="The topic for records that cannot be parsed or fail in an expression."
    )
