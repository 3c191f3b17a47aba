"""Writes the journal: what was accepted, wanted, decided and done.

Wanted before done: every action is written before the engine is asked for it. Each method that
writes is one transaction.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from trilithon.contract import wire
from trilithon.contract.change_wire import proposal_to_json
from trilithon.control.encoding import decision_to_json, in_order, kind_of, text
from trilithon.control.guard import Ruling
from trilithon.control.journal.database import Database
from trilithon.control.journal.reads import JournalReads
from trilithon.control.journal.rows import DesiredState, SpecRow, SpecStatus
from trilithon.model.action import Action, Outcome, Reallocate, Status
from trilithon.model.allocation import Allocation
from trilithon.model.capability import Ability
from trilithon.model.change import Alert
from trilithon.model.job import Job
from trilithon.model.mode import Mode
from trilithon.policies.policy import State
from trilithon.policies.requests import ClosedRequest, ScalingRequest
from trilithon.recording.snapshots import job_to_json

FILE: Final = "journal.sqlite"
_SUPERSEDED: Final = Outcome(
    Status.REFUSED, "SUPERSEDED", "Another allocation was wanted before the outcome was known."
)


@dataclass(frozen=True, slots=True)
class PlannedAction:
    """An action to be done for a decision. For wanted state, `spec` is the version of the job that
    it is for, and `facets` are those in which it differs from the current state.
    """

    id: str
    decision: str
    action: Action
    spec: int | None = None
    facets: tuple[Ability, ...] = ()


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The outcome of an action; for wanted state also its new status, unless the outcome is
    unknown.
    """

    planned: PlannedAction
    outcome: Outcome
    status: SpecStatus | None
    ended_s: float
    # When the engine was asked, of actions that may take long.
    began_s: float | None = None

    @property
    def changed(self) -> bool:
        """Whether it changed something, or may have."""
        return self.outcome.status in {Status.DONE, Status.UNCHANGED, Status.UNKNOWN}

    @property
    def sentence(self) -> str:
        outcome = self.outcome
        why = f": {outcome.code} {outcome.message}" if outcome.code or outcome.message else ""
        return f"{type(self.planned.action).__name__} {outcome.status.value}{why}"


