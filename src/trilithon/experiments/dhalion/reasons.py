"""Says why the figures of table 2 differ from the paper's (section 6.4)."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from trilithon.experiments.dhalion.catalogue import DIAGNOSIS, SKEW_PERCENT, SLOW_PERCENT

if TYPE_CHECKING:
    from trilithon.experiments.experiment_result import ExperimentResult

_RATES, _BACK_PRESSURE = "rates in B to the rest", "back-pressure"
_FILLING: Final = (
    "The first diagnosis comes after one window of symptoms. For a part of it the queue of the "
    "slow instance was still filling: its peers took more than it did, and no spout was stopped."
)
_NOT_FULL: Final = (
    "After one window of symptoms the queue of the slow instance is not full yet, so it holds "
    "nobody back."
)
_INSTANCES: Final = dict(DIAGNOSIS.variants[0].jobs[0].instances)
_COUNTERS: Final = (
    "With n counters, a word with the share x of all words makes the ratio 1 + n · x / (1 − x). "
    f"Here n is {_INSTANCES['count']}; the paper does not say how many counters it had."
)
_CAPACITY: Final = (
    "Spouts are stopped for the share by which the load of the hot counter exceeds what it can do, "
    "which the paper does not say. No one capacity would give its three shares."
)

Reasons = Mapping[tuple[str, str], "Callable[[ExperimentResult], str | None]"]


def _reasons(percents: Sequence[int], ailment: str, rates: str, back_pressure: str) -> Reasons:
    """The reasons of the scenarios of an ailment: of their ratios and of their back-pressure."""
    return {
        (DIAGNOSIS.name, f"{what}, {ailment}-{percent}"): partial(_always, why)
        for percent in percents
        for what, why in ((_RATES, rates), (_BACK_PRESSURE, back_pressure))
    }


def _always(why: str, _: "ExperimentResult") -> str:
    return why


TABLE_TWO: Final[Reasons] = {
    **_reasons(SLOW_PERCENT, "slow", _FILLING, _FILLING),
    **_reasons(SKEW_PERCENT, "skew", _COUNTERS, _CAPACITY),
}
TABLE_TWO_VOID: Final[Reasons] = _reasons(SLOW_PERCENT, "slow", _NOT_FULL, _NOT_FULL)
