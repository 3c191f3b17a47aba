"""Does the planned actions of a round on the engine, and takes their results over into memory."""

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from trilithon.contract.engine import Engine
from trilithon.control.clock import Clock
from trilithon.control.cost import Costs
from trilithon.control.engine_calls import call_engine
from trilithon.control.feedback_log import FeedbackLog
from trilithon.control.journal import ActionResult, Journal, PlannedAction
from trilithon.control.journal.rows import SpecStatus
from trilithon.control.planner import without_refused_facet
from trilithon.control.rules import Rules
from trilithon.control.state import ControllerState, JobRecord
from trilithon.model.action import RESTARTS, Outcome, Reallocate, Status
from trilithon.model.allocation import facets_between
from trilithon.model.capability import Ability, Capabilities, How

# A facet may change along with another though the engine cannot change it alone: it costs nothing.
_COSTS_MORE: Final = (How.NOT_AT_ALL, How.LIVE, How.AT_BOUNDARY, How.WITH_OUTAGE)


@dataclass
class ActionRunner:
    """Runs the actions of a controller. Owners may change jobs meanwhile, under the same lock."""

    engine: Engine
    journal: Journal
    state: ControllerState
    rules: Rules
    costs: Costs
    feedback: FeedbackLog
    lock: threading.RLock
    clock: Clock

    def run(
        self,
        planned: Sequence[PlannedAction],
        capabilities: Capabilities,
        now_s: float,
        whole: Collection[str] = (),
    ) -> tuple[ActionResult, ...]:
        """Does the planned actions. Outcomes of wanted state are written once for all: after a
        crash the next round compares it with the engine. One-shot actions are marked before and
        after, one by one. Of a decision in `whole` all actions are done or none: after a refusal
        the others are not begun, and what was done is undone.
        """
        results: list[ActionResult] = []
        stopped: set[str] = set()
        for action in planned:
            if action.decision in stopped:
                results.append(self._not_begun(action))
                continue
            if isinstance(action.action, Reallocate):
                in_full = action.decision in whole
                results += self._reallocate(action, action.action, now_s, in_full=in_full)
            else:
                results.append(self._one_shot(action, now_s))
            if action.decision in whole and _is_refusal(results[-1].outcome):
                stopped.add(action.decision)
                done = [r for r in results if r.planned.decision == action.decision]
                results += self._undo(done, now_s)
        # An action of unknown outcome stays open: the next round compares and repeats it if needed.
        known = [r for r in results if isinstance(r.planned.action, Reallocate) and r.status]
        if known:
            self.journal.end(known)
        for result in results:
            self._take_over(result, capabilities)
        return tuple(results)

    def _one_shot(self, planned: PlannedAction, now_s: float) -> ActionResult:
        self.journal.start(planned.id, now_s)
        began_s = self.clock.now_s()
        outcome = call_engine("one_shot", partial(self.engine.apply, planned.action))
        result = ActionResult(planned, outcome, None, self.clock.now_s(), began_s)
        self.journal.end([result])
        return result

    def _not_begun(self, planned: PlannedAction) -> ActionResult:
        """An action of a decision of which another action was refused."""
        outcome = Outcome(
            Status.REFUSED, "ABORTED", "Another part of the decision was refused; nothing was done."
        )
        wanted = isinstance(planned.action, Reallocate)
        status = SpecStatus.REFUSED if wanted else None
        result = ActionResult(planned, outcome, status, self.clock.now_s())
        if not wanted:
            self.journal.end([result])
        return result

    def _undo(self, done: Sequence[ActionResult], now_s: float) -> list[ActionResult]:
        """Brings jobs back to the allocations of before, under new generations. If the engine does
        not answer, the next round does it: that is what is wanted from now on.
        """
        undone: list[ActionResult] = []
        for result in done:
            action = result.planned.action
            if not isinstance(action, Reallocate) or _is_refusal(result.outcome):
                continue
            with self.lock:
                record = self.state.jobs.get(action.job)
                if record is None or record.accepted is None:
                    continue
                before = replace(record.accepted, generation=record.next_generation())
                back = replace(
                    result.planned,
                    id=f"{result.planned.id}-",
                    action=Reallocate(before),
                    facets=facets_between(action.allocation, before),
                )
                self.journal.add_action(back, now_s)
                record.wanted = before
            outcome = call_engine("reallocate", partial(self.engine.apply, Reallocate(before)))
            undone.append(ActionResult(back, outcome, _status_after(outcome), self.clock.now_s()))
        return undone

    def _reallocate(
        self, planned: PlannedAction, action: Reallocate, now_s: float, *, in_full: bool = False
    ) -> list[ActionResult]:
        """Asks for wanted state. As long as the engine refuses a facet of it, asks for the rest,
        unless it is wanted in full.
        """
        began_s = self.clock.now_s()
        outcome = call_engine("reallocate", partial(self.engine.apply, action))
        # What a restart cost lies before its outcome, what a change of tables costs behind it.
        restart_s = began_s if outcome.code in RESTARTS else None
        ended_s = self.clock.now_s()
        result = ActionResult(planned, outcome, _status_after(outcome), ended_s, restart_s)
        with self.lock:
            record = self.state.jobs.get(action.job)
            before = None if record is None else record.accepted
            superseded = record is None or record.wanted is not action.allocation
            if record is None or before is None or superseded or in_full:
                return [result]
            rest = without_refused_facet(planned, outcome, before, record.last_generation + 1)
            if rest is None or not isinstance(rest.action, Reallocate):
                return [result]
            record.next_generation()
            self.journal.add_action(rest, now_s)
            record.wanted = rest.action.allocation
        # Each time a facet fewer: it ends.
        return [result, *self._reallocate(rest, rest.action, now_s)]

    def _take_over(self, result: ActionResult, capabilities: Capabilities) -> None:
        """Takes the result of an action over into memory."""
        action, outcome = result.planned.action, result.outcome
        self.feedback.acted(result.planned.decision, result.planned.id, outcome)
        job = getattr(action, "job", None)
        with self.lock:
            if job is None:
                if result.changed:
                    self.state.machines_changed_s = result.ended_s
                touched = [name for name, record in self.state.jobs.items() if record.running]
            elif (record := self.state.jobs.get(job)) is None or not self._settle(record, result):
                return
            else:
                touched = [job]
        if outcome.status is Status.DONE:
            restarted = outcome.code in RESTARTS
            facets = result.planned.facets
            facet = Ability.RESTART_JOB if restarted else _costliest(facets, capabilities)
            for name in touched:
                self.costs.began(name, facet, result.began_s or result.ended_s)

    def _settle(self, record: JobRecord, result: ActionResult) -> bool:
        """Whether the job was changed."""
        action = result.planned.action
        if not isinstance(action, Reallocate):
            if result.changed:
                record.changed_s = result.ended_s
            return result.changed
        if result.status is SpecStatus.ACCEPTED:
            record.accepted, record.refusals = action.allocation, 0
            record.changed_s = result.ended_s
            return True
        if result.status is SpecStatus.REFUSED:
            # Unless the rest of it is wanted by now.
            if record.wanted is action.allocation and record.accepted is not None:
                record.wanted = record.accepted
            record.refused(result.ended_s, self.rules.limits.cool_down_s)
        return False


def _costliest(facets: Sequence[Ability], capabilities: Capabilities) -> Ability:
    """The facet that a gap is learned for: of several that changed at once, the first of those
    that cost the most on this engine.
    """
    return max(facets, key=lambda facet: _COSTS_MORE.index(capabilities.of(facet)))


def _is_refusal(outcome: Outcome) -> bool:
    return outcome.status in {Status.REFUSED, Status.FAILED}


def _status_after(outcome: Outcome) -> SpecStatus | None:
    if outcome.applied:
        return SpecStatus.ACCEPTED
    return None if outcome.status is Status.UNKNOWN else SpecStatus.REFUSED
