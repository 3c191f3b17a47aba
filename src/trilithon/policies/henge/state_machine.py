"""Runs Henge's state machine: which action a round takes, and what follows from its effect.

SoCC'18, section 5. One machine for the whole cluster, with two states:

    Not Converged   A job that misses its intent gets instances (Reconfiguration, 5.1). When its
                    utility is steady, the cluster's utility is compared with that before. If it
                    fell: Reduction (5.2) if (a) the cluster is congested, (b) a job meets its
                    intent, (c) there was no Reduction since the last external change; otherwise
                    Reversion (5.3).
    Converged       Reached (a) when every intent has been met for four rounds, or (b) when no
                    useful action is left, after a Reversion to the best configuration of the
                    history. Left when utility drops by more than 5 %, which clears the history.

docs/concepts/henge.md lists the choices made where the paper leaves something open.
"""

import math
from collections.abc import Sequence

from trilithon.model.mode import Mode
from trilithon.policies.decision import Decision
from trilithon.policies.henge import messages
from trilithon.policies.henge.actions import RoundActions
from trilithon.policies.henge.external_changes import detect_external_changes, select_jobs
from trilithon.policies.henge.henge_parameters import MAX_MIN, HengeParameters
from trilithon.policies.henge.instance_counts import plan_reconfiguration
from trilithon.policies.henge.memory import Memory, Phase, SearchStep, StepKind
from trilithon.policies.henge.messages import DecisionLog
from trilithon.policies.henge.view import STEADY_PARTS, JobView, is_steady, observe
from trilithon.policies.scene import Scene


def run_round(scene: Scene, parameters: HengeParameters, memory: Memory) -> Sequence[Decision]:
    """Runs one round. It changes the memory, which is the round's own copy."""
    log = DecisionLog(scene)
    memory.clamp_future_times(scene.now_s, parameters.blacklist_s, parameters.settle_most_s)
    view = observe(scene, parameters, memory.from_s)
    if view is None:
        return ()
    detect_external_changes(scene, view, memory, parameters, log)
    selection = select_jobs(scene, view, memory, parameters)
    search = _SearchRound(scene, parameters, memory, log, view, selection)
    if search.may_act():
        search.advance()
    return log.decisions


