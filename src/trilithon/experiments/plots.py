"""Draws the plots of the result pages from stored results, as SVG files with reproducible bytes.

A plot is data of the paper's catalogue: which experiment, which variants, what stands on the axes.
matplotlib is imported when something is drawn, since that takes a second.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from trilithon.experiments.paper import Paper
from trilithon.experiments.plot_style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    POLICY_STYLES,
    PURPLE,
    RED,
    floats,
    label_ends,
    legend_above,
    style_of,
    svg_canvas,
)
from trilithon.experiments.results import PaperResults
from trilithon.experiments.run_series import QUANTILES, RunSeries
from trilithon.experiments.runs import Floats
from trilithon.experiments.sensitivity import MovedRun
from trilithon.experiments.spark_results import by_policy
from trilithon.experiments.strategies import UNCONTROLLED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

T = TypeVar("T")
_MARKERS: Final = ("v", "o", "s", "D", "^", "P", "X")
_SERIES_COLORS: Final = (RED, ORANGE, GREEN, BLUE)


@dataclass(frozen=True, kw_only=True)
class Plot(ABC):
    """A file beside the page. `section` is an experiment, or mixes, chosen or spark."""

    file: str
    section: str
    caption: str
    height_in: float = 2.9
    # On the second page, not on the first.
    in_details: bool = False

    @abstractmethod
    def available(self, results: PaperResults) -> bool:
        """Whether the results hold what is drawn."""

    @abstractmethod
    def draw(self, canvas: "Canvas", results: PaperResults, paper: Paper) -> None: ...


def write_plots(results: PaperResults, paper: Paper, folder: Path) -> list[Plot]:
    """Writes all plots that the results suffice for, and returns them."""
    written = []
    for plot in available_plots(results, paper):
        with svg_canvas(folder / plot.file, plot.caption, plot.height_in) as canvas:
            plot.draw(canvas, results, paper)
        written.append(plot)
    return written


def available_plots(results: PaperResults, paper: Paper) -> list[Plot]:
    return [plot for plot in paper.plots if plot.available(results)]


def images(plots: Sequence[Plot], section: str) -> list[str]:
    """The plots of a section as lines of a page."""
    return [
        f"![{plot.caption}]({plot.file})\n\n*{plot.caption}*\n"
        for plot in plots
        if plot.section == section
    ]


@dataclass(frozen=True, kw_only=True)
class SatisfactionCdf(Plot):
    """For which share of the time satisfaction is at most so high, a line per strategy.

    `figures` are percentiles that the paper prints: strategy, percent, name of the figure.
    """

    variant: str
    figures: tuple[tuple[str, float, str], ...] = ()

    def available(self, results: PaperResults) -> bool:
        return bool(_series(results, self.section, self.variant))

    def draw(self, canvas: "Canvas", results: PaperResults, paper: Paper) -> None:
        axes = canvas.subplots()
        lines = _plotted(_series(results, self.section, self.variant), paper)
        # The legend is in the order of the lines, from the highest down.
        for name in sorted(lines, key=lambda name: np.mean(lines[name].quantiles)):
            axes.plot(
                100 * np.array(lines[name].quantiles),
                100 * QUANTILES,
                label=paper.label(name),
                **style_of(name, paper),
            )
        self._paper(axes, results, paper)
        axes.set(xlim=(-1.5, 101.5), ylim=(-2, 102))
        axes.set_xlabel("satisfaction: share of the maximum utility (%)")
        axes.set_ylabel("share of the time (%)")
        canvas.legend(loc="outside right upper", handlelength=2.4)

    def _paper(self, axes: "Axes", results: PaperResults, paper: Paper) -> None:
        """The paper's percentiles as crosses, each in the colour of its strategy."""
        for strategy in dict.fromkeys(name for name, _, _ in self.figures):
            points = [
                (100 * paper_value(results, self.section, figure), percent)
                for name, percent, figure in self.figures
                if name == strategy
            ]
            axes.plot(
                *zip(*points, strict=True),
                "x",
                color=style_of(strategy, paper)["color"],
                markersize=7,
                markeredgewidth=1.8,
                label=f"{paper.label(strategy)}, paper",
                zorder=5,
                clip_on=False,
            )


