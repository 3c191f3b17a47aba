"""What the probes cost in CPU per record and p50: one query with and without them (A B B A).

    python -m bench.probe_cost [--blocks 10] [--seconds 8] [--rate 3000]

Both queries run all the time in one JVM, reader → A → B with two tasks each and no work; the load
goes to one query, then to the other. Each block begins with a span without load, whose CPU is
subtracted. A block gives two pairs; the result is the mean of their differences with its 95 %
interval (Student's t). "Not resolved" means that the interval contains 0. The short form
`--blocks 2 --seconds 4` takes a minute and a half and resolves nothing.
"""

import argparse
import json
import math
import time
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from confluent_kafka import Producer
from scipy import stats

from bench.proofs import figures
from bench.proofs.chain import line, run
from bench.proofs.control import first
from bench.proofs.scene import Scene, scene
from bench.proofs.traffic import Outlet
from trilithon.engines.spark.kafka import Kafka

TASKS = 2
QUERIES = ("with", "without")
TICKS_PER_S = 100  # the unit of /proc/PID/stat
SETTLE_S = 1.0


class Feeder:
    """Sends to one topic or the other at a steady rate, or to none."""

    def __init__(self, kafka: Kafka, rate_per_s: float) -> None:
        self.rate_per_s, self.sent = rate_per_s, 0
        self._producer = Producer({**kafka.client, "linger.ms": 0, "log_level": 0})

    def feed(self, topic: str, for_s: float) -> int:
        """Sends for a while; returns the number of records."""
        began, sent = time.monotonic(), 0
        while (now := time.monotonic()) < began + for_s:
            for _ in range(int((now - began) * self.rate_per_s) - sent):
                value = json.dumps({"n": self.sent, "sent": time.time()})
                self._producer.produce(topic, value.encode())
                self.sent, sent = self.sent + 1, sent + 1
            self._producer.poll(0.002)
        assert self._producer.flush(30) == 0
        return sent


class Measurer:
    """CPU of the JVM and latencies of a span of load."""

    def __init__(self, around: Scene, options: argparse.Namespace) -> None:
        jvm: Any = around.spark._jvm  # noqa: SLF001 - for its process id
        self.pid = int(jvm.java.lang.ProcessHandle.current().pid())
        self.feeder = Feeder(around.kafka, options.rate)
        self.outlets = {name: Outlet(around.kafka, f"{name}-out") for name in QUERIES}
        self.seconds = options.seconds

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def idle_per_s(self) -> float:
        before, began = self.cpu_s(), time.monotonic()
        time.sleep(self.seconds / 2)
        return (self.cpu_s() - before) / (time.monotonic() - began)

    def span(self, name: str, idle_per_s: float) -> tuple[float, float]:
        """CPU µs per record above idling, and p50 in ms."""
        began, before = time.time(), self.cpu_s()
        sent = self.feeder.feed(f"{name}-in", self.seconds)
        time.sleep(SETTLE_S)  # for the records in flight
        took_s = time.time() - began
        cpu_us = 1e6 * (self.cpu_s() - before - idle_per_s * took_s) / sent
        latencies = [a.latency_s for a in self.outlets[name].since(began)]
        assert len(latencies) == sent, f"{sent} records were sent, {len(latencies)} came out"
        return cpu_us, 1000 * (figures.quantile(latencies, 0.5) or math.nan)

    def close(self) -> None:
        for outlet in self.outlets.values():
            outlet.stop()


def measure(options: argparse.Namespace) -> dict[str, Any]:
    with scene("local", cores=8) as around:
        around.spark.sparkContext.setLogLevel("OFF")
        for name in QUERIES:
            topics = (around.topic(f"{name}-in"), around.topic(f"{name}-out"))
            operators = {"A": "length(v) > 0", "B": "length(v) > 0"}
            job = line(name, operators, TASKS, topics)
            for operator in operators:
                around.control.use(job.id, operator, first(TASKS, TASKS))
            run(around, job, probed=name == "with")
        measurer = Measurer(around, options)
        try:
            for name in QUERIES * 2:  # warm-up of the JIT
                measurer.feeder.feed(f"{name}-in", 2 * options.seconds)
            return compare(measurer, options.blocks)
        finally:
            measurer.close()


def compare(measurer: Measurer, blocks: int) -> dict[str, Any]:
    spans: dict[str, list[tuple[float, float]]] = {name: [] for name in QUERIES}
    for block in range(blocks):
        idle_per_s = measurer.idle_per_s()
        order = (*QUERIES, *reversed(QUERIES))
        for name in order if block % 2 == 0 else (*order[2:], *order[:2]):
            spans[name].append(measurer.span(name, idle_per_s))
    result: dict[str, Any] = {"pairs": len(spans["with"])}
    for i, what in enumerate(("cpu_us_per_record", "p50_ms")):
        ours, plain = ([span[i] for span in spans[name]] for name in QUERIES)
        result[what] = {"with": round(mean(ours), 2), "without": round(mean(plain), 2)}
        result[f"{what}_difference"] = interval(
            [a - b for a, b in zip(ours, plain, strict=True)], mean(plain)
        )
    return result


def interval(differences: list[float], base: float) -> dict[str, Any]:
    """The mean difference with its 95 % interval, also in percent, and whether it excludes 0."""
    centre, n = mean(differences), len(differences)
    half = float(stats.t.ppf(0.975, n - 1)) * stdev(differences) / math.sqrt(n)
    return {
        "mean": round(centre, 2),
        "from": round(centre - half, 2),
        "to": round(centre + half, 2),
        "percent": [
            round(100 * value / base, 1) for value in (centre - half, centre, centre + half)
        ],
        "verdict": "resolved" if abs(centre) > half else "not resolved",
    }


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--blocks", type=int, default=10)
    arguments.add_argument("--seconds", type=float, default=8.0)
    arguments.add_argument("--rate", type=float, default=3000.0)
    options = arguments.parse_args()
    result = measure(options)
    figures.show("the probes' cost", result)
    figures.emit("probe_cost", result)


if __name__ == "__main__":
    main()
