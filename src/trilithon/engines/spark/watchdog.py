"""Detects records that take for ever, and threads that go on after their query was stopped.

Each executor reports how long an instance has been at one record. That is too long if it is longer
than a multiple of every service time of the operator so far: a slow job is not stopped for being
slow, since its own records raise the bound, and so do the records of its other instances when the
whole machine is slow.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from trilithon import logs
from trilithon.engines.spark.probe_control import ProbeControl
from trilithon.model.job import Job

# The bound for a record while nothing is known of the operator's service times. A report arrives
# every second and the query is stopped at once, so that such a record is noticed within 30 s.
SHORTEST_BOUND_S: Final = 20.0
# How much longer than the longest record so far a record may take.
FACTOR: Final = 20.0
# How long threads may go on after their query was stopped by the engine. A reader of a shuffle
# waits up to 5 s for each of two thread pools (`StreamingShuffleReader.cleanupResources`), which
# take that long to end if it was about to connect when it was stopped.
THREADS_END_S: Final = 15.0
# The same after the query died or was restarted. A thread that reads from an executor that died
# tries to connect three times, five seconds apart (`spark.shuffle.io.retryWait`), and then ends.
THREADS_RETRY_S: Final = 25.0
# How long the replacement of an executor may take to be noticed.
_REPLACED_S: Final = 15.0
_POLL_S: Final = 0.05
# The name of the driver among the executors, in local mode.
_DRIVER: Final = "driver"
_log = logs.logger()


@dataclass(frozen=True, slots=True)
class StuckRecord:
    """A record that an instance took and does not finish."""

    operator: str
    index: int
    executor: str
    for_s: float
    bound_s: float
    origin_s: float

    def describe(self) -> str:
        """What is wrong."""
        origin = datetime.fromtimestamp(self.origin_s, UTC).isoformat(" ", "milliseconds")
        return (
            f"A record never ends in the operator {self.operator}: instance {self.index} on "
            f"executor {self.executor} has worked on it for {self.for_s:.0f} s, and the limit is "
            f"{self.bound_s:.0f} s. The record has the Kafka timestamp {origin[:-6]} UTC"
        )


@dataclass
class RecordWatch:
    """Compares the time that each instance spends on a record with the operator's service times."""

    shortest_bound_s: float = SHORTEST_BOUND_S
    factor: float = FACTOR
    # Per job: the longest service time of each operator, on any instance.
    _longest_s: dict[str, dict[str, float]] = field(default_factory=dict)
    # Per job: by operator, index and executor, the time spent on a record and its origin.
    _stalled: dict[str, dict[tuple[str, int, str], tuple[float, float]]] = field(
        default_factory=dict
    )

    def observe(self, reports: Iterable[Mapping[str, Any]], jobs: Mapping[str, Job]) -> None:
        """Takes the service times and the records in work from the executors' reports."""
        for report in reports:
            executor = str(report["executor"])
            for instance in report["instances"]:
                job, operator = jobs.get(instance["job"]), instance["operator"]
                if job is None or operator in job.source_names:
                    continue
                name = job.id
                longest = self._longest_s.setdefault(name, {})
                service_s = instance["service"].get("max_us", 0.0) / 1e6
                if service_s >= longest.get(operator, 0.0):
                    longest[operator] = service_s
                stalled = self._stalled.setdefault(name, {})
                key = (operator, int(instance["index"]), executor)
                if "stalled_us" in instance:
                    origin_s = instance["origin_us"] / 1e6
                    stalled[key] = (instance["stalled_us"] / 1e6, origin_s)
                elif stalled:
                    stalled.pop(key, None)

    def stuck(self, job: Job) -> StuckRecord | None:
        """The record of a job that has been in work longest, if that is longer than its bound."""
        stalled = self._stalled.get(job.id, {})
        for (operator, index, executor), (for_s, origin_s) in sorted(
            stalled.items(), key=lambda item: -item[1][0]
        ):
            bound_s = self.bound_s(job, operator)
            if for_s > bound_s:
                return StuckRecord(operator, index, executor, for_s, bound_s, origin_s)
        return None

    def working(self, job: str) -> bool:
        """Whether an instance of the job has been at one record for seconds: its batch cannot end,
        and is not to blame for it.
        """
        return bool(self._stalled.get(job))

    def longest(self, job: str) -> tuple[str, float] | None:
        """The operator that has been at one record longest, and for how long; None if none has been
        for seconds.
        """
        stalled = self._stalled.get(job)
        if not stalled:
            return None
        (operator, _, _), (for_s, _) = max(stalled.items(), key=lambda item: item[1][0])
        return operator, for_s

    def bound_s(self, job: Job, operator: str) -> float:
        """How long a record may take in an operator, given its service times so far and its
        declared profile.
        """
        longest_s = self._longest_s.get(job.id, {}).get(operator, 0.0)
        profile = next((one.profile for one in job.operators if one.name == operator), None)
        if profile is not None and profile.service_ms is not None:
            longest_s = max(longest_s, profile.service_ms / 1000)
        return max(self.shortest_bound_s, self.factor * longest_s)

    def forget(self, job: str) -> None:
        """Another query of the job starts, or none: its records begin anew."""
        self._longest_s.pop(job, None)
        self._stalled.pop(job, None)


