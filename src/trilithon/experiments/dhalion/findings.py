"""Says what the runs of Dhalion's experiments show, and why figures differ from the paper's."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from trilithon.experiments.dhalion.catalogue import EXPERIMENTS
from trilithon.experiments.dhalion.measures import (
    AS_PRINTED,
    DHALION,
    MEASURES,
    RIGHT,
    first_diagnosis,
    healthy_after_minutes,
    wrong_cures,
)
from trilithon.experiments.markdown import number, table
from trilithon.experiments.paper import Facts, Finding, Runs

if TYPE_CHECKING:
    from trilithon.experiments.experiment_result import ExperimentResult

BOTH: Final = (DHALION, AS_PRINTED)
# The names of facts: what, of which variant or figure, and under which strategy.
_SEPARATOR: Final = " | "
_DIAGNOSED, _CURES, _WRONG, _HEALTHY = "diagnosed", "cures", "wrong cures", "healthy after"
_FIGURE: Final = "figure"
_LABELS: Final = {DHALION: "Dhalion", AS_PRINTED: "as printed"}


def _fact(what: str, of: str, strategy: str) -> str:
    return _SEPARATOR.join((what, of, strategy))


def _measured(experiment: str) -> Callable[[Runs], Facts]:
    """What each run shows under both settings, and the paper's figures under both."""

    def measure(runs: Runs) -> Facts:
        facts: dict[str, float | str | None] = {}
        for strategy in BOTH:
            for variant, by_name in runs.items():
                run = by_name[strategy]
                first = first_diagnosis(run)
                facts |= {
                    _fact(_DIAGNOSED, variant, strategy): None if first is None else first.reason,
                    _fact(_CURES, variant, strategy): len(run.changes()),
                    _fact(_WRONG, variant, strategy): wrong_cures(experiment, variant, run),
                    _fact(_HEALTHY, variant, strategy): healthy_after_minutes(run),
                }
            if experiment != "diagnosis":
                under = {name: {DHALION: by_name[strategy]} for name, by_name in runs.items()}
                for name, value in MEASURES[experiment](under).items():
                    known = value if isinstance(value, int | float) else None
                    facts[_fact(_FIGURE, name, strategy)] = known
        return facts

    return measure


def _told(experiment: str) -> Callable[[Facts], str]:
    """The tables of an experiment. Results of an earlier version do not have their facts."""

    def tell(facts: Facts) -> str:
        parts = [
            *_figures(experiment, facts),
            *(_diagnoses(facts) if experiment == "diagnosis" else ()),
            *_cures(experiment, facts),
        ]
        return "\n".join(parts).rstrip("\n")

    return tell


def _figures(experiment: str, facts: Facts) -> Iterator[str]:
    """The paper's figures, ours, and ours with the settings as printed."""
    rows = [
        (
            figure.name,
            number(figure.value, figure.unit),
            *(number(_number(facts, _FIGURE, figure.name, by), figure.unit) for by in BOTH),
        )
        for of in EXPERIMENTS
        if of.name == experiment
        for figure in of.figures
        if _fact(_FIGURE, figure.name, DHALION) in facts
    ]
    if rows:
        yield table(("", "paper", *_LABELS.values()), rows)


def _diagnoses(facts: Facts) -> Iterator[str]:
    """The first diagnosis of each scenario of table 2."""
    if not any(key.startswith(_DIAGNOSED + _SEPARATOR) for key in facts):
        return
    rows = [
        (variant, _words(right), *(_judged(facts, variant, right, by) for by in BOTH))
        for variant, right in RIGHT.items()
    ]
    counts = {
        by: sum(_kind(facts, variant, by) == right for variant, right in RIGHT.items())
        for by in BOTH
    }
    yield (
        f"{counts[DHALION]} of {len(RIGHT)} first diagnoses are right, as printed "
        f"{counts[AS_PRINTED]}. Ratios and back-pressure are those of the runs as printed.\n"
    )
    yield table(("first diagnosis (bold: wrong)", "right", *_LABELS.values()), rows)


def _kind(facts: Facts, variant: str, strategy: str) -> str | None:
    value = facts.get(_fact(_DIAGNOSED, variant, strategy))
    return value.removeprefix("DIAGNOSIS_") if isinstance(value, str) else None


def _judged(facts: Facts, variant: str, right: str, strategy: str) -> str:
    kind = _kind(facts, variant, strategy)
    diagnosis = "none" if kind is None else _words(kind)
    return diagnosis if kind == right else f"**{diagnosis}**"


def _words(kind: str) -> str:
    return kind.lower().replace("_", " ")


def _cures(experiment: str, facts: Facts) -> Iterator[str]:
    (of,) = (each for each in EXPERIMENTS if each.name == experiment)
    variants = [variant.name for variant in of.variants]
    rows = [
        (
            variant,
            _LABELS[strategy],
            number(_number(facts, _CURES, variant, strategy), ""),
            number(_number(facts, _WRONG, variant, strategy), ""),
            number(_number(facts, _HEALTHY, variant, strategy), "minutes"),
        )
        for variant in variants
        for strategy in BOTH
        if _fact(_WRONG, variant, strategy) in facts
    ]
    if rows:
        yield table(("run", "", "actions", "wrong cures", "healthy after"), rows)


def _number(facts: Facts, what: str, of: str, strategy: str) -> float | None:
    value = facts.get(_fact(what, of, strategy))
    return float(value) if isinstance(value, int | float) else None


FINDINGS: Final[Mapping[str, Finding]] = {
    experiment.name: Finding(_measured(experiment.name), _told(experiment.name), first_page=True)
    for experiment in EXPERIMENTS
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
    ("mixed", "the last action after, 75 % slower"): lambda _: _SPEED,
}
VOID_REASONS: "Final[Mapping[tuple[str, str], Callable[[ExperimentResult], str | None]]]" = {
    ("load-change", "splitters and counters after the load fell"): lambda _: _CAREFUL,
    ("load-change", "actions after the load fell"): lambda _: _CAREFUL,
    ("load-change", "splitters at the end"): lambda _: _TOLERATED,
    ("load-change", "counters at the end"): lambda _: _TOLERATED,
    ("load-change", "actions after the load rose"): lambda _: _TOLERATED,
    ("load-change", "the last action after"): lambda _: _TOLERATED,
}
