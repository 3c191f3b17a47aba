"""Owns the columns that measurements come in: which there are, their units, and what is missing.

A column is an array of float64 in which NaN is the mask: a number that is missing is missing in
every sum it would be part of, without anybody having to remember it. Counts are whole numbers and
exact up to 2⁵³, which a million records per second reach after 285 years.

A counter only grows while its incarnation stays the same; a gauge is what holds at the moment.
"""

from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
C = TypeVar("C", bound="Columns")
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Column:
    """What a column holds."""

    name: str
    unit: str
    meaning: str
    counter: bool
    # Whether the parts of several senders add up. Counters do; of most gauges the youngest counts, of
    # some the largest.
    adds: bool
    largest: bool = False


def counter(unit: str, meaning: str) -> Any:
    return field(metadata={"unit": unit, "meaning": meaning, "counter": True, "adds": True})


def gauge(unit: str, meaning: str, *, adds: bool = False, largest: bool = False) -> Any:
    told = {"unit": unit, "meaning": meaning, "counter": False, "adds": adds, "largest": largest}
    return field(metadata=told)


def _frozen(values: npt.ArrayLike) -> Floats:
    """An array that nobody can change: the same one if it already is that, a copy otherwise."""
    if isinstance(values, np.ndarray) and values.dtype == np.float64 and values.ndim == 1:
        mine: bool = values.base is None and not values.flags.writeable
        if mine:
            return values
    copy: Floats = np.array(values, dtype=np.float64, ndmin=1)
    copy.setflags(write=False)
    return copy


@dataclass(frozen=True, eq=False)
class Columns:
    """Columns of one length. Subclasses name them."""

    @classmethod
    @cache
    def describe(cls) -> tuple[Column, ...]:
        return tuple(Column(f.name, **f.metadata) for f in fields(cls))

    @classmethod
    @cache
    def names(cls) -> tuple[str, ...]:
        return tuple(column.name for column in cls.describe())

    @classmethod
    def missing(cls, rows: int) -> Self:
        return cls(*(np.full(rows, np.nan) for _ in cls.names()))

    @classmethod
    def of(cls, rows: int, **known: npt.ArrayLike) -> Self:
        """Columns of which some are known; the others are missing."""
        if strange := set(known) - set(cls.names()):
            raise TypeError(f"{cls.__name__} has no column {', '.join(sorted(strange))}")
        unknown = np.full(rows, np.nan)
        unknown.setflags(write=False)
        return cls(*(known.get(name, unknown) for name in cls.names()))

    @classmethod
    def trusted(cls, rows: int, **known: Floats) -> Self:
        """The same as `of` without a look at the numbers, for whoever has just made them: each column
        has so many, none is infinite, and nobody will change them.
        """
        unknown = np.full(rows, np.nan)
        made = object.__new__(cls)
        for name in cls.names():
            values = known.get(name, unknown)
            values.setflags(write=False)
            object.__setattr__(made, name, values)
        return made

    def __post_init__(self) -> None:
        length = None
        for name in self.names():
            values = _frozen(getattr(self, name))
            object.__setattr__(self, name, values)
            length = len(values) if length is None else length
            if values.ndim != 1 or len(values) != length:
                raise ValueError(f"column {name} has shape {values.shape}, expected ({length},)")
        # One look at all of them costs a fraction of one look at each.
        if length and np.isinf(np.concatenate([self.column(n) for n in self.names()])).any():
            name = next(n for n in self.names() if np.isinf(self.column(n)).any())
            raise ValueError(f"column {name} holds an infinite number")

    def __len__(self) -> int:
        return len(self.column(self.names()[0]))

    def column(self, name: str) -> Floats:
        return cast("Floats", getattr(self, name))

    def take(self, rows: Ints) -> Self:
        """Other rows of the same columns; a row of −1 is missing."""
        if not len(self):
            return self.missing(len(rows))
        absent = rows < 0
        return type(self)(
            *(np.where(absent, np.nan, self.column(name)[rows]) for name in self.names())
        )

    def equals(self, other: "Columns") -> bool:
        """The same columns with the same numbers, missing ones in the same places."""
        return type(self) is type(other) and all(
            np.array_equal(self.column(name), other.column(name), equal_nan=True)
            for name in self.names()
        )


