"""Draws the runs of a promise on Spark: the mean latency of each interval, and the instances."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from trilithon.experiments.latency.spark_primetester import (
    LATENCY,
    MEAN,
    PEAK,
    PLOT,
    PLOT_CAPTION,
    PROMISE_MS,
    WAITING,
    Interval,
    PromisedRun,
)
from trilithon.experiments.plot_style import BLUE, GREEN, GREY, RED, svg_canvas

_STYLES: Final[Mapping[str, dict[str, Any]]] = {
    PEAK: {"color": GREEN, "linewidth": 4.0, "alpha": 0.5},
    MEAN: {"color": GREY, "linewidth": 2.0, "linestyle": (0, (1, 1.2))},
    LATENCY: {"color": BLUE, "linewidth": 1.9},
}


def draw_promises(data: Mapping[str, Any], folder: Path) -> None:
    """Draws the first run of each strategy with waiting testers, if all were run."""
    from matplotlib.ticker import LogLocator  # noqa: PLC0415

    first: dict[str, PromisedRun] = {}
    for run in map(PromisedRun.of, data["runs"]):
        if run.work == WAITING:
            first.setdefault(run.strategy, run)
    if not first.keys() >= _STYLES.keys():
        return
    with svg_canvas(folder / PLOT, PLOT_CAPTION, 4.2) as canvas:
        latency, instances = canvas.subplots(2, sharex=True, height_ratios=(3, 2))
        for strategy, style in _STYLES.items():
            intervals = first[strategy].intervals
            at_s = [each.at_s for each in intervals]
            latency.plot(at_s, _means(intervals), label=strategy, **style)
            instances.step(at_s, [each.instances for each in intervals], where="pre", **style)
        latency.axhline(PROMISE_MS, color=RED, linewidth=1.0)
        latency.annotate(
            f"promise: {PROMISE_MS} ms",
            (0, PROMISE_MS),
            xytext=(2, 3),
            textcoords="offset points",
            color=RED,
        )
        latency.set_yscale("log")
        latency.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        latency.yaxis.set_major_formatter("{x:g}")
        latency.minorticks_off()
        latency.set_ylabel("mean latency, ms")
        latency.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
        instances.set_ylabel("instances")
        instances.set_ylim(bottom=0)
        instances.set_xlabel("time, s")


def _means(intervals: Sequence[Interval]) -> list[float]:
    return [float("nan") if each.mean_ms is None else each.mean_ms for each in intervals]
