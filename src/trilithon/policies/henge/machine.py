"""Owns Henge's state machine: what is done in a round, and what that leads to.

SoCC'18, section 5. One machine for the whole cluster, with two states:

    Not Converged   a job that misses its intent is given instances (Reconfiguration, 5.1); when its
                    utility is steady the cluster's utility is compared. If it fell: Reduction (5.2) if
                    (a) the cluster is congested, (b) a job meets its intent, (c) there was no Reduction
                    since the last change from outside; Reversion (5.3) otherwise.
    Converged       reached (a) when every intent is met and stays so for four rounds, or (b) when no
                    useful action is left, after a Reversion to the best configuration of the history.
                    Left when utility drops by more than 5 %, which clears the history.

Where the text leaves a choice, docs/concepts/henge.md tells which was made.
"""

import math
from collections.abc import Sequence

from trilithon.model.mode import Mode
from trilithon.policies.decision import Decision
from trilithon.policies.henge import messages
from trilithon.policies.henge.memory import Memory, Phase, SearchStep, StepKind
from trilithon.policies.henge.messages import DecisionLog
from trilithon.policies.henge.outside import notice, sight
from trilithon.policies.henge.parameters import MAX_MIN, HengeParameters
from trilithon.policies.henge.shares import gift
from trilithon.policies.henge.steps import Steps
from trilithon.policies.henge.view import STEADY_PARTS, JobView, steady, view
from trilithon.policies.scene import Scene


def run(scene: Scene, parameters: HengeParameters, memory: Memory) -> Sequence[Decision]:
    """One round. Changes the memory, which is the round's own copy."""
    log = DecisionLog(scene)
    memory.keep_up_with(scene.now_s, parameters.blacklist_s, parameters.settle_most_s)
    found = view(scene, parameters, memory.from_s)
    if found is None:
        return ()
    notice(scene, found, memory, parameters, log)
    seen = sight(scene, found, memory, parameters)
    one = _Round(scene, parameters, memory, log, found, seen)
    if one.may_act():
        one.act()
    return log.decisions


