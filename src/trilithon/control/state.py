"""Owns what the controller knows of each job, in memory: the journal's present, read once at the start."""

import json
from dataclasses import dataclass, field
from functools import cached_property

from trilithon.contract import wire
from trilithon.control.changes import running_form
from trilithon.control.journal import Journal
from trilithon.control.rows import DesiredState, SpecRow, SpecStatus, spec_of
from trilithon.model.allocation import Allocation, initial
from trilithon.model.capability import Ability
from trilithon.model.job import Job
from trilithon.policies.policy import State
from trilithon.policies.scene import Mode, Span
from trilithon.recording.snapshots import job_from_json


@dataclass(frozen=True)
class Version:
    """One generation of a job's spec."""

    generation: int
    job: Job
    checkpoint: str
    accepted_s: float
    standing: SpecStatus

    @cached_property
    def form(self) -> Job:
        return running_form(self.job)

    @cached_property
    def spans(self) -> dict[str, Span]:
        return {o.name: Span(o.parallelism.min, o.parallelism.max) for o in self.job.operators}

    @cached_property
    def fixed(self) -> frozenset[str]:
        """Operators that must not be changed, by the owner's wish; an engine may tell of others."""
        return frozenset(self.job.bounds.fixed)

    @classmethod
    def of(cls, row: SpecRow) -> "Version":
        job = job_from_json(row.body)
        return cls(row.generation, job, row.checkpoint, row.accepted_s, row.standing)


@dataclass
class JobRecord:
    """A job that was accepted.

    `wanted` is what the engine is to have, `accepted` what it is known to have. They differ while an
    action is under way, or after one whose outcome is unknown.
    """

    version: Version
    last_spec: int
    wish: DesiredState
    mode: Mode
    accepted_s: float
    wanted: Allocation
    last_generation: int
    accepted: Allocation | None = None
    changed_s: float | None = None
    gap_s: dict[Ability, tuple[float, int]] = field(default_factory=dict)
    # Of this daemon's life only.
    running: bool = False
    started_s: float | None = None
    healthy_since_s: float | None = None
    fresh_since_s: float | None = None
    health: str = ""
    problem: str = ""
    tries: int = 0
    try_at_s: float = 0.0
    refusals: int = 0
    refused_until_s: float = 0.0

    @property
    def job(self) -> Job:
        return self.version.job

    @property
    def in_flight(self) -> bool:
        return self.accepted is None or self.accepted.generation != self.wanted.generation

    def refused(self, now_s: float, wait_s: float) -> None:
        """The engine did not take a change: the next is tried later, and later each time."""
        self.refusals += 1
        self.refused_until_s = now_s + min(300.0, wait_s * 2 ** (self.refusals - 1))

    def next_generation(self) -> int:
        self.last_generation += 1
        return self.last_generation


@dataclass
class ControllerState:
    """All jobs by name, the last round, and what the policy remembers."""

    jobs: dict[str, JobRecord] = field(default_factory=dict)
    round: int = 0
    policy: str = ""
    state: State = field(default_factory=dict)


def load(journal: Journal) -> ControllerState:
    """The present, from the journal."""
    db = journal.database
    books = ControllerState()
    if (last := db.one("SELECT * FROM round")) is not None:
        books.round, books.policy = last["number"], last["policy"]
        books.state = json.loads(last["state"])
    costs: dict[str, dict[Ability, tuple[float, int]]] = {}
    for row in db.all("SELECT * FROM cost"):
        costs.setdefault(row["job"], {})[Ability(row["ability"])] = (row["gap_s"], row["times"])
    for row in db.all("SELECT * FROM job WHERE gone_s IS NULL ORDER BY accepted_s, id"):
        record = _record_of(journal, row["id"])
        record.wish, record.mode = DesiredState(row["wish"]), Mode(row["mode"])
        record.accepted_s, record.changed_s = row["accepted_s"], row["changed_s"]
        record.gap_s = costs.get(row["id"], {})
        books.jobs[row["id"]] = record
    return books


def last_good(journal: Journal, job: str, before: int) -> Version | None:
    """The latest version before this one under which the job was healthy."""
    found = journal.database.one(
        "SELECT * FROM spec WHERE job = ? AND standing = 'good' AND generation < ? "
        "ORDER BY generation DESC LIMIT 1",
        job, before,
    )  # fmt: skip
    return None if found is None else Version.of(spec_of(found))


def last_allocation(journal: Journal, job: str, spec: int) -> Allocation | None:
    """The latest allocation that a job had under a version."""
    found = journal.database.one(
        "SELECT body FROM allocation WHERE job = ? AND spec = ? AND standing != 'refused' "
        "ORDER BY generation DESC LIMIT 1",
        job, spec,
    )  # fmt: skip
    return None if found is None else wire.allocation_from_json(json.loads(found["body"]))


def last_numbers(journal: Journal, job: str) -> tuple[int, int]:
    """The highest generations that a job ever had: of specs and of allocations. None comes twice."""
    spec = journal.database.one("SELECT max(generation) AS n FROM spec WHERE job = ?", job)
    allocation = journal.database.one(
        "SELECT max(generation) AS n FROM allocation WHERE job = ?", job
    )
    return int((spec and spec["n"]) or 0), int((allocation and allocation["n"]) or 0)


def _record_of(journal: Journal, job: str) -> JobRecord:
    row = journal.database.one(
        "SELECT * FROM spec WHERE job = ? AND standing IN ('wanted', 'good') "
        "ORDER BY generation DESC LIMIT 1",
        job,
    )
    assert row is not None  # noqa: S101 - a job is accepted together with its spec
    version = Version.of(spec_of(row))
    wanted = last_allocation(journal, job, version.generation) or _before(journal, version.job)
    last_spec, last_generation = last_numbers(journal, job)
    return JobRecord(
        version=version,
        last_spec=last_spec,
        wish=DesiredState.RUN,
        mode=Mode.AUTO,
        accepted_s=version.accepted_s,
        wanted=wanted,
        last_generation=last_generation,
        # What the engine had when the daemon ended it has still, unless it shows otherwise.
        accepted=wanted if _was_accepted(journal, wanted) else None,
    )


def _before(journal: Journal, job: Job) -> Allocation:
    """What a job goes on with whose version came with an allocation that the engine did not take: the last one that
    it did, if that fits.
    """
    found = journal.database.one(
        "SELECT body FROM allocation WHERE job = ? AND standing != 'refused' "
        "ORDER BY generation DESC LIMIT 1",
        job.id,
    )
    if found is not None:
        before = wire.allocation_from_json(json.loads(found["body"]))
        if set(before.parallelism) == {operator.name for operator in job.operators}:
            return before
    return initial(job)


def _was_accepted(journal: Journal, allocation: Allocation) -> bool:
    found = journal.database.one(
        "SELECT standing FROM allocation WHERE job = ? AND generation = ?",
        allocation.job, allocation.generation,
    )  # fmt: skip
    return found is not None and found["standing"] == SpecStatus.ACCEPTED
