"""Tells what Henge's experiments show, from the facts that `findings.py` measures.

These sentences stand in the place of those beside the measures: results that are kept are made by
that file, so its text stays as it is until they are run again.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from trilithon.experiments.henge.findings import EARLY_S
from trilithon.experiments.henge.findings import FINDINGS as MEASURED
from trilithon.experiments.henge.measures import MET
from trilithon.experiments.markdown import percent
from trilithon.experiments.paper import Facts, Finding


def _number(facts: Facts, name: str) -> float | None:
    """A fact, None where it is not a number."""
    value = facts[name]
    known = isinstance(value, float | int) and not math.isnan(value)
    return float(value) if known and value is not None else None


def juice_and_queue(facts: Facts) -> str:
    correlation = _number(facts, "rank correlation")
    both = f"Up to {EARLY_S:,.0f} s, juice and queue length of {facts['job']} have"
    if correlation is None:
        return f"{both} no rank correlation: one of them stays the same."
    moves = (
        "juice falls as the queue grows, as"
        if correlation < 0
        else "the two do not move against each other, unlike"
    )
    return f"{both} a rank correlation of {correlation:.2f}: {moves} in the report's figure 9."


def blacklisted(facts: Facts) -> str:
    strict, lax = (_number(facts, f"{ms} ms blacklisted at") for ms in (40, 50))
    if strict is None and lax is None:
        what = "neither a promise of 40 ms nor one of 50 ms is ever blacklisted"
    elif strict is None or lax is None:
        what = f"only the promise of {50 if strict is None else 40} ms is blacklisted"
    else:
        when = "earlier than" if strict < lax else "as early as" if strict == lax else "later than"
        what = f"the promise of 40 ms is blacklisted {when} that of 50 ms"
    return (
        f"Henge changes nothing in {facts['runs without a change']} of {facts['runs']} runs. With "
        f"twice the load {what}; in five runs each, 40 ms takes "
        f"{facts['40 ms Reconfigurations']} Reconfigurations and 50 ms "
        f"{facts['50 ms Reconfigurations']} (in the report, 40 ms is blacklisted earlier and takes "
        "fewer)."
    )


def alone(facts: Facts) -> str:
    on_one, on_two = (_number(facts, f"alone on {cores} cores, at the end") for cores in (1, 2))
    assert on_one is not None  # noqa: S101 - measured with the runs
    assert on_two is not None  # noqa: S101 - measured with the runs
    chosen = ": `own_cores` was chosen by that" if on_one < MET <= on_two else ""
    return (
        f"In a cluster of its own a job reaches {percent(on_one)} of its utility on one core, and "
        f"{percent(on_two)} on two{chosen}."
    )


FINDINGS: Final[Mapping[str, Finding]] = {
    **MEASURED,
    "juice": replace(MEASURED["juice"], sentence=juice_and_queue),
    "initial-configuration": replace(MEASURED["initial-configuration"], sentence=blacklisted),
    "cost": replace(MEASURED["cost"], sentence=alone),
}
