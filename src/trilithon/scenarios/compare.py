"""Owns the comparison of a recorded run with the same run simulated: what came in comes in again,
what was rescaled is rescaled at the same time.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from trilithon.contract.engine import Reallocate
from trilithon.engines.simulated.arrivals import EVEN_CV2
from trilithon.engines.simulated.engine import SimulatedEngine, SimulationMode
from trilithon.engines.simulated.machines import MachineSpec
from trilithon.engines.simulated.operator_cost import Assumed
from trilithon.errors import InvalidRecording
from trilithon.measures import slo
from trilithon.measures.capacity import capacity
from trilithon.model.allocation import Allocation
from trilithon.model.columns import Floats
from trilithon.model.hosts import host_of
from trilithon.model.job import Job
from trilithon.model.series import Series, Window
from trilithon.model.snapshot import Snapshot
from trilithon.scenarios.calibration import Calibration, calibrate, with_profiles
from trilithon.scenarios.rounds import ObservedRounds

# How far the two may be apart, as a share of the real one.
THROUGHPUT, LATENCY, RECOVERY = 0.10, 0.25, 0.25
# A backlog of more than this many seconds of load is one; below it, it is worked off.
BACKLOG_S: Final = 1.0
MEMORY_BYTES: Final = 8e9
# Snapshots by which the load at a moment is told.
RECENT: Final = 5


@dataclass(frozen=True)
class Row:
    """One number of a job, in both runs."""

    job: str
    metric: str
    real: float | str | None
    simulated: float | str | None
    bound: float | None

    @property
    def apart(self) -> float | None:
        """The difference as a share of the real one."""
        if isinstance(self.real, float) and isinstance(self.simulated, float) and self.real:
            return self.simulated / self.real - 1
        return None

    @property
    def holds(self) -> bool | None:
        """None where it cannot be told."""
        if self.real is None or self.simulated is None:
            return None
        if self.bound is None:
            return self.real == self.simulated
        return None if self.apart is None else abs(self.apart) <= self.bound


@dataclass(frozen=True)
class RecordedLoad:
    """What came to a source in a recording, as a load."""

    times_s: Floats
    records: Floats

    def total(self, at_s: float) -> float:
        return float(np.interp(at_s, self.times_s, self.records))

    def totals(self, at_s: Sequence[float]) -> list[float]:
        return list(map(self.total, at_s))


@dataclass(frozen=True)
class RunPhase:
    """A part of a run that is compared by itself, in seconds since its beginning."""

    name: str
    from_s: float
    to_s: float


def compare(
    real: Series,
    assumed: Assumed,
    found: Calibration | None = None,
    *,
    seed: int = 0,
    parts: Sequence[RunPhase] = (),
) -> list[Row]:
    """Both runs side by side, whole and in parts. Without a calibration the
    recording itself is learned from.
    """
    real = _from_all_there(real)
    if len(real) < 3:
        raise InvalidRecording("A run of fewer than three snapshots cannot be compared.", "")
    learned = found or calibrate(real, "the recording itself")
    simulated = resimulate(real, learned, assumed, seed)
    rows: list[Row] = []
    for name in real.last.layout.jobs:
        rows += _rows(name, real, simulated)
        for part in parts:
            rows += _rows_of_part(name, part, real, simulated)
    return rows


def _from_all_there(real: Series) -> Series:
    """From the moment on at which every job was there that is there at the end."""
    jobs = set(real.last.layout.jobs)
    for i, snapshot in enumerate(real.snapshots):
        if jobs <= set(snapshot.layout.jobs) and np.isfinite(snapshot.sources.arrived).all():
            return Series(real.snapshots[i:])
    return Series(())


def resimulate(real: Series, found: Calibration, assumed: Assumed, seed: int = 0) -> Series:
    """The run of a recording, simulated record by record; its snapshots are at the same times."""
    first = real.snapshots[0]
    cores = np.nan_to_num(first.machines.cores, nan=1.0)
    # Executors on one host share its cores.
    beside = Counter(map(host_of, first.layout.machines))
    machines = [
        MachineSpec(name, float(cores[row]) / beside[host_of(name)], MEMORY_BYTES)
        for row, name in enumerate(first.layout.machines)
    ] or [MachineSpec("m0", 1.0, MEMORY_BYTES)]
    # The load generator sends evenly, not by chance.
    engine = SimulatedEngine(
        machines,
        found.character,
        assumed,
        mode=SimulationMode.EVENTS,
        seed=seed,
        arrival_cv2=EVEN_CV2,
    )
    for name in first.layout.jobs:
        job = with_profiles(first.jobs[name], found)
        engine.submit(job, Allocation(job.id, 1, first.job(job.id).parallelism))
        for source in job.sources:
            engine.feed(job.id, source.name, _arrived(real, job, source.name))
    looking = ObservedRounds(engine, 1.0)
    looking.observer.series = Series(())
    looking.round()
    taken = [replace(looking.series.last, time_s=first.time_s)]
    generation = 1
    for before, after in pairwise(real.snapshots):
        engine.advance(after.time_s - before.time_s)
        if not before.layout.same_shape(after.layout):
            # Whoever looks sees another shape as soon as it is wanted, before it has its effect.
            generation += 1
            for name in after.layout.jobs:
                if name in engine.jobs():
                    wanted = Allocation(name, generation, after.job(name).parallelism)
                    engine.apply(Reallocate(wanted))
        looking.round()
        taken.append(replace(looking.series.last, time_s=after.time_s))
    return Series(tuple(taken))


def _arrived(real: Series, job: Job, source: str) -> RecordedLoad:
    start_s = real.snapshots[0].time_s
    times, records = [], []
    for snapshot in real.snapshots:
        row = snapshot.layout.source_row.get((job.id, source))
        if row is not None and np.isfinite(snapshot.sources.arrived[row]):
            times.append(snapshot.time_s - start_s)
            records.append(float(snapshot.sources.arrived[row]))
    if not records:
        raise InvalidRecording(f"Of {source!r} of {job.id} it is not recorded what arrived.", "")
    # The count of a later life begins anew; what comes is never less than before.
    grown = np.concatenate([[0.0], np.cumsum(np.maximum(0.0, np.diff(records)))])
    return RecordedLoad(np.array(times), grown)


def _rows(job: str, real: Series, simulated: Series) -> Iterator[Row]:
    windows = [series.window() for series in (real, simulated)]
    a, b = (_values(window, job) for window in windows)
    yield Row(job, "throughput (records/s)", a[0], b[0], THROUGHPUT)
    yield Row(job, "mean latency (ms)", a[1], b[1], LATENCY)
    yield Row(job, "busiest operator", a[2], b[2], None)
    recoveries = [list(_recoveries(series, job)) for series in (real, simulated)]
    for i, at in enumerate(recoveries[0]):
        other = recoveries[1][i] if i < len(recoveries[1]) else None
        yield Row(job, f"recovery {i + 1} (s)", at, other, RECOVERY)


def _rows_of_part(job: str, part: RunPhase, real: Series, simulated: Series) -> Iterator[Row]:
    a, b = (_values(_between(series, part), job) for series in (real, simulated))
    yield Row(job, f"throughput (records/s), {part.name}", a[0], b[0], THROUGHPUT)
    yield Row(job, f"mean latency (ms), {part.name}", a[1], b[1], LATENCY)


def _between(series: Series, part: RunPhase) -> Window | None:
    start_s = series.snapshots[0].time_s
    within = [s for s in series.snapshots if part.from_s <= s.time_s - start_s <= part.to_s]
    return Series(tuple(within)).window() if len(within) > 1 else None


def _values(window: Window | None, job: str) -> tuple[float | None, float | None, str | None]:
    if window is None or job not in window.layout.jobs:
        return None, None, None
    layout = window.layout
    row = layout.jobs.index(job)
    nodes = layout.job_nodes(job)
    busy = np.nan_to_num(capacity(window)[nodes.start : nodes.stop], nan=-1.0)
    name = layout.node_names[nodes.start + int(np.argmax(busy))] if busy.max() > 0 else None
    return _known(slo.throughput(window)[row]), _known(slo.mean_latency_ms(window)[row]), name


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _recoveries(series: Series, job: str) -> Iterator[float | None]:
    """After each rescale that found a backlog: how long until it was worked off."""
    snapshots = series.snapshots
    for i in range(1, len(snapshots)):
        before, after = snapshots[i - 1], snapshots[i]
        if job not in before.layout.jobs or job not in after.layout.jobs:
            continue
        if before.job(job).parallelism == after.job(job).parallelism:
            continue
        # By what came in just then: the counts of logs and readers are
        # of moments half a second apart.
        limit = BACKLOG_S * _rate(Series(snapshots[max(0, i - RECENT) : i + 1]), job)
        if _lag(before, job) <= limit:
            continue
        ended_s = _falls_below(snapshots[i - 1 :], job, limit)
        yield None if ended_s is None else ended_s - after.time_s


def _falls_below(snapshots: Sequence[Snapshot], job: str, limit: float) -> float | None:
    """When a backlog is below a limit, between the two snapshots that it was above and below in."""
    there = [(s.time_s, _lag(s, job)) for s in snapshots if job in s.layout.jobs]
    for (before_s, more), (after_s, less) in pairwise(there):
        if more > limit >= less:
            return before_s + (after_s - before_s) * (more - limit) / (more - less)
    return None


def _lag(snapshot: Snapshot, job: str) -> float:
    view = snapshot.job(job)
    lags = [view.lag(source.name) for source in snapshot.jobs[job].sources]
    return sum(lag for lag in lags if lag is not None)


def _rate(series: Series, job: str) -> float:
    window = series.window()
    if window is None:
        return 0.0
    rows = [row for (name, _), row in window.layout.source_row.items() if name == job]
    return float(np.nansum(window.sources.arrived[rows])) / window.span_s
