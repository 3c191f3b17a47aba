"""A tenant whose records never end, and what its neighbour in the same application still gets."""

import argparse
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from bench.proofs.deployment import Deployment, await_that
from bench.proofs.topics import written_to
from bench.proofs.traffic import Load
from trilithon.engines.spark.kafka import Kafka
from trilithon.model.job import Job
from trilithon.spec.job_file import parse_job

ROGUE: Final = "rogue"
NEIGHBOUR: Final = "neighbour"
# Of its throughput the neighbour keeps at least this share.
KEPT: Final = 0.8
PARTITIONS: Final = 2
# The load of the neighbour, as a share of its capacity alone.
LOADED: Final = 0.9
BURST: Final = 6000
SETTLE_S: Final = 5.0
ENDS_S: Final = 180.0
LOWEST_NICE: Final = 19
ENDLESS_MS: Final = 1_000_000_000


def job_of(tenant: str, work_ms: float) -> Job:
    """Every record uses the CPU for so long, on two instances."""
    return parse_job(f"""
name: work
tenant: {tenant}
sources:
  - name: in
    options: {{subscribe: {tenant}-in, startingOffsets: earliest}}
    schema: {{n: BIGINT, sent: DOUBLE}}
    partitions: {PARTITIONS if tenant == NEIGHBOUR else 1}
operators:
  - name: busy
    input: in
    select: [n, sent]
    where: "work({work_ms}) >= 0"
    parallelism: {{initial: 2, max: 2}}
sinks:
  - {{name: out, input: busy, options: {{topic: {tenant}-out}}}}
""")


@dataclass(frozen=True, slots=True)
class Kept:
    """The neighbour's throughput before and beside the rogue."""

    capacity_per_s: float
    before_per_s: float
    during_per_s: float
    # Threads that had the lowest priority at the end.
    lowered_threads: int
    # When the rogue was failed, after its first record was sent.
    failed_after_s: float

    @property
    def share(self) -> float:
        return self.during_per_s / self.before_per_s

    @property
    def verdict(self) -> str:
        kept = "kept" if self.share >= KEPT else "not kept"
        return f"{self.share:.0%} of its throughput; the goal of {KEPT:.0%} is {kept}"

    def lines(self) -> dict[str, str]:
        return {
            "neighbour alone, most per s": f"{self.capacity_per_s:.1f}",
            "neighbour per s, before": f"{self.before_per_s:.1f}",
            "neighbour per s, beside the rogue": f"{self.during_per_s:.1f}",
            "threads at the lowest priority": f"{self.lowered_threads}",
            "the rogue failed after": f"{self.failed_after_s:.1f} s",
            "the neighbour keeps": self.verdict,
        }


def measure(
    deployment: Deployment, kafka: Kafka, processes: Sequence[int], options: argparse.Namespace
) -> Kept:
    """Both jobs run, and nothing was sent yet."""
    with ExitStack() as ending:
        written = ending.enter_context(written_to(kafka, f"{NEIGHBOUR}-out"))
        producer = Producer({**kafka.client, "log_level": 0})
        # The first records load classes and let code be compiled.
        capacity(producer, written)
        capacity_per_s = capacity(producer, written)
        load = Load(kafka, f"{NEIGHBOUR}-in", LOADED * capacity_per_s)
        ending.callback(load.stop)
        time.sleep(SETTLE_S)
        before = rate(written, options.seconds)
        began = time.monotonic()
        for number in range(2):
            producer.produce(f"{ROGUE}-in", f'{{"n": {number}, "sent": 0}}'.encode())
        assert producer.flush(30) == 0
        during = rate(written, options.seconds)
        lowered = sum(map(lowered_threads, processes))
        print(f"{before:.1f} records/s before, {during:.1f} beside the rogue", flush=True)
        await_that(
            "the rogue fails", lambda: deployment.states()[f"{ROGUE}/work"] == "failed", ENDS_S
        )
        return Kept(capacity_per_s, before, during, lowered, time.monotonic() - began)


def capacity(producer: Producer, written: Any) -> float:
    """Records per second while a backlog is worked off, without its first and last part."""
    first = written()
    for number in range(BURST):
        producer.produce(f"{NEIGHBOUR}-in", f'{{"n": {number}, "sent": 0}}'.encode())
    assert producer.flush(30) == 0
    await_that("the backlog begins", lambda: written() >= first + BURST // 5, ENDS_S)
    began, count = time.monotonic(), written()
    await_that("the backlog ends", lambda: written() >= first + BURST * 4 // 5, ENDS_S)
    per_s = (written() - count) / (time.monotonic() - began)
    await_that("all is written", lambda: written() >= first + BURST, ENDS_S)
    return float(per_s)


def rate(written: Any, seconds: float) -> float:
    began, count = time.monotonic(), written()
    time.sleep(seconds)
    return float((written() - count) / (time.monotonic() - began))


def lowered_threads(pid: int) -> int:
    """The threads of a process at the lowest priority."""
    lowered = 0
    # Threads and processes may end meanwhile.
    with suppress(OSError):
        for entry in list(Path(f"/proc/{pid}/task").iterdir()):
            with suppress(OSError):
                lowered += os.getpriority(os.PRIO_PROCESS, int(entry.name)) == LOWEST_NICE
    return lowered