@dataclass(frozen=True, slots=True)
class LeftThreads:
    """Threads of a job that go on in an executor after their query was stopped."""

    job: str
    executor: str
    threads: int


@dataclass
class ThreadWatch:
    """Finds threads of queries that were stopped."""

    end_s: float = THREADS_END_S
    retry_s: float = THREADS_RETRY_S
    # Per executor and job: the threads of each incarnation.
    _threads: Mapping[str, Mapping[str, Mapping[str, int]]] = field(default_factory=dict)
    _since_s: dict[tuple[str, str], float] = field(default_factory=dict)

    def observe(self, threads: Mapping[str, Mapping[str, Mapping[str, int]]]) -> None:
        self._threads = threads
        self._since_s = {
            key: since_s
            for key, since_s in self._since_s.items()
            if key[0] in threads.get(key[1], {})
        }

    def left(self, job: str, incarnation: int | None, now_s: float) -> list[LeftThreads]:
        """The threads of a job that should have ended by now: those of earlier incarnations than
        the running one, or all if none runs.
        """
        left = []
        for executor, jobs in self._threads.items():
            lives = jobs.get(job, {})
            ended = [
                n for life, n in lives.items() if incarnation is None or int(life) < incarnation
            ]
            old = sum(ended)
            if not old:
                self._since_s.pop((job, executor), None)
            elif now_s - self._since_s.setdefault((job, executor), now_s) > self.retry_s:
                left.append(LeftThreads(job, executor, old))
        return left


@dataclass
class Watchdog:
    """Watches the records in work and the threads of an application, and replaces what holds
    threads that cannot be ended. `replace_host` replaces this process and its JVM; without it, as
    in a process that a user started, threads in this JVM are only reported.
    """

    control: ProbeControl
    replace_host: Callable[[str], None] | None = None
    records: RecordWatch = field(default_factory=RecordWatch)
    threads: ThreadWatch = field(default_factory=ThreadWatch)
    _replaced: set[str] = field(default_factory=set)

    def observe(self, drained: Mapping[str, Any], jobs: Mapping[str, Job]) -> None:
        """Takes what the probe in the driver has collected since the last call."""
        self.records.observe(drained["reports"], jobs)
        self._replaced.difference_update(drained["lost"])
        if "threads" in drained:
            self.threads.observe(drained["threads"])

    def await_end(self, job: str) -> tuple[str, bool]:
        """Waits until the threads of a job that was stopped have ended; an executor in which they
        do not is replaced. Returns what happened, empty if they just ended, and whether they have
        ended.
        """
        if not (left := self._await(job, self.threads.end_s)):
            return "", True
        messages = [self.replace(LeftThreads(job, *item)) for item in left.items()]
        ended = _DRIVER not in left and not self._await(job, _REPLACED_S)
        return " ".join(messages), ended

    def _await(self, job: str, timeout_s: float) -> dict[str, int]:
        deadline = time.monotonic() + timeout_s
        while (left := self.control.threads(job)) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return left

    def replace(self, left: LeftThreads) -> str:
        """Replaces an executor, or this host; returns a sentence that says so."""
        count = f"{left.threads} thread{'s' if left.threads > 1 else ''} of {left.job}"
        if left.executor != _DRIVER:
            message = f"{count} cannot be ended: executor {left.executor} is replaced."
            self.control.halt_executor(left.executor, message)
        elif self.replace_host is None:
            message = f"{count} cannot be ended and use the CPU until this process ends."
        else:
            message = f"{count} cannot be ended: the engine host is replaced."
        if left.executor not in self._replaced:
            self._replaced.add(left.executor)
            # An executor logs where its threads are when it ends.
            stacks = self.control.stacks(left.job) if left.executor == _DRIVER else ""
            _log.error(
                "threads_left",
                job=left.job,
                executor=left.executor,
                message=message,
                **({"stacks": stacks} if stacks else {}),
            )
            if left.executor == _DRIVER and self.replace_host is not None:
                self.replace_host(message)
        return message
