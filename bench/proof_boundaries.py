"""Counters, placement and stalls over batch boundaries; rescaling inside a batch.

    python -m bench.proof_boundaries [--parts boundaries rescale] [--masters cluster local]
        [--pmax 8 16] [--boundaries 20] [--warm-up 60] [--forced 0]

The first `WARM` boundaries warm up the JIT and do not count as stalls. `--warm-up` and `--forced`
belong to the rescaling: seconds of load before it, and how many batches are ended early after it.
The short form `--masters local --pmax 8 --boundaries 7 --warm-up 10` takes three minutes.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import mean, median
from typing import Any

from bench.proofs import figures
from bench.proofs.chain import SOURCE, line, run
from bench.proofs.control import ProofControl, first
from bench.proofs.scene import KINDS, Scene, scene
from bench.proofs.traffic import Load, Outlet, traffic
from trilithon.model.job import Job

PLACEMENT = {"A": {"1": 2}, "B": {"0": 3}}
WARM = 5
BATCH_S = 5.0
LOAD_PER_S = 200.0
# Instances of A and the load at each step. A waits 10 ms: an instance can process 100/s.
STEPS = ((1, 80.0), (4, 300.0), (8, 600.0), (2, 100.0))
RESCALED_TASKS = 8
STEP_S = 6.0


@dataclass
class Stage:
    """A job that runs, with its load and its outlet."""

    control: ProofControl
    job: Job
    load: Load
    outlet: Outlet
    placed: bool
    check: Callable[[], None]

    def batch(self) -> str:
        return self.control.placed_batch(self.job.id, "B")

    def balance(self) -> dict[str, Any]:
        """Stops the load and compares the records sent to each receiver with those it took."""
        sent = self.load.stop()
        self.outlet.await_all(sent, 30)
        time.sleep(2.5)
        self.check()
        lost, doubled = self.outlet.lost_and_doubled(sent)
        totals = self.control.totals(self.job.id)
        taken: dict[str, dict[int, int]] = {SOURCE: {}, "A": {}, "B": {}}
        routed: dict[str, dict[int, int]] = {"A": {}, "B": {}}
        for one in totals:
            taken[one["operator"]][one["index"]] = one["taken"]
            for to, edge in one["out"].items():
                for index, count in edge["sent_to"].items():
                    routed[to][int(index)] = routed[to].get(int(index), 0) + count
        return {
            "sent": sent,
            **{f"taken_by_{name}": sum(found.values()) for name, found in taken.items()},
            "equal_per_receiver": all(
                found == {i: n for i, n in taken[name].items() if n}
                for name, found in routed.items()
            ),
            "lost": lost,
            "doubled": doubled,
            "forced": self.control.forced(self.job.id),
        }


@contextmanager
def stage(
    kind: str, tasks: int, work: str, batch_s: float, prepare: Callable[[Scene, str], None]
) -> Iterator[Stage]:
    """Reader → A → B on one kind of master, with tables that were set before it starts."""
    with scene(kind, cores=tasks + 4) as around:
        topics = (around.topic("in"), around.topic("out"))
        operators = {"A": work, "B": "length(v) > 0"}
        job = replace(line("wide", operators, tasks, topics), batch_s=batch_s)
        prepare(around, job.id)
        query = run(around, job).query

        def check() -> None:
            assert (failure := query.exception()) is None, str(failure)[:2000]

        with traffic(around.kafka, topics, 40.0) as (load, outlet):
            yield Stage(around.control, job, load, outlet, kind != "local", check)


# -- boundaries


@dataclass
class Crossing:
    """Observations at batch boundaries."""

    starts: list[float] = field(default_factory=list)
    places: list[dict[str, Any]] = field(default_factory=list)
    unmet: int = 0
    reports: dict[str, dict[str, Any]] = field(default_factory=dict)

    def observe(self, on: Stage) -> None:
        self.starts.append(time.time())
        tables = on.control.tables()
        routing = {name: tables[f"{on.job.id}/{name}"] for name in PLACEMENT}
        self.places.append({name: table["tasks"] for name, table in routing.items()})
        self.unmet += any(table["effective"].get("unmet") for table in routing.values())
        self.collect(on)

    def collect(self, on: Stage) -> None:
        """The newest report of each executor; counts in it are cumulative."""
        for report in on.control.drain_reports()["reports"]:
            self.reports[report["executor"]] = report


def boundaries(kind: str, tasks: int, count: int) -> dict[str, Any]:
    """Runs over that many boundaries of short batches."""

    def prepare(around: Scene, job: str) -> None:
        for operator, counts in PLACEMENT.items():
            if kind == "local":
                around.control.use(job, operator, first(sum(counts.values()), tasks))
            else:
                around.control.place(job, operator, counts)

    with stage(kind, tasks, "length(v) > 0", BATCH_S, prepare) as on:
        on.load.rate_per_s = LOAD_PER_S
        seen, crossing = on.batch(), Crossing()
        while len(crossing.starts) < count:
            on.check()
            if (now := on.batch()) != seen:
                seen = now
                crossing.observe(on)
            time.sleep(0.05)
        time.sleep(3)
        balance = on.balance()
        crossing.collect(on)
        return {"boundaries": count, **balance, **placement(on, crossing), **stalls(on, crossing)}


def placement(on: Stage, crossing: Crossing) -> dict[str, Any]:
    """Records taken outside the desired placement; nothing in one JVM, which has no placement."""
    if not on.placed:
        return {}
    misplaced = sum(
        one["taken"]
        for executor, report in crossing.reports.items()
        for one in report["instances"]
        if one["job"] == on.job.id
        and one["operator"] in PLACEMENT
        and executor not in PLACEMENT[one["operator"]]
    )
    return {
        "records_misplaced": misplaced,
        "boundaries_where_tasks_moved": sum(a != b for a, b in pairwise(crossing.places)),
        "boundaries_with_placement_unmet": crossing.unmet,
    }


def stalls(on: Stage, crossing: Crossing) -> dict[str, Any]:
    """The largest gap in the output from 3 s before to 2 s after the start of the new tasks."""
    gaps_s = [on.outlet.largest_gap_s(at - 3, at + 2) for at in crossing.starts]
    warm = gaps_s[WARM:]
    since = on.outlet.since(crossing.starts[WARM])
    return {
        "stall_median_s": round(median(warm), 2),
        "stall_max_s": round(max(warm), 2),
        "stalls_s": [round(stall, 2) for stall in gaps_s],
        "p50_ms": figures.quantile_ms((a.latency_s for a in since), 0.5),
    }


# -- rescaling


def rescaling(kind: str, warm_up_s: float, forced: int) -> dict[str, Any]:
    """Changes the parallelism of A under load inside one batch; the load follows it."""

    def prepare(around: Scene, job: str) -> None:
        around.control.use(job, "A", first(RESCALED_TASKS, RESCALED_TASKS))
        around.control.use(job, "B", first(2, RESCALED_TASKS))

    with stage(kind, RESCALED_TASKS, "wait(10) >= 0", 600.0, prepare) as on:
        # The JVMs compile under load.
        on.load.rate_per_s = 400.0
        time.sleep(warm_up_s)
        on.load.rate_per_s = 40.0
        # Cold executors build up a backlog that one instance would need minutes to drain.
        on.outlet.await_calm()
        use(on, 1)
        time.sleep(1)
        on.outlet.await_calm()
        on.load.rate_per_s = STEPS[0][1]
        time.sleep(3)
        result: dict[str, Any] = {}
        for (before, _), (after, rate_per_s) in pairwise(STEPS):
            result[f"{before} → {after}"] = step(on, before, after, rate_per_s)
        for number in range(forced):
            result[f"forced boundary {number + 1}"] = force(on)
        return {**result, **on.balance()}


def use(on: Stage, count: int) -> None:
    on.control.use(on.job.id, "A", first(count, RESCALED_TASKS))


def step(on: Stage, before: int, after: int, rate_per_s: float) -> dict[str, Any]:
    """Effect: from the call to the first record of a new task, or to the last of a dropped one."""
    grown = after > before
    if not grown:
        on.load.rate_per_s = rate_per_s
        time.sleep(1)
    on.control.drain_reports()
    acted = time.time()
    use(on, after)
    called_s = time.time() - acted
    on.load.rate_per_s = rate_per_s
    time.sleep(STEP_S)
    seen = on.outlet.since(acted)
    if grown:
        effect_s = min(a.at for a in seen if a.tasks[0] >= before) - acted
    else:
        effect_s = max((a.at for a in seen if a.tasks[0] >= after), default=acted) - acted
    cpu = [one["machine"]["cpu_machine"] for one in on.control.drain_reports()["reports"]]
    settled = [a.latency_s for a in on.outlet.since(acted + STEP_S / 2)]
    return {
        "call_ms": round(1000 * called_s),
        "effect_ms": round(1000 * effect_s),
        "largest_gap_ms": round(1000 * on.outlet.largest_gap_s(acted - 0.5, acted + 5)),
        "p50_ms": figures.quantile_ms(settled, 0.5),
        "p99_ms": figures.quantile_ms(settled, 0.99),
        "cpu_of_machine": round(mean(cpu), 2),
    }


def force(on: Stage) -> dict[str, Any]:
    """Ends the running batch early, on all executors, and measures the gap."""
    before, asked = on.batch(), time.time()
    on.control.end_batch(on.job.id, on.control.batch(on.job.id))
    while on.batch() == before and time.time() < asked + 15:
        time.sleep(0.01)
    started = time.time()
    ended = on.batch() != before
    time.sleep(4)
    gap_s = on.outlet.largest_gap_s(asked, started + 3)
    return {
        "next_batch_ms": round(1000 * (started - asked)) if ended else None,
        "largest_gap_ms": round(1000 * gap_s),
    }


def measure(options: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    for kind in options.masters:
        if "boundaries" in options.parts:
            for tasks in options.pmax:
                found = boundaries(kind, tasks, options.boundaries)
                yield f"boundaries, {tasks} tasks per operator, {kind}", found
        if "rescale" in options.parts:
            yield f"rescaling, {kind}", rescaling(kind, options.warm_up, options.forced)


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = ("boundaries", "rescale")
    arguments.add_argument("--parts", nargs="+", default=parts, choices=parts)
    arguments.add_argument("--masters", nargs="+", default=["cluster", "local"], choices=KINDS)
    arguments.add_argument(
        "--pmax", nargs="+", type=int, default=[8, 16], help="tasks per operator"
    )
    arguments.add_argument("--boundaries", type=int, default=20)
    arguments.add_argument("--warm-up", type=float, default=60.0)
    arguments.add_argument("--forced", type=int, default=0)
    options = arguments.parse_args()
    if options.boundaries <= WARM:
        arguments.error(f"--boundaries: more than {WARM}, which are left out of the stalls")
    results = {}
    for title, found in measure(options):
        figures.show(title, found)
        results[title] = found
    figures.emit("boundaries", results)
    for found in results.values():
        assert found["lost"] == found["doubled"] == found["forced"] == 0
        assert found["equal_per_receiver"]
        assert found["sent"] == found["taken_by_src"] == found["taken_by_A"] == found["taken_by_B"]


if __name__ == "__main__":
    main()
