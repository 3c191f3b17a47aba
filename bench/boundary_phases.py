"""The phases of a batch boundary, and how much of the stall in the output they explain.

    python -m bench.boundary_phases [--masters local local-cluster] [--jobs 1 2 5 8]
        [--pmax 4 8 16] [--boundaries 6] [--warm-up 20] [--set spark.locality.wait=0 ...]
        [--levers [spark.locality.wait=0 ...]] [--together] [--into phases.json]

Each job reads a topic of two partitions, checks and passes its records on and writes them: a stage
of readers and two of `pmax` tasks. The engine ends one job's batch at a time, or those of all jobs
at once with `--together`. `--set` gives Spark settings for all runs; each of the `--levers` is
tried by itself, beside a run without any. By default these are `spark.locality.wait=0` and
`spark.rpc.netty.dispatcher.numThreads=4`; `--levers` without a value tries none. With `--into`
results are kept in a file, and a second call goes on where the first was interrupted.

The stall is the time without output that a consumer sees. The first boundaries of each job warm up
the JVM and are not counted. The short form
`--masters local --jobs 1 --pmax 4 --boundaries 2 --warm-up 5 --levers` takes a minute.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.proofs import figures
from bench.proofs.results_file import ResultsFile
from bench.proofs.scene import KINDS, Scene, scene
from bench.proofs.traffic import Load, Outlet, traffic
from trilithon.contract.engine import Status
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.masters import max_tasks
from trilithon.model.allocation import initial
from trilithon.model.job import (
    Edge,
    Field,
    HeldTasks,
    Job,
    Operator,
    Parallelism,
    Sink,
    Source,
    Work,
)

PARTITIONS: Final = 2
WARM: Final = 2
TIMEOUT_S: Final = 60.0
# Spark waits for a better place of a task, and has a dispatcher thread per task slot of a driver.
LEVERS: Final = ("spark.locality.wait=0", "spark.rpc.netty.dispatcher.numThreads=4")
# The marks of a boundary in their order; a phase is named by the mark that ends it.
PHASES: Final = (
    "last write",  # the end reaches the readers, and the records in flight are written
    "tasks ended",  # the tasks flush and end
    "commit",  # Spark writes the offsets and the commit
    "planning",  # Spark plans the next batch and submits it
    "tasks up",  # its tasks are launched
    "connected",  # the reader that is first with a record has polled Kafka
    "first record",  # it has read the record
    "first write",  # the record has passed all operators
)


@dataclass(frozen=True)
class Boundary:
    """The marks of one boundary, in seconds, and the stall that a consumer saw."""

    told_s: float
    marks_s: tuple[float, ...]
    stall_s: float

    @property
    def phases_ms(self) -> dict[str, float]:
        """Each phase, from the mark before it to its own.

        Spark may commit after the next batch is planned, or even after its first write; what
        happens after that write is no part of the stall.
        """
        phases, before_s = {}, self.told_s
        for name, mark_s in zip(PHASES, self.marks_s, strict=True):
            at_s = max(before_s, min(mark_s, self.marks_s[-1]))
            phases[name] = 1000 * (at_s - before_s)
            before_s = at_s
        return phases

    @property
    def explained(self) -> float:
        """The phases after the last write, as a share of the stall."""
        inside = [ms for name, ms in self.phases_ms.items() if name != PHASES[0]]
        return sum(inside) / 1000 / self.stall_s


def job_of(number: int, topics: tuple[str, str], pmax: int, batch_s: float = 1200.0) -> Job:
    width = Parallelism(min(2, pmax), 1, pmax, HeldTasks.ALL)
    return Job(
        tenant="bench",
        name=f"stalled-{number}-{pmax}",
        sources=(
            Source(
                "in",
                (Field("n", "BIGINT"), Field("sent", "DOUBLE")),
                (("subscribe", topics[0]), ("startingOffsets", "earliest")),
                PARTITIONS,
            ),
        ),
        operators=(
            Operator("check", Work(where="n >= 0"), width),
            Operator("pass", Work(select=("n", "sent")), width),
        ),
        edges=(Edge("in", "check"), Edge("check", "pass"), Edge("pass", "out")),
        sinks=(Sink("out", (("topic", topics[1]),)),),
        batch_s=batch_s,
    )


@dataclass
class Observed:
    """A running job, its load and its output."""

    job: Job
    load: Load
    outlet: Outlet
    checkpoint: Path
    boundaries: list[Boundary] = field(default_factory=list)


class Watch:
    """The engine, and the readers' marks from the executors' reports."""

    def __init__(self, engine: SparkEngine) -> None:
        self.engine = engine
        # By job and partition: the newest report of its reader.
        self.readers: dict[tuple[str, str], Mapping[str, Any]] = {}
        self._drain = engine.control.drain_reports
        engine.control.drain_reports = self._drained  # type: ignore[method-assign]

    def _drained(self) -> dict[str, Any]:
        drained = self._drain()
        for report in drained["reports"]:
            for reader in report["readers"]:
                key = (reader["job"], reader["partition"])
                if reader["batch"] >= self.readers.get(key, {"batch": -1})["batch"]:
                    self.readers[key] = reader
        return drained

    def poll(self, for_s: float) -> None:
        until = time.monotonic() + for_s
        while time.monotonic() < until:
            self.engine.reports()
            time.sleep(0.1)

    def boundary(self, on: Observed, told_s: float, batch: str) -> Boundary | None:
        """The marks of the boundary after that batch; None while one is missing."""
        times = self.engine.control.batch_times()[on.job.id]
        committed = on.checkpoint / "commits" / batch.rpartition(":")[2]
        number = int(times["batch"].rpartition(":")[2])
        mine = [reader for (job, _), reader in self.readers.items() if job == on.job.id]
        reading = [r for r in mine if r["batch"] == number and r["first_us"]]
        if times["batch"] == batch or not committed.exists() or len(reading) < PARTITIONS:
            return None
        if (gap := on.outlet.around(times["submitted_ms"] / 1e3)) is None:
            return None
        last, first = gap
        # The stall ends with the first reader; another may connect later.
        reader = min(reading, key=lambda r: r["first_us"])
        marks_s = (
            last.written,
            times["previous_ended_ms"] / 1e3,
            committed.stat().st_mtime,
            times["submitted_ms"] / 1e3,
            times["tasks_up_ms"] / 1e3,
            reader["polled_us"] / 1e6,
            reader["first_us"] / 1e6,
            first.written,
        )
        return Boundary(told_s, marks_s, first.at - last.at)


def run_jobs(around: Scene, count: int, pmax: int, options: argparse.Namespace) -> dict[str, Any]:
    spark = around.spark
    engine = SparkEngine(
        spark,
        around.kafka,
        around.folder / f"{count}-{pmax}",
        tasks=lambda: max_tasks(spark),
        slots=100,
    )
    watch = Watch(engine)
    with ExitStack() as ending:
        jobs: list[Observed] = []
        for number in range(count):
            prefix = f"{count}-{pmax}-{number}"
            topics = (
                around.topic(f"{prefix}-in", PARTITIONS),
                around.topic(f"{prefix}-out"),
            )
            job = job_of(number, topics, pmax)
            outcome = engine.submit(job, initial(job))
            assert outcome.status is Status.DONE, outcome
            ending.callback(engine.cancel, job.id)
            load, outlet = ending.enter_context(traffic(around.kafka, topics, options.rate))
            checkpoint = engine.folder / "checkpoints" / "bench" / job.name / "first"
            jobs.append(Observed(job, load, outlet, checkpoint))
        watch.poll(options.warm_up)
        for turn in range(WARM + options.boundaries):
            for together in [jobs] if options.together else [[on] for on in jobs]:
                found = end_batches(watch, together)
                if turn >= WARM:
                    for on, boundary in zip(together, found, strict=True):
                        on.boundaries.append(boundary)
        return summarized(jobs)


def end_batches(watch: Watch, jobs: Sequence[Observed]) -> list[Boundary]:
    batches = watch.engine.control.batches()
    told = []
    for on in jobs:
        told.append(time.time())
        assert watch.engine.boundaries.end(on.job.id)
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        # The marks come with the reports of the next second.
        watch.poll(1.5)
        found = [
            watch.boundary(on, told_s, batches[on.job.id])
            for on, told_s in zip(jobs, told, strict=True)
        ]
        boundaries = [boundary for boundary in found if boundary is not None]
        if len(boundaries) == len(jobs):
            return boundaries
        assert time.monotonic() < deadline, "a boundary did not come"


def summarized(jobs: Sequence[Observed]) -> dict[str, Any]:
    boundaries = [boundary for on in jobs for boundary in on.boundaries]
    lost = doubled = 0
    for on in jobs:
        sent = on.load.stop()
        on.outlet.await_all(sent, 60)
        missing, again = on.outlet.lost_and_doubled(sent)
        lost, doubled = lost + missing, doubled + again
    stalls_ms = [1000 * boundary.stall_s for boundary in boundaries]
    return {
        "boundaries": len(boundaries),
        **{f"{name}_ms": round(median(b.phases_ms[name] for b in boundaries)) for name in PHASES},
        "stall_ms_median": round(median(stalls_ms)),
        "stall_ms_max": round(max(stalls_ms)),
        "explained_median": round(median(b.explained for b in boundaries), 2),
        "lost": lost,
        "doubled": doubled,
    }


def settings_of(pairs: Sequence[str]) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in pairs)


def title_of(kind: str, count: int, pmax: int, lever: str, *, together: bool) -> str:
    parts = [kind, f"{count} jobs", f"Pmax {pmax}"]
    return ", ".join(parts + ["together"] * together + [lever] * bool(lever))


def measure(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    results = ResultsFile(options.into)
    for kind in options.masters:
        for lever in ["", *options.levers]:
            sizes = [
                (pmax, count)
                for pmax in options.pmax
                for count in options.jobs
                if title_of(kind, count, pmax, lever, together=options.together) not in results
            ]
            if sizes:
                measure_sizes(kind, lever, sizes, options, results)
    return results.results


def measure_sizes(
    kind: str,
    lever: str,
    sizes: Sequence[tuple[int, int]],
    options: argparse.Namespace,
    results: ResultsFile,
) -> None:
    """Measures in one Spark application; what was measured is kept at once."""
    settings = settings_of([*options.set, *([lever] if lever else [])])
    most = max(count * (PARTITIONS + 2 * pmax) for pmax, count in sizes)
    with scene(kind, cores=most // 2 + 4, settings=settings) as around:
        around.spark.sparkContext.setLogLevel("OFF")
        for pmax, count in sizes:
            result = run_jobs(around, count, pmax, options)
            title = title_of(kind, count, pmax, lever, together=options.together)
            figures.show(title, result)
            results.put(title, result)


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    masters = ["local", "local-cluster"]
    arguments.add_argument("--masters", nargs="+", default=masters, choices=KINDS)
    arguments.add_argument("--jobs", nargs="+", type=int, default=[1, 2, 5, 8])
    arguments.add_argument("--pmax", nargs="+", type=int, default=[4, 8, 16])
    arguments.add_argument("--boundaries", type=int, default=6)
    arguments.add_argument("--rate", type=float, default=100.0)
    arguments.add_argument("--warm-up", type=float, default=20.0)
    arguments.add_argument("--set", nargs="*", default=[], help="Spark settings, name=value")
    arguments.add_argument("--levers", nargs="*", default=LEVERS, help="settings, each by itself")
    arguments.add_argument("--together", action="store_true")
    arguments.add_argument("--into", type=Path, help="a file that keeps results")
    return arguments


def main() -> None:
    results = measure(parser().parse_args())
    figures.emit("boundary_phases", results)
    for title, result in results.items():
        assert result["lost"] == result["doubled"] == 0, title


if __name__ == "__main__":
    main()
