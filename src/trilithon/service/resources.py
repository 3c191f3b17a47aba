"""Defines the job as the API shows it: metadata, spec and status with conditions."""

import json
import threading
import time
from typing import Any

from pydantic import BaseModel, Field

from trilithon.control.conditions import next_try
from trilithon.control.explain import clock
from trilithon.control.journal.rows import DesiredState
from trilithon.control.state import JobRecord
from trilithon.model.mode import Mode
from trilithon.service.access.roles import Caller
from trilithon.service.answers.numbers import LatestFigures
from trilithon.service.daemon import Daemon
from trilithon.service.monitor.conditions import ConditionType, Truth
from trilithon.service.monitor.facts import JobFacts


class Metadata(BaseModel):
    """Whose job it is, and which version. `generation` is also the `ETag`, for `If-Match`."""

    tenant: str
    name: str
    id: str = Field(description="tenant/name")
    generation: int
    mode: Mode = Field(description="what the controller may do with the job")
    desired: DesiredState = Field(description="what its owner wants: run, pause or delete")
    accepted_s: float


class ConditionView(BaseModel):
    """One aspect of a job. `since` is when this daemon saw the status change."""

    type: ConditionType
    status: Truth
    reason: str
    message: str
    since_s: float
    since: str


class Numbers(BaseModel):
    """The measures of a job in the last window. What was not measured is null."""

    utility: float | None
    max_utility: float
    lost_utility: float | None
    met: bool | None
    p95_ms: float | None
    juice: float | None
    input_per_s: float | None
    output_per_s: float | None
    lag: float | None


class JobState(BaseModel):
    """What has become of the job."""

    state: str
    standing: str = Field(description="of this version: wanted, good, failed or past")
    conditions: list[ConditionView]
    slots: int
    parallelism: dict[str, int]
    allocation_generation: int
    in_flight: bool
    hold_reason: str = Field(description="why the controller does not change it; empty if it may")
    problem: str
    since_s: float | None
    next_try_s: float | None
    changed_s: float | None
    learned_gap_s: dict[str, float]
    numbers: Numbers


class JobSummary(BaseModel):
    """A job without its spec."""

    metadata: Metadata
    status: JobState


class JobResource(JobSummary):
    """A job. `spec` is the job file; `figures` are those of its operators and constraints."""

    spec: dict[str, Any]
    figures: LatestFigures | None


class JobChange(BaseModel):
    """What a request did to a job, or with `dry_run` what it would do."""

    job: str
    generation: int | None = Field(description="null for a new job that is not accepted yet")
    impact: str = Field(description="none, new, live, restart or anew")
    told: str
    dry_run: bool


def summary(daemon: Daemon, facts: JobFacts, record: JobRecord) -> dict[str, Any]:
    """A job without its spec, as data."""
    condition = record.condition
    return {
        "metadata": {
            "tenant": record.job.tenant,
            "name": record.job.name,
            "id": facts.job,
            "generation": record.version.generation,
            "mode": record.mode.value,
            "desired": record.desired.value,
            "accepted_s": record.accepted_s,
        },
        "status": {
            "state": facts.state,
            "standing": record.version.status.value,
            "conditions": [
                {
                    "type": one.type.value,
                    "status": one.status.value,
                    "reason": one.reason,
                    "message": one.message,
                    "since_s": one.since_s,
                    "since": clock(one.since_s),
                }
                for one in daemon.monitor.conditions_of(facts)
            ],
            "slots": record.wanted.instances,
            "parallelism": dict(record.wanted.parallelism),
            "allocation_generation": record.wanted.generation,
            "in_flight": facts.in_flight,
            "hold_reason": facts.hold_reason,
            "problem": record.problem + (next_try(condition) if record.problem else ""),
            "since_s": None if condition is None else condition.since_s,
            "next_try_s": None if condition is None else condition.next_try_s,
            "changed_s": record.changed_s,
            "learned_gap_s": {ability.value: gap_s for ability, (gap_s, _) in record.gap_s.items()},
            "numbers": {
                "utility": facts.utility,
                "max_utility": facts.max_utility,
                "lost_utility": facts.lost_utility,
                "met": facts.met,
                "p95_ms": facts.p95_ms,
                "juice": facts.juice,
                "input_per_s": facts.input_per_s,
                "output_per_s": facts.output_per_s,
                "lag": facts.lag,
            },
        },
    }


def summaries(daemon: Daemon, caller: Caller) -> list[dict[str, Any]]:
    """All jobs that a caller sees, in the order in which they were accepted."""
    return [
        summary(daemon, daemon.monitor.job_now(name, record), record)
        # A copy: commands may add jobs meanwhile.
        for name, record in list(daemon.controller.state.jobs.items())
        if caller.sees(record.job.tenant)
    ]


def resource(daemon: Daemon, name: str) -> dict[str, Any]:
    """One job with its spec and its figures. It waits for no lock: a reader must not be held up by
    a round or by a command that writes, and a status may be a moment older than its neighbour.
    """
    record = daemon.commands.record(name)
    version = record.version
    data = summary(daemon, daemon.monitor.job_now(name, record), record)
    data["metadata"]["generation"] = version.generation
    return {
        **data,
        "spec": daemon.monitor.spec(name, version),
        "figures": daemon.monitor.figures(name, record),
    }


class JobLists:
    """Lists of jobs as bytes, one for callers with the same rights, for a short while.

    Many clients that ask for the same list cost as much as one. A command makes the lists anew.
    """

    def __init__(self, daemon: Daemon, keep_s: float = 0.5) -> None:
        self._daemon, self._keep_s = daemon, keep_s
        self._lock = threading.Lock()
        self._made: tuple[tuple[int, int], float] = ((-1, -1), 0.0)
        self._bytes: dict[tuple[bool, frozenset[str]], bytes] = {}

    def of(self, caller: Caller) -> bytes:
        rights = (caller.cluster_admin, frozenset(caller.grants))
        with self._lock:
            # By the round whose facts are out: they follow a moment after the round itself.
            version = (self._daemon.monitor.last.number, self._daemon.changes)
            if self._made[0] != version or time.monotonic() - self._made[1] > self._keep_s:
                self._made, self._bytes = (version, time.monotonic()), {}
            if rights not in self._bytes:
                rows = summaries(self._daemon, caller)
                self._bytes[rights] = json.dumps(rows, ensure_ascii=False).encode()
            return self._bytes[rights]
