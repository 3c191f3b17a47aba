"""Condenses the lines of a run into short series for the result file, to draw plots from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from trilithon.experiments.runs import Floats, Run

# Points of a line over time: one for each two pixels or so of a plot.
MOST_POINTS: Final = 240
QUANTILES: Final = np.linspace(0, 1, 101)


@dataclass(frozen=True)
class RunSeries:
    """A run over time: the mean utility in equal steps, the quantiles of satisfaction, the actions.

    `maximum` is the utility that all jobs that report could have; both lines have None where no job
    reports. Quantiles are those of 0, 1, … 100 % over the time in which the policy may act.
    """

    from_s: float
    step_s: float
    utility: tuple[float | None, ...]
    maximum: tuple[float | None, ...]
    quantiles: tuple[float, ...]
    # When something was changed, and for which reason.
    actions: tuple[tuple[float, str], ...]
    # Records per second at the sinks, where the experiment is about them.
    throughput: tuple[float | None, ...] = ()

    @classmethod
    def of(cls, run: Run, *, actions: bool = True, throughput: bool = False) -> "RunSeries":
        """The series, with the time of each action if `actions`, and throughput if asked for."""
        every = -(-len(run.times_s) // MOST_POINTS)
        most = np.where(run.reporting, run.maxima[:, None], 0.0).sum(axis=0)
        most = np.where(np.isnan(run.utility), np.nan, most)
        satisfaction = run.satisfaction[run.controlled]
        known = satisfaction[~np.isnan(satisfaction)]
        round_s = float(run.times_s[1] - run.times_s[0])
        return cls(
            from_s=float(run.times_s[0]) - round_s,
            step_s=round_s * every,
            utility=_means(run.utility, every),
            maximum=_means(most, every),
            quantiles=tuple(float(f"{q:.5g}") for q in np.quantile(known, QUANTILES)),
            actions=tuple((action.time_s, action.reason) for action in run.changes())
            if actions
            else (),
            throughput=_means(run.throughput, every) if throughput else (),
        )

    @property
    def times_s(self) -> Floats:
        """The middle of each step."""
        steps: Floats = np.arange(len(self.utility), dtype=np.float64) + 0.5
        return self.from_s + self.step_s * steps

    def to_json(self) -> dict[str, Any]:
        return {
            "from_s": self.from_s,
            "step_s": self.step_s,
            "utility": list(self.utility),
            "maximum": list(self.maximum),
            "quantiles": list(self.quantiles),
            "actions": [[at_s, reason] for at_s, reason in self.actions],
            **({"throughput": list(self.throughput)} if self.throughput else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "RunSeries":
        return cls(
            data["from_s"],
            data["step_s"],
            tuple(data["utility"]),
            tuple(data["maximum"]),
            tuple(data["quantiles"]),
            tuple((at_s, reason) for at_s, reason in data["actions"]),
            tuple(data.get("throughput", ())),
        )


def _means(values: Floats, every: int) -> tuple[float | None, ...]:
    """The mean of each `every` values, without those that are missing."""
    padded = np.concatenate([values, np.full(-len(values) % every, np.nan)]).reshape(-1, every)
    known = ~np.isnan(padded)
    counts = known.sum(axis=1)
    sums = np.where(known, padded, 0.0).sum(axis=1)
    return tuple(
        float(f"{total / count:.5g}") if count else None
        for total, count in zip(sums, counts, strict=True)
    )
