"""Lays out confusion matrices: how often each diagnosis was the first one of a run."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from trilithon.policies.dhalion.diagnosers import OVER, SKEW, SLOW, UNDER

NONE: Final = "none"
# The diagnoses with a column of their own. The rest shares one, so that each row adds up.
_COLUMNS: Final = (NONE, UNDER, SLOW, SKEW, OVER)
_OTHER: Final = "other"
_REASON: Final = "DIAGNOSIS_"
HEADS: Final = (*(name.replace("_", " ") for name in _COLUMNS), _OTHER)


def first_diagnosis(reasons: Iterable[str]) -> str:
    """The first diagnosis among the reasons of decisions, the oldest first; else `none`."""
    kinds = (reason for reason in reasons if reason.startswith(_REASON))
    return next((kind.removeprefix(_REASON).lower() for kind in kinds), NONE)


def cells(diagnoses: Iterable[str]) -> tuple[str, ...]:
    """How many runs each column has; nothing for none."""
    counted = Counter(name if name in _COLUMNS else _OTHER for name in diagnoses)
    return tuple(str(counted[name] or "") for name in (*_COLUMNS, _OTHER))
