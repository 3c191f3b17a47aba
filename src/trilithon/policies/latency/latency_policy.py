"""Defines the policy `latency`: constraints on the latency of paths, kept with few instances.

Latency guarantees in Nephele (Lohrmann and others, ICDCS'15). Every adjustment interval the policy
measures the sequences of all constraints, predicts how long records would wait with other numbers
of instances, and takes the smallest numbers that keep all promises of a job.

After a scale-up it is inactive for two intervals, since new instances take a while to show in the
measurements. After a scale-down it is not (section V). The paper has one job. Here jobs are served
in the order of their priorities, which decides who gets scarce slots.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trilithon.measures.constraints import constraint_key
from trilithon.measures.group import sum_by_node
from trilithon.model.capability import Ability, Capabilities, How
from trilithon.model.change import Alert, BatchingChange, ParallelismChange
from trilithon.model.columns import Floats
from trilithon.model.intent import Constraint, EdgeName
from trilithon.model.mode import Mode
from trilithon.model.series import Window
from trilithon.model.utility import Sense
from trilithon.policies.decision import Decision, Expectation
from trilithon.policies.free_slots import FreeSlots
from trilithon.policies.latency import messages
from trilithon.policies.latency.assumptions import Evenness
from trilithon.policies.latency.latency_memory import SETTLING, LatencyMemory
from trilithon.policies.latency.latency_parameters import ADAPTIVE, LatencyParameters
from trilithon.policies.latency.measured_waiting import with_measured
from trilithon.policies.latency.output_batching import batching_limits_ms
from trilithon.policies.latency.predictions import (
    CheckedPrediction,
    check_predictions,
    kept_errors,
    mean_errors,
    predictions_of,
)
from trilithon.policies.latency.scaling import (
    JobPlan,
    SlotRoom,
    Technique,
    scale_reactively,
    within_room,
)
from trilithon.policies.latency.sequence import (
    ConstrainedSequence,
    GlobalSummary,
    path_text,
    sequences_of,
)
from trilithon.policies.policy import State, Verdict, decision_id
from trilithon.policies.scene import JobStatus, Scene


@dataclass(frozen=True)
class LatencyPolicy:
    """`latency`: the fewest instances with which all constraints of a job are predicted to hold."""

    parameters: LatencyParameters = field(default_factory=LatencyParameters)
    name: str = "latency"

    @property
    def lookback_s(self) -> float:
        return self.parameters.interval_s

    @property
    def feedback_rounds(self) -> int:
        """None: what was granted shows in the allocation."""
        return 0

    def decide(self, scene: Scene, state: State) -> Verdict:
        window = scene.series.window(self.parameters.interval_s)
        stored: Mapping[str, Any] = state.get("jobs", {})
        memories = {
            name: LatencyMemory.of(stored.get(name, {}))
            for name, job in scene.series.last.jobs.items()
            if name in scene.statuses and job.intent.constraints
        }
        decisions: list[Decision] = []
        slots = FreeSlots.of(scene)
        if window is not None and memories:
            observed = _Observed.of(window)
            for name in sorted(memories, key=lambda n: (-_priority(scene, n), n)):
                turn = _JobTurn(
                    scene, observed, scene.statuses[name], memories[name], self.parameters, slots
                )
                decisions += turn.decide()
        jobs = {name: memory.to_json() for name, memory in sorted(memories.items())}
        return Verdict(tuple(decisions), {**state, "jobs": jobs}, self.parameters.interval_s)

    def status(self, scene: Scene, state: State) -> Mapping[str, Any]:
        """Per job: its constraints as measured, checked predictions, and what is held why."""
        window = scene.series.window(self.parameters.interval_s)
        summary = None if window is None else GlobalSummary.of(window)
        stored: Mapping[str, Any] = state.get("jobs", {})
        adaptive = adapts_batching(scene.cluster.capabilities, self.parameters)
        jobs: dict[str, Any] = {}
        for name in sorted(stored):
            if name not in scene.statuses:
                continue
            memory = LatencyMemory.of(stored[name])
            sequences: tuple[ConstrainedSequence, ...] = ()
            if summary is not None and name in summary.window.jobs:
                sequences, _ = sequences_of(summary, scene.statuses[name])
            jobs[name] = {
                "constraints": [
                    _sequence_status(each, self.parameters, adaptive=adaptive) for each in sequences
                ],
                "checked_predictions": [each.to_json() for each in memory.checked],
                "scale_downs_held": sorted(memory.held),
                "inactive_until_s": memory.inactive_until_s(self.parameters),
            }
        return {"jobs": jobs}


@dataclass(frozen=True, eq=False)
class _Observed:
    """What a round computes once for all jobs."""

    summary: GlobalSummary
    service_times: Evenness
    loads: Evenness
    taken: Floats

    @classmethod
    def of(cls, window: Window) -> "_Observed":
        return cls(
            GlobalSummary.of(window),
            Evenness.of_service_times(window),
            Evenness.of_load(window),
            sum_by_node(window.layout, window.instances.taken),
        )


def _slot_room(slots: FreeSlots, status: JobStatus, max_instances: int | None) -> SlotRoom:
    """What the job may get, and the limit that leaves it the least."""
    rooms = [
        SlotRoom(slots.cluster, "the cluster has no more free slots"),
        SlotRoom(slots.of_tenant(status.tenant), "the tenant's quota is used up"),
    ]
    if max_instances is not None:
        left = max(0, max_instances - status.allocation.instances)
        rooms.append(SlotRoom(left, f"the job may have {max_instances} instances"))
    return min(rooms, key=lambda room: room.count)


@dataclass
class _JobTurn:
    """One round of one job."""

    scene: Scene
    observed: _Observed
    status: JobStatus
    memory: LatencyMemory
    parameters: LatencyParameters
    slots: FreeSlots
    _ordinal: int = 0

    def decide(self) -> Iterator[Decision]:
        self.memory.see(self.status, self.scene.now_s)
        if not self._ready():
            return
        sequences, missing = sequences_of(self.observed.summary, self.status)
        checked = self._check(sequences)
        if checked:
            yield self._checked_decision(checked)
        limits_ms = self._batching_limits(sequences, missing)
        if self.scene.now_s < self.memory.inactive_until_s(self.parameters):
            # Batching is adapted by others than the elastic scaler, which alone is inactive (V).
            yield from self._batching_decision(limits_ms)
            return
        keep = {name for constraint in missing for name in constraint.operators}
        now = self.status.allocation.parallelism
        plan = scale_reactively(
            sequences,
            keep,
            now,
            self.parameters,
            adaptive=self._adaptive,
            measured=self.memory.measured,
        )
        plan = self._with_held_scale_downs(plan)
        job = self.observed.summary.window.jobs[self.status.job]
        room = _slot_room(self.slots, self.status, job.bounds.max_instances)
        limited = within_room(plan, room)
        changed = {name: n for name, n in limited.wanted.items() if n != now[name]}
        alerts = self._fresh_alerts(self._alerts(plan, missing, limited.short, room))
        if changed:
            decision = self._scaling_decision(plan, changed, limits_ms)
            self.memory.pending += predictions_of(
                plan.sequences, changed, decision.id, self.scene.now_s
            )
            self.memory.last = decision.id
            yield decision
        else:
            yield from self._batching_decision(limits_ms)
        if self.status.open:
            raised = (max(0, count - now[name]) for name, count in changed.items())
            self.slots.take(self.status.tenant, sum(raised))
        for alert in alerts:
            yield self._alert_decision(alert)

    def _ready(self) -> bool:
        """Whether the guard would act on the job, and the window is of its present allocation."""
        status, window = self.status, self.observed.summary.window
        if status.mode is Mode.OFF or status.in_flight or status.hold_reason:
            return False
        if status.job not in window.jobs or status.job not in window.layout.job_row:
            return False
        settling_s = SETTLING * self.parameters.interval_s
        if status.changed_s is not None and window.start_s + settling_s < status.changed_s:
            return False
        return all(
            window.layout.parallelism[node] == count
            for name, count in status.allocation.parallelism.items()
            if (node := window.layout.node_row.get((status.job, name))) is not None
        )

    @property
    def _adaptive(self) -> bool:
        return adapts_batching(self.scene.cluster.capabilities, self.parameters)

    def _batching_limits(
        self, sequences: Sequence[ConstrainedSequence], missing: Sequence[Constraint]
    ) -> dict[EdgeName, float]:
        """The batching limits that change, in ms. A promise that is not measured still counts: the
        limits of its edges do not rise.
        """
        now_ms, parameters = self.status.allocation.batching_ms, self.parameters
        if self._adaptive:
            limits_ms = batching_limits_ms(sequences, now_ms, parameters.waiting_share)
        elif self._batches_at_boundaries:
            share = parameters.waiting_share_alone
            limits_ms = batching_limits_ms(sequences, now_ms, share, live=False)
        else:
            return {}
        unmeasured = {part for each in missing for part in each.sequence}
        return {
            edge: ms
            for edge, ms in limits_ms.items()
            if edge not in unmeasured or ms < now_ms.get(edge, 0.0)
        }

    @property
    def _batches_at_boundaries(self) -> bool:
        how = self.scene.cluster.capabilities.of(Ability.BATCHING)
        return how is How.AT_BOUNDARY and self.parameters.batching == ADAPTIVE

    # The honesty of the model.

    def _check(self, sequences: Sequence[ConstrainedSequence]) -> list[CheckedPrediction]:
        now_s, memory = self.scene.now_s, self.memory
        if now_s < memory.inactive_until_s(self.parameters):
            return []
        give_up_s = 10 * self.parameters.interval_s
        memory.pending, checked = check_predictions(
            memory.pending, sequences, now_s, give_up_s, self.parameters.bottleneck
        )
        memory.measured = with_measured(
            memory.measured,
            sequences,
            now_s,
            self.parameters.waiting_keep_s,
            self.parameters.bottleneck,
        )
        memory.checked = kept_errors(memory.checked, checked, now_s, self.parameters.error_keep_s)
        return checked

    def _with_held_scale_downs(self, plan: JobPlan) -> JobPlan:
        """The plan without scale-downs in sequences whose waiting the model underestimates."""
        errors = self._errors()
        held = {
            o.name
            for each in plan.sequences
            if any(o.name in errors for o in each.sequence.operators)
            for o in each.sequence.operators
        }
        wanted = {
            name: max(count, plan.now[name]) if name in held else count
            for name, count in plan.wanted.items()
        }
        self.memory.held = sorted(
            name for name, count in plan.wanted.items() if count < wanted[name]
        )
        return replace(plan, wanted=wanted)

    def _errors(self) -> dict[str, float]:
        """The operators whose mean error is above the bound."""
        bound = self.parameters.error_bound
        return {
            name: error for name, error in mean_errors(self.memory.checked).items() if error > bound
        }

    # What people should know.

    def _alerts(
        self,
        plan: JobPlan,
        missing: Sequence[Constraint],
        short: Mapping[str, int],
        room: SlotRoom,
    ) -> Iterator[tuple[str, Alert]]:
        """What is to be told, each with what it is about: an operator, a path, or the job."""
        job = self.status.job
        operators = {o.name: o for each in plan.sequences for o in each.sequence.operators}
        for each in plan.sequences:
            path = str(each.sequence)
            for operator in each.bottlenecks:
                if operator.instances >= operator.most:
                    yield operator.name, messages.unresolvable(job, operator)
            if each.technique is Technique.INFEASIBLE:
                yield path, messages.infeasible(job, each.sequence, each.waiting_limit_s)
            if each.technique is Technique.OUT_OF_REACH:
                yield path, messages.out_of_reach(job, each.sequence)
        if short:
            yield job, messages.slots_short(job, short, room)
        for constraint in missing:
            if not self._idle(constraint):
                yield path_text(constraint), messages.not_measured(job, constraint)
        for name, operator in operators.items():
            if operator.fixed:
                yield name, messages.not_elastic(job, name)
            if slow := self.observed.service_times.uneven(job, name, self.parameters.uneven):
                yield name, messages.unequal(job, name, slow)
            if loaded := self.observed.loads.uneven(job, name, self.parameters.uneven):
                yield name, messages.uneven(job, name, loaded)
        if self.memory.held:
            yield job, messages.model_error(job, self._errors(), self.memory.held)

    def _idle(self, constraint: Constraint) -> bool:
        """Whether an operator of a sequence took no record: then there is nothing to measure."""
        node_row, taken = self.observed.summary.window.layout.node_row, self.observed.taken
        rows = (node_row.get((self.status.job, name)) for name in constraint.operators)
        return any(row is not None and taken[row] == 0 for row in rows)

    def _fresh_alerts(self, alerts: Iterator[tuple[str, Alert]]) -> list[Alert]:
        """The alerts that were not raised lately. One that ended and begins again waits for its
        time, too: at the edge of a bound it would be raised in every other round.
        """
        now_s, again_s = self.scene.now_s, self.parameters.alert_again_s
        raised = {key: at_s for key, at_s in self.memory.alerts.items() if now_s - at_s < again_s}
        fresh: dict[str, Alert] = {}
        for subject, alert in alerts:
            key = f"{alert.code} {subject}"
            if key not in raised:
                fresh.setdefault(key, alert)
        self.memory.alerts = raised | dict.fromkeys(fresh, now_s)
        return list(fresh.values())

    # Decisions.

    def _id(self) -> str:
        ordinal, self._ordinal = self._ordinal, self._ordinal + 1
        return decision_id(self.scene, self.status.job, ordinal)

    def _causes(self) -> tuple[str, ...]:
        return (self.memory.last,) if self.memory.last else ()

    def _batching_decision(self, limits_ms: Mapping[EdgeName, float]) -> Iterator[Decision]:
        """Batching by itself; none if no limit changes."""
        if limits_ms:
            yield Decision(
                id=self._id(),
                job=self.status.job,
                changes=(BatchingChange(self.status.job, limits_ms),),
                reason=messages.BATCHING,
                sentence=f"{messages.batching_text(limits_ms)}.",
                numbers={f"{edge}.gathers_ms": ms for edge, ms in limits_ms.items()},
                causes=self._causes(),
            )

    def _scaling_decision(
        self, plan: JobPlan, changed: Mapping[str, int], limits_ms: Mapping[EdgeName, float]
    ) -> Decision:
        now = plan.now
        grows = any(count > now[name] for name, count in changed.items())
        bottleneck = any(each.bottlenecks for each in plan.sequences)
        reason = messages.SCALE_UP if grows else messages.SCALE_DOWN
        if grows and bottleneck:
            reason = messages.BOTTLENECK
        touched = [
            each
            for each in plan.sequences
            if any(o.name in changed for o in each.sequence.operators)
        ]
        counts = {**now, **changed}
        tightest = min(touched, key=lambda each: each.sequence.limit_s - each.sequence.measured_s)
        sentence = f"{messages.plan_text(tightest, counts)}: {messages.steps_text(now, changed)}."
        by_s = self.scene.now_s + (self.parameters.inactive + 1) * self.parameters.interval_s
        kept = tightest.technique is Technique.REBALANCE
        batching = (BatchingChange(self.status.job, limits_ms),) if limits_ms else ()
        return Decision(
            id=self._id(),
            job=self.status.job,
            changes=(ParallelismChange(self.status.job, changed), *batching),
            reason=reason,
            sentence=sentence,
            numbers=messages.numbers_of(plan, counts),
            causes=self._causes(),
            expects=Expectation(
                constraint_key(tightest.sequence.number),
                tightest.sequence.constraint.mean_latency_ms,
                by_s,
                Sense.AT_MOST,
            )
            if kept
            else None,
        )

    def _checked_decision(self, checked: Sequence[CheckedPrediction]) -> Decision:
        numbers: dict[str, float | None] = {}
        for each in checked:
            numbers |= {
                f"{each.operator}.instances": each.instances,
                f"{each.operator}.predicted_waiting_ms": 1000 * each.predicted_s,
                f"{each.operator}.predicted_for_load_ms": 1000 * each.for_load_s,
                f"{each.operator}.measured_waiting_ms": 1000 * each.measured_s,
                f"{each.operator}.error": each.error,
            }
        return Decision(
            id=self._id(),
            job=self.status.job,
            changes=(),
            reason=messages.PREDICTION,
            sentence=f"{'; '.join(map(str, checked))}.",
            numbers=numbers,
            causes=tuple(dict.fromkeys(each.decision for each in checked)),
        )

    def _alert_decision(self, alert: Alert) -> Decision:
        return Decision(
            id=self._id(),
            job=self.status.job,
            changes=(alert,),
            reason=alert.code,
            sentence=alert.sentence,
            causes=self._causes(),
        )


def adapts_batching(capabilities: Capabilities, parameters: LatencyParameters) -> bool:
    """Whether the policy can shorten batching at once where waiting needs more room."""
    live = capabilities.of(Ability.BATCHING) is How.LIVE
    return live and parameters.batching == ADAPTIVE


def _priority(scene: Scene, job: str) -> float:
    return scene.series.last.jobs[job].intent.priority


def _sequence_status(
    sequence: ConstrainedSequence, parameters: LatencyParameters, *, adaptive: bool
) -> dict[str, Any]:
    share = parameters.waiting_share if adaptive else parameters.waiting_share_alone
    return {
        "sequence": [str(part) for part in sequence.constraint.sequence],
        "mean_ms": 1000 * sequence.measured_s,
        "at_most_ms": 1000 * sequence.limit_s,
        "waiting_limit_ms": 1000 * sequence.waiting_limit_s(share, adaptive=adaptive),
        "operators": {
            o.name: {
                "instances": o.instances,
                "utilisation": o.utilisation,
                "waiting_ms": 1000 * o.waiting_s,
                "e": o.coefficient,
            }
            for o in sequence.operators
        },
    }
