"""A Diamond under load: its latency across two cuts, beside a chain of as many operators.

    python -m bench.diamond [--master local] [--rate 500] [--seconds 60] [--warm-up 30] [--tasks 2]
        [--kill | --kill-host]

reader → split → (left, right) → merge → sink: four queries, linked by four internal topics; every
record arrives twice, with its number n on the left and with -1 - n on the right. The chain has the
same operators one after the other, in one query. Latency is counted from the producer's call to
the consumer's poll; `shuffle_ms` and `cut_ms` are means of the probe: from one operator to the
next, and from the writer of an internal topic to its reader, from where a shuffle follows. `--kill`
adds a kill -9 of an executor under the Diamond's load (`--master cluster`), or the end of its
queries in the middle of a batch (`local`), and counts what was lost, written again into the cuts,
and doubled at the sink. `--kill-host` runs the Diamond alone, under a daemon as users start it, and
kills the host's process with its JVM. The short form `--seconds 5 --warm-up 5` takes a minute. Exit
code 1 if a record is lost.
"""

import argparse
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.growth import executor_processes
from bench.proofs import figures
from bench.proofs.deployment import await_that, deployed
from bench.proofs.hops import Hops
from bench.proofs.scene import KINDS, Scene, make_topic, scene, temporary_folder
from bench.proofs.traffic import Load, Outlet, traffic
from trilithon.contract.engine import Status
from trilithon.engines.spark.broker import EmbeddedBroker
from trilithon.engines.spark.cuts import PartJob
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.kafka import topics as partitions_of
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

PARTITIONS = 2
QUIET_S = 3.0
# What was under way when a host died has arrived by then, and no new host is that soon.
NEW_HOST_S = 2.0
COLUMNS = ("n", "sent")
OTHER_SIDE = ("-1 - n AS n", "sent")


def job_of(shape: str, source: str, sink: str, tasks: int) -> Job:
    """The Diamond, or the chain of the same operators."""
    edges = {
        "diamond": [("split", "left"), ("split", "right"), ("left", "merge"), ("right", "merge")],
        "chain": [("split", "left"), ("left", "right"), ("right", "merge")],
    }[shape]
    wide = Parallelism(1, 1, tasks, HeldTasks.ALL)
    return Job(
        tenant="bench",
        name=shape,
        sources=(
            Source(
                "in",
                (Field("n", "BIGINT"), Field("sent", "DOUBLE")),
                (("subscribe", source), ("startingOffsets", "earliest")),
                PARTITIONS,
            ),
        ),
        operators=(
            Operator("split", Work(where="n >= 0"), wide),
            Operator("left", Work(select=COLUMNS), wide),
            Operator("right", Work(select=OTHER_SIDE if shape == "diamond" else COLUMNS), wide),
            Operator("merge", Work(select=COLUMNS), wide),
        ),
        edges=(Edge("in", "split"), *(Edge(a, b) for a, b in edges), Edge("merge", "out")),
        sinks=(Sink("out", (("topic", sink),)),),
        batch_s=600,
    )


def run(around: Scene, shape: str, options: argparse.Namespace) -> dict[str, Any]:
    topics = (around.topic(f"{shape}-in", PARTITIONS), around.topic(f"{shape}-out"))
    spark = around.spark
    engine = SparkEngine(
        spark, around.kafka, around.folder / shape, tasks=lambda: max_tasks(spark), slots=40
    )
    job = job_of(shape, *topics, options.tasks)
    began = time.monotonic()
    outcome = engine.submit(job, initial(job))
    assert outcome.status is Status.DONE, outcome.message
    result: dict[str, Any] = {"start_s": round(time.monotonic() - began, 1)}
    with traffic(around.kafka, topics, options.rate) as (load, outlet):
        poll_reports(engine, options.warm_up)
        measured_s, first, hops = time.time(), load.sent, hops_of(engine)
        poll_reports(engine, options.seconds)
        spent_s = time.time() - measured_s
        seconds = [a.latency_s for a in outlet.since(measured_s)]
        result |= {
            "tasks": sum(entry.tasks for entry in engine.ledger.entries.values()),
            "rate_per_s": round((load.sent - first) / spent_s),
            "p50_ms": figures.quantile_ms(seconds, 0.5),
            "p90_ms": figures.quantile_ms(seconds, 0.9),
            "p99_ms": figures.quantile_ms(seconds, 0.99),
            **{name: hop.mean_ms_since(hops[name]) for name, hop in hops_of(engine).items()},
        }
        if options.kill and shape == "diamond":
            result |= killed(around, engine, outlet)
        result |= balance(lambda for_s: poll_reports(engine, for_s), load, outlet, shape)
    if shape == "diamond":
        result["written_again_in_cuts"] = written_again(around, engine, job, result["sent"])
    engine.cancel(job.id)
    return result