class _Round(Steps):
    """A round, from top to bottom: may anything be done, what did the last step bring, what is next."""

    # ----- whether anything may be done

    def may_act(self) -> bool:
        """Not while most numbers are missing, nor right after somebody else changed something."""
        memory, held = self.memory, self.sight.most_missing
        if held is not memory.held:
            memory.held = held
            numbers = {"jobs": len(self.view.jobs), "counted": len(self.sight.counted)}
            said = (
                "Half of the jobs or more have no numbers: nothing is done until they are back for "
                f"{self.parameters.recover_s:g} s."
                if held
                else "Enough jobs have numbers again, and have had them long enough."
            )
            reason = messages.MISSING if held else messages.BACK
            memory.cause = self.log.add(None, reason, said, numbers, [memory.cause])
        # Right after its own start it has seen too little; after a step it looks no further back.
        window_s = self.parameters.window_s
        begun_s = memory.from_s if memory.from_s is not None else -math.inf
        seen_s = self.view.window.span_s
        enough = seen_s >= min(window_s, self.now_s - begun_s) * (1 - 1e-9)
        return enough and not held and self.now_s >= memory.hold_until_s and bool(self.view.jobs)

    def act(self) -> None:
        if self.memory.step is not None and (not self.judged() or self.memory.step is not None):
            return
        if self.memory.phase is Phase.CONVERGED and not self.left():
            return
        if self.memory.step is None:
            self.explore()

    # ----- the effect of the last step

    def judged(self) -> bool:
        """Whether the last step is over and done with; if not, it is waited for."""
        step = self.memory.step
        assert step is not None  # noqa: S101 - asked only while there is one
        statuses = {j: self.scene.statuses[j] for j in step.jobs if j in self.scene.statuses}
        # A wish that is not repeated is withdrawn: also while another job of the step is under way.
        wished = self.retry_pending(step)
        if any(status.in_flight for status in statuses.values()) and not self.overdue(step):
            return False
        if wished:
            return False
        done = [job for job in statuses if job in step.applied]
        if not done:
            self.memory.step = None
            self.not_carried_out(step)
            return True
        changed = [statuses[job].changed_s for job in done]
        since_s = max([step.at_s, *(s for s in changed if s is not None)])
        from_s = self.settled(step, since_s)
        if from_s is None or (found := view(self.scene, self.parameters, from_s)) is None:
            return False
        self.view, self.memory.from_s, self.memory.step = found, from_s, None
        if step.kind is StepKind.RECONFIGURATION:
            self.compare(step)
        elif step.kind is StepKind.REDUCTION:
            self.record()
        return True

    def overdue(self, step: SearchStep) -> bool:
        """What is under way for ever must not hold up everybody."""
        most_s = self.parameters.settle_most_s + self.parameters.recover_s
        return self.now_s - step.at_s >= most_s

    def settled(self, step: SearchStep, since_s: float) -> float | None:
        """From when on utilities are at rest after the step; None while they are not. That takes a
        minute or more; what has not come to rest after a few is judged as it is.
        """
        waited_s = self.now_s - since_s
        job = step.jobs[0] if step.kind is StepKind.RECONFIGURATION else None
        if waited_s < self.parameters.settle_s:
            return None
        longest_s = self.parameters.settle_most_s
        if job is not None and job in self.sight.waited_for:
            longest_s += self.parameters.recover_s
        elif steady(self.scene, job, since_s, self.parameters):
            return max(since_s, self.now_s - STEADY_PARTS * self.parameters.part_s)
        return since_s if waited_s >= longest_s else None

    def not_carried_out(self, step: SearchStep) -> None:
        """Nobody did what was decided. To ask again each round would only be noise."""
        if step.kind is not StepKind.RECONFIGURATION:
            self.report_incomplete(step, step.asked)
            return
        job = step.jobs[0]
        self.memory.blacklist[job] = self.now_s + self.parameters.blacklist_s
        self.log.add(
            job,
            messages.NOT_CARRIED_OUT,
            f"The Reconfiguration of {job} was not carried out; it is skipped for "
            f"{self.parameters.blacklist_s:g} s.",
            {"asked_s": step.at_s},
            step.ids,
        )

    def compare(self, step: SearchStep) -> None:
        """What a Reconfiguration brought: to the job, and to the cluster."""
        job = step.jobs[0]
        now = self.utilities()
        before, after = self.then_and_now(step.before)
        self.record()
        if job in now and job in step.before:
            self.maybe_blacklist(job, step, now[job])
        if not self.fell(before, after, self.parameters.noise):
            return
        said = (
            f"utility fell from {messages.share(before)} to {messages.share(after)} of its maximum"
        )
        numbers = {"before": before, "after": after}
        if self.view.crowd.most and self.reduced(said, numbers, step.ids):
            return
        lockout = self.memory.reduced is not None and self.view.crowd.most
        why = f"{said}, and " + (
            "there was a Reduction already (lockout)" if lockout else "a Reduction is not possible"
        )
        self.revert(why, numbers, [*step.ids, self.memory.reduced])
        self.converge_stuck()

    def fell(self, before: float, after: float, by: float) -> bool:
        """Whether utility fell by more than a share of what it was. While all of it is next to nothing, as
        of jobs whose backlogs grow, a share of that is nothing either.
        """
        return before - after > max(by * before, self.parameters.least_fall)

    def maybe_blacklist(self, job: str, step: SearchStep, now: float) -> None:
        before, delta = step.before[job], self.parameters.improvement
        if not self.view.jobs[job].misses(self.parameters.missed):
            return
        if now >= before * (1 + delta) and now > 0:
            return
        # Whoever got less than was meant for it, for want of slots or by the guard, has not been tried.
        if step.scarce or job in step.clipped:
            return
        self.memory.blacklist[job] = self.now_s + self.parameters.blacklist_s
        self.log.add(
            job,
            messages.BLACKLISTED,
            f"{job} went from {before:.4g} to {now:.4g} of {self.view.jobs[job].max_utility:g}, less "
            f"than {100 * delta:g} % more: it keeps what it got and is skipped for "
            f"{self.parameters.blacklist_s:g} s.",
            {"utility_before": before, "utility": now, "improvement": delta},
            step.ids,
        )

    # ----- Converged

    def left(self) -> bool:
        """Whether the cluster leaves Converged."""
        memory, now = self.memory, self.utilities()
        if memory.baseline is None:
            memory.baseline = now
        before, after = self.then_and_now(memory.baseline)
        numbers = {"before": before, "after": after}
        if self.fell(before, after, self.parameters.drop):
            memory.forget()
            memory.blacklist.clear()
            self.leave(
                messages.DROPPED,
                f"Utility dropped from {messages.share(before)} to {messages.share(after)} of its maximum: "
                "the load must have changed, so all past actions are forgotten.",
                numbers,
            )
            return True
        if after > before * (1 + self.parameters.drop):
            memory.baseline = now
        missed = self.missed_again(now)
        if missed:
            self.leave(
                messages.MISSED_AGAIN,
                f"{messages.some(missed)} met the intent when the cluster was Converged and no longer "
                f"does, for {self.parameters.stable_s:g} s.",
                {**numbers, "jobs": len(missed)},
            )
        return bool(missed)

    def missed_again(self, now: dict[str, float]) -> list[str]:
        """Further violations (5.3): jobs that had met their intents and have missed them for a
        while. Not those that are blacklisted: nothing could be done for them.
        """
        memory = self.memory
        assert memory.baseline is not None  # noqa: S101 - set on entering
        for name in list(memory.missed_s):
            if name not in now or not self.misses(name):
                del memory.missed_s[name]
        for name in now:
            # Who had nothing to do then, or was not seen, had nothing to miss.
            had = memory.baseline.setdefault(name, self.view.jobs[name].max_utility)
            full = self.view.jobs[name].max_utility * (1 - self.parameters.missed)
            if self.misses(name) and had >= full and not self.blacklisted(name):
                memory.missed_s.setdefault(name, self.now_s)
        return sorted(
            name
            for name, since_s in memory.missed_s.items()
            if self.now_s - since_s >= self.parameters.stable_s
        )

    def leave(self, reason: str, sentence: str, numbers: dict[str, float]) -> None:
        memory = self.memory
        memory.phase, memory.baseline = Phase.NOT_CONVERGED, None
        memory.missed_s.clear()
        memory.cause = self.log.add(None, reason, sentence, numbers, [memory.cause])

    def converge(self, reason: str, sentence: str) -> None:
        memory = self.memory
        memory.phase, memory.missed_s = Phase.CONVERGED, {}
        memory.met_since_s = memory.stuck_since_s = None
        # After a Reversion utilities first have to come to rest.
        memory.baseline = self.utilities() if memory.step is None else None
        numbers = {"goal": self.goal(), "jobs": len(self.view.jobs)}
        memory.cause = self.log.add(None, reason, sentence, numbers, [memory.cause])

    # ----- Not Converged

    def explore(self) -> None:
        self.record()
        missing = [self.view.jobs[name] for name in self.utilities() if self.misses(name)]
        if not missing:
            self.watch()
            return
        self.memory.met_since_s = None
        stuck_since_s, self.memory.stuck_since_s = self.memory.stuck_since_s, None
        waiting, starved = bool(self.sight.waited_for), list[JobView]()
        for seen in sorted(missing, key=self.rank):
            if self.blacklisted(seen.id) or seen.status.mode is Mode.OFF:
                continue
            if seen.status.mode is Mode.AUTO and not seen.status.open:
                waiting = True
                continue
            share = gift(self.scene, seen, self.view, self.parameters)
            if share.given:
                self.reconfigure(seen, share)
                return
            if share.starved and seen.status.mode is Mode.AUTO:
                starved.append(seen)
        if starved:
            said = f"{messages.some(s.id for s in starved)} would gain by more, and no slot is free"
            if self.reduced(said, {"starved": len(starved)}, [self.memory.cause]):
                return
        if not waiting:
            self.memory.stuck_since_s = self.now_s if stuck_since_s is None else stuck_since_s
            if self.now_s - self.memory.stuck_since_s >= self.parameters.stable_s:
                self.give_up(missing)

    def rank(self, seen: JobView) -> tuple[float | str, ...]:
        """The highest maximum utility first, then the lowest current one (5.1). To raise the least
        share, who has it comes first.
        """
        utility = seen.utility or 0.0
        if self.parameters.goal == MAX_MIN:
            share = utility / seen.max_utility if seen.max_utility > 0 else 1.0
            return share, -seen.max_utility, seen.id
        return -seen.max_utility, utility, seen.id

    def watch(self) -> None:
        """Everything is met: is it still, after some rounds?"""
        memory = self.memory
        memory.stuck_since_s = None
        if memory.met_since_s is None:
            memory.met_since_s = self.now_s
        if self.sight.waited_for or self.now_s - memory.met_since_s < self.parameters.stable_s:
            return
        self.converge(
            messages.CONVERGED_MET,
            f"Every intent is met, and has been for {self.parameters.stable_rounds} rounds.",
        )

    def give_up(self, missing: Sequence[JobView]) -> None:
        """No useful action is left: back to the best, then Converged."""
        best = self.best()
        if best is not None and best.back and self.fell(*self.beside(best), self.parameters.noise):
            names = messages.some(seen.id for seen in missing)
            self.revert(f"no action is left that would help {names}", {}, [self.memory.cause])
        self.converge_stuck()

    def converge_stuck(self) -> None:
        missing = [name for name in self.utilities() if self.misses(name)]
        black = sum(self.blacklisted(name) for name in missing)
        self.converge(
            messages.CONVERGED_STUCK,
            f"{messages.some(missing)} miss their intents ({black} of {len(missing)} blacklisted), and no "
            "action is left that would help."
            if missing
            else "The best configuration is back.",
        )
