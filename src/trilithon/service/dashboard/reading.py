"""Reads what pages show from a running daemon, for one caller: the only place that knows both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from trilithon.control.journal.rows import DecisionRow
from trilithon.control.state import JobRecord
from trilithon.errors import NotFound
from trilithon.measures.assess import Assessment
from trilithon.model.snapshot import plain
from trilithon.policies.scene import JobStatus, Machine
from trilithon.service import views
from trilithon.service.access.roles import Caller
from trilithon.service.daemon import Daemon
from trilithon.service.dashboard import ledger
from trilithon.service.dashboard.ledger import LedgerEntry
from trilithon.service.dashboard.plots import lost_utility_hours
from trilithon.service.dashboard.why import PolicyWords, Why, why
from trilithon.service.monitor.facts import MEASURED
from trilithon.service.visibility import Redaction, sees_job, visible_rows

LEDGER_ROWS: Final = 25
# So many of the latest decisions are looked through for the last one about each job.
SEARCHED_ROWS: Final = 400


@dataclass
class Reading:
    """One look at a daemon: everything in it is of the tenants that the caller sees."""

    daemon: Daemon
    caller: Caller

    def __post_init__(self) -> None:
        controller = self.daemon.controller
        with controller.lock:
            self.records: Mapping[str, JobRecord] = {
                name: record
                for name, record in controller.state.jobs.items()
                if self.caller.sees(record.job.tenant)
            }
            self.facts = {
                name: self.daemon.monitor.job_now(name, each) for name, each in self.records.items()
            }
            self.assessment: Assessment | None = controller.assessment()
            self.scene = controller.scene
            self.slots, self.round = controller.cluster.slots, controller.state.round
            self.slots_used = controller.cluster.slots_used
        self.now_s = controller.clock.now_s()
        self.health = views.health(self.daemon)
        self.policy_status: Mapping[str, Any] | None = views.policy_status(self.daemon)["status"]

    def lost_utility_hours(self) -> dict[str, float]:
        """By job, the utility that it lost in the last hour, in utility-hours."""
        every_s = self.daemon.controller.rules.limits.series_every_s
        return lost_utility_hours(self.daemon.monitor.history.points(), every_s)

    @property
    def whole(self) -> bool:
        """Whether the caller sees the whole cluster."""
        return self.caller.cluster_admin

    @property
    def policy(self) -> str:
        return self.daemon.controller.policy.name

    def record(self, job: str) -> JobRecord:
        if (record := self.records.get(job)) is None:
            raise NotFound(f"There is no job {job!r}.", "The cluster's page lists them.")
        return record

    def status(self, job: str) -> JobStatus | None:
        return None if self.scene is None else self.scene.statuses.get(job)

    def row(self, job: str) -> int | None:
        """The row of a job among the measures; None if it was not measured."""
        return None if self.assessment is None else self.assessment.window.layout.job_row.get(job)

    def values(self, job: str) -> dict[str, float | None]:
        """What was measured of a job, by the keys of thresholds."""
        row = self.row(job)
        if self.assessment is None or row is None or not self.measured(job):
            return {}
        return {key: plain(value[row]) for key, value in self.assessment.intents.values.items()}

    def measured(self, job: str) -> bool:
        """Whether measurements of a job are of now: those of a stopped job are not."""
        return self.facts[job].state in MEASURED

    def met(self, job: str) -> bool | None:
        """Whether a job meets its whole intent: thresholds and constraints."""
        return self.facts[job].met

    @cached_property
    def machines(self) -> Sequence[Machine]:
        """Only for those who see the whole cluster: they show whose instances run where."""
        return () if self.scene is None or not self.whole else self.scene.machines

    @cached_property
    def _redaction(self) -> Redaction:
        return Redaction(self.caller, self.daemon.journal.jobs)

    def redact(self, text: str) -> str:
        """Names of jobs that the caller does not see do not appear in sentences."""
        return self._redaction.text(text)

    @cached_property
    def decisions(self) -> list[DecisionRow]:
        """The latest decisions that the caller may see, the oldest first."""
        return visible_rows(self.daemon.journal, self.caller, SEARCHED_ROWS)

    @cached_property
    def entries(self) -> list[LedgerEntry]:
        """The latest decisions, the newest first."""
        return ledger.entries(self.daemon.journal, self.decisions[-LEDGER_ROWS:], self.redact)

    def entries_of(self, job: str, limit: int = LEDGER_ROWS) -> list[LedgerEntry]:
        """The latest decisions about a job, the newest first."""
        rows = self.daemon.journal.decisions(job, limit)
        return ledger.entries(self.daemon.journal, rows, self.redact)

    def decision(self, id_: str) -> DecisionRow:
        row = self.daemon.journal.decision(id_)
        if row is None or not sees_job(self.caller, row.job):
            raise NotFound(f"There is no decision {id_!r}.")
        return row

    @cached_property
    def _last_rows(self) -> dict[str | None, DecisionRow]:
        """The latest decision about each job, and about the cluster."""
        return {row.job: row for row in self.decisions}

    def last_entry(self, job: str | None) -> LedgerEntry | None:
        if (row := self._last_rows.get(job)) is None:
            return None
        (entry,) = ledger.entries(self.daemon.journal, [row], self.redact)
        return entry

    @cached_property
    def _policy_words(self) -> PolicyWords:
        """A policy's status names jobs of all tenants: for those who see them all."""
        published = (self.policy_status or {}) if self.whole else {}
        return PolicyWords(self.policy, published, self.last_entry(None))

    def why(self, job: str) -> Why:
        return why(
            self.record(job),
            self.status(job),
            self.met(job),
            self.last_entry(job),
            self._policy_words,
            self.now_s,
        )
