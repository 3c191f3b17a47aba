"""Whether memory, reports or threads of an application grow with boundaries and executor losses.

    python -m bench.growth [--boundaries 500] [--losses 50] [--executors 4] [--jobs 2] [--pmax 4]
        [--warm-up 90]

Jobs under load end their batches again and again; between some of them an executor is killed, and
the cluster starts another. After each boundary the driver's heap (the least after three
collections), the size of the executors' last reports as they sent them, and the threads of the
driver and of the host are noted. Printed are the medians of the first and of the last tenth, and a
verdict; exit code 1 if the last is more than 10 % larger. Below them is what grew: threads of the
driver by pool, tables of the probe, and the rows of whole reports. With `--executors 0`, which is
one JVM, nothing is killed.

Two of Spark's pools are printed apart, with the most threads that they had. They start a thread for
each of their tasks up to 100, however many are idle, and end one that was idle for 60 s: how many
they have follows from how often they are used, and only more than 100 would be growth. Collections
use them, since Spark then removes broadcasts that nothing refers to.

Fewer than 100 boundaries say little: some MB, bytes or threads of difference are let pass then. The
short form `--boundaries 10 --losses 0 --executors 0 --jobs 1 --warm-up 10` takes about two minutes.
"""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.boundary_phases import PARTITIONS, job_of
from bench.proofs import figures
from bench.proofs.scene import temporary_folder
from bench.proofs.traffic import Outlet, traffic
from bench.proofs.usage import is_executor
from trilithon.contract.engine import Status
from trilithon.engines.spark.application import create_topics
from trilithon.engines.spark.background_process import command_line
from trilithon.engines.spark.broker import EmbeddedBroker
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.jars import CONNECTOR, fetch_jars
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.masters import executors, max_tasks
from trilithon.engines.spark.session import session
from trilithon.engines.spark.supervisor import RestartBackoff
from trilithon.model.allocation import initial
from trilithon.model.job import Job

RATE_PER_S: Final = 50.0
ALLOWED: Final = 1.1
TIMEOUT_S: Final = 120.0
WARM: Final = 3
FIGURES: Final = ("heap_mb", "report_bytes", "driver_threads", "host_threads")
# In few samples these move by so much without growing.
SLACK: Final = {"heap_mb": 8.0, "report_bytes": 500.0, "driver_threads": 8.0, "host_threads": 3.0}
SHORT: Final = 100
# `newDaemonCachedThreadPool` with these limits, in BlockManagerMasterEndpoint and
# BlockManagerStorageEndpoint.
POOL_LIMIT: Final = 100
POOLS: Final = (
    "threads block-manager-ask-thread-pool-#",
    "threads block-manager-storage-async-thread-pool-#",
)


@dataclass(frozen=True, slots=True)
class Sample:
    """What an application holds after a boundary; the driver's threads are without `POOLS`."""

    heap_mb: float
    report_bytes: float
    driver_threads: float
    host_threads: float
    # The parts of these: threads by pool, entries of the probe's tables, rows of reports.
    parts: Mapping[str, int] = field(default_factory=dict)


class Watched:
    """An engine that is polled as a host polls it, with the rows of the last reports."""

    def __init__(self, engine: SparkEngine) -> None:
        self.engine = engine
        self.report_rows: dict[str, int] = {}
        drain = engine.control.drain_reports

        def drained() -> dict[str, Any]:
            answer = drain()
            for lost in answer["lost"]:
                self.report_rows.pop(lost, None)
            for report in answer["reports"]:
                self.report_rows[report["executor"]] = len(report["instances"])
            return answer

        engine.control.drain_reports = drained  # type: ignore[method-assign]

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline, f"timeout: {what}"
            self.engine.reports()
            time.sleep(0.1)

    def sample(self) -> Sample:
        jvm: Any = self.engine.spark._jvm  # noqa: SLF001 - the driver's own figures
        beans = jvm.java.lang.management.ManagementFactory

        def kept() -> int:
            """The heap after a collection, and what was allocated since then."""
            jvm.java.lang.System.gc()
            return int(beans.getMemoryMXBean().getHeapMemoryUsage().getUsed())

        # Collections start threads of the pools that are counted apart: first collect, then count.
        heap_mb = min(kept() for _ in range(3)) / 2**20
        sizes = self.engine.control.sizes()
        parts = {f"{where} {name}": n for where, all_ in sizes.items() for name, n in all_.items()}
        parts["rows in whole reports"] = sum(self.report_rows.values())
        return Sample(
            heap_mb=heap_mb,
            report_bytes=float(sizes["driver"]["report_characters"]),
            driver_threads=float(
                sum(sizes["threads"].values()) - sum(parts.get(pool, 0) for pool in POOLS)
            ),
            host_threads=float(threading.active_count()),
            parts=parts,
        )


