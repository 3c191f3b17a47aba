"""Brings together what is seen after each round, in the thread of the controller's loop."""

from collections.abc import Callable
from typing import Any

from trilithon import logs
from trilithon.contract.condition import RUNNING
from trilithon.contract.engine import Accepted
from trilithon.contract.figures import summary
from trilithon.control.explain import clock
from trilithon.control.journal.rows import EventRow
from trilithon.control.loop import Controller, Round
from trilithon.control.state import JobRecord, Version
from trilithon.service.access.roles import Caller
from trilithon.service.access.store import AccessStore
from trilithon.service.monitor.alerts import Alerts
from trilithon.service.monitor.conditions import ConditionTimes, JobCondition
from trilithon.service.monitor.facts import FactSource, JobFacts, RoundFacts, gather
from trilithon.service.monitor.history import History
from trilithon.service.monitor.hub import Hub
from trilithon.service.monitor.hunger import ClippedJobs
from trilithon.service.monitor.tally import Tally
from trilithon.service.monitor.webhooks import Webhook, WebhookSender
from trilithon.spec.dump import dump_job

_log = logs.logger()


class Monitor:
    """The facts of the last round, and everything that follows from them."""

    def __init__(
        self,
        controller: Controller,
        store: AccessStore | None = None,
        webhooks: tuple[Webhook, ...] = (),
        *,
        is_valid: Callable[[Caller], bool],
    ) -> None:
        self._controller = controller
        self.tally = Tally(store)
        self.webhooks = WebhookSender(webhooks)
        self.alerts = Alerts(self.webhooks.notify)
        self.conditions = ConditionTimes()
        self.history = History(controller.journal)
        self.hub = Hub(controller.journal, event_data, is_valid)
        self._specs: dict[str, tuple[Version, dict[str, Any]]] = {}
        self._clipped = ClippedJobs()
        self._source = FactSource(controller)
        self._facts = gather(controller, self._source, None)

    def after_round(self, done: Round, took_s: float) -> None:
        """Takes over what a round saw. A failure here must not end the loop."""
        try:
            before = self._facts.jobs
            self._clipped.add(done.rulings)
            with self._controller.lock:
                self._source = FactSource(self._controller, self._clipped)
                self._facts = facts = gather(self._controller, self._source, done)
            for name, job in facts.jobs.items():
                if name not in before or before[name].aspects != job.aspects:
                    self.conditions.dated(job, facts.time_s)
            self.conditions.forget_all_but(facts.jobs)
            for name in self._specs.keys() - facts.jobs.keys():
                self._specs.pop(name, None)
            self._clipped.keep(name for name, job in facts.jobs.items() if not job.met)
            if not facts.blind:
                self.history.add(facts, self._source.assessment)
            self.tally.round(done, facts, took_s)
            self.alerts.round(done, facts)
            self._write_alerts()
            self.hub.publish(facts)
        except Exception:  # noqa: BLE001 - the next round may succeed
            _log.exception("monitor_failed", round=done.number)

    def watch(self) -> None:
        """Looks after the loop itself, from outside of it."""
        self.alerts.watch(self._controller.rules.limits.round_s, self._controller.clock.now_s())
        self._write_alerts()

    def _write_alerts(self) -> None:
        """Makes events of alerts that began or ended, in one transaction. Webhooks know them
        already: a journal that cannot be written holds no alert up.
        """
        if not (changed := self.alerts.take_unwritten()):
            return
        now_s = self._controller.clock.now_s()
        try:
            self._controller.journal.add_events([alert.event for alert in changed], now_s)
        except Exception:  # noqa: BLE001 - the next round may succeed
            _log.exception("alerts_not_written", alerts=[alert.code for alert in changed])

    def close(self) -> None:
        self.tally.flush()
        self.webhooks.stop()

    @property
    def last(self) -> RoundFacts:
        """The facts of the last round."""
        return self._facts

    def job_now(self, name: str, record: JobRecord) -> JobFacts:
        """The facts of a job at this moment: commands since the last round included."""
        return self._source.job(name, record)

    def figures(self, name: str, record: JobRecord) -> dict[str, Any] | None:
        """The figures of a job and its operators in the last window; None if it does not run."""
        if not record.running:
            return None
        accepted = {name: Accepted(record.job, record.wanted, record.condition or RUNNING)}
        source = self._source
        return summary(source.assessment, accepted, source.clock_set_s)[0]

    def spec(self, name: str, version: Version) -> dict[str, Any]:
        """The job file of a version, dumped once."""
        known = self._specs.get(name)
        if known is None or known[0] is not version:
            known = self._specs[name] = (version, dump_job(version.job))
        return known[1]

    def conditions_of(self, job: JobFacts) -> list[JobCondition]:
        return self.conditions.dated(job, self._controller.clock.now_s())


def event_data(row: EventRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "time_s": row.time_s,
        "time": clock(row.time_s),
        "kind": row.kind,
        "job": row.job,
        "text": row.text,
    }
