"""The stalls of several jobs whose batches the engine ends, beside those that Spark ends.

    python -m bench.pacing [--masters local] [--jobs 8] [--pmax 4] [--batch 20] [--seconds 120]
        [--warm-up 40] [--modes paced unpaced]

A stall is a time without output of at least `--least` seconds that a consumer of the job's topic
sees. `closest` is the shortest time between the beginnings of two stalls. Unpaced, Spark ends the
batches when their time is over. The goal for eight jobs on two cores: each stall takes at most
0.5 s, and no two begin within a second. Exit code 1 if the paced ones miss it, or if a record is
lost or doubled. The short form `--jobs 2 --batch 8 --seconds 20 --warm-up 5` takes a minute and a
half.
"""

import argparse
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from itertools import pairwise
from statistics import median
from typing import Any, Final

from bench.boundary_phases import PARTITIONS, job_of
from bench.proofs import figures
from bench.proofs.scene import KINDS, Scene, scene
from bench.proofs.traffic import Outlet, traffic
from trilithon.contract.engine import Status
from trilithon.engines.spark import queries
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.masters import max_tasks
from trilithon.model.allocation import initial

# The goal.
LONGEST_S: Final = 0.5
APART_S: Final = 1.0


def stalls(outlets: Iterable[Outlet], since_s: float, least_s: float) -> list[tuple[float, float]]:
    """The beginning and the length of each stall of each job, in the order of time."""
    return sorted(
        (a.at, b.at - a.at)
        for outlet in outlets
        for a, b in pairwise(outlet.since(since_s))
        if b.at - a.at >= least_s
    )


def closest_s(pauses: list[tuple[float, float]]) -> float | None:
    return min((b - a for (a, _), (b, _) in pairwise(pauses)), default=None)


def run(around: Scene, options: argparse.Namespace, *, paced: bool) -> dict[str, Any]:
    spark, mode = around.spark, "paced" if paced else "unpaced"
    engine = SparkEngine(
        spark, around.kafka, around.folder / mode, tasks=lambda: max_tasks(spark), slots=100
    )
    if not paced:
        engine.pacer.next_end = lambda *_, **__: None  # type: ignore[method-assign]
        queries.UNPACED_BATCHES = 1.0  # type: ignore[misc]
    with ExitStack() as ending:
        flows, names = [], []
        for number in range(options.jobs):
            prefix = f"{mode}-{number}"
            topics = (around.topic(f"{prefix}-in", PARTITIONS), around.topic(f"{prefix}-out"))
            job = job_of(number, topics, options.pmax, options.batch)
            outcome = engine.submit(job, initial(job))
            assert outcome.status is Status.DONE, outcome
            names.append(job.id)
            ending.callback(engine.cancel, job.id)
            flows.append(ending.enter_context(traffic(around.kafka, topics, options.rate)))
        poll(engine, options.warm_up)
        first, since_s = engine.control.batches(), time.time()
        poll(engine, options.seconds)
        last = engine.control.batches()
        pauses = stalls([outlet for _, outlet in flows], since_s, options.least)
        lost = doubled = 0
        for load, outlet in flows:
            sent = load.stop()
            outlet.await_all(sent, 60)
            missing, again = outlet.lost_and_doubled(sent)
            lost, doubled = lost + missing, doubled + again
    lengths = [length_s for _, length_s in pauses]
    return {
        "boundaries": sum(_number(last[job]) - _number(first[job]) for job in names),
        "stalls": len(pauses),
        "stall_s_median": round(median(lengths), 3) if lengths else None,
        "stall_s_max": round(max(lengths), 3) if lengths else None,
        "closest_s": None if (apart_s := closest_s(pauses)) is None else round(apart_s, 3),
        "lost": lost,
        "doubled": doubled,
    }


def missed(title: str, result: dict[str, Any]) -> list[str]:
    """What misses the goal. Of stalls that Spark makes nothing is promised but that no record is
    lost or doubled.
    """
    longest_s, closest = result["stall_s_max"] or 0.0, result["closest_s"]
    faults = [f"{result[name]} records {name}" for name in ("lost", "doubled") if result[name]]
    if not title.endswith("unpaced"):
        if not result["boundaries"]:
            faults.append("no batch ended")
        if longest_s > LONGEST_S:
            faults.append(f"a stall takes {longest_s:g} s, allowed are {LONGEST_S:g} s")
        if closest is not None and closest < APART_S:
            faults.append(f"two stalls begin within {closest:g} s, allowed are {APART_S:g} s")
    return faults


def _number(batch: str) -> int:
    return int(batch.rpartition(":")[2])


def poll(engine: SparkEngine, for_s: float) -> None:
    """Asks for reports four times a second; a host asks at least every second."""
    until = time.monotonic() + for_s
    while time.monotonic() < until:
        engine.reports()
        time.sleep(0.25)


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--masters", nargs="+", default=["local"], choices=KINDS)
    arguments.add_argument("--jobs", type=int, default=8)
    arguments.add_argument("--pmax", type=int, default=4)
    arguments.add_argument("--batch", type=float, default=20.0)
    arguments.add_argument("--seconds", type=float, default=120.0)
    arguments.add_argument("--warm-up", type=float, default=40.0)
    arguments.add_argument("--rate", type=float, default=50.0)
    arguments.add_argument("--least", type=float, default=0.15)
    modes = ["paced", "unpaced"]
    arguments.add_argument("--modes", nargs="+", default=modes, choices=modes)
    options = arguments.parse_args()
    results: dict[str, dict[str, Any]] = {}
    for kind in options.masters:
        tasks = options.jobs * (PARTITIONS + 2 * options.pmax)
        with scene(kind, cores=tasks // 2 + 4) as around:
            around.spark.sparkContext.setLogLevel("OFF")
            for mode in options.modes:
                title = f"{kind}, {options.jobs} jobs, {mode}"
                result = results[title] = run(around, options, paced=mode == "paced")
                result["verdict"] = "; ".join(missed(title, result)) or "the goal is met"
                figures.show(title, result)
    figures.emit("pacing", results)
    if any(missed(title, result) for title, result in results.items()):
        sys.exit(1)


if __name__ == "__main__":
    main()
