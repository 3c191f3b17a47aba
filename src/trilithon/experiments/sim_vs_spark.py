"""Runs the jobs on Spark with which the simulated cluster is compared: three, one after the other.

Each job first runs at half of what its slowest operator can do; the calibration learns from that
part. Then the load changes in steps, one of them above what one instance can do, with a rescale in
it. The simulation of the second part knows the calibration, the load and the time of the rescale,
and nothing else of that part.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from trilithon import folders
from trilithon.contract.engine import Engine, Reallocate, Status
from trilithon.contract.watch import Watcher
from trilithon.engines.spark.application import Setup, application
from trilithon.errors import SparkNotStarted, TrilithonError
from trilithon.measures.group import ratio, sum_by_node
from trilithon.model.allocation import initial
from trilithon.model.job import Job
from trilithon.model.series import Series
from trilithon.model.snapshot import Snapshot
from trilithon.recording.parquet import ParquetRecorder
from trilithon.scenarios import calibration
from trilithon.scenarios.compare import RunPhase
from trilithon.spec.job_file import parse_job
from trilithon.workloads.load_generator import LoadProgress, generate
from trilithon.workloads.paper_jobs import spark_job_text
from trilithon.workloads.records import Records
from trilithon.workloads.shapes import Constant, Phases, Shape

MASTER: Final = "local[48]"
SLOTS: Final = 24
USERS: Final = 1000
# The JVM compiles what it runs: until then its figures are of another engine.
WARM_S: Final = 120.0
LEARN_S: Final = 60.0
STEP_S: Final = 40.0
# Shares of what one instance of the slowest operator can do.
CALM: Final = 0.5
STEPS: Final = (0.4, 0.7, 1.3, 0.6)
RESCALED_AFTER_S: Final = 2.75 * STEP_S
BATCH_S: Final = 30.0
SAMPLE_S: Final = 1.0
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Case:
    """A job, its slowest operator, and how many instances of it there are after the rescale."""

    file: str
    operator: str
    instances: int
    # The load before the operator's service time is known.
    first_per_s: float
    # A text in the job's file, and what replaces it.
    replaced: tuple[str, str] = ("", "")


CASES: Final = (
    Case("pageload", "join", 3, 80.0),
    Case("wordcount", "normalise", 3, 50.0),
    # Four times as heavy: on two cores Spark's own cost per record would be the limit otherwise.
    Case("primetester", "tester", 3, 60.0, ("work(1)", "work(4)")),
)


# The parts with a steady load, without the seconds after a change or while a backlog is drained.
PARTS: Final = tuple(
    RunPhase(f"load {share:.0%}", i * STEP_S + (5 if STEPS[i - 1] < 1 else 20), (i + 1) * STEP_S)
    for i, share in enumerate(STEPS)
    if share < 1
)


@dataclass(frozen=True)
class Recorded:
    """The files of one case: the calibration, and the recorded run that it is tested with."""

    case: Case
    recording: Path
    calibration: Path
    capacity_per_s: float


def job_of(case: Case) -> Job:
    """The job of a case, each operator with one instance, and batches that end within the run."""
    job = parse_job(spark_job_text(case.file).replace(*case.replaced))
    operators = tuple(
        replace(o, profile=None, parallelism=replace(o.parallelism, initial=1, max=4))
        for o in job.operators
    )
    return replace(job, operators=operators, batch_s=BATCH_S)


def record(folder: Path, progress: Progress) -> list[Recorded]:
    """Runs all cases on Spark; each takes about six minutes."""
    folders.make(folder)
    jobs = {case: job_of(case) for case in CASES}
    setup = Setup(MASTER, folder / "spark", slots=SLOTS)
    with application(setup, list(jobs.values()), progress) as engine:
        return [
            _case(engine, engine.kafka.servers, case, jobs[case], folder, progress)
            for case in CASES
        ]


def _case(
    engine: Engine, kafka: str, case: Case, job: Job, folder: Path, progress: Progress
) -> Recorded:
    outcome = engine.submit(job, initial(job))
    if outcome.status is not Status.DONE:
        raise SparkNotStarted(f"{job.id} was not started: {outcome.message}")
    running = _RunningJob(engine, job, kafka)

    def rescale(instances: int) -> None:
        wanted = (
            engine.jobs()[job.id].allocation.rescaled({case.operator: instances}).next_generation()
        )
        done = engine.apply(Reallocate(wanted))
        if done.status is not Status.DONE:
            raise SparkNotStarted(f"{job.id} was not rescaled: {done.message}")

    try:
        progress(f"{case.file}: the JVM warms up")
        with running.loaded(Constant(case.first_per_s), WARM_S):
            running.observe(WARM_S)
        first = running.capacity_per_s(case.operator)
        progress(f"{case.file}: learning at {CALM * first:.0f} records/s")
        with running.loaded(Constant(CALM * first), LEARN_S):
            # The distribution of keys shows only with several instances.
            learned = running.observe(
                LEARN_S,
                folder / f"{case.file}-learned.parquet",
                {0.0: lambda: rescale(case.instances), LEARN_S / 2: lambda: rescale(1)},
            )
        calibrated = calibration.calibrate(learned, f"{case.file} on Spark, {LEARN_S:g} s")
        calibration.save_calibration(folder / f"{case.file}-calibration.yaml", calibrated)
        capacity = running.capacity_per_s(case.operator)
        progress(
            f"{case.file}: steps of load, one instance of {case.operator} does {capacity:.0f}/s"
        )
        recording = folder / f"{case.file}.parquet"
        rates = tuple(share * capacity for share in STEPS)
        length_s = STEP_S * len(STEPS)

        with running.loaded(Phases(rates, STEP_S), length_s):
            running.observe(
                length_s + STEP_S / 2,
                recording,
                {RESCALED_AFTER_S: lambda: rescale(case.instances)},
            )
        return Recorded(case, recording, folder / f"{case.file}-calibration.yaml", capacity)
    finally:
        engine.cancel(job.id)


class _Stopped(Exception):
    """The load is not needed any more."""


class _RunningJob:
    """A running job, its load, and the snapshots of it."""

    def __init__(self, engine: Engine, job: Job, kafka: str) -> None:
        self.job, self.kafka = job, kafka
        self.watcher = Watcher(engine)

    @contextmanager
    def loaded(self, shape: Shape, for_s: float) -> Iterator[None]:
        """Sends a load while the context is open; an error in the context ends it early."""
        (topic,) = self.job.sources[0].topics
        failed: list[TrilithonError] = []
        stopped = threading.Event()

        def check_stopped(_: LoadProgress) -> None:
            if stopped.is_set():
                raise _Stopped

        def send() -> None:
            try:
                generate(
                    self.kafka, topic, shape, for_s, Records(USERS, 0.0), on_progress=check_stopped
                )
            except _Stopped:
                pass
            except TrilithonError as error:
                failed.append(error)

        sending = threading.Thread(target=send, daemon=True)
        sending.start()
        try:
            yield
        except BaseException:
            stopped.set()
            raise
        finally:
            sending.join(for_s + 60)
        if failed:
            raise failed[0]

    def observe(
        self,
        for_s: float,
        into: Path | None = None,
        actions: dict[float, Callable[[], None]] | None = None,
    ) -> Series:
        """Takes a snapshot every second, records it, and calls each action at its time."""
        began = time.monotonic()
        snapshots: list[Snapshot] = []
        pending = sorted((actions or {}).items())
        with ExitStack() as ending:
            recorder = None if into is None else ending.enter_context(ParquetRecorder(into))
            while (passed := time.monotonic() - began) < for_s:
                while pending and passed >= pending[0][0]:
                    pending.pop(0)[1]()
                self.watcher.look(time.time())
                last = self.watcher.observer.series.last
                if not snapshots or last.time_s > snapshots[-1].time_s:
                    snapshots.append(last)
                    if recorder is not None:
                        recorder.write(last)
                time.sleep(SAMPLE_S - (time.monotonic() - began) % SAMPLE_S)
        return Series(tuple(snapshots))

    def capacity_per_s(self, operator: str) -> float:
        """Records per second of one instance, by its service time in the last half minute."""
        window = self.watcher.observer.series.window(30.0)
        assert window is not None  # noqa: S101 - there are snapshots of more than 30 s
        layout = window.layout
        busy = sum_by_node(layout, window.instances.busy_s)
        service = ratio(busy, sum_by_node(layout, window.instances.taken))
        per_s = float(1 / service[layout.node_row[self.job.id, operator]])
        if not np.isfinite(per_s):
            raise SparkNotStarted(f"No record reached {operator} of {self.job.id} in 30 s.")
        # The load is that of the job's source: a record may become several on its way.
        rows = layout.node_row
        taken = float(np.nansum(window.sources.taken))
        reached = float(sum_by_node(layout, window.instances.taken)[rows[self.job.id, operator]])
        return per_s * taken / reached
