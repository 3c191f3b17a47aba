"""When a flush time of the shuffle takes effect, and what it and Kafka's waits cost.

    python -m bench.proof_flush_time [--parts flush waits] [--master local] [--flush 5 50 1 20 5]
        [--rate 1000] [--seconds 15] [--warm-up 30]

reader → A → B → C → sink. `flush` gives the executors one flush time after the other, while the job
runs: each is measured first in the batch that is running, then in the next one, which is begun
early for that. `waits` starts the job with other waits of Kafka's clients, one after the other.
Latency is counted from the producer's call to the consumer's poll, time per hop by the probe. CPU
is that of the JVMs that run tasks. The short form `--flush 5 50 --seconds 5 --warm-up 5` takes a
minute per part.
"""

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.growth import executor_processes
from bench.proofs import figures
from bench.proofs.chain import line, run
from bench.proofs.control import first
from bench.proofs.hops import Hops
from bench.proofs.scene import KINDS, Scene, scene
from bench.proofs.traffic import Outlet, traffic
from trilithon.engines.spark.flush_time import LEAST_FLUSH_MS
from trilithon.model.job import Job, Sink

TASKS = 2
OPERATORS = ("A", "B", "C")
TICKS_PER_S = 100  # the unit of /proc/PID/stat
# Client settings of the source and of the sink. A fetch is answered at once unless it has to gather
# a number of bytes: only then does its longest wait delay records.
WAITS: Mapping[str, tuple[dict[str, str], dict[str, str]]] = {
    "as Kafka sets them": ({}, {}),
    "linger 20 ms": ({}, {"kafka.linger.ms": "20"}),
    "fetch at most 20 ms": ({"kafka.fetch.max.wait.ms": "20"}, {}),
    "fetch 20 ms or 64 KiB": (
        {"kafka.fetch.max.wait.ms": "20", "kafka.fetch.min.bytes": "65536"},
        {},
    ),
}


@dataclass
class Meter:
    """Measures a span of a running job."""

    around: Scene
    job: str
    outlet: Outlet
    seconds: float

    def measure(self) -> dict[str, Any]:
        time.sleep(2)  # the reports that are on their way
        began, cpu_s, hops = time.time(), self._cpu_s(), self._hops()
        time.sleep(self.seconds)
        ended, used_s, later = time.time(), self._cpu_s() - cpu_s, self._hops()
        latencies = [arrival.latency_s for arrival in self.outlet.since(began, ended)]
        return {
            "records/s": round(len(latencies) / (ended - began)),
            "p50_ms": figures.quantile_ms(latencies, 0.5),
            "p95_ms": figures.quantile_ms(latencies, 0.95),
            "hop_ms": later.mean_ms_since(hops),
            "cores": round(used_s / (ended - began), 2),
            "cpu_us_per_record": round(1e6 * used_s / len(latencies)) if latencies else None,
        }

    def _hops(self) -> Hops:
        return Hops.into(self.around.control.totals(self.job), OPERATORS)

    def _cpu_s(self) -> float:
        spark = self.around.spark
        jvm: Any = spark._jvm  # noqa: SLF001 - for its process id
        pids = [int(jvm.java.lang.ProcessHandle.current().pid())]
        if self.around.kind != "local":
            pids = executor_processes(str(spark.sparkContext.applicationId))
        fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
        return sum(int(field[11]) + int(field[12]) for field in fields) / TICKS_PER_S


def job_of(around: Scene, name: str) -> tuple[Job, tuple[str, str]]:
    topics = (around.topic(f"{name}-in"), around.topic(f"{name}-out"))
    job = line(name, dict.fromkeys(OPERATORS, "length(v) > 0"), TASKS, topics)
    for operator in OPERATORS:
        around.control.use(job.id, operator, first(TASKS, TASKS))
    return job, topics


def begin_next_batch(around: Scene, job: str) -> None:
    control, before = around.control, around.control.batch(job)
    control.end_batch(job, before)
    while control.batch(job) == before or control.running_tasks(job, OPERATORS[-1]) < TASKS:
        time.sleep(0.1)


def flush_times(around: Scene, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Each flush time in the running batch, and in the next one."""
    job, topics = job_of(around, "flush")
    query = run(around, job).query
    rows = []
    with traffic(around.kafka, topics, options.rate) as (_, outlet):
        meter = Meter(around, job.id, outlet, options.seconds)
        time.sleep(options.warm_up)
        for flush_ms in options.flush:
            around.control.set_flush_time(flush_ms)
            time.sleep(1)  # several exchanges
            current = around.control.flush_times()
            assert set(current.values()) == {flush_ms}, current
            for batch in ("running", "next"):
                if batch == "next":
                    begin_next_batch(around, job.id)
                rows.append({"flush_ms": flush_ms, "batch": batch, **meter.measure()})
                figures.show(f"{flush_ms} ms, in the {batch} batch", rows[-1])
        assert query.exception() is None, query.exception()
    query.stop()
    return rows


def kafka_waits(around: Scene, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Waits of Kafka's clients, each with a query of its own."""
    rows = []
    around.control.set_flush_time(LEAST_FLUSH_MS)  # what Kafka adds stands out
    for number, (title, (reading, writing)) in enumerate(WAITS.items()):
        job, topics = job_of(around, f"waits{number}")
        (source,), (sink,) = job.sources, job.sinks
        job = replace(
            job,
            sources=(replace(source, options=(*source.options, *reading.items())),),
            sinks=(Sink(sink.name, (*sink.options, *writing.items())),),
        )
        query = run(around, job).query
        with traffic(around.kafka, topics, options.rate) as (_, outlet):
            meter = Meter(around, job.id, outlet, options.seconds)
            # The first one warms the JVM up for all.
            time.sleep(options.warm_up if number == 0 else options.warm_up / 3)
            rows.append({"waits": title, **meter.measure()})
            figures.show(title, rows[-1])
            assert query.exception() is None, query.exception()
        query.stop()
    return rows


PARTS = {"flush": flush_times, "waits": kafka_waits}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--master", choices=KINDS, default="local")
    parser.add_argument("--flush", type=int, nargs="+", default=[5, 50, 1, 20, 5])
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--warm-up", type=float, default=30.0)
    options = parser.parse_args()
    with scene(options.master, cores=2 * TASKS * len(OPERATORS)) as around:
        results = {part: PARTS[part](around, options) for part in options.parts}
    figures.emit("flush_time", results)


if __name__ == "__main__":
    main()
