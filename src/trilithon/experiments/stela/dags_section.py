"""Writes the section on random graphs: what `random_dags` measured, and how to read it.

It stands apart from `random_dags`, whose text is part of what stored results are known by.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from trilithon.experiments.markdown import percent
from trilithon.experiments.stela import random_dags
from trilithon.experiments.stela.random_dags import BEST_TENTH, complete

_ETP, _PER_PATH = "ETP alone", "ETP alone, a sink once per path"
_NUMBERS: Final = {1: "the best", 2: "one of the two best", 3: "one of the three best"}


def section(cases: Sequence[Mapping[str, Any]]) -> str:
    if not complete(cases):
        return ""
    return "\n".join([random_dags.section(cases), _best_tenth(cases), _per_path(cases)])


def _best_tenth(cases: Sequence[Mapping[str, Any]]) -> str:
    """What the best tenth of so few groups is: a whole number of them, so it may be more."""
    groups = max(case["in"]["groups"] for case in cases)
    ranks = math.ceil(BEST_TENTH * groups)
    best = sum(case["in"]["better"] == 0 for case in cases) / len(cases)
    alone = sum(case["in"]["better than ETP alone"] == 0 for case in cases) / len(cases)
    which = _NUMBERS.get(ranks, f"one of the {ranks} best")
    return (
        f"The best tenth of {groups} groups is {which} ({percent(ranks / groups)}). Stela's is the "
        f"best in {percent(best)} of the graphs (ETPSum alone in {percent(alone)}).\n"
    )


def _per_path(cases: Sequence[Mapping[str, Any]]) -> str:
    """Whether it matters in any graph how often algorithm 1 counts a sink."""
    differ = sum(case["out"][_ETP] != case["out"][_PER_PATH] for case in cases)
    if differ:
        return f'"{_PER_PATH}" differs from "{_ETP}" in {differ} of {len(cases)} graphs.\n'
    return f"A sink once per path changes nothing in any of the {len(cases)} graphs.\n"
