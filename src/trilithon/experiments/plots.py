"""Draws the plots of a result page from stored results, as SVG files with reproducible bytes.

A plot is data of the paper's catalogue: which experiment, which variants, what stands on the axes.
matplotlib is imported when something is drawn, since that takes a second.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trilithon.experiments.paper import Paper
from trilithon.experiments.results import PaperResults
from trilithon.experiments.run_series import QUANTILES, RunSeries
from trilithon.experiments.sensitivity import MovedRun
from trilithon.experiments.strategies import BEST_STATIC, MANUAL, UNCONTROLLED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

WIDTH_IN: Final = 7.2
# Okabe and Ito's colours, which the colour-blind can tell apart; lines differ in dashes, too.
_BLUE, _ORANGE, _GREEN, _RED, _PURPLE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7"
_GREY, _BLACK = "#6E6E6E", "#111111"
_STYLES: Final[dict[str, dict[str, Any]]] = {
    UNCONTROLLED.name: {"color": _RED, "linestyle": (0, (1, 1.2))},
    MANUAL.name: {"color": _ORANGE, "linestyle": (0, (5, 2))},
    BEST_STATIC.name: {"color": _GREEN, "linestyle": (0, (6, 2, 1, 2))},
}
_POLICY_STYLES: Final = (
    {"color": _BLUE, "linestyle": "-", "linewidth": 2.0},
    {"color": _PURPLE, "linestyle": (0, (4, 1.5))},
    {"color": _GREY, "linestyle": (0, (1, 1.2))},
)
_MARKERS: Final = ("v", "o", "s", "D", "^", "P", "X")
_RC: Final[dict[Any, Any]] = {
    "svg.hashsalt": "trilithon",
    # Text stays text: it can be searched, and a changed number is a changed line.
    "svg.fonttype": "none",
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
}


@dataclass(frozen=True, kw_only=True)
class Plot(ABC):
    """A file beside the page. `section` is an experiment, or mixes, chosen or spark."""

    file: str
    section: str
    caption: str
    height_in: float = 2.9

    @abstractmethod
    def available(self, results: PaperResults) -> bool:
        """Whether the results hold what is drawn."""

    @abstractmethod
    def draw(self, canvas: "Canvas", results: PaperResults, paper: Paper) -> None: ...


def write_plots(results: PaperResults, paper: Paper, folder: Path) -> list[Plot]:
    """Writes all plots that the results suffice for, and returns them."""
    from matplotlib import rc_context  # noqa: PLC0415
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415
    from matplotlib.figure import Figure as Canvas  # noqa: PLC0415

    written = []
    for plot in available_plots(results, paper):
        with rc_context(_RC):
            canvas = Canvas(figsize=(WIDTH_IN, plot.height_in), layout="constrained")
            FigureCanvasSVG(canvas)
            plot.draw(canvas, results, paper)
            path = folder / plot.file
            path.parent.mkdir(parents=True, exist_ok=True)
            canvas.savefig(path, format="svg", metadata={"Date": None, "Title": plot.caption})
        written.append(plot)
    return written


def available_plots(results: PaperResults, paper: Paper) -> list[Plot]:
    return [plot for plot in paper.plots if plot.available(results)]


def style_of(strategy: str, paper: Paper) -> dict[str, Any]:
    """The line of a strategy: the same in all plots. The paper's own policy lies on top."""
    style = _STYLES.get(strategy)
    if style is not None:
        return {**style, "zorder": 2.0}
    policies = [s.name for s in paper.strategies if s.name not in _STYLES]
    place = policies.index(strategy) if strategy in policies else len(policies)
    return {**_POLICY_STYLES[min(place, len(_POLICY_STYLES) - 1)], "zorder": 3.0 - place / 10}


