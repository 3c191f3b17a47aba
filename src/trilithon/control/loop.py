"""Owns the round: reconcile, observe, decide, guard, record, act. Level-triggered and safe to be killed.

Nothing here is remembered that the journal does not have, but for what is measured and for how long it was
fine: after a crash that begins anew, and until there is enough of it nothing is changed.
"""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Protocol

from trilithon import logs
from trilithon.contract.engine import Engine
from trilithon.control.clock import Clock
from trilithon.control.compact import CompactSeries
from trilithon.control.cost import Costs, learned
from trilithon.control.encoding import ability_of, text
from trilithon.control.expectations import Expectations
from trilithon.control.guard import Guard, Ruling
from trilithon.control.journal import ActionResult, Journal, PlannedAction
from trilithon.control.observe import Observer
from trilithon.control.reconcile import HEALTHY, LONGEST_WAIT_S, Reconciler, told
from trilithon.control.rows import DesiredState, SpecStatus
from trilithon.control.rules import Rules
from trilithon.control.state import ControllerState, JobRecord, load
from trilithon.errors import TrilithonError
from trilithon.measures.assess import Assessment, assess
from trilithon.model.action import Outcome, Reallocate, Status
from trilithon.model.capability import Capabilities
from trilithon.model.series import Series
from trilithon.policies.policy import Decision, Policy, State, Verdict
from trilithon.policies.scene import Cluster, JobStatus, Mode, Scene

# Even if nothing happens the round is written now and then, so that one sees when the loop last ran.
WRITTEN_EVERY_S: Final = 60.0
TRIMMED_EVERY_S: Final = 600.0
_log = logs.logger()


class RoundRecorder(Protocol):
    def write(self, scene: Scene, policy: Policy, state: State, verdict: Verdict) -> None:
        """Keeps a round, so that it can be decided again."""