def tenths(samples: Sequence[Sample]) -> dict[str, dict[str, float]]:
    """The medians of the first and of the last tenth of the samples, by figure."""
    count = max(1, len(samples) // 10)
    return {
        name: {
            "first": round(median(asdict(sample)[name] for sample in samples[:count]), 1),
            "last": round(median(asdict(sample)[name] for sample in samples[-count:]), 1),
        }
        for name in FIGURES
    }


def grown_parts(samples: Sequence[Sample]) -> dict[str, str]:
    """The parts whose median is larger in the last tenth than in the first, the most first."""
    count = max(1, len(samples) // 10)
    names = {name for sample in samples for name in sample.parts}
    rows = []
    for name in sorted(names):
        first, last = (
            median(sample.parts.get(name, 0) for sample in some)
            for some in (samples[:count], samples[-count:])
        )
        rows.append((last - first, name, f"{first:g} to {last:g}"))
    rows.sort(key=lambda row: (-row[0], row[1]))
    return {name: change for by, name, change in rows if by > 0}


def grown(
    results: Mapping[str, Mapping[str, float]], slack: Mapping[str, float] | None = None
) -> list[str]:
    """The figures that grew by more than is allowed."""
    return [
        f"{name} grew from {tenth['first']:g} to {tenth['last']:g}"
        for name, tenth in results.items()
        if tenth["last"] > ALLOWED * tenth["first"] + (slack or {}).get(name, 0.0)
    ]


def most_threads(samples: Sequence[Sample]) -> dict[str, int]:
    """The most threads that each of Spark's pools had that are counted apart."""
    return {pool: max(sample.parts.get(pool, 0) for sample in samples) for pool in POOLS}


def verdict(results: Mapping[str, Any]) -> list[str]:
    """What grew too much; empty if nothing did."""
    slack = SLACK if results["boundaries"] < SHORT else {}
    above = [
        f"{pool} had {most}, more than Spark's limit of {POOL_LIMIT}"
        for pool, most in results["pools"].items()
        if most > POOL_LIMIT
    ]
    return grown({name: results[name] for name in FIGURES}, slack) + above


def executor_processes(application: str) -> list[int]:
    """The processes of the executors of an application on this machine."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if application in command_line(pid) and is_executor(pid)]


def run(options: argparse.Namespace) -> dict[str, Any]:
    with ExitStack() as ending:
        folder = Path(ending.enter_context(temporary_folder()))
        broker = ending.enter_context(EmbeddedBroker.start(folder / "broker"))
        tasks = options.jobs * (PARTITIONS + 2 * options.pmax) + 4
        count = options.executors
        # Any half of the executors has room for all jobs.
        cores = -(-tasks // max(1, count // 2))
        master = f"local-cluster[{count},{cores},1024]" if count else f"local[{tasks}]"
        spark = ending.enter_context(session(master, folder / "spark", fetch_jars(CONNECTOR)))
        spark.sparkContext.setLogLevel("OFF")
        kafka = Kafka(broker.address)
        engine = SparkEngine(
            spark,
            kafka,
            folder,
            tasks=lambda: max_tasks(spark),
            slots=100,
            backoff=RestartBackoff(maximum_s=2.0),
        )
        ending.callback(engine.close)
        watched = Watched(engine)
        jobs, outlets = start(engine, kafka, options, ending)
        samples, lost = [], 0
        application = str(spark.sparkContext.applicationId)
        # The first batches start pools of threads, and executors count their first records.
        watched.until(lambda: all_flow(outlets), "records flow")
        warm_s, warmed = time.monotonic() + options.warm_up, 0
        while warmed < WARM or time.monotonic() < warm_s:
            end_batches(watched, jobs)
            watched.until(lambda: all_flow(outlets), "records flow")
            warmed += 1
        for boundary in range(options.boundaries):
            end_batches(watched, jobs)
            samples.append(watched.sample())
            if lost < (boundary + 1) * options.losses // options.boundaries:
                lost += 1
                os.kill(executor_processes(application)[0], signal.SIGKILL)
                # A loss that is expected must not count as a job's fault: all jobs commit first.
                watched.until(lambda: executors(spark) == count, "executors are back")
                watched.until(lambda: all_flow(outlets), "records flow again")
        counts = {"boundaries": len(samples), "losses": lost}
        grew = grown_parts(samples)
        return {**counts, **tenths(samples), "pools": most_threads(samples), "grew": grew}


def start(
    engine: SparkEngine, kafka: Kafka, options: argparse.Namespace, ending: ExitStack
) -> tuple[list[Job], list[Outlet]]:
    jobs, outlets = [], []
    for number in range(options.jobs):
        topics = (f"grow{number}-in", f"grow{number}-out")
        job = job_of(number, topics, options.pmax)
        create_topics(kafka, [job])
        assert engine.submit(job, initial(job)).status is Status.DONE
        _, outlet = ending.enter_context(traffic(kafka, topics, RATE_PER_S))
        jobs.append(job)
        outlets.append(outlet)
    return jobs, outlets


def end_batches(watched: Watched, jobs: Sequence[Job]) -> None:
    """Ends the batch of every job and waits for the next ones."""
    control = watched.engine.control
    before = {job.id: control.batch(job.id) for job in jobs}
    for job in jobs:
        watched.engine.boundaries.end(job.id)
    watched.until(
        lambda: all(control.batch(job.id) not in {"", before[job.id]} for job in jobs),
        "the next batches run",
    )


def all_flow(outlets: Sequence[Outlet]) -> bool:
    now = time.time()
    return all(len(outlet.since(now - 2.0)) > RATE_PER_S for outlet in outlets)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--boundaries", type=int, default=500)
    parser.add_argument("--losses", type=int, default=50)
    parser.add_argument("--executors", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--pmax", type=int, default=4)
    parser.add_argument("--warm-up", type=float, default=90.0, metavar="SECONDS")
    results = run(parser.parse_args())
    bad = verdict(results)
    results["verdict"] = "; ".join(bad) or f"nothing grew by more than {ALLOWED - 1:.0%}"
    figures.show("growth", results)
    figures.emit("growth", results)
    if bad:
        parts = "; ".join(f"{name}: {change}" for name, change in results["grew"].items())
        sys.exit(f"{results['verdict']}. Of that: {parts or 'nothing that is counted apart'}.")


if __name__ == "__main__":
    main()
