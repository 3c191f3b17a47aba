"""Runs the rounds of the controller: reconcile, observe, decide, guard, record, act, learn.

A round is level-triggered and may be killed at any point: all state but the measurements is in the
journal. After a crash the measurements begin again, and nothing is changed until there are enough
of them.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from trilithon import logs
from trilithon.contract.condition import Cause, Condition, Health
from trilithon.contract.engine import Engine
from trilithon.control.action_runner import ActionRunner
from trilithon.control.clock import Clock, ClockSteps
from trilithon.control.compact import CompactSeries
from trilithon.control.conditions import follow
from trilithon.control.cost import Costs, learned
from trilithon.control.encoding import text
from trilithon.control.expectations import Expectations
from trilithon.control.feedback_log import FeedbackLog
from trilithon.control.freshness import Freshness
from trilithon.control.guard import Guard, Ruling
from trilithon.control.journal import ActionResult, Journal, PlannedAction
from trilithon.control.journal.rows import DesiredState
from trilithon.control.planner import Planner
from trilithon.control.policy_calls import PolicyCalls
from trilithon.control.reconcile import HEALTHY, LONGEST_WAIT_S, Reconciler
from trilithon.control.repeats import Repeats, subjects
from trilithon.control.rules import Rules
from trilithon.control.state import ControllerState, JobRecord, load
from trilithon.errors import HostUnreachable, TrilithonError
from trilithon.measures.assess import Assessment, assess_latest
from trilithon.model.action import Outcome, Reallocate
from trilithon.model.capability import Capabilities
from trilithon.model.change import ParallelismChange
from trilithon.model.report import Report
from trilithon.model.series import Series
from trilithon.policies.layered import LayeredPolicy, claims_of
from trilithon.policies.policy import Policy, State, Verdict
from trilithon.policies.scene import Cluster, JobStatus, Scene

# A round without news is written at this interval, so that the journal shows when the loop last
# ran.
WRITTEN_EVERY_S: Final = 60.0
TRIMMED_EVERY_S: Final = 600.0
# An engine that does not answer is asked again soon.
BLIND_WAIT_S: Final = 1.0
HOST_LOST: Final = "The engine host does not answer; it is started again if it died."
_log = logs.logger()


class RoundRecorder(Protocol):
    def write(self, scene: Scene, policy: Policy, state: State, verdict: Verdict) -> None:
        """Records a round for replay."""


@dataclass(frozen=True, slots=True)
class Round:
    """What a round did, and how long to wait for the next. Results name their decision."""

    number: int
    time_s: float
    next_s: float
    rulings: tuple[Ruling, ...] = ()
    results: tuple[ActionResult, ...] = ()
    # Why the round saw nothing: the engine does not answer.
    blind: str = ""
    # By how much the clock was set since the round before.
    clock_set_by_s: float = 0.0

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        return tuple(result.outcome for result in self.results)

    def results_of(self, decision: str) -> tuple[ActionResult, ...]:
        """The results of the actions of a decision; empty if none was done."""
        return tuple(result for result in self.results if result.planned.decision == decision)


@dataclass
class Controller:
    """Controls the jobs of one engine by one policy. One thread calls `round` again and again."""

    engine: Engine
    journal: Journal
    policy: Policy
    rules: Rules
    clock: Clock
    recorder: RoundRecorder | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)
    # Whether time goes on while the policy decides, so that it must not take too long.
    limits_policy: bool = True
    # A clock that never jumps. Without it only a clock that is set back is noticed.
    steady_s: Callable[[], float] | None = None

    def __post_init__(self) -> None:
        limits = self.rules.limits
        now_s = self.clock.now_s()
        self.journal.recover(now_s)
        self.state: ControllerState = load(self.journal, now_s)
        self.state.mode = self.rules.mode
        rounds, known = self.policy.feedback_rounds, self.state.policy == self.policy.name
        if not known:
            # The state is that of another policy.
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
        self.actions = ActionRunner(
            self.engine,
            self.journal,
            self.state,
            self.rules,
            self.costs,
            self.feedback,
            self.lock,
            self.clock,
        )
        self.cluster = Cluster(Capabilities({}))
        self.last: Round | None = None
        # What the last round saw, for requests between rounds.
        self.scene: Scene | None = None
        self._assessed: tuple[float, Assessment | None] = (0.0, None)
        self._repeats = Repeats()
        self._calls = PolicyCalls(self.policy, limits.decide_s if self.limits_policy else None)
        self._written = (text(self.state.policy_state), 0.0)
        self._series_s = self._trimmed_s = 0.0
        self._failure = ""
        self._clock_steps = ClockSteps(self.steady_s)
        self._clock_set_by_s = 0.0

    def round(self) -> Round:
        """One round. If the engine does not answer, the next round asks it again."""
        now_s = self._now_s()
        usual_s = self.rules.limits.round_s
        self.state.round += 1
        try:
            there = self.engine.jobs()
            capabilities = self.engine.capabilities()
            with self.lock:
                self.state.pull_back_times(now_s)
            self.reconciler.run(there, now_s)
            reports = self.engine.reports()
        except TrilithonError as error:
            blind = f"{error.code}: {error.message}"
            self._lost(error)
            wait_s = min(usual_s, BLIND_WAIT_S)
            self.last = Round(self.state.round, now_s, wait_s, (), (), blind, self._clock_step_s())
            return self.last
        # Reconciling may have taken long: the reports are of now.
        now_s = self._now_s()
        self._observe(reports, now_s)
        self.scene = scene = self._scene(capabilities, now_s)
        verdict = self._decide(scene)
        rulings = self._review(scene, verdict)
        planned = self._record(scene, verdict, rulings, now_s)
        whole = {ruling.decision.id for ruling in rulings if ruling.decision.on_demand}
        results = self.actions.run(planned, self.cluster.capabilities, now_s, whole)
        self._learn(now_s)
        self._keep(now_s)
        next_s = usual_s if verdict.next_round_s is None else max(0.1, verdict.next_round_s)
        self.freshness.wait_s = next_s
        step_s = self._clock_step_s()
        self.last = Round(self.state.round, now_s, next_s, rulings, results, "", step_s)
        return self.last

    def look(self) -> bool:
        """Takes over the conditions of the jobs, between two rounds. False if the engine is lost:
        then the next round must not wait.
        """
        try:
            conditions = self.engine.conditions()
        except HostUnreachable as error:
            self._lost(error)
            return False
        except TrilithonError:
            return True  # an engine of an older version cannot answer; the next round asks it all
        now_s = self._now_s()
        with self.lock:
            for name, condition in conditions.items():
                record = self.state.jobs.get(name)
                if record is None or not record.running or record.desired is not DesiredState.RUN:
                    continue
                follow(self.journal, name, record, condition, now_s)
                if condition.health is not Health.RUNNING:
                    self.freshness.distrust(name)
        return True

    def _lost(self, error: TrilithonError) -> None:
        """The engine does not answer: none of its jobs may be called running."""
        if not isinstance(error, HostUnreachable):
            return
        now_s = self._now_s()
        with self.lock:
            for name, record in self.state.jobs.items():
                if not record.running or record.desired is not DesiredState.RUN:
                    continue
                since_s = now_s
                if record.condition is not None and record.condition.cause is Cause.HOST:
                    since_s = record.condition.since_s or now_s
                lost = Condition(Health.DEGRADED, HOST_LOST, Cause.HOST, since_s)
                follow(self.journal, name, record, lost, now_s)

    # Observe.

    def _now_s(self) -> float:
        """The time. If the clock was set since the last call, all times that waits are counted from
        are set with it before: an hour that did not pass ends no cool-down, rolls back no version
        and is no outage of an hour.
        """
        now_s = self.clock.now_s()
        if not (by_s := self._clock_steps.by_s(now_s)):
            return now_s
        _log.warning("clock_set", by_s=round(by_s, 1), round=self.state.round)
        with self.lock:
            self.state.shift_times(by_s, now_s - by_s)
        self.expectations.shift_times(by_s)
        # What spans the step is no duration.
        self.costs.forget_all()
        self.guard.forget_wishes()
        self.freshness.clock_was_set(now_s)
        self._clock_set_by_s += by_s
        return now_s

    def _clock_step_s(self) -> float:
        """By how much the clock was set since the last call."""
        by_s, self._clock_set_by_s = self._clock_set_by_s, 0.0
        return by_s

    def _observe(self, reports: Sequence[Report], now_s: float) -> None:
        self.costs.take(reports)
        with self.lock:
            there = {
                name: (record.job, record.accepted)
                for name, record in self.state.jobs.items()
                if record.running and record.accepted is not None
            }
        if not self.freshness.look(there, reports, now_s):
            # An action that took long is no reason to forget what it cost.
            self.guard.forget_wishes()

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
        with self.lock:
            requests = tuple(state.requests)
        return Scene(state.round, series, statuses, self.cluster, feedback, requests=requests)

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
        verdict = self._calls.decide(scene, state)
        if (error := self._calls.error) is not None:
            failure = f"The policy {self.policy.name} failed: {type(error).__name__}: {error}"
            if failure != self._failure:
                self.journal.event("policy_failed", None, failure, scene.now_s)
                _log.error(
                    "policy_failed", policy=self.policy.name, round=scene.round, exc_info=error
                )
            self._failure = failure
            return verdict
        self._failure = ""
        if self.recorder is not None:
            try:
                self.recorder.write(scene, self.policy, state, verdict)
            except Exception as error:  # noqa: BLE001 - a full disk must not stop the loop
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
        claims = {}
        if isinstance(self.policy, LayeredPolicy):
            claims = {job: by for job, (by, _) in claims_of(verdict.state).items()}
        signs = self.freshness.signs(sorted(lowered))
        return self.guard.review(scene, verdict.decisions, jobs, signs, claims)

    # Record.

    def _record(
        self, scene: Scene, verdict: Verdict, rulings: tuple[Ruling, ...], now_s: float
    ) -> list[PlannedAction]:
        """Writes decisions and planned actions to the journal, before any action is done."""
        number = self.state.round
        fresh: list[Ruling] = []
        repeated: list[str] = []
        with self.lock:
            planner = Planner(scene, self.state.jobs)
            planned: list[PlannedAction] = []
            for ruling in rulings:
                with_cause = self._repeats.with_known_cause(ruling)
                if (first := self._repeats.first_of(ruling)) is not None:
                    repeated.append(first)
                    continue
                fresh.append(with_cause)
                planned += planner.plan(ruling)
            self._repeats.end_round(subjects(rulings), set(self.state.jobs))
            state, (before, at_s) = text(verdict.state), self._written
            closed = verdict.closed
            news = fresh or repeated or closed or state != before
            if news or not 0 <= now_s - at_s < WRITTEN_EVERY_S:
                try:
                    self.journal.round(
                        number,
                        self.policy.name,
                        verdict.state,
                        fresh,
                        planned,
                        now_s,
                        repeated,
                        closed,
                    )
                except BaseException:
                    # Nothing of this round counts: the journal has none of its decisions.
                    self._repeats = Repeats()
                    raise
                self._written = (state, now_s)
            self.state.policy_state = verdict.state
            ended = {request.id for request in closed}
            self.state.requests = [r for r in self.state.requests if r.id not in ended]
            for ruling in rulings:
                self.feedback.decided(ruling, number, now_s)
            for ruling in fresh:
                self.expectations.add(ruling)
            for action in planned:
                self._want(action)
        return planned

    def _want(self, planned: PlannedAction) -> None:
        if isinstance(planned.action, Reallocate):
            self.state.jobs[planned.action.job].wanted = planned.action.allocation

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
            if (assessment := self.assessment()) is not None:
                self.compact.write(assessment, now_s)
        if not 0 <= now_s - self._trimmed_s < TRIMMED_EVERY_S:
            self._trimmed_s = now_s
            self.journal.trim(now_s - limits.keep_series_s, now_s - limits.keep_history_s)

    def assessment(self) -> Assessment | None:
        """All measures of the last window, computed on demand, once per round."""
        series = self.freshness.observer.series
        if not series.snapshots:
            return None
        if self._assessed[0] != series.last.time_s:
            window = self.freshness.window()
            assessed = None if window is None else assess_latest(series, window)
            self._assessed = (series.last.time_s, assessed)
        return self._assessed[1]


def _lowers(change: ParallelismChange, status: JobStatus | None) -> bool:
    """Whether an operator would have fewer instances: only then the guard needs its load."""
    now = {} if status is None else status.allocation.parallelism
    return any(count < now.get(name, 0) for name, count in change.parallelism.items())


def _counts(record: JobRecord) -> bool:
    """Whether a job occupies its slots: it is about to start, or runs, even if it is to stop. One
    that failed gave them back.
    """
    if record.failed:
        return False
    return record.running or (record.desired is DesiredState.RUN and not record.tries)
