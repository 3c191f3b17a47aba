"""Reads the journal: the present for a controller that starts, and the past for people."""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trilithon.contract import wire
from trilithon.contract.change_wire import proposal_from_json
from trilithon.control.journal.database import Database
from trilithon.control.journal.rows import (
    ActionRow,
    DecisionRow,
    EventRow,
    JobRow,
    RequestRow,
    RoundRow,
    SpecRow,
    SpecStatus,
    action_of,
    decision_of,
    event_of,
    spec_of,
)
from trilithon.model.action import Outcome, Status
from trilithon.model.allocation import Allocation
from trilithon.model.capability import Ability
from trilithon.model.change import ALERT
from trilithon.policies.feedback import Clip, Feedback
from trilithon.policies.requests import ScalingKind, ScalingRequest


class JournalReads:
    """All queries on a journal."""

    def __init__(self, database: Database) -> None:
        self.database = database

    # The present.

    def last_round(self) -> RoundRow | None:
        row = self.database.one("SELECT number, time_s, policy, state FROM round")
        return (
            None
            if row is None
            else RoundRow(row["number"], row["time_s"], row["policy"], json.loads(row["state"]))
        )

    def present_jobs(self) -> tuple[JobRow, ...]:
        """The jobs that are not deleted, in the order in which they were accepted."""
        rows = self.database.all(
            "SELECT id, wish, mode, accepted_s, changed_s, resumed_s FROM job "
            "WHERE gone_s IS NULL ORDER BY accepted_s, id"
        )
        return tuple(JobRow(**dict(row)) for row in rows)

    def costs(self) -> dict[str, dict[Ability, tuple[float, int]]]:
        """By job and facet, the learned gap and how often it was learned."""
        costs: dict[str, dict[Ability, tuple[float, int]]] = {}
        for row in self.database.all("SELECT * FROM cost"):
            costs.setdefault(row["job"], {})[Ability(row["ability"])] = (row["gap_s"], row["times"])
        return costs

    def current_spec(self, job: str) -> SpecRow:
        """The newest version of a job that has not failed."""
        row = self.database.one(
            "SELECT * FROM spec WHERE job = ? AND standing IN ('wanted', 'good') "
            "ORDER BY generation DESC LIMIT 1",
            job,
        )
        assert row is not None  # noqa: S101 - a job is accepted together with its spec
        return spec_of(row)

    def last_good_spec(self, job: str, before: int) -> SpecRow | None:
        """The newest version before this generation under which the job was healthy."""
        row = self.database.one(
            "SELECT * FROM spec WHERE job = ? AND standing = 'good' AND generation < ? "
            "ORDER BY generation DESC LIMIT 1",
            job,
            before,
        )
        return None if row is None else spec_of(row)

    def last_allocation(self, job: str, spec: int | None = None) -> Allocation | None:
        """The newest allocation of a job that was not refused; of version `spec` if given."""
        row = self.database.one(
            "SELECT body FROM allocation WHERE job = ? AND (? IS NULL OR spec = ?) "
            "AND standing != 'refused' ORDER BY generation DESC LIMIT 1",
            job,
            spec,
            spec,
        )
        return None if row is None else wire.allocation_from_json(json.loads(row["body"]))

    def was_accepted(self, allocation: Allocation) -> bool:
        row = self.database.one(
            "SELECT standing FROM allocation WHERE job = ? AND generation = ?",
            allocation.job,
            allocation.generation,
        )
        return row is not None and row["standing"] == SpecStatus.ACCEPTED

    def last_generations(self, job: str) -> tuple[int, int]:
        """The highest generations that a job ever had, of specs and allocations; never reused."""
        spec = self.database.one("SELECT max(generation) AS n FROM spec WHERE job = ?", job)
        allocation = self.database.one(
            "SELECT max(generation) AS n FROM allocation WHERE job = ?", job
        )
        return int((spec and spec["n"]) or 0), int((allocation and allocation["n"]) or 0)

    def machines_changed_s(self) -> float | None:
        """When machines were last added or removed, or may have been."""
        row = self.database.one(
            "SELECT max(ended_s) AS at_s FROM action "
            "WHERE kind IN ('add_machines', 'remove_machines') AND status IN ('done', 'unknown')"
        )
        return None if row is None else row["at_s"]

    def open_expectations(self) -> Iterator[tuple[str, str | None, Mapping[str, Any]]]:
        """Expectations that were not checked yet, of decisions of which a change was granted."""
        rows = self.database.all(
            "SELECT id, job, expects, granted FROM decision "
            "WHERE expects IS NOT NULL AND came IS NULL"
        )
        for row in rows:
            if any(change.get("change") != ALERT for change in json.loads(row["granted"])):
                yield row["id"], row["job"], json.loads(row["expects"])

    def feedback(self, after_round: int) -> tuple[tuple[Feedback, tuple[str, ...]], ...]:
        """Feedback on the decisions after a round, each with the ids
        of the actions of its outcomes.
        """
        rows = self.database.all(
            "SELECT * FROM decision WHERE round > ? ORDER BY round", after_round
        )
        return tuple(self._feedback(decision_of(row)) for row in rows)

    def _feedback(self, row: DecisionRow) -> tuple[Feedback, tuple[str, ...]]:
        outcomes = {
            # Wanted state that has no outcome yet may be in force: the next round compares.
            action.id: action.outcome or Outcome(Status.UNKNOWN)
            for action in self.actions(row.id)
            if action.outcome is not None or action.kind == "reallocate"
        }
        came = row.came or {}
        feedback = Feedback(
            decision=row.id,
            round=row.round,
            time_s=row.time_s,
            job=row.job,
            # Rows that version 0.1 wrote have actions where later ones have changes.
            granted=tuple(proposal_from_json(c) for c in row.granted if "change" in c),
            clips=tuple(Clip(**clip) for clip in row.clips),
            outcomes=tuple(outcomes.values()),
            measured=came.get("value"),
            met=came.get("kept"),
        )
        return feedback, tuple(outcomes)

    def open_requests(self) -> tuple[ScalingRequest, ...]:
        """What people asked for and no policy has ended, the oldest first."""
        rows = self.database.all("SELECT * FROM request WHERE ended_s IS NULL ORDER BY asked_s, id")
        return tuple(map(_request, rows))

    def requests(self, limit: int) -> tuple[RequestRow, ...]:
        """The latest requests, the oldest first."""
        rows = self.database.all("SELECT * FROM request ORDER BY asked_s DESC, id LIMIT ?", limit)
        return tuple(
            RequestRow(
                _request(row),
                row["ended_s"],
                None if row["done"] is None else bool(row["done"]),
                row["message"] or "",
            )
            for row in reversed(rows)
        )

    # The past.

    def jobs(self) -> tuple[str, ...]:
        """All jobs of the journal, deleted ones included."""
        return tuple(row["id"] for row in self.database.all("SELECT id FROM job ORDER BY id"))

    def specs(self, job: str) -> tuple[SpecRow, ...]:
        rows = self.database.all("SELECT * FROM spec WHERE job = ? ORDER BY generation", job)
        return tuple(map(spec_of, rows))

    def decisions(
        self, job: str | None = None, limit: int = 100, since_s: float = 0.0
    ) -> tuple[DecisionRow, ...]:
        """The latest decisions, the oldest first; of one job if `job` names it."""
        rows = self.database.all(
            "SELECT * FROM decision WHERE (? IS NULL OR job = ?) AND last_s >= ? "
            "ORDER BY time_s DESC, round DESC, id DESC LIMIT ?",
            job,
            job,
            since_s,
            limit,
        )
        return tuple(decision_of(row) for row in reversed(rows))

    def decision(self, id_: str) -> DecisionRow | None:
        row = self.database.one("SELECT * FROM decision WHERE id = ?", id_)
        return None if row is None else decision_of(row)

    def later_decisions(
        self, job: str, since_s: float, words: Sequence[str], limit: int = 100
    ) -> tuple[DecisionRow, ...]:
        """The first decisions about a job from a time on whose reasons have one of these words."""
        like = " OR ".join(["instr(reason, ?)"] * len(words))
        rows = self.database.all(
            f"SELECT * FROM decision WHERE job = ? AND time_s >= ? AND ({like}) "  # noqa: S608
            "ORDER BY time_s, round, id LIMIT ?",
            job,
            since_s,
            *words,
            limit,
        )
        return tuple(map(decision_of, rows))

    def cluster_decisions(self, limit: int = 100) -> tuple[DecisionRow, ...]:
        """The latest decisions about the whole cluster, the oldest first."""
        rows = self.database.all(
            "SELECT * FROM decision WHERE job IS NULL ORDER BY time_s DESC, round DESC, id DESC "
            "LIMIT ?",
            limit,
        )
        return tuple(decision_of(row) for row in reversed(rows))

    def shared_decisions(self, job: str, limit: int = 100) -> tuple[DecisionRow, ...]:
        """The latest decisions about the whole cluster that granted this job a change, the oldest
        first.
        """
        rows = self.database.all(
            "SELECT * FROM decision WHERE job IS NULL AND EXISTS (SELECT 1 FROM "
            "json_each(decision.granted) WHERE json_extract(value, '$.job') = ?) "
            "ORDER BY time_s DESC, round DESC, id DESC LIMIT ?",
            job,
            limit,
        )
        return tuple(decision_of(row) for row in reversed(rows))

    def actions(self, decision: str) -> tuple[ActionRow, ...]:
        """The actions of a decision, in the order in which they were done."""
        rows = self.database.all("SELECT * FROM action WHERE decision = ?", decision)
        return tuple(sorted(map(action_of, rows), key=lambda action: action.order))

    def open_actions(self, job: str | None = None) -> tuple[ActionRow, ...]:
        """The actions that have not ended; of one job if `job` names it."""
        rows = self.database.all(
            "SELECT * FROM action WHERE ended_s IS NULL AND (? IS NULL OR job = ?)", job, job
        )
        return tuple(map(action_of, rows))

    def open_reallocation(self, allocation: Allocation) -> ActionRow | None:
        """The action for this allocation that has not ended, if a decision wanted it."""
        for action in self.open_actions(allocation.job):
            if action.generation == allocation.generation:
                return action
        return None

    def events(
        self, after: int = 0, limit: int = 500, job: str | None = None
    ) -> tuple[EventRow, ...]:
        rows = self.database.all(
            "SELECT * FROM event WHERE id > ? AND (? IS NULL OR job = ?) ORDER BY id LIMIT ?",
            after,
            job,
            job,
            limit,
        )
        return tuple(map(event_of, rows))

    def last_event(self) -> int:
        row = self.database.one("SELECT max(id) AS id FROM event")
        return int(row["id"] or 0) if row else 0

    def job_events(self, job: str, limit: int) -> tuple[EventRow, ...]:
        """The latest events of a job, the oldest first."""
        rows = self.database.all(
            "SELECT * FROM (SELECT * FROM event WHERE job = ? ORDER BY id DESC LIMIT ?) "
            "ORDER BY id",
            job,
            limit,
        )
        return tuple(map(event_of, rows))

    def job_events_of(self, job: str, kinds: Sequence[str], limit: int) -> tuple[EventRow, ...]:
        """The latest events of a job of these kinds, the oldest first."""
        marks = ", ".join("?" * len(kinds))
        rows = self.database.all(
            f"SELECT * FROM event WHERE job = ? AND kind IN ({marks}) "  # noqa: S608 - marks only
            "ORDER BY id DESC LIMIT ?",
            job,
            *kinds,
            limit,
        )
        return tuple(event_of(row) for row in reversed(rows))

    def series(self, since_s: float) -> Iterator[tuple[float, Mapping[str, Any], bytes]]:
        """The compact series from a time on: the time, the names of the rows, and their numbers."""
        rows = self.database.all(
            "SELECT series.time_s, series.body, layout.body AS names FROM series "
            "JOIN layout ON layout.id = series.layout WHERE time_s >= ? ORDER BY time_s",
            since_s,
        )
        for row in rows:
            yield row["time_s"], json.loads(row["names"]), row["body"]


def _request(row: sqlite3.Row) -> ScalingRequest:
    return ScalingRequest(
        row["id"],
        ScalingKind(row["kind"]),
        row["machines"],
        row["job"],
        row["asked_s"],
        tuple(json.loads(row["machine_names"])),
    )
