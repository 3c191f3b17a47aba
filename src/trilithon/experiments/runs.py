"""Owns running an experiment in four ways: under the policy, with nobody in control, by hand, and with the best
allocation that a search found.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from trilithon.control.rules import Limits
from trilithon.experiments.build import ROUND_S, Builder
from trilithon.experiments.definition import Experiment, Variant
from trilithon.experiments.search import (
    BEST,
    Allocations,
    Search,
    allocated,
    by_hand,
    for_peak,
    groups,
)
from trilithon.policies.registry import policy
from trilithon.scenarios.run import simulate
from trilithon.scenarios.run_figures import RunFigures
from trilithon.scenarios.scenario import Scenario

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
# Candidates of a search; fewer where a single one takes long.
MOST_TRIED: Final = 60
# What is called the end of a run.
END_S: Final = 600.0
MOST_JOB_HOURS: Final = 5_000
# Nothing stood between Henge and Storm: the guard lets everything through that is possible at all.
UNGUARDED: Final = Limits(
    round_s=ROUND_S,
    cool_down_s=0.0,
    up_factor=1e6,
    down_factor=0.0,
    down_delay_s=0.0,
    saturated=1.0,
    backlog_s=1e9,
)
# Of our own bounds on a step, those that the paper does not have: equation 4 stands alone, and a Reduction
# takes its share whatever is left.
AS_PRINTED: Final[Mapping[str, Any]] = {"least_capacity": 0.0, "reduced_capacity": 10.0}


class Steering(StrEnum):
    """Who divides the instances."""

    HENGE = "henge"
    NOBODY = "uncontrolled"
    MANUAL = "manual"
    STATIC = "best static"


@dataclass(frozen=True, slots=True)
class Act:
    """Something that was decided: of which job, why, whether it changed anything, how long the job stood."""

    time_s: float
    job: str | None
    reason: str
    changed: bool
    stood_s: float


@dataclass(frozen=True)
class Run:
    """What came of a run: lines over time (a row per job), and what was decided."""

    name: str
    steering: Steering
    from_s: float
    times_s: Floats = field(repr=False)
    jobs: tuple[str, ...] = field(repr=False)
    # Per job: its maximum utility, and when it came.
    maxima: Floats = field(repr=False)
    starts_s: Floats = field(repr=False)
    lines: Mapping[str, Floats] = field(repr=False)
    acts: tuple[Act, ...] = field(repr=False)
    # At the end, per job and operator.
    last: Mapping[str, Mapping[str, int]] = field(repr=False)
    memory: Floats = field(repr=False)

    @classmethod
    def of(
        cls, scenario: Scenario, steering: Steering, figures: RunFigures, from_s: float
    ) -> "Run":
        names = tuple(fed.job.id for fed in scenario.jobs)
        found = figures.jobs
        return cls(
            name=scenario.name,
            steering=steering,
            from_s=from_s,
            times_s=np.array(figures.times_s),
            jobs=names,
            maxima=np.array([fed.job.intent.max_utility for fed in scenario.jobs]),
            starts_s=np.array([fed.start_s for fed in scenario.jobs]),
            lines={
                "utility": _rows(found[name].utility for name in names),
                "queue": _rows(found[name].queue for name in names),
                "juice": _rows(found[name].values["juice"] for name in names),
            },
            acts=tuple(
                Act(
                    one.time_s,
                    one.decision.job,
                    one.decision.reason,
                    any(outcome.changed for outcome in one.outcomes),
                    sum(outcome.took_s or 0.0 for outcome in one.outcomes),
                )
                for one in figures.acted
            ),
            last={n: {k: v[-1] for k, v in found[n].parallelism.items()} for n in names},
            memory=_rows([figures.memory])[0],
        )

    @property
    def late(self) -> Bools:
        """The time in which the policy may act."""
        return self.times_s > self.from_s

    def line(self, job: str, what: str) -> Floats:
        """One line of a job: utility, share, queue or juice."""
        row = self.jobs.index(job)
        found: Floats = self.shares[row] if what == "share" else self.lines[what][row]
        return found

    @cached_property
    def heard(self) -> Bools:
        """Which job was there and heard of when. Nothing is known of the others, not even that they do badly."""
        found: Bools = ~np.isnan(self.lines["queue"])
        return found

    @cached_property
    def shares(self) -> Floats:
        """Of each job, what it has of its maximum; one that is heard of and writes nothing has nothing."""
        known = np.where(self.heard, np.nan_to_num(self.lines["utility"], nan=0.0), np.nan)
        found: Floats = known / self.maxima[:, None]
        return found

    @cached_property
    def utility(self) -> Floats:
        """Of all jobs together; missing where none is heard of."""
        known = self.shares * self.maxima[:, None]
        total: Floats = np.where(self.heard.any(axis=0), np.nansum(known, axis=0), np.nan)
        return total

    @cached_property
    def satisfaction(self) -> Floats:
        """The share that all jobs that are heard of have of their maxima together (figure 12c)."""
        most = np.where(self.heard, self.maxima[:, None], 0.0).sum(axis=0)
        found: Floats = self.utility / np.where(most > 0, most, np.nan)
        return found

    def percentile(self, share: float) -> float:
        return float(np.nanpercentile(self.satisfaction[self.late], share))

    @property
    def average(self) -> float:
        return float(np.nanmean(self.satisfaction[self.late]))

    @property
    def at_end(self) -> float:
        """The satisfaction of the last minutes."""
        return float(np.nanmean(self.satisfaction[self.last_minutes]))

    @property
    def last_minutes(self) -> Bools:
        found: Bools = self.times_s > self.times_s[-1] - END_S
        return found

    def acted(self, *reasons: str) -> list[Act]:
        """Decisions that changed something, of some kinds."""
        return [one for one in self.acts if one.changed and (not reasons or one.reason in reasons)]


def _rows(values: Iterable[Sequence[float | None]]) -> Floats:
    return np.array([[np.nan if v is None else v for v in row] for row in values], dtype=float)


@dataclass
class Runner:
    """Runs variants with one set of chosen numbers. `tell` hears how far a run is."""

    builder: Builder
    policy_name: str = "henge"
    most_tried: int = MOST_TRIED
    # Whether the search for the best allocation goes on from where the policy came to.
    climbs_again: bool = True
    tell: Callable[[str, float], None] = lambda _what, _share: None

    def run(self, experiment: Experiment, variant: Variant, steering: Steering) -> Run:
        scenario = self.builder.scenario(experiment, variant)
        found = self.steered(scenario, steering, dict(variant.parameters))
        return self.simulated(found, steering, experiment.held_back_s)

    def steered(
        self,
        scenario: Scenario,
        steering: Steering,
        parameters: Mapping[str, Any],
    ) -> Scenario:
        """The scenario with a policy, or with the allocation that it keeps."""
        if steering is Steering.NOBODY:
            return scenario
        if steering is Steering.HENGE:
            made = policy(self.policy_name, {**AS_PRINTED, **parameters})
            return replace(scenario, policy=made)
        self.tell(f"{scenario.name} {steering}: searching", 0.0)
        hand = by_hand(scenario)
        of = groups(scenario)
        if steering is Steering.MANUAL:
            return allocated(scenario, of, hand)
        hours = len(scenario.jobs) * scenario.length_s / 3600
        most = max(20, min(self.most_tried, int(MOST_JOB_HOURS / max(hours, 1e-9))))
        alike = Search(scenario, scenario.warm_up_s, most)
        found = alike.best([hand, for_peak(scenario)])
        if alike.worth(found) >= BEST or not self.climbs_again:
            return allocated(scenario, of, found)
        # Where there is not enough for all, jobs that are alike may have to differ; and whatever the policy came to is
        # an allocation, too.
        apart = Search(scenario, scenario.warm_up_s, most // 3, apart=True)
        starts = [alike.of_each(found), self.ended(scenario, parameters)]
        return allocated(scenario, apart.groups, apart.best(starts))

    def ended(self, scenario: Scenario, parameters: Mapping[str, Any]) -> Allocations:
        """How the policy leaves the jobs."""
        found = self.steered(scenario, Steering.HENGE, parameters)
        last = self.simulated(found, Steering.HENGE, scenario.warm_up_s).last
        return {name: dict(counts) for name, counts in last.items()}

    def simulated(self, scenario: Scenario, steering: Steering, from_s: float) -> Run:
        name = f"{scenario.name} {steering}"
        result = simulate(
            scenario, limits=UNGUARDED, tell=lambda now, all_: self.tell(name, now / all_)
        )
        return Run.of(scenario, steering, result.figures, from_s)
