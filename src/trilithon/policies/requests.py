"""Defines what people ask of a cluster on demand: machines more, or fewer, or these ones fewer."""

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
    that job alone. With names, a scale-in removes these machines, and `machines` is their number;
    without, the policy chooses which.
    """

    id: str
    kind: ScalingKind
    machines: int
    job: str | None
    asked_s: float
    machine_names: tuple[str, ...] = ()


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
