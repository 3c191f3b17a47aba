"""Cuts answers about the whole cluster to what a caller may see: nothing of another tenant."""

import re
from collections.abc import Callable, Collection
from functools import cached_property
from typing import Any, Final

from trilithon.control.journal import Journal
from trilithon.control.journal.rows import DecisionRow
from trilithon.model.hosts import application_of
from trilithon.model.job import tenant_of
from trilithon.model.validation import NAME
from trilithon.service.access.roles import Caller

ANOTHERS: Final = "another tenant's job"
# The status of a daemon whose last round failed, or did not reach the engine.
BLIND: Final = "blind"
_PROBLEMS: Final = {
    "starting": "The engine is starting.",
    BLIND: "The controller cannot observe the jobs at present; administrators see why.",
    "degraded": "Some jobs do not run.",
}
# A job in a text; names may follow each other, as in a path: what is behind `/` is looked at only.
_JOB: Final = re.compile(rf"({NAME.pattern})/(?=({NAME.pattern}))")


class Redaction:
    """Takes the names of jobs that a caller does not see out of sentences: a decision about one
    job may say whose slots it took. `known` reads the names of all jobs, deleted ones included:
    only if a text seems to have one, since most have none.
    """

    def __init__(self, caller: Caller, known: Callable[[], Collection[str]]) -> None:
        self._caller, self._read = caller, known

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self._read())

    def text(self, text: str) -> str:
        if self._caller.cluster_admin:
            return text
        parts, end = [], 0
        for pair in _JOB.finditer(text):
            hidden = not self._caller.sees(pair[1]) and f"{pair[1]}/{pair[2]}" in self._known
            if hidden and pair.start() >= end:
                parts += [text[end : pair.start()], ANOTHERS]
                end = pair.end(2)
        return "".join([*parts, text[end:]])

    def data(self, data: Any) -> Any:
        """The same of everything in an answer, keys included."""
        if self._caller.cluster_admin:
            return data
        if isinstance(data, str):
            return self.text(data)
        if isinstance(data, dict):
            return {self.data(key): self.data(value) for key, value in data.items()}
        if isinstance(data, list | tuple):
            return [self.data(value) for value in data]
        return data


def sees_job(caller: Caller, job: str | None) -> bool:
    """Whether a caller may see what is about a job; what is about no job is about all of them."""
    return caller.cluster_admin if job is None else caller.sees(tenant_of(job))


def visible_problem(problem: str, status: str, caller: Caller) -> str:
    """The daemon's problem names jobs, files or addresses, or is the text of an exception: only the
    cluster's administrator may read it. Others read a sentence about the daemon's status.
    """
    if not problem or caller.cluster_admin:
        return problem
    return _PROBLEMS.get(status, _PROBLEMS[BLIND])


def visible_health(health: dict[str, Any], caller: Caller) -> dict[str, Any]:
    problem = visible_problem(health["problem"], health["status"], caller)
    return {**health, "problem": problem}


def visible_cluster(cluster: dict[str, Any], caller: Caller) -> dict[str, Any]:
    """Totals are everybody's; tenants, applications with their machines, and what runs on a
    machine, are those of the caller.
    """
    if caller.cluster_admin:
        return cluster
    applications = _visible_applications(cluster["applications"], caller)
    # A machine of another tenant's application has that tenant's name.
    named = {"", *(application["application"] for application in applications)}
    return {
        **visible_health(cluster, caller),
        "policy_status": None,
        "applications": applications,
        "machines": [name for name in cluster["machines"] if application_of(name) in named],
        "tenants": [row for row in cluster["tenants"] if caller.sees(row["tenant"])],
        "machine_details": [
            {**machine, "instances": [i for i in machine["instances"] if sees_job(caller, i)]}
            for machine in cluster["machine_details"]
            if application_of(machine["name"]) in named
        ],
    }


def _visible_applications(
    applications: list[dict[str, Any]], caller: Caller
) -> list[dict[str, Any]]:
    """Those that run a job of the caller, with no other's jobs."""
    own = [{**a, "jobs": [j for j in a["jobs"] if sees_job(caller, j)]} for a in applications]
    return [application for application in own if application["jobs"]]


def visible_rows(
    journal: Journal, caller: Caller, limit: int, since_s: float = 0.0
) -> list[DecisionRow]:
    """The latest decisions that a caller may see, the oldest first."""
    if caller.cluster_admin:
        return list(journal.decisions(None, limit, since_s))
    rows = [
        row
        for job in journal.jobs()
        if sees_job(caller, job)
        for row in journal.decisions(job, limit, since_s)
    ]
    return sorted(rows, key=lambda row: (row.time_s, row.round, row.id))[-limit:]
