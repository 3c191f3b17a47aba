"""Holds the record of one run: lines over time per job, and the actions of the policy."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from trilithon.measures.constraints import constraint_key
from trilithon.scenarios.rounds import DecisionResult
from trilithon.scenarios.run_figures import JobFigures, RunFigures
from trilithon.scenarios.scenario import Scenario

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
# How long the end of a run is.
END_S: Final = 600.0
# The worst tenth of the time: what satisfaction exceeds in all others.
WORST_TENTH: Final = 10


# Of what came in, the share that must be read for a promise to count as kept: else the backlog
# grows where no promise sees it.
LEAST_READ: Final = 0.99


def read_shares(lag: Floats, input_per_s: Floats, spans_s: Floats) -> Floats:
    """What was read in each round, as a share of what came in; above 1 while a backlog shrinks."""
    arrived = input_per_s * spans_s
    grown = np.diff(lag, prepend=0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares: Floats = 1 - np.where(arrived > 0, grown / arrived, 0.0)
    return shares


def kept_promises(figures: RunFigures, job: JobFigures) -> Floats:
    """Which constraints of a job were kept, a row for each: its mean is within the limit, and what
    came in was read. One that was not measured was not kept.
    """
    lag, arriving = _rows([job.lag])[0], _rows([job.input_per_s])[0]
    read = read_shares(lag, arriving, np.array(figures.spans_s)) >= LEAST_READ
    constraints = job.job.intent.constraints
    means = _rows(job.values[constraint_key(i)] for i in range(len(constraints)))
    limits = np.array([constraint.mean_latency_ms for constraint in constraints])
    with np.errstate(invalid="ignore"):
        kept: Floats = ((means <= limits[:, None]) & read).astype(float)
    return kept


def _utility(figures: RunFigures, job: JobFigures) -> Sequence[float | None]:
    """Of a job with constraints: its maximum, times the share of them that is kept."""
    if not job.job.intent.constraints:
        return job.utility
    shares = kept_promises(figures, job).mean(axis=0)
    return [job.job.intent.max_utility * float(share) for share in shares]


def _values_of_all(jobs: Iterable[JobFigures]) -> list[str]:
    """The measured values beside the usual ones that all jobs have: percentiles, constraints."""
    wanted = ("constraint.", "latency.")
    keys = [{key for key in job.values if key.startswith(wanted)} for job in jobs]
    return sorted(set.intersection(*keys)) if keys else []


@dataclass(frozen=True, slots=True)
class RunAction:
    """A decision: of which job, why, whether it changed anything, and how long the job was down."""

    time_s: float
    job: str | None
    reason: str
    changed: bool
    outage_s: float
    numbers: Mapping[str, float | None] = field(default_factory=dict)

    @classmethod
    def of(cls, acted: DecisionResult) -> "RunAction":
        return cls(
            acted.time_s,
            acted.decision.job,
            acted.decision.reason,
            any(outcome.changed for outcome in acted.outcomes),
            sum(outcome.took_s or 0.0 for outcome in acted.outcomes),
            dict(acted.decision.numbers),
        )


@dataclass(frozen=True)
class Run:
    """What one run showed. Every line has a row per job and a column per control round."""

    name: str
    strategy: str
    # When the policy could act for the first time.
    policy_from_s: float
    times_s: Floats = field(repr=False)
    jobs: tuple[str, ...] = field(repr=False)
    # Per job: its maximum utility, and when it arrived.
    maxima: Floats = field(repr=False)
    starts_s: Floats = field(repr=False)
    lines: Mapping[str, Floats] = field(repr=False)
    actions: tuple[RunAction, ...] = field(repr=False)
    # Instances at the end, by job and operator.
    final_instances: Mapping[str, Mapping[str, int]] = field(repr=False)
    memory: Floats = field(repr=False)
    # Instances over time by job and operator, of jobs with constraints and of a job by itself.
    parallelism: Mapping[tuple[str, str], Floats] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls, scenario: Scenario, strategy: str, figures: RunFigures, policy_from_s: float
    ) -> "Run":
        names = tuple(scheduled.job.id for scheduled in scenario.jobs)
        jobs = figures.jobs
        return cls(
            name=scenario.name,
            strategy=strategy,
            policy_from_s=policy_from_s,
            times_s=np.array(figures.times_s),
            jobs=names,
            maxima=np.array([scheduled.job.intent.max_utility for scheduled in scenario.jobs]),
            starts_s=np.array([scheduled.start_s for scheduled in scenario.jobs]),
            lines={
                "utility": _rows(_utility(figures, jobs[name]) for name in names),
                "queue": _rows(jobs[name].queue for name in names),
                "input": _rows(jobs[name].input_per_s for name in names),
                "lag": _rows(jobs[name].lag for name in names),
                **{
                    key: _rows(jobs[name].values[key] for name in names)
                    for key in _values_of_all(jobs.values())
                },
                "juice": _rows(jobs[name].values["juice"] for name in names),
                "throughput": _rows(jobs[name].values["throughput"] for name in names),
                "instances": np.array(
                    [np.sum(list(jobs[name].parallelism.values()), axis=0) for name in names],
                    dtype=float,
                ),
            },
            parallelism={
                (name, operator): np.array(counts, dtype=float)
                for name in names
                for operator, counts in jobs[name].parallelism.items()
            }
            if len(names) == 1 or all(jobs[name].job.intent.constraints for name in names)
            else {},
            actions=tuple(map(RunAction.of, figures.acted)),
            final_instances={
                name: {operator: counts[-1] for operator, counts in jobs[name].parallelism.items()}
                for name in names
            },
            memory=_rows([figures.memory])[0],
        )

    @property
    def controlled(self) -> Bools:
        """The time in which the policy may act."""
        return self.times_s > self.policy_from_s

    def line(self, job: str, what: str) -> Floats:
        """One line of a job: utility, share, queue, juice or instances."""
        row = self.jobs.index(job)
        values: Floats = self.shares[row] if what == "share" else self.lines[what][row]
        return values

    @cached_property
    def reporting(self) -> Bools:
        """Which job reported when. Of the others nothing is known, not even that they do badly."""
        reports: Bools = ~np.isnan(self.lines["queue"])
        return reports

    @cached_property
    def shares(self) -> Floats:
        """The share of its maximum that each job has; 0 if it reports and writes nothing."""
        utility = np.where(self.reporting, np.nan_to_num(self.lines["utility"], nan=0.0), np.nan)
        shares: Floats = utility / self.maxima[:, None]
        return shares

    @cached_property
    def utility(self) -> Floats:
        """The sum over all jobs that report; missing where none does."""
        utility = self.shares * self.maxima[:, None]
        total: Floats = np.where(self.reporting.any(axis=0), np.nansum(utility, axis=0), np.nan)
        return total

    @cached_property
    def satisfaction(self) -> Floats:
        """The share that all jobs that report have of their maxima together."""
        most = np.where(self.reporting, self.maxima[:, None], 0.0).sum(axis=0)
        shares: Floats = self.utility / np.where(most > 0, most, np.nan)
        return shares

    @cached_property
    def throughput(self) -> Floats:
        """Records per second at the sinks of all jobs; missing where none reports."""
        total: Floats = np.nansum(self.lines["throughput"], axis=0)
        return np.where(self.reporting.any(axis=0), total, np.nan)

    def percentile(self, share: float) -> float:
        return float(np.nanpercentile(self.satisfaction[self.controlled], share))

    @property
    def average(self) -> float:
        return float(np.nanmean(self.satisfaction[self.controlled]))

    @property
    def at_end(self) -> float:
        """The mean satisfaction of the last minutes."""
        return float(np.nanmean(self.satisfaction[self.last_minutes]))

    @property
    def last_minutes(self) -> Bools:
        late: Bools = self.times_s > self.times_s[-1] - END_S
        return late

    @property
    def instances_at_end(self) -> int:
        return sum(sum(counts.values()) for counts in self.final_instances.values())

    @property
    def instance_hours(self) -> float:
        """The instances of all jobs over the time in which the policy may act."""
        spans_s = np.diff(self.times_s, prepend=0.0)
        total = (self.lines["instances"].sum(axis=0) * spans_s)[self.controlled].sum()
        return float(total / 3600)

    def changes(self, *reasons: str) -> list[RunAction]:
        """The actions that changed something, all or those with one of the reasons."""
        return [
            action
            for action in self.actions
            if action.changed and (not reasons or action.reason in reasons)
        ]


def _rows(values: Iterable[Sequence[float | None]]) -> Floats:
    return np.array([[np.nan if v is None else v for v in row] for row in values], dtype=float)