def _legend_above(canvas: "Canvas", axes: "Axes", columns: int) -> None:
    """A legend above the axes, over the whole width, in rows from left to right."""
    handles, labels = axes.get_legend_handles_labels()
    rows = -(-len(handles) // columns)
    # matplotlib fills columns first.
    order = [row * columns + column for column in range(columns) for row in range(rows)]
    order = [i for i in order if i < len(handles)]
    canvas.legend(
        [handles[i] for i in order],
        [labels[i] for i in order],
        loc="outside upper left",
        ncols=columns,
        borderaxespad=0.2,
        handlelength=2.4,
        columnspacing=1.2,
    )


def _floats(values: Sequence[float | None]) -> np.ndarray[Any, Any]:
    return np.array([np.nan if value is None else value for value in values])


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
        for name, series in _series(results, self.section, self.variant).items():
            axes.plot(
                100 * np.array(series.quantiles),
                100 * QUANTILES,
                label=paper.label(name),
                **style_of(name, paper),
            )
        self._paper(axes, results, paper)
        axes.set(xlim=(-1.5, 101.5), ylim=(-2, 102))
        axes.set_xlabel("satisfaction: share of the maximum utility (%)")
        axes.set_ylabel("share of the time (%)")
        _legend_above(canvas, axes, 4)

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
class UtilityOverTime(Plot):
    """The utility of all jobs over time, a line per strategy, and a mark at each action."""

    variant: str
    hours: bool = False

    def available(self, results: PaperResults) -> bool:
        return bool(_series(results, self.section, self.variant))

    def draw(self, canvas: "Canvas", results: PaperResults, paper: Paper) -> None:
        axes = canvas.subplots()
        lines = _series(results, self.section, self.variant)
        scale = 3600.0 if self.hours else 60.0
        self._observed_only(axes, results, scale)
        maximum = max(lines.values(), key=lambda series: max(_floats(series.maximum)))
        axes.plot(
            maximum.times_s / scale,
            _floats(maximum.maximum),
            color=_BLACK,
            linewidth=0.8,
            label="maximum",
        )
        for name, series in lines.items():
            axes.plot(
                series.times_s / scale,
                _floats(series.utility),
                label=paper.label(name),
                **style_of(name, paper),
            )
        own = lines.get(paper.policy.name)
        if own is not None:
            self._actions(axes, own, scale)
        top = max(np.nanmax(_floats(series.maximum)) for series in lines.values())
        end = max(series.times_s[-1] + series.step_s / 2 for series in lines.values())
        axes.set(xlim=(0, end / scale), ylim=(-0.14 * top, 1.05 * top))
        axes.set_yticks([tick for tick in axes.get_yticks() if 0 <= tick <= 1.05 * top])
        axes.set_xlabel(f"time ({'h' if self.hours else 'min'})")
        axes.set_ylabel("total utility")
        _legend_above(canvas, axes, 4)

    def _observed_only(self, axes: "Axes", results: PaperResults, scale: float) -> None:
        """Shades the time in which the policy may not act yet."""
        result = results.experiment(self.section)
        assert result is not None  # noqa: S101 - it is available
        until = result.experiment.policy_from_s / scale
        axes.axvspan(0, until, color="#EFEFEF", linewidth=0, zorder=0, label="policy only observes")

    def _actions(self, axes: "Axes", series: RunSeries, scale: float) -> None:
        """Marks below the lines, a row for all, a marker for each reason."""
        bottom = -0.09 * np.nanmax(_floats(series.maximum))
        reasons = sorted({reason for _, reason in series.actions})
        for reason, marker in zip(reasons, _MARKERS, strict=False):
            times = [at_s / scale for at_s, why in series.actions if why == reason]
            axes.plot(
                times,
                [bottom] * len(times),
                marker=marker,
                color=_BLACK,
                markerfacecolor="none" if marker != "v" else _BLACK,
                linestyle="none",
                markersize=4.5,
                markeredgewidth=0.9,
                label=f"{_words(reason)} ({len(times)})",
                zorder=4,
            )


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
        panels = canvas.subplots(1, 2 if self.figures_label else 1, squeeze=False)[0]
        axes = panels[0]
        for strategy in result.summaries[self.points[0][1]]:
            ends = [100 * result.summaries[variant][strategy].at_end for _, variant in self.points]
            style = style_of(strategy, paper)
            axes.plot(sizes, ends, label=paper.label(strategy), marker=".", **style)
        axes.set_ylabel("satisfaction at the end (%)")
        places = [size for size, _ in self.figures]
        theirs = [100 * paper_value(results, self.section, name) for _, name in self.figures]
        ours = [result.ours(name) for _, name in self.figures]
        if not self.figures_label and places:
            axes.plot(places, theirs, "x", color=_BLACK, markersize=7, label="paper", zorder=5)
        for panel in panels:
            panel.set(ylim=(-3, 105), xticks=sizes, xlabel=self.label)
        axes.legend(
            loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2 if self.figures_label else 5
        )
        if self.figures_label:
            other = panels[1]
            style = style_of(paper.policy.name, paper)
            other.plot(
                places, 100 * _floats(ours), label=f"{paper.title}, here", marker=".", **style
            )
            other.plot(
                places, theirs, "x--", color=_BLACK, markersize=6, label="paper", linewidth=1
            )
            other.set_ylabel(self.figures_label)
            other.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)


