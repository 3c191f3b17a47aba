"""Owns the runs on Spark that the simulated cluster is held against: three jobs, one after the other.

Each job first runs at half of what its slowest operator can do; that part is learned from. Then come steps
of load, the last of them above what one instance can do, and in it a rescale. What was learned from the first
part is what the second is simulated with: nothing of the second is known to the simulation but what came in
and when somebody rescaled.
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
from trilithon.workloads.load_generator import generate
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
LOOK_S: Final = 1.0
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Case:
    """A job, the operator that is its limit, and how many instances of it the rescale brings."""

    file: str
    operator: str
    instances: int
    # What to begin with, before the operator's pace is known.
    first_per_s: float
    # Other words in the place of some in the job's file.
    instead: tuple[str, str] = ("", "")


CASES: Final = (
    Case("pageload", "join", 3, 80.0),
    Case("wordcount", "normalise", 3, 50.0),
    # Four times as heavy: on two cores what Spark itself needs for a record would otherwise be the limit.
    Case("primetester", "tester", 3, 60.0, ("work(1)", "work(4)")),
)


# The parts in which a load is steady for a while, without the seconds in which it changes or a backlog goes.
PARTS: Final = tuple(
    RunPhase(f"load {share:.0%}", i * STEP_S + (5 if STEPS[i - 1] < 1 else 20), (i + 1) * STEP_S)
    for i, share in enumerate(STEPS)
    if share < 1
)


@dataclass(frozen=True)
class Recorded:
    """One case: what was learned, and the run that it is tried on."""

    case: Case
    recording: Path
    calibration: Path
    capacity_per_s: float


def job_of(case: Case) -> Job:
    """The job of a case, each operator with one instance, and batches that end within the run."""
    job = parse_job(spark_job_text(case.file).replace(*case.instead))
    operators = tuple(
        replace(o, profile=None, parallelism=replace(o.parallelism, initial=1, max=4))
        for o in job.operators
    )
    return replace(job, operators=operators, batch_s=BATCH_S)


def record(folder: Path, tell: Tell) -> list[Recorded]:
    """Runs all cases on Spark. Takes about six minutes each."""
    folders.make(folder)
    jobs = {case: job_of(case) for case in CASES}
    setup = Setup(MASTER, folder / "spark", slots=SLOTS)
    with application(setup, list(jobs.values()), tell) as engine:
        return [
            _case(engine, engine.kafka.servers, case, jobs[case], folder, tell) for case in CASES
        ]


def _case(engine: Engine, kafka: str, case: Case, job: Job, folder: Path, tell: Tell) -> Recorded:
    outcome = engine.submit(job, initial(job))
    if outcome.status is not Status.DONE:
        raise SparkNotStarted(f"{job.id} was not started: {outcome.message}")
    run = _Run(engine, job, kafka)

    def rescale(instances: int) -> None:
        wanted = (
            engine.jobs()[job.id].allocation.rescaled({case.operator: instances}).next_generation()
        )
        done = engine.apply(Reallocate(wanted))
        if done.status is not Status.DONE:
            raise SparkNotStarted(f"{job.id} was not rescaled: {done.message}")

    try:
        tell(f"{case.file}: the JVM warms up")
        with run.loaded(Constant(case.first_per_s), WARM_S):
            run.look(WARM_S)
        first = run.capacity_per_s(case.operator)
        tell(f"{case.file}: learning at {CALM * first:.0f} records/s")
        with run.loaded(Constant(CALM * first), LEARN_S):
            # How keys are spread shows only among several instances.
            learned = run.look(
                LEARN_S,
                folder / f"{case.file}-learned.parquet",
                {0.0: lambda: rescale(case.instances), LEARN_S / 2: lambda: rescale(1)},
            )
        found = calibration.calibrate(learned, f"{case.file} on Spark, {LEARN_S:g} s")
        calibration.save_calibration(folder / f"{case.file}-calibration.yaml", found)
        capacity = run.capacity_per_s(case.operator)
        tell(f"{case.file}: steps of load, one instance of {case.operator} does {capacity:.0f}/s")
        recording = folder / f"{case.file}.parquet"
        rates = tuple(share * capacity for share in STEPS)
        length_s = STEP_S * len(STEPS)

        with run.loaded(Phases(rates, STEP_S), length_s):
            run.look(
                length_s + STEP_S / 2,
                recording,
                {RESCALED_AFTER_S: lambda: rescale(case.instances)},
            )
        return Recorded(case, recording, folder / f"{case.file}-calibration.yaml", capacity)
    finally:
        engine.cancel(job.id)


class _Over(Exception):
    """Nobody looks any more."""


class _Run:
    """A job that runs, its load, and what is seen of it."""

    def __init__(self, engine: Engine, job: Job, kafka: str) -> None:
        self.job, self.kafka = job, kafka
        self.watcher = Watcher(engine)

    @contextmanager
    def loaded(self, shape: Shape, for_s: float) -> Iterator[None]:
        """A load beside whoever looks; it ends by itself, or with them."""
        (topic,) = self.job.sources[0].topics
        failed: list[TrilithonError] = []
        over = threading.Event()

        def heard(_at_s: float, _sent: int) -> None:
            if over.is_set():
                raise _Over

        def send() -> None:
            try:
                generate(self.kafka, topic, shape, for_s, Records(USERS, 0.0), on_progress=heard)
            except _Over:
                pass
            except TrilithonError as error:
                failed.append(error)

        sending = threading.Thread(target=send, daemon=True)
        sending.start()
        try:
            yield
        except BaseException:
            over.set()
            raise
        finally:
            sending.join(for_s + 60)
        if failed:
            raise failed[0]

    def look(
        self,
        for_s: float,
        into: Path | None = None,
        do: dict[float, Callable[[], None]] | None = None,
    ) -> Series:
        """Looks every second, writes it down, and does what is to be done at its time."""
        began = time.monotonic()
        seen: list[Snapshot] = []
        todo = sorted((do or {}).items())
        with ExitStack() as ending:
            recorder = None if into is None else ending.enter_context(ParquetRecorder(into))
            while (passed := time.monotonic() - began) < for_s:
                while todo and passed >= todo[0][0]:
                    todo.pop(0)[1]()
                self.watcher.look(time.time())
                last = self.watcher.observer.series.last
                if not seen or last.time_s > seen[-1].time_s:
                    seen.append(last)
                    if recorder is not None:
                        recorder.write(last)
                time.sleep(LOOK_S - (time.monotonic() - began) % LOOK_S)
        return Series(tuple(seen))

    def capacity_per_s(self, operator: str) -> float:
        """What one instance of an operator can do, by its service time in the last half minute."""
        window = self.watcher.observer.series.window(30.0)
        assert window is not None  # noqa: S101 - somebody has just looked
        layout = window.layout
        busy = sum_by_node(layout, window.instances.busy_s)
        service = ratio(busy, sum_by_node(layout, window.instances.taken))
        found = float(1 / service[layout.node_row[self.job.id, operator]])
        if not np.isfinite(found):
            raise SparkNotStarted(f"Nothing came through {operator} of {self.job.id}.")
        # The load is of the job's source: each record may become several on the way.
        rows = layout.node_row
        taken = float(np.nansum(window.sources.taken))
        reached = float(sum_by_node(layout, window.instances.taken)[rows[self.job.id, operator]])
        return found * taken / reached
