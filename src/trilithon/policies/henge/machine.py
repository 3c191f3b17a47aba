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
from dataclasses import dataclass

from trilithon.policies.henge import tell
from trilithon.policies.henge.memory import Counts, Kind, Memory, Phase, Step
from trilithon.policies.henge.outside import Sight, notice, sight
from trilithon.policies.henge.parameters import MAX_MIN, HengeParameters
from trilithon.policies.henge.shares import Gift, fewer, gift
from trilithon.policies.henge.tell import Teller
from trilithon.policies.henge.view import STEADY_PARTS, Seen, View, expected, steady, view
from trilithon.policies.policy import Decision, Expectation
from trilithon.policies.scene import Mode, Scene

# Of each job, the times of so many Reconfigurations are kept.
MOST_TOUCHES = 32


def run(scene: Scene, parameters: HengeParameters, memory: Memory) -> Sequence[Decision]:
    """One round. Changes the memory, which is the round's own copy."""
    teller = Teller(scene)
    found = view(scene, parameters, memory.from_s)
    if found is None:
        return ()
    notice(scene, found, memory, parameters, teller)
    seen = sight(scene, found, memory, parameters)
    one = _Round(scene, parameters, memory, teller, found, seen)
    if one.may_act():
        one.act()
    return teller.decisions


