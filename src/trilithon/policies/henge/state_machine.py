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

A comparison never spans an external change of which a signal tells (`external_changes.py`: jobs,
loads, intents, allocations, machines, other processes' load), and a step is judged only by jobs
whose utility was steady when it began: such a change by itself leads neither to a Reversion nor to
Converged. Another is blamed on the step at first, and cleared when a Reversion does not help.

docs/concepts/henge.md lists the choices made where the paper leaves something open.
"""

import math
from collections.abc import Sequence

from trilithon.model.mode import Mode
from trilithon.policies.decision import Decision
from trilithon.policies.henge import messages
from trilithon.policies.henge.actions import RoundActions
from trilithon.policies.henge.external_changes import (
    detect_external_changes,
    load_changed,
    select_jobs,
)
from trilithon.policies.henge.henge_parameters import ALL, MAX_MIN, HengeParameters
from trilithon.policies.henge.instance_counts import plan_reconfiguration
from trilithon.policies.henge.memory import Memory, Phase, SearchStep, StepKind
from trilithon.policies.henge.messages import DecisionLog
from trilithon.policies.henge.trend import STEADY_PARTS
from trilithon.policies.henge.view import JobView, observe
from trilithon.policies.scene import Scene


def run_round(scene: Scene, parameters: HengeParameters, memory: Memory) -> Sequence[Decision]:
    """Runs one round. It changes the memory, which is the round's own copy."""
    log = DecisionLog(scene)
    memory.clamp_future_times(scene.now_s, parameters.blacklist_s)
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
        """False while half of the metrics are missing, or too few snapshots are there."""
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
        return enough and not missing and bool(self.view.jobs)

    def advance(self) -> None:
        """Evaluates the last step if there is one, then searches on or stays Converged."""
        memory = self.memory
        change_explained = memory.changed_s is not None
        if change_explained and not self.external_change_settled():
            if memory.step is not None:
                self.retry_pending(memory.step)
            return
        if memory.step is not None and (not self.finish_step() or memory.step is not None):
            return
        if memory.phase is Phase.CONVERGED:
            if (changed_s := self.left_converged()) is None:
                return
            if not change_explained:
                # Whatever lowered utility came a moment ago: most of the window lies before it.
                memory.begin_settling(changed_s, changed_s)
                return
        if memory.step is None:
            self.take_next_action()

    def external_change_settled(self) -> bool:
        """Whether a whole window lies after the last external change, and the sum of utilities no
        longer moves. Where changes keep coming, Henge waits for `settle_most_s` at most.
        """
        memory = self.memory
        assert memory.changed_s is not None  # noqa: S101 - called only while there is one
        first_s = memory.changed_s if memory.unsettled_s is None else memory.unsettled_s
        if self.now_s - first_s < max(self.parameters.settle_most_s, self.parameters.window_s):
            if self.now_s - memory.changed_s < self.parameters.window_s * (1 - 1e-9):
                return False
            if not self.total_is_steady(memory.changed_s):
                return False
        memory.changed_s = memory.unsettled_s = None
        return True

    def total_is_steady(self, since_s: float) -> bool:
        maxima = {name: self.view.jobs[name].max_utility for name in self.utilities()}
        return self.trend(since_s).total_is_steady(maxima)

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
        if step.interrupted and self.memory.from_s is not None:
            since_s = max(since_s, self.memory.from_s)
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
        """Since when utilities are steady after the step, the changed job's and the sum of all
        (section 5.1); None while they are not.

        They count as steady after `settle_s` at the earliest. After `settle_most_s` the step is
        evaluated whether they are or not.
        """
        waited_s = self.now_s - since_s
        job = step.jobs[0] if step.kind is StepKind.RECONFIGURATION else None
        if waited_s < self.parameters.settle_s:
            return None
        longest_s = self.parameters.settle_most_s
        if job is not None and job in self.selection.awaited:
            longest_s += self.parameters.recover_s
        elif self.total_is_steady(since_s) and (job is None or self.trend(since_s).is_steady(job)):
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
        """Compares utilities before and after a Reconfiguration: the job's and the cluster's.

        The cluster's only by the jobs that the step can have moved: not those whose utility already
        fell when it began, nor those whose own load changed meanwhile.
        """
        self.record_configuration()
        if step.interrupted:
            self.judge_gain(step, reverted=False)
            return
        swing = max(step.swing, self.swing())
        comparison = self.compare_utilities(step.before, self.moved_by_themselves(step), swing)
        noise = self.parameters.noise
        if not comparison.fell(noise):
            self.judge_gain(step, reverted=False)
            return
        fall = messages.describe_fall("fell", comparison, noise, self.parameters.goal)
        before, after = comparison.at(noise)
        numbers = {"before": before, "after": after}
        congested = self.view.cluster_congestion.is_congested
        if congested and self.try_reduction(fall, numbers, step.ids):
            self.judge_gain(step, reverted=False)
            return
        lockout = self.memory.reduced is not None and congested
        why = f"{fall}, and " + (
            "a Reduction was already made (lockout)" if lockout else "a Reduction is not possible"
        )
        self.judge_gain(step, reverted=self.would_revert(step.jobs[0]))
        self.revert(why, numbers, [*step.ids, self.memory.reduced])
        self.converge_no_action_left()

    def moved_by_themselves(self, step: SearchStep) -> set[str]:
        """The jobs whose utility the step is not to be judged by: those that sank before it, and
        those that have another load than when it began.
        """
        span_s, share = self.view.window.span_s, self.parameters.steady
        other_load = (
            name
            for name, before in step.loads_per_s.items()
            if (job := self.view.jobs.get(name)) is not None
            and job.load_per_s is not None
            and load_changed(before, job.load_per_s, span_s, share)
        )
        return {*step.sinking, *other_load}

    def judge_gain(self, step: SearchStep, *, reverted: bool) -> None:
        """Blacklists a job that gained less than Δ by its Reconfiguration (5.1).

        If an external change came in between, the job is given the benefit of the doubt, once.
        """
        job, delta = step.jobs[0], self.parameters.improvement
        utilities, known = self.utilities(), self.memory.jobs[job]
        if job not in utilities or job not in step.before:
            return
        before, utility = step.before[job], utilities[job]
        gained = utility >= before * (1 + delta) and utility > 0
        # A job that got fewer instances than Henge wanted was not really tried.
        not_tried = step.scarce or job in step.clipped
        recovers = job in self.trend(self.memory.from_s).draining
        if not self.misses_intent(job) or gained or not_tried or recovers:
            known.not_judged = 0
            return
        went = (
            f"The utility of {job} went from {before:.4g} to {utility:.4g} of "
            f"{self.view.jobs[job].max_utility:g}, less than the required gain of {100 * delta:g} %"
        )
        numbers = {"utility_before": before, "utility": utility, "improvement": delta}
        if step.interrupted and known.not_judged == 0:
            known.not_judged = 1
            self.log.add(
                job,
                messages.NOT_JUDGED,
                f"{went}. An external change came in between, so Henge may try the job once more.",
                numbers,
                step.ids,
            )
            return
        known.not_judged = 0
        self.memory.blacklist[job] = self.now_s + self.parameters.blacklist_s
        keeps = "The Reversion takes back what it got" if reverted else "It keeps its instances"
        self.log.add(
            job,
            messages.BLACKLISTED,
            f"{went}. {keeps}, and Henge skips the job for {self.parameters.blacklist_s:g} s.",
            numbers,
            step.ids,
        )

    def would_revert(self, job: str) -> bool:
        best = self.best_configuration()
        return best is not None and job in best.back

    # ----- Converged

    def left_converged(self) -> float | None:
        """Leaves Converged if utility dropped or a job newly misses its intent. Since when the
        cluster is another than before; None if it stays Converged.
        """
        memory, utilities = self.memory, self.utilities()
        if memory.baseline is None:
            memory.baseline = utilities
        # A job that drains a backlog is on its way back.
        draining = self.trend(memory.from_s).draining
        comparison = self.compare_utilities(memory.baseline, draining)
        drop = self.parameters.drop
        before, after = comparison.at(drop)
        numbers = {"before": before, "after": after}
        if comparison.fell(drop):
            memory.forget_history()
            if self.parameters.forget == ALL:
                memory.blacklist.clear()
            dropped = messages.describe_fall("dropped", comparison, drop, self.parameters.goal)
            self.leave_converged(
                messages.DROPPED,
                f"{dropped}. Something else than Henge must have changed: Henge clears its history "
                "and searches again.",
                numbers,
            )
            return self.now_s
        if comparison.rose(drop):
            memory.baseline = {**memory.baseline, **utilities}
        violations = self.new_violations(utilities)
        missed_since_s = [memory.missed_s[name] for name in violations]
        if violations:
            self.leave_converged(
                messages.MISSED_AGAIN,
                f"{messages.name_list(violations)} met the intent when the cluster became "
                f"Converged, and has missed it for {self.parameters.stable_s:g} s.",
                {**numbers, "jobs": len(violations)},
            )
        return max(missed_since_s, default=None)

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
        # After a Reversion the baseline is what it returns to, if utility does return.
        if memory.step is None or memory.baseline is None:
            memory.baseline = self.utilities() if memory.step is None else None
        numbers = {"goal": self.levels()[0], "jobs": len(self.view.jobs)}
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
        draining = self.trend(self.memory.from_s).draining
        passed_over: dict[str, str] = {}
        for job in sorted(missing, key=self.reconfiguration_order):
            if self.blacklisted(job.id):
                passed_over[job.id] = "blacklisted"
                continue
            if job.status.mode is Mode.OFF:
                passed_over[job.id] = "mode off"
                continue
            if job.status.mode is Mode.AUTO and not job.status.open:
                passed_over[job.id] = job.status.hold_reason or "an action is in flight"
                waiting = True
                continue
            if job.id in draining:
                # It recovers by itself; until it has, its busy operators tell nothing.
                passed_over[job.id] = "draining its backlog"
                waiting = True
                continue
            grant = plan_reconfiguration(self.scene, job, self.view, self.parameters)
            if grant.given:
                self.reconfigure(job, grant, passed_over)
                return
            passed_over[job.id] = "no slot is free" if grant.starved else "no operator is congested"
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
        better = best is not None and self.compare_configuration(best).fell(self.parameters.noise)
        if best is not None and best.back and better:
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
