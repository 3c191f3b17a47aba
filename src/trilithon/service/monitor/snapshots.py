"""Makes the snapshot of a round, for `/snapshot` and for event streams: what a caller sees of it.

Each job is made into text once per round, whoever may see it: callers share the parts of tenants.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trilithon.service.access.roles import Caller
from trilithon.service.monitor.facts import JobFacts, RoundFacts
from trilithon.service.visibility import BLIND, visible_problem


@dataclass(frozen=True)
class _TenantPart:
    """The jobs of a tenant in a round, and their totals."""

    jobs: tuple[JobFacts, ...]

    @cached_property
    def text(self) -> str:
        return ", ".join(_encoded(job_data(job)) for job in self.jobs)

    @cached_property
    def utility(self) -> float:
        return sum(job.utility for job in self.jobs if job.utility is not None)

    @cached_property
    def max_utility(self) -> float:
        return sum(job.max_utility for job in self.jobs if job.utility is not None)

    @cached_property
    def slots_used(self) -> int:
        return sum(job.slots for job in self.jobs if job.has_slots)


class RoundSnapshot:
    """A round as callers see it: their own jobs, by tenant, and totals of them."""

    def __init__(self, facts: RoundFacts) -> None:
        self._facts = facts
        by_tenant: dict[str, list[JobFacts]] = {}
        for job in facts.jobs.values():
            by_tenant.setdefault(job.tenant, []).append(job)
        self._parts = {tenant: _TenantPart(tuple(jobs)) for tenant, jobs in by_tenant.items()}

    def data(self, caller: Caller) -> dict[str, Any]:
        jobs = [job_data(job) for part in self._seen(caller) for job in part.jobs]
        return {**self._head(caller), "jobs": jobs}

    def text(self, caller: Caller) -> str:
        """The same as JSON, without making the jobs of a tenant twice."""
        jobs = ", ".join(part.text for part in self._seen(caller))
        return f'{_encoded(self._head(caller))[:-1]}, "jobs": [{jobs}]}}'

    def _seen(self, caller: Caller) -> Iterator[_TenantPart]:
        return (part for tenant, part in self._parts.items() if caller.sees(tenant))

    def _head(self, caller: Caller) -> dict[str, Any]:
        parts, facts = list(self._seen(caller)), self._facts
        return {
            "round": facts.number,
            "time_s": facts.time_s,
            "problem": visible_problem(facts.blind, BLIND, caller),
            "utility": sum(part.utility for part in parts),
            "max_utility": sum(part.max_utility for part in parts),
            "slots": facts.slots,
            "slots_used": sum(part.slots_used for part in parts),
        }


def job_data(job: JobFacts) -> dict[str, Any]:
    """The numbers of a job, in short."""
    return {
        "job": job.job,
        "tenant": job.tenant,
        "state": job.state,
        "mode": job.mode.value,
        "priority": job.priority,
        "slots": job.slots,
        "utility": job.utility,
        "max_utility": job.max_utility,
        "lost_utility": job.lost_utility,
        "met": job.met,
        "p95_ms": job.p95_ms,
        "juice": job.juice,
        "input_per_s": job.input_per_s,
        "output_per_s": job.output_per_s,
        "lag": job.lag,
        "in_flight": job.in_flight,
        "hold_reason": job.hold_reason,
        "hungry": job.hungry,
        "problem": job.problem,
    }


def _encoded(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, allow_nan=False)
