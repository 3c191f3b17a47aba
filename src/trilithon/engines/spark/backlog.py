"""Knows where the readers of each job are in their topics, and which jobs work off a backlog.

Offsets count more than records: the markers of transactions, records of aborted transactions (for a
reader of committed records) and records that compaction removed have an offset, too. Readers count
the offsets that they skip. What is left when no reader finds a record is no record either.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from trilithon.model.job import Job

# A job that has more than this to read, in seconds of its own reading rate and in records, is
# behind. Fewer records are a moment's work, and a slow job's few records are no catch-up.
BEHIND_S: Final = 5.0
BEHIND_RECORDS: Final = 1000
# A reader that is idle has found all records that were there this long before its report.
_POLLED_S: Final = 0.2
# The name under which the counts of lost executors are kept.
_GONE: Final = ""


@dataclass
class _Readers:
    """The next offset of each partition of one incarnation of a job, and when it was reported."""

    incarnation: int
    # By partition: the batch of the reader, its next offset, and whether it found no record there.
    positions: dict[str, tuple[int, int, bool]] = field(default_factory=dict)
    # By partition and executor: the offsets without a record that were skipped so far.
    skipped: dict[tuple[str, str], int] = field(default_factory=dict)
    # By topic: the offsets after the readers' positions that hold no record.
    trailing: dict[str, int] = field(default_factory=dict)
    before: tuple[float, int] | None = None
    rate_per_s: float = 0.0


@dataclass
class Backlogs:
    """The readers' positions, from the executors' reports."""

    _jobs: dict[str, _Readers] = field(default_factory=dict)
    _ends: Mapping[str, int] = field(default_factory=dict)
    _ends_s: float = 0.0

    def observe_ends(self, ends: Mapping[str, int], now_s: float) -> None:
        """Takes the end offsets of the topics, which were read before now, in driver time: that of
        reports. It never steps.
        """
        self._ends, self._ends_s = ends, now_s

    def observe(self, reports: Iterable[Mapping[str, Any]]) -> None:
        for report in reports:
            for reader in report.get("readers", ()):
                self._observe(reader, str(report["executor"]))
            for job in {reader["job"] for reader in report.get("readers", ())}:
                self._measure(self._jobs[job], report["time_us"] / 1e6)

    def _observe(self, reader: Mapping[str, Any], executor: str) -> None:
        known = self._jobs.get(reader["job"])
        if known is None or reader["incarnation"] > known.incarnation:
            known = self._jobs[reader["job"]] = _Readers(reader["incarnation"])
        if reader["incarnation"] < known.incarnation:
            return
        # An executor goes on reporting a reader that runs elsewhere by now.
        partition, position = reader["partition"], (reader["batch"], reader["next"])
        if position >= known.positions.get(partition, (-1, -1, False))[:2]:
            known.positions[partition] = (*position, reader["idle"])
        known.skipped[partition, executor] = reader["skipped"]

    def _measure(self, readers: _Readers, now_s: float) -> None:
        total = sum(offset for _, offset, _ in readers.positions.values())
        if self._ends_s <= now_s - _POLLED_S:
            for topic in {_topic(partition) for partition in readers.positions}:
                read = _of_topic(readers, topic)
                idle = all(idle for _, _, idle in read)
                left = self._ends.get(topic, 0) - sum(offset for _, offset, _ in read)
                readers.trailing[topic] = max(0, left) if idle else 0
        if readers.before is not None and now_s > readers.before[0]:
            at_s, then = readers.before
            readers.rate_per_s = max(0.0, (total - then) / (now_s - at_s))
        if readers.before is None or now_s > readers.before[0]:
            readers.before = (now_s, total)

    def lose(self, executor: str) -> None:
        """The executor will not report again: what its readers skipped stays in the sums."""
        for readers in self._jobs.values():
            for partition, name in [key for key in readers.skipped if key[1] == executor]:
                count = readers.skipped.pop((partition, name))
                gone = (partition, _GONE)
                readers.skipped[gone] = readers.skipped.get(gone, 0) + count

    def forget(self, job: str) -> None:
        self._jobs.pop(job, None)

    def positions(self, job: str) -> dict[str, list[int]]:
        """The next offset of each partition that has a reader, by the topics that a job reads."""
        offsets: dict[str, list[int]] = {}
        for (topic, _), offset in self.next_offsets(job).items():
            offsets.setdefault(topic, []).append(offset)
        return offsets

    def next_offsets(self, job: str) -> dict[tuple[str, int], int]:
        """The next offset of each partition that has a reader, by topic and number."""
        readers = self._jobs.get(job)
        return {
            (_topic(partition), int(partition.rpartition("-")[2])): offset
            for partition, (_, offset, _) in (readers.positions if readers else {}).items()
        }

    def lag(self, job: Job, ends: Mapping[str, int]) -> int | None:
        """The records that a job has still to read; None while a position or an end is unknown."""
        readers, topics = self._jobs.get(job.id), {t for s in job.sources for t in s.topics}
        if readers is None or not topics <= ends.keys():
            return None
        total = 0
        for topic in topics:
            if not (read := _of_topic(readers, topic)):
                return None
            left = ends[topic] - sum(offset for _, offset, _ in read)
            total += max(0, left - readers.trailing.get(topic, 0))
        return total

    def without_record(self, job: str, incarnation: int, topics: Iterable[str]) -> int:
        """The offsets of topics that this incarnation of a job passed and that hold no record."""
        readers = self._jobs.get(job)
        if readers is None or readers.incarnation != incarnation:
            return 0
        names = set(topics)
        skipped = sum(n for (part, _), n in readers.skipped.items() if _topic(part) in names)
        return skipped + sum(n for topic, n in readers.trailing.items() if topic in names)

    def behind(self, job: Job, ends: Mapping[str, int]) -> bool:
        """Whether a job works off a backlog."""
        if (lag := self.lag(job, ends)) is None:
            return False
        return lag > max(BEHIND_RECORDS, BEHIND_S * self._jobs[job.id].rate_per_s)


def _topic(partition: str) -> str:
    """The topic of a partition, which is named topic-number."""
    return partition.rpartition("-")[0]


def _of_topic(readers: _Readers, topic: str) -> list[tuple[int, int, bool]]:
    return [where for partition, where in readers.positions.items() if _topic(partition) == topic]