@dataclass(frozen=True, kw_only=True)
class MixRanking(Plot):
    """The satisfaction in each random mix, sorted for each strategy by itself."""

    section: str = "mixes"

    def available(self, results: PaperResults) -> bool:
        return bool(results.mixes)

    def draw(self, canvas: "Canvas", results: PaperResults, paper: Paper) -> None:
        axes = canvas.subplots()
        places = np.arange(1, len(results.mixes) + 1)
        for name in results.mixes[0].satisfaction:
            values = sorted(100 * mix.satisfaction[name] for mix in results.mixes)
            axes.plot(places, values, label=paper.label(name), **style_of(name, paper))
        axes.set(xlim=(1, len(places)), ylim=(-2, 102))
        ranked = results.ranking.mixes if results.ranking is not None else len(places)
        which = "mixes" if len(places) == ranked else f"{len(places)} of the {ranked} mixes"
        axes.set_xlabel(f"{which}, from the worst of each strategy to its best")
        axes.set_ylabel("mean satisfaction (%)")
        _legend_above(canvas, axes, 4)


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
            axes.plot([min(xs), max(xs)], [y, y], color=_GREY, linewidth=1.2, zorder=1)
            axes.plot(100 * base, y, "|", color=_BLACK, markersize=11, zorder=3)
            for factor, end in ends:
                marker, color = _move_style(factor)
                axes.plot(100 * end, y, marker, color=color, markersize=6, zorder=2)
        axes.set_yticks(range(len(rows)), [name for name, _, _ in rows])
        axes.set(xlim=(-2, 102), ylim=(-0.7, len(rows) - 0.3))
        axes.set_xlabel(f"mean satisfaction under {paper.title} (%)")
        for marker, color, label in (
            ("|", _BLACK, "as chosen"),
            (*_move_style(0.5), "halved"),
            (*_move_style(1.5), "raised by half"),
            (*_move_style(1.0), "another word"),
        ):
            axes.plot([], [], marker, color=color, label=label, markersize=7)
        _legend_above(canvas, axes, 4)


def _move_style(factor: float) -> tuple[str, str]:
    if factor < 1:
        return "<", _BLUE
    return (">", _ORANGE) if factor > 1 else ("D", _PURPLE)


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
        others = iter(_POLICY_STYLES[1:])
        for run in results.spark:
            own = run.policy == paper.policy.policy
            style = style_of(paper.policy.name, paper) if own else next(others)
            hours = np.arange(len(run.by_hour)) + 0.5
            axes.plot(hours, 100 * np.array(run.by_hour), label=paper.label(run.policy), **style)
        axes.set(xlim=(0, len(results.spark[0].by_hour)), ylim=(0, 104))
        axes.set_xticks(range(0, len(results.spark[0].by_hour) + 1, 6))
        axes.set_xlabel("hour of the traces")
        axes.set_ylabel("satisfaction (%)")
        _legend_above(canvas, axes, 4)


def paper_value(results: PaperResults, experiment: str, figure: str) -> float:
    """The number that the paper prints for a figure."""
    result = results.experiment(experiment)
    assert result is not None  # noqa: S101 - plots ask for what is available
    return next(one.figure.value for one in result.figures if one.figure.name == figure)


def _series(results: PaperResults, experiment: str, variant: str) -> dict[str, RunSeries]:
    result = results.experiment(experiment)
    return {} if result is None else dict(result.series.get(variant, {}))


def _words(reason: str) -> str:
    """A reason code as words."""
    return reason.lower().replace("_", " ")