@dataclass(frozen=True, kw_only=True)
class PredictedWaiting(Plot):
    """What the model predicted against what was measured, a colour for each operator: on the
    diagonal both are the same.
    """

    variant: str

    def available(self, results: PaperResults) -> bool:
        series = _series(results, self.section, self.variant)
        return any(one.predictions for one in series.values())

    def draw(self, canvas: "Canvas", results: PaperResults, paper: Paper) -> None:
        axes = canvas.subplots()
        points = _series(results, self.section, self.variant)[paper.policy.name].predictions
        shown = [(name, *np.maximum((model, measured), 0.01)) for name, model, measured in points]
        low = min(min(x, y) for _, x, y in shown)
        high = max(max(x, y) for _, x, y in shown)
        axes.plot([low, high], [low, high], color=GREY, linewidth=0.8, zorder=1)
        for operator, color in zip(
            sorted({name for name, _, _ in shown}), _SERIES_COLORS, strict=False
        ):
            xs, ys = zip(*((x, y) for name, x, y in shown if name == operator), strict=True)
            axes.scatter(xs, ys, s=8, color=color, alpha=0.6, linewidth=0, label=operator)
        axes.set(xscale="log", yscale="log")
        axes.set_xlabel("predicted waiting for the load that came (ms)")
        axes.set_ylabel("measured waiting (ms)")
        legend_above(canvas, axes, 4)


@dataclass(frozen=True, kw_only=True)
class UtilityOverTime(Plot):
    """The utility of all jobs over time, a line per strategy, and a mark at each action."""

    variant: str
    hours: bool = False
    # What the utility is, for its axis.
    axis: str = "total utility"

    def available(self, results: PaperResults) -> bool:
        return bool(_series(results, self.section, self.variant))

    def draw(self, canvas: "Canvas", results: PaperResults, paper: Paper) -> None:
        axes = canvas.subplots()
        lines = _plotted(_series(results, self.section, self.variant), paper)
        scale = 3600.0 if self.hours else 60.0
        self._observed_only(axes, results, scale)
        top = max(np.nanmax(floats(series.maximum)) for series in lines.values())
        end = max(series.times_s[-1] + series.step_s / 2 for series in lines.values())
        axes.set(xlim=(0, end / scale))
        maximum = max(lines.values(), key=lambda series: np.nanmax(floats(series.maximum)))
        heights = floats(maximum.maximum)
        axes.plot(maximum.times_s / scale, heights, color=BLACK, linewidth=0.8, zorder=1.0)
        ends = [("maximum", BLACK, _last(heights))]
        for name, series in lines.items():
            utility, style = floats(series.utility), style_of(name, paper)
            axes.plot(series.times_s / scale, utility, **style)
            ends.append((paper.label(name), style["color"], _last(utility)))
        own = lines.get(paper.policy.name)
        bottom = -0.04 * top if own is None else self._actions(axes, own, scale, top)
        axes.set_yticks([tick for tick in axes.get_yticks() if 0 <= tick <= 1.05 * top])
        axes.set_ylim(bottom, 1.05 * top)
        axes.set_xlabel(f"time ({'h' if self.hours else 'min'})")
        axes.set_ylabel(self.axis)
        label_ends(canvas, axes, ends)
        legend_above(canvas, axes, 4)

    def _observed_only(self, axes: "Axes", results: PaperResults, scale: float) -> None:
        """Shades the time in which no policy may act yet, if there is any."""
        result = results.experiment(self.section)
        assert result is not None  # noqa: S101 - it is available
        until = result.experiment.policy_from_s / scale
        label = "policies only observe"
        if until > 0:
            axes.axvspan(0, until, color="#EFEFEF", linewidth=0, zorder=0, label=label)

    def _actions(self, axes: "Axes", series: RunSeries, scale: float, top: float) -> float:
        """Marks below the lines, a row and a marker for each reason; how far down they go."""
        reasons = sorted({reason for _, reason in series.actions})
        bottom = -0.04 * top
        for reason, marker in zip(reasons, _MARKERS, strict=False):
            bottom -= 0.05 * top
            times = [at_s / scale for at_s, why in series.actions if why == reason]
            axes.plot(
                times,
                [bottom] * len(times),
                marker=marker,
                color=BLACK,
                markerfacecolor="none" if marker != "v" else BLACK,
                linestyle="none",
                markersize=4.5,
                markeredgewidth=0.9,
                label=f"{_words(reason)} ({len(times)})",
                zorder=4,
            )
        return bottom - 0.04 * top