@dataclass(frozen=True, slots=True)
class Round:
    """What a round did, for whoever waits for the next one."""

    number: int
    time_s: float
    next_s: float
    rulings: tuple[Ruling, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    # Why nothing could be seen: the engine does not answer.
    blind: str = ""


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
        self.books: ControllerState = load(self.journal)
        if self.books.policy != self.policy.name:
            # What another policy remembers means nothing to this one.
            self.books.policy, self.books.state = self.policy.name, {"seed": self.rules.seed}
        self.guard = Guard(self.rules)
        self.observer = Observer(limits, self.policy.lookback_s)
        self.costs = Costs(limits.watch_s)
        self.compact = CompactSeries(self.journal)
        self.expectations = Expectations(self.journal)
        self.reconciler = Reconciler(
            self.engine,
            self.journal,
            self.books,
            self.rules,
            self.observer,
            self.costs,
            self.lock,
            self.clock,
        )
        self.cluster = Cluster(Capabilities({}))
        self.last: Round | None = None
        # What the last round saw, for whoever asks in between.
        self.scene: Scene | None = None
        self._assessed: tuple[float, Assessment | None] = (0.0, None)
        self._repeats: dict[str, tuple[str, str]] = {}
        self._alias: dict[str, str] = {}
        self._written = (text(self.books.state), 0.0)
        self._series_s = self._trimmed_s = 0.0
        self._failure = ""

    def round(self) -> Round:
        """One turn. An engine that does not answer is asked again in the next one."""
        now_s = self.clock.now_s()
        usual_s = self.rules.limits.round_s
        self.books.round += 1
        try:
            there = self.engine.jobs()
            capabilities = self.engine.capabilities()
            self._keep_up_with(now_s)
            self.reconciler.run(there, now_s)
            reports = self.engine.reports()
        except TrilithonError as error:
            self.last = Round(
                self.books.round, now_s, usual_s, blind=f"{error.code}: {error.message}"
            )
            return self.last
        # Starting a job may have taken long: what was reported is of now.
        now_s = self.clock.now_s()
        self._observe(reports, now_s)
        self.scene = scene = self._scene(capabilities, now_s)
        verdict = self._decide(scene)
        rulings = self._review(scene, verdict.decisions)
        steps = self._record(verdict, rulings, now_s)
        outcomes = self._act(steps, now_s)
        self._learn(now_s)
        self._keep(now_s)
        next_s = usual_s if verdict.next_round_s is None else max(0.1, verdict.next_round_s)
        self.observer.wait_s = next_s
        self.last = Round(self.books.round, now_s, next_s, rulings, outcomes)
        return self.last

    # Observe.

    def _keep_up_with(self, now_s: float) -> None:
        """A clock that was set back must not leave times in the future behind, which would hold for
        as long as it jumped.
        """
        with self.lock:
            jobs = list(self.books.jobs.values())
        for record in jobs:
            if record.changed_s is not None and record.changed_s > now_s:
                record.changed_s = now_s
            for name in ("started_s", "healthy_since_s"):
                at_s = getattr(record, name)
                if at_s is not None and at_s > now_s:
                    setattr(record, name, now_s)

    def _observe(self, reports: Iterable[Any], now_s: float) -> None:
        found = list(reports)
        self.costs.take(found)
        with self.lock:
            there = {
                name: (record.job, record.accepted)
                for name, record in self.books.jobs.items()
                if record.running and record.accepted is not None
            }
        self.observer.expect(there)
        self.observer.look(found, now_s)

    def _scene(self, capabilities: Capabilities, now_s: float) -> Scene:
        with self.lock:
            statuses = {
                name: self._standing(name, record, capabilities, now_s)
                for name, record in self.books.jobs.items()
                if record.running
                and record.wish is DesiredState.RUN
                and record.accepted is not None
            }
            counted = {name: record for name, record in self.books.jobs.items() if _counts(record)}
            unseen: dict[str, int] = {}
            for name in counted.keys() - statuses.keys():
                tenant, wanted = counted[name].job.tenant, counted[name].wanted
                unseen[tenant] = unseen.get(tenant, 0) + wanted.instances
            self.cluster = Cluster(
                capabilities,
                capabilities.slots,
                sum(record.wanted.instances for record in counted.values()),
                self.rules.quotas,
                self.observer.series.last.layout.machines,
                dict(sorted(unseen.items())),
                self.rules.limits.down_delay_s,
            )
        series = Series(self.observer.series.snapshots, self.policy.lookback_s)
        return Scene(self.books.round, series, statuses, self.cluster)

    def _standing(
        self, name: str, record: JobRecord, capabilities: Capabilities, now_s: float
    ) -> JobStatus:
        engine = capabilities.fixed.get(name, ())
        standing = JobStatus(
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
        why = why or self.observer.distrusted(name, now_s) or self.guard.hold(standing, now_s)
        if not why and now_s < record.refused_until_s <= now_s + LONGEST_WAIT_S:
            why = "REFUSED_LATELY"
        return replace(standing, hold_reason=why) if why else standing

    # Decide and guard.

    def _decide(self, scene: Scene) -> Verdict:
        state = self.books.state
        try:
            verdict = self.policy.decide(scene, state)
        except Exception as error:  # noqa: BLE001 - whatever a policy throws, the jobs are looked after
            told_ = f"The policy {self.policy.name} failed: {type(error).__name__}: {error}"
            if told_ != self._failure:
                self.journal.event("policy_failed", None, told_, scene.now_s)
                _log.exception("policy_failed", policy=self.policy.name, round=scene.round)
            self._failure = told_
            return Verdict((), state)
        self._failure = ""
        if self.recorder is not None:
            try:
                self.recorder.write(scene, self.policy, state, verdict)
            except Exception as error:  # noqa: BLE001 - a full disk must not keep jobs from being helped
                told_ = f"The run is not recorded any more: {type(error).__name__}: {error}"
                self.journal.event("recording_stopped", None, told_, scene.now_s)
                _log.exception("recording_stopped", round=scene.round)
                self.recorder = None
        return verdict

    def _review(self, scene: Scene, decisions: tuple[Decision, ...]) -> tuple[Ruling, ...]:
        lowered = {
            action.job
            for decision in decisions
            for action in decision.actions
            if isinstance(action, Reallocate) and _lowers(action, scene.statuses.get(action.job))
        }
        with self.lock:
            jobs = {name: record.job for name, record in self.books.jobs.items()}
        return self.guard.review(scene, decisions, jobs, self.observer.signs(sorted(lowered)))

    # Record, then act.

    def _record(
        self, verdict: Verdict, rulings: tuple[Ruling, ...], now_s: float
    ) -> list[PlannedAction]:
        """Everything that will be done, in the journal before any of it is done."""
        fresh: list[Ruling] = []
        repeated: list[str] = []
        with self.lock:
            steps: list[PlannedAction] = []
            for ruling in rulings:
                first = self._alias.get(ruling.decision.job or "")
                if (known := self._known(ruling)) is not None:
                    repeated.append(known)
                    continue
                fresh.append(_with_cause(ruling, first))
                steps += self._steps(ruling)
            told_ = {ruling.decision.job for ruling in rulings}
            self._repeats = {k: v for k, v in self._repeats.items() if k in told_ or not k}
            self._alias = {k: v for k, v in self._alias.items() if not k or k in self.books.jobs}
            state, (before, at_s) = text(verdict.state), self._written
            self.books.state = verdict.state
            if fresh or repeated or state != before or not 0 <= now_s - at_s < WRITTEN_EVERY_S:
                number = self.books.round
                self.journal.round(
                    number, self.policy.name, verdict.state, fresh, steps, now_s, repeated
                )
                self._written = (state, now_s)
            for ruling in fresh:
                self.expectations.add(ruling)
            for step in steps:
                if isinstance(step.action, Reallocate):
                    self.books.jobs[step.action.job].wanted = step.action.allocation
        return steps

    def _steps(self, ruling: Ruling) -> list[PlannedAction]:
        steps = []
        for i, action in enumerate(ruling.granted):
            step_id, spec = f"{ruling.decision.id}#{i}", None
            if isinstance(action, Reallocate):
                record = self.books.jobs.get(action.job)
                if record is None or record.wish is not DesiredState.RUN:
                    continue
                # Its owner gave it another shape or another mode a moment ago: what was decided was about another.
                decided_on = action.allocation.generation - 1
                if record.wanted.generation != decided_on or record.mode is not Mode.AUTO:
                    continue
                numbered = replace(action.allocation, generation=record.next_generation())
                action, spec = Reallocate(numbered), record.version.generation  # noqa: PLW2901
            elif (job := getattr(action, "job", None)) is not None and job not in self.books.jobs:
                continue
            steps.append(PlannedAction(step_id, ruling.decision.id, action, spec))
        return steps

    def _known(self, ruling: Ruling) -> str | None:
        """The id of the decision that this one only repeats, with the same answer."""
        decision = ruling.decision
        where = decision.job or ""
        asked = [
            dict(action.allocation.parallelism) if isinstance(action, Reallocate) else repr(action)
            for action in decision.actions
        ]
        # About the whole cluster, the same reason with other words is other news.
        news = "" if decision.job else decision.sentence
        key = text([decision.reason, asked, sorted({clip.code for clip in ruling.clips}), news])
        before = self._repeats.get(where)
        if not ruling.granted and before is not None and before[0] == key:
            self._alias[where] = before[1]
            return before[1]
        self._repeats[where] = (key, decision.id)
        self._alias.pop(where, None)
        return None

    def _act(self, steps: Sequence[PlannedAction], now_s: float) -> tuple[Outcome, ...]:
        """Tells the engine. What came of wanted state is written once for all of it: after a crash the
        next round would find it out. One-shot actions are marked before and after, one by one.
        """
        done: list[ActionResult] = []
        for step in steps:
            action = step.action
            if isinstance(action, Reallocate):
                done.append(
                    self._done(step, told("reallocate", partial(self.engine.apply, action)))
                )
                continue
            self.journal.start(step.id, now_s)
            one = self._done(step, told("one_shot", partial(self.engine.apply, action)))
            self.journal.end([one])
            done.append(one)
        # Nobody knows of some: the next round finds out, and brings them about if they were not.
        known = [one for one in done if isinstance(one.step.action, Reallocate) and one.standing]
        if known:
            self.journal.end(known)
        for one in done:
            self._take_over(one)
        return tuple(one.outcome for one in done)

    def _done(self, step: PlannedAction, outcome: Outcome) -> ActionResult:
        standing = _standing_after(outcome) if isinstance(step.action, Reallocate) else None
        return ActionResult(step, outcome, standing, self.clock.now_s())

    def _take_over(self, done: ActionResult) -> None:
        """What came of an action, in the books."""
        action, job = done.step.action, getattr(done.step.action, "job", None)
        with self.lock:
            record = self.books.jobs.get(job) if job is not None else None
            if record is None:
                return
            if isinstance(action, Reallocate):
                if done.standing is SpecStatus.ACCEPTED:
                    record.accepted, record.refusals = action.allocation, 0
                elif done.standing is SpecStatus.REFUSED:
                    if record.wanted is action.allocation and record.accepted is not None:
                        record.wanted = record.accepted
                    record.refused(done.ended_s, self.rules.limits.cool_down_s)
                    return
                else:
                    return
            record.changed_s = done.ended_s
        if done.outcome.status is Status.DONE:
            self.costs.began(record.job.id, ability_of(action), done.ended_s)

    # Learn and keep.

    def _learn(self, now_s: float) -> None:
        for gap in self.costs.ended(now_s):
            record = self.books.jobs.get(gap.job)
            if record is not None:
                record.gap_s[gap.ability] = learned(record.gap_s.get(gap.ability), gap.seconds)
                self.journal.cost(gap.job, gap.ability, *record.gap_s[gap.ability])
        self.expectations.check(self.observer.window, now_s)

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
        series = self.observer.series
        if not series.snapshots:
            return None
        if self._assessed[0] != series.last.time_s:
            window = self.observer.window()
            self._assessed = (series.last.time_s, None if window is None else assess(window))
        return self._assessed[1]


def _with_cause(ruling: Ruling, first: str | None) -> Ruling:
    """Causes by the ids that the journal has: of decisions that were repeated, the first."""
    decision = ruling.decision
    if first is None or not decision.causes:
        return ruling
    return replace(ruling, decision=replace(decision, causes=(first,)))


def _lowers(action: Reallocate, standing: JobStatus | None) -> bool:
    """Whether an operator would have fewer instances: only then the guard looks at how busy it is."""
    now = {} if standing is None else standing.allocation.parallelism
    return any(count < now.get(name, 0) for name, count in action.allocation.parallelism.items())


def _counts(record: JobRecord) -> bool:
    """Whether a job's slots are taken: it runs, or is about to."""
    return record.wish is DesiredState.RUN and (record.running or not record.tries)


def _standing_after(outcome: Outcome) -> SpecStatus | None:
    if outcome.status in {Status.DONE, Status.UNCHANGED}:
        return SpecStatus.ACCEPTED
    return None if outcome.status is Status.UNKNOWN else SpecStatus.REFUSED
