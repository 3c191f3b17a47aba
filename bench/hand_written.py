"""What the engine costs beside a query that was written by hand, measured in turns in one run.

    python -m bench.hand_written [--masters local cluster] [--workloads base64 ysb]
        [--queries plain staged trilithon open-gate] [--rounds 5] [--warm-rounds 1] [--rate 1000]
        [--seconds 20] [--warm-up 10] [--records 500000] [--set NAME=VALUE ...] [--into FILE]

`base64` is the query of Spark's own benchmark of real-time mode: Kafka, base64, Kafka, 5
partitions. `ysb` is the Yahoo streaming benchmark. `plain` is PySpark as one writes it; `staged` is
the same by hand with the engine's stages and rows as JSON, so that it tells what these cost from
what the engine adds; `trilithon` is the engine, and `open-gate` the engine without back-pressure.
On `cluster` two executors do the work, in one JVM on `local`.

One query runs at a time, on topics and checkpoints of its own, and the order is reversed in every
second round. A turn has a warm-up, a span without load, a span at `--rate` records/s and the drain
of a backlog of `--records`. Latency is counted from the producer's call to the consumer's poll, in
a process of its own. CPU is that of all JVMs of the application and of the engine's host, per
record above what the query uses without load, which is printed as `idle_cores`. The rate is that of
the whole drain, from its first row to its last: between two later rows it would be too high where
shuffles gather records before the last stage is up to speed. No batch ends in a turn, except where
the engine shortens batches while it works off a backlog. The first `--warm-rounds` do not count.

The table has means over the rounds. Differences are of pairs of one round, with their 95 %
interval. The goals: p50 at most 1 ms above `plain`, and at least 97 % of its rate. One is met or
missed if the whole interval is on one side of it, and otherwise not resolved, as always after one
round. Exit code 1 if a record is lost. With `--into`, results are kept in a file, and a second call
goes on where the first was interrupted. The defaults take about two hours. The short form
`--masters local --workloads base64 --queries plain trilithon --rounds 1 --warm-rounds 0 --seconds 4
--warm-up 4 --records 200000` takes about two minutes.
"""

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.boundary_phases import settings_of
from bench.growth import executor_processes
from bench.proofs import figures, turns
from bench.proofs.contestants import PARTITIONS, QUERIES, WORKLOADS, Contestant, started
from bench.proofs.paced_traffic import maker_of, send
from bench.proofs.results_file import ResultsFile
from bench.proofs.scene import KINDS, Scene, scene
from bench.proofs.usage import processes_cpu_s
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.session import driver_process

BASE: Final = "plain"
OURS: Final = "trilithon"
# On each of two executors, or twice as many in one JVM: room for the largest query twice, since
# tasks of the one before may still be ending.
CORES: Final = 24
DRAIN_S: Final = 300.0
SAMPLE_S: Final = 0.1
# A drain that is seen fewer times is too short for a rate.
LEAST_SAMPLES: Final = 5
P50_GOAL_MS: Final = 1.0
RATE_GOAL: Final = 0.97
ROWS: Final = {
    "p50_ms": ".2f",
    "p90_ms": ".2f",
    "p95_ms": ".2f",
    "p99_ms": ".2f",
    "max_ms": ".1f",
    "cpu_us_per_record": ".1f",
    "idle_cores": ".3f",
    "rate_per_s": ",.0f",
    "parked_s": ".2f",
    "lost": ".0f",
    "doubled": ".0f",
}
Round = dict[str, float | None]


class Backlog:
    """A topic full of records that every query drains from its beginning."""

    def __init__(self, around: Scene, workload: str, records: int) -> None:
        self.topic, self.records = around.topic(f"{workload}-backlog", PARTITIONS), records
        self.rows = _fill(around.kafka, self.topic, WORKLOADS[workload], records)


def _fill(kafka: Kafka, topic: str, kind: str, records: int) -> int:
    """Writes records, all of one event time: none is late in a later batch. Returns how many rows
    come of them.
    """
    settings = {"linger.ms": 20, "queue.buffering.max.messages": 2 * records, "log_level": 0}
    producer = Producer({**kafka.client, **settings})
    make, at_s, rows = maker_of(kind), time.time(), 0
    for number in range(records):
        value, made = make(number, at_s, at_s)
        producer.produce(topic, value, partition=number % PARTITIONS)
        rows += made
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
    return rows


