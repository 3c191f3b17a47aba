"""Owns what an operator costs: declared by its author or learned from its reports."""

from dataclasses import dataclass
from enum import StrEnum


class Distribution(StrEnum):
    """The shape of the service time."""

    DETERMINISTIC = "deterministic"
    EXPONENTIAL = "exponential"
    GAMMA = "gamma"
    LOGNORMAL = "lognormal"


@dataclass(frozen=True, slots=True)
class Profile:
    """Service time, how much of it is CPU, what comes out, and how evenly keys are spread.

    None is "not known", never a default: who needs a number says which one it assumes.
    """

    service_ms: float | None = None
    service_cv: float | None = None
    distribution: Distribution | None = None
    cpu_share: float | None = None
    selectivity: float | None = None
    zipf: float | None = None
    state_bytes_per_key: float | None = None
    learned: bool = False