def hops_of(engine: SparkEngine) -> dict[str, Hops]:
    """The way over the shuffle, and the way from the writer of an internal topic to its reader."""
    parts = [managed.job for managed in list(engine.managed.values())]
    cuts = {name for part in parts if isinstance(part, PartJob) for name in part.reads}
    operators = {operator.name for part in parts for operator in part.operators}
    totals = [instance for part in parts for instance in engine.control.totals(part.id)]
    return {"shuffle_ms": Hops.into(totals, operators), "cut_ms": Hops.into(totals, cuts)}


def killed(around: Scene, engine: SparkEngine, outlet: Outlet) -> dict[str, Any]:
    """Kills an executor, or ends all queries in the middle of a batch; the longest time without
    output.
    """
    at = time.time()
    if around.kind == "local":
        for managed in list(engine.managed.values()):
            assert managed.running is not None
            managed.running.query.stop()
    else:
        os.kill(executor_processes(engine.spark.sparkContext.applicationId)[0], signal.SIGKILL)
    poll_reports(engine, 45)
    return {"killed": around.kind, "longest_gap_s": round(outlet.largest_gap_s(at, time.time()), 1)}


def host_killed(options: argparse.Namespace) -> dict[str, Any]:
    """Kills the host of a daemon under the Diamond's load."""
    with temporary_folder() as name, EmbeddedBroker.start(Path(name) / "broker") as broker:
        folder, kafka = Path(name), Kafka(broker.address)
        topics = ("host-in", "host-out")
        for topic in topics:
            make_topic(kafka, topic, PARTITIONS)
        job = job_of("diamond", *topics, options.tasks)
        with deployed(folder / "state", "--kafka", kafka.servers) as deployment:
            deployment.submit([job])
            with traffic(kafka, topics, options.rate) as (load, outlet):
                await_that("records flow", lambda: len(outlet.arrivals) > 100, 60)
                time.sleep(options.warm_up)
                before, killed_s = deployment.host, time.time()
                os.kill(before, signal.SIGKILL)
                await_that("records flow", lambda: outlet.since(killed_s + NEW_HOST_S) != [], 180)
                time.sleep(options.seconds)
                gap_s = round(outlet.largest_gap_s(killed_s, time.time()), 1)
                result = {"killed": "host", "longest_gap_s": gap_s}
                return result | balance(time.sleep, load, outlet, "diamond")


def balance(
    wait: Callable[[float], None], load: Load, outlet: Outlet, shape: str
) -> dict[str, Any]:
    """Waits until everything has arrived, and then until nothing has come for a while: doubles may
    come last.
    """
    sent = load.stop()
    expected = set(range(-sent, sent) if shape == "diamond" else range(sent))
    deadline = time.monotonic() + 60
    arrived: set[int] = set()
    while not expected <= arrived and time.monotonic() < deadline:
        wait(0.5)
        arrived = {arrival.number for arrival in list(outlet.arrivals)}
    before = -1
    while len(outlet.arrivals) > before and time.monotonic() < deadline:
        before = len(outlet.arrivals)
        wait(QUIET_S)
    arrived = {arrival.number for arrival in outlet.arrivals}
    doubled = len(outlet.arrivals) - len(arrived)
    return {"sent": sent, "lost": len(expected - arrived), "doubled": doubled}


def written_again(around: Scene, engine: SparkEngine, job: Job, sent: int) -> int:
    """The records in the internal topics beyond the first copy of each."""
    names = engine.dags.accepted[job.id].planned.topics
    assert partitions_of(around.spark, around.kafka, names).keys() == names
    return sum(engine.logs.ends(names).values()) - len(names) * sent


def poll_reports(engine: SparkEngine, for_s: float) -> None:
    """Reads reports, like a host."""
    until = time.monotonic() + for_s
    while time.monotonic() < until:
        engine.reports()
        time.sleep(0.2)


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--master", default="local", choices=KINDS)
    arguments.add_argument("--rate", type=float, default=500.0)
    arguments.add_argument("--seconds", type=float, default=60.0)
    arguments.add_argument("--warm-up", type=float, default=30.0)
    arguments.add_argument("--tasks", type=int, default=2)
    kills = arguments.add_mutually_exclusive_group()
    kills.add_argument("--kill", action="store_true")
    kills.add_argument("--kill-host", action="store_true")
    options = arguments.parse_args()
    if options.kill_host:
        result = host_killed(options)
        figures.show("diamond under a daemon", result)
        figures.emit("diamond", result)
        assert result["lost"] == 0
        return
    results = {}
    with scene(options.master, cores=24) as around:
        around.spark.sparkContext.setLogLevel("OFF")
        for shape in ("chain", "diamond"):
            results[shape] = run(around, shape, options)
            figures.show(f"{shape}, {options.master}", results[shape])
    figures.emit("diamond", results)
    assert all(result["lost"] == 0 for result in results.values())
    assert results["chain"]["doubled"] == 0


if __name__ == "__main__":
    main()
