"""Says more about a figure of Henge that is not as in the paper, where the numbers show it.

One sentence each, made of the results; None where they do not show what it would say. Figures that
are not listed here get the sentence that all papers share (`experiments/verdicts.py`).
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

from trilithon.experiments.experiment_result import ExperimentResult
from trilithon.experiments.henge.catalogue import SPIKE_S
from trilithon.experiments.henge.measures import HENGE
from trilithon.experiments.markdown import listed, number, percent
from trilithon.experiments.strategies import BEST_STATIC, MANUAL

Reason = Callable[[ExperimentResult], str | None]


def _steps(result: ExperimentResult, start_s: float, end_s: float) -> Counter[str]:
    """How often Henge took each kind of step in a time, in the plotted run."""
    (series,) = (by_strategy[HENGE] for by_strategy in result.series.values())
    return Counter(why.lower() for at_s, why in series.actions if start_s < at_s <= end_s)


def _listed_steps(steps: Counter[str]) -> str:
    return listed([f"{count} × {why}" for why, count in sorted(steps.items())])


def _sized_for_the_median(result: ExperimentResult) -> str | None:
    (by_strategy,) = result.summaries.values()
    manual, best = by_strategy[MANUAL.name], by_strategy.get(BEST_STATIC.name)
    if best is None or best.average - manual.average < 0.1:
        return None
    return (
        f"The manual allocation has {number(manual.instances, 'instances')}, enough at median load "
        f"alone; the best static one has {number(best.instances, 'instances')} and reaches "
        f"{percent(best.average)}."
    )


def _one_after_the_other(result: ExperimentResult) -> str | None:
    converged_s = result.ours("first converged by")
    steps = _steps(result, 0.0, SPIKE_S if converged_s is None else converged_s)
    if steps.total() < 2:
        return None
    return f"Henge takes one step at a time and watches each: until then {_listed_steps(steps)}."


def _after_the_spike(result: ExperimentResult) -> str | None:
    steps = _steps(result, SPIKE_S, result.experiment.duration_s)
    return f"Henge's steps after the spike are {_listed_steps(steps)}." if steps else None


def _rounds_with_state(result: ExperimentResult) -> str | None:
    stateful, stateless = (result.ours(f"rounds, {kind}") for kind in ("stateful", "stateless"))
    if stateful is None or stateless is None:
        return None
    return (
        f"Jobs with state need {number(stateful, 'rounds')}, those without "
        f"{number(stateless, 'rounds')}."
    )


REASONS: Final[dict[tuple[str, str], Reason]] = {
    **{
        ("diurnal", f"{figure}, manual"): _sized_for_the_median
        for figure in ("average satisfaction", "15th percentile", "median")
    },
    ("cpu-spike", "first converged by"): _one_after_the_other,
    ("cpu-spike", "recovered by"): _after_the_spike,
    ("cpu-spike", "jobs reduced"): _after_the_spike,
    **{
        ("stateful", figure): _rounds_with_state
        for figure in ("convergence, stateful", "convergence, stateless", "longer with state")
    },
}
