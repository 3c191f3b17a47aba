"""Defines the profile of an operator: its costs, declared by its author or learned from reports."""

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
    """Service time, its CPU share, selectivity (records out per record in), and key skew.

    None means unknown, never a default: code that needs a number states which one it assumes.
    """

    service_ms: float | None = None
    service_cv: float | None = None
    distribution: Distribution | None = None
    cpu_share: float | None = None
    selectivity: float | None = None
    zipf: float | None = None
    # The part of the records that one key has beside its part by `zipf`, 0…1.
    hot_key: float | None = None
    state_bytes_per_key: float | None = None
    learned: bool = False