class _SearchRound(RoundActions):
    """A round: checks whether it may act, evaluates the last step, and takes the next action."""

    # ----- whether the round may act

    def may_act(self) -> bool:
        """False while half of the metrics are missing, or shortly after an external change."""
        memory, missing = self.memory, self.selection.half_without_metrics
        if missing is not memory.held:
            memory.held = missing
            numbers = {"jobs": len(self.view.jobs), "counted": len(self.selection.counted)}
            sentence = (
                "Half of the jobs or more have no metrics. Henge takes no action until metrics "
                f"have been back for {self.parameters.recover_s:g} s."
                if missing
                else "More than half of the jobs have metrics again, for long enough to act."
            )
            reason = messages.MISSING if missing else messages.BACK
            memory.cause = self.log.add(None, reason, sentence, numbers, [memory.cause])
        # After its own start Henge waits for a full window; after a step, for what there is since.
        begun_s = memory.from_s if memory.from_s is not None else -math.inf
        needed_s = min(self.parameters.window_s, self.now_s - begun_s)
        enough = self.view.window.span_s >= needed_s * (1 - 1e-9)
        return enough and not missing and self.now_s >= memory.hold_until_s and bool(self.view.jobs)

    def advance(self) -> None:
        """Evaluates the last step if there is one, then searches on or stays Converged."""
        if self.memory.step is not None and (
            not self.finish_step() or self.memory.step is not None
        ):
            return
        if self.memory.phase is Phase.CONVERGED and not self.left_converged():
            return
        if self.memory.step is None:
            self.take_next_action()

    # ----- the effect of the last step

    def finish_step(self) -> bool:
        """Evaluates the last step; False while Henge still waits for its effect."""
        step = self.memory.step
        assert step is not None  # noqa: S101 - called only while there is one
        statuses = {j: self.scene.statuses[j] for j in step.jobs if j in self.scene.statuses}
        # A request that is not repeated is withdrawn, even while another job's action is in flight.
        pending = self.retry_pending(step)
        if any(status.in_flight for status in statuses.values()) and not self.timed_out(step):
            return False
        if pending:
            return False
        changed_jobs = [job for job in statuses if job in step.applied]
        if not changed_jobs:
            self.memory.step = None
            self.handle_not_carried_out(step)
            return True
        changed = [statuses[job].changed_s for job in changed_jobs]
        since_s = max([step.at_s, *(at_s for at_s in changed if at_s is not None)])
        steady_s = self.steady_since_s(step, since_s)
        if steady_s is None:
            return False
        view = observe(self.scene, self.parameters, steady_s)
        if view is None:
            return False
        self.view, self.memory.from_s, self.memory.step = view, steady_s, None
        if step.kind is StepKind.RECONFIGURATION:
            self.evaluate_reconfiguration(step)
        elif step.kind is StepKind.REDUCTION:
            self.record_configuration()
        return True

    def timed_out(self, step: SearchStep) -> bool:
        """Whether an action has been in flight for so long that Henge stops waiting for it."""
        longest_s = self.parameters.settle_most_s + self.parameters.recover_s
        return self.now_s - step.at_s >= longest_s

    def steady_since_s(self, step: SearchStep, since_s: float) -> float | None:
        """Since when utility is steady after the step; None while it is not.

        Utility counts as steady after `settle_s` at the earliest. After `settle_most_s` the step
        is evaluated whether it is steady or not.
        """
        waited_s = self.now_s - since_s
        job = step.jobs[0] if step.kind is StepKind.RECONFIGURATION else None
        if waited_s < self.parameters.settle_s:
            return None
        longest_s = self.parameters.settle_most_s
        if job is not None and job in self.selection.awaited:
            longest_s += self.parameters.recover_s
        elif is_steady(self.scene, job, since_s, self.parameters):
            return max(since_s, self.now_s - STEADY_PARTS * self.parameters.part_s)
        return since_s if waited_s >= longest_s else None

    def handle_not_carried_out(self, step: SearchStep) -> None:
        """Reports a step that the engine does not have, and stops requesting it."""
        if step.kind is not StepKind.RECONFIGURATION:
            self.report_incomplete(step, step.asked)
            return
        job = step.jobs[0]
        self.memory.blacklist[job] = self.now_s + self.parameters.blacklist_s
        self.log.add(
            job,
            messages.NOT_CARRIED_OUT,
            f"The Reconfiguration of {job} was not carried out. Henge skips the job for "
            f"{self.parameters.blacklist_s:g} s.",
            {"asked_s": step.at_s},
            step.ids,
        )

    def evaluate_reconfiguration(self, step: SearchStep) -> None:
        """Compares utilities before and after a Reconfiguration: the job's and the cluster's."""
        job = step.jobs[0]
        utilities = self.utilities()
        before, after = self.compare_utilities(step.before)
        self.record_configuration()
        if job in utilities and job in step.before:
            self.blacklist_if_no_gain(job, step, utilities[job])
        if not self.utility_fell(before, after, self.parameters.noise):
            return
        fall = (
            f"The cluster's utility fell from {messages.percent(before)} to "
            f"{messages.percent(after)} of its maximum"
        )
        numbers = {"before": before, "after": after}
        congested = self.view.cluster_congestion.is_congested
        if congested and self.try_reduction(fall, numbers, step.ids):
            return
        lockout = self.memory.reduced is not None and congested
        why = f"{fall}, and " + (
            "a Reduction was already made (lockout)" if lockout else "a Reduction is not possible"
        )
        self.revert(why, numbers, [*step.ids, self.memory.reduced])
        self.converge_no_action_left()

    def utility_fell(self, before: float, after: float, share: float) -> bool:
        """Whether utility fell by more than a share of what it was.

        While utility is close to 0, as of jobs with growing backlogs, a share of it means nothing:
        the fall must exceed `least_fall` as well.
        """
        return before - after > max(share * before, self.parameters.least_fall)

    def blacklist_if_no_gain(self, job: str, step: SearchStep, utility: float) -> None:
        before, delta = step.before[job], self.parameters.improvement
        if not self.misses_intent(job):
            return
        if utility >= before * (1 + delta) and utility > 0:
            return
        # A job that got fewer instances than Henge wanted was not really tried.
        if step.scarce or job in step.clipped:
            return
        self.memory.blacklist[job] = self.now_s + self.parameters.blacklist_s
        self.log.add(
            job,
            messages.BLACKLISTED,
            f"The utility of {job} went from {before:.4g} to {utility:.4g} of "
            f"{self.view.jobs[job].max_utility:g}, less than the required gain of "
            f"{100 * delta:g} %. The job keeps its instances, and Henge skips it for "
            f"{self.parameters.blacklist_s:g} s.",
            {"utility_before": before, "utility": utility, "improvement": delta},
            step.ids,
        )

    # ----- Converged

    def left_converged(self) -> bool:
        """Leaves Converged if utility dropped or a job newly misses its intent; whether it did."""
        memory, utilities = self.memory, self.utilities()
        if memory.baseline is None:
            memory.baseline = utilities
        before, after = self.compare_utilities(memory.baseline)
        numbers = {"before": before, "after": after}
        if self.utility_fell(before, after, self.parameters.drop):
            memory.forget_search()
            memory.blacklist.clear()
            self.leave_converged(
                messages.DROPPED,
                f"The cluster's utility dropped from {messages.percent(before)} to "
                f"{messages.percent(after)} of its maximum. The load must have changed: Henge "
                "clears its history and searches again.",
                numbers,
            )
            return True
        if after > before * (1 + self.parameters.drop):
            memory.baseline = utilities
        violations = self.new_violations(utilities)
        if violations:
            self.leave_converged(
                messages.MISSED_AGAIN,
                f"{messages.name_list(violations)} met the intent when the cluster became "
                f"Converged, and has missed it for {self.parameters.stable_s:g} s.",
                {**numbers, "jobs": len(violations)},
            )
        return bool(violations)

    def new_violations(self, utilities: dict[str, float]) -> list[str]:
        """Further violations (5.3): jobs that had met their intents and have missed them for
        `stable_s`. Blacklisted jobs do not count: nothing could be done for them.
        """
        memory = self.memory
        assert memory.baseline is not None  # noqa: S101 - set on entering Converged
        for name in list(memory.missed_s):
            if name not in utilities or not self.misses_intent(name):
                del memory.missed_s[name]
        for name in utilities:
            # A job that was idle or had no metrics then had not missed its intent.
            maximum = self.view.jobs[name].max_utility
            met_before = memory.baseline.setdefault(name, maximum) >= maximum * (
                1 - self.parameters.missed
            )
            if self.misses_intent(name) and met_before and not self.blacklisted(name):
                memory.missed_s.setdefault(name, self.now_s)
        return sorted(
            name
            for name, since_s in memory.missed_s.items()
            if self.now_s - since_s >= self.parameters.stable_s
        )

    def leave_converged(self, reason: str, sentence: str, numbers: dict[str, float]) -> None:
        memory = self.memory
        memory.phase, memory.baseline = Phase.NOT_CONVERGED, None
        memory.missed_s.clear()
        memory.cause = self.log.add(None, reason, sentence, numbers, [memory.cause])

    def enter_converged(self, reason: str, sentence: str) -> None:
        memory = self.memory
        memory.phase, memory.missed_s = Phase.CONVERGED, {}
        memory.met_since_s = memory.stuck_since_s = None
        # After a Reversion utilities first have to become steady.
        memory.baseline = self.utilities() if memory.step is None else None
        numbers = {"goal": self.goal(), "jobs": len(self.view.jobs)}
        memory.cause = self.log.add(None, reason, sentence, numbers, [memory.cause])

    # ----- Not Converged

    def take_next_action(self) -> None:
        """Reconfigures a job that misses its intent, or reduces others; else counts the rounds
        until Converged.
        """
        self.record_configuration()
        missing = [self.view.jobs[name] for name in self.utilities() if self.misses_intent(name)]
        if not missing:
            self.converge_if_all_met_long_enough()
            return
        self.memory.met_since_s = None
        stuck_since_s, self.memory.stuck_since_s = self.memory.stuck_since_s, None
        waiting, starved = bool(self.selection.awaited), list[str]()
        for job in sorted(missing, key=self.reconfiguration_order):
            if self.blacklisted(job.id) or job.status.mode is Mode.OFF:
                continue
            if job.status.mode is Mode.AUTO and not job.status.open:
                waiting = True
                continue
            grant = plan_reconfiguration(self.scene, job, self.view, self.parameters)
            if grant.given:
                self.reconfigure(job, grant)
                return
            if grant.starved and job.status.mode is Mode.AUTO:
                starved.append(job.id)
        if starved:
            why = f"No slot is free for {messages.name_list(starved)}, which would gain by more"
            if self.try_reduction(why, {"starved": len(starved)}, [self.memory.cause]):
                return
        if not waiting:
            self.memory.stuck_since_s = self.now_s if stuck_since_s is None else stuck_since_s
            if self.now_s - self.memory.stuck_since_s >= self.parameters.stable_s:
                self.revert_to_best_and_converge(missing)

    def reconfiguration_order(self, job: JobView) -> tuple[float | str, ...]:
        """The highest maximum utility first, then the lowest current one (5.1). With `max_min`, the
        lowest share of its maximum first.
        """
        utility = job.utility or 0.0
        if self.parameters.goal == MAX_MIN:
            share = utility / job.max_utility if job.max_utility > 0 else 1.0
            return share, -job.max_utility, job.id
        return -job.max_utility, utility, job.id

    def converge_if_all_met_long_enough(self) -> None:
        memory = self.memory
        memory.stuck_since_s = None
        if memory.met_since_s is None:
            memory.met_since_s = self.now_s
        if self.selection.awaited or self.now_s - memory.met_since_s < self.parameters.stable_s:
            return
        self.enter_converged(
            messages.CONVERGED_MET,
            f"Every intent has been met for {self.parameters.stable_rounds} rounds.",
        )

    def revert_to_best_and_converge(self, missing: Sequence[JobView]) -> None:
        """No useful action is left: returns to the best configuration, then Converged."""
        best = self.best_configuration()
        if best is not None and best.back:
            then, now = self.compare_configuration(best)
            if self.utility_fell(then, now, self.parameters.noise):
                names = messages.name_list(job.id for job in missing)
                why = f"No action is left that would help {names}"
                self.revert(why, {}, [self.memory.cause])
        self.converge_no_action_left()

    def converge_no_action_left(self) -> None:
        missing = [name for name in self.utilities() if self.misses_intent(name)]
        blacklisted = sum(self.blacklisted(name) for name in missing)
        self.enter_converged(
            messages.CONVERGED_STUCK,
            f"{messages.name_list(missing)} miss their intents ({blacklisted} of {len(missing)} "
            "blacklisted), and no action is left that would help."
            if missing
            else "Henge returned to the best configuration.",
        )
