"""Defines what the engine knows of a job that it simulates, and of one that was stopped."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trilithon.engines.simulated.job_rows import JobRows
from trilithon.model.allocation import Allocation
from trilithon.model.job import Job


class SourceLoad(Protocol):
    """The records that come to a source: how many from the start up to a moment."""

    def total(self, at_s: float) -> float: ...

    def totals(self, at_s: Sequence[float]) -> list[float]:
        """The same for several moments."""


@dataclass
class SimulatedJob:
    """A job that was accepted: its wanted state, its rows in the tables, and how it fares."""

    job: Job
    allocation: Allocation
    rows: JobRows
    started_s: float
    loads: dict[str, SourceLoad] = field(default_factory=dict)
    # How many records each load had sent by now.
    load_totals: dict[str, float] = field(default_factory=dict)
    # Rises with each restart that resets the counters.
    life: int = 1
    # When the running batch ends, and what had been read of each source when the last one did.
    boundary_s: float = 0.0
    read_by_boundary: dict[str, float] = field(default_factory=dict)
    stall_left_s: float = 0.0
    paused_until_s: float = 0.0
    # Why the job is paused; empty while it runs.
    reason: str = ""
    # Which instance has which key groups now, per operator that gets its records by key.
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    checkpoint: str = ""

    @property
    def sources(self) -> list[int]:
        """The rows of its sources."""
        return [self.rows.nodes[source.name] for source in self.job.sources]


@dataclass(frozen=True)
class StoppedJob:
    """What a stopped job leaves under a checkpoint: records in its logs, and its loads."""

    life: int
    records: dict[str, int]
    loads: dict[str, SourceLoad]
    load_totals: dict[str, float]
