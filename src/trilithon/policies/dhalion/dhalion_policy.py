"""Defines the policy `dhalion`: every job is examined from time to time, diagnosed and healed.

Per job: an action that was done is evaluated after a wait (section 4.3). Then detectors find
symptoms, diagnosers explain them, and the health policy chooses a resolver. One invasive action at
a time, whichever of several health policies takes it; alerts beside it. Symptoms are measured after
the wait only, so that what an action stirs up is not taken for a symptom (section 4.1).

A decision names its causes: symptom ← diagnosis ← resolution ← evaluation, one decision each, of
which only the resolution changes anything. A diagnosis without a resolution is recorded once, when
it begins. A health policy that raises is left out of the examination, with an alert.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

from trilithon.model.change import Alert, Proposal, Severity
from trilithon.model.mode import Mode
from trilithon.model.series import Window
from trilithon.policies.decision import Claim, Decision
from trilithon.policies.dhalion.action_log import ActionLog
from trilithon.policies.dhalion.dhalion_parameters import DhalionParameters
from trilithon.policies.dhalion.extensions import chosen_policies
from trilithon.policies.dhalion.health import (
    Diagnosis,
    HealthPolicy,
    JobCase,
    LogEntry,
    Resolution,
    Symptom,
    figures,
)
from trilithon.policies.dhalion.job_view import Measured
from trilithon.policies.feedback import Feedback
from trilithon.policies.policy import State, Verdict, decision_id
from trilithon.policies.scene import JobStatus, Scene

SYMPTOM: Final = "SYMPTOM"
DIAGNOSIS: Final = "DIAGNOSIS"
EVALUATED: Final = "EVALUATED"
HEALTH_POLICY_FAILED: Final = "HEALTH_POLICY_FAILED"
_JOBS: Final = "jobs"
# Rounds for which the feedback on an action is needed: until it is seen for the first time.
_FEEDBACK_ROUNDS: Final = 3
T = TypeVar("T")


@dataclass(frozen=True)
class DhalionPolicy:
    """`dhalion`: symptoms, diagnoses, cures, and what came of them."""

    parameters: DhalionParameters = field(default_factory=DhalionParameters)
    name: str = "dhalion"

    @property
    def lookback_s(self) -> float:
        return self.parameters.window_s

    @property
    def feedback_rounds(self) -> int:
        return _FEEDBACK_ROUNDS

    def decide(self, scene: Scene, state: State) -> Verdict:
        records: dict[str, Any] = {
            job: record for job, record in state.get(_JOBS, {}).items() if job in scene.statuses
        }
        policies = chosen_policies(self.parameters)
        window = scene.series.window(self.parameters.window_s)
        measured: Measured | None = None
        decisions: list[Decision] = []
        claims: list[Claim] = []
        for name in sorted(scene.statuses):
            record = _followed(records.get(name, {}), scene)
            records[name] = record
            status = scene.statuses[name]
            if window is None or not self._due(scene, status, record, window):
                continue
            if measured is None:
                measured = Measured.of(scene.series, window, self.parameters.back_pressure)
            view = measured.view(scene, name)
            if view is None:
                continue
            log = ActionLog.of(record)
            lags = self._lags(record, status, scene.now_s, view.lag)
            case = JobCase(view, scene, self.parameters, lags=lags)
            seed, raised = int(state.get("seed", 0)), record.get("alerts", {})
            unresolved = record.get("unresolved", ())
            examination = Examination(policies, case, log, seed, raised, unresolved)
            examination.run()
            decisions += examination.decisions
            claims += examination.claims
            records[name] = {
                **examination.log.plain(),
                "checked_s": scene.now_s,
                "emission": view.emission_per_s,
                **({"lags": [list(each) for each in lags]} if lags else {}),
                "diagnosis": examination.diagnosis_kind,
                **({"alerts": examination.alerts} if examination.alerts else {}),
                **({"unresolved": examination.unresolved} if examination.unresolved else {}),
            }
        return Verdict(tuple(decisions), {**state, _JOBS: records}, claims=tuple(claims))

    def status(self, scene: Scene, state: State) -> Mapping[str, Any]:
        """Per job: the last diagnosis, the latest actions, how often actions failed, and what is
        blacklisted under the load of the last examination.
        """
        shown = {}
        for job, record in sorted(state.get(_JOBS, {}).items()):
            if job not in scene.statuses:
                continue
            log = ActionLog.of(record)
            shown[job] = {
                "diagnosis": record.get("diagnosis"),
                "actions": [
                    {"action": e.action, "for": e.kind, "time_s": e.time_s, "helped": e.helped}
                    for e in log.entries[-5:]
                ],
                "failures": {key: failed for key, (_, failed, _) in log.tries.items() if failed},
                "blacklisted": sorted(log.blacklist(self.parameters, record.get("emission"))),
            }
        return shown

    def _lags(
        self, record: Mapping[str, Any], status: JobStatus, now_s: float, lag: float | None
    ) -> tuple[tuple[float, float], ...]:
        """The lags of the latest examinations since the job was changed; none if one is missing."""
        if lag is None:
            return ()
        since_s = status.accepted_s if status.changed_s is None else status.changed_s
        before = ((at_s, old) for at_s, old in record.get("lags", ()) if at_s > since_s)
        return (*before, (now_s, lag))[-self.parameters.lasting - 1 :]

    def _due(
        self, scene: Scene, status: JobStatus, record: Mapping[str, Any], window: Window
    ) -> bool:
        """Whether a job is examined now: the period is over, nothing is in flight, and the whole
        window lies behind the wait after its last change.
        """
        parameters = self.parameters
        checked_s = record.get("checked_s")
        if status.mode is Mode.OFF or status.in_flight or status.hold_reason:
            return False
        if checked_s is not None and scene.now_s - checked_s < parameters.period_s * (1 - 1e-9):
            return False
        if window.span_s < parameters.window_s * (1 - 1e-9):
            return False
        since_s = max(status.accepted_s, status.changed_s or status.accepted_s)
        if status.changed_s is not None:
            since_s = max(since_s, status.changed_s + parameters.wait_s)
        return window.start_s >= since_s - 1e-6


def _followed(record: Mapping[str, Any], scene: Scene) -> Mapping[str, Any]:
    """The record of a job, without an action that was not carried out; it is asked for again."""
    log = ActionLog.of(record)
    last = log.open
    if last is None:
        return record
    feedback = scene.feedback.get(last.decision)
    if feedback is None or not _failed(feedback):
        return record
    dropped = {**record, **log.dropped().plain()}
    if any(clip.code == "DELAYED" for clip in feedback.clips):
        # The guard wants fewer instances to be requested for some time: ask again at once.
        dropped["checked_s"] = None
    return dropped


def _failed(feedback: Feedback) -> bool:
    """Whether nothing of an action was or will be done."""
    return not feedback.applied and not feedback.pending


class Examination:
    """One look at one job by one or more health policies. `alerts` are those raised lately, by code
    and operator, with their times; they are not raised again. `unresolved` are the diagnoses
    without a resolution, by kind and operator; those of the last examination are given, and not
    recorded again.
    """

    def __init__(
        self,
        policies: Sequence[HealthPolicy],
        case: JobCase,
        log: ActionLog,
        seed: int,
        alerts: Mapping[str, float] | None = None,
        unresolved: Sequence[str] = (),
    ) -> None:
        self.policies, self.case, self.seed = policies, case, seed
        self._failed: set[str] = set()
        self._keep(log.purged(case.scene.now_s, case.parameters))
        now_s, again_s = case.scene.now_s, case.parameters.alert_again_s
        known = (alerts or {}).items()
        self.alerts = {key: at_s for key, at_s in known if now_s - at_s < again_s * (1 - 1e-9)}
        self.unresolved: list[str] = []
        self._recorded = frozenset(unresolved)
        self.decisions: list[Decision] = []
        self.claims: list[Claim] = []
        self.diagnosis_kind: str | None = None
        self._caused_by: tuple[str, ...] = ()

    def run(self) -> None:
        self._evaluate()
        diagnoses = self._diagnoses()
        self.diagnosis_kind = diagnoses[0][1].kind if diagnoses else None
        acted = False
        for policy, diagnosis in diagnoses:
            resolution = self._of(policy, partial(self._resolution, policy, diagnosis))
            if policy.name in self._failed:
                continue
            if resolution is None:
                self._leave(diagnosis)
                continue
            if resolution.invasive and acted:
                continue
            acted = acted or resolution.invasive
            if resolution.claims:
                self._claim(diagnosis)
            changes = self._news(resolution.changes)
            if changes or not resolution.changes:
                self._propose(policy, diagnosis, replace(resolution, changes=changes))

    def _diagnoses(self) -> list[tuple[HealthPolicy, Diagnosis]]:
        """What each health policy finds by its own parts. The surest comes first; of equally sure
        ones in the order of policies and their diagnosers. Of similar ones the first counts.
        """
        diagnoses: list[tuple[HealthPolicy, Diagnosis]] = []
        for policy in self.policies:
            own = self._of(policy, partial(self._own_diagnoses, policy)) or ()
            diagnoses += ((policy, each) for each in own)
        diagnoses.sort(key=lambda each: -each[1].confidence)
        first: dict[tuple[str, str | None], tuple[HealthPolicy, Diagnosis]] = {}
        for policy, diagnosis in diagnoses:
            first.setdefault((diagnosis.kind, diagnosis.operator), (policy, diagnosis))
        return list(first.values())

    def _own_diagnoses(self, policy: HealthPolicy) -> list[Diagnosis]:
        symptoms = tuple(s for d in policy.detectors for s in d.detect(self.case))
        return [each for d in policy.diagnosers for each in d.diagnose(self.case, symptoms)]

    def _of(self, policy: HealthPolicy, ask: Callable[[], T]) -> T | None:
        """What a health policy answers; None if it raises now, or has raised: people write them."""
        if policy.name in self._failed:
            return None
        try:
            return ask()
        except Exception as error:  # noqa: BLE001 - whatever it is, the other policies go on
            self._failed.add(policy.name)
            sentence = (
                f"The health policy {policy.name} failed, and is left out: "
                f"{type(error).__name__}: {error}"
            )
            advice = "Replay a recording with it to find out why."
            job = self.case.name
            raised = Alert(job, Severity.CRITICAL, HEALTH_POLICY_FAILED, sentence, advice)
            if changes := self._news((raised,)):
                self._decision(changes, HEALTH_POLICY_FAILED, sentence, {}, ())
            return None

    def _keep(self, log: ActionLog) -> None:
        """Keeps a log, and shows it to the parts of the health policy."""
        emission = self.case.view.emission_per_s
        blacklist = log.blacklist(self.case.parameters, emission)
        self.log = log
        self.case = replace(self.case, taken=log.entries, blacklist=blacklist)

    def _evaluate(self) -> None:
        entry = self.log.open
        if entry is None:
            return
        own = (policy for policy in self.policies if policy.name == entry.policy)
        judge = next(own, self.policies[0])
        helped = self._of(judge, partial(judge.helped, self.case, entry))
        if helped is None:
            return
        self._keep(self.log.evaluated(helped, self.case.view.emission_per_s))
        word = "helped" if helped else "did not help"
        sentence = f"{_words(entry.action)} for {_words(entry.kind)} {word}."
        now = figures(self.case, entry.operator)
        numbers = {f"{name}_before": value for name, value in entry.before.items()} | now
        decision = self._decision((), EVALUATED, sentence, numbers, (entry.decision,))
        # What is found next follows from an action that failed.
        self._caused_by = () if helped else (decision.id,)

    def _resolution(self, policy: HealthPolicy, diagnosis: Diagnosis) -> Resolution | None:
        """What the chosen resolver proposes. If that is blacklisted, or if something was tried in
        vain for such a diagnosis and the resolver can do nothing more, one of the others is drawn
        (section 5.1). An alert is left for when none of them can do anything.
        """
        resolvers = {resolver.name: resolver for resolver in policy.resolvers}
        names = [n for n in policy.candidates(self.case, diagnosis) if n in resolvers]
        emission = self.case.view.emission_per_s
        draws = self.log.tried_in_vain(diagnosis, self.case.parameters, emission)
        last: Resolution | None = None
        for place, name in enumerate(self._drawn(names)):
            resolution = resolvers[name].resolve(self.case, diagnosis)
            acts = resolution is not None and resolution.invasive
            if place == 0 and not acts and not draws:
                return resolution
            if resolution is None or not acts:
                last = last or resolution
            elif not self.case.blacklisted(diagnosis, resolution.action):
                return resolution
        return last

    def _drawn(self, names: Sequence[str]) -> list[str]:
        """The first, then the others in an order that is drawn with the seed of the state."""
        turn = len(self.log.entries) + sum(t[0] for t in self.log.tries.values())

        def draw(name: str) -> int:
            return zlib.crc32(f"{self.seed}/{self.case.name}/{turn}/{name}".encode())

        return [*names[:1], *sorted(names[1:], key=draw)]

    def _news(self, changes: tuple[Proposal, ...]) -> tuple[Proposal, ...]:
        """The changes, without alerts that were raised lately."""
        news = []
        for change in changes:
            if isinstance(change, Alert):
                key = f"{change.code} {change.operator or ''}".rstrip()
                if key in self.alerts:
                    continue
                self.alerts[key] = self.case.scene.now_s
            news.append(change)
        return tuple(news)

    def _claim(self, diagnosis: Diagnosis) -> None:
        parameters = self.case.parameters
        wait_s = parameters.wait_s + parameters.window_s + parameters.period_s
        until_s = self.case.scene.now_s + wait_s
        self.claims.append(Claim(self.case.name, until_s, _as_sentence(diagnosis.sentence)))

    def _leave(self, diagnosis: Diagnosis) -> None:
        """Records a diagnosis that nothing is done about, unless it was there before."""
        key = f"{diagnosis.kind} {diagnosis.operator or ''}".rstrip()
        self.unresolved.append(key)
        if key in self._recorded:
            return
        emission = self.case.view.emission_per_s
        failed = self.log.tried_in_vain(diagnosis, self.case.parameters, emission)
        why = "what could be done has failed before" if failed else "no resolver proposes anything"
        self._diagnosis(diagnosis, f"{_as_sentence(diagnosis.sentence)} Nothing is done: {why}.")

    def _diagnosis(self, diagnosis: Diagnosis, sentence: str) -> Decision:
        """Records a diagnosis after its symptoms."""
        symptoms = [self._symptom(symptom) for symptom in diagnosis.symptoms]
        sure = {} if diagnosis.confidence == 1 else {"confidence": diagnosis.confidence}
        numbers = {**diagnosis.numbers, **sure}
        causes = (*(decision.id for decision in symptoms), *self._caused_by)
        return self._decision(
            (), f"{DIAGNOSIS}_{diagnosis.kind.upper()}", sentence, numbers, causes
        )

    def _propose(self, policy: HealthPolicy, diagnosis: Diagnosis, resolution: Resolution) -> None:
        sentence = _as_sentence(diagnosis.sentence)
        cause = self._diagnosis(diagnosis, sentence)
        decision = self._decision(
            resolution.changes,
            resolution.action.partition(".")[0].upper(),
            f"{sentence} {resolution.sentence}",
            {},
            (cause.id,),
        )
        self.decisions[-1] = replace(decision, expects=resolution.expects)
        if resolution.invasive:
            entry = LogEntry(
                resolution.action,
                self.case.scene.now_s,
                diagnosis.kind,
                diagnosis.operator,
                decision.id,
                figures(self.case, diagnosis.operator),
                notes=resolution.notes,
                policy=policy.name,
            )
            self.log = self.log.added(entry, self.case.parameters)

    def _symptom(self, symptom: Symptom) -> Decision:
        reason = f"{SYMPTOM}_{symptom.kind.upper()}"
        return self._decision((), reason, _as_sentence(symptom.sentence), symptom.numbers, ())

    def _decision(
        self,
        changes: tuple[Any, ...],
        reason: str,
        sentence: str,
        numbers: Mapping[str, float | None],
        causes: tuple[str, ...],
    ) -> Decision:
        finite = {n: v for n, v in numbers.items() if v is None or abs(v) != float("inf")}
        id_ = decision_id(self.case.scene, self.case.name, len(self.decisions))
        decision = Decision(id_, self.case.name, changes, reason, sentence, finite, causes)
        self.decisions.append(decision)
        return decision


def _as_sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def _words(name: str) -> str:
    """An action or a kind in words: "scale down to 4", "relieve instance by weights"."""
    return name.replace(".to_", " to ").replace("_", " ").replace(".", " by ")
