"""Searches for static allocations: manual ones for median load, and the best for a whole run.

Identical jobs get the same numbers first. Candidates are tried in coarse runs (steps of five
seconds, a sample every two minutes); what is reported of the best one comes from a full run.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from trilithon.experiments.demand import operator_demands
from trilithon.experiments.scenario_builder import median_rate
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
SAMPLE_S: Final = 120.0
# Manual: how long each change is observed, and how many are tried.
SETTLE_S: Final = 300.0
MANUAL_CHANGES: Final = 200
# The utilisation of operators in the allocation for the peak.
BUSY: Final = 0.7
# A search ends when this satisfaction is reached, and takes no step that gains less than `GAIN`.
GOOD_ENOUGH: Final = 0.9995
GAIN: Final = 5e-4


def job_groups(scenario: Scenario) -> dict[str, list[ScheduledJob]]:
    """Identical jobs, by the id of the first: the same operators, load and intent."""
    groups: dict[str, list[ScheduledJob]] = {}
    for one in scenario.jobs:
        key = (one.job.operators, one.job.edges, one.start_s, one.loads, one.job.intent)
        groups.setdefault(repr(key), []).append(one)
    return {jobs[0].job.id: jobs for jobs in groups.values()}


def allocated(
    scenario: Scenario, groups: Mapping[str, Sequence[ScheduledJob]], wanted: Allocations
) -> Scenario:
    """The scenario in which the jobs of each group begin with these instances."""
    by_job = {one.job.id: wanted[name] for name, jobs in groups.items() for one in jobs}
    return replace(
        scenario,
        jobs=tuple(replace(f, job=_with(f.job, by_job[f.job.id])) for f in scenario.jobs),
    )


def free_slots(
    scenario: Scenario, groups: Mapping[str, Sequence[ScheduledJob]], wanted: Allocations
) -> float:
    """Slots that these allocations leave; below 0, they do not fit."""
    used = sum(sum(counts.values()) * len(groups[name]) for name, counts in wanted.items())
    return math.inf if scenario.slots is None else scenario.slots - used


def fitted(
    scenario: Scenario, groups: Mapping[str, Sequence[ScheduledJob]], wanted: Allocations
) -> Allocations:
    """The allocations, with instances taken from the largest operators until they fit."""
    wanted = {name: dict(counts) for name, counts in wanted.items()}
    while free_slots(scenario, groups, wanted) < 0:
        count, name, operator = max(
            (count, name, operator)
            for name, counts in wanted.items()
            for operator, count in counts.items()
        )
        if count == 1:
            break  # fewer than one of each is nothing that could run
        wanted[name][operator] = count - 1
    return wanted


def _with(job: Job, counts: Counts) -> Job:
    def sized(operator: Operator) -> Operator:
        count = counts[operator.name]
        most = max(operator.parallelism.max, count)
        return replace(operator, parallelism=Parallelism(count, 1, most))

    return replace(job, operators=tuple(map(sized, job.operators)))


@dataclass(frozen=True)
class CoarseRun:
    """A candidate's run: each job's mean satisfaction, and how busy its operators were at most."""

    satisfaction: Mapping[str, float]
    total: float
    busy: Mapping[str, Mapping[str, float]]


def coarse_run(scenario: Scenario, from_s: float) -> CoarseRun:
    """A coarse run, of which the time after `from_s` counts."""
    engine = engine_for(replace(scenario, step_s=STEP_S))
    observed = ObservedRounds(engine, SAMPLE_S)
    samples: dict[str, list[float]] = {}
    busy: dict[str, dict[str, float]] = {}
    while engine.now_s < scenario.length_s - 1e-9:
        engine.advance(min(SAMPLE_S, scenario.length_s - engine.now_s))
        observed.round()
        window = observed.series.window(SAMPLE_S)
        if window is None or engine.now_s <= from_s:
            continue
        layout = window.layout
        queues = sum_by_job(layout, window.queue)
        shares = np.nan_to_num(slo.assess_intents(window).satisfaction, nan=0.0)
        for name, share, reports in zip(layout.jobs, shares, ~np.isnan(queues), strict=True):
            if reports:  # as in `Run.shares`
                samples.setdefault(name, []).append(float(share))
        capacities = capacity(window)
        for (name, operator), row in layout.node_row.items():
            if layout.parallelism[row] and not np.isnan(capacities[row]):
                before = busy.setdefault(name, {}).get(operator, 0.0)
                busy[name][operator] = max(before, float(capacities[row]))
    jobs = [scheduled.job for scheduled in scenario.jobs]
    means = {job.id: _mean(samples.get(job.id, [])) for job in jobs}
    maxima = {job.id: job.intent.max_utility for job in jobs}
    total = math.fsum(means[name] * maxima[name] for name in means) / math.fsum(maxima.values())
    return CoarseRun(means, total, busy)


def _mean(values: Sequence[float]) -> float:
    """A job that never reported is worth nothing."""
    return math.fsum(values) / len(values) if values else 0.0


def manual_allocations(scenario: Scenario, headroom: float = 1.0) -> Allocations:
    """All intents met at `headroom` times the median load, as a person would get there.

    From one instance each, the busiest operator of a job that misses its intent gets more, until
    none misses it, more does not help, or no slot is left.
    """
    constant = replace(
        scenario,
        length_s=SETTLE_S,
        warm_up_s=0.0,
        faults=(),
        jobs=tuple(
            replace(
                scheduled,
                start_s=0.0,
                loads={
                    name: Constant(
                        headroom * median_rate(shape, scenario.length_s - scheduled.start_s)
                    )
                    for name, shape in scheduled.loads.items()
                },
            )
            for scheduled in scenario.jobs
        ),
    )
    groups = job_groups(scenario)
    wanted: Allocations = {
        name: dict.fromkeys((o.name for o in jobs[0].job.operators), 1)
        for name, jobs in groups.items()
    }
    stuck: set[str] = set()
    for _ in range(MANUAL_CHANGES):
        run = coarse_run(allocated(constant, groups, wanted), SETTLE_S / 2)
        missing = [name for name in groups if run.satisfaction[name] < 0.995 and name not in stuck]
        if not missing:
            break
        for name in missing:
            busy = run.busy[name]
            operator = max(busy, key=lambda name: (busy[name], name))
            limit = _limit(groups[name][0].job, operator)
            if busy[operator] < 0.2 or wanted[name][operator] >= limit:
                stuck.add(name)  # more of it would not help
                continue
            more = math.ceil(wanted[name][operator] * max(1.1, min(2.0, busy[operator] / 0.8)))
            left = free_slots(scenario, groups, wanted) // len(groups[name])
            if left < 1:
                stuck.add(name)
                continue
            wanted[name][operator] = int(min(limit, more, wanted[name][operator] + left))
    return wanted


def _limit(job: Job, operator: str) -> int:
    return job.operator(operator).parallelism.max


def peak_allocations(scenario: Scenario) -> Allocations:
    """As many instances as keep every operator at `BUSY` at the highest load, by profiles alone."""
    wanted: Allocations = {}
    for name, jobs in job_groups(scenario).items():
        wanted[name] = {
            demand.operator.name: min(
                demand.operator.parallelism.max, max(1, math.ceil(demand.busy / BUSY))
            )
            for demand in operator_demands(jobs[0])
        }
    return fitted(scenario, job_groups(scenario), wanted)


@dataclass
class Search:
    """A hill climb from the best of some allocations, until no change of an operator gains.

    Identical jobs are changed together, or each by itself (`per_job`).
    """

    scenario: Scenario
    from_s: float
    most: int
    per_job: bool = False
    tried: dict[str, CoarseRun] = field(default_factory=dict)

    def __post_init__(self) -> None:
        alone = {one.job.id: [one] for one in self.scenario.jobs}
        self.groups = alone if self.per_job else job_groups(self.scenario)

    def per_job_allocations(self, wanted: Allocations) -> Allocations:
        """The same allocations, by job instead of by group."""
        return {one.job.id: wanted[name] for name, jobs in self.groups.items() for one in jobs}

    def best(self, starts: Sequence[Allocations]) -> Allocations:
        wanted = max(starts, key=self.worth)
        gained = True
        while gained and self.worth(wanted) < GOOD_ENOUGH and len(self.tried) < self.most:
            gained = False
            for other in self._neighbours(wanted):
                if len(self.tried) >= self.most:
                    break
                if self.worth(other) > self.worth(wanted) + GAIN:
                    wanted, gained = other, True
                    break
        return wanted

    def worth(self, wanted: Allocations) -> float:
        return self._tried(wanted).total

    def _tried(self, wanted: Allocations) -> CoarseRun:
        key = repr(sorted((name, sorted(counts.items())) for name, counts in wanted.items()))
        if key not in self.tried:
            self.tried[key] = coarse_run(allocated(self.scenario, self.groups, wanted), self.from_s)
        return self.tried[key]

    def _neighbours(self, wanted: Allocations) -> Iterator[Allocations]:
        """One operator, or all of a job, with half as many more or a third less.

        First more for the jobs that lose the most utility, then less for those that lose the least.
        """
        shares = self._tried(wanted).satisfaction
        lost = {
            name: math.fsum(
                (1 - shares[one.job.id]) * one.job.intent.max_utility for one in self.groups[name]
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
            other = {**wanted, name: moved}
            if moved != counts and free_slots(self.scenario, self.groups, other) >= 0:
                yield other


def _more(count: int) -> int:
    return max(count + 1, round(count * 1.5))


def _less(count: int) -> int:
    return max(1, min(count - 1, round(count / 1.5)))
