"""Defines how plots look: colours, lines of strategies, labels at the ends of lines.

Colours are Okabe and Ito's, which the colour-blind can tell apart; lines differ in dashes, too.
Strategies without a policy are wide and pale, so that lines of policies on top of them are seen.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trilithon.experiments.paper import Paper
from trilithon.experiments.strategies import StrategyKind

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

WIDTH_IN: Final = 7.2
BLUE, ORANGE, GREEN, RED, PURPLE, SKY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
)
GREY, BLACK, BROWN = "#6E6E6E", "#111111", "#7A5600"
FONT_PT: Final = 9.0
LABEL_PT: Final = 8.5
# What fits into a row of a legend, and what the mark beside a label takes, in characters.
_LEGEND_CHARS: Final = 108
_MARK_CHARS: Final = 6
RC: Final[dict[Any, Any]] = {
    "svg.hashsalt": "trilithon",
    # Text stays text: it can be searched, and a changed number is a changed line.
    "svg.fonttype": "none",
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.size": FONT_PT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
}
_BY_KIND: Final[dict[StrategyKind, dict[str, Any]]] = {
    StrategyKind.BEST_STATIC: {"color": GREEN, "linewidth": 5.0, "alpha": 0.4},
    StrategyKind.MANUAL: {"color": ORANGE, "linewidth": 3.0, "alpha": 0.75},
    StrategyKind.UNCONTROLLED: {"color": GREY, "linewidth": 2.0, "linestyle": (0, (1, 1.2))},
}
# The paper's own policy first, and on top.
POLICY_STYLES: Final[tuple[dict[str, Any], ...]] = (
    {"color": BLUE, "linewidth": 1.9},
    {"color": PURPLE, "linewidth": 1.5, "linestyle": (0, (4, 1.5))},
    {"color": RED, "linewidth": 1.5, "linestyle": (0, (6, 1.5, 1, 1.5))},
    {"color": SKY, "linewidth": 1.5, "linestyle": (0, (2, 1))},
)


@contextmanager
def svg_canvas(path: Path, title: str, height_in: float) -> "Iterator[Canvas]":
    """A canvas that becomes an SVG file with the same bytes each time."""
    from matplotlib import rc_context  # noqa: PLC0415
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with rc_context(RC):
        canvas = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        FigureCanvasSVG(canvas)
        yield canvas
        path.parent.mkdir(parents=True, exist_ok=True)
        canvas.savefig(path, format="svg", metadata={"Date": None, "Title": title})


def style_of(strategy: str, paper: Paper) -> dict[str, Any]:
    """The line of a strategy: the same in all plots. The paper's own policy lies on top."""
    shown = paper.plotted_strategies
    by_name = {candidate.name: candidate for candidate in shown}
    of = by_name.get(strategy)
    if of is not None and of.kind is not StrategyKind.POLICY:
        style = dict(_BY_KIND[of.kind])
        if of.headroom > 1:
            style |= {"color": BROWN, "linewidth": 1.6, "linestyle": (0, (5, 2)), "alpha": 1.0}
        return {**style, "zorder": 2.0 - style["linewidth"] / 10}
    policies = [candidate.name for candidate in shown if candidate.kind is StrategyKind.POLICY]
    place = policies.index(strategy) if strategy in policies else len(policies)
    style = POLICY_STYLES[min(place, len(POLICY_STYLES) - 1)]
    return {**style, "zorder": 3.0 - place / 10}


def floats(values: Sequence[float | None]) -> np.ndarray[Any, Any]:
    return np.array([np.nan if value is None else value for value in values])


def label_ends(
    canvas: "Canvas", axes: "Axes", ends: Sequence[tuple[str, str, float]], rows: int = 1
) -> None:
    """Writes the name of each line (label, colour, height) to the right of its end.

    Labels that would cover each other are moved apart, with a thin line to where they belong.
    `rows` is how many axes stand above each other.
    """
    low, high = axes.get_ylim()
    # The axes are some three quarters of the picture.
    points = canvas.get_figheight() * 72 * 0.75 / rows
    gap = (high - low) * LABEL_PT * 1.2 / points
    # Of lines that end together, the first is on top.
    ordered = sorted(ends, key=lambda end: -end[2])[::-1]
    places = _spread([height for _, _, height in ordered], gap, low, high)
    side = axes.get_yaxis_transform()
    for (label, color, height), place in zip(ordered, places, strict=True):
        axes.plot(
            [1.0, 1.025],
            [height, place],
            color=color,
            linewidth=0.8,
            transform=side,
            clip_on=False,
            label="_to the label",
        )
        axes.text(1.03, place, label, color=color, fontsize=LABEL_PT, va="center", transform=side)


def _spread(heights: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places for labels, in order and at least a gap apart, as near to their heights as can be."""
    places: list[float] = []
    for height in heights:
        places.append(max(height, places[-1] + gap) if places else max(height, low))
    # What was pushed too far comes down again, and pushes those below it.
    top = high
    for i in range(len(places) - 1, -1, -1):
        places[i] = min(places[i], top)
        top = places[i] - gap
    return places


def _row_chars(labels: Sequence[str], columns: int) -> int:
    """The characters of the longest labels of all columns, with the space for their marks."""
    return sum(
        _MARK_CHARS + max(map(len, labels[column::columns]), default=0) for column in range(columns)
    )


def legend_above(canvas: "Canvas", axes: "Axes", columns: int) -> None:
    """A legend above the axes, in rows from left to right, of at most so many columns: of fewer
    where labels are long, since what goes beyond the canvas is cut off.
    """
    handles, labels = axes.get_legend_handles_labels()
    while columns > 1 and _row_chars(labels, columns) > _LEGEND_CHARS:
        columns -= 1
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