@dataclass(frozen=True, kw_only=True)
class InstancesOverTime(Plot):
    """The instances of some operators over time, a panel for each of some strategies."""

    variant: str
    operators: tuple[str, ...]
    strategies: tuple[str, ...]

    def available(self, results: PaperResults) -> bool:
        series = _series(results, self.section, self.variant)
        return any(name in series and series[name].instances for name in self.strategies)

    def draw(self, canvas: "Canvas", results: PaperResults, paper: Paper) -> None:
        lines = _series(results, self.section, self.variant)
        shown = [name for name in self.strategies if name in lines and lines[name].instances]
        panels = canvas.subplots(1, len(shown), sharey=True, squeeze=False)[0]
        top = 0.0
        for axes, name in zip(panels, shown, strict=True):
            series = lines[name]
            for operator, style in zip(self.operators, POLICY_STYLES, strict=False):
                counts = floats(series.instances[operator])
                axes.step(series.times_s / 60, counts, where="mid", label=operator, **style)
                top = max(top, float(np.nanmax(counts)))
            axes.set(xlim=(0, (series.times_s[-1] + series.step_s / 2) / 60))
            axes.set_title(paper.label(name), fontsize="medium")
            axes.set_xlabel("time (min)")
        panels[0].set_ylabel("instances")
        panels[0].set_ylim(0, 1.05 * top)
        legend_above(canvas, panels[0], len(self.operators))


@dataclass(frozen=True, kw_only=True)
class SatisfactionBySize(Plot):
    """Satisfaction at the end over the size of something, a line per strategy.

    `points` are pairs of size and variant. `figures` are pairs of size and a figure of the paper,
    which is drawn among the lines; with a label, the paper's and ours in a panel of their own.
    """

    points: tuple[tuple[float, str], ...]
    label: str
    figures: tuple[tuple[float, str], ...] = ()
    figures_label: str = ""

    def available(self, results: PaperResults) -> bool:
        return results.experiment(self.section) is not None

    def draw(self, canvas: "Canvas", results: PaperResults, paper: Paper) -> None:
        result = results.experiment(self.section)
        assert result is not None  # noqa: S101 - it is available
        sizes = [size for size, _ in self.points]
        widths = (3, 2) if self.figures_label else (1,)
        panels = canvas.subplots(1, len(widths), squeeze=False, width_ratios=widths)[0]
        axes = panels[0]
        for panel in panels:
            panel.set(ylim=(-3, 105), xticks=sizes, xlabel=self.label)
        ends = []
        for strategy in _plotted(result.summaries[self.points[0][1]], paper):
            summaries = [result.summaries[variant].get(strategy) for _, variant in self.points]
            heights = floats([None if s is None else 100 * s.at_end for s in summaries])
            style = style_of(strategy, paper)
            axes.plot(sizes, heights, marker=".", **style)
            ends.append((paper.label(strategy), style["color"], _last(heights, 1)))
        axes.set_ylabel("satisfaction at the end (%)")
        places = [size for size, _ in self.figures]
        theirs = [100 * paper_value(results, self.section, name) for _, name in self.figures]
        if not self.figures_label and places:
            axes.plot(places, theirs, "x", color=BLACK, markersize=7, label="paper", zorder=5)
            axes.legend(loc="lower right")
        label_ends(canvas, axes, ends)
        if self.figures_label:
            ours = 100 * floats([result.ours(name) for _, name in self.figures])
            other, style = panels[1], style_of(paper.policy.name, paper)
            other.plot(places, ours, marker=".", **style)
            other.plot(places, theirs, "x--", color=BLACK, markersize=6, linewidth=1)
            other.set_ylabel(self.figures_label)
            label_ends(
                canvas,
                other,
                [("here", style["color"], _last(ours, 1)), ("paper", BLACK, theirs[-1])],
            )