class Turns:
    """The turns of a workload in one application."""

    def __init__(self, around: Scene, workload: str, options: argparse.Namespace) -> None:
        self.around, self.workload, self.options = around, workload, options
        self.backlog = Backlog(around, workload, options.records)
        self.count = 0

    def take(self, name: str) -> Round:
        """One turn of a query: at a steady rate, then with a backlog."""
        self.count += 1
        return {**self._steady(name), **self._drain(name)}

    def _steady(self, name: str) -> Round:
        options, kind, kafka = self.options, WORKLOADS[self.workload], self.around.kafka
        topics = self._topic("in"), self._topic("out")
        contestant = self._start(name, topics, "steady")
        cpu_s = self._meter(contestant)
        try:
            warm = send(kafka, kind, options.rate, options.warm_up, [topics])
            idle_cores = _cores(cpu_s, options.seconds / 2)
            traffic = send(kafka, kind, options.rate, options.seconds, [topics], cpu_s)
        finally:
            contestant.stop()
            self._delete(*topics)
        above_s = traffic.cpu_s - idle_cores * traffic.sending_s
        return {
            **traffic.quantiles_ms,
            "cpu_us_per_record": 1e6 * above_s / traffic.sent,
            "idle_cores": idle_cores,
            "lost": warm.lost + traffic.lost,
            "doubled": warm.doubled + traffic.doubled,
        }

    def _drain(self, name: str) -> Round:
        topics = self.backlog.topic, self._topic("drained")
        contestant = self._start(name, topics, "drain")
        try:
            samples = drained(self.around.kafka, topics[1], self.backlog.rows)
            parked_s = contestant.parked_s()
        finally:
            contestant.stop()
            self._delete(topics[1])
        rows_per_s = rate_of(samples, self.backlog.rows)
        share = self.backlog.records / self.backlog.rows
        return {
            "rate_per_s": None if rows_per_s is None else rows_per_s * share,
            "parked_s": parked_s,
        }

    def _start(self, name: str, topics: tuple[str, str], part: str) -> Contestant:
        folder = self.around.folder / f"{self.workload}-{self.count}-{part}"
        return started(name, self.around, self.workload, topics, folder)

    def _meter(self, contestant: Contestant) -> Callable[[], float]:
        """The CPU seconds of everything that runs the query."""
        application = str(self.around.spark.sparkContext.applicationId)
        driver = driver_process()
        assert driver is not None
        processes = [driver, *executor_processes(application)]
        return lambda: processes_cpu_s(processes) + contestant.host_cpu_s()

    def _topic(self, role: str) -> str:
        return self.around.topic(f"{self.workload}-{self.count}-{role}", PARTITIONS)

    def _delete(self, *topics: str) -> None:
        admin = AdminClient({**self.around.kafka.client, "log_level": 0})
        for deletion in admin.delete_topics(list(topics)).values():
            deletion.result(timeout=30)


def _cores(cpu_s: Callable[[], float], for_s: float) -> float:
    """How many cores are in use over some seconds."""
    before_s, began = cpu_s(), time.monotonic()
    time.sleep(for_s)
    return (cpu_s() - before_s) / (time.monotonic() - began)


def drained(kafka: Kafka, topic: str, rows: int) -> list[tuple[float, int]]:
    """When the topic had how many rows, until it has all of them or time is up."""
    consumer = Consumer({**kafka.client, "group.id": "nobody", "log_level": 0})
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    samples = [(time.monotonic(), 0)]
    deadline = time.monotonic() + DRAIN_S
    try:
        while samples[-1][1] < rows and time.monotonic() < deadline:
            time.sleep(SAMPLE_S)
            written = sum(consumer.get_watermark_offsets(place, timeout=30)[1] for place in places)
            samples.append((time.monotonic(), written))
    finally:
        consumer.close()
    return samples


