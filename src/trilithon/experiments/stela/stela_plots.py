"""Draws throughput over time, times without it, every choice, and the random graphs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trilithon.experiments.paper import Paper
from trilithon.experiments.plot_style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    floats,
    label_ends,
    legend_above,
)
from trilithon.experiments.plots import Plot
from trilithon.experiments.results import PaperResults
from trilithon.experiments.run_series import RunSeries
from trilithon.experiments.stela.catalogue import (
    DEFAULT,
    DURATION_S,
    FAIR,
    GROUP_1,
    GROUP_2,
    LEAST_LINK,
    PRINTED,
    SCALE_IN,
    SCALED_S,
    STELA,
)
from trilithon.experiments.stela.random_dags import GOAL, STRATEGIES, complete

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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

_GROUPS: Final = (GROUP_1, GROUP_2)
# The name, the colour and the height of each line's end.
Ends = list[tuple[str, str, float]]


def _lines(results: PaperResults, experiment: str) -> Mapping[str, RunSeries]:
    """The series of an experiment's only variant by strategy; none if throughput is not there."""
    result = results.experiment(experiment)
    (by_strategy,) = ({},) if result is None else tuple(result.series.values()) or ({},)
    return by_strategy if all(line.throughput for line in by_strategy.values()) else {}


def _draw_throughput(axes: "Axes", lines: Mapping[str, RunSeries], paper: Paper) -> Ends:
    """Records per second at the sinks, a line per strategy; machines change at the grey line."""
    ends, top = [], 0.0
    for name, style in _DRAWN.items():
        if name not in lines:
            continue
        heights = floats(lines[name].throughput)
        axes.plot(lines[name].times_s / 60, heights, label=paper.label(name), **style)
        top = max(top, float(np.nanmax(heights)))
        ends.append((paper.label(name), style["color"], float(np.nanmean(heights[-10:]))))
    axes.axvline(SCALED_S / 60, color=GREY, linewidth=0.8)
    axes.set(xlim=(0, DURATION_S / 60), ylim=(0, 1.05 * top))
    axes.set_xlabel("time (min)")
    return ends


@dataclass(frozen=True, kw_only=True)
class ThroughputOverTime(Plot):
    """One experiment, all of it or the minutes `from_min` to `to_min`."""

    from_min: float = 0.0
    to_min: float = DURATION_S / 60

    def available(self, results: PaperResults) -> bool:
        return bool(_lines(results, self.section))

    def draw(self, canvas: "Canvas", results: PaperResults, paper: Paper) -> None:
        axes = canvas.subplots()
        ends = _draw_throughput(axes, _lines(results, self.section), paper)
        axes.set_xlim(self.from_min, self.to_min)
        axes.set_ylabel("records/s at the sinks")
        label_ends(canvas, axes, ends)


@dataclass(frozen=True, kw_only=True)
class ThroughputPanels(Plot):
    """Several experiments side by side."""

    experiments: tuple[str, ...]

    def available(self, results: PaperResults) -> bool:
        return all(_lines(results, name) for name in self.experiments)

    def draw(self, canvas: "Canvas", results: PaperResults, paper: Paper) -> None:
        panels = canvas.subplots(1, len(self.experiments), squeeze=False)[0]
        for axes, name in zip(panels, self.experiments, strict=True):
            _draw_throughput(axes, _lines(results, name), paper)
            axes.set_title(name, fontsize="medium")
        panels[0].set_ylabel("records/s at the sinks")
        legend_above(canvas, panels[0], 5)


@dataclass(frozen=True, kw_only=True)
class InterruptionBars(Plot):
    """How long throughput takes to converge, and how long it is zero, per job and strategy."""

    def available(self, results: PaperResults) -> bool:
        return any(result.facts for result in results.experiments)

    def draw(self, canvas: "Canvas", results: PaperResults, paper: Paper) -> None:
        left, right = canvas.subplots(1, 2, width_ratios=(1, 1))
        shown = [result for result in results.experiments if result.facts]
        for axes, what, title in (
            (left, "convergence", "convergence time"),
            (right, "down", "down time"),
        ):
            for row, result in enumerate(shown):
                names = [n for n in _DRAWN if n != PRINTED and f"{n}, {what}" in result.facts]
                height = 0.8 / max(1, len(names))
                for i, name in enumerate(reversed(names)):
                    seconds = result.facts[f"{name}, {what}"]
                    axes.barh(
                        row + (i - (len(names) - 1) / 2) * height,
                        0.0 if seconds is None else float(seconds),
                        height,
                        color=_DRAWN[name]["color"],
                        label=paper.label(name) if axes is left else None,
                    )
            axes.set_title(title, fontsize="medium")
            axes.set_xlabel("s")
            axes.set_yticks(range(len(shown)), [result.experiment.name for result in shown])
            axes.invert_yaxis()
            axes.grid(visible=False, axis="y")
        right.set_yticklabels([])
        _legend_by_color(canvas, left)


def _legend_by_color(canvas: "Canvas", axes: "Axes") -> None:
    """A colour once: random groups have those of strategies that no scale-in has."""
    handles, labels = axes.get_legend_handles_labels()
    bars = dict(zip(labels, handles, strict=True))
    by_color: dict[Any, list[str]] = {}
    for label, bar in bars.items():
        by_color.setdefault(bar.patches[0].get_facecolor(), []).append(label)
    shared = {names[0]: ", ".join(names) for names in by_color.values()}
    canvas.legend(
        [bars[name] for name in shared],
        list(shared.values()),
        loc="outside upper left",
        ncols=2,
        borderaxespad=0.2,
    )


@dataclass(frozen=True, kw_only=True)
class EveryGroup(Plot):
    """The throughput without each group of machines, from the best down; what was chosen on it."""

    section: str = "choices"

    def available(self, results: PaperResults) -> bool:
        return bool(self._groups(results))

    def _groups(self, results: PaperResults) -> Mapping[str, Any]:
        found = results.extra.get(self.section, {}).get("data", ())
        return next((one for one in found if one["experiment"] == SCALE_IN.name), {})

    def draw(self, canvas: "Canvas", results: PaperResults, paper: Paper) -> None:
        groups = self._groups(results)
        axes = canvas.subplots()
        moved = {"choices": (BLUE, "moved as Stela moves"), "in_turn": (GREY, "moved in turn")}
        for key, (color, label) in moved.items():
            values = groups[key]
            axes.plot(range(1, len(values) + 1), values, color=color, label=label)
        marks = {STELA: "o", PRINTED: "X", GROUP_1: "s", GROUP_2: "D"}
        for name, marker in marks.items():
            value, key = groups["chosen"][name], "in_turn" if name in _GROUPS else "choices"
            place = 1 + sum(choice > value * (1 + 1e-6) for choice in groups[key])
            color = _DRAWN[name]["color"]
            axes.plot([place], [value], marker, color=color, markersize=8, clip_on=False)
            axes.annotate(
                paper.label(name),
                (place, value),
                (-8, -16) if name == PRINTED else (6, -17 if name == GROUP_2 else 9),
                textcoords="offset points",
                color=color,
                ha="right" if name == PRINTED else "left",
            )
        axes.axhline(groups["before"], color=BLACK, linewidth=0.8, linestyle=(0, (2, 2)))
        axes.text(len(groups["choices"]), groups["before"], "before ", ha="right", va="bottom")
        axes.set(xlim=(0, len(groups["choices"]) + 1), ylim=(0, 1.15 * groups["before"]))
        axes.set_xlabel("groups of four of eight machines, from the best to the worst")
        axes.set_ylabel("records/s at the sinks")
        axes.legend(loc="lower left")


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
