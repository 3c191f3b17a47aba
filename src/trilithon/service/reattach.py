"""Reconnects to an engine in another process: each call tries again to reach it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from trilithon import logs
from trilithon.contract.engine import Accepted, Action, Capabilities, Condition, Engine, Outcome
from trilithon.contract.outcome_log import log_outcome
from trilithon.errors import HostUnreachable
from trilithon.model.allocation import Allocation
from trilithon.model.job import Job
from trilithon.model.report import Report

T = TypeVar("T")
_log = logs.logger()


class ReattachingEngine:
    """Reaches an engine by a function, again after each loss. `close` leaves it running."""

    def __init__(self, reach: Callable[[], Engine]) -> None:
        self._reach = reach
        self._engine: Engine | None = None

    def submit(self, job: Job, allocation: Allocation, checkpoint: str = "") -> Outcome:
        outcome = self._ask(lambda engine: engine.submit(job, allocation, checkpoint))
        log_outcome(outcome, "submit", job.id, generation=allocation.generation)
        return outcome

    def cancel(self, job: str, keep: bool = False) -> Outcome:
        outcome = self._ask(lambda engine: engine.cancel(job, keep))
        log_outcome(outcome, "cancel", job, keep=keep)
        return outcome

    def apply(self, action: Action) -> Outcome:
        outcome = self._ask(lambda engine: engine.apply(action))
        name = type(action).__name__
        log_outcome(outcome, "apply", getattr(action, "job", ""), action=name)
        return outcome

    def jobs(self) -> Mapping[str, Accepted]:
        return self._ask(lambda engine: engine.jobs())

    def conditions(self) -> Mapping[str, Condition]:
        return self._ask(lambda engine: engine.conditions())

    def reports(self) -> Sequence[Report]:
        return self._ask(lambda engine: engine.reports())

    def capabilities(self) -> Capabilities:
        return self._ask(lambda engine: engine.capabilities())

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _ask(self, call: Callable[[Engine], T]) -> T:
        if self._engine is None:
            self._engine = self._reach()
        try:
            return call(self._engine)
        except HostUnreachable as error:
            _log.warning("host_lost", reason=error.message)
            # The call may have been carried out: the caller decides whether to retry.
            self.close()
            # A host that died is started now, and not when somebody calls the next time.
            with suppress(HostUnreachable):
                self._engine = self._reach()
            raise
