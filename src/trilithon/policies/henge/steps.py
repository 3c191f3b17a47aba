"""Owns Henge's three actions: Reconfiguration, Reduction and Reversion (SoCC'18, sections 5.1 to 5.3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trilithon.model.mode import Mode
from trilithon.model.utility import Sense
from trilithon.policies.decision import Expectation
from trilithon.policies.henge import messages
from trilithon.policies.henge.memory import Configuration, Counts, Memory, SearchStep, StepKind
from trilithon.policies.henge.messages import DecisionLog
from trilithon.policies.henge.outside import Attention
from trilithon.policies.henge.parameters import MAX_MIN, HengeParameters
from trilithon.policies.henge.shares import InstanceGrant, fewer
from trilithon.policies.henge.view import JobView, View, expected
from trilithon.policies.scene import Scene

# Of each job, the times of so many Reconfigurations are kept.
MOST_TOUCHES = 32


@dataclass(slots=True)
class Steps:
    """What a round has, and what it can do. Each action begins a step, whose effect is waited for."""

    scene: Scene
    parameters: HengeParameters
    memory: Memory
    log: DecisionLog
    view: View
    sight: Attention

    @property
    def now_s(self) -> float:
        return self.scene.now_s

    def reconfigure(self, seen: JobView, share: InstanceGrant) -> None:
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
        id_ = self.log.add(
            seen.id,
            messages.RECONFIGURATION,
            f"{messages.missed(seen)}; of those that miss their intents it has the "
            + ("lowest share" if parameters.goal == MAX_MIN else "highest maximum")
            + f" of utility: {messages.changes(share)}.",
            numbers,
            [self.memory.cause],
            share.counts,
            Expectation(
                threshold.key,
                expected(threshold, value, parameters.improvement),
                self.now_s + parameters.settle_most_s,
                threshold.sense,
            ),
        )
        self.memory.cause = id_
        if seen.status.mode is Mode.ADVISE:
            # People may follow the advice or not: nothing to wait for, and once is enough.
            self.memory.blacklist[seen.id] = self.now_s + parameters.blacklist_s
            return
        touched = self.memory.jobs[seen.id].touched_s
        self.memory.jobs[seen.id].touched_s = [*touched, self.now_s][-MOST_TOUCHES:]
        step = self.begin(StepKind.RECONFIGURATION, [id_], [seen.id], {seen.id: dict(share.counts)})
        step.scarce = share.given < share.wanted

    def reduced(self, why: str, numbers: dict[str, float], causes: Sequence[str | None]) -> bool:
        """A Reduction, if its conditions (b) and (c) hold and it would free anything."""
        if self.memory.reduced is not None:
            return False
        left = {
            name: counts
            for name in self.utilities()
            if not self.misses(name) and self.view.jobs[name].status.open
            and (counts := fewer(self.scene, self.view.jobs[name], self.view, self.parameters))
        }  # fmt: skip
        if not left:
            return False
        ids = []
        crowd = {"machines": self.view.crowd.machines, "congested": self.view.crowd.congested}
        for name, counts in left.items():
            seen = self.view.jobs[name]
            before = seen.status.allocation.parallelism
            threshold, _ = seen.worst()
            ids.append(
                self.log.add(
                    name,
                    messages.REDUCTION,
                    f"{name} meets its intent and {why}: {messages.moved(before, counts)}.",
                    {**numbers, **crowd, "utility": seen.utility},
                    causes,
                    counts,
                    Expectation(
                        threshold.key,
                        threshold.value,
                        self.now_s + self.parameters.settle_most_s,
                        threshold.sense,
                    ),
                )
            )
        self.memory.reduced = self.memory.cause = ids[0]
        self.begin(StepKind.REDUCTION, ids, list(left), left)
        return True

    def revert(self, why: str, numbers: dict[str, float], causes: Sequence[str | None]) -> None:
        """Back to the configuration that was worth the most. Who gives back does so first; slots that are free only
        then are asked for in the rounds after it.
        """
        if (best := self.best()) is None:
            return
        was, _ = self.beside(best)
        back = {
            name: counts
            for name, counts in best.back.items()
            if name in self.scene.statuses and self.scene.statuses[name].mode is Mode.AUTO
        }
        now = {name: self.scene.statuses[name].allocation for name in back}
        order = sorted(back, key=lambda n: (sum(back[n].values()) - now[n].instances, n))
        free = self.scene.cluster.slots_free
        asked: dict[str, Counts] = {}
        for name in order:
            before = now[name].parallelism
            target = self.within(name, back[name])
            counts = {op: count for op, count in target.items() if count != before[op]}
            more = sum(count - before[op] for op, count in counts.items())
            # Somebody who cannot be changed now may hold what another should get.
            if not counts or (free is not None and more > max(0, free)):
                continue
            free = None if free is None else free - more
            asked[name] = counts
        ids = [
            self.log.add(
                name,
                messages.REVERSION,
                f"The best configuration was that of {best.at_s:g} s with {messages.share(was)} "
                f"of the maximum; {why}: {messages.moved(now[name].parallelism, counts)}.",
                {**numbers, "best": was, "best_at_s": best.at_s},
                causes,
                counts,
                Expectation(
                    "satisfaction",
                    was,
                    self.now_s + self.parameters.settle_most_s,
                    Sense.AT_LEAST,
                ),
            )
            for name, counts in self.within_free_slots(self.actionable(asked)).items()
        ]
        if asked:
            self.memory.cause = ids[0] if ids else self.memory.cause
            self.begin(StepKind.REVERSION, ids, sorted(back), asked)

    def within_free_slots(self, asked: Mapping[str, Counts]) -> dict[str, Counts]:
        """Of what is asked for, what the slots of now allow: all that gives back, and who gets if all of it is
        there. What is given back in a round is free in the next.
        """
        free, found = self.scene.cluster.slots_free, dict[str, Counts]()
        for name, counts in asked.items():
            before = self.scene.statuses[name].allocation.parallelism
            more = sum(count - before[op] for op, count in counts.items())
            if free is None or more <= max(0, free):
                free = None if free is None else free - max(0, more)
                found[name] = counts
        return found

    def begin(
        self,
        kind: StepKind,
        ids: list[str],
        jobs: Sequence[str],
        asked: Mapping[str, Counts],
    ) -> SearchStep:
        decisions: dict[str, list[str]] = {}
        for id_ in ids:
            decisions.setdefault(self.log.jobs[id_], []).append(id_)
        self.memory.step = step = SearchStep(
            kind, self.now_s, ids, self.utilities(), list(jobs), dict(asked), decisions
        )
        return step

    def pending(self, step: SearchStep) -> dict[str, Counts]:
        """What a step asked for that is not so, of the jobs that may be changed."""
        left = {}
        for name, counts in step.asked.items():
            status = self.scene.statuses.get(name)
            if status is not None and status.mode is Mode.AUTO:
                now = status.allocation.parallelism
                left[name] = {op: n for op, n in counts.items() if n != now.get(op, n)}
        return {name: counts for name, counts in left.items() if counts}

    def retry_pending(self, step: SearchStep) -> bool:
        """Whether something of a Reduction or a Reversion is still wished for. A guard lets a job have fewer
        instances only after that was wished for long enough, no more at once than a factor, and nothing while a job
        cools down; and who is to get waits for who is to give.
        """
        if step.kind is StepKind.RECONFIGURATION or not (left := self.pending(step)):
            return False
        statuses = self.scene.statuses
        changed = (statuses[name].changed_s for name in step.asked if name in statuses)
        last_s = max([step.at_s, *(at_s for at_s in changed if at_s is not None)])
        if self.now_s - last_s >= self.parameters.settle_most_s + self.scene.cluster.down_delay_s:
            self.report_incomplete(step, left)
            return False
        reason = {StepKind.REDUCTION: messages.REDUCTION, StepKind.REVERSION: messages.REVERSION}[
            step.kind
        ]
        for name, counts in self.within_free_slots(self.actionable(left)).items():
            before = statuses[name].allocation.parallelism
            said = f"Still pending: {messages.moved(before, counts)}."
            id_ = self.log.add(name, reason, said, {"asked_s": step.at_s}, step.ids, counts)
            step.decisions.setdefault(name, []).append(id_)
        return True

    def actionable(self, left: Mapping[str, Counts]) -> dict[str, Counts]:
        """What a guard listens to now. While it holds a job it grants nothing, but a wish for fewer that is not
        repeated is withdrawn.
        """
        found = {}
        for name, counts in left.items():
            status = self.scene.statuses[name]
            now = status.allocation.parallelism
            found[name] = {op: n for op, n in counts.items() if status.open or n < now[op]}
        return {name: counts for name, counts in found.items() if counts}

    def report_incomplete(self, step: SearchStep, left: Mapping[str, Counts]) -> None:
        """What was not done after so long is told, once, and not asked for any more."""
        if step.told:
            return
        step.told = True
        self.log.add(
            None,
            messages.NOT_CARRIED_OUT,
            f"The {step.kind.title()} of {messages.some(left)} was not carried out, or only in part.",
            {"asked_s": step.at_s, "jobs": len(left)},
            step.ids,
        )

    def within(self, job: str, counts: Counts) -> Counts:
        """Bounds and what is fixed may have changed since."""
        status = self.scene.statuses[job]
        return {
            name: status.spans[name].clip(count) if name in status.spans else count
            for name, count in counts.items()
            if name in status.allocation.parallelism and name not in status.fixed
        }

    def record(self) -> None:
        utilities = self.utilities()
        short = {n: u for n, u in utilities.items() if u < self.view.jobs[n].max_utility}
        without = sorted(set(self.scene.statuses) - set(utilities))
        goal = self.view.goal(utilities, self.parameters)
        now = Configuration(goal, self.now_s, short=short, without=without)
        self.memory.record(now, self.parameters.history)

    def beside(self, place: Configuration) -> tuple[float, float]:
        """What a configuration was worth and what that of now is, by the jobs that count in both."""
        without, jobs = set(place.without), self.view.jobs
        return self.then_and_now(
            {
                name: place.short.get(name, jobs[name].max_utility)
                for name in self.utilities()
                if name not in without
            }
        )

    def then_and_now(self, then: Mapping[str, float]) -> tuple[float, float]:
        """The goal with the utilities of another time and with those of now, by the jobs that are in both."""
        now = self.utilities()
        common = sorted(set(then) & set(now))
        before, after = ({name: one[name] for name in common} for one in (then, now))
        return self.view.goal(before, self.parameters), self.view.goal(after, self.parameters)

    def best(self) -> Configuration | None:
        """The configuration that was worth the most more than that of now, the latest of several."""

        def gain(place: Configuration) -> tuple[float, float]:
            was, now = self.beside(place)
            return was - now, place.at_s

        return max(self.memory.history, key=gain, default=None)

    def utilities(self) -> dict[str, float]:
        return self.view.utilities(self.sight.counted)

    def goal(self) -> float:
        return self.view.goal(self.utilities(), self.parameters)

    def misses(self, job: str) -> bool:
        return self.view.jobs[job].misses(self.parameters.missed)

    def blacklisted(self, job: str) -> bool:
        return self.memory.blacklist.get(job, 0.0) > self.now_s
