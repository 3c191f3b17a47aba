"""Knows what waits in the topics between parts, and when the parts before them must be held back.

Kafka says where a topic ends, twice a second; readers report once a second how far they are. The
difference of two numbers from different times would be wrong by what arrives in between, so both
are taken at the same time, between two observations of each.

A cut in which much waits slows the part before it down, the more the fuller it is: where half of
what may wait does, writers are as fast as the reader, and at the bound they stop. A gate that only
opens and shuts would let the other branches of a job burst and starve in turn. The bound is what
the part behind reads in a few seconds: so much that it never runs dry between two looks. Pure:
times are given.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from trilithon.engines.spark.backlog import Backlogs

# How many seconds of the reader's rate, and at least how many records, may wait in a cut.
BOUND_S: Final = 4.0
BOUND_RECORDS: Final = 1000
# Below this share of its bound a cut slows nobody down.
FREE_BELOW: Final = 0.25
# The pace of writers who are not held back.
FREE: Final = float("inf")
# Positions that are older than this come from a part that does not run: it stands still.
STALE_S: Final = 3.0
_KEPT: Final = 12


@dataclass
class _History:
    """The latest values of a number that only grows, each with its time."""

    points: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_KEPT))

    def add(self, time_s: float, value: float) -> None:
        if self.points and value < self.points[-1][1]:
            self.points.clear()  # it was set back: a part that was restarted reads some again
        if not self.points or time_s > self.points[-1][0]:
            self.points.append((time_s, value))

    @property
    def last_s(self) -> float:
        return self.points[-1][0] if self.points else float("-inf")

    def at(self, time_s: float) -> float:
        """The value at a time: between two points on the line between them."""
        if time_s <= self.points[0][0]:
            return self.points[0][1]
        for (begin_s, begin), (end_s, end) in pairwise(self.points):
            if time_s <= end_s:
                return begin + (end - begin) * (time_s - begin_s) / (end_s - begin_s)
        return self.points[-1][1]

    def rate_per_s(self) -> float:
        if len(self.points) < 2:
            return 0.0
        (begin_s, begin), (end_s, end) = self.points[0], self.points[-1]
        return (end - begin) / (end_s - begin_s)


@dataclass
class CutLags:
    """The ends of topics and the positions of their readers, over the last seconds."""

    _ends: dict[str, _History] = field(default_factory=dict)
    _read: dict[tuple[str, str], _History] = field(default_factory=dict)
    _held: set[tuple[str, str]] = field(default_factory=set)

    def observe_ends(self, ends: Mapping[str, int], time_s: float) -> None:
        for topic, end in ends.items():
            self._ends.setdefault(topic, _History()).add(time_s, end)
        for topic in self._ends.keys() - ends.keys():
            del self._ends[topic]

    def observe_read(
        self, backlogs: Backlogs, part: str, partitions: Mapping[str, int], time_s: float
    ) -> None:
        """Takes the positions of a part's readers, which were reported at this time. A topic counts
        when all its partitions have a reader.
        """
        for topic, offsets in backlogs.positions(part).items():
            if len(offsets) >= partitions.get(topic, 0):
                self._read.setdefault((part, topic), _History()).add(time_s, sum(offsets))

    def forget(self, part: str) -> None:
        self._read = {key: known for key, known in self._read.items() if key[0] != part}
        self._held = {key for key in self._held if key[0] != part}

    def lag(
        self,
        part: str,
        topics: Iterable[str],
        now_s: float,
        committed: Callable[[], Mapping[str, int]],
    ) -> float | None:
        """The records of topics that a part has not read yet; None if that is unknown. Before its
        readers have reported, it is at what it has committed.
        """
        total = 0.0
        for topic in topics:
            if (ends := self._ends.get(topic)) is None:
                return None
            read = self._read.get((part, topic))
            if read is None:
                total += max(0.0, ends.points[-1][1] - committed().get(topic, 0))
            elif now_s - read.last_s > STALE_S:
                total += max(0.0, ends.points[-1][1] - read.points[-1][1])
            else:
                common_s = min(ends.last_s, read.last_s)
                total += max(0.0, ends.at(common_s) - read.at(common_s))
        return total

    def position(self, part: str, topic: str) -> float | None:
        """How far the part had read the topic when its readers reported last."""
        read = self._read.get((part, topic))
        return None if read is None else read.points[-1][1]

    def bound(self, part: str, topic: str, now_s: float) -> float:
        """How many records may wait before the part."""
        return max(BOUND_RECORDS, BOUND_S * self._rate_per_s(part, topic, now_s))

    def _rate_per_s(self, part: str, topic: str, now_s: float) -> float:
        """How fast the part reads; 0 if it stands still."""
        read = self._read.get((part, topic))
        stands = read is None or now_s - read.last_s > STALE_S
        return 0.0 if read is None or stands else read.rate_per_s()

    def writers_wait(self, part: str, topic: str) -> bool:
        """Whether those who write to the topic are held back."""
        return (part, topic) in self._held

    def pace_per_s(self, part: str, topic: str, lag: float | None, now_s: float) -> float:
        """How many records a second may be written to the topic; `FREE` for as many as come. What
        is unknown holds nobody back.
        """
        limit = self.bound(part, topic, now_s)
        pace = FREE if lag is None else self._pace(part, topic, lag, limit, now_s)
        if pace == FREE:
            self._held.discard((part, topic))
        else:
            self._held.add((part, topic))
        return pace

    def _pace(self, part: str, topic: str, lag: float, limit: float, now_s: float) -> float:
        if lag >= limit:
            return 0.0
        rate_per_s = self._rate_per_s(part, topic, now_s)
        if lag <= FREE_BELOW * limit or rate_per_s <= 0:
            return FREE  # the part behind may just be starting
        return rate_per_s * 2 * (1 - lag / limit)
