"""Condenses the lines of a run into short series for the result file, to draw plots from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from trilithon.experiments.runs import Floats, Run

# Points of a line over time: one for each two pixels or so of a plot.
MOST_POINTS: Final = 240
QUANTILES: Final = np.linspace(0, 1, 101)


# Checked predictions of a run, at most: so many points of a plot can still be told apart.
MOST_PREDICTIONS: Final = 600
_PREDICTED: Final = ".predicted_for_load_ms"
_MEASURED: Final = ".measured_waiting_ms"
# Of an operator: the waiting that was predicted for the load that came, and the one measured, in
# milliseconds.
Prediction = tuple[str, float, float]


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
    # Where a policy checks its model: what was predicted and what was measured.
    predictions: tuple[Prediction, ...] = ()
    # Instances by operator, where the experiment is about one job and they are asked for.
    instances: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, run: Run, *, actions: bool = True, throughput: bool = False, instances: bool = False
    ) -> "RunSeries":
        """The series, with the time of each action if `actions`, and throughput and instances if
        asked for.
        """
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
            predictions=_predictions(run),
            instances={
                operator: _means(counts, every)
                for (_, operator), counts in run.parallelism.items()
                if instances
            },
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
            **({"predictions": list(map(list, self.predictions))} if self.predictions else {}),
            **(
                {"instances": {name: list(line) for name, line in self.instances.items()}}
                if self.instances
                else {}
            ),
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
            tuple((name, model, measured) for name, model, measured in data.get("predictions", ())),
            {name: tuple(line) for name, line in data.get("instances", {}).items()},
        )


def _predictions(run: Run) -> tuple[Prediction, ...]:
    """Evenly over the run, if there are too many."""
    checked = [
        (operator, float(f"{predicted:.4g}"), float(f"{measured:.4g}"))
        for action in run.actions
        for name, predicted in action.numbers.items()
        if name.endswith(_PREDICTED) and predicted is not None
        for operator in (name.removesuffix(_PREDICTED),)
        if (measured := action.numbers.get(operator + _MEASURED)) is not None
    ]
    every = -(-len(checked) // MOST_PREDICTIONS) or 1
    return tuple(checked[::every])


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
