"""Draws throughput over time, and the random graphs."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trilithon.experiments.paper import Paper
from trilithon.experiments.plot_style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    floats,
    label_ends,
)
from trilithon.experiments.plots import Plot
from trilithon.experiments.results import PaperResults
from trilithon.experiments.stela.catalogue import (
    DEFAULT,
    FAIR,
    GROUP_1,
    GROUP_2,
    LEAST_LINK,
    PRINTED,
    SCALED_S,
    STELA,
)
from trilithon.experiments.stela.random_dags import GOAL, STRATEGIES, complete

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

# The other alternatives end near the default; all are in the tables.
_DRAWN: Final[dict[str, dict[str, Any]]] = {
    DEFAULT: {"color": GREY, "linewidth": 2.0, "linestyle": (0, (1, 1.2))},
    LEAST_LINK: {"color": ORANGE, "linewidth": 1.6, "linestyle": (0, (5, 2))},
    GROUP_1: {"color": GREY, "linewidth": 2.0, "linestyle": (0, (1, 1.2))},
    GROUP_2: {"color": ORANGE, "linewidth": 1.6, "linestyle": (0, (5, 2))},
    PRINTED: {"color": PURPLE, "linewidth": 1.5, "linestyle": (0, (4, 1.5))},
    FAIR: {"color": GREEN, "linewidth": 1.6, "linestyle": (0, (6, 1.5, 1, 1.5))},
    STELA: {"color": BLUE, "linewidth": 1.9},
}


@dataclass(frozen=True, kw_only=True)
class ThroughputOverTime(Plot):
    """Records per second at the sinks, a line per strategy; machines change at the grey line."""

    variant: str

    def available(self, results: PaperResults) -> bool:
        result = results.experiment(self.section)
        series = {} if result is None else result.series.get(self.variant, {})
        return bool(series) and all(one.throughput for one in series.values())

    def draw(self, canvas: "Canvas", results: PaperResults, paper: Paper) -> None:
        result = results.experiment(self.section)
        assert result is not None  # noqa: S101 - it is available
        axes = canvas.subplots()
        lines = result.series[self.variant]
        ends = []
        top = 0.0
        for name, style in _DRAWN.items():
            if name not in lines:
                continue
            heights = floats(lines[name].throughput)
            axes.plot(lines[name].times_s / 60, heights, **style)
            top = max(top, float(np.nanmax(heights)))
            ends.append((paper.label(name), style["color"], float(np.nanmean(heights[-10:]))))
        axes.axvline(SCALED_S / 60, color=GREY, linewidth=0.8)
        axes.set(xlim=(0, result.experiment.duration_s / 60), ylim=(0, 1.05 * top))
        axes.set_xlabel("time (min)")
        axes.set_ylabel("records/s at the sinks")
        label_ends(canvas, axes, ends)


@dataclass(frozen=True, kw_only=True)
class DagShares(Plot):
    """The share of the best division in each random graph, sorted for each strategy by itself."""

    section: str = "dags"

    def available(self, results: PaperResults) -> bool:
        return complete(results.extra.get(self.section, {}).get("data", ()))

    def draw(self, canvas: "Canvas", results: PaperResults, paper: Paper) -> None:
        cases = results.extra[self.section]["data"]
        axes = canvas.subplots()
        places = np.arange(1, len(cases) + 1)
        ends = []
        colors = dict(zip(STRATEGIES, (BLUE, SKY, ORANGE, PURPLE, GREEN), strict=True))
        for name, color in {**colors, "before": GREY}.items():
            values = sorted((100 * case["out"][name] for case in cases), reverse=True)
            axes.plot(places, values, color=color)
            ends.append((paper.label(name), color, values[-1]))
        axes.axhline(100 * GOAL, color=RED, linewidth=0.8, linestyle=(0, (2, 2)))
        axes.set(xlim=(1, max(2, len(cases))), ylim=(0, 102))
        axes.set_xlabel("random graphs, from the best of each strategy to its worst")
        axes.set_ylabel("share of the best division (%)")
        label_ends(canvas, axes, ends)