@dataclass(slots=True)
class _Round:
    scene: Scene
    parameters: HengeParameters
    memory: Memory
    teller: Teller
    view: View
    sight: Sight

    @property
    def now_s(self) -> float:
        return self.scene.now_s

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
            reason = tell.MISSING if held else tell.BACK
            memory.cause = self.teller.tell(None, reason, said, numbers, [memory.cause])
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
        standings = {
            j: self.scene.standings[j] for j in step.generations if j in self.scene.standings
        }
        if any(standing.in_flight for standing in standings.values()) and not self.overdue(step):
            return False
        done = [
            j for j, one in standings.items() if one.allocation.generation > step.generations[j]
        ]
        if not done:
            self.memory.step = None
            return self.not_carried_out(step)
        changed = [standings[job].changed_s for job in done]
        since_s = max([step.at_s, *(s for s in changed if s is not None)])
        from_s = self.settled(step, since_s)
        if from_s is None or (found := view(self.scene, self.parameters, from_s)) is None:
            return False
        self.view, self.memory.from_s, self.memory.step = found, from_s, None
        if step.kind is Kind.RECONFIGURATION:
            self.compare(step)
        elif step.kind is Kind.REDUCTION:
            self.record()
        return True

    def overdue(self, step: Step) -> bool:
        """What is under way for ever must not hold up everybody."""
        most_s = self.parameters.settle_most_s + self.parameters.recover_s
        return self.now_s - step.at_s >= most_s

    def settled(self, step: Step, since_s: float) -> float | None:
        """From when on utilities are at rest after the step; None while they are not. That takes a
        minute or more; what has not come to rest after a few is judged as it is.
        """
        waited_s = self.now_s - since_s
        job = next(iter(step.generations)) if step.kind is Kind.RECONFIGURATION else None
        if waited_s < self.parameters.settle_s:
            return None
        longest_s = self.parameters.settle_most_s
        if job is not None and job in self.sight.waited_for:
            longest_s += self.parameters.recover_s
        elif steady(self.scene, job, since_s, self.parameters):
            return max(since_s, self.now_s - STEADY_PARTS * self.parameters.part_s)
        return since_s if waited_s >= longest_s else None

    def not_carried_out(self, step: Step) -> bool:
        """Nobody did what was decided. To ask again each round would only be noise."""
        if step.kind is Kind.RECONFIGURATION:
            job = next(iter(step.generations))
            self.memory.blacklist[job] = self.now_s + self.parameters.blacklist_s
            self.teller.tell(
                job,
                tell.NOT_CARRIED_OUT,
                f"The Reconfiguration of {job} was not carried out; it is skipped for "
                f"{self.parameters.blacklist_s:g} s.",
                {"asked_s": step.at_s},
                step.ids,
            )
        return True

    def compare(self, step: Step) -> None:
        """What a Reconfiguration brought: to the job, and to the cluster."""
        job = next(iter(step.generations))
        now = self.utilities()
        common = sorted(set(step.before) & set(now))
        before = self.view.goal({name: step.before[name] for name in common}, self.parameters)
        after = self.view.goal({name: now[name] for name in common}, self.parameters)
        self.record()
        if job in now and job in step.before:
            self.maybe_blacklist(job, step, now[job])
        if after >= before * (1 - self.parameters.noise):
            return
        said = f"utility fell from {tell.share(before)} to {tell.share(after)} of its maximum"
        numbers = {"before": before, "after": after}
        if self.view.crowd.most and self.reduced(said, numbers, step.ids):
            return
        lockout = self.memory.reduced is not None and self.view.crowd.most
        why = f"{said}, and " + (
            "there was a Reduction already (lockout)" if lockout else "a Reduction is not possible"
        )
        self.revert(why, numbers, [*step.ids, self.memory.reduced])

    def maybe_blacklist(self, job: str, step: Step, now: float) -> None:
        before, delta = step.before[job], self.parameters.improvement
        if not self.view.jobs[job].misses(self.parameters.missed):
            return
        if now >= before * (1 + delta) and now > 0:
            return
        self.memory.blacklist[job] = self.now_s + self.parameters.blacklist_s
        self.teller.tell(
            job,
            tell.BLACKLISTED,
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
        common = sorted(set(memory.baseline) & set(now))
        before = self.view.goal({name: memory.baseline[name] for name in common}, self.parameters)
        after = self.view.goal({name: now[name] for name in common}, self.parameters)
        numbers = {"before": before, "after": after}
        if after < before * (1 - self.parameters.drop):
            memory.forget()
            memory.blacklist.clear()
            self.leave(
                tell.DROPPED,
                f"Utility dropped from {tell.share(before)} to {tell.share(after)} of its maximum: "
                "the load must have changed, so all past actions are forgotten.",
                numbers,
            )
            return True
        if after > before * (1 + self.parameters.drop):
            memory.baseline = now
        missed = self.missed_again(now)
        if missed:
            self.leave(
                tell.MISSED_AGAIN,
                f"{tell.some(missed)} met the intent when the cluster was Converged and no longer "
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
            had = memory.baseline.get(name, 0.0)
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
        memory.cause = self.teller.tell(None, reason, sentence, numbers, [memory.cause])

    def converge(self, reason: str, sentence: str) -> None:
        memory = self.memory
        memory.phase, memory.missed_s = Phase.CONVERGED, {}
        memory.met_since_s = memory.stuck_since_s = None
        # After a Reversion utilities first have to come to rest.
        memory.baseline = self.utilities() if memory.step is None else None
        numbers = {"goal": self.goal(), "jobs": len(self.view.jobs)}
        memory.cause = self.teller.tell(None, reason, sentence, numbers, [memory.cause])

    # ----- Not Converged

    def explore(self) -> None:
        self.record()
        missing = [self.view.jobs[name] for name in self.utilities() if self.misses(name)]
        if not missing:
            self.watch()
            return
        self.memory.met_since_s = None
        stuck_since_s, self.memory.stuck_since_s = self.memory.stuck_since_s, None
        waiting, starved = bool(self.sight.waited_for), list[Seen]()
        for seen in sorted(missing, key=self.rank):
            if self.blacklisted(seen.id) or seen.standing.mode is Mode.OFF:
                continue
            if seen.standing.mode is Mode.AUTO and not seen.standing.open:
                waiting = True
                continue
            share = gift(self.scene, seen, self.view, self.parameters)
            if share.given:
                self.reconfigure(seen, share)
                return
            if share.starved:
                starved.append(seen)
        if starved:
            said = f"{tell.some(s.id for s in starved)} would gain by more, and no slot is free"
            if self.reduced(said, {"starved": len(starved)}, [self.memory.cause]):
                return
        if not waiting:
            self.memory.stuck_since_s = self.now_s if stuck_since_s is None else stuck_since_s
            if self.now_s - self.memory.stuck_since_s >= self.parameters.stable_s:
                self.give_up(missing)

    def rank(self, seen: Seen) -> tuple[float | str, ...]:
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
            tell.CONVERGED_MET,
            f"Every intent is met, and has been for {self.parameters.stable_rounds} rounds.",
        )

    def reconfigure(self, seen: Seen, share: Gift) -> None:
        threshold, value = seen.worst()
        parameters = self.parameters
        numbers: dict[str, float | None] = {
            "utility": seen.utility,
            "max_utility": seen.max_utility,
            "goal": self.goal(),
            "wanted": share.wanted,
            "given": share.given,
            **{f"capacity.{one.name}": one.capacity for one in share.operators},
        }
        id_ = self.teller.tell(
            seen.id,
            tell.RECONFIGURATION,
            f"{tell.missed(seen)}; of those that miss their intents it has the "
            + ("lowest share" if parameters.goal == MAX_MIN else "highest maximum")
            + f" of utility: {tell.changes(share)}.",
            numbers,
            [self.memory.cause],
            share.counts,
            Expectation(
                threshold.key,
                expected(threshold, value, parameters.improvement),
                self.now_s + parameters.settle_most_s,
            ),
        )
        self.memory.cause = id_
        if seen.standing.mode is Mode.ADVISE:
            # People may follow the advice or not: nothing to wait for, and once is enough.
            self.memory.blacklist[seen.id] = self.now_s + parameters.blacklist_s
            return
        touched = self.memory.jobs[seen.id].touched_s
        self.memory.jobs[seen.id].touched_s = [*touched, self.now_s][-MOST_TOUCHES:]
        self.begin(Kind.RECONFIGURATION, [id_], [seen.id])

    def reduced(self, why: str, numbers: dict[str, float], causes: Sequence[str | None]) -> bool:
        """A Reduction, if its conditions (b) and (c) hold and it would free anything."""
        if self.memory.reduced is not None:
            return False
        left = {
            name: counts
            for name in self.utilities()
            if not self.misses(name) and self.view.jobs[name].standing.open
            and (counts := fewer(self.scene, self.view.jobs[name], self.view, self.parameters))
        }  # fmt: skip
        if not left:
            return False
        ids = []
        crowd = {"machines": self.view.crowd.machines, "congested": self.view.crowd.congested}
        for name, counts in left.items():
            seen = self.view.jobs[name]
            before = seen.standing.allocation.parallelism
            threshold, _ = seen.worst()
            ids.append(
                self.teller.tell(
                    name,
                    tell.REDUCTION,
                    f"{name} meets its intent and {why}: {tell.moved(before, counts)}.",
                    {**numbers, **crowd, "utility": seen.utility},
                    causes,
                    counts,
                    Expectation(
                        threshold.key, threshold.value, self.now_s + self.parameters.settle_most_s
                    ),
                )
            )
        self.memory.reduced = self.memory.cause = ids[0]
        self.begin(Kind.REDUCTION, ids, list(left))
        return True

    def give_up(self, missing: Sequence[Seen]) -> None:
        """No useful action is left: back to the best, then Converged."""
        best = self.memory.best()
        if best is not None and best.back and best.goal * (1 - self.parameters.noise) > self.goal():
            names = tell.some(seen.id for seen in missing)
            self.revert(f"no action is left that would help {names}", {}, [self.memory.cause])
            return
        self.converge_stuck()

    def converge_stuck(self) -> None:
        missing = [name for name in self.utilities() if self.misses(name)]
        black = sum(self.blacklisted(name) for name in missing)
        self.converge(
            tell.CONVERGED_STUCK,
            f"{tell.some(missing)} miss their intents ({black} of {len(missing)} blacklisted), and no "
            "action is left that would help."
            if missing
            else "The best configuration is back.",
        )

    def revert(self, why: str, numbers: dict[str, float], causes: Sequence[str | None]) -> None:
        """Back to the configuration that was worth the most, and Converged."""
        best = self.memory.best()
        back = {
            name: counts
            for name, counts in (best.back if best is not None else {}).items()
            if name in self.scene.standings and self.scene.standings[name].open
        }
        now = {name: self.scene.standings[name].allocation for name in back}
        # Who gives back comes first, so that who gets finds free slots.
        order = sorted(back, key=lambda n: (sum(back[n].values()) - now[n].instances, n))
        ids, free = [], self.scene.cluster.slots_free
        for name in order:
            target = self.within(name, back[name])
            before = now[name].parallelism
            counts = {op: count for op, count in target.items() if count != before[op]}
            more = sum(count - before[op] for op, count in counts.items())
            # Somebody who cannot be changed now may hold what another should get.
            if not counts or best is None or (free is not None and more > max(0, free)):
                continue
            free = None if free is None else free - more
            ids.append(
                self.teller.tell(
                    name,
                    tell.REVERSION,
                    f"The best configuration was that of {best.at_s:g} s with {tell.share(best.goal)} "
                    f"of the maximum; {why}: {tell.moved(before, counts)}.",
                    {**numbers, "best": best.goal, "best_at_s": best.at_s},
                    causes,
                    counts,
                    Expectation(
                        "satisfaction", best.goal, self.now_s + self.parameters.settle_most_s
                    ),
                )
            )
        if ids:
            self.memory.cause = ids[0]
            self.begin(Kind.REVERSION, ids, sorted(back))
        self.converge_stuck()

    # ----- shared by them

    def begin(self, kind: Kind, ids: list[str], jobs: Sequence[str]) -> None:
        standings = self.scene.standings
        generations = {name: standings[name].allocation.generation for name in jobs}
        self.memory.step = Step(kind, self.now_s, ids, self.utilities(), generations)

    def within(self, job: str, counts: Counts) -> Counts:
        """Bounds and what is fixed may have changed since."""
        standing = self.scene.standings[job]
        return {
            name: standing.spans[name].clip(count) if name in standing.spans else count
            for name, count in counts.items()
            if name in standing.allocation.parallelism and name not in standing.fixed
        }

    def record(self) -> None:
        self.memory.record(self.goal(), self.now_s, self.parameters.history)

    def utilities(self) -> dict[str, float]:
        return self.view.utilities(self.sight.counted)

    def goal(self) -> float:
        return self.view.goal(self.utilities(), self.parameters)

    def misses(self, job: str) -> bool:
        return self.view.jobs[job].misses(self.parameters.missed)

    def blacklisted(self, job: str) -> bool:
        return self.memory.blacklist.get(job, 0.0) > self.now_s
