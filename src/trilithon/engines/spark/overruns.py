"""Says which batches were told to end and have not, what keeps them open, and what follows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from trilithon.engines.spark.boundary import STUCK_S, Boundaries
from trilithon.engines.spark.watchdog import RecordWatch
from trilithon.model.job import Job

# How long a batch may take to end before its job says so. The engine looks every second, so that an
# overrun is seen within 30 s.
OVERRUN_S: Final = 25.0
# A job's problem is an event whenever its text changes: while a batch overruns, twice a minute.
_RENEWED_S: Final = 30.0


@dataclass
class Queues:
    """The records that wait for each operator: those that were sent to it and not taken yet. They
    are computed from the latest report of each executor, and only when somebody asks.
    """

    _latest: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    # Per job: the counts of executors that left, in the latest incarnation that one of them had.
    _gone: dict[str, tuple[int, dict[str, int]]] = field(default_factory=dict)

    def observe(self, reports: Iterable[Mapping[str, Any]], lost: Iterable[str] = ()) -> None:
        for report in reports:
            self._latest[str(report["executor"])] = report
        for executor in lost:
            self._leave(self._latest.pop(executor, {"instances": ()}))

    def _leave(self, report: Mapping[str, Any]) -> None:
        """Keeps the counts of an executor: a job goes on without a machine that is removed."""
        for instance in report["instances"]:
            job, incarnation = instance["job"], instance["incarnation"]
            known, counts = self._gone.get(job, (incarnation, {}))
            if incarnation > known:
                known, counts = incarnation, {}
            if incarnation == known:
                _count(counts, instance)
                self._gone[job] = (known, counts)

    def waiting(self, job: Job, incarnation: int) -> dict[str, int]:
        """The records that wait for each operator of a job, the most first."""
        known, gone = self._gone.get(job.id, (incarnation, {}))
        counts = dict(gone) if known == incarnation else {}
        for report in list(self._latest.values()):
            for instance in report["instances"]:
                if (instance["job"], instance["incarnation"]) == (job.id, incarnation):
                    _count(counts, instance)
        waiting = {operator.name: counts.get(operator.name, 0) for operator in job.operators}
        most_first = sorted(waiting.items(), key=lambda item: -item[1])
        return {name: count for name, count in most_first if count > 0}


def _count(counts: dict[str, int], instance: Mapping[str, Any]) -> None:
    """Adds what an instance sent and subtracts what it took, by operator."""
    operator = instance["operator"]
    counts[operator] = counts.get(operator, 0) - int(instance["taken"])
    for target, edge in instance["out"].items():
        counts[target] = counts.get(target, 0) + int(sum(edge["sent_to"].values()))


@dataclass
class Overruns:
    """The problem of each job whose batch overruns."""

    boundaries: Boundaries
    records: RecordWatch
    queues: Queues = field(default_factory=Queues)
    # Per job: since when the batch is to end, the age that the text names, and the text.
    _shown: dict[str, tuple[float, float, str]] = field(default_factory=dict)

    def problem(self, job: Job, incarnation: int) -> str:
        """What is wrong with the running batch of a job; empty if it was not told to end, or only
        a moment ago. A job that works slowly is not told to end by that.
        """
        asked = self.boundaries.asked_to_end(job.id)
        if asked is None or (age_s := asked.age_s) < OVERRUN_S:
            self._shown.pop(job.id, None)
            return ""
        asked_s, named_s, text = self._shown.get(job.id, (asked.at_s, 0.0, ""))
        if asked_s != asked.at_s or not text or age_s - named_s >= _RENEWED_S:
            text = self._text(job, incarnation, age_s)
            # Jobs that were cancelled meanwhile have nothing to say any more.
            self._shown = {n: t for n, t in self._shown.items() if self.boundaries.asked_to_end(n)}
            self._shown[job.id] = (asked.at_s, age_s, text)
        return text

    def _text(self, job: Job, incarnation: int, age_s: float) -> str:
        waiting = self.queues.waiting(job, incarnation)
        causes = [f"{name} has {_records(count)} in its queue" for name, count in waiting.items()]
        working = self.records.longest(job.id)
        if working is None:
            follows = (
                f"If it has not ended {STUCK_S / 60:g} minutes after it was told to, the query is "
                "stopped and the records since its last commit are replayed."
            )
        else:
            operator, for_s = working
            causes.insert(0, f"{operator} has been at one record for {for_s:.0f} s")
            follows = (
                f"It stays open for that record. If {operator} needs more than "
                f"{self.records.bound_s(job, operator):.0f} s for it, the job is stopped and fails."
            )
        why = ", ".join(causes) or (
            "no operator has a record left: Kafka has not taken what was written to a sink, or its "
            "commit or the next batch is missing"
        )
        return f"The batch was told to end {age_s:.0f} s ago and has not: {why}. {follows}"


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count} records"
