"""The clock is set by an hour under load, or a producer's is ahead: what jobs and figures do.

    python -m bench.clock_steps [--master local] [--rate 200] [--seconds 25] [--warm-up 20]
        [--step 3600] [--ahead 5]

A chain, one of whose four partitions is always empty, and a Diamond, whose parts are linked by
topics, get records at a steady rate while the wall clock of everything (broker, JVM, engine,
producers, consumers) is set: forwards by `--step` seconds, back, back once more, and forwards. In
the last phase the records' timestamps lie `--ahead` seconds in the future. The machine's own clock
is left alone: a small library that needs a C compiler is preloaded (`proofs/settable_clock.py`).
Rates, gaps and the latencies of the outlet are measured by the steady clock, from the moment of the
step on. `shown` is what the engine shows of the last ten seconds at the end of the phase, `marks`
what it ever said about it. Exit code 1 if fewer than 95 % of a phase's records came in or out
within it, if a record was lost, if a figure was negative or longer than the run, or if the figures
after a step or of records from the future were not marked.
"""

import argparse
import json
import os
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from confluent_kafka import Producer

from bench import diamond, restarts
from bench.proofs import figures
from bench.proofs.scene import KINDS, Scene, scene
from bench.proofs.settable_clock import SettableClock, has_settable_clock, settable_clock
from bench.proofs.traffic import reader_of
from trilithon.contract.engine import Status
from trilithon.contract.watch import Watcher
from trilithon.engines.spark import broker
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.masters import max_tasks
from trilithon.engines.spark.session import driver_process
from trilithon.model.allocation import initial
from trilithon.model.job import Job

MODULE: Final = "bench.clock_steps"
LEAST_SHARE: Final = 0.95
# The mark of figures without the records whose timestamps are of the future.
AHEAD: Final = "in the future"
LOOK_EVERY_S: Final = 0.5
DRAIN_S: Final = 60.0
TASKS: Final = 2


class Flow:
    """The load of a job, whose records have timestamps of the wall clock, and what comes out. Each
    arrival is noted with its number, its time and its latency by the steady clock.
    """

    def __init__(
        self, around: Scene, job: Job, topics: tuple[str, str], rate_per_s: float, used: int
    ) -> None:
        self.job, self._topics, self._rate_per_s, self._used = job, topics, rate_per_s, used
        self.ahead_s = 0.0
        self.sent: list[float] = []
        self.arrivals: dict[int, tuple[float, float]] = {}
        self.doubled = 0
        self._producer = Producer(
            {**around.kafka.client, "linger.ms": 0, "log_level": 0, "message.timeout.ms": 0}
        )
        self._consumer = reader_of(around.kafka, topics[1])
        self._ending, self._stop = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=run, daemon=True) for run in (self._send, self._receive)
        ]
        for thread in self._threads:
            thread.start()

    def _send(self) -> None:
        began = time.monotonic()
        while not self._ending.is_set():
            now, number = time.monotonic(), len(self.sent)
            wait_s = began + number / self._rate_per_s - now
            if wait_s > 0:
                time.sleep(wait_s)
                continue
            value = json.dumps({"n": number, "sent": now}).encode()
            stamp_ms = round(1000 * (time.time() + self.ahead_s))
            self._producer.produce(
                self._topics[0], value, partition=number % self._used, timestamp=stamp_ms
            )
            self._producer.poll(0)
            self.sent.append(now)

    def _receive(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.1)
            value = None if message is None or message.error() else message.value()
            if value is None:
                continue
            now, record = time.monotonic(), json.loads(value)
            if record["n"] in self.arrivals:
                self.doubled += 1
            else:
                self.arrivals[record["n"]] = (now, now - record["sent"])

    def out_of(self, began_s: float, ended_s: float) -> list[tuple[float, float]]:
        """The times and latencies of the arrivals in a span."""
        return [a for a in list(self.arrivals.values()) if began_s <= a[0] < ended_s]

    def sent_in(self, began_s: float, ended_s: float) -> int:
        return bisect_left(self.sent, ended_s) - bisect_left(self.sent, began_s)

    def end(self, copies: int) -> int:
        """Stops; returns how many records never came out."""
        self._ending.set()
        self._threads[0].join()
        assert self._producer.flush(30) == 0
        return copies * len(self.sent) - len(self.arrivals)

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._consumer.close()


