"""Measures the controller: a round with many jobs, memory over many
rounds, and how the journal grows.

    python -m bench.control             a round with 100, 1,000 and 10,000 jobs; the journal; memory
    python -m bench.control --quick      the same with fewer rounds; --only names a part

The engine costs nothing here: its reports are made before the clock is started. Every fiftieth
job misses its latency threshold for a while in each hundred rounds, so that there are
decisions and actions to write.
"""

import argparse
import resource
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trilithon.contract.engine import Accepted, Condition
from trilithon.control.commands import JobCommands
from trilithon.control.journal import FILE, Journal
from trilithon.control.loop import Controller
from trilithon.control.rules import Rules
from trilithon.model.action import Action, Outcome, Reallocate, Status
from trilithon.model.allocation import Allocation
from trilithon.model.capability import Ability, Capabilities, How
from trilithon.model.columns import Edges, Instances, Sinks, Sources
from trilithon.model.intent import Intent, Metric, Threshold
from trilithon.model.job import Edge, Field, Job, Operator, Parallelism, Sink, Source, Work
from trilithon.model.layout import Layout
from trilithon.model.report import Report
from trilithon.model.sketches import Sketches, bucket_of
from trilithon.policies.registry import policy
from trilithon.service.daemon import calm_collector

OPERATORS, INSTANCES, SENDERS = 10, 2, 4
ROUND_S, REPORTS_PER_ROUND = 10.0, 10
DAY_ROUNDS = 8640


def job(number: int) -> Job:
    names = [f"o{i}" for i in range(OPERATORS)]
    nodes = ["in", *names, "out"]
    return Job(
        tenant=f"t{number % 20}",
        name=f"job{number}",
        sources=(Source("in", (Field("v", "BIGINT"),), (("subscribe", "in"),), 1),),
        operators=tuple(
            Operator(name, Work(where="v > 0"), Parallelism(INSTANCES, 1, 8)) for name in names
        ),
        edges=tuple(Edge(a, b) for a, b in pairwise(nodes)),
        sinks=(Sink("out", (("topic", "out"),)),),
        intent=Intent((Threshold(Metric.LATENCY, 100.0, "p95"),)),
    )


@dataclass
class Ready:
    """An engine whose reports are ready when they are asked for."""

    now_s: float = 1_000_000.0
    held: dict[str, Accepted] = field(default_factory=dict)
    _sequence: int = 0
    _ready: list[Report] = field(default_factory=list)
    _layouts: list[Layout] | None = None
    _records: float = 0.0
    _sketches: dict[str, dict[int, float]] = field(default_factory=dict)

    def submit(self, job: Job, allocation: Allocation, checkpoint: str = "") -> Outcome:
        del checkpoint
        self.held[job.id] = Accepted(job, allocation)
        self._layouts = None
        return Outcome(Status.DONE)

    def cancel(self, job: str, keep: bool = False) -> Outcome:
        del keep
        self._layouts = None
        return Outcome(Status.DONE if self.held.pop(job, None) else Status.UNCHANGED)

    def apply(self, action: Action) -> Outcome:
        assert isinstance(action, Reallocate)
        held = self.held[action.job]
        self.held[action.job] = Accepted(held.job, action.allocation)
        self._layouts = None
        return Outcome(Status.DONE)

    def jobs(self) -> Mapping[str, Accepted]:
        return self.held

    def conditions(self) -> Mapping[str, Condition]:
        return {name: accepted.condition for name, accepted in self.held.items()}

    def reports(self) -> Sequence[Report]:
        return self._ready

    def capabilities(self) -> Capabilities:
        return Capabilities(dict.fromkeys(Ability, How.LIVE), slots=10**6)

    def close(self) -> None:
        pass

    def prepare(self, number: int) -> None:
        """What will have been reported when the next round begins."""
        if self._layouts is None:
            parts: list[list[Job]] = [[] for _ in range(SENDERS)]
            for i, accepted in enumerate(self.held.values()):
                parts[i % SENDERS].append(accepted.job)
            wanted = {name: accepted.allocation.parallelism for name, accepted in self.held.items()}
            self._layouts = [Layout.build(part, wanted) for part in parts]
        self._ready = []
        for step in range(REPORTS_PER_ROUND):
            self.now_s += ROUND_S / REPORTS_PER_ROUND
            self._records += 50.0
            self._sequence += 1
            last = step == REPORTS_PER_ROUND - 1
            for sender, layout in enumerate(self._layouts):
                self._ready.append(self._report(sender, layout, number, whole=last))

    def _report(self, sender: int, layout: Layout, number: int, *, whole: bool) -> Report:
        rows, edges, sinks = len(layout.instance_row), len(layout.edge_row), len(layout.sink_row)
        n = self._records
        busy = np.full(rows, n * 0.008)
        return Report(
            f"executor{sender}",
            self._sequence,
            self.now_s,
            instance_keys=tuple(layout.instance_row),
            instances=_counted(Instances, rows, n, busy_s=busy),
            edge_keys=tuple(layout.edge_row),
            edges=_counted(Edges, edges, n, parked_s=np.zeros(edges), senders=np.ones(edges)),
            source_keys=tuple(layout.source_row),
            sources=_counted(Sources, len(layout.source_row), n),
            sink_keys=tuple(layout.sink_row),
            sinks=_counted(Sinks, sinks, n, latency_s=np.full(sinks, n * 0.07)),
            latencies=self._latencies(layout, number) if whole else Sketches.missing(sinks),
        )

    def _latencies(self, layout: Layout, number: int) -> Sketches:
        histograms = []
        for i, (name, _) in enumerate(layout.sink_row):
            missed = i % 50 == number // 10 % 50 and number % 100 < 30
            bucket = int(bucket_of([250.0 if missed else 70.0])[0])
            counts = self._sketches.setdefault(name, {})
            counts[bucket] = counts.get(bucket, 0.0) + 500.0
            histograms.append(dict(counts))
        return Sketches.of(histograms)


