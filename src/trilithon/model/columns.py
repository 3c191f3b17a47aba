"""Defines the tables of measurements: their columns, units, and how missing values behave.

A column is a float64 array in which NaN means missing: a sum over a missing number is missing too,
without any check. Counts are whole numbers, exact up to 2⁵³, which a million records per second
reach after 285 years.

A counter only grows while its incarnation stays the same; a gauge is the value at that moment.
"""

from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
C = TypeVar("C", bound="Columns")
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Column:
    """The description of a column."""

    name: str
    unit: str
    meaning: str
    counter: bool
    # How values of several senders combine. Counters add up; of most gauges the latest value
    # counts, some add up (`adds`), and of some the largest counts.
    adds: bool
    largest: bool = False


def counter(unit: str, meaning: str) -> Any:
    return field(metadata={"unit": unit, "meaning": meaning, "counter": True, "adds": True})


def gauge(unit: str, meaning: str, *, adds: bool = False, largest: bool = False) -> Any:
    return field(
        metadata={
            "unit": unit,
            "meaning": meaning,
            "counter": False,
            "adds": adds,
            "largest": largest,
        }
    )


def _frozen(values: npt.ArrayLike) -> Floats:
    """A read-only float64 array: the same one if it already is read-only, otherwise a copy."""
    if isinstance(values, np.ndarray) and values.dtype == np.float64 and values.ndim == 1:
        read_only: bool = values.base is None and not values.flags.writeable
        if read_only:
            return values
    copy: Floats = np.array(values, dtype=np.float64, ndmin=1)
    copy.setflags(write=False)
    return copy


@dataclass(frozen=True, eq=False)
class Columns:
    """A table: columns of the same length, which the subclasses name."""

    @classmethod
    @cache
    def describe(cls) -> tuple[Column, ...]:
        return tuple(Column(f.name, **f.metadata) for f in fields(cls))

    @classmethod
    @cache
    def names(cls) -> tuple[str, ...]:
        return tuple(column.name for column in cls.describe())

    @classmethod
    @cache
    def row_of(cls) -> dict[str, int]:
        """The row of `block` that is each column."""
        return {name: row for row, name in enumerate(cls.names())}

    @classmethod
    @cache
    def counters(cls) -> Ints:
        """The rows of `block` that are counters."""
        return np.flatnonzero([column.counter for column in cls.describe()])

    @classmethod
    @cache
    def adding(cls) -> Bools:
        """For each row of `block`, whether the values of several senders add up."""
        return np.array([[column.adds] for column in cls.describe()])

    @classmethod
    @cache
    def largest(cls) -> Bools:
        """For each row of `block`, whether the largest value of several senders counts."""
        return np.array([[column.largest] for column in cls.describe()])

    @classmethod
    def missing(cls, rows: int) -> Self:
        return cls.of_block(np.full((len(cls.names()), rows), np.nan))

    @classmethod
    def of(cls, rows: int, **known: npt.ArrayLike) -> Self:
        """A table with the known columns; the others are missing."""
        if unknown := set(known) - set(cls.names()):
            raise TypeError(f"{cls.__name__} has no column {', '.join(sorted(unknown))}")
        missing = np.full(rows, np.nan)
        missing.setflags(write=False)
        return cls(*(known.get(name, missing) for name in cls.names()))

    @classmethod
    def of_block(cls, block: Floats) -> Self:
        """A table from all its columns in one array, a row each, without checks. The caller
        guarantees that the numbers are finite or missing and that nothing changes the array
        afterwards.
        """
        if len(block) != len(cls.names()):
            raise ValueError(f"{cls.__name__} has {len(cls.names())} columns, not {len(block)}")
        block.setflags(write=False)
        table = object.__new__(cls)
        table.__dict__["block"] = block
        return table

    if not TYPE_CHECKING:  # or every name would be a column

        def __getattr__(self, name: str) -> Floats:
            """A column of a table that was made from a block: cut out when it is first used. Most
            never are.
            """
            row, block = self.row_of().get(name), self.__dict__.get("block")
            if row is None or block is None:
                raise AttributeError(f"{type(self).__name__} has no {name!r}", name=name, obj=self)
            column = self.__dict__[name] = block[row]
            return column

    @classmethod
    def trusted(cls, rows: int, **known: npt.ArrayLike) -> Self:
        """Like `of`, without checks: the caller guarantees finite or missing numbers."""
        row_of = cls.row_of()
        block = np.full((len(row_of), rows), np.nan)
        for name, values in known.items():
            block[row_of[name]] = values
        return cls.of_block(block)

    @cached_property
    def block(self) -> Floats:
        """All columns in one array, a row each: for what is done to every column."""
        block = np.array([self.column(name) for name in self.names()])
        block.setflags(write=False)
        return block

    def __post_init__(self) -> None:
        length = None
        for name in self.names():
            values = _frozen(getattr(self, name))
            object.__setattr__(self, name, values)
            length = len(values) if length is None else length
            if values.ndim != 1 or len(values) != length:
                raise ValueError(f"column {name} has shape {values.shape}, expected ({length},)")
        # One check of all columns together costs a fraction of a check of each.
        if length and np.isinf(self.block).any():
            name = next(n for n in self.names() if np.isinf(self.column(n)).any())
            raise ValueError(f"column {name} contains an infinite number")

    def __len__(self) -> int:
        return int(self.block.shape[1])

    def column(self, name: str) -> Floats:
        return cast("Floats", getattr(self, name))

    def part(self, rows: slice) -> Self:
        """Some rows that stand side by side."""
        return self.of_block(self.block[:, rows])

    def take(self, rows: Ints) -> Self:
        """The given rows, in that order; for −1 a row in which everything is missing."""
        if not len(self):
            return self.missing(len(rows))
        return self.of_block(np.where(rows < 0, np.nan, self.block[:, rows]))

    def equals(self, other: "Columns") -> bool:
        """Whether both have the same columns and numbers, missing ones included."""
        return type(self) is type(other) and all(
            np.array_equal(self.column(name), other.column(name), equal_nan=True)
            for name in self.names()
        )


