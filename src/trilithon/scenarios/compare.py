"""Compares a recorded run with a simulation of it: the same input, rescaled at the same times."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from trilithon.contract.engine import Reallocate
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

# Bounds on the relative error of the simulation.
THROUGHPUT, LATENCY, RECOVERY = 0.10, 0.25, 0.25
# A job has a backlog if its lag is more than this many seconds of input.
BACKLOG_S: Final = 1.0
MEMORY_BYTES: Final = 8e9
# Number of snapshots over which the current input rate is measured.
RECENT: Final = 5


@dataclass(frozen=True)
class ComparisonRow:
    """One figure of a job in both runs."""

    job: str
    metric: str
    real: float | str | None
    simulated: float | str | None
    bound: float | None

    @property
    def relative_error(self) -> float | None:
        """The difference between the runs, relative to the real one."""
        if isinstance(self.real, float) and isinstance(self.simulated, float) and self.real:
            return self.simulated / self.real - 1
        return None

    @property
    def within_bound(self) -> bool | None:
        """Whether the runs agree; None if that is unknown."""
        if self.real is None or self.simulated is None:
            return None
        if self.bound is None:
            return self.real == self.simulated
        error = self.relative_error
        return None if error is None else abs(error) <= self.bound


@dataclass(frozen=True)
class RecordedLoad:
    """The input of a source in a recording, as a load for the simulation."""

    times_s: Floats
    records: Floats

    def total(self, at_s: float) -> float:
        return float(np.interp(at_s, self.times_s, self.records))


@dataclass(frozen=True)
class RunPhase:
    """A part of a run that is compared separately, in seconds since the start of the run."""

    name: str
    from_s: float
    to_s: float


def compare(
    real: Series,
    assumed: Assumed,
    calibration: Calibration | None = None,
    *,
    seed: int = 0,
    phases: Sequence[RunPhase] = (),
) -> list[ComparisonRow]:
    """Compare a recorded run with its simulation, as a whole and by phases.

    Without a calibration, the simulation is calibrated from the recording itself.
    """
    real = _with_all_jobs(real)
    if len(real) < 3:
        raise InvalidRecording(
            f"The recording has {len(real)} snapshots of all its jobs, a comparison needs 3.",
            "Record a longer run.",
        )
    calibration = calibration or calibrate(real, "the recording itself")
    simulated = resimulate(real, calibration, assumed, seed)
    rows: list[ComparisonRow] = []
    for name in real.last.layout.jobs:
        rows += _rows(name, real, simulated)
        for phase in phases:
            rows += _phase_rows(name, phase, real, simulated)
    return rows


def _with_all_jobs(real: Series) -> Series:
    """The snapshots from the time on when all jobs that are there at the end had started."""
    jobs = set(real.last.layout.jobs)
    for i, snapshot in enumerate(real.snapshots):
        if jobs <= set(snapshot.layout.jobs) and np.isfinite(snapshot.sources.arrived).all():
            return Series(real.snapshots[i:])
    return Series(())


def resimulate(real: Series, calibration: Calibration, assumed: Assumed, seed: int = 0) -> Series:
    """Simulate the run of a recording record by record, with snapshots at the same times."""
    first = real.snapshots[0]
    cores = np.nan_to_num(first.machines.cores, nan=1.0)
    # Executors on one host share its cores.
    executors = Counter(map(host_of, first.layout.machines))
    machines = [
        MachineSpec(name, float(cores[row]) / executors[host_of(name)], MEMORY_BYTES)
        for row, name in enumerate(first.layout.machines)
    ] or [MachineSpec("m0", 1.0, MEMORY_BYTES)]
    # The load generator sends at even intervals, not at random ones.
    engine = SimulatedEngine(
        machines, calibration.character, assumed, mode=SimulationMode.EVENTS, seed=seed, even=True
    )
    for name in first.layout.jobs:
        job = with_profiles(first.jobs[name], calibration)
        engine.submit(job, Allocation(job.id, 1, first.job(job.id).parallelism))
        for source in job.sources:
            engine.feed(job.id, source.name, _recorded_load(real, job, source.name))
    rounds = ObservedRounds(engine, 1.0)
    rounds.observer.series = Series(())
    rounds.round()
    snapshots = [replace(rounds.series.last, time_s=first.time_s)]
    generation = 1
    for before, after in pairwise(real.snapshots):
        engine.advance(after.time_s - before.time_s)
        if not before.layout.same_shape(after.layout):
            # A recorded layout changes when a rescale is requested, before it takes effect.
            generation += 1
            for name in after.layout.jobs:
                if name in engine.jobs():
                    wanted = Allocation(name, generation, after.job(name).parallelism)
                    engine.apply(Reallocate(wanted))
        rounds.round()
        snapshots.append(replace(rounds.series.last, time_s=after.time_s))
    return Series(tuple(snapshots))


def _recorded_load(real: Series, job: Job, source: str) -> RecordedLoad:
    start_s = real.snapshots[0].time_s
    times, records = [], []
    for snapshot in real.snapshots:
        row = snapshot.layout.source_row.get((job.id, source))
        if row is not None and np.isfinite(snapshot.sources.arrived[row]):
            times.append(snapshot.time_s - start_s)
            records.append(float(snapshot.sources.arrived[row]))
    if not records:
        raise InvalidRecording(
            f"The recording has no `arrived` counts for the source {source!r} of {job.id}.",
            "Record a run whose sources report them.",
        )
    # The counter restarts with the source; a total never falls.
    total = np.concatenate([[0.0], np.cumsum(np.maximum(0.0, np.diff(records)))])
    return RecordedLoad(np.array(times), total)


def _rows(job: str, real: Series, simulated: Series) -> Iterator[ComparisonRow]:
    windows = [series.window() for series in (real, simulated)]
    a, b = (_values(window, job) for window in windows)
    yield ComparisonRow(job, "throughput (records/s)", a[0], b[0], THROUGHPUT)
    yield ComparisonRow(job, "mean latency (ms)", a[1], b[1], LATENCY)
    yield ComparisonRow(job, "busiest operator", a[2], b[2], None)
    recoveries = [list(_recoveries(series, job)) for series in (real, simulated)]
    for i, recovery_s in enumerate(recoveries[0]):
        simulated_s = recoveries[1][i] if i < len(recoveries[1]) else None
        yield ComparisonRow(job, f"recovery {i + 1} (s)", recovery_s, simulated_s, RECOVERY)


def _phase_rows(
    job: str, phase: RunPhase, real: Series, simulated: Series
) -> Iterator[ComparisonRow]:
    a, b = (_values(_phase_window(series, phase), job) for series in (real, simulated))
    yield ComparisonRow(job, f"throughput (records/s), {phase.name}", a[0], b[0], THROUGHPUT)
    yield ComparisonRow(job, f"mean latency (ms), {phase.name}", a[1], b[1], LATENCY)


def _phase_window(series: Series, phase: RunPhase) -> Window | None:
    start_s = series.snapshots[0].time_s
    within = [s for s in series.snapshots if phase.from_s <= s.time_s - start_s <= phase.to_s]
    return Series(tuple(within)).window() if len(within) > 1 else None


def _values(window: Window | None, job: str) -> tuple[float | None, float | None, str | None]:
    """The throughput, the mean latency and the busiest operator of a job."""
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
    """For each rescale during a backlog: how long it took until the backlog was drained."""
    snapshots = series.snapshots
    for i in range(1, len(snapshots)):
        before, after = snapshots[i - 1], snapshots[i]
        if job not in before.layout.jobs or job not in after.layout.jobs:
            continue
        if before.job(job).parallelism == after.job(job).parallelism:
            continue
        # Relative to the input rate: arrived and read counts may be half a second apart.
        limit = BACKLOG_S * _rate(Series(snapshots[max(0, i - RECENT) : i + 1]), job)
        if _lag(before, job) <= limit:
            continue
        ended_s = _falls_below(snapshots[i - 1 :], job, limit)
        yield None if ended_s is None else ended_s - after.time_s


def _falls_below(snapshots: Sequence[Snapshot], job: str, limit: float) -> float | None:
    """The time at which the lag falls below a limit, interpolated between two snapshots."""
    lags = [(s.time_s, _lag(s, job)) for s in snapshots if job in s.layout.jobs]
    for (before_s, higher), (after_s, lower) in pairwise(lags):
        if higher > limit >= lower:
            return before_s + (after_s - before_s) * (higher - limit) / (higher - lower)
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
