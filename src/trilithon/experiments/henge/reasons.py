"""Says more about a figure of Henge that is not as in the paper, where the numbers show it.

One sentence each, made of the results; None where they do not show what it would say. Figures that
are not listed here get the sentence that all papers share (`experiments/verdicts.py`).
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

from trilithon.experiments.experiment_result import ComparedFigure, ExperimentResult, RunSummary
from trilithon.experiments.henge.catalogue import SPIKE_S
from trilithon.experiments.henge.measures import HENGE
from trilithon.experiments.markdown import listed, number, percent
from trilithon.experiments.strategies import BEST_STATIC, MANUAL

THRESHOLD: Final = "threshold"
Reason = Callable[[ExperimentResult], str | None]
_COUNTS: Final = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def _compared(result: ExperimentResult, figure: str) -> ComparedFigure:
    return next(one for one in result.figures if one.figure.name == figure)


def _henge(result: ExperimentResult) -> RunSummary:
    """Of the only variant."""
    (by_strategy,) = result.summaries.values()
    return by_strategy[HENGE]


def _listed_steps(steps: Counter[str]) -> str:
    return listed([f"{count} × {why}" for why, count in sorted(steps.items())])


def _sized_for_the_median(result: ExperimentResult, figure: str) -> str | None:
    (by_strategy,) = result.summaries.values()
    manual, best = by_strategy[MANUAL.name], by_strategy.get(BEST_STATIC.name)
    compared = _compared(result, figure)
    # Too small an allocation explains a lower number, not a higher one.
    above = compared.ours is None or compared.ours > compared.figure.value
    if above or best is None or best.average - manual.average < 0.1:
        return None
    return (
        f"The manual allocation has {number(manual.instances, 'instances')}, sized for the median "
        f"load; the best static one has {number(best.instances, 'instances')} and reaches "
        f"{percent(best.average)}."
    )


def _one_after_the_other(result: ExperimentResult) -> str | None:
    """In the plotted run, which is the first: of the others the results have no single steps."""
    compared = _compared(result, "first converged by")
    converged_s = compared.each[0] if compared.each else compared.ours
    until_s = SPIKE_S if converged_s is None else converged_s
    (series,) = (by_strategy[HENGE] for by_strategy in result.series.values())
    steps = Counter(why.lower() for at_s, why in series.actions if at_s <= until_s)
    if steps.total() < 2:
        return None
    return (
        "Henge takes one step at a time and watches each: in the plotted run "
        f"{_listed_steps(steps)} until then."
    )


def _after_the_spike(result: ExperimentResult) -> str | None:
    """The steps in the runs of all seeds together."""
    henge = _henge(result)
    steps = Counter(why.lower() for at_s, why in henge.acted or () if at_s > SPIKE_S)
    if not steps:
        return None
    counted = _COUNTS[henge.runs] if henge.runs < len(_COUNTS) else f"{henge.runs}"
    runs = "run" if henge.runs == 1 else "runs"
    return f"In {counted} {runs}, {_listed_steps(steps)} after the spike."


def _where_it_ends(result: ExperimentResult) -> str | None:
    """Whether anything else ends higher: what is not recovered may be out of reach."""
    (by_strategy,) = result.summaries.values()
    ends = [
        f"{name} at {percent(by_strategy[key].at_end)}"
        for key, name in ((BEST_STATIC.name, "the best static allocation"), (THRESHOLD, THRESHOLD))
        if key in by_strategy
    ]
    steps = _after_the_spike(result)
    if not ends:
        return steps
    end = f"It ends at {percent(_henge(result).at_end)}, {listed(ends)}."
    return end if steps is None else f"{steps} {end}"


def _rounds_with_state(result: ExperimentResult) -> str | None:
    stateful, stateless = (result.ours(f"rounds, {kind}") for kind in ("stateful", "stateless"))
    if stateful is None or stateless is None or stateful == stateless:
        return None
    return (
        f"Jobs with state need {number(stateful, 'rounds')}, those without "
        f"{number(stateless, 'rounds')}."
    )


def _manual_reason(figure: str) -> Reason:
    return lambda result: _sized_for_the_median(result, figure)


REASONS: Final[dict[tuple[str, str], Reason]] = {
    **{
        ("diurnal", figure): _manual_reason(figure)
        for figure in ("average satisfaction, manual", "15th percentile, manual", "median, manual")
    },
    ("cpu-spike", "first converged by"): _one_after_the_other,
    ("cpu-spike", "recovered by"): _where_it_ends,
    ("cpu-spike", "jobs reduced"): _after_the_spike,
    **{
        ("stateful", figure): _rounds_with_state
        for figure in ("convergence, stateful", "convergence, stateless", "longer with state")
    },
}
