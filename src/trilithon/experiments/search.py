"""Owns allocations that stay: as somebody would set them by hand at median load, and the best that a search
finds for the whole run.

Jobs that are alike get the same numbers, unless that does not do. Candidates are tried in coarse runs (steps of five seconds, a look
every two minutes); what is reported of the one that is chosen comes from a run like all others.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from trilithon.experiments.build import median_rate
from trilithon.experiments.flows import flows
from trilithon.measures import slo
from trilithon.measures.capacity import capacity
from trilithon.measures.group import sum_by_job
from trilithon.model.job import Job, Operator, Parallelism
from trilithon.scenarios.rounds import ObservedRounds
from trilithon.scenarios.run import engine_for
from trilithon.scenarios.scenario import Scenario, ScheduledJob
from trilithon.workloads.shapes import Constant

Counts = dict[str, int]
# By group: how many instances each operator has.
Allocations = dict[str, Counts]
STEP_S: Final = 5.0
LOOK_S: Final = 120.0
# By hand: how long one waits to see what came of a change, and how often one tries.
SETTLE_S: Final = 300.0
BY_HAND: Final = 200
# As busy as an operator may be at first, in a search.
BUSY: Final = 0.7
BEST: Final = 0.9995
GAIN: Final = 5e-4


def groups(scenario: Scenario) -> dict[str, list[ScheduledJob]]:
    """Jobs that are alike: the same operators and the same load, whatever their names."""
    found: dict[str, list[ScheduledJob]] = {}
    for fed in scenario.jobs:
        alike = (fed.job.operators, fed.job.edges, fed.start_s, fed.loads, fed.job.intent)
        found.setdefault(repr(alike), []).append(fed)
    return {jobs[0].job.id: jobs for jobs in found.values()}


def allocated(
    scenario: Scenario, of: Mapping[str, Sequence[ScheduledJob]], wanted: Allocations
) -> Scenario:
    """The run in which the jobs of each group begin with these instances."""
    by_job = {fed.job.id: wanted[name] for name, jobs in of.items() for fed in jobs}
    return replace(
        scenario,
        jobs=tuple(replace(f, job=_with(f.job, by_job[f.job.id])) for f in scenario.jobs),
    )


def _with(job: Job, counts: Counts) -> Job:
    def made(operator: Operator) -> Operator:
        count = counts[operator.name]
        most = max(operator.parallelism.max, count)
        return replace(operator, parallelism=Parallelism(count, 1, most))

    return replace(job, operators=tuple(map(made, job.operators)))


@dataclass(frozen=True)
class Look:
    """What a coarse run shows: of each job the mean satisfaction, and how busy its operators were."""

    satisfaction: Mapping[str, float]
    total: float
    busy: Mapping[str, Mapping[str, float]]


def look(scenario: Scenario, from_s: float) -> Look:
    """A coarse run, of which the time from a moment on counts."""
    engine = engine_for(replace(scenario, step_s=STEP_S))
    looking = ObservedRounds(engine, LOOK_S)
    worth: dict[str, list[float]] = {}
    busy: dict[str, dict[str, float]] = {}
    while engine.now_s < scenario.length_s - 1e-9:
        engine.advance(min(LOOK_S, scenario.length_s - engine.now_s))
        looking.round()
        window = looking.series.window(LOOK_S)
        if window is None or engine.now_s <= from_s:
            continue
        layout = window.layout
        waits = sum_by_job(layout, window.queue)
        shares = np.nan_to_num(slo.assess_intents(window).satisfaction, nan=0.0)
        for name, share, heard in zip(layout.jobs, shares, ~np.isnan(waits), strict=True):
            if heard:  # as in `Run.shares`
                worth.setdefault(name, []).append(float(share))
        capacities = capacity(window)
        for (name, operator), row in layout.node_row.items():
            if layout.parallelism[row] and not np.isnan(capacities[row]):
                before = busy.setdefault(name, {}).get(operator, 0.0)
                busy[name][operator] = max(before, float(capacities[row]))
    found = {fed.job.id: _mean(worth.get(fed.job.id, [])) for fed in scenario.jobs}
    maxima = {fed.job.id: fed.job.intent.max_utility for fed in scenario.jobs}
    total = math.fsum(found[name] * maxima[name] for name in found) / math.fsum(maxima.values())
    return Look(found, total, busy)


def _mean(values: Sequence[float]) -> float:
    """A job that was never heard of is worth nothing."""
    return math.fsum(values) / len(values) if values else 0.0


def by_hand(scenario: Scenario) -> Allocations:
    """All intents met at median load, as somebody would bring it about: from one instance each, the busiest
    operator of a job that misses its intent gets more, until none misses it or nothing helps.
    """
    constant = replace(
        scenario,
        length_s=SETTLE_S,
        warm_up_s=0.0,
        faults=(),
        jobs=tuple(
            replace(
                fed,
                start_s=0.0,
                loads={
                    name: Constant(median_rate(shape, scenario.length_s - fed.start_s))
                    for name, shape in fed.loads.items()
                },
            )
            for fed in scenario.jobs
        ),
    )
    names = groups(scenario)
    wanted: Allocations = {
        name: dict.fromkeys((o.name for o in jobs[0].job.operators), 1)
        for name, jobs in names.items()
    }
    stuck: set[str] = set()
    for _ in range(BY_HAND):
        found = look(allocated(constant, names, wanted), SETTLE_S / 2)
        missing = [name for name in names if found.satisfaction[name] < 0.995 and name not in stuck]
        if not missing:
            break
        for name in missing:
            busy = found.busy[name]
            operator = max(busy, key=lambda one: (busy[one], one))
            limit = _limit(names[name][0].job, operator)
            if busy[operator] < 0.2 or wanted[name][operator] >= limit:
                stuck.add(name)  # more of it would not help
                continue
            more = math.ceil(wanted[name][operator] * max(1.1, min(2.0, busy[operator] / 0.8)))
            wanted[name][operator] = min(limit, more)
    return wanted


def _limit(job: Job, operator: str) -> int:
    return job.operator(operator).parallelism.max


def for_peak(scenario: Scenario) -> Allocations:
    """As many as keep every operator below a utilisation at the highest load, by its profile alone."""
    wanted: Allocations = {}
    for name, jobs in groups(scenario).items():
        wanted[name] = {
            flow.operator.name: min(
                flow.operator.parallelism.max, max(1, math.ceil(flow.busy / BUSY))
            )
            for flow in flows(jobs[0])
        }
    return wanted


@dataclass
class Search:
    """Climbs from the best of some allocations as long as a change of one operator gains anything. Jobs that are
    alike are changed together, or each by itself (`apart`).
    """

    scenario: Scenario
    from_s: float
    most: int
    apart: bool = False
    tried: dict[str, Look] = field(default_factory=dict)

    def __post_init__(self) -> None:
        alone = {fed.job.id: [fed] for fed in self.scenario.jobs}
        self.groups = alone if self.apart else groups(self.scenario)

    def of_each(self, wanted: Allocations) -> Allocations:
        """An allocation by jobs."""
        return {fed.job.id: wanted[name] for name, jobs in self.groups.items() for fed in jobs}

    def best(self, starts: Sequence[Allocations]) -> Allocations:
        wanted = max(starts, key=self.worth)
        gained = True
        while gained and self.worth(wanted) < BEST and len(self.tried) < self.most:
            gained = False
            for other in self._neighbours(wanted):
                if len(self.tried) >= self.most:
                    break
                if self.worth(other) > self.worth(wanted) + GAIN:
                    wanted, gained = other, True
                    break
        return wanted

    def worth(self, wanted: Allocations) -> float:
        return self._look(wanted).total

    def _look(self, wanted: Allocations) -> Look:
        key = repr(sorted((name, sorted(counts.items())) for name, counts in wanted.items()))
        if key not in self.tried:
            self.tried[key] = look(allocated(self.scenario, self.groups, wanted), self.from_s)
        return self.tried[key]

    def _neighbours(self, wanted: Allocations) -> Iterator[Allocations]:
        """One operator, or all of a job, with half as many more or a third less: first more for those jobs
        that lose the most utility, then less for those that lose the least.
        """
        found = self._look(wanted).satisfaction
        lost = {
            name: math.fsum(
                (1 - found[fed.job.id]) * fed.job.intent.max_utility for fed in self.groups[name]
            )
            for name in wanted
        }
        worst_first = sorted(wanted, key=lambda name: (-lost[name], name))
        missing = [name for name in worst_first if lost[name] > 0]
        for change, names in (
            (_more, missing),
            (_less, worst_first[::-1]),
            (_more, [name for name in worst_first if name not in missing]),
        ):
            for name in names:
                yield from self._changed(wanted, name, change)

    def _changed(
        self, wanted: Allocations, name: str, change: Callable[[int], int]
    ) -> Iterator[Allocations]:
        counts, job = wanted[name], self.groups[name][0].job
        for operators in (list(counts), *([one] for one in counts)):
            moved = {
                one: min(_limit(job, one), change(count)) if one in operators else count
                for one, count in counts.items()
            }
            if moved != counts:
                yield {**wanted, name: moved}


def _more(count: int) -> int:
    return max(count + 1, round(count * 1.5))


def _less(count: int) -> int:
    return max(1, min(count - 1, round(count / 1.5)))
