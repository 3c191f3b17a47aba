"""Says more about a figure of Stela that is not as in the paper, from the facts of its runs."""

import math
from collections.abc import Callable
from typing import Final

from trilithon.experiments.definition import PaperFigure
from trilithon.experiments.experiment_result import ExperimentResult
from trilithon.experiments.markdown import listed, number, percent, stated
from trilithon.experiments.scenario_builder import ROUND_S
from trilithon.experiments.stela.catalogue import (
    AGAINST_DEFAULT,
    CONVERGENCE,
    DEFAULT,
    DEFAULT_GAIN,
    DOWN_GROUP_1,
    DOWN_GROUP_2,
    EXPERIMENTS,
    FAIR,
    GAIN,
    GROUP_1,
    GROUP_2,
    LEAST_LINK,
    LINK_GAIN,
    PRINTED,
    SCALE_IN,
    STELA,
)

Reason = Callable[[ExperimentResult], str | None]
EVERY_CHOICE: Final = "[every choice](stela.md#every-choice)"


def _fact(result: ExperimentResult, strategy: str, what: str) -> float | None:
    value = result.facts.get(f"{strategy}, {what}")
    return float(value) if isinstance(value, float | int) else None


def _throughputs(result: ExperimentResult, *strategies: str) -> str | None:
    first = _fact(result, STELA, "before")
    ends = [(name, _fact(result, name, "after")) for name in strategies]
    if first is None or any(value is None for _, value in ends):
        return None
    told = listed([f"{name} {number(value, '')}" for name, value in ends])
    return f"Records per second at the sinks: {number(first, '')} before; in the end {told}."


def _ceiling(result: ExperimentResult) -> str:
    """What the instances of the new machine can do at most for one operator."""
    (variant,) = result.experiment.variants
    (jobs,) = variant.jobs
    counts = [count for _, count in jobs.instances]
    give, has = math.ceil(sum(counts) / variant.machines), counts[0]
    more = min(give, (jobs.tasks or 0) // len(counts) - has)
    return (
        f"The machine brings {give} instances (⌈{sum(counts)} / {variant.machines}⌉), so an "
        f"operator that has {has} gets at most {more} more, about {percent(more / has)} of its "
        "rate. "
        f"Where Stela's division ranks is under {EVERY_CHOICE}."
    )


def _printed(result: ExperimentResult, name: str) -> PaperFigure | None:
    return next((f for f in result.experiment.figures if f.name == name), None)


def _gain(result: ExperimentResult) -> str | None:
    told = _throughputs(result, STELA, FAIR, DEFAULT)
    return None if told is None else f"{told} {_ceiling(result)}"


def _against_default(result: ExperimentResult) -> str | None:
    """The paper's default does worse than ours, or Stela gains less here."""
    first, end = _fact(result, DEFAULT, "before"), _fact(result, DEFAULT, "after")
    told, theirs = _gain(result), _printed(result, DEFAULT_GAIN)
    if told is None or first is None or end is None or not first or theirs is None:
        return told
    return (
        f"The default gains {percent(round(end / first - 1, 5) + 0.0)} here and {stated(theirs)} "
        f"in the paper. {told}"
    )


def _default_gain(result: ExperimentResult) -> str | None:
    told = _throughputs(result, STELA, FAIR, DEFAULT)
    if told is None:
        return None
    return (
        f"{told} The default places the same instances on one machine more, so fewer of them share "
        f"a core; what that gains depends on the share of CPU in the work ({EVERY_CHOICE}). The "
        "placement before it is as even as its own, so nothing is overloaded by it."
    )


def _link_gain(result: ExperimentResult) -> str | None:
    told = _throughputs(result, LEAST_LINK, DEFAULT)
    if told is None:
        return None
    return (
        f"{told} Simulated records cost the same between machines as within one, so instances "
        "beside their neighbours gain nothing by it."
    )


def _times(what: str, paper: str, *strategies: str) -> Reason:
    """`paper` is why it differs in the paper."""

    def reason(result: ExperimentResult) -> str | None:
        known = [(name, _fact(result, name, what)) for name in strategies]
        told = [f"{name} {'never' if s is None else number(s, 's')}" for name, s in known]
        times = [s for _, s in known if s is not None]
        apart = (
            f" Both are measured in windows of {ROUND_S:.0f} s, and are one apart."
            if len(times) == 2 and abs(times[0] - times[1]) == ROUND_S
            else ""
        )
        return (
            f"{listed(told)}.{apart} The simulated engine stops the whole job for the same time at "
            f"every change, whatever it touches. {paper}"
        )

    return reason


def _left(result: ExperimentResult) -> str | None:
    told = _throughputs(result, STELA, PRINTED, GROUP_1, GROUP_2)
    return (
        None
        if told is None
        else f"{told} How much any group of machines keeps is under {EVERY_CHOICE}."
    )


_LOW_ETP: Final = "In the paper operators behind those that move go on with what they have queued."
_OUT: Final[dict[str, Reason]] = {
    GAIN: _gain,
    AGAINST_DEFAULT: _against_default,
    DEFAULT_GAIN: _default_gain,
    LINK_GAIN: _link_gain,
    CONVERGENCE: _times(
        "convergence", "In the paper Stela leaves existing machines alone.", STELA, DEFAULT
    ),
}
_IN: Final[dict[str, Reason]] = {
    DOWN_GROUP_1: _times("down", _LOW_ETP, STELA, GROUP_1),
    DOWN_GROUP_2: _times("down", _LOW_ETP, STELA, GROUP_2),
}
REASONS: Final[dict[tuple[str, str], Reason]] = {
    (experiment.name, figure.name): _IN.get(figure.name, _left)
    if experiment is SCALE_IN
    else _OUT[figure.name]
    for experiment in EXPERIMENTS
    for figure in experiment.figures
}
