"""How far one machine goes: more and more jobs in one application, more and more tasks per job.

    python -m bench.scale [--parts jobs tasks] [--jobs 1 2 5 8 12] [--pmax 4 8 16 32 64]
        [--job-pmax 8] [--rate 50] [--seconds 20] [--warm-up 20] [--boundaries 5]
        [--set spark.driver.memory=4g ...] [--into FILE]

Every job reads a topic of two partitions and has two operators with `pmax` tasks each, of which two
are in use.

`jobs`: one JVM gets job after job. With each number of jobs, all at `--rate` records/s each:
latency from the producer's call to the consumer's poll, the cores of the JVM and of the host, the
memory, threads and sockets of the JVM. Records are sent and read by another process.

`tasks`: one job per `pmax`, each in a new JVM, since memory is not given back. The same figures,
the connections that the shuffles need (one from each task to each task of the next operator), and
the stall that a consumer sees when the engine ends a batch. The first boundaries warm up the JVM
and are not counted.

Exit code 1 if a record is lost or doubled, or a job does not start. `--set` gives Spark settings.
With `--into`, results are kept in a file, and a second call goes on where the first was
interrupted. The defaults take about 20 minutes. The short form `--jobs 1 2 --pmax 4 --job-pmax 2
--seconds 4 --warm-up 5 --boundaries 1` takes about two minutes.
"""

import argparse
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

from bench.boundary_phases import (
    PARTITIONS,
    WARM,
    Observed,
    Watch,
    end_batches,
    job_of,
    settings_of,
)
from bench.proofs import figures, turns
from bench.proofs.paced_traffic import Traffic, send
from bench.proofs.results_file import ResultsFile
from bench.proofs.scene import EXECUTORS, Scene, scene
from bench.proofs.traffic import Arrival, traffic
from bench.proofs.usage import Usage, own_threads, processes_cpu_s, threads_cpu_s
from trilithon.contract.engine import Status
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.masters import max_tasks
from trilithon.engines.spark.session import driver_process
from trilithon.model.allocation import initial
from trilithon.model.job import Job

PARTS: Final = ("jobs", "tasks")
OPERATORS: Final = 2
# How often a daemon asks its host for reports.
POLL_S: Final = 1.0
LATEST_S: Final = 60.0
# No batch ends by itself: the first may be as short as a quarter of it.
BATCH_S: Final = 7200.0
ROWS: Final = {
    "tasks": ".0f",
    "connections": ",.0f",
    "p50_ms": ".1f",
    "p90_ms": ".1f",
    "p99_ms": ".1f",
    "max_ms": ".0f",
    "cores": ".2f",
    "memory_mb": ",.0f",
    "threads": ",.0f",
    "sockets": ",.0f",
    "start_s": ".1f",
    "stall_ms_median": ",.0f",
    "stall_ms_max": ",.0f",
    "lost": ".0f",
    "doubled": ".0f",
}
Figures = dict[str, float | None]


def tasks_of(pmax: int) -> int:
    return PARTITIONS + OPERATORS * pmax


def connections_of(pmax: int) -> int:
    """Every task of an operator has a connection to every task that sends to it."""
    return PARTITIONS * pmax + (OPERATORS - 1) * pmax * pmax


class NotStarted(Exception):
    """A job that the engine did not start."""


