"""Decides as Stela: carries out what people ask for, one request at a time, and nothing else.

A scale-out asks for the machines that are missing, waits until they are seen, and then changes all
jobs in one decision: that is the commit point. A scale-in moves instances and removes machines in
one decision. Every step looks at the cluster as it is, so that a request goes on after a failure
wherever it was: before the commit nothing but empty machines has changed, after it the controller
brings the engine to what is wanted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from trilithon.model.change import (
    Change,
    MachinesAddition,
    MachinesRemoval,
    ParallelismChange,
    PlacementChange,
)
from trilithon.model.utility import Sense
from trilithon.policies.decision import Claim, Decision, Expectation
from trilithon.policies.feedback import Feedback
from trilithon.policies.policy import State, Verdict, decision_id
from trilithon.policies.requests import ClosedRequest, ScalingKind, ScalingRequest
from trilithon.policies.scene import Scene
from trilithon.policies.stela import messages, planning
from trilithon.policies.stela.known_machines import KnownMachines
from trilithon.policies.stela.planning import Hindrance, jobs_of, make_plan, new_machines, view_of
from trilithon.policies.stela.predictions import KeptPrediction, changed_since, realised_per_s
from trilithon.policies.stela.stela_parameters import StelaParameters

THROUGHPUT: Final = "throughput"
# How many actions are remembered with what was predicted and measured.
REMEMBERED: Final = 20
_FEEDBACK_ROUNDS: Final = 120
# How often a removal is repeated whose outcome was lost in a crash.
_MOST_TRIES: Final = 3
# One-shot actions that are known not to have begun.
_LAPSED: Final = "LAPSED"


@dataclass
class _Progress:
    """How far a request is, as JSON in the state."""

    request: str
    phase: str = "planning"  # planning, adding, committed
    decision: str = ""
    since_s: float = 0.0
    machines: list[str] = field(default_factory=list)
    # The new machines that get instances.
    used: list[str] = field(default_factory=list)
    # The machines that were there when others were asked for.
    known: list[str] = field(default_factory=list)
    # Since when all of those that were asked for are there.
    joined_s: float | None = None
    before: float | None = None
    predicted: float | None = None
    jobs: list[str] = field(default_factory=list)
    tries: int = 0


@dataclass(frozen=True)
class StelaPolicy:
    parameters: StelaParameters = field(default_factory=StelaParameters)

    @property
    def name(self) -> str:
        return "stela"

    @property
    def lookback_s(self) -> float:
        return 2 * self.parameters.window_s

    @property
    def feedback_rounds(self) -> int:
        return _FEEDBACK_ROUNDS

    def decide(self, scene: Scene, state: State) -> Verdict:
        turn = _Turn(scene, self.parameters, state)
        turn.observe_machines()
        turn.check_predictions()
        if (request := next(iter(scene.requests), None)) is not None:
            turn.advance(request)
        return turn.verdict()

    def newer_machines(self, scene: Scene, state: State) -> tuple[str, ...]:
        """The machines that have come since the last action: new ones for the next scale-out."""
        return KnownMachines.of(state).newer(scene)

    def status(self, scene: Scene, state: State) -> Mapping[str, Any]:
        """The request that is being carried out, and predicted against measured throughput."""
        progress = state.get("progress")
        return {
            "waiting": [request.id for request in scene.requests],
            "request": None if progress is None else progress["request"],
            "phase": None if progress is None else progress["phase"],
            "hindrance": state.get("hindrance", ""),
            "actions": list(state.get("actions", ())),
        }


class _Turn:
    """One round of the policy."""

    def __init__(self, scene: Scene, parameters: StelaParameters, state: State) -> None:
        self.scene, self.parameters, self.state = scene, parameters, state
        kept = state.get("progress")
        self.progress = None if kept is None else _Progress(**kept)
        self.known = KnownMachines.of(state)
        self.unchecked = [dict(item) for item in state.get("unchecked", ())]
        self.actions = [dict(item) for item in state.get("actions", ())]
        self.hindrance = ""
        self.decisions: list[Decision] = []
        self.closed: list[ClosedRequest] = []
        self.claims: tuple[Claim, ...] = ()

    def verdict(self) -> Verdict:
        progress = None if self.progress is None else vars(self.progress)
        state = {
            **self.state,
            "progress": progress,
            "unchecked": self.unchecked,
            "actions": self.actions[-REMEMBERED:],
            "hindrance": self.hindrance,
            **self.known.to_state(),
        }
        return Verdict(tuple(self.decisions), state, claims=self.claims, closed=tuple(self.closed))

    def observe_machines(self) -> None:
        leaving = self.progress.machines if self.progress is not None else ()
        window_s, patience_s = self.parameters.window_s, self.parameters.patience_s
        self.known.observe(self.scene, window_s, patience_s, leaving)

    # One request.

    def advance(self, request: ScalingRequest) -> None:
        if self.progress is None or self.progress.request != request.id:
            self.progress = _Progress(request.id, since_s=self.scene.now_s)
        if self.progress.phase == "committed":
            self._see_outcome(request, self.progress)
            return
        newer = self._newer(self.progress)
        hindered = planning.hindrance(self.scene, request, self.parameters, newer)
        if hindered is not None and (not hindered.passes or self._late(self.progress)):
            self._give_up(request, hindered)
        elif hindered is not None:
            self.hindrance = f"{hindered.code}: {hindered.sentence}"
            self._claim(request)
        elif request.kind is ScalingKind.OUT and self._missing(request, self.progress):
            self.progress.joined_s = None
            self._add_machines(request, self.progress)
        elif not self._calm(self.progress):
            self.hindrance = (
                "CALM: new machines are there, and measurements since then are awaited."
            )
            self._claim(request)
        else:
            self._commit(request, self.progress)

    def _late(self, progress: _Progress) -> bool:
        return self.scene.now_s - progress.since_s > self.parameters.patience_s

    def _calm(self, progress: _Progress) -> bool:
        """Whether machines that were started have been there for long enough: measurements of the
        time before may be those of a disturbed cluster.
        """
        if progress.phase != "adding":
            return True
        if progress.joined_s is None:
            progress.joined_s = self.scene.now_s
        return self.scene.now_s - progress.joined_s >= self.parameters.calm_s

    def _missing(self, request: ScalingRequest, progress: _Progress) -> int:
        return new_machines(self.scene, request, self._newer(progress))[1]

    def _newer(self, progress: _Progress) -> tuple[str, ...]:
        """The machines that have come since the last action, or since this request asked for
        some.
        """
        newer = set(self.known.newer(self.scene))
        if progress.known:
            newer |= set(self.scene.machine_names) - set(progress.known)
        return tuple(name for name in self.scene.machine_names if name in newer)

    def _add_machines(self, request: ScalingRequest, progress: _Progress) -> None:
        """Asks for the machines that are missing, once; then waits until they are seen. An action
        that is known not to have begun is asked for again.
        """
        missing = self._missing(request, progress)
        feedback = self.scene.feedback.get(progress.decision) if progress.decision else None
        if progress.phase == "adding" and feedback is not None and not _never_begun(feedback):
            if not feedback.applied and not feedback.pending:
                self._end(request, done=False, message=f"No machine was added: {_why(feedback)}.")
            elif self._late(progress):
                message = f"{messages.machines(missing)} did not come within the time allowed."
                self._end(request, done=False, message=message)
            else:
                self._claim(request)
            return
        sentence = f"Requested: {messages.machines(request.machines)} more; {missing} to add."
        decision = self._decision(
            (MachinesAddition(missing),), messages.MACHINES_WANTED, sentence, {}, None
        )
        progress.phase, progress.decision = "adding", decision.id
        progress.known = sorted(self.scene.machine_names)
        progress.since_s = self.scene.now_s
        self._claim(request)

    def _commit(self, request: ScalingRequest, progress: _Progress) -> None:
        view = view_of(self.scene, request, self.parameters, self._newer(progress))
        plan = make_plan(view, request, int(self.state.get("seed", 0)))
        if (hindered := planning.tasks_hindrance(self.scene, plan.removed)) is not None:
            self._give_up(request, hindered)
            return
        if not plan.changes:
            self._end(request, done=True, message="Nothing has to change.")
            return
        strategy = self.parameters.strategy
        sentence = messages.plan_sentence(request, plan, strategy)
        numbers: dict[str, float | None] = {
            "throughput_per_s": plan.throughput,
            "predicted_per_s": plan.projected,
        }
        for number, step in enumerate(plan.steps, 1):
            measure, value = step.measure, step.value
            if step.instead_of is not None:
                measure, value = "projected", step.projected
            numbers[f"{number}. {step.subject} {measure}"] = value
        expects = None
        if plan.projected is not None:
            by_s = self.scene.now_s + self.parameters.settle_s
            expects = Expectation(THROUGHPUT, plan.projected, by_s, Sense.AT_LEAST)
        reason = messages.SCALE_OUT if request.kind is ScalingKind.OUT else messages.SCALE_IN
        causes = (progress.decision,) if progress.decision else ()
        decision = self._decision(
            plan.changes,
            reason,
            " ".join((sentence, *plan.notes)),
            numbers,
            expects,
            causes,
            request.job if request.kind is ScalingKind.OUT else None,
        )
        progress.phase, progress.decision = "committed", decision.id
        progress.since_s, progress.machines = self.scene.now_s, list(plan.removed)
        if request.kind is ScalingKind.OUT:
            progress.used = new_machines(self.scene, request, view.newer)[0]
        progress.before, progress.predicted = plan.throughput, plan.projected
        progress.jobs = list(view.jobs)
        self._claim(request)

    def _see_outcome(self, request: ScalingRequest, progress: _Progress) -> None:
        feedback = self.scene.feedback.get(progress.decision)
        gone = not set(progress.machines) & set(self.scene.machine_names)
        unknown = feedback is None or feedback.pending
        if feedback is not None and progress.machines and gone:
            self._succeed(request, progress)
        elif feedback is not None and progress.machines and self._repeatable(feedback, progress):
            self._remove_again(progress)
            self._claim(request)
        elif unknown and self._late(progress):
            self._end(request, done=False, message="The outcome is not known.")
        elif feedback is None or unknown:
            self._claim(request)
        elif feedback.in_full:
            self._succeed(request, progress)
        else:
            left = _still_there(self.scene, feedback)
            state = f"{', '.join(left)} changed" if left else "Everything is as before"
            self._end(request, done=False, message=f"{state}: {_why(feedback)}.")

    def _repeatable(self, feedback: Feedback, progress: _Progress) -> bool:
        """Whether to ask again for machines to go that are still there: the removal had not begun
        when the daemon died, or its outcome is unknown and it has had its time.
        """
        waited_s = self.scene.now_s - progress.since_s
        lost = feedback.pending and waited_s >= self.parameters.window_s
        return (lost or _never_begun(feedback)) and progress.tries < _MOST_TRIES

    def _remove_again(self, progress: _Progress) -> None:
        there = sorted(set(progress.machines) & set(self.scene.machine_names))
        decision = self._decision(
            (MachinesRemoval(tuple(there)),),
            messages.SCALE_IN,
            f"{', '.join(there)} did not go; the removal is repeated.",
            {},
            None,
            (progress.decision,),
        )
        progress.tries += 1
        progress.decision, progress.since_s = decision.id, self.scene.now_s

    def _succeed(self, request: ScalingRequest, progress: _Progress) -> None:
        self.known.learn(progress.used)
        self.known.forget(progress.machines)
        for item in list(self.unchecked):
            if request.kind is ScalingKind.IN or set(item["jobs"]) & set(progress.jobs):
                self._supersede(item, f"{request.id} was carried out")
        self.unchecked.append(
            {
                "request": request.id,
                "kind": request.kind.value,
                "decision": progress.decision,
                "job": request.job,
                # Measurements may be a moment older than the changes of the action itself.
                "done_s": max([self.scene.now_s, *map(self._changed_s, progress.jobs)]),
                "due_s": self.scene.now_s + self.parameters.settle_s,
                "jobs": progress.jobs,
                "before": progress.before,
                "predicted": progress.predicted,
            }
        )
        self._end(request, done=True, message="Carried out whole.")

    def _changed_s(self, job: str) -> float:
        status = self.scene.statuses.get(job)
        return 0.0 if status is None else status.changed_s or 0.0

    def _give_up(self, request: ScalingRequest, hindered: Hindrance) -> None:
        words = messages.request_words(request)
        self._decision(
            (),
            messages.REFUSED,
            f"{words[0].upper()}{words[1:]} is not possible ({hindered.code}). {hindered.sentence}",
            {},
            None,
        )
        message = f"{hindered.code}: {hindered.sentence} Nothing was changed."
        self._end(request, done=False, message=message)

    def _end(self, request: ScalingRequest, *, done: bool, message: str) -> None:
        self.closed.append(ClosedRequest(request.id, done, message))
        self.progress = None

    def _claim(self, request: ScalingRequest) -> None:
        """Other policies leave the jobs alone while a request is carried out."""
        until_s = self.scene.now_s + self.parameters.patience_s
        why = f"{request.kind.words} {request.id} is being carried out"
        self.claims = tuple(Claim(job, until_s, why) for job in jobs_of(self.scene, request))

    def _decision(
        self,
        changes: tuple[Change, ...],
        reason: str,
        sentence: str,
        numbers: Mapping[str, float | None],
        expects: Expectation | None,
        causes: tuple[str, ...] = (),
        job: str | None = None,
    ) -> Decision:
        decision = Decision(
            decision_id(self.scene, job, len(self.decisions)),
            job,
            changes,
            reason,
            sentence,
            numbers,
            causes,
            expects,
            on_demand=True,
        )
        self.decisions.append(decision)
        return decision

    # Predicted against measured.

    def check_predictions(self) -> None:
        acting = self.progress is not None and self.progress.phase == "committed"
        for item in list(self.unchecked):
            if why := changed_since(self.scene, item):
                self._supersede(item, why)
            elif item["due_s"] <= self.scene.now_s and not acting:
                self._check(item)

    def _supersede(self, item: KeptPrediction, why: str) -> None:
        """Another change came before the throughput of this action was measured."""
        self.unchecked.remove(item)
        self.actions.append({**item, "realised": None, "superseded": why})
        if item["predicted"] is not None:
            sentence = messages.superseded_sentence(item["predicted"], why)
            numbers = {"before_per_s": item["before"], "predicted_per_s": item["predicted"]}
            self._report(item, messages.SUPERSEDED, sentence, numbers)

    def _check(self, item: KeptPrediction) -> None:
        self.unchecked.remove(item)
        realised = realised_per_s(self.scene, self.parameters.window_s, item["jobs"])
        self.actions.append({**item, "measured_s": self.scene.now_s, "realised": realised})
        if realised is None or item["predicted"] is None:
            return
        numbers = {
            "before_per_s": item["before"],
            "predicted_per_s": item["predicted"],
            "realised_per_s": realised,
        }
        sentence = messages.outcome_sentence(item["predicted"], realised, item["before"] or 0.0)
        self._report(item, messages.MEASURED, sentence, numbers)

    def _report(
        self,
        item: KeptPrediction,
        reason: str,
        sentence: str,
        numbers: Mapping[str, float | None],
    ) -> None:
        """Tells people what became of a prediction, in a decision that changes nothing."""
        causes = (item["decision"],)
        decision = self._decision((), reason, sentence, numbers, None, causes, item.get("job"))
        self.decisions[-1] = replace(decision, on_demand=False)


def _never_begun(feedback: Feedback) -> bool:
    return any(outcome.code == _LAPSED for outcome in feedback.outcomes)


def _still_there(scene: Scene, feedback: Feedback) -> list[str]:
    """The jobs that have what was granted, though not all of the decision was done."""
    by_job: dict[str, list[ParallelismChange | PlacementChange]] = {}
    for change in feedback.granted:
        if isinstance(change, ParallelismChange | PlacementChange) and change.job in scene.statuses:
            by_job.setdefault(change.job, []).append(change)
    now = {job: scene.statuses[job].allocation for job in by_job}
    return sorted(job for job, changes in by_job.items() if now[job].changed(changes) == now[job])


def _why(feedback: Feedback) -> str:
    reasons = [str(clip) for clip in feedback.clips]
    reasons += [f"{o.code} {o.message}".strip() for o in feedback.outcomes if not o.applied]
    return "; ".join(reasons) or "nothing was granted"
