"""Overload and recovery with the credit gate, in one JVM and on two executors.

    python -m bench.proof_credit_gate [--masters local cluster] [--seconds 20]

An operator that can process 100 records/s per instance (it waits 10 ms) gets 300/s with one
instance for some seconds, then gets four instances. Prints the backlog and the queues, and the
recovery time beside the one that the backlog predicts. The short form `--masters local --seconds 5`
takes a minute and a half.
"""

import argparse
import time
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.proofs import figures
from bench.proofs.chain import SOURCE, line, run
from bench.proofs.control import ProofControl
from bench.proofs.scene import KINDS, scene
from bench.proofs.traffic import Load, Outlet, traffic

TASKS = 8
CALM_PER_S, OFFERED_PER_S = 50.0, 300.0
INSTANCES = 4
TARGET_S = 0.2
RECOVERY_S = 150.0


def measure(kind: str, overload_s: float) -> dict[str, Any]:
    """Overload and recovery on one kind of master."""
    with scene(kind, cores=8) as around:
        topics = (around.topic("in"), around.topic("out"))
        job = line("gate", {"A": "wait(10) >= 0"}, TASKS, topics)
        running = run(around, job)
        await_places(around.control, job.id)
        with traffic(around.kafka, topics, CALM_PER_S) as (load, outlet):
            result = Experiment(around.control, job.id, load, outlet, overload_s).run()
        assert running.query.exception() is None
    return result


def await_places(control: ProofControl, job: str) -> None:
    """Waits until the executors of all tasks are known."""
    deadline = time.monotonic() + 60
    while len(control.places(job, "A")) < TASKS:
        assert time.monotonic() < deadline, "the executors of the tasks are not known"
        time.sleep(0.1)


@dataclass
class Experiment:
    """Warm-up, overload, rescaling and recovery."""

    control: ProofControl
    job: str
    load: Load
    outlet: Outlet
    overload_s: float

    def run(self) -> dict[str, Any]:
        order = self.far_first()
        self.use(order[:1])
        self.outlet.await_calm()
        time.sleep(4)
        result, backlog, output_per_s = self.overload()
        acted = time.time()
        self.use(order[:INSTANCES])
        recovered = self.await_recovery(acted)
        result |= self.recovery(order, acted, recovered, backlog, output_per_s)
        time.sleep(5)
        result["p50_ms_afterwards"], result["p95_ms_afterwards"] = (
            figures.quantile_ms((a.latency_s for a in self.outlet.since(time.time() - 4)), share)
            for share in (0.5, 0.95)
        )
        return {**result, **self.balance(), **self.places(order)}

    def far_first(self) -> list[int]:
        """The tasks of A, alternating between other executors and the reader's own."""
        reader = self.control.places(self.job, SOURCE)[0]
        tasks = self.control.places(self.job, "A")
        far = [task for task, executor in tasks.items() if executor != reader]
        near = [task for task, executor in tasks.items() if executor == reader]
        return [t for pair in zip(far, near, strict=False) for t in pair] if far else near

    def use(self, tasks: list[int]) -> None:
        self.control.use(self.job, "A", [float(i in tasks) for i in range(TASKS)])

    def overload(self) -> tuple[dict[str, Any], int, float]:
        """The figures under overload, the backlog at its end, and the output rate."""
        edge = f"{SOURCE}>A"
        self.load.rate_per_s = OFFERED_PER_S
        began, parked_s = time.time(), self.control.parked_s(self.job)[edge]
        self.control.drain_reports()
        time.sleep(self.overload_s)
        span_s = time.time() - began
        parked_s = self.control.parked_s(self.job)[edge] - parked_s
        lengths = queues(self.control.drain_reports()["reports"], self.job)
        backlog = self.load.sent - len(self.outlet.arrivals)
        settling_s = min(2.0, self.overload_s / 2)
        output_per_s = len(self.outlet.since(began + settling_s)) / (span_s - settling_s)
        figures_now = {
            "offered_per_s": OFFERED_PER_S,
            "overload_s": self.overload_s,
            "output_in_overload_per_s": round(output_per_s, 1),
            "backlog_records": backlog,
            "queue_at_instance": {
                task: {"median": median(samples), "max": max(samples)}
                for task, samples in lengths.items()
                if any(samples)
            },
            "reader_parked_share": round(parked_s / span_s, 3),
        }
        return figures_now, backlog, output_per_s

    def await_recovery(self, acted: float) -> float | None:
        while time.time() < acted + RECOVERY_S:
            time.sleep(0.25)
            if time.time() - acted > 1 and self.outlet.p95_s(1) < TARGET_S:
                return time.time()
        return None

    def recovery(
        self,
        order: list[int],
        acted: float,
        recovered: float | None,
        backlog: int,
        output_per_s: float,
    ) -> dict[str, Any]:
        """The prediction uses figures at the time of the call; capacity is measured afterwards."""
        end = recovered or time.time()
        draining = self.outlet.since(acted + 1, end - 2)
        capacity_per_s = len(draining) / max(0.1, end - acted - 3)
        took_s = end - acted if recovered else float("nan")
        predicted_s = spare_s(backlog, INSTANCES * output_per_s)
        new = [a.at for a in self.outlet.since(acted) if a.tasks[0] != order[0]]
        return {
            "first_record_of_new_task_ms": figures.known(1000 * (min(new) - acted), 1),
            "capacity_with_4_per_s": round(capacity_per_s, 1),
            "drained_by_task": {
                task: sum(a.tasks[0] == task for a in draining) for task in order[:INSTANCES]
            },
            "until_p95_below_200_ms_s": figures.known(took_s, 1),
            "predicted_at_the_call_s": figures.known(predicted_s, 1),
            "ratio_to_prediction": figures.known(took_s / predicted_s, 2),
            "backlog_over_spare_s": figures.known(spare_s(backlog, capacity_per_s), 1),
            "largest_gap_ms": round(1000 * self.outlet.largest_gap_s(acted - 2, end)),
        }

    def balance(self) -> dict[str, Any]:
        """Counts records that were lost, doubled or passed the gate without credit."""
        sent = self.load.stop()
        self.outlet.await_all(sent, 30)
        time.sleep(1.5)
        lost, doubled = self.outlet.lost_and_doubled(sent)
        return {
            "sent": sent,
            "taken_by_A": self.control.taken(self.job, "A"),
            "lost": lost,
            "doubled": doubled,
            "forced": self.control.forced(self.job),
        }

    def places(self, order: list[int]) -> dict[str, Any]:
        on = self.control.places(self.job, "A")
        reports = self.control.drain_reports()["reports"]
        return {
            "reader_on": self.control.places(self.job, SOURCE)[0],
            "instances_on": {task: on[task] for task in order[:INSTANCES]},
            "clock_error_us": {one["executor"]: one["clock"]["error_us"] for one in reports},
        }