@dataclass
class Shown:
    """What an engine showed of a job in a phase."""

    last: dict[str, Any] = field(default_factory=dict)
    marks: set[str] = field(default_factory=set)
    negative: int = 0
    impossible: int = 0
    looks: int = 0
    without: int = 0

    def add(self, job: dict[str, Any], most_ms: float) -> None:
        latencies = [job[name] for name in ("p50_ms", "p95_ms") if job.get(name) is not None]
        self.last = {name: job.get(name) for name in ("output_per_s", "p50_ms", "p95_ms", "lag")}
        # Without the numbers in them marks of one kind are alike.
        self.marks |= {"".join(c for c in mark if not c.isdigit()) for mark in job["marks"]}
        self.negative += sum(ms < 0 for ms in latencies)
        self.impossible += sum(ms > most_ms for ms in latencies)
        self.looks += 1
        self.without += not latencies


@dataclass
class Bench:
    """Jobs under load, and an engine that is asked for reports and figures as a host asks it."""

    clock: SettableClock
    engine: SparkEngine
    flows: Sequence[Flow]
    copies: Sequence[int]
    began_s: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.watcher = Watcher(self.engine)

    def look_for(self, seconds: float) -> dict[str, Shown]:
        shown = {flow.job.id: Shown() for flow in self.flows}
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for job in self.watcher.look(time.time()):
                shown[job["job"]].add(job, 1000 * (time.monotonic() - self.began_s))
            time.sleep(LOOK_EVERY_S)
        return shown

    def phase(self, offset_s: float, ahead_s: float, seconds: float) -> dict[str, dict[str, Any]]:
        for flow in self.flows:
            flow.ahead_s = ahead_s
        began_s = time.monotonic()
        self.clock.set(offset_s)
        shown = self.look_for(seconds)
        return {
            flow.job.name: self._result(flow, copies, began_s, shown[flow.job.id])
            for flow, copies in zip(self.flows, self.copies, strict=True)
        }

    def _result(self, flow: Flow, copies: int, began_s: float, shown: Shown) -> dict[str, Any]:
        ended_s = time.monotonic()
        span_s, arrived = ended_s - began_s, flow.out_of(began_s, ended_s)
        due = flow._rate_per_s * span_s  # noqa: SLF001 - a part of this module
        sent = flow.sent_in(began_s, ended_s)
        times = [began_s, *sorted(at for at, _ in arrived), ended_s]
        latencies = [latency for _, latency in arrived]
        return {
            "in_per_s": round(sent / span_s, 1),
            "out_per_s": round(len(arrived) / span_s, 1),
            "share_in": round(sent / due, 3),
            "share_out": round(len(arrived) / copies / due, 3),
            "largest_gap_ms": round(1000 * max(b - a for a, b in pairwise(times))),
            "p50_ms": figures.quantile_ms(latencies, 0.5),
            "p95_ms": figures.quantile_ms(latencies, 0.95),
            "shown": {
                name: None if value is None else round(value, 1)
                for name, value in shown.last.items()
            },
            "negative_figures": shown.negative,
            "impossible_figures": shown.impossible,
            "looks": shown.looks,
            "looks_without_latency": shown.without,
            "marks": sorted(shown.marks),
            "doubled_so_far": flow.doubled,
            "state": self.engine.conditions()[flow.job.id].health.value,
        }


def failures(title: str, job: str, result: dict[str, Any], mark: str) -> list[str]:
    """What a phase must not have done to a job."""
    failed = [
        f"{name} {result[name]:.3f}"
        for name in ("share_in", "share_out")
        if result[name] < LEAST_SHARE
    ]
    failed += [
        f"{result[name]} {name.replace('_', ' ')}"
        for name in ("negative_figures", "impossible_figures")
        if result[name]
    ]
    # A record from the future has no latency.
    if mark != AHEAD and result["looks_without_latency"] == result["looks"]:
        failed.append("no latency shown")
    if mark and not any(mark in given for given in result["marks"]):
        failed.append("figures not marked")
    return [f"{title}, {job}: {text}" for text in failed]


