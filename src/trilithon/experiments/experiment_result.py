"""Holds the results of an experiment: our figures, a summary per run, series of plotted runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from trilithon.experiments.definition import Experiment, PaperFigure
from trilithon.experiments.intervals import half_width
from trilithon.experiments.paper import Facts
from trilithon.experiments.run_series import RunSeries
from trilithon.experiments.runs import WORST_TENTH, Run

# The worst tenth, and the percentiles that the papers print.
PERCENTILES: Final = (WORST_TENTH, 15, 50, 90)
# The numbers of a summary that have an interval where several seeds were run.
AVERAGE, INSTANCE_HOURS = "average", "instance_hours"


@dataclass(frozen=True)
class RunSummary:
    """A variant under a strategy in a few numbers: the means over its runs, one per seed.

    Satisfaction and instance-hours are those of the time in which the policy may act. What an older
    file of results does not have is None.
    """

    average: float
    percentiles: Mapping[int, float]
    at_end: float
    actions: float
    instances: float
    instance_hours: float | None = None
    # When something was changed and for which reason, in any of the runs under the paper's policy.
    acted: tuple[tuple[float, str], ...] | None = None
    runs: int = 1
    # Half of the 95 % interval of a mean, by the number's name; none for a single run.
    half_widths: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, runs: Sequence[Run], *, actions: bool = True) -> "RunSummary":
        """The summary, with the time of each action if `actions`."""

        def mean(values: Iterator[float]) -> float:
            return float(np.mean(list(values)))

        widths = {
            AVERAGE: half_width([run.average for run in runs]),
            INSTANCE_HOURS: half_width([run.instance_hours for run in runs]),
        }
        return cls(
            average=mean(run.average for run in runs),
            percentiles={
                percent: mean(run.percentile(percent) for run in runs) for percent in PERCENTILES
            },
            at_end=mean(run.at_end for run in runs),
            actions=mean(len(run.changes()) for run in runs),
            instances=mean(run.instances_at_end for run in runs),
            instance_hours=mean(run.instance_hours for run in runs),
            acted=tuple((action.time_s, action.reason) for run in runs for action in run.changes())
            if actions
            else None,
            runs=len(runs),
            half_widths={name: width for name, width in widths.items() if width is not None},
        )

    @property
    def worst_tenth(self) -> float | None:
        """What satisfaction exceeds for nine tenths of the time."""
        return self.percentiles.get(WORST_TENTH)

    def acted_between(self, start_s: float, end_s: float) -> bool | None:
        """Whether something was changed in this time; None if the results do not tell."""
        if self.acted is not None:
            return any(start_s <= at_s <= end_s for at_s, _ in self.acted)
        return False if self.actions == 0 else None


@dataclass(frozen=True)
class ComparedFigure:
    """A figure of the paper beside ours.

    `ours` is None where it was not reached in some run, or was not `measured` at all. Where neither
    direction is better, a run without a number is no worse: there it is the mean of the others.
    """

    figure: PaperFigure
    ours: float | None
    # Of each seed, where several were run.
    each: tuple[float | None, ...] = ()
    # Why nothing was decided in the runs, where the measure of the figure tells.
    void: str = ""
    measured: bool = True

    @classmethod
    def of_seeds(
        cls, figure: PaperFigure, each: Sequence[float | None], void: str = ""
    ) -> "ComparedFigure":
        """Our number: the mean over the seeds."""
        known = [value for value in each if value is not None]
        counts = len(known) == len(each) or figure.more_is_better is None
        ours = sum(known) / len(known) if known and counts else None
        return cls(figure, ours, tuple(each) if len(each) > 1 else (), void)

    @property
    def known(self) -> list[float]:
        """The numbers of the seeds that have one."""
        return [value for value in self.each if value is not None]

    @property
    def half_width(self) -> float | None:
        return None if self.ours is None else half_width(self.known)


@dataclass(frozen=True)
class ExperimentResult:
    """Results of an experiment: figures, a summary per run, series of the plotted variants."""

    experiment: Experiment
    figures: tuple[ComparedFigure, ...]
    # By variant, then by the name of the strategy.
    summaries: Mapping[str, Mapping[str, RunSummary]] = field(default_factory=dict)
    facts: Facts = field(default_factory=dict)
    series: Mapping[str, Mapping[str, RunSeries]] = field(default_factory=dict)
    # What code and chosen numbers made it; None where an older file does not tell.
    made_by: str | None = None

    def ours(self, figure: str) -> float | None:
        return next(compared.ours for compared in self.figures if compared.figure.name == figure)

    def variants_of(self, figure: PaperFigure) -> list[str]:
        """The variants that a figure is about and that were run."""
        wanted = figure.scope.variants or tuple(self.summaries)
        return [name for name in wanted if name in self.summaries]

    def acted_between(
        self, variant: str, strategy: str, start_s: float, end_s: float
    ) -> bool | None:
        """Whether something was changed in this time; None if the results do not tell."""
        acted = self.summaries[variant][strategy].acted_between(start_s, end_s)
        series = self.series.get(variant, {}).get(strategy)
        if acted is None and series is not None:
            return any(start_s <= at_s <= end_s for at_s, _ in series.actions)
        return acted
