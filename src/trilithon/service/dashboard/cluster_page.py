"""Builds the page of the cluster: who misses which intent, what that costs, and why."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from trilithon.contract.figures import constraint_figures
from trilithon.control.state import JobRecord
from trilithon.engines.composite import ApplicationStatus
from trilithon.measures.constraints import constraint_key
from trilithon.policies.scene import Machine
from trilithon.service.dashboard.ledger import LedgerEntry
from trilithon.service.dashboard.numbers import milliseconds, value_of
from trilithon.service.dashboard.reading import Reading
from trilithon.service.dashboard.why import Why
from trilithon.service.job_order import by_lost_utility
from trilithon.service.monitor.alerts import ActiveAlert
from trilithon.service.visibility import sees_job
from trilithon.spec.durations import format_duration

ALERTS = 8


@dataclass(frozen=True, slots=True)
class ThresholdLine:
    """A threshold or constraint of an intent, what was measured, and whether it is met."""

    key: str
    text: str
    value: float | None
    shown: str
    limit: float
    met: bool | None


@dataclass(frozen=True, slots=True)
class JobLine:
    job: str
    tenant: str
    name: str
    state: str
    mode: str
    thresholds: tuple[ThresholdLine, ...]
    met: bool | None
    utility: float | None
    max_utility: float
    lost: float | None
    lost_hour: float | None
    slots: int
    why: Why | None = None

    @property
    def order(self) -> tuple[float, float, str]:
        return by_lost_utility(self.job, self.state, self.lost, self.max_utility)


@dataclass(frozen=True, slots=True)
class TenantLine:
    tenant: str
    jobs: int
    missed: int
    utility: float | None
    max_utility: float
    lost: float | None
    lost_hour: float | None
    slots: int
    quota: int | None


@dataclass(frozen=True, slots=True)
class MachineLine:
    name: str
    load: float | None
    cores: float | None
    slots: int | None
    instances: int
    jobs: int
    memory: float | None

    @property
    def share(self) -> float | None:
        """Load per core."""
        return None if self.load is None or not self.cores else self.load / self.cores


@dataclass(frozen=True, slots=True)
class ClusterPage:
    """`shown` are the jobs that lose the most, each with the reason why the system acts or not;
    `busiest` are the machines with the highest load.
    """

    jobs: tuple[JobLine, ...]
    shown: tuple[JobLine, ...]
    tenants: tuple[TenantLine, ...]
    machines: int
    busiest: tuple[MachineLine, ...]
    applications: tuple[ApplicationStatus, ...]
    entries: tuple[LedgerEntry, ...]
    alerts: tuple[ActiveAlert, ...]
    utility: float | None
    max_utility: float
    lost_hour: float
    missed: int
    met: int
    unknown: int
    slots_used: int
    slots: int | None

    @property
    def lost(self) -> float | None:
        known = [job.lost for job in self.jobs if job.lost is not None]
        return sum(known) if known else None


def cluster_page(reading: Reading, most: int | None) -> ClusterPage:
    """The page of the cluster, with at most so many jobs and machines."""
    lost_hours = reading.lost_utility_hours()
    jobs = sorted(
        (job_line(reading, name, record, lost_hours) for name, record in reading.records.items()),
        key=lambda line: line.order,
    )
    known = [job.utility for job in jobs if job.utility is not None]
    machines = sorted(map(_machine, reading.machines), key=lambda line: -(line.share or 0.0))
    return ClusterPage(
        jobs=tuple(jobs),
        shown=tuple(replace(job, why=reading.why(job.job)) for job in jobs[:most]),
        tenants=_tenants(jobs, reading),
        machines=len(machines),
        busiest=tuple(machines[:most]),
        applications=tuple(reading.daemon.applications()),
        entries=tuple(reading.entries),
        alerts=tuple(_alerts(reading)),
        utility=sum(known) if known else None,
        max_utility=sum(job.max_utility for job in jobs),
        lost_hour=sum(job.lost_hour or 0.0 for job in jobs),
        missed=sum(job.met is False for job in jobs),
        met=sum(job.met is True for job in jobs),
        unknown=sum(job.met is None for job in jobs),
        slots_used=reading.slots_used if reading.whole else sum(job.slots for job in jobs),
        slots=reading.slots if reading.whole else None,
    )


def job_line(
    reading: Reading, name: str, record: JobRecord, lost_hours: Mapping[str, float]
) -> JobLine:
    facts = reading.facts[name]
    return JobLine(
        job=name,
        tenant=record.job.tenant,
        name=record.job.name,
        state=facts.state,
        mode=record.mode.value,
        thresholds=(*threshold_lines(reading, name), *constraint_lines(reading, name)),
        met=facts.met,
        utility=facts.utility,
        max_utility=facts.max_utility,
        lost=facts.lost_utility,
        lost_hour=lost_hours.get(name),
        slots=record.wanted.instances if record.running else 0,
    )


def threshold_lines(reading: Reading, job: str) -> tuple[ThresholdLine, ...]:
    values = reading.values(job)
    return tuple(
        ThresholdLine(
            key=threshold.key,
            text=str(threshold),
            value=values.get(threshold.key),
            shown=value_of(threshold.key, values.get(threshold.key)),
            limit=threshold.value,
            met=threshold.met(values.get(threshold.key)),
        )
        for threshold in reading.record(job).job.intent.thresholds
    )


def constraint_lines(reading: Reading, job: str) -> Iterator[ThresholdLine]:
    """The constraints of a job, by the same form. Of a stopped job nothing is measured."""
    row, assessment = reading.row(job), reading.assessment
    figures = []
    if assessment is not None and row is not None and reading.measured(job):
        figures = constraint_figures(assessment, row)
    for number, constraint in enumerate(reading.record(job).job.intent.constraints):
        figure = figures[number] if number < len(figures) else {"mean_ms": None, "met": None}
        path, over = ", ".join(constraint.steps), format_duration(constraint.over_s)
        yield ThresholdLine(
            key=constraint_key(number),
            text=f"mean of {path} ≤ {milliseconds(constraint.mean_latency_ms)} over {over}",
            value=figure["mean_ms"],
            shown=milliseconds(figure["mean_ms"]),
            limit=constraint.mean_latency_ms,
            met=figure["met"],
        )


def _tenants(jobs: Iterable[JobLine], reading: Reading) -> tuple[TenantLine, ...]:
    by_tenant: dict[str, list[JobLine]] = {}
    for job in jobs:
        by_tenant.setdefault(job.tenant, []).append(job)
    quotas = reading.daemon.controller.rules.quotas
    lines = [
        TenantLine(
            tenant=tenant,
            jobs=len(own),
            missed=sum(job.met is False for job in own),
            utility=_sum(job.utility for job in own),
            max_utility=sum(job.max_utility for job in own),
            lost=_sum(job.lost for job in own),
            lost_hour=_sum(job.lost_hour for job in own),
            slots=sum(job.slots for job in own),
            quota=quotas.get(tenant),
        )
        for tenant, own in by_tenant.items()
    ]
    return tuple(sorted(lines, key=lambda line: (-(line.lost or 0.0), line.tenant)))


def _sum(values: Iterable[float | None]) -> float | None:
    """The sum of what is known; None if nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _machine(machine: Machine) -> MachineLine:
    used, memory = machine.memory_used_bytes, machine.memory_bytes
    return MachineLine(
        name=machine.name,
        load=machine.load,
        cores=machine.cores,
        slots=machine.slots,
        instances=len(machine.instances),
        jobs=len({job for job, _, _ in machine.instances}),
        memory=None if used is None or not memory else used / memory,
    )


def _alerts(reading: Reading) -> list[ActiveAlert]:
    """Those whose cause lasts, then the latest that have ended or that a policy raised."""
    alerts = reading.daemon.monitor.alerts
    seen = [*alerts.active(), *alerts.recent()[::-1]]
    shown = [alert for alert in seen if sees_job(reading.caller, alert.job)][:ALERTS]
    return [replace(alert, message=reading.redact(alert.message)) for alert in shown]