def _counted(table: Any, rows: int, records: float, **more: npt.NDArray[np.float64]) -> Any:
    columns = {column.name: np.full(rows, records) for column in table.describe() if column.counter}
    return table.of(rows, **{"incarnation": np.zeros(rows), **columns, **more})


@dataclass
class EngineClock:
    engine: Ready

    def now_s(self) -> float:
        return self.engine.now_s


def controller(folder: Path, jobs: int) -> tuple[Controller, Ready]:
    engine = Ready()
    controller_ = Controller(
        engine, Journal(folder / FILE), policy("threshold"), Rules(), EngineClock(engine)
    )
    commands = JobCommands(controller_)
    for number in range(jobs):
        commands.apply(job(number))
    return controller_, engine


def rounds(
    controller_: Controller, engine: Ready, count: int, first: int = 0
) -> tuple[list[float], list[float]]:
    """How long each round took, and how much of the CPU: in milliseconds."""
    took, used = [], []
    for number in range(first, first + count):
        engine.prepare(number)
        began, cpu = time.perf_counter(), time.thread_time()
        controller_.round()
        took.append(1000 * (time.perf_counter() - began))
        used.append(1000 * (time.thread_time() - cpu))
    return took, used


def measure_rounds(sizes: Mapping[int, int]) -> None:
    print(f"a round, {OPERATORS} operators per job, {INSTANCES} instances per operator")
    print(
        "CPU is what the round itself used; the rest it waited, for the disk or for other programs"
    )
    heads = ("jobs", "rounds", "median ms", "p99 ms", "CPU median", "CPU p99", "actions")
    print(" ".join(f"{head:>10}" for head in heads))
    for jobs, count in sizes.items():
        with tempfile.TemporaryDirectory() as folder:
            controller_, engine = controller(Path(folder), jobs)
            rounds(controller_, engine, 5)
            took, used = rounds(controller_, engine, count, 5)
            done = controller_.journal.database.all("SELECT count(*) AS n FROM action")[0]["n"]
            controller_.journal.close()
        figures = [f(of) for of in (took, used) for f in (np.median, _p99)]
        cells = [
            f"{jobs:>10}",
            f"{count:>10}",
            *(f"{figure:>10.1f}" for figure in figures),
            f"{done:>10}",
        ]
        print(" ".join(cells), flush=True)


def _p99(values: Sequence[float]) -> float:
    return float(np.quantile(values, 0.99))


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def measure_journal(jobs: int, count: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        controller_, engine = controller(folder, jobs)
        rounds(controller_, engine, 10)
        controller_.journal.database.all("PRAGMA wal_checkpoint(TRUNCATE)")
        before = size_of(folder)
        rounds(controller_, engine, count, 10)
        controller_.journal.database.all("PRAGMA wal_checkpoint(TRUNCATE)")
        grown = size_of(folder) - before
        controller_.journal.close()
    per_day = grown * DAY_ROUNDS / count
    print(
        f"journal: {jobs} jobs, {count} rounds: {grown / 2**20:.1f} MiB; "
        f"{per_day / 2**20:.0f} MiB per day, {per_day / jobs / 2**10:.0f} KiB per job and day"
    )


def measure_memory(jobs: int, count: int) -> None:
    print(f"memory: {jobs} jobs, resident MiB after so many rounds")
    with tempfile.TemporaryDirectory() as folder:
        controller_, engine = controller(Path(folder), jobs)
        for part in range(10):
            rounds(controller_, engine, count // 10, part * (count // 10))
            print(f"{(part + 1) * (count // 10):>8} {resident_mib():>8.1f}", flush=True)
        controller_.journal.close()


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=["rounds", "journal", "memory"])
    given = parser.parse_args()
    quick = given.quick
    calm_collector()
    if given.only in {None, "rounds"}:
        measure_rounds({100: 50, 1000: 30} if quick else {100: 300, 1000: 300, 10_000: 30})
    if given.only in {None, "journal"}:
        measure_journal(100 if quick else 1000, 60 if quick else 360)
    if given.only in {None, "memory"}:
        measure_memory(20, 500 if quick else 10_000)


if __name__ == "__main__":
    main()
