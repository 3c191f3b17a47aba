"""Defines what people ask of a cluster on demand: so many machines more, or fewer."""

from dataclasses import dataclass
from enum import StrEnum


class ScalingKind(StrEnum):
    OUT = "scale_out"
    IN = "scale_in"

    @property
    def words(self) -> str:
        return self.value.replace("_", "-")


@dataclass(frozen=True, slots=True)
class ScalingRequest:
    """A request that a policy carries out in the next rounds. With a job, new machines are used for
    that job alone.
    """

    id: str
    kind: ScalingKind
    machines: int
    job: str | None
    asked_s: float


@dataclass(frozen=True, slots=True)
class ClosedRequest:
    """A request that has ended: carried out whole, or given up with everything as before."""

    id: str
    done: bool
    message: str


@dataclass(frozen=True, slots=True)
class TimedRequest:
    """Machines that people add or take away at a time."""

    at_s: float
    kind: ScalingKind
    machines: int
    job: str | None = None
