"""The jobs that `bench.chaos` disturbs, and the tally of what comes out of each.

A tally removes doubles by id as a reader of the topic would: the first record of an id stays. What
was sent and is not among those is lost; what is there twice under two ids is left.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from bench.diamond import job_of as diamond_job
from bench.proofs.chain import line as line_job
from trilithon.model.job import (
    Edge,
    Field,
    HeldTasks,
    Job,
    Operator,
    Parallelism,
    Sink,
    Source,
    Work,
)

IN, OUT = "in", "out"
# Short enough that batches end between the disturbances, too.
BATCH_S: Final = 60.0
# Two executors of 16 tasks run each of the jobs: a Diamond of three tasks holds 26.
LINE_TASKS, DIAMOND_TASKS, STATE_TASKS = 6, 3, 4
KEYS: Final = 100

Row = Mapping[str, Any]


class Tally(ABC):
    """What has arrived. `newest` is the highest number that has come on every way to the sink."""

    def __init__(self) -> None:
        self.arrivals = 0
        self.ids: set[str] = set()

    def take(self, row: Row, id_: str) -> None:
        """Counts a row, and keeps it unless one with its id was here before."""
        self.arrivals += 1
        first = id_ not in self.ids
        self.ids.add(id_)
        self._take(row, first=first)

    @property
    @abstractmethod
    def newest(self) -> int: ...

    @property
    @abstractmethod
    def distinct(self) -> int:
        """How many of the expected records are here."""

    @abstractmethod
    def _take(self, row: Row, *, first: bool) -> None: ...

    @abstractmethod
    def expected(self, sent: int) -> int:
        """How many records must arrive if so many were sent."""

    def errors(self, sent: int) -> dict[str, int]:
        """What else may be wrong with the output."""
        del sent
        return {}

    def balance(self, sent: int) -> dict[str, int]:
        """The figures at the end. `lost` and all behind it must be 0."""
        expected = self.expected(sent)
        right = min(self.distinct, expected)
        return {
            "sent": sent,
            "expected": expected,
            "arrived_distinct": self.distinct,
            "doubles": self.arrivals - self.distinct,
            "lost": expected - right,
            "doubles_left_by_id": len(self.ids) - right,
            **self.errors(sent),
        }


class Numbers(Tally):
    """Each number must arrive once per way: n on the first, and -1 - n on the second of two."""

    def __init__(self, ways: int) -> None:
        super().__init__()
        self._ways = [set[int]() for _ in range(ways)]
        self._newest = [-1] * ways

    def _take(self, row: Row, *, first: bool) -> None:
        n = int(row["n"])
        way, number = (0, n) if n >= 0 else (1, -1 - n)
        if first:
            self._ways[way].add(number)
            self._newest[way] = max(self._newest[way], number)

    @property
    def newest(self) -> int:
        return min(self._newest)

    @property
    def distinct(self) -> int:
        return sum(map(len, self._ways))

    def expected(self, sent: int) -> int:
        return len(self._ways) * sent


class Counts(Tally):
    """Each record must give a row. The last row of each key must have the right count and sum, and
    none a count that is too high.
    """

    def __init__(self) -> None:
        super().__init__()
        self._newest = -1
        self._last: dict[int, tuple[int, int]] = {}
        self._highest = Counter[int]()

    def _take(self, row: Row, *, first: bool) -> None:
        del first  # of the rows of a key that a replay writes again the last is right, too
        key, count = int(row["k"]), int(row["count"])
        self._last[key] = (count, int(row["total"]))
        self._highest[key] = max(self._highest[key], count)
        self._newest = max(self._newest, int(row["newest"]))

    @property
    def newest(self) -> int:
        return self._newest

    @property
    def distinct(self) -> int:
        return len(self.ids)

    def expected(self, sent: int) -> int:
        return sent

    def errors(self, sent: int) -> dict[str, int]:
        right = {key: range(key, sent, KEYS) for key in range(min(KEYS, sent))}
        of_no_key = len(self._last.keys() - right.keys())
        wrong = sum(self._last.get(k) != (len(all_), sum(all_)) for k, all_ in right.items())
        too_high = sum(self._highest[key] > len(all_) for key, all_ in right.items())
        return {"keys_with_wrong_count": wrong + of_no_key, "keys_counted_too_high": too_high}


@dataclass(frozen=True, slots=True)
class Shape:
    """A job, and what counts its output. Operators with state keep their number of instances."""

    job: Job
    tally: Callable[[], Tally]

    @property
    def elastic(self) -> dict[str, int]:
        """The operators that can be rescaled, with the most instances of each."""
        return {o.name: o.parallelism.max for o in self.job.operators if not o.work.stateful}


def _line() -> Job:
    """in → first → second → out."""
    conditions = {"first": "n >= 0", "second": "n >= 0"}
    return line_job("line", conditions, LINE_TASKS, (IN, OUT))


def _counted() -> Job:
    """in → check → count by key → out."""
    return Job(
        tenant="bench",
        name="counted",
        sources=(
            Source(
                "in",
                (Field("n", "BIGINT"), Field("sent", "DOUBLE")),
                (("subscribe", IN), ("startingOffsets", "earliest")),
            ),
        ),
        operators=(
            Operator(
                "check",
                Work(where="n >= 0", select=("n", f"CAST(n % {KEYS} AS INT) AS k")),
                Parallelism(1, 1, LINE_TASKS, HeldTasks.ALL),
            ),
            Operator(
                "count",
                Work(
                    group_by=("k",),
                    aggregate=(
                        ("count", "count(*)"),
                        ("total", "sum(n)"),
                        ("newest", "max(n)"),
                    ),
                ),
                Parallelism(STATE_TASKS, 1, STATE_TASKS),
            ),
        ),
        edges=(Edge("in", "check"), Edge("check", "count"), Edge("count", "out")),
        sinks=(Sink("out", (("topic", OUT),), key="k"),),
    )


def _shape(job: Job, tally: Callable[[], Tally]) -> Shape:
    return Shape(replace(job, batch_s=BATCH_S), tally)


SHAPES: Final[Mapping[str, Shape]] = {
    "line": _shape(_line(), lambda: Numbers(1)),
    "diamond": _shape(diamond_job("diamond", IN, OUT, DIAMOND_TASKS), lambda: Numbers(2)),
    "counted": _shape(_counted(), Counts),
}
