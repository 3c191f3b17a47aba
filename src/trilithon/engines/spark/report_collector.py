"""Collects the reports of an application: those that its executors send, and the host's own.

On the way it passes on what else the executors report: where readers are, how long records take,
what waits in queues, which machine each executor is on, and which executors were lost.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from trilithon.engines.spark import routing_tables
from trilithon.engines.spark.backlog import Backlogs
from trilithon.engines.spark.collection_pause import collection_paused
from trilithon.engines.spark.cut_lags import CutLags
from trilithon.engines.spark.deaths import Deaths
from trilithon.engines.spark.host_report import HostReports, RunningJob
from trilithon.engines.spark.kafka_monitor import KafkaMonitor
from trilithon.engines.spark.managed_job import ManagedJob
from trilithon.engines.spark.overruns import Overruns
from trilithon.engines.spark.part_reports import WholeJobs
from trilithon.engines.spark.probe_control import ProbeControl
from trilithon.engines.spark.telemetry import report_of, sender_of
from trilithon.engines.spark.watchdog import Watchdog
from trilithon.model.job import Job
from trilithon.model.report import Report

# Half the executors' reporting period: a caller that polls every second gets a new count each time.
LAG_EVERY_S: Final = 0.5
# The records that wait for the operators of a part in the topics of cut edges.
Waiting = Callable[[Job], Mapping[str, float]]


@dataclass
class ReportCollector:
    """The reports since the last call of `take`. Any thread may call `collect` meanwhile."""

    application: str
    managed: Mapping[str, ManagedJob]
    control: ProbeControl
    backlogs: Backlogs
    watchdog: Watchdog
    overruns: Overruns
    deaths: Deaths
    monitor: KafkaMonitor
    # The name of the machine of each executor that has reported.
    machines: dict[str, str]
    clock: Callable[[], float]
    steady_clock: Callable[[], float]
    lags: CutLags = field(default_factory=CutLags)
    whole: WholeJobs = field(default_factory=WholeJobs)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _collected: list[Report] = field(default_factory=list)
    _lost_senders: list[str] = field(default_factory=list)
    _sequence: int = 0
    _next_lag_s: float = 0.0

    def __post_init__(self) -> None:
        self._host_reports = HostReports(self.application)
        # Driver time runs with the steady clock, whatever happens to the wall clock.
        self._driver_ahead_s = float(self.control.driver_time_s()) - self.steady_clock()

    def driver_time_s(self) -> float:
        """Now, on the clock of the executors' reports."""
        return self.steady_clock() + self._driver_ahead_s

    def take(self, waiting: Waiting) -> list[Report]:
        """The executors' reports since the last call, and the host's own if it is due."""
        with self._lock:
            with collection_paused():
                self._drain()
            reports, self._collected = self._collected, []
            steady_s = self.steady_clock()
            if (self.managed and steady_s >= self._next_lag_s) or self._lost_senders:
                self._next_lag_s = steady_s + LAG_EVERY_S
                reports.append(self._host_report(self.clock(), waiting))
        return reports

    def collect(self) -> None:
        """Drains the executors' reports now, for what is in them beside the next `take`."""
        with self._lock, collection_paused():
            self._drain()

    def _drain(self) -> None:
        """Drains the executors' reports and keeps them for the next call of `take`."""
        drained = self.control.drain_reports()
        self._lost_senders += [sender_of(self.application, name) for name in drained["lost"]]
        if drained["lost"]:
            self.deaths.executors_lost_s = self.steady_clock()
        for name in drained["lost"]:
            self.machines.pop(name, None)
        jobs = {name: managed.job for name, managed in list(self.managed.items())}
        self.backlogs.observe(drained["reports"])
        for name in drained["lost"]:
            self.backlogs.lose(name)
        self.watchdog.observe(drained, jobs)
        self.overruns.queues.observe(drained["reports"], drained["lost"])
        for sent in drained["reports"]:
            report = report_of(sent, jobs, self.application, self.whole)
            for name in {reader["job"] for reader in sent.get("readers", ())} & jobs.keys():
                managed = self.managed.get(name)
                # Another thread may have cancelled it meanwhile.
                running = None if managed is None else managed.running
                partitions = {} if running is None else running.chain.partitions
                self.lags.observe_read(self.backlogs, name, partitions, sent["time_us"] / 1e6)
            if sent["executor"] not in drained["lost"]:
                self.machines[sent["executor"]] = report.machine_keys[0]
            self._collected.append(report)

    def _host_report(self, now_s: float, waiting: Waiting) -> Report:
        self._sequence += 1
        runs = [(managed, managed.running) for managed in list(self.managed.values())]
        ends = self.monitor.ends
        self.backlogs.observe_ends(ends, self.driver_time_s())
        running_jobs = []
        for managed, running in runs:
            if running is None:
                continue
            job, arrived = managed.job, {}
            for i, source in enumerate(job.sources):
                if managed.base is not None and all(topic in ends for topic in source.topics):
                    end = sum(ends[topic] for topic in source.topics)
                    empty = self.backlogs.without_record(job.id, running.incarnation, source.topics)
                    arrived[source.name] = float(end - managed.base[i] - empty)
            names = [source.name for source in job.sources]
            readers = dict(zip(names, running.chain.readers, strict=True))
            running_jobs.append(
                RunningJob(
                    job,
                    managed.allocation,
                    running.incarnation,
                    arrived,
                    readers,
                    waiting(job),
                )
            )
        lost, self._lost_senders = self._lost_senders, []
        allocations = [running_job.allocation for running_job in running_jobs]
        placed = routing_tables.placed(self.control, allocations)
        report = self._host_reports.report(
            self._sequence, now_s, running_jobs, lost, placed, self.whole
        )
        for sender in lost:
            self.whole.lose(sender)
        return report
