"""Runs Henge's actions: Reconfiguration, Reduction, Reversion (SoCC'18, sections 5.1 to 5.3)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from trilithon.model.intent import Threshold
from trilithon.model.mode import Mode
from trilithon.model.utility import Sense
from trilithon.policies.decision import Expectation
from trilithon.policies.henge import messages
from trilithon.policies.henge.comparison import Comparison
from trilithon.policies.henge.external_changes import JobSelection
from trilithon.policies.henge.henge_parameters import MAX_MIN, HengeParameters
from trilithon.policies.henge.instance_counts import InstanceGrant, plan_reduction
from trilithon.policies.henge.memory import Configuration, Counts, Memory, SearchStep, StepKind
from trilithon.policies.henge.messages import DecisionLog
from trilithon.policies.henge.trend import Trend
from trilithon.policies.henge.view import ClusterView, JobView, expected_value
from trilithon.policies.scene import Scene

# Holds of the guard that end by themselves within a minute or so.
COOL_DOWN: Final = "COOL_DOWN"
IN_FLIGHT: Final = "IN_FLIGHT"
# How many Reconfiguration times are kept per job.
MAX_RECONFIGURATION_TIMES = 32


@dataclass(slots=True)
class RoundActions:
    """The inputs of a round, and the actions that it can take.

    Each action begins a step. Henge takes no other action before it has measured the step's effect.
    """

    scene: Scene
    parameters: HengeParameters
    memory: Memory
    log: DecisionLog
    view: ClusterView
    selection: JobSelection
    # Trends by the moment that they begin with: several questions of a round need the same.
    trends: dict[float | None, Trend] = field(default_factory=dict)

    @property
    def now_s(self) -> float:
        return self.scene.now_s

    def trend(self, since_s: float | None) -> Trend:
        """How utilities moved over the window, or over what there is of it since a moment."""
        if since_s not in self.trends:
            self.trends[since_s] = Trend.of(self.scene, self.parameters, since_s)
        return self.trends[since_s]

    def reconfigure(
        self, job: JobView, grant: InstanceGrant, passed_over: Mapping[str, str]
    ) -> None:
        """Gives a job instances. `passed_over` are jobs that came before it in the order, and why
        they were not taken.
        """
        threshold, value = job.worst_threshold()
        parameters = self.parameters
        numbers: dict[str, float | None] = {
            "utility": job.utility,
            "max_utility": job.max_utility,
            "goal": self.levels()[0],
            "wanted": grant.wanted,
            "given": grant.given,
            **{f"capacity.{operator.name}": operator.capacity for operator in grant.operators},
        }
        priority = (
            "lowest share of its maximum utility"
            if parameters.goal == MAX_MIN
            else "highest maximum utility"
        )
        id_ = self.log.add(
            job.id,
            messages.RECONFIGURATION,
            f"{messages.describe_miss(job)}. Of the jobs that miss their intents"
            f"{' and can be helped now' if passed_over else ''}, {job.id} has the {priority}: "
            f"{messages.describe_grant(grant)}." + messages.describe_passed_over(passed_over),
            numbers,
            [self.memory.cause],
            grant.parallelism,
            self._expect(threshold, expected_value(threshold, value, parameters.improvement)),
        )
        self.memory.cause = id_
        if job.status.mode is Mode.ADVISE:
            # People may follow the advice or not: there is nothing to wait for, and once is enough.
            self.memory.blacklist[job.id] = self.now_s + parameters.blacklist_s
            return
        times = [*self.memory.jobs[job.id].touched_s, self.now_s]
        self.memory.jobs[job.id].touched_s = times[-MAX_RECONFIGURATION_TIMES:]
        requested = {job.id: dict(grant.parallelism)}
        step = self.begin_step(StepKind.RECONFIGURATION, [id_], [job.id], requested)
        step.scarce = grant.given < grant.wanted

    def try_reduction(
        self, why: str, numbers: dict[str, float], causes: Sequence[str | None]
    ) -> bool:
        """Starts a Reduction if conditions (b) and (c) hold and it would free any instance."""
        if self.memory.reduced is not None:
            return False
        reduced, held = {}, {}
        for name in self.utilities():
            job = self.view.jobs[name]
            if self.misses_intent(name) or job.status.mode is not Mode.AUTO:
                continue
            counts = plan_reduction(self.scene, job, self.view, self.parameters)
            # What the guard holds for a short time is requested until it is granted.
            if counts and (job.status.in_flight or job.status.hold_reason not in {"", COOL_DOWN}):
                held[name] = job.status.hold_reason or IN_FLIGHT
            elif counts:
                reduced[name] = counts
        if not reduced:
            return False
        why += messages.describe_held(held)
        numbers = {**numbers, "held": len(held)}
        ids = []
        congestion = self.view.cluster_congestion
        machines = {"machines": congestion.machines, "congested": congestion.congested_machines}
        for name, counts in reduced.items():
            job = self.view.jobs[name]
            before = job.status.allocation.parallelism
            threshold, _ = job.worst_threshold()
            ids.append(
                self.log.add(
                    name,
                    messages.REDUCTION,
                    f"{why}. {name} meets its intent and gives instances back: "
                    f"{messages.describe_change(before, counts)}.",
                    {**numbers, **machines, "utility": job.utility},
                    causes,
                    counts,
                    self._expect(threshold, threshold.value),
                )
            )
        self.memory.reduced = self.memory.cause = ids[0]
        self.begin_step(StepKind.REDUCTION, ids, list(reduced), reduced)
        return True

    def _expect(self, threshold: Threshold, value: float) -> Expectation:
        by_s = self.now_s + self.parameters.settle_most_s
        return Expectation(threshold.key, value, by_s, threshold.sense)

    def revert(self, why: str, numbers: dict[str, float], causes: Sequence[str | None]) -> None:
        """Returns to the configuration with the highest utility.

        Jobs that give instances back come first. Slots that become free only then are requested
        in later rounds.
        """
        if (best := self.best_configuration()) is None:
            return
        best_goal = self.compare_configuration(best).before[0]
        # If utility does not return to this, the fall had another cause (`left_converged`).
        self.memory.baseline = {**self.utilities(), **self.utilities_then(best)}
        targets = {
            name: counts
            for name, counts in best.back.items()
            if name in self.scene.statuses and self.scene.statuses[name].mode is Mode.AUTO
        }
        requested = self._reversion_requests(targets)
        ids = [
            self.log.add(
                name,
                messages.REVERSION,
                f"{why}. The best configuration, at {best.at_s:g} s, had "
                f"{messages.percent(best_goal)} of the maximum utility. {name} returns to it: "
                f"{messages.describe_change(self._parallelism(name), counts)}.",
                {**numbers, "best": best_goal, "best_at_s": best.at_s},
                causes,
                counts,
                Expectation(
                    "satisfaction",
                    best_goal,
                    self.now_s + self.parameters.settle_most_s,
                    Sense.AT_LEAST,
                ),
            )
            for name, counts in self.within_free_slots(self.actionable(requested)).items()
        ]
        if requested:
            self.memory.cause = ids[0] if ids else self.memory.cause
            self.begin_step(StepKind.REVERSION, ids, sorted(targets), requested)

    def _reversion_requests(self, targets: Mapping[str, Counts]) -> dict[str, Counts]:
        """The changes that lead to the targets, releases first, as far as slots suffice."""

        def growth(name: str) -> tuple[int, str]:
            current = self.scene.statuses[name].allocation.instances
            return sum(targets[name].values()) - current, name

        free = self.scene.cluster.slots_free
        requested: dict[str, Counts] = {}
        for name in sorted(targets, key=growth):
            before = self._parallelism(name)
            target = self.clip_to_bounds(name, targets[name])
            counts = {op: count for op, count in target.items() if count != before[op]}
            more = sum(count - before[op] for op, count in counts.items())
            # A job that cannot change now may hold the slots that another one should get.
            if not counts or (free is not None and more > max(0, free)):
                continue
            free = None if free is None else free - more
            requested[name] = counts
        return requested

    def _parallelism(self, job: str) -> Mapping[str, int]:
        return self.scene.statuses[job].allocation.parallelism

    def within_free_slots(self, requested: Mapping[str, Counts]) -> dict[str, Counts]:
        """The requests that the free slots allow: every release, and each growth that fits whole.
        Slots released in this round are free in the next.
        """
        free, fitting = self.scene.cluster.slots_free, dict[str, Counts]()
        for name, counts in requested.items():
            before = self._parallelism(name)
            more = sum(count - before[op] for op, count in counts.items())
            if free is None or more <= max(0, free):
                free = None if free is None else free - max(0, more)
                fitting[name] = counts
        return fitting

    def begin_step(
        self,
        kind: StepKind,
        ids: list[str],
        jobs: Sequence[str],
        requested: Mapping[str, Counts],
    ) -> SearchStep:
        decisions: dict[str, list[str]] = {}
        for id_ in ids:
            decisions.setdefault(self.log.jobs[id_], []).append(id_)
        utilities = self.utilities()
        self.memory.step = step = SearchStep(
            kind,
            self.now_s,
            ids,
            utilities,
            list(jobs),
            dict(requested),
            decisions,
            sinking=self.sinking(),
            swing=self.swing(),
            loads_per_s={
                name: load
                for name in utilities
                if (load := self.view.jobs[name].load_per_s) is not None
            },
        )
        return step

    def sinking(self) -> list[str]:
        """The jobs whose utility falls by itself: no configuration is worse because of them."""
        return self.trend(self.memory.from_s).sinking(self.utilities())

    def swing(self) -> float:
        """By how much the cluster's utility swings by itself."""
        maxima = {name: self.view.jobs[name].max_utility for name in self.utilities()}
        of_sum = self.parameters.goal != MAX_MIN
        return self.trend(self.memory.from_s).swing(maxima, of_sum=of_sum)

    def pending(self, step: SearchStep) -> dict[str, Counts]:
        """What a step requested and the engine does not have yet, of jobs in mode `auto`."""
        pending = {}
        for name, counts in step.asked.items():
            status = self.scene.statuses.get(name)
            if status is not None and status.mode is Mode.AUTO:
                current = status.allocation.parallelism
                pending[name] = {op: n for op, n in counts.items() if n != current.get(op, n)}
        return {name: counts for name, counts in pending.items() if counts}

    def retry_pending(self, step: SearchStep) -> bool:
        """Requests the rest of a Reduction or a Reversion again; False if there is none.

        The guard grants fewer instances only after they were requested for long enough, limits a
        change to a factor, and grants nothing during a cool-down. A job that is to grow waits for
        those that are to shrink.
        """
        if step.kind is StepKind.RECONFIGURATION or not (pending := self.pending(step)):
            return False
        statuses = self.scene.statuses
        changed = (statuses[name].changed_s for name in step.asked if name in statuses)
        last_s = max([step.at_s, *(at_s for at_s in changed if at_s is not None)])
        if self.now_s - last_s >= self.parameters.settle_most_s + self.scene.cluster.down_delay_s:
            self.report_incomplete(step, pending)
            return False
        reason = {StepKind.REDUCTION: messages.REDUCTION, StepKind.REVERSION: messages.REVERSION}[
            step.kind
        ]
        for name, counts in self.within_free_slots(self.actionable(pending)).items():
            sentence = (
                f"Still pending: {messages.describe_change(self._parallelism(name), counts)}."
            )
            id_ = self.log.add(name, reason, sentence, {"asked_s": step.at_s}, step.ids, counts)
            step.decisions.setdefault(name, []).append(id_)
        return True

    def actionable(self, pending: Mapping[str, Counts]) -> dict[str, Counts]:
        """The requests that make sense now. While the guard holds a job it grants nothing, but a
        request for fewer instances that is not repeated counts as withdrawn.
        """
        actionable = {}
        for name, counts in pending.items():
            status = self.scene.statuses[name]
            current = status.allocation.parallelism
            actionable[name] = {
                op: count for op, count in counts.items() if status.open or count < current[op]
            }
        return {name: counts for name, counts in actionable.items() if counts}

    def report_incomplete(self, step: SearchStep, pending: Mapping[str, Counts]) -> None:
        """Reports once that a step was not carried out in full; it is not requested any more."""
        if step.told:
            return
        step.told = True
        if step.kind is StepKind.REVERSION:
            # What it should have brought back is not to be expected.
            self.memory.baseline = None
        self.log.add(
            None,
            messages.NOT_CARRIED_OUT,
            f"The {step.kind.title()} of {messages.name_list(pending)} was not carried out, "
            "or only in part.",
            {"asked_s": step.at_s, "jobs": len(pending)},
            step.ids,
        )

    def clip_to_bounds(self, job: str, counts: Counts) -> Counts:
        """The counts within today's bounds; operators that are fixed or gone today drop out."""
        status = self.scene.statuses[job]
        return {
            name: status.spans[name].clip(count) if name in status.spans else count
            for name, count in counts.items()
            if name in status.allocation.parallelism and name not in status.fixed
        }

    def record_configuration(self) -> None:
        """Adds the current configuration and its utility to the history."""
        utilities = self.utilities()
        below_maximum = {n: u for n, u in utilities.items() if u < self.view.jobs[n].max_utility}
        not_counted = sorted({*self.scene.statuses} - {*utilities} | {*self.sinking()})
        goal = self.levels()[0]
        current = Configuration(
            goal, self.now_s, short=below_maximum, without=not_counted, swing=self.swing()
        )
        self.memory.record_configuration(
            current, self.parameters.history, self.rank_of_configuration
        )

    def utilities_then(self, configuration: Configuration) -> dict[str, float]:
        """The utilities of a configuration when it was measured, of the jobs that count now too."""
        not_counted, jobs = set(configuration.without), self.view.jobs
        return {
            name: configuration.short.get(name, jobs[name].max_utility)
            for name in self.utilities()
            if name not in not_counted
        }

    def compare_configuration(self, configuration: Configuration) -> Comparison:
        """A configuration beside the current one, by the jobs that count in both."""
        then = self.utilities_then(configuration)
        return self.compare_utilities(then, swing=max(configuration.swing, self.swing()))

    def compare_utilities(
        self, earlier: Mapping[str, float], without: Iterable[str] = (), swing: float = 0.0
    ) -> Comparison:
        """Earlier utilities beside the current ones, by the jobs that are in both. A difference
        that utilities may have by swinging counts as none.
        """
        current = self.utilities()
        common = sorted(set(earlier) & set(current) - set(without))
        before = {name: earlier[name] for name in common}
        after = {name: current[name] for name in common}
        return Comparison(
            self.view.levels(before, self.parameters),
            self.view.levels(after, self.parameters),
            max(self.parameters.least_fall, self.parameters.swings * swing),
        )

    def rank_of_configuration(self, configuration: Configuration) -> tuple[Any, ...]:
        """The more a configuration gains over the current one, the better; then the latest."""
        then = self.compare_configuration(configuration)
        gains = Comparison(then.after, then.before, then.least_fall).gains()
        return gains, configuration.at_s

    def best_configuration(self) -> Configuration | None:
        """The configuration of the history that gains the most over the current one."""
        return max(self.memory.history, key=self.rank_of_configuration, default=None)

    def utilities(self) -> dict[str, float]:
        return self.view.utilities(self.selection.counted)

    def levels(self) -> tuple[float, ...]:
        return self.view.levels(self.utilities(), self.parameters)

    def misses_intent(self, job: str) -> bool:
        return self.view.jobs[job].misses(self.parameters.missed)

    def blacklisted(self, job: str) -> bool:
        return self.memory.blacklist.get(job, 0.0) > self.now_s