def spare_s(backlog: int, capacity_per_s: float) -> float:
    """How long it takes to drain a backlog under the load."""
    spare_per_s = capacity_per_s - OFFERED_PER_S
    return backlog / spare_per_s if spare_per_s > 0 else float("nan")


def queues(reports: list[dict[str, Any]], job: str) -> dict[int, list[int]]:
    """The queue of each instance of A at each second for which all executors reported."""
    by_second: dict[int, list[dict[str, Any]]] = {}
    for report in reports:
        by_second.setdefault(round(report["time_us"] / 1e6), []).append(report)
    executors = {report["executor"] for report in reports if report["instances"]}
    lengths: dict[int, list[int]] = {}
    for reported in by_second.values():
        if not executors <= {report["executor"] for report in reported}:
            continue
        now: dict[int, int] = {}
        for one in (i for report in reported for i in report["instances"] if i["job"] == job):
            if one["operator"] == "A":
                now[one["index"]] = now.get(one["index"], 0) - one["taken"]
            for index, count in one["out"].get("A", {}).get("sent_to", {}).items():
                now[int(index)] = now.get(int(index), 0) + count
        for task, length in now.items():
            lengths.setdefault(task, []).append(length)
    return lengths


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--masters", nargs="+", default=["local", "cluster"], choices=KINDS)
    arguments.add_argument("--seconds", type=float, default=20.0, help="of overload")
    options = arguments.parse_args()
    results = {}
    for kind in options.masters:
        results[kind] = measure(kind, options.seconds)
        figures.show(f"credit gate, {kind}", results[kind])
    figures.emit("credit_gate", results)
    for result in results.values():
        assert result["lost"] == result["doubled"] == result["forced"] == 0
        assert result["sent"] == result["taken_by_A"]


if __name__ == "__main__":
    main()