@dataclass(frozen=True, eq=False)
class Instances(Columns):
    """One row per instance of an operator."""

    incarnation: Floats = gauge(
        "1", "grows when it began anew or came back; its counters then began at 0"
    )
    machine: Floats = gauge("row", "the row of the machine it runs on")
    weight: Floats = gauge("1", "its share of the records, relative to its peers")
    sent: Floats = counter("records", "sent to it by all senders")
    taken: Floats = counter("records", "taken by it from its queue")
    emitted: Floats = counter("records", "sent on by it over all edges")
    failed: Floats = counter("records", "failed in an expression and put aside")
    busy_s: Floats = counter("s", "service time: from taking a record to the end of its work")
    busy_sq_s2: Floats = counter("s²", "the squares of the service times")
    cpu_s: Floats = counter("s", "CPU time of its thread")
    gaps: Floats = counter("1", "times between arrivals that were measured, by the senders' stamps")
    gap_s: Floats = counter("s", "those times")
    gap_sq_s2: Floats = counter("s²", "the squares of those times")


@dataclass(frozen=True, eq=False)
class Edges(Columns):
    """One row per edge of a job."""

    incarnation: Floats = gauge("1", "grows when the edge began anew; its counters began at 0")
    senders: Floats = gauge("1", "instances that send over it", adds=True)
    idle_transport_s: Floats = gauge("s", "how long a record travels when nothing waits")
    clock_error_s: Floats = gauge(
        "s", "how far the clock of any who sends or takes may be off", largest=True
    )
    emitted: Floats = counter("records", "sent over it")
    taken: Floats = counter("records", "of those, taken by the receivers")
    parked_s: Floats = counter("s", "time that senders were held back, over all senders")
    transfers: Floats = counter("1", "records whose time in the channel was measured")
    channel_s: Floats = counter("s", "from leaving the sender to being taken, of those records")
    batching_s: Floats = counter("s", "waiting at the sender for others, of those records")


@dataclass(frozen=True, eq=False)
class Sources(Columns):
    """One row per source of a job."""

    incarnation: Floats = gauge("1", "grows when the source began anew; its counters began at 0")
    partitions: Floats = gauge("1", "partitions of its topics: an upper bound for its readers")
    arrived: Floats = counter("records", "that came into the log: growth of the end offsets")
    taken: Floats = counter("records", "read from the log")
    failed: Floats = counter("records", "could not be read as the schema says and were put aside")


@dataclass(frozen=True, eq=False)
class Sinks(Columns):
    """One row per sink of a job."""

    incarnation: Floats = gauge("1", "grows when the sink began anew; its counters began at 0")
    written: Floats = counter("records", "given to the sink")
    latencies: Floats = counter("1", "records whose end-to-end latency was measured")
    latency_s: Floats = counter("s", "those latencies, from the latest input that had influence")


@dataclass(frozen=True, eq=False)
class Machines(Columns):
    """One row per machine."""

    cores: Floats = gauge("1", "cores")
    load: Floats = gauge("1", "threads that run or could run")
    cores_busy: Floats = gauge("1", "cores that compute, for whomever")
    memory_bytes: Floats = gauge("bytes", "memory")
    memory_used_bytes: Floats = gauge("bytes", "memory in use")


TABLES: tuple[type[Columns], ...] = (Instances, Edges, Sources, Sinks, Machines)


def incarnations(before: Columns, after: Columns) -> tuple[Bools, Bools]:
    """Which rows began anew in between, and of which that cannot be told."""
    old, new = before.column("incarnation"), after.column("incarnation")
    return new > old, (new < old) | (np.isnan(new) != np.isnan(old))


def difference(before: C, after: C) -> C:
    """Counters as their growth, gauges as they are now.

    A counter of a new incarnation began at 0, so what it shows now is its growth. One that fell
    without a new incarnation is broken, and missing; so is one whose incarnation fell, or is known
    at one end only: nobody can say what lies between.
    """
    result = {}
    anew = broken = np.zeros(len(after), dtype=bool)
    if "incarnation" in after.names():
        anew, broken = incarnations(before, after)
    for column in after.describe():
        now = after.column(column.name)
        if column.counter:
            growth = np.where(anew, now, now - before.column(column.name))
            growth[broken | (growth < 0)] = np.nan
            growth.setflags(write=False)
            result[column.name] = growth
        else:
            result[column.name] = now
    return type(after)(**result)