class Journal(JournalReads):
    """The journal of one controller, in one file; without a path, in memory until it is closed."""

    def __init__(self, path: Path | None) -> None:
        super().__init__(Database(path))

    def close(self) -> None:
        self.database.close()

    # Commands of owners.

    def accept(
        self,
        job: Job,
        spec: SpecRow,
        allocation: Allocation,
        mode: Mode,
        now_s: float,
        message: str,
    ) -> None:
        """A spec was accepted, with the first allocation under it."""
        with self.database.transaction("accept"):
            self._insert_job(job, mode, now_s)
            self._insert_spec(spec)
            self._insert_allocation(allocation, spec.generation, now_s, SpecStatus.WANTED, None)
            self._event(now_s, "accepted", job.id, message)

    def adopt(
        self,
        job: Job,
        generation: int,
        allocation: Allocation,
        mode: Mode,
        now_s: float,
        checkpoint: str = "",
    ) -> None:
        """A job is taken over that was started without this controller."""
        with self.database.transaction("adopt"):
            self._insert_job(job, mode, now_s)
            self._insert_spec(
                SpecRow(
                    job=job.id,
                    generation=generation,
                    body=job_to_json(job),
                    checkpoint=checkpoint,
                    accepted_s=now_s,
                    status=SpecStatus.GOOD,
                    message="The job was running already.",
                )
            )
            self._insert_allocation(allocation, generation, now_s, SpecStatus.ACCEPTED, None)
            self._event(
                now_s,
                "adopted",
                job.id,
                "The job was running already; the controller takes it over.",
            )

    def wish(self, job: str, wish: DesiredState, now_s: float) -> None:
        with self.database.transaction("wish") as db:
            db.write("UPDATE job SET wish = ? WHERE id = ?", wish.value, job)
            self._event(now_s, "wish", job, f"Its owner set the desired state to {wish.value}.")

    def resume(self, job: str, now_s: float) -> None:
        """The owner of a job that failed wants it started again."""
        with self.database.transaction("wish") as db:
            db.write("UPDATE job SET resumed_s = ? WHERE id = ?", now_s, job)
            self._event(now_s, "resumed", job, "Its owner starts the failed job again.")

    def mode(self, job: str, mode: Mode, now_s: float) -> None:
        with self.database.transaction("mode") as db:
            db.write("UPDATE job SET mode = ? WHERE id = ?", mode.value, job)
            self._event(now_s, "mode", job, f"Its owner set the mode to {mode.value}.")

    def request(self, request: ScalingRequest) -> None:
        """People ask for something of the cluster; a policy carries it out in the next rounds."""
        with self.database.transaction("request") as db:
            kind = request.kind
            db.insert(
                "request",
                id=request.id,
                kind=kind.value,
                machines=request.machines,
                job=request.job,
                asked_s=request.asked_s,
                machine_names=text(request.machine_names),
            )
            for_job = f" for {request.job}" if request.job else ""
            named = ", ".join(request.machine_names)
            wanted = f"of {named}" if named else f"by {request.machines}"
            message = f"{kind.words} {wanted} requested{for_job}: {request.id}"
            self._event(request.asked_s, "requested", request.job, message)

    def gone(self, job: str, now_s: float) -> None:
        """A job was deleted."""
        with self.database.transaction("gone") as db:
            db.write("UPDATE job SET gone_s = ?, changed_s = NULL WHERE id = ?", now_s, job)
            for table in ("spec", "allocation"):
                db.write(f"UPDATE {table} SET standing = 'past' WHERE job = ?", job)  # noqa: S608
            db.write(
                "UPDATE action SET ended_s = ?, status = 'refused', code = 'GONE' "
                "WHERE job = ? AND ended_s IS NULL",
                now_s,
                job,
            )
            db.write("DELETE FROM cost WHERE job = ?", job)
            self._event(now_s, "gone", job, "The job was deleted.")

    # What became of specs and allocations.

    def spec_stands(
        self, job: str, generation: int, standing: SpecStatus, message: str, now_s: float
    ) -> None:
        with self.database.transaction("spec") as db:
            db.write(
                "UPDATE spec SET standing = ?, told = ? WHERE job = ? AND generation = ?",
                standing.value,
                message,
                job,
                generation,
            )
            self._event(now_s, f"spec_{standing.value}", job, message)

    def roll_back(
        self, job: str, failed: int, message: str, good: int, allocation: Allocation, now_s: float
    ) -> None:
        """A spec failed: the last good one is wanted again, with an allocation of its own."""
        with self.database.transaction("spec") as db:
            db.write(
                "UPDATE spec SET standing = 'failed', told = ? WHERE job = ? AND generation = ?",
                message,
                job,
                failed,
            )
            self._insert_allocation(allocation, good, now_s, SpecStatus.WANTED, None)
            event_text = f"Spec generation {failed} failed and was rolled back to {good}: {message}"
            self._event(now_s, "rolled_back", job, event_text)

    def settle(
        self,
        allocation: Allocation,
        spec: int,
        standing: SpecStatus,
        now_s: float,
        message: str = "",
        outcome: Outcome | None = None,
    ) -> list[tuple[str, str, Outcome]]:
        """The engine has, or refused, wanted state: the open action for it has ended, and those for
        other allocations of the job are superseded. Returns the decision, the id and the outcome of
        each action that ended.
        """
        done = Outcome(Status.DONE if standing is SpecStatus.ACCEPTED else Status.REFUSED)
        closed: list[tuple[str, str, Outcome]] = []
        with self.database.transaction("settle") as db:
            updated = db.write(
                "UPDATE allocation SET standing = ?, body = ? WHERE job = ? AND generation = ?",
                standing.value,
                text(wire.allocation_to_json(allocation)),
                allocation.job,
                allocation.generation,
            )
            if not updated:
                self._insert_allocation(allocation, spec, now_s, standing, None)
            if standing is SpecStatus.ACCEPTED:
                db.write("UPDATE job SET changed_s = ? WHERE id = ?", now_s, allocation.job)
            for action in self.open_actions(allocation.job):
                if action.kind != "reallocate":
                    continue
                asked = action.generation == allocation.generation
                result = (outcome or done) if asked else _SUPERSEDED
                db.write(
                    "UPDATE action SET ended_s = ?, started_s = coalesce(started_s, ?), "
                    "status = ?, code = ?, message = ? WHERE id = ?",
                    now_s,
                    now_s,
                    result.status.value,
                    result.code,
                    result.message or message,
                    action.id,
                )
                closed.append((action.decision or "", action.id, result))
            if message:
                self._event(now_s, f"allocation_{standing.value}", allocation.job, message)
        return closed

    def want(self, allocation: Allocation, spec: int, now_s: float) -> None:
        """An allocation is wanted without a decision."""
        with self.database.transaction("settle"):
            self._insert_allocation(allocation, spec, now_s, SpecStatus.WANTED, None)

    def event(self, kind: str, job: str | None, message: str, now_s: float) -> None:
        with self.database.transaction("wish"):
            self._event(now_s, kind, job, message)

    def add_events(self, events: Sequence[tuple[str, str | None, str]], now_s: float) -> None:
        """Several events at once: the kind, the job and the message of each."""
        with self.database.transaction("wish"):
            for kind, job, message in events:
                self._event(now_s, kind, job, message)

    # Rounds, decisions and actions.

    def round(
        self,
        number: int,
        policy: str,
        state: State,
        rulings: Sequence[Ruling],
        planned: Sequence[PlannedAction],
        now_s: float,
        repeated: Sequence[str] = (),
        closed: Sequence[ClosedRequest] = (),
    ) -> None:
        """Writes what a round decided, what was granted, and the planned actions, before any is
        done.

        `repeated` are the ids of earlier decisions that were made again with the same answer,
        `closed` the requests of people that have ended.
        """
        with self.database.transaction("round") as db:
            db.insert(
                "round", True, only=1, number=number, time_s=now_s, policy=policy, state=text(state)
            )
            for ruling in rulings:
                self._decision(number, policy, ruling, now_s)
            again = "UPDATE decision SET times = times + 1, last_s = ? WHERE id = ?"
            for id_ in repeated:
                db.write(again, now_s, id_)
            for action in planned:
                self._insert_action(action, now_s)
            for request in closed:
                db.write(
                    "UPDATE request SET ended_s = ?, done = ?, message = ? WHERE id = ?",
                    now_s,
                    int(request.done),
                    request.message,
                    request.id,
                )
                self._event(now_s, "request_ended", None, f"{request.id}: {request.message}")

    def add_action(self, planned: PlannedAction, now_s: float) -> None:
        """One more action for a decision: the rest of an action of which the engine refused a
        facet.
        """
        with self.database.transaction("round"):
            self._insert_action(planned, now_s)

    def start(self, action: str, now_s: float) -> None:
        """A one-shot action begins. If it has no end after a crash, its outcome is unknown."""
        with self.database.transaction("start") as db:
            db.write("UPDATE action SET started_s = ? WHERE id = ?", now_s, action)

    def end(self, done: Sequence[ActionResult]) -> None:
        """Writes the outcomes of actions; for wanted state also its new status."""
        with self.database.transaction("end") as db:
            for result in done:
                action, outcome, at_s = result.planned.action, result.outcome, result.ended_s
                job = getattr(action, "job", None)
                db.write(
                    "UPDATE action SET started_s = coalesce(started_s, ?), ended_s = ?, "
                    "status = ?, code = ?, message = ?, took_s = ? WHERE id = ?",
                    at_s,
                    at_s,
                    outcome.status.value,
                    outcome.code,
                    outcome.message,
                    outcome.took_s,
                    result.planned.id,
                )
                if result.status is not None and isinstance(action, Reallocate):
                    db.write(
                        "UPDATE allocation SET standing = ? WHERE job = ? AND generation = ?",
                        result.status.value,
                        job,
                        action.allocation.generation,
                    )
                if job is not None and result.changed:
                    db.write("UPDATE job SET changed_s = ? WHERE id = ?", at_s, job)
                self._event(at_s, f"action_{outcome.status.value}", job, result.sentence)

    def recover(self, now_s: float) -> int:
        """After a crash: the outcome of one-shot actions that were started is unknown, and those
        that were not started have lapsed. Neither is done again. Returns the number of both.
        """
        with self.database.transaction("recover") as db:
            unknown = db.write(
                "UPDATE action SET ended_s = ?, status = 'unknown', code = 'CRASHED', message = "
                "'The daemon died during this action.' "
                "WHERE ended_s IS NULL AND started_s IS NOT NULL AND kind != 'reallocate'",
                now_s,
            )
            lapsed = db.write(
                "UPDATE action SET ended_s = ?, status = 'refused', code = 'LAPSED', message = "
                "'The daemon died before it started this action.' "
                "WHERE ended_s IS NULL AND started_s IS NULL AND kind != 'reallocate'",
                now_s,
            )
        return unknown + lapsed

    def cost(self, job: str, ability: Ability, gap_s: float, times: int) -> None:
        with self.database.transaction("cost") as db:
            db.insert("cost", True, job=job, ability=ability.value, gap_s=gap_s, times=times)

    def came(self, results: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """Writes the measured values of expected metrics."""
        with self.database.transaction("came") as db:
            for id_, result in results:
                db.write("UPDATE decision SET came = ? WHERE id = ?", text(result), id_)

    def shift_expectations(self, by_s: float) -> None:
        """The clock was set: what is expected and was not checked yet is due by the new time."""
        with self.database.transaction("expectations") as db:
            db.write(
                "UPDATE decision SET expects = "
                "json_set(expects, '$.by_s', json_extract(expects, '$.by_s') + ?) "
                "WHERE expects IS NOT NULL AND came IS NULL",
                by_s,
            )

    def add_series(self, time_s: float, body: bytes, layout: int | str) -> int:
        """Adds an entry of the compact series. `layout` names its rows: the number of a known
        layout, or the body of a new one. Returns the number.
        """
        with self.database.transaction("series") as db:
            if isinstance(layout, str):
                db.insert("layout", body=layout)
                row = db.one("SELECT max(id) AS id FROM layout")
                layout = int(row["id"]) if row else 0
            db.insert("series", True, time_s=time_s, layout=layout, body=body)
        return layout

    def trim(self, series_before_s: float, history_before_s: float) -> None:
        """Deletes what is older than its age limit."""
        with self.database.transaction("trim") as db:
            db.write("DELETE FROM series WHERE time_s < ?", series_before_s)
            # The writer of the series knows the newest layout, and does not write it again.
            db.write(
                "DELETE FROM layout WHERE id NOT IN (SELECT layout FROM series) "
                "AND id < (SELECT max(id) FROM layout)"
            )
            for table, column in (
                ("decision", "last_s"),
                ("action", "ended_s"),
                ("event", "time_s"),
            ):
                db.write(f"DELETE FROM {table} WHERE {column} < ?", history_before_s)  # noqa: S608
            # The newest allocation of each version stays, for a roll-back; and the highest
            # generation of a job: none is reused.
            db.write(
                "DELETE FROM allocation WHERE wanted_s < ? AND generation < coalesce("
                "(SELECT max(generation) FROM allocation AS other WHERE other.job = allocation.job "
                "AND other.spec = allocation.spec AND other.standing != "
                "'refused'), generation + 1) "
                "AND generation < (SELECT max(generation) FROM allocation AS other "
                "WHERE other.job = allocation.job)",
                history_before_s,
            )

    # Parts of transactions.

    def _insert_job(self, job: Job, mode: Mode, now_s: float) -> None:
        """Inserts a job, or revives one that was deleted."""
        self.database.write(
            "INSERT INTO job (id, tenant, mode, wish, accepted_s) VALUES (?, ?, ?, 'run', ?) "
            "ON CONFLICT (id) DO UPDATE SET mode = excluded.mode, wish = 'run', gone_s = NULL",
            job.id,
            job.tenant,
            mode.value,
            now_s,
        )

    def _insert_spec(self, spec: SpecRow) -> None:
        self.database.insert(
            "spec",
            job=spec.job,
            generation=spec.generation,
            body=in_order(spec.body),
            checkpoint=spec.checkpoint,
            accepted_s=spec.accepted_s,
            standing=spec.status.value,
            told=spec.message,
        )

    def _event(self, now_s: float, kind: str, job: str | None, message: str) -> None:
        self.database.insert("event", time_s=now_s, kind=kind, job=job, text=message)

    def _insert_action(self, planned: PlannedAction, now_s: float) -> None:
        action = planned.action
        self.database.insert(
            "action",
            id=planned.id,
            decision=planned.decision,
            job=getattr(action, "job", None),
            kind=kind_of(action),
            body=text(wire.action_to_json(action)),
            wanted_s=now_s,
            facets=text([facet.value for facet in planned.facets]),
        )
        if isinstance(action, Reallocate) and planned.spec is not None:
            self._insert_allocation(
                action.allocation, planned.spec, now_s, SpecStatus.WANTED, planned.decision
            )

    def _insert_allocation(
        self,
        wanted: Allocation,
        spec: int,
        now_s: float,
        standing: SpecStatus,
        decision: str | None,
    ) -> None:
        # An engine that was restarted may count from 1 again: only past rows are replaced.
        self.database.insert(
            "allocation",
            True,
            job=wanted.job,
            generation=wanted.generation,
            spec=spec,
            body=text(wire.allocation_to_json(wanted)),
            wanted_s=now_s,
            decision=decision,
            standing=standing.value,
        )

    def _decision(self, number: int, policy: str, ruling: Ruling, now_s: float) -> None:
        data = decision_to_json(ruling.decision)
        self.database.insert(
            "decision",
            id=data["id"],
            round=number,
            time_s=now_s,
            last_s=now_s,
            job=data["job"],
            policy=ruling.decision.issuer or policy,
            reason=data["reason"],
            sentence=data["sentence"],
            numbers=text(data["numbers"]),
            causes=text(data["causes"]),
            expects=None if data["expects"] is None else text(data["expects"]),
            asked=text(data["changes"]),
            granted=text([proposal_to_json(change) for change in ruling.granted]),
            clips=text([asdict(clip) for clip in ruling.clips]),
        )
        self._event(now_s, "decision", data["job"], data["sentence"])
        for alert in ruling.granted:
            if isinstance(alert, Alert):
                message = f"{alert.severity.value} {alert.code}: {alert.sentence} {alert.advice}"
                self._event(now_s, "alert", alert.job, message.rstrip())
