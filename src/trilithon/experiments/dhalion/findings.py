"""Says what the runs of Dhalion's experiments show, and why figures differ from the paper's."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from trilithon.experiments.dhalion.measures import AS_PRINTED, DHALION, right_diagnoses
from trilithon.experiments.paper import Facts, Finding, Runs

if TYPE_CHECKING:
    from trilithon.experiments.experiment_result import ExperimentResult


def _diagnoses(runs: Runs) -> Facts:
    return {name: right_diagnoses(runs, name) for name in (DHALION, AS_PRINTED)}


def _actions(variant: str) -> Callable[[Runs], Facts]:
    def measure(runs: Runs) -> Facts:
        run = runs[variant][DHALION]
        return {
            "actions": len(run.changes()),
            "printed": len(runs[variant][AS_PRINTED].changes()),
        }

    return measure


FINDINGS: Final[Mapping[str, Finding]] = {
    "diagnosis": Finding(
        _diagnoses,
        lambda facts: (
            f"{facts[DHALION]:.0f} of 6 first diagnoses are right, as printed "
            f"{facts[AS_PRINTED]:.0f}. Ratios and back-pressure are those of the runs as printed."
        ),
    ),
    "load-change": Finding(
        _actions("spouts"),
        lambda facts: f"{facts['actions']:.0f} actions; as printed {facts['printed']:.0f}.",
    ),
    "slo": Finding(
        _actions("from-one"),
        lambda facts: f"{facts['actions']:.0f} actions; as printed {facts['printed']:.0f}.",
    ),
}

_CAREFUL: Final = (
    "By default an operator keeps instances until one fewer would be at work for less than 70 % of "
    "the time; the paper's rule removes some from any job with empty queues."
)
_TOLERATED: Final = (
    "Eleven instances lack 2 % for the load of 45 spouts. That holds sources back for less than "
    "5 % of the time, below which it is no symptom."
)
_SPEED: Final = (
    "Section 6.5 reads 75 % slower as 75 % of the speed; here the instance has a quarter of it."
)
REASONS: "Final[Mapping[tuple[str, str], Callable[[ExperimentResult], str | None]]]" = {
    ("load-change", "splitters and counters after the load fell"): lambda _: _CAREFUL,
    ("load-change", "actions after the load fell"): lambda _: _CAREFUL,
    ("load-change", "actions after the load rose"): lambda _: _TOLERATED,
    ("load-change", "the last action after"): lambda _: _TOLERATED,
    ("mixed", "the last action after, 75 % slower"): lambda _: _SPEED,
}