class Application:
    """An engine in one JVM: its jobs, and what it uses."""

    def __init__(self, around: Scene) -> None:
        spark, before = around.spark, own_threads()
        spark.sparkContext.setLogLevel("OFF")
        self.around, self.topics = around, list[tuple[str, str]]()
        self.engine = SparkEngine(
            spark, around.kafka, around.folder, tasks=lambda: max_tasks(spark), slots=100
        )
        pid = driver_process()
        assert pid is not None
        self._pid, self._before = pid, before

    def add(self, pmax: int) -> tuple[Job, float]:
        """One more job; how long its start took."""
        number = len(self.topics)
        topics = (self.around.topic(f"in-{number}", PARTITIONS), self.around.topic(f"out-{number}"))
        job = job_of(number, topics, pmax, BATCH_S)
        began = time.monotonic()
        outcome = self.engine.submit(job, initial(job))
        if outcome.status is not Status.DONE:
            raise NotStarted(f"{job.id} with {tasks_of(pmax)} tasks: {outcome.message}")
        self.topics.append(topics)
        return job, time.monotonic() - began

    def cpu_s(self) -> float:
        """Of the JVM, and of the engine's threads in this process."""
        return processes_cpu_s([self._pid]) + threads_cpu_s(own_threads() - self._before)

    def figures(self) -> Figures:
        usage = Usage.of([self._pid])
        return {
            "memory_mb": usage.memory_mb,
            "threads": usage.threads,
            "sockets": usage.sockets,
        }

    @contextmanager
    def polled(self) -> Iterator[None]:
        """Reports are read as a daemon does."""
        ended = threading.Event()

        def poll() -> None:
            while not ended.wait(POLL_S):
                self.engine.reports()

        poller = threading.Thread(target=poll, daemon=True)
        poller.start()
        try:
            yield
        finally:
            ended.set()
            poller.join()

    def loaded(self, options: argparse.Namespace) -> Traffic:
        """All jobs under load, first to warm up."""
        kafka, rate = self.around.kafka, options.rate
        with self.polled():
            warm = send(kafka, "numbered", rate, options.warm_up, self.topics)
            assert warm.lost == 0, f"{warm.lost} records of the warm-up are lost"
            return send(kafka, "numbered", rate, options.seconds, self.topics, self.cpu_s)


def of_traffic(sent: Traffic) -> Figures:
    return {
        **sent.quantiles_ms,
        "cores": sent.cpu_s / sent.sending_s,
        "lost": sent.lost,
        "doubled": sent.doubled,
    }


def more_jobs(options: argparse.Namespace, results: ResultsFile) -> None:
    """Adds jobs to one application. Memory depends on what was there before, so all numbers are
    measured anew if one is missing.
    """
    sizes = sorted(options.jobs)
    if all(f"{size} jobs" in results for size in sizes):
        return
    with one_jvm(sizes[-1] * tasks_of(options.job_pmax), options) as around:
        application = Application(around)
        started_s: list[float] = []
        for size in sizes:
            while len(started_s) < size:
                started_s.append(application.add(options.job_pmax)[1])
            sent = application.loaded(options)
            result = {
                "tasks": size * tasks_of(options.job_pmax),
                "connections": size * connections_of(options.job_pmax),
                **of_traffic(sent),
                **application.figures(),
                "start_s": started_s[-1],
            }
            figures.show(f"{size} jobs", result)
            results.put(f"{size} jobs", result)
        application.engine.close()


def more_tasks(options: argparse.Namespace, results: ResultsFile) -> list[str]:
    """Returns why jobs did not start: the others are measured all the same."""
    problems = []
    for pmax in options.pmax:
        if f"Pmax {pmax}" in results:
            continue
        with one_jvm(tasks_of(pmax), options) as around:
            application = Application(around)
            try:
                result = one_job(application, pmax, options)
            except (NotStarted, AssertionError) as error:
                # A query that died ends no batch: its log says why.
                problems.append(f"Pmax {pmax}: {error}")
                continue
            finally:
                application.engine.close()
        figures.show(f"Pmax {pmax}", result)
        results.put(f"Pmax {pmax}", result)
    return problems


