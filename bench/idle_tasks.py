"""What a Spark task that gets no records costs in CPU: one job with few and with many of them.

    python -m bench.idle_tasks [--into FOLDER] [--tasks 2 8 16 32] [--seconds 25] [--rounds 2]

A job of three operators, each with two instances in use, runs at 100 records/s with so many tasks
per operator, one after the other; the first is run once more before the others, for the JVM to
compile what it runs. The table has the CPU time of the JVM alone, so that other processes do not
count, and the cost of a task is the slope of a straight line through it. With `--into`, every run
is recorded: `trilithon calibrate FOLDER/*.parquet` finds the same in the recordings, if nothing
else computes on the machine. The defaults take about five minutes.
"""

import argparse
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from trilithon.contract.engine import Status
from trilithon.contract.watch import Watcher
from trilithon.engines.spark.application import Setup, application
from trilithon.engines.spark.engine import SparkEngine
from trilithon.model.allocation import initial
from trilithon.model.job import HeldTasks, Job, Parallelism
from trilithon.recording.parquet import ParquetRecorder
from trilithon.spec.job_file import parse_job
from trilithon.workloads.load_generator import generate
from trilithon.workloads.records import Records
from trilithon.workloads.shapes import Constant

RATE_PER_S = 100.0
IN_USE = 2
WARM_S = 12.0
TICKS_PER_S = 100  # the unit of /proc/PID/stat
JOB = """
tenant: bench
name: idle
sources:
  - name: records
    options: {subscribe: idle-in}
    schema: {user: STRING, url: STRING, at: TIMESTAMP, seq: BIGINT}
    partitions: 2
operators:
  - {name: a, input: records, select: ["user", "url", "seq"]}
  - {name: b, input: a, select: ["user", "url", "seq"]}
  - {name: c, input: b, select: ["user", "url", "seq"]}
sinks:
  - {name: out, input: c, options: {topic: idle-out}}
"""


def job_with(tasks: int) -> Job:
    """The job with so many tasks per operator."""
    job = parse_job(JOB)
    bounds = Parallelism(IN_USE, 1, tasks, HeldTasks.ALL)
    operators = tuple(replace(o, parallelism=bounds) for o in job.operators)
    return replace(job, name=f"idle-{tasks}", operators=operators, batch_s=300.0)


def cores(engine: SparkEngine, job: Job, seconds: float, into: Path | None) -> float:
    """Cores that the JVM uses while the job runs, after it has warmed up."""
    jvm: Any = engine.spark._jvm  # noqa: SLF001 - for its process id
    stat = Path(f"/proc/{int(jvm.java.lang.ProcessHandle.current().pid())}/stat")

    def cpu_s() -> float:
        fields = stat.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    outcome = engine.submit(job, initial(job))
    assert outcome.status is Status.DONE, outcome.message
    load = Constant(RATE_PER_S)
    arguments = (engine.kafka.servers, "idle-in", load, WARM_S + seconds, Records(100, 0.0))
    sending = threading.Thread(target=generate, args=arguments, daemon=True)
    sending.start()
    watcher = Watcher(engine)
    try:
        time.sleep(WARM_S)
        before, began = cpu_s(), time.monotonic()
        with ExitStack() as ending:
            recorder = None if into is None else ending.enter_context(ParquetRecorder(into))
            while time.monotonic() - began < seconds:
                watcher.look(time.time())
                if recorder is not None:
                    recorder.write(watcher.observer.series.last)
                time.sleep(1.0)
        return (cpu_s() - before) / (time.monotonic() - began)
    finally:
        sending.join(60)
        engine.cancel(job.id)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, nargs="+", default=[2, 8, 16, 32])
    parser.add_argument("--seconds", type=float, default=25.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--into", type=Path)
    options = parser.parse_args()
    if options.into is not None:
        options.into.mkdir(parents=True, exist_ok=True)
    runs = [options.tasks[0]] + options.tasks * options.rounds
    held, used = [], []
    print(f"{'tasks':>6} {'cores':>6}")
    with tempfile.TemporaryDirectory() as folder:
        setup = Setup(f"local[{4 * max(options.tasks)}]", Path(folder), slots=64)
        with application(setup, [job_with(options.tasks[0])]) as engine:
            for i, tasks in enumerate(runs):
                job = replace(job_with(tasks), name=f"idle-{tasks}-{i}")
                into = options.into / f"{i}-{tasks}.parquet" if options.into and i else None
                busy = cores(engine, job, options.seconds, into)
                print(f"{tasks * len(job.operators):>6} {busy:>6.2f}{'' if i else '  warm-up'}")
                if i:
                    held.append(tasks * len(job.operators))
                    used.append(busy)
    slope, rest = np.polyfit(held, used, 1)
    print(f"a task costs {slope:.4f} of a core; everything else {rest:.2f} cores")


if __name__ == "__main__":
    main()