def phases(options: argparse.Namespace) -> list[tuple[str, float, float, str]]:
    """The title, the offset of the clock, that of the producers, and the mark that is expected."""
    step, was_set = options.step, "The clock was set"
    return [
        ("no step", 0.0, 0.0, ""),
        (f"set forwards by {step:g} s", step, 0.0, was_set),
        (f"set back by {step:g} s", 0.0, 0.0, was_set),
        (f"set back by {step:g} s again", -step, 0.0, was_set),
        (f"set forwards by {step:g} s again", 0.0, 0.0, was_set),
        (f"producers {options.ahead:g} s ahead", 0.0, options.ahead, AHEAD),
    ]


def jobs_of(around: Scene) -> list[tuple[Job, tuple[str, str], int, int]]:
    """Each job with its topics, the partitions that get records, and the records that come out for
    one that comes in.
    """
    chain = (around.topic("chain-in", restarts.PARTITIONS), around.topic("chain-out"))
    two_ways = (around.topic("diamond-in", diamond.PARTITIONS), around.topic("diamond-out"))
    return [
        (restarts.job_of(*chain), chain, restarts.PARTITIONS - 1, 1),
        (diamond.job_of("diamond", *two_ways, TASKS), two_ways, diamond.PARTITIONS, 2),
    ]


def run(clock: SettableClock, options: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    with ExitStack() as ending:
        around = ending.enter_context(scene(options.master, cores=20))
        spark = around.spark
        spark.sparkContext.setLogLevel("OFF")
        check_clock(around, clock)
        engine = SparkEngine(
            spark, around.kafka, around.folder / "engine", tasks=lambda: max_tasks(spark), slots=40
        )
        ending.callback(engine.close)
        specs, flows = jobs_of(around), []
        for job, topics, used, _ in specs:
            outcome = engine.submit(job, initial(job))
            assert outcome.status is Status.DONE, outcome.message
            flows.append(Flow(around, job, topics, options.rate, used))
            ending.callback(flows[-1].close)
        bench = Bench(clock, engine, flows, [copies for *_, copies in specs])
        bench.look_for(options.warm_up)
        results: dict[str, Any] = {}
        failed: list[str] = []
        for title, offset_s, ahead_s, mark in phases(options):
            results[title] = bench.phase(offset_s, ahead_s, options.seconds)
            for job, result in results[title].items():
                figures.show(f"{title}: {job}", result)
                failed += failures(title, job, result, mark)
        results["at the end"] = balance(bench)
        figures.show("at the end", results["at the end"])
        failed += [
            f"{job}: {r['lost']} lost" for job, r in results["at the end"].items() if r["lost"]
        ]
        return results, failed


def balance(bench: Bench) -> dict[str, dict[str, int]]:
    """What was sent, lost and doubled, when all had time to come out."""
    flows = list(zip(bench.flows, bench.copies, strict=True))
    lost = [flow.end(copies) for flow, copies in flows]
    until = time.monotonic() + DRAIN_S
    while any(lost) and time.monotonic() < until:
        bench.look_for(1.0)
        lost = [flow.end(copies) for flow, copies in flows]
    return {
        flow.job.name: {"sent": len(flow.sent), "lost": missing, "doubled": flow.doubled}
        for (flow, _), missing in zip(flows, lost, strict=True)
    }


def check_clock(around: Scene, clock: SettableClock) -> None:
    """The clock can be set in this process, in the JVM and in the broker."""
    jvm: Any = around.spark._jvm  # noqa: SLF001 - the driver's own clock
    java = jvm.java.lang.System
    before_s, before_steady_s = time.time(), time.monotonic()
    clock.set(100.0)
    ours_s = time.time() - before_s - (time.monotonic() - before_steady_s)
    javas_s = java.currentTimeMillis() / 1000 - time.time()
    clock.set(0.0)
    assert abs(ours_s - 100) < 1, f"this process sees a step of {ours_s:.1f} s, not of 100 s"
    assert abs(javas_s) < 10, f"the JVM's clock is {javas_s:.1f} s off"
    processes = {os.getpid(), driver_process(), broker.status(around.folder / "broker").pid}
    assert all(pid is not None and has_settable_clock(pid) for pid in processes)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--master", default="local", choices=KINDS)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=25.0)
    parser.add_argument("--warm-up", type=float, default=20.0)
    parser.add_argument("--step", type=float, default=3600.0)
    parser.add_argument("--ahead", type=float, default=5.0)
    options = parser.parse_args()
    with settable_clock(MODULE) as clock:
        results, failed = run(clock, options)
    figures.emit("clock_steps", results)
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
