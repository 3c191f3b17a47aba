"""Says more about a figure of Stela that is not as in the paper, from the facts of its runs."""

from collections.abc import Callable
from typing import Final

from trilithon.experiments.experiment_result import ExperimentResult
from trilithon.experiments.markdown import listed, number
from trilithon.experiments.stela.catalogue import (
    CONVERGENCE,
    DEFAULT,
    EXPERIMENTS,
    FAIR,
    GROUP_1,
    GROUP_2,
    PRINTED,
    SCALE_IN,
    STELA,
)

Reason = Callable[[ExperimentResult], str | None]


def _fact(result: ExperimentResult, strategy: str, what: str) -> float | None:
    value = result.facts.get(f"{strategy}, {what}")
    return float(value) if isinstance(value, float | int) else None


def _throughputs(*strategies: str) -> Reason:
    def reason(result: ExperimentResult) -> str | None:
        first = _fact(result, STELA, "before")
        ends = [(name, _fact(result, name, "after")) for name in strategies]
        if first is None or any(value is None for _, value in ends):
            return None
        told = listed([f"{name} {number(value, '')}" for name, value in ends])
        return f"Records per second at the sinks: {number(first, '')} before; in the end {told}."

    return reason


def _times(what: str, *strategies: str) -> Reason:
    def reason(result: ExperimentResult) -> str | None:
        told = [
            f"{name} {'never' if (s := _fact(result, name, what)) is None else number(s, 's')}"
            for name in strategies
        ]
        return (
            f"{listed(told)}. The simulated engine stops the whole job for the same time at every "
            "change, whatever it touches."
        )

    return reason


_OUT: Final = _throughputs(STELA, FAIR, DEFAULT)
_IN: Final = _throughputs(STELA, PRINTED, GROUP_1, GROUP_2)
REASONS: Final[dict[tuple[str, str], Reason]] = {
    **{
        (experiment.name, figure.name): _times("convergence", STELA, DEFAULT)
        if figure.name == CONVERGENCE
        else _OUT
        for experiment in EXPERIMENTS
        if experiment is not SCALE_IN
        for figure in experiment.figures
    },
    **{
        (SCALE_IN.name, figure.name): _times("down", STELA, GROUP_1, GROUP_2)
        if figure.name.startswith("down time")
        else _IN
        for figure in SCALE_IN.figures
    },
}
