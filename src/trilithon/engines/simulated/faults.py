"""Defines the faults that a simulated cluster can have, and when they begin and end."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TimedFault:
    """From `at_s` on, for so long; None is to the end."""

    at_s: float
    for_s: float | None = None


@dataclass(frozen=True, slots=True)
class MachineCrash(TimedFault):
    """A machine is down, and what ran on it is lost; it comes back empty."""

    machine: str = ""


@dataclass(frozen=True, slots=True)
class MetricsStop(TimedFault):
    """Some machines stop reporting (none named: all); what runs there runs on."""

    machines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SlowMachine(TimedFault):
    """Everything that computes on a machine does so at a part of its speed."""

    machine: str = ""
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class ForeignLoad(TimedFault):
    """Threads of other processes compute on a machine."""

    machine: str = ""
    threads: float = 0.0


@dataclass(frozen=True, slots=True)
class SlowInstance(TimedFault):
    """One instance takes longer than its peers for each record."""

    job: str = ""
    operator: str = ""
    index: int = 0
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class OtherSelectivity(TimedFault):
    """So many times as many records come out of an operator: the data are others for a while. Only
    of single records.
    """

    job: str = ""
    operator: str = ""
    factor: float = 1.0


AnyFault = MachineCrash | MetricsStop | SlowMachine | ForeignLoad | SlowInstance | OtherSelectivity
