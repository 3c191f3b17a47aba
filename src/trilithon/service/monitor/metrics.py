"""Makes the text of /metrics from the facts of the last round, by Prometheus' conventions.

A measure that is missing has no sample: a 0 would be a lie. Who is not the cluster's administrator
gets the samples of their own tenants.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)

import trilithon
from trilithon.service.access.roles import Caller
from trilithon.service.monitor.facts import JobFacts, RoundFacts

if TYPE_CHECKING:
    from trilithon.service.monitor.monitor import Monitor

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
JOB_LABELS: Final = ("tenant", "job")
# Name, help, and the value of a job; None has no sample.
JOB_GAUGES: Final[tuple[tuple[str, str, Callable[[JobFacts], float | None]], ...]] = (
    ("utility", "Utility of the job in the last window.", lambda job: job.utility),
    (
        "max_utility",
        "The most utility that the job can have: its priority.",
        lambda job: job.max_utility,
    ),
    ("slo_met", "1 if the job meets its intent, 0 if it misses it.", lambda job: _flag(job.met)),
    (
        "hungry",
        "1 if the job misses its intent, and what would help is not to be had.",
        lambda job: _flag(job.hungry),
    ),
    ("ready", "1 if the job runs.", lambda job: float(job.state == "running")),
    ("paused", "1 if its owner paused the job.", lambda job: float(job.desired == "pause")),
    (
        "metrics_missing",
        "1 if the controller holds the job because its metrics are missing.",
        lambda job: float(job.blind),
    ),
    ("slots", "Slots of the job.", lambda job: float(job.slots if job.has_slots else 0)),
    (
        "latency_p95_seconds",
        "95th percentile of the end-to-end latency in the last window.",
        lambda job: None if job.p95_ms is None else job.p95_ms / 1000,
    ),
    ("juice_ratio", "Processed over arrived input, 0 to 1.", lambda job: job.juice),
    ("input_records_per_second", "Records that arrive per second.", lambda job: job.input_per_s),
    ("output_records_per_second", "Records written per second.", lambda job: job.output_per_s),
    ("lag_records", "Records that wait in the sources.", lambda job: job.lag),
)


def exposition(monitor: "Monitor", caller: Caller) -> bytes:
    """The text that Prometheus scrapes, of what a caller may see."""
    registry = CollectorRegistry()
    registry.register(_Collector(monitor, caller))
    text = generate_latest(registry)
    return text + generate_latest(monitor.tally.registry) if caller.cluster_admin else text


class _Collector:
    def __init__(self, monitor: "Monitor", caller: Caller) -> None:
        self._monitor, self._caller = monitor, caller

    def collect(self) -> Iterator[Metric]:
        facts = self._monitor.last
        yield from _jobs([job for job in facts.jobs.values() if self._caller.sees(job.tenant)])
        yield from self._tenants(facts)
        if self._caller.cluster_admin:
            yield from self._cluster(facts)
            yield from self._counters()

    def _tenants(self, facts: RoundFacts) -> Iterator[Metric]:
        used: Counter[str] = Counter()
        for job in facts.jobs.values():
            used[job.tenant] += job.slots if job.has_slots else 0
        tenants = [t for t in sorted(used.keys() | facts.quotas.keys()) if self._caller.sees(t)]
        slots = GaugeMetricFamily(
            "trilithon_tenant_slots_used", "Slots of a tenant's jobs.", labels=("tenant",)
        )
        quota = GaugeMetricFamily(
            "trilithon_tenant_slots_quota", "Slots that a tenant may have.", labels=("tenant",)
        )
        charged = CounterMetricFamily(
            "trilithon_tenant_slot_seconds",
            "Slots times seconds that a tenant has used since the daemon started.",
            labels=("tenant",),
        )
        for tenant in tenants:
            slots.add_metric((tenant,), used[tenant])
            charged.add_metric((tenant,), self._monitor.tally.slot_seconds.get(tenant, 0.0))
            if tenant in facts.quotas:
                quota.add_metric((tenant,), facts.quotas[tenant])
        yield from (slots, quota, charged)

    def _cluster(self, facts: RoundFacts) -> Iterator[Metric]:
        info = {"version": trilithon.__version__, "policy": facts.policy}
        yield InfoMetricFamily("trilithon_build", "Version and policy of the daemon.", info)
        yield _gauge(
            "last_round_timestamp_seconds", "When the last round was completed.", facts.time_s
        )
        yield _gauge(
            "engine_reachable",
            "1 if the controller reaches the engine.",
            float(not facts.blind and facts.number > 0),
        )
        yield _gauge("slots", "Slots of the cluster.", facts.slots)
        yield _gauge("slots_used", "Slots of all jobs.", facts.slots_used)
        yield _gauge("machines", "Machines of the cluster.", len(facts.machines))
        instances = GaugeMetricFamily(
            "trilithon_machine_instances", "Instances on a machine.", labels=("machine",)
        )
        for machine in facts.machines:
            instances.add_metric((machine.machine,), machine.instances)
        jobs = GaugeMetricFamily("trilithon_jobs", "Jobs by their state.", labels=("state",))
        for state, count in sorted(Counter(job.state for job in facts.jobs.values()).items()):
            jobs.add_metric((state,), count)
        alerts = GaugeMetricFamily(
            "trilithon_alerts", "Alerts whose cause lasts.", labels=("code", "severity")
        )
        active = Counter((a.code, a.severity.value) for a in self._monitor.alerts.active())
        for (code, severity), count in sorted(active.items()):
            alerts.add_metric((code, severity), count)
        clients = _gauge("event_stream_clients", "Open event streams.", self._monitor.hub.clients)
        yield from (instances, jobs, alerts, clients)

    def _counters(self) -> Iterator[Metric]:
        tally, monitor = self._monitor.tally, self._monitor
        for name, text, value in (
            ("rounds", "Rounds that the controller completed.", tally.rounds),
            ("round_failures", "Rounds that ended with an error.", tally.round_failures),
            ("blind_rounds", "Rounds in which the engine did not answer.", tally.blind_rounds),
            (
                "event_stream_clients_dropped",
                "Clients that were dropped because they did not read.",
                monitor.hub.dropped,
            ),
            ("webhook_failures", "Alerts that no webhook took.", monitor.webhooks.failures),
        ):
            yield CounterMetricFamily(f"trilithon_{name}", text, value)
        decisions = CounterMetricFamily(
            "trilithon_decisions", "Decisions of policies.", labels=("policy", "reason")
        )
        for key, count in sorted(tally.decisions.items()):
            decisions.add_metric(key, count)
        actions = CounterMetricFamily(
            "trilithon_actions", "Actions of the engine by their outcome.", labels=("status",)
        )
        for status, count in sorted(tally.actions.items()):
            actions.add_metric((status,), count)
        yield from (decisions, actions)


def _jobs(jobs: Iterable[JobFacts]) -> Iterator[Metric]:
    families = [
        (GaugeMetricFamily(f"trilithon_job_{name}", text, labels=JOB_LABELS), value_of)
        for name, text, value_of in JOB_GAUGES
    ]
    for job in jobs:
        labels = (job.tenant, job.job.partition("/")[2])
        for family, value_of in families:
            if (value := value_of(job)) is not None:
                family.add_metric(labels, value)
    return (family for family, _ in families)


def _gauge(name: str, text: str, value: float | None) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"trilithon_{name}", text, value)


def _flag(value: bool | None) -> float | None:
    return None if value is None else float(value)
