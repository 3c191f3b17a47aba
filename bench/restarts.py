"""Restarts of a job under load: the gap in its output, and what was lost or doubled.

    python -m bench.restarts [--masters local local-cluster] [--restarts 20] [--rate 800]
        [--warm-up 20] [--at-once]

The source has four partitions, and one of them is always empty. Each restart changes the job: the
length of batches, the tasks, the plan. `--at-once` adds restarts that stop the query immediately
and replay the open batch, for comparison. Two restarts before these warm up the JIT and are not
counted. The goal: nothing is lost or doubled, and no gap takes longer than 0.5 s in one JVM and
1.5 s on two executors. Exit code 1 if it is missed. The short form
`--masters local --restarts 2 --warm-up 5` takes a minute.
"""

import argparse
import sys
import time
from dataclasses import replace
from statistics import median
from typing import Any, Final

from bench.proofs import figures
from bench.proofs.scene import KINDS, Scene, scene
from bench.proofs.traffic import Load, Outlet, traffic
from trilithon.contract.engine import RestartJob, Status
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.masters import max_tasks
from trilithon.model.allocation import initial
from trilithon.model.job import Edge, Field, Job, Operator, Parallelism, Sink, Source, Work

SETTLE_S = 4.0
PARTITIONS = 4
# The first restarts warm up the JIT.
WARM = 2
# The longest gap that a restart at a committed boundary may make.
GAP_MS: Final = {"local": 500, "cluster": 1500, "local-cluster": 1500}


def job_of(source: str, sink: str) -> Job:
    """Reader → check → pass, as a tenant would write it."""
    return Job(
        tenant="bench",
        name="restarted",
        sources=(
            Source(
                "in",
                (Field("n", "BIGINT"), Field("sent", "DOUBLE")),
                (("subscribe", source), ("startingOffsets", "earliest")),
                PARTITIONS,
            ),
        ),
        operators=(
            Operator("check", Work(where="n >= 0"), Parallelism(2, 1, 4)),
            Operator("pass", Work(select=("n", "sent")), Parallelism(2, 1, 4)),
        ),
        edges=(Edge("in", "check"), Edge("check", "pass"), Edge("pass", "out")),
        sinks=(Sink("out", (("topic", sink),)),),
        batch_s=600,
    )


def changed(job: Job, number: int) -> Job:
    """The job with one of three changes, in turn."""
    first, second = job.operators
    changes = (
        replace(job, batch_s=300),
        replace(job, operators=(first, replace(second, parallelism=Parallelism(2, 1, 6)))),
        replace(job, operators=(replace(first, work=Work(where="n >= 0 AND sent > 0")), second)),
    )
    return changes[number % len(changes)]


def restarted(around: Scene, options: argparse.Namespace, at_boundary: bool) -> dict[str, Any]:
    """Restarts under load, and the cost of each."""
    kind = "boundary" if at_boundary else "at-once"
    topics = (around.topic(f"{kind}-in", PARTITIONS), around.topic(f"{kind}-out"))
    spark = around.spark
    engine = SparkEngine(
        spark, around.kafka, around.folder / kind, tasks=lambda: max_tasks(spark), slots=20
    )
    job = job_of(*topics)
    assert engine.submit(job, initial(job)).status is Status.DONE
    with traffic(around.kafka, topics, options.rate, PARTITIONS - 1) as (load, outlet):
        if not at_boundary:
            engine.boundaries.end_and_hold = lambda *_: "at once"  # type: ignore[method-assign]
        poll_reports(engine, options.warm_up)
        runs = []
        for number in range(WARM + options.restarts):
            action = RestartJob(f"{number}", job.id, changed(job, number))
            runs.append(one_restart(engine, outlet, action))
            poll_reports(engine, SETTLE_S)
        balance = balanced(load, outlet)
        runs = runs[WARM:]
    engine.cancel(job.id)
    gaps = [run["gap_ms"] for run in runs]
    return {
        "restarts": len(runs),
        "gap_ms_median": median(gaps),
        "gap_ms_max": max(gaps),
        "gaps_ms": gaps,
        "took_ms_median": median(run["took_ms"] for run in runs),
        "replayed": sum(run["replayed"] for run in runs),
        **balance,
    }


def one_restart(engine: SparkEngine, outlet: Outlet, action: RestartJob) -> dict[str, Any]:
    began = time.time()
    outcome = engine.apply(action)
    assert outcome.status is Status.DONE, outcome
    poll_reports(engine, 3)
    return {
        "gap_ms": round(1000 * outlet.largest_gap_s(began - 0.5, time.time())),
        "took_ms": round(1000 * (outcome.took_s or 0)),
        "replayed": outcome.code == "REPLAYED",
    }


def poll_reports(engine: SparkEngine, for_s: float) -> None:
    """Reads reports, like a host."""
    until = time.monotonic() + for_s
    while time.monotonic() < until:
        engine.reports()
        time.sleep(0.2)


def balanced(load: Load, outlet: Outlet) -> dict[str, Any]:
    sent = load.stop()
    outlet.await_all(sent, 60)
    lost, doubled = outlet.lost_and_doubled(sent)
    return {"sent": sent, "lost": lost, "doubled": doubled}


def missed(kind: str, result: dict[str, Any], *, at_boundary: bool) -> list[str]:
    """What misses the goal. Restarts at once replay the open batch: only a loss counts there."""
    faults = [f"{result['lost']} records lost"] if result["lost"] else []
    if at_boundary:
        if result["doubled"]:
            faults.append(f"{result['doubled']} records doubled")
        if result["gap_ms_max"] > GAP_MS[kind]:
            faults.append(f"a gap takes {result['gap_ms_max']} ms, allowed are {GAP_MS[kind]} ms")
    return faults


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument(
        "--masters", nargs="+", default=["local", "local-cluster"], choices=KINDS
    )
    arguments.add_argument("--restarts", type=int, default=20)
    arguments.add_argument("--rate", type=float, default=800.0)
    arguments.add_argument("--warm-up", type=float, default=20.0)
    arguments.add_argument("--at-once", action="store_true")
    options = arguments.parse_args()
    results: dict[str, Any] = {}
    for kind in options.masters:
        with scene(kind, cores=12) as around:
            around.spark.sparkContext.setLogLevel("OFF")
            for at_boundary in (True, False) if options.at_once else (True,):
                title = f"{kind}, {'at a committed boundary' if at_boundary else 'at once'}"
                result = results[title] = restarted(around, options, at_boundary)
                bad = missed(kind, result, at_boundary=at_boundary)
                result["verdict"] = "; ".join(bad) or "the goal is met"
                figures.show(title, result)
    figures.emit("restarts", results)
    if any(result["verdict"] != "the goal is met" for result in results.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
