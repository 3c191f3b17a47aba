"""Raises alerts from the facts of rounds, and ends them when their cause has passed.

An alert begins when its cause has lasted for as long as its rule says. What policies alert of is
listed beside them: they say it once, and nobody says when it has passed.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from trilithon.control.loop import Round
from trilithon.model.change import Alert, Severity
from trilithon.service.monitor.facts import JobFacts, RoundFacts
from trilithon.service.monitor.hunger import SENTENCES

RECENT: Final = 200


@dataclass(frozen=True)
class AlertRule:
    """A cause of alerts, and how long it must last."""

    code: str
    severity: Severity
    after_s: float
    meaning: str


INTENT_MISSED: Final = AlertRule(
    "INTENT_MISSED", Severity.WARNING, 300.0, "a job misses its intent for five minutes"
)
HUNGRY: Final = AlertRule(
    "HUNGRY", Severity.WARNING, 60.0, "a job misses its intent, and cannot get what would help"
)
METRICS_MISSING: Final = AlertRule(
    "METRICS_MISSING", Severity.WARNING, 120.0, "the metrics of a job are missing for two minutes"
)
JOB_DOWN: Final = AlertRule(
    "JOB_DOWN", Severity.CRITICAL, 60.0, "a job that should run is degraded or failed for a minute"
)
ENGINE_UNREACHABLE: Final = AlertRule(
    "ENGINE_UNREACHABLE", Severity.CRITICAL, 30.0, "the controller does not reach the engine"
)
NOT_DECIDING: Final = AlertRule(
    "NOT_DECIDING", Severity.CRITICAL, 0.0, "no round was completed for a minute or six rounds"
)
RULES: Final = (INTENT_MISSED, HUNGRY, METRICS_MISSING, JOB_DOWN, ENGINE_UNREACHABLE, NOT_DECIDING)


@dataclass(frozen=True)
class ActiveAlert:
    """An alert; `ended_s` is None while its cause lasts."""

    code: str
    severity: Severity
    job: str | None
    message: str
    since_s: float
    ended_s: float | None = None

    @property
    def event(self) -> tuple[str, str | None, str]:
        """Its kind, job and message as an event of the journal."""
        if self.ended_s is not None:
            return "alert_ended", self.job, f"{self.code} has ended: {self.message}"
        return "alert", self.job, f"{self.severity.value} {self.code}: {self.message}"

    @property
    def key(self) -> tuple[str, str | None]:
        return self.code, self.job


class Alerts:
    """The alerts of a daemon. `notify` is called when one begins and when it ends."""

    def __init__(self, notify: Callable[[ActiveAlert], None] = lambda _: None) -> None:
        self.notify = notify
        self._lock = threading.Lock()
        # Since when each cause is there, whether or not it has lasted long enough.
        self._causes: dict[tuple[str, str | None], float] = {}
        self._active: dict[tuple[str, str | None], ActiveAlert] = {}
        self._recent: deque[ActiveAlert] = deque(maxlen=RECENT)
        # Those that began or ended and are not in the journal yet. What policies alert of is there.
        self._unwritten: list[ActiveAlert] = []
        self._completed = time.monotonic()

    def round(self, done: Round, facts: RoundFacts) -> None:
        """Looks at what a round saw."""
        self._completed = time.monotonic()
        if done.clock_set_by_s:
            self._shift_times(done.clock_set_by_s)
        for ruling in done.rulings:
            for alert in ruling.granted:
                if isinstance(alert, Alert):
                    text = f"{alert.sentence} {alert.advice}".rstrip()
                    raised = ActiveAlert(alert.code, alert.severity, alert.job, text, done.time_s)
                    with self._lock:
                        self._recent.append(raised)
                    self.notify(raised)
        causes = {(rule.code, job): (rule, text) for rule, job, text in _causes(facts)}
        # A blind round knows nothing new of jobs: it ends no alert.
        self._settle(causes, facts.time_s, ends=not facts.blind)

    def watch(self, round_s: float, now_s: float) -> None:
        """Looks whether rounds are still completed. Called by a thread that no round holds up."""
        silent_s = time.monotonic() - self._completed
        key = (NOT_DECIDING.code, None)
        if silent_s > max(60.0, 6 * round_s):
            text = f"No round was completed for {silent_s:.0f} s."
            self._begin(NOT_DECIDING, None, text, now_s)
        elif key in self._active:
            self._end(key, now_s)

    def active(self) -> list[ActiveAlert]:
        """Those whose cause lasts, the oldest first."""
        with self._lock:
            return sorted(self._active.values(), key=lambda alert: (alert.since_s, alert.code))

    def recent(self) -> list[ActiveAlert]:
        """Those that have ended, and what policies alerted of, the oldest first."""
        with self._lock:
            return list(self._recent)

    def take_unwritten(self) -> list[ActiveAlert]:
        """Those that began or ended since the last call, for the journal."""
        with self._lock:
            taken, self._unwritten = self._unwritten, []
        return taken

    def _shift_times(self, by_s: float) -> None:
        """The clock was set: causes have lasted for as long as before."""
        with self._lock:
            self._causes = {key: since_s + by_s for key, since_s in self._causes.items()}
            self._active = {
                key: replace(alert, since_s=alert.since_s + by_s)
                for key, alert in self._active.items()
            }

    def _settle(
        self,
        causes: dict[tuple[str, str | None], tuple[AlertRule, str]],
        now_s: float,
        *,
        ends: bool,
    ) -> None:
        for key in [key for key in self._causes if key not in causes] if ends else ():
            del self._causes[key]
            if key in self._active:
                self._end(key, now_s)
        for key, (rule, text) in causes.items():
            since_s = self._causes.setdefault(key, now_s)
            if now_s - since_s >= rule.after_s:
                self._begin(rule, key[1], text, since_s)

    def _begin(self, rule: AlertRule, job: str | None, text: str, since_s: float) -> None:
        with self._lock:
            if (rule.code, job) in self._active:
                return
            alert = ActiveAlert(rule.code, rule.severity, job, text, since_s)
            self._active[alert.key] = alert
            self._unwritten.append(alert)
        self.notify(alert)

    def _end(self, key: tuple[str, str | None], now_s: float) -> None:
        with self._lock:
            ended = replace(self._active.pop(key), ended_s=now_s)
            self._recent.append(ended)
            self._unwritten.append(ended)
        self.notify(ended)


def _causes(facts: RoundFacts) -> Iterator[tuple[AlertRule, str | None, str]]:
    if facts.blind:
        yield ENGINE_UNREACHABLE, None, facts.blind
        return
    for job in facts.jobs.values():
        for rule, text in _job_causes(job):
            yield rule, job.job, text


def _job_causes(job: JobFacts) -> Iterator[tuple[AlertRule, str]]:
    if job.state in {"degraded", "failed", "not started"}:
        yield JOB_DOWN, f"{job.job} is {job.state}. {job.problem}".rstrip()
    if job.state == "running" and job.met is False:
        lost = "" if job.lost_utility is None else f" It loses {job.lost_utility:.4g} utility."
        yield INTENT_MISSED, f"{job.job} misses its intent.{lost}"
    if job.state == "running" and job.blind:
        yield METRICS_MISSING, f"The metrics of {job.job} are missing: {job.hold_reason}."
    if job.hunger is not None:
        yield HUNGRY, f"{job.job} is hungry. {SENTENCES[job.hunger]}"