@dataclass(frozen=True, kw_only=True)
class UtilityBySize(Plot):
    """The utility at the end over the size of something: without a policy, and under the paper's.

    `panels` have a title and series; a series has a label, and pairs of size and variant. Points of
    different series are moved apart sideways, so that equal ones can be seen.
    """

    panels: tuple[tuple[str, tuple[tuple[str, tuple[tuple[float, str], ...]], ...]], ...]
    label: str
    max_utility: float
    apart: float = 0.5

    def available(self, results: PaperResults) -> bool:
        return results.experiment(self.section) is not None

    def draw(self, canvas: "Canvas", results: PaperResults, paper: Paper) -> None:
        result = results.experiment(self.section)
        assert result is not None  # noqa: S101 - it is available
        drawn = canvas.subplots(1, len(self.panels), sharey=True, squeeze=False)[0]
        strategies = (
            (UNCONTROLLED.name, {"linestyle": (0, (1, 1.2)), "marker": "o", "markersize": 8}),
            (paper.policy.name, {"linestyle": "-", "marker": "D", "markersize": 3.5}),
        )
        for axes, (title, series) in zip(drawn, self.panels, strict=True):
            axes.set_title(title, fontsize=9)
            axes.set(ylim=(-0.05 * self.max_utility, 1.08 * self.max_utility), xlabel=self.label)
            axes.set_xticks([size for size, _ in series[0][1]])
            for i, ((label, points), color) in enumerate(zip(series, _SERIES_COLORS, strict=False)):
                shift = self.apart * (i - (len(series) - 1) / 2)
                for name, style in strategies:
                    heights = [
                        self.max_utility * result.summaries[variant][name].at_end
                        for _, variant in points
                    ]
                    axes.plot(
                        [size + shift for size, _ in points],
                        heights,
                        color=color,
                        markerfacecolor="none" if name == UNCONTROLLED.name else color,
                        linewidth=1.2,
                        label=f"{label}, {paper.label(name)}" if axes is drawn[0] else "_",
                        **style,
                    )
        drawn[0].set_ylabel("utility at the end")
        legend_above(canvas, drawn[0], 4)


@dataclass(frozen=True, kw_only=True)
class MixRanking(Plot):
    """The satisfaction in each random mix, sorted for each strategy by itself."""

    section: str = "mixes"

    def available(self, results: PaperResults) -> bool:
        return bool(results.mixes)

    def draw(self, canvas: "Canvas", results: PaperResults, paper: Paper) -> None:
        axes = canvas.subplots()
        places = np.arange(1, len(results.mixes) + 1)
        axes.set(xlim=(1, max(2, len(places))), ylim=(-2, 102))
        ends = []
        for name in _plotted(results.mixes[0].satisfaction, paper):
            values = sorted((100 * mix.satisfaction[name] for mix in results.mixes), reverse=True)
            style = style_of(name, paper)
            axes.plot(places, values, **style)
            ends.append((paper.label(name), style["color"], values[-1]))
        ranked = results.ranking.mixes if results.ranking is not None else len(places)
        which = "mixes" if len(places) == ranked else f"{len(places)} of the {ranked} mixes"
        axes.set_xlabel(f"{which}, from the best of each strategy to its worst")
        axes.set_ylabel("mean satisfaction (%)")
        label_ends(canvas, axes, ends)