@dataclass(frozen=True, eq=False)
class Instances(Columns):
    """One row per instance of an operator."""

    incarnation: Floats = gauge(
        "1", "grows when the instance restarts or returns; its counters then restart at 0"
    )
    machine: Floats = gauge("row", "row of the machine it runs on")
    weight: Floats = gauge("1", "its share of the records, relative to the operator's others")
    sent: Floats = counter("records", "sent to it by all senders")
    taken: Floats = counter("records", "taken by it from its queue")
    emitted: Floats = counter("records", "emitted by it over all edges")
    failed: Floats = counter("records", "that failed in an expression and were dead-lettered")
    busy_s: Floats = counter("s", "service time: from taking a record to the end of its work")
    busy_sq_s2: Floats = counter("s²", "sum of the squared service times")
    write_waits: Floats = counter("1", "records after which it has written something")
    write_wait_s: Floats = counter("s", "sum of times from taking each of those to the next write")
    cpu_s: Floats = counter("s", "CPU time of its thread")
    gaps: Floats = counter("1", "measured inter-arrival times, by the senders' timestamps")
    gap_s: Floats = counter("s", "sum of those times")
    gap_sq_s2: Floats = counter("s²", "sum of their squares")
    parked_s: Floats = counter("s", "time that senders were held back before it, over all senders")


@dataclass(frozen=True, eq=False)
class Edges(Columns):
    """One row per edge of a job."""

    incarnation: Floats = gauge("1", "grows when the edge restarts; its counters restart at 0")
    senders: Floats = gauge("1", "instances that send over it", adds=True)
    idle_transport_s: Floats = gauge("s", "transport time of a record when nothing queues")
    clock_error_s: Floats = gauge(
        "s", "upper bound on the clock error of its senders and receivers", largest=True
    )
    emitted: Floats = counter("records", "sent over it")
    taken: Floats = counter("records", "of those, taken by the receivers")
    parked_s: Floats = counter("s", "time that back-pressure held senders back, over all senders")
    transfers: Floats = counter("1", "records whose channel latency was measured")
    channel_s: Floats = counter("s", "channel latency of those: from being sent to being taken")
    batching_s: Floats = counter("s", "time those records waited at the sender to be batched")


@dataclass(frozen=True, eq=False)
class Sources(Columns):
    """One row per source of a job."""

    incarnation: Floats = gauge("1", "grows when the source restarts; its counters restart at 0")
    partitions: Floats = gauge("1", "partitions of its topics: an upper bound for its readers")
    arrived: Floats = counter("records", "appended to its topics: growth of the end offsets")
    taken: Floats = counter("records", "read from its topics")
    failed: Floats = counter("records", "that did not match the schema and were dead-lettered")


@dataclass(frozen=True, eq=False)
class Sinks(Columns):
    """One row per sink of a job."""

    incarnation: Floats = gauge("1", "grows when the sink restarts; its counters restart at 0")
    written: Floats = counter("records", "handed to the sink")
    latencies: Floats = counter("1", "records whose end-to-end latency was measured")
    latency_s: Floats = counter("s", "sum of those latencies, from the latest influencing input")
    ahead: Floats = counter("records", "written with an origin time in the future: no latency")


@dataclass(frozen=True, eq=False)
class Machines(Columns):
    """One row per machine."""

    cores: Floats = gauge("1", "cores")
    load: Floats = gauge("1", "threads that are running or runnable")
    cores_busy: Floats = gauge("1", "busy cores, counting all processes")
    memory_bytes: Floats = gauge("bytes", "memory")
    memory_used_bytes: Floats = gauge("bytes", "memory in use")
    clock_steps: Floats = gauge("1", "how often the clock of its reports was set", largest=True)


TABLES: tuple[type[Columns], ...] = (Instances, Edges, Sources, Sinks, Machines)


def restarts(before: Columns, after: Columns) -> tuple[Bools, Bools]:
    """Which rows restarted in between, and for which rows that is unknown."""
    old, new = before.column("incarnation"), after.column("incarnation")
    return new > old, (new < old) | (np.isnan(new) != np.isnan(old))


def difference(before: C, after: C) -> C:
    """The growth of counters between two tables with the same rows; gauges as in `after`.

    A counter of a new incarnation restarted at 0, so its value is its growth. The growth is missing
    if a counter fell without a new incarnation, if its incarnation fell, or if the incarnation is
    known at one end only.
    """
    restarted = unknown = np.zeros(len(after), dtype=bool)
    if "incarnation" in after.names():
        restarted, unknown = restarts(before, after)
    counters, block = after.counters(), after.block.copy()
    counted = block[counters]
    growth = np.where(restarted, counted, counted - before.block[counters])
    growth[unknown | (growth < 0)] = np.nan
    block[counters] = growth
    return after.of_block(block)
