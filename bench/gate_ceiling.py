"""Whether the credit gate limits a fast job: drains a backlog with B = 20 and with an open gate.

    python -m bench.gate_ceiling [--masters local] [--records 400000]
        [--credits 1000000 20 1000000 20]

Two readers → A → B, four instances each, no work. The first two runs warm up the JIT; `warm_share`
is the mean rate of the later runs with a gate, of that of the later ones without. `per_s` is the
rate from one look to the next, half a second later. The short form `--records 100000 --credits
1000000 20` takes about a minute.
"""

import argparse
import json
import time
from collections.abc import Sequence
from itertools import pairwise
from statistics import mean
from typing import Any

from confluent_kafka import Producer

from bench.proofs import figures
from bench.proofs.chain import line, run
from bench.proofs.control import first
from bench.proofs.scene import KINDS, Scene, scene

TASKS, PARTITIONS, OPEN = 4, 2, 1_000_000
DRAIN_S = 120.0
# The first runs, in which the JVMs compile.
WARMING = 2


def fill(around: Scene, topic: str, records: int) -> None:
    """Writes the backlog."""
    producer = Producer(
        {
            **around.kafka.client,
            "linger.ms": 20,
            "queue.buffering.max.messages": 2 * records,
            "log_level": 0,
        }
    )
    for number in range(records):
        value = json.dumps({"n": number, "sent": 0.0})
        producer.produce(topic, value.encode(), partition=number % PARTITIONS)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def drain(around: Scene, source: str, records: int, credit: int, number: int) -> dict[str, Any]:
    """Drains the backlog once; rates are of the records that the last operator took."""
    control = around.control
    operators = {"A": "length(v) > 0", "B": "length(v) > 0"}
    topics = (source, around.topic(f"out{number}"))
    job = line(f"fast{number}", operators, TASKS, topics)
    for operator in operators:
        control.use(job.id, operator, first(TASKS, TASKS), credit=credit)
    running = run(around, job, PARTITIONS)
    series: list[tuple[float, int]] = []
    deadline = time.time() + DRAIN_S
    while (not series or series[-1][1] < records) and time.time() < deadline:
        time.sleep(0.5)
        taken = control.taken(job.id, "B")
        if taken and (not series or taken != series[-1][1]):
            series.append((time.time(), taken))
        assert running.query.exception() is None
    parked, forced = control.parked_s(job.id), control.forced(job.id)
    running.stop()
    (began, before), (ended, after) = series[0], series[-1]
    return {
        "credit": credit,
        "taken_by_B": after,
        # The rate before the first sample is unknown.
        "mean_per_s": round((after - before) / (ended - began)) if ended > began else None,
        "per_s": [
            round((now - before) / (now_s - before_s))
            for (before_s, before), (now_s, now) in pairwise(series)
        ],
        "parked_s": {edge: round(spent_s, 2) for edge, spent_s in parked.items()},
        "forced": forced,
    }


def warm_share(runs: Sequence[dict[str, Any]]) -> float | None:
    """The mean rate with a gate, of that with an open one, once the JVMs are warm."""
    rates: dict[bool, list[float]] = {True: [], False: []}
    for drained in runs[WARMING:]:
        if drained["mean_per_s"] is not None:
            rates[drained["credit"] == OPEN].append(drained["mean_per_s"])
    if not rates[True] or not rates[False]:
        return None
    return round(mean(rates[False]) / mean(rates[True]), 2)


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--masters", nargs="+", default=["local"], choices=KINDS)
    arguments.add_argument("--records", type=int, default=400_000)
    arguments.add_argument("--credits", nargs="+", type=int, default=[OPEN, 20, OPEN, 20])
    options = arguments.parse_args()
    results: dict[str, Any] = {}
    taken: list[int] = []
    for kind in options.masters:
        with scene(kind, cores=8) as around:
            # A stopped query logs that its shuffles are gone; `query.exception` has real failures.
            around.spark.sparkContext.setLogLevel("OFF")
            source = around.topic("in", PARTITIONS)
            fill(around, source, options.records)
            results[kind] = {
                f"run {number}": drain(around, source, options.records, credit, number)
                for number, credit in enumerate(options.credits)
            }
        runs = list(results[kind].values())
        taken += [drained["taken_by_B"] for drained in runs]
        results[kind]["warm_share"] = warm_share(runs)
        figures.show(f"the gate's ceiling, {kind}", results[kind])
    figures.emit("gate_ceiling", results)
    assert set(taken) == {options.records}


if __name__ == "__main__":
    main()