@dataclass(frozen=True, kw_only=True)
class LargestMoves(Plot):
    """The chosen numbers that move the policy's satisfaction the most, when halved and raised."""

    section: str = "chosen"
    count: int = 14
    height_in: float = 4.2

    def available(self, results: PaperResults) -> bool:
        return bool(results.moved)

    def draw(self, canvas: "Canvas", results: PaperResults, paper: Paper) -> None:
        axes = canvas.subplots()
        rows = sorted(largest_moves(results.moved, paper), key=lambda row: -_span(row))
        rows = rows[: self.count][::-1]
        for y, (_, base, ends) in enumerate(rows):
            xs = [100 * base, *(100 * end for _, end in ends)]
            axes.plot([min(xs), max(xs)], [y, y], color=GREY, linewidth=1.2, zorder=1)
            axes.plot(100 * base, y, "|", color=BLACK, markersize=11, zorder=3)
            for factor, end in ends:
                marker, color = _move_style(factor)
                axes.plot(100 * end, y, marker, color=color, markersize=6, zorder=2)
        axes.set_yticks(range(len(rows)), [name for name, _, _ in rows])
        axes.set(xlim=(-2, 102), ylim=(-0.7, len(rows) - 0.3))
        axes.set_xlabel(f"mean satisfaction under {paper.title} (%)")
        for marker, color, label in (
            ("|", BLACK, "as chosen"),
            (*_move_style(0.5), "halved"),
            (*_move_style(1.5), "raised by half"),
            (*_move_style(1.0), "another word"),
        ):
            axes.plot([], [], marker, color=color, label=label, markersize=7)
        legend_above(canvas, axes, 4)


def _move_style(factor: float) -> tuple[str, str]:
    if factor < 1:
        return "<", BLUE
    return (">", ORANGE) if factor > 1 else ("D", PURPLE)


def _span(row: tuple[str, float, list[tuple[float, float]]]) -> float:
    _, base, ends = row
    return max(abs(end - base) for _, end in ends)


def largest_moves(
    moved: Sequence[MovedRun], paper: Paper
) -> Iterator[tuple[str, float, list[tuple[float, float]]]]:
    """Per number and run: its name, the satisfaction as chosen, and with each factor."""
    name = paper.policy.name
    base = {
        (run.move.experiment, run.move.variant): run.satisfaction[name]
        for run in moved
        if run.move.path is None
    }
    rows: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for run in moved:
        if run.move.path is not None:
            key = (run.move.experiment, run.move.variant, run.move.path)
            rows.setdefault(key, []).append((run.move.factor, run.satisfaction[name]))
    for (experiment, variant, path), ends in rows.items():
        yield f"{path} ({experiment})", base[experiment, variant], ends


@dataclass(frozen=True, kw_only=True)
class SparkHours(Plot):
    """The satisfaction on Spark in each hour of the traces, a line per policy."""

    section: str = "spark"

    def available(self, results: PaperResults) -> bool:
        return any(run.by_hour for run in results.spark)

    def draw(self, canvas: "Canvas", results: PaperResults, paper: Paper) -> None:
        axes = canvas.subplots()
        others = iter(POLICY_STYLES[1:])
        for run in by_policy(results.spark):
            own = run.policy == paper.policy.policy
            style = style_of(paper.policy.name, paper) if own else next(others)
            hours = np.arange(len(run.by_hour)) + 0.5
            axes.plot(hours, 100 * np.array(run.by_hour), label=paper.label(run.policy), **style)
        axes.set(xlim=(0, len(results.spark[0].by_hour)), ylim=(0, 104))
        axes.set_xticks(range(0, len(results.spark[0].by_hour) + 1, 6))
        axes.set_xlabel("hour of the traces")
        axes.set_ylabel("satisfaction (%)")
        legend_above(canvas, axes, 4)


def paper_value(results: PaperResults, experiment: str, figure: str) -> float:
    """The number that the paper prints for a figure."""
    result = results.experiment(experiment)
    assert result is not None  # noqa: S101 - plots ask for what is available
    return next(one.figure.value for one in result.figures if one.figure.name == figure)


def _series(results: PaperResults, experiment: str, variant: str) -> dict[str, RunSeries]:
    result = results.experiment(experiment)
    return {} if result is None else dict(result.series.get(variant, {}))


def _plotted(by_strategy: Mapping[str, T], paper: Paper) -> dict[str, T]:
    """What a plot shows: strategies that are drawn, in the paper's order."""
    shown = [strategy.name for strategy in paper.plotted_strategies]
    return {name: by_strategy[name] for name in shown if name in by_strategy}


def _last(heights: Floats, points: int = 3) -> float:
    """Where a line ends: the mean of its last points."""
    known = heights[~np.isnan(heights)][-points:]
    return float(known.mean()) if len(known) else 0.0


def _words(reason: str) -> str:
    """A reason code as words."""
    return reason.lower().replace("_", " ")
