"""Owns Henge's three actions: Reconfiguration, Reduction and Reversion (SoCC'18, sections 5.1 to 5.3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trilithon.policies.henge import tell
from trilithon.policies.henge.memory import Counts, Kind, Memory, Step
from trilithon.policies.henge.outside import Sight
from trilithon.policies.henge.parameters import MAX_MIN, HengeParameters
from trilithon.policies.henge.shares import Gift, fewer
from trilithon.policies.henge.tell import Teller
from trilithon.policies.henge.view import Seen, View, expected
from trilithon.policies.policy import Expectation
from trilithon.policies.scene import Mode, Scene

# Of each job, the times of so many Reconfigurations are kept.
MOST_TOUCHES = 32


@dataclass(slots=True)
class Steps:
    """What a round has, and what it can do. Each action begins a step, whose effect is waited for."""

    scene: Scene
    parameters: HengeParameters
    memory: Memory
    teller: Teller
    view: View
    sight: Sight

    @property
    def now_s(self) -> float:
        return self.scene.now_s

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
        self.begin(Kind.REDUCTION, ids, list(left), left)
        return True

    def revert(self, why: str, numbers: dict[str, float], causes: Sequence[str | None]) -> None:
        """Back to the configuration that was worth the most."""
        best = self.memory.best()
        back = {
            name: counts
            for name, counts in (best.back if best is not None else {}).items()
            if name in self.scene.standings and self.scene.standings[name].open
        }
        now = {name: self.scene.standings[name].allocation for name in back}
        # Who gives back comes first, so that who gets finds free slots.
        order = sorted(back, key=lambda n: (sum(back[n].values()) - now[n].instances, n))
        ids, asked, free = [], dict[str, Counts](), self.scene.cluster.slots_free
        for name in order:
            target = self.within(name, back[name])
            before = now[name].parallelism
            counts = {op: count for op, count in target.items() if count != before[op]}
            more = sum(count - before[op] for op, count in counts.items())
            # Somebody who cannot be changed now may hold what another should get.
            if not counts or best is None or (free is not None and more > max(0, free)):
                continue
            free = None if free is None else free - more
            asked[name] = counts
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
            self.begin(Kind.REVERSION, ids, sorted(back), asked)

    def begin(
        self,
        kind: Kind,
        ids: list[str],
        jobs: Sequence[str],
        asked: Mapping[str, Counts] | None = None,
    ) -> None:
        standings = self.scene.standings
        generations = {name: standings[name].allocation.generation for name in jobs}
        self.memory.step = Step(
            kind, self.now_s, ids, self.utilities(), generations, dict(asked or {})
        )

    def asked_again(self, step: Step) -> bool:
        """Whether something of a step is still wished for. A guard lets a job have fewer instances only after
        that was wished for long enough.
        """
        if self.now_s - step.at_s >= self.parameters.settle_most_s:
            return False
        standings = self.scene.standings
        left = {}
        for name, counts in step.asked.items():
            if name in standings and standings[name].open:
                now = standings[name].allocation.parallelism
                left[name] = {op: n for op, n in counts.items() if n < now.get(op, n)}
        left = {name: counts for name, counts in left.items() if counts}
        reason = {Kind.REDUCTION: tell.REDUCTION, Kind.REVERSION: tell.REVERSION}
        for name, counts in left.items():
            before = standings[name].allocation.parallelism
            said = f"It is still to be: {tell.moved(before, counts)}."
            self.teller.tell(
                name, reason[step.kind], said, {"asked_s": step.at_s}, step.ids, counts
            )
        return bool(left)

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