def rate_of(samples: Sequence[tuple[float, int]], rows: int) -> float | None:
    """Rows per second from the first to the last; None if they did not all come, or too fast to
    tell.
    """
    flowing = [(at, count) for at, count in samples if count]
    if len(flowing) < LEAST_SAMPLES or flowing[-1][1] < rows:
        return None
    (began, before), (ended, after) = flowing[0], flowing[-1]
    return (after - before) / (ended - began)


def compare(around: Scene, workload: str, options: argparse.Namespace) -> dict[str, list[Round]]:
    """The rounds that count, by query."""
    taking = Turns(around, workload, options)
    rounds: dict[str, list[Round]] = {name: [] for name in options.queries}
    for number in range(options.warm_rounds + options.rounds):
        for name in turns.in_turn(options.queries, number):
            measured = taking.take(name)
            print(json.dumps({"round": number, "query": name, **measured}), flush=True)
            if number >= options.warm_rounds:
                rounds[name].append(measured)
    return rounds


def verdicts(rounds: Mapping[str, Sequence[turns.Measured]]) -> dict[str, str]:
    """The engine beside the plain query, with the goals."""
    if not {BASE, OURS} <= rounds.keys():
        return {}
    ours, base = rounds[OURS], rounds[BASE]
    lines = {}
    if (p50_ms := turns.difference(ours, base, "p50_ms")) is not None:
        verdict = p50_ms.at_most(P50_GOAL_MS)
        text = p50_ms.text("+.2f", " ms")
        lines["p50 above plain"] = f"{text}, goal +{P50_GOAL_MS:g} ms: {verdict}"
    if (share := turns.ratio(ours, base, "rate_per_s")) is not None:
        verdict = share.at_least(RATE_GOAL)
        lines["rate of plain's"] = f"{share.text('.1%')}, goal {RATE_GOAL:.0%}: {verdict}"
    if (cpu := turns.difference(ours, base, "cpu_us_per_record")) is not None:
        lines["CPU above plain"] = cpu.text("+.1f", " µs per record")
    return lines


def measure(options: argparse.Namespace) -> dict[str, dict[str, list[Round]]]:
    """By master and workload, the rounds of each query."""
    results = ResultsFile(options.into)
    for kind in options.masters:
        titles = {f"{workload}, {kind}": workload for workload in options.workloads}
        if all(title in results for title in titles):
            continue
        with scene(kind, cores=CORES, settings=settings_of(options.set)) as around:
            # A stopped query logs that its shuffles are gone; whoever stops it has real failures.
            around.spark.sparkContext.setLogLevel("OFF")
            for title, workload in titles.items():
                if title not in results:
                    results.put(title, compare(around, workload, options))
    return results.results


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--masters", nargs="+", default=["local", "cluster"], choices=KINDS)
    workloads = list(WORKLOADS)
    arguments.add_argument("--workloads", nargs="+", default=workloads, choices=workloads)
    arguments.add_argument("--queries", nargs="+", default=list(QUERIES), choices=QUERIES)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--warm-rounds", type=int, default=1)
    arguments.add_argument("--rate", type=float, default=1000.0)
    arguments.add_argument("--seconds", type=float, default=20.0)
    arguments.add_argument("--warm-up", type=float, default=10.0)
    arguments.add_argument("--records", type=int, default=500_000)
    arguments.add_argument("--set", nargs="*", default=[], help="Spark settings, name=value")
    arguments.add_argument("--into", type=Path, help="a file that keeps results")
    return arguments


def main() -> None:
    # What was started ends also if somebody ends this program.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    results = measure(parser().parse_args())
    for title, rounds in results.items():
        figures.show(title, {**turns.side_by_side(rounds, ROWS), **verdicts(rounds)})
    figures.emit("hand_written", results)
    every = [one for rounds in results.values() for turn in rounds.values() for one in turn]
    if lost := sum(one["lost"] or 0 for one in every):
        sys.exit(f"{lost:.0f} records are lost")
    if any(one["rate_per_s"] is None for one in every):
        sys.exit("a backlog was not drained in time, or is too small for a rate: give --records")


if __name__ == "__main__":
    main()
