"""Runs the round: reconcile, observe, decide, guard, record, act, learn. Level-triggered, safe to be killed.

Nothing here is remembered that the journal does not have, but for what is measured and for how long it was
fine: after a crash that begins anew, and until there is enough of it nothing is changed.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol

from trilithon import logs
from trilithon.contract.engine import Engine
from trilithon.control.clock import Clock
from trilithon.control.compact import CompactSeries
from trilithon.control.cost import Costs, learned
from trilithon.control.encoding import text
from trilithon.control.engine_calls import call_engine
from trilithon.control.expectations import Expectations
from trilithon.control.feedback_log import FeedbackLog
from trilithon.control.freshness import Freshness
from trilithon.control.guard import Guard, Ruling
from trilithon.control.journal import ActionResult, Journal, PlannedAction
from trilithon.control.journal.rows import DesiredState, SpecStatus
from trilithon.control.planner import Planner, without_refused_facet
from trilithon.control.reconcile import HEALTHY, LONGEST_WAIT_S, Reconciler
from trilithon.control.repeats import Repeats, subjects
from trilithon.control.rules import Rules
from trilithon.control.state import ControllerState, JobRecord, load
from trilithon.errors import TrilithonError
from trilithon.measures.assess import Assessment, assess
from trilithon.model.action import Outcome, Reallocate, Status
from trilithon.model.capability import Ability, Capabilities, How
from trilithon.model.change import ParallelismChange
from trilithon.model.report import Report
from trilithon.model.series import Series
from trilithon.policies.layered import claims_of
from trilithon.policies.policy import Policy, State, Verdict
from trilithon.policies.scene import Cluster, JobStatus, Scene

# Even if nothing happens the round is written now and then, so that one sees when the loop last ran.
WRITTEN_EVERY_S: Final = 60.0
TRIMMED_EVERY_S: Final = 600.0
_COSTS_MORE: Final = (How.LIVE, How.AT_BOUNDARY, How.WITH_OUTAGE)
_log = logs.logger()


class RoundRecorder(Protocol):
    def write(self, scene: Scene, policy: Policy, state: State, verdict: Verdict) -> None:
        """Keeps a round, so that it can be decided again."""


@dataclass(frozen=True, slots=True)
class Round:
    """What a round did, for whoever waits for the next one. Results name the decision they are for."""

    number: int
    time_s: float
    next_s: float
    rulings: tuple[Ruling, ...] = ()
    results: tuple[ActionResult, ...] = ()
    # Why nothing could be seen: the engine does not answer.
    blind: str = ""

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        return tuple(result.outcome for result in self.results)

    def results_of(self, decision: str) -> tuple[ActionResult, ...]:
        """What came of the actions of one decision; none if none was done."""
        return tuple(result for result in self.results if result.planned.decision == decision)


@dataclass
class Controller:
    """One engine, one journal, one policy. `round` is called again and again, by one thread."""

    engine: Engine
    journal: Journal
    policy: Policy
    rules: Rules
    clock: Clock
    recorder: RoundRecorder | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        limits = self.rules.limits
        self.journal.recover(self.clock.now_s())
        self.state: ControllerState = load(self.journal)
        self.state.mode = self.rules.mode
        rounds, known = self.policy.feedback_rounds, self.state.policy == self.policy.name
        if not known:
            # What another policy remembers means nothing to this one.
            self.state.policy = self.policy.name
            self.state.policy_state = {"seed": self.rules.seed}
        past = self.journal.feedback(self.state.round - rounds) if known and rounds else ()
        self.feedback = FeedbackLog(rounds, past)
        self.guard = Guard(self.rules)
        self.freshness = Freshness(limits, self.policy.lookback_s)
        self.costs = Costs(limits.watch_s)
        self.compact = CompactSeries(self.journal)
        self.expectations = Expectations(self.journal)
        self.reconciler = Reconciler(
            self.engine,
            self.journal,
            self.state,
            self.rules,
            self.freshness,
            self.costs,
            self.feedback,
            self.lock,
            self.clock,
        )
        self.cluster = Cluster(Capabilities({}))
        self.last: Round | None = None
        # What the last round saw, for whoever asks in between.
        self.scene: Scene | None = None
        self._assessed: tuple[float, Assessment | None] = (0.0, None)
        self._repeats = Repeats()
        self._written = (text(self.state.policy_state), 0.0)
        self._series_s = self._trimmed_s = 0.0
        self._failure = ""

    def round(self) -> Round:
        """One turn. An engine that does not answer is asked again in the next one."""
        now_s = self.clock.now_s()
        usual_s = self.rules.limits.round_s
        self.state.round += 1
        try:
            there = self.engine.jobs()
            capabilities = self.engine.capabilities()
            self._keep_up_with(now_s)
            self.reconciler.run(there, now_s)
            reports = self.engine.reports()
        except TrilithonError as error:
            blind = f"{error.code}: {error.message}"
            self.last = Round(self.state.round, now_s, usual_s, blind=blind)
            return self.last
        # Starting a job may have taken long: what was reported is of now.
        now_s = self.clock.now_s()
        self._observe(reports, now_s)
        self.scene = scene = self._scene(capabilities, now_s)
        verdict = self._decide(scene)
        rulings = self._review(scene, verdict)
        planned = self._record(scene, verdict, rulings, now_s)
        results = self._act(planned, now_s)
        self._learn(now_s)
        self._keep(now_s)
        next_s = usual_s if verdict.next_round_s is None else max(0.1, verdict.next_round_s)
        self.freshness.wait_s = next_s
        self.last = Round(self.state.round, now_s, next_s, rulings, results)
        return self.last

    # Observe.

    def _keep_up_with(self, now_s: float) -> None:
        """A clock that was set back must not leave times in the future behind, which would hold for
        as long as it jumped.
        """
        with self.lock:
            jobs = list(self.state.jobs.values())
        for record in jobs:
            if record.changed_s is not None and record.changed_s > now_s:
                record.changed_s = now_s
            for name in ("started_s", "healthy_since_s"):
                at_s = getattr(record, name)
                if at_s is not None and at_s > now_s:
                    setattr(record, name, now_s)

    def _observe(self, reports: Sequence[Report], now_s: float) -> None:
        self.costs.take(reports)
        with self.lock:
            there = {
                name: (record.job, record.accepted)
                for name, record in self.state.jobs.items()
                if record.running and record.accepted is not None
            }
        self.freshness.look(there, reports, now_s)

    def _scene(self, capabilities: Capabilities, now_s: float) -> Scene:
        state = self.state
        with self.lock:
            statuses = {
                name: self._status(name, record, capabilities, now_s)
                for name, record in state.jobs.items()
                if record.running
                and record.desired is DesiredState.RUN
                and record.accepted is not None
            }
            counted = {name: record for name, record in state.jobs.items() if _counts(record)}
            unseen: dict[str, int] = {}
            for name in counted.keys() - statuses.keys():
                tenant, wanted = counted[name].job.tenant, counted[name].wanted
                unseen[tenant] = unseen.get(tenant, 0) + wanted.instances
            self.cluster = Cluster(
                capabilities,
                capabilities.slots,
                sum(record.wanted.instances for record in counted.values()),
                self.rules.quotas,
                dict(sorted(unseen.items())),
                self.rules.limits.down_delay_s,
                state.mode,
                state.machines_changed_s,
            )
        series = Series(self.freshness.observer.series.snapshots, self.policy.lookback_s)
        feedback = self.feedback.for_round(state.round)
        return Scene(state.round, series, statuses, self.cluster, feedback)

    def _status(
        self, name: str, record: JobRecord, capabilities: Capabilities, now_s: float
    ) -> JobStatus:
        engine = capabilities.fixed.get(name, ())
        status = JobStatus(
            job=name,
            tenant=record.job.tenant,
            allocation=record.wanted,
            accepted_s=record.accepted_s,
            changed_s=record.changed_s,
            mode=record.mode,
            in_flight=record.in_flight,
            gap_s={ability: gap_s for ability, (gap_s, _) in record.gap_s.items()},
            fixed=record.version.fixed.union(engine) if engine else record.version.fixed,
            spans=record.version.spans,
        )
        why = "UNHEALTHY" if record.health not in {"", HEALTHY} else ""
        why = why or self.freshness.distrusted(name, now_s) or self.guard.hold(status, now_s)
        if not why and now_s < record.refused_until_s <= now_s + LONGEST_WAIT_S:
            why = "REFUSED_LATELY"
        return replace(status, hold_reason=why) if why else status

    # Decide and guard.

    def _decide(self, scene: Scene) -> Verdict:
        state = self.state.policy_state
        try:
            verdict = self.policy.decide(scene, state)
        except Exception as error:  # noqa: BLE001 - whatever a policy throws, the jobs are looked after
            failure = f"The policy {self.policy.name} failed: {type(error).__name__}: {error}"
            if failure != self._failure:
                self.journal.event("policy_failed", None, failure, scene.now_s)
                _log.exception("policy_failed", policy=self.policy.name, round=scene.round)
            self._failure = failure
            return Verdict((), state)
        self._failure = ""
        if self.recorder is not None:
            try:
                self.recorder.write(scene, self.policy, state, verdict)
            except Exception as error:  # noqa: BLE001 - a full disk must not keep jobs from being helped
                failure = f"The recording stopped: {type(error).__name__}: {error}"
                self.journal.event("recording_stopped", None, failure, scene.now_s)
                _log.exception("recording_stopped", round=scene.round)
                self.recorder = None
        return verdict

    def _review(self, scene: Scene, verdict: Verdict) -> tuple[Ruling, ...]:
        lowered = {
            change.job
            for decision in verdict.decisions
            for change in decision.changes
            if isinstance(change, ParallelismChange)
            and _lowers(change, scene.statuses.get(change.job))
        }
        with self.lock:
            jobs = {name: record.job for name, record in self.state.jobs.items()}
        claims = {job: by for job, (by, _) in claims_of(verdict.state).items()}
        signs = self.freshness.signs(sorted(lowered))
        return self.guard.review(scene, verdict.decisions, jobs, signs, claims)

    # Record, then act.

    def _record(
        self, scene: Scene, verdict: Verdict, rulings: tuple[Ruling, ...], now_s: float
    ) -> list[PlannedAction]:
        """Everything that will be done, in the journal before any of it is done."""
        number = self.state.round
        fresh: list[Ruling] = []
        repeated: list[str] = []
        with self.lock:
            planner = Planner(scene, self.state.jobs)
            planned: list[PlannedAction] = []
            for ruling in rulings:
                self.feedback.decided(ruling, number, now_s)
                with_cause = self._repeats.with_known_cause(ruling)
                if (first := self._repeats.first_of(ruling)) is not None:
                    repeated.append(first)
                    continue
                fresh.append(with_cause)
                planned += planner.plan(ruling)
            self._repeats.end_round(subjects(rulings), set(self.state.jobs))
            state, (before, at_s) = text(verdict.state), self._written
            self.state.policy_state = verdict.state
            if fresh or repeated or state != before or not 0 <= now_s - at_s < WRITTEN_EVERY_S:
                self.journal.round(
                    number, self.policy.name, verdict.state, fresh, planned, now_s, repeated
                )
                self._written = (state, now_s)
            for ruling in fresh:
                self.expectations.add(ruling)
            for one in planned:
                self._want(one)
        return planned

    def _want(self, planned: PlannedAction) -> None:
        if isinstance(planned.action, Reallocate):
            self.state.jobs[planned.action.job].wanted = planned.action.allocation

    def _act(self, planned: Sequence[PlannedAction], now_s: float) -> tuple[ActionResult, ...]:
        """Asks the engine. What came of wanted state is written once for all of it: after a crash the
        next round would find it out. One-shot actions are marked before and after, one by one.
        """
        results: list[ActionResult] = []
        for one in planned:
            if isinstance(one.action, Reallocate):
                results += self._reallocate(one, one.action, now_s)
                continue
            self.journal.start(one.id, now_s)
            outcome = call_engine("one_shot", partial(self.engine.apply, one.action))
            result = ActionResult(one, outcome, None, self.clock.now_s())
            self.journal.end([result])
            results.append(result)
        # Where the outcome is unknown the next round finds out, and brings about what was not done.
        known = [
            one for one in results if isinstance(one.planned.action, Reallocate) and one.status
        ]
        if known:
            self.journal.end(known)
        for one_result in results:
            self._take_over(one_result)
        return tuple(results)

    def _reallocate(
        self, planned: PlannedAction, action: Reallocate, now_s: float
    ) -> list[ActionResult]:
        """Asks for wanted state. If the engine refuses it because of one facet, the rest is asked for."""
        outcome = call_engine("reallocate", partial(self.engine.apply, action))
        result = ActionResult(planned, outcome, _status_after(outcome), self.clock.now_s())
        with self.lock:
            record = self.state.jobs.get(action.job)
            before = None if record is None else record.accepted
            if record is None or before is None or record.wanted is not action.allocation:
                return [result]
            rest = without_refused_facet(planned, outcome, before, record.last_generation + 1)
            if rest is None:
                return [result]
            record.next_generation()
            self.journal.add_action(rest, now_s)
            self._want(rest)
        again = call_engine("reallocate", partial(self.engine.apply, rest.action))
        return [result, ActionResult(rest, again, _status_after(again), self.clock.now_s())]

    def _take_over(self, result: ActionResult) -> None:
        """What came of an action, in memory."""
        action, outcome = result.planned.action, result.outcome
        self.feedback.acted(result.planned.decision, outcome)
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
            facet = self._costliest(result.planned.facets)
            for name in touched:
                self.costs.began(name, facet, result.ended_s)

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
            # Perhaps the rest of it is wanted instead.
            if record.wanted is action.allocation and record.accepted is not None:
                record.wanted = record.accepted
            record.refused(result.ended_s, self.rules.limits.cool_down_s)
        return False

    def _costliest(self, facets: Sequence[Ability]) -> Ability:
        """A gap is learned for one facet: of several that changed at once, the one that costs the most
        on this engine, and the first of those.
        """
        how = self.cluster.capabilities.of
        return max(facets, key=lambda facet: _COSTS_MORE.index(how(facet)))

    # Learn and keep.

    def _learn(self, now_s: float) -> None:
        for gap in self.costs.ended(now_s):
            record = self.state.jobs.get(gap.job)
            if record is not None:
                record.gap_s[gap.ability] = learned(record.gap_s.get(gap.ability), gap.seconds)
                self.journal.cost(gap.job, gap.ability, *record.gap_s[gap.ability])
        for result in self.expectations.check(self.freshness.window, now_s):
            self.feedback.measured(result.decision, result.value, result.met)

    def _keep(self, now_s: float) -> None:
        limits = self.rules.limits
        if not 0 <= now_s - self._series_s < limits.series_every_s:
            self._series_s = now_s
            if (found := self.assessment()) is not None:
                self.compact.write(found, now_s)
        if not 0 <= now_s - self._trimmed_s < TRIMMED_EVERY_S:
            self._trimmed_s = now_s
            self.journal.trim(now_s - limits.keep_series_s, now_s - limits.keep_history_s)

    def assessment(self) -> Assessment | None:
        """Every measure of the last window: made when it is asked for, once per round."""
        series = self.freshness.observer.series
        if not series.snapshots:
            return None
        if self._assessed[0] != series.last.time_s:
            window = self.freshness.window()
            self._assessed = (series.last.time_s, None if window is None else assess(window))
        return self._assessed[1]


def _lowers(change: ParallelismChange, status: JobStatus | None) -> bool:
    """Whether an operator would have fewer instances: only then the guard looks at how busy it is."""
    now = {} if status is None else status.allocation.parallelism
    return any(count < now.get(name, 0) for name, count in change.parallelism.items())


def _counts(record: JobRecord) -> bool:
    """Whether a job's slots are taken: it runs, or is about to."""
    return record.desired is DesiredState.RUN and (record.running or not record.tries)


def _status_after(outcome: Outcome) -> SpecStatus | None:
    if outcome.applied:
        return SpecStatus.ACCEPTED
    return None if outcome.status is Status.UNKNOWN else SpecStatus.REFUSED