@contextmanager
def one_jvm(tasks: int, options: argparse.Namespace) -> Iterator[Scene]:
    """With threads for so many tasks, and some more."""
    with scene("local", cores=tasks // EXECUTORS + 4, settings=settings_of(options.set)) as around:
        yield around


def one_job(application: Application, pmax: int, options: argparse.Namespace) -> Figures:
    """A job under load, and then the ends of its batches."""
    job, start_s = application.add(pmax)
    sent = application.loaded(options)
    used = application.figures()
    stalls_ms, lost, doubled = stalls(application, job, options)
    return {
        "tasks": tasks_of(pmax),
        "connections": connections_of(pmax),
        **of_traffic(sent),
        **used,
        "start_s": start_s,
        **stall_figures(stalls_ms),
        "lost": sent.lost + lost,
        "doubled": sent.doubled + doubled,
    }


def stall_figures(stalls_ms: Sequence[float]) -> Figures:
    return {
        "stall_ms_median": median(stalls_ms) if stalls_ms else None,
        "stall_ms_max": max(stalls_ms, default=None),
    }


def stalls(
    application: Application, job: Job, options: argparse.Namespace
) -> tuple[list[float], int, int]:
    """The stalls of some boundaries, in ms, and the records that were lost and doubled in them."""
    engine, kafka = application.engine, application.around.kafka
    watch = Watch(engine)
    checkpoint = engine.folder / "checkpoints" / job.tenant / job.name / "first"
    (topics,), began_s = application.topics, time.time()
    with traffic(kafka, topics, options.boundary_rate) as (load, outlet):
        on = Observed(job, load, outlet, checkpoint)
        watch.poll(2.0)
        for turn in range(WARM + options.boundaries):
            boundaries = end_batches(watch, [on])
            if turn >= WARM:
                on.boundaries.extend(boundaries)
        sent, deadline = load.stop(), time.monotonic() + LATEST_S
        while lost_and_doubled(outlet.arrivals, began_s, sent)[0] and time.monotonic() < deadline:
            watch.poll(0.5)
        lost, doubled = lost_and_doubled(outlet.arrivals, began_s, sent)
    return [1000 * boundary.stall_s for boundary in on.boundaries], lost, doubled


def lost_and_doubled(arrivals: Sequence[Arrival], since_s: float, sent: int) -> tuple[int, int]:
    """Of the records that were sent since a time: those before it had the same numbers."""
    numbers = [a.number for a in list(arrivals) if a.at - a.latency_s >= since_s]
    return sent - len(set(numbers)), len(numbers) - len(set(numbers))


def table(results: Mapping[str, Figures], word: str) -> dict[str, str]:
    """What was measured of one part, side by side; figures that it does not have are left out."""
    chosen = {title: [result] for title, result in results.items() if word in title}
    known = {name for (result,) in chosen.values() for name in result}
    rows = {name: form for name, form in ROWS.items() if name in known}
    return turns.side_by_side(chosen, rows, width=12)


def measure(options: argparse.Namespace) -> tuple[dict[str, Figures], list[str]]:
    """The figures by number of jobs or tasks, and what did not start."""
    results = ResultsFile(options.into)
    problems = []
    if "jobs" in options.parts:
        try:
            more_jobs(options, results)
        except NotStarted as error:
            problems.append(str(error))
    if "tasks" in options.parts:
        problems += more_tasks(options, results)
    return results.results, problems


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    arguments.add_argument("--jobs", nargs="+", type=int, default=[1, 2, 5, 8, 12])
    arguments.add_argument("--pmax", nargs="+", type=int, default=[4, 8, 16, 32, 64])
    arguments.add_argument("--job-pmax", type=int, default=8, help="of each of several jobs")
    arguments.add_argument("--rate", type=float, default=50.0, help="records/s of a job")
    arguments.add_argument("--boundary-rate", type=float, default=100.0)
    arguments.add_argument("--seconds", type=float, default=20.0)
    arguments.add_argument("--warm-up", type=float, default=20.0)
    arguments.add_argument("--boundaries", type=int, default=5)
    arguments.add_argument("--set", nargs="*", default=[], help="Spark settings, name=value")
    arguments.add_argument("--into", type=Path, help="a file that keeps results")
    return arguments


def main() -> None:
    # What was started ends also if somebody ends this program.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    results, problems = measure(parser().parse_args())
    for title, word in (("jobs in one application", "jobs"), ("tasks of one job", "Pmax")):
        if any(word in name for name in results):
            figures.show(title, table(results, word))
    figures.emit("scale", results)
    problems += [
        f"{title}: {result['lost']} records lost, {result['doubled']} doubled"
        for title, result in results.items()
        if result["lost"] or result["doubled"]
    ]
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
