"""Flows against single records on six small jobs: the same throughput, latency and bottleneck.

The seeds are of this file only: nothing was tuned on them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

from tests.engines.simulated.worlds import TEXTBOOK, graph, operator, rates_of, world_of
from trilithon.engines.simulated.arrivals import lognormal_cv2
from trilithon.engines.simulated.character import SPARK_RTM, Character
from trilithon.engines.simulated.event_run import EventRun
from trilithon.engines.simulated.fluid_run import FluidRun
from trilithon.engines.simulated.job_rows import JobRows
from trilithon.engines.simulated.world_tables import World
from trilithon.model.job import Job
from trilithon.model.profile import Distribution

SEEDS = (7101, 7102, 7103)
WARM_S, SPAN_S = 30.0, 120.0
# What the threads cost: a tenth of a core on each machine, and so long for a switch.
OVERHEAD, SWITCH_S = 0.1, 5e-6
CONSTANT, EXPONENTIAL = Distribution.DETERMINISTIC, Distribution.EXPONENTIAL


@dataclass(frozen=True)
class Case:
    job: Job
    rates: dict[str, float]
    cores: tuple[float, ...] = (4.0, 4.0, 4.0, 4.0)


CASES = {
    "linear": Case(
        graph(
            "linear",
            [
                operator("a", 2, service_ms=2.0, distribution=EXPONENTIAL, cpu_share=1.0),
                operator("b", 3, service_ms=4.0, distribution=CONSTANT),
                operator("c", 1, service_ms=1.0, distribution=EXPONENTIAL, cpu_share=0.5),
            ],
            "in>a",
            "a>b",
            "b>c",
            "c>out",
        ),
        {"in": 600.0},
    ),
    "diamond": Case(
        graph(
            "diamond",
            [
                operator("split", 2, service_ms=1.0, distribution=EXPONENTIAL, cpu_share=1.0),
                operator("left", 2, service_ms=3.0, distribution=EXPONENTIAL),
                operator(
                    "right", 3, service_ms=5.0, service_cv=0.5, distribution=Distribution.GAMMA
                ),
                operator("merge", 2, service_ms=1.0, distribution=CONSTANT, cpu_share=1.0),
            ],
            "in>split",
            "split>left",
            "split>right",
            "left>merge",
            "right>merge",
            "merge>out",
        ),
        {"in": 450.0},
    ),
    "star": Case(
        graph(
            "star",
            [
                operator("first", 1, service_ms=1.0, distribution=EXPONENTIAL),
                operator("second", 1, service_ms=1.0, distribution=EXPONENTIAL),
                operator("centre", 4, service_ms=4.0, distribution=EXPONENTIAL, cpu_share=1.0),
                operator("third", 1, service_ms=0.5, distribution=CONSTANT),
                operator("fourth", 1, service_ms=0.5, distribution=CONSTANT),
            ],
            "in1>first",
            "in2>second",
            "first>centre",
            "second>centre",
            "centre>third",
            "centre>fourth",
            "third>out1",
            "fourth>out2",
        ),
        {"in1": 400.0, "in2": 350.0},
    ),
    "pageload": Case(
        graph(
            "pageload",
            [
                operator("transform", 1, service_ms=0.8, distribution=EXPONENTIAL, cpu_share=1.0),
                operator("filter", 1, service_ms=0.4, distribution=CONSTANT, selectivity=0.7),
                operator("join", 4, service_ms=5.0, distribution=EXPONENTIAL),
                operator("project", 2, service_ms=1.0, distribution=EXPONENTIAL, zipf=0.5),
            ],
            "in>transform",
            "transform>filter",
            "filter>join",
            "join=project",
            "project>out",
        ),
        {"in": 900.0},
    ),
    "word count": Case(
        graph(
            "wordcount",
            [
                operator("split", 2, service_ms=3.0, distribution=EXPONENTIAL, selectivity=8.0),
                operator("count", 3, service_ms=0.4, distribution=EXPONENTIAL, zipf=0.3),
            ],
            "in>split",
            "split=count",
            "count>out",
        ),
        {"in": 500.0},
    ),
    "bottleneck": Case(
        graph(
            "bottleneck",
            [
                operator("a", 2, service_ms=1.0, distribution=EXPONENTIAL, cpu_share=1.0),
                operator("b", 2, service_ms=6.0, distribution=EXPONENTIAL),
                operator("c", 1, service_ms=1.0, distribution=CONSTANT),
            ],
            "in>a",
            "a>b",
            "b>c",
            "c>out",
        ),
        {"in": 400.0},
    ),
}


@dataclass(frozen=True)
class Found:
    throughput_per_s: float
    latency_s: float
    busiest: str


Run = FluidRun | EventRun


def measure(case: Case, character: Character, start: Callable[[World], Run]) -> Found:
    """What a run shows after it warmed up."""
    world, rows = world_of(case.job, character, case.cores)
    spread(world, len(case.cores))
    world.machines["overhead"] = OVERHEAD
    world.machines["switch_s"] = SWITCH_S
    run = start(world)
    rates = rates_of(world, rows, **case.rates)
    for second in range(1, int(WARM_S) + 1):
        run.advance(float(second), rates)
    nodes, actors = run.world.nodes.copy(), run.world.actors.copy()
    for second in range(int(WARM_S) + 1, int(WARM_S + SPAN_S) + 1):
        run.advance(float(second), rates)
    written = (run.world.nodes["written"] - nodes["written"]).sum()
    latency = (run.world.nodes["latency_s"] - nodes["latency_s"]).sum()
    busy = run.world.actors["busy_s"] - actors["busy_s"]
    return Found(written / SPAN_S, latency / written, busiest(run.world, rows, busy))


def spread(world: World, machines: int) -> None:
    world.actors["machine"] = np.arange(len(world.actors)) % machines


def busiest(world: World, rows: JobRows, busy: np.ndarray[tuple[int], np.dtype[np.float64]]) -> str:
    """The operator of the instance that worked most."""
    operators = np.isin(world.actors["node"], [rows.nodes[name] for name in rows.costs])
    actor = int(np.argmax(np.where(operators, busy, -1.0)))
    row = world.actors["node"][actor]
    return next(name for name, node in rows.nodes.items() if node == row)


@pytest.mark.parametrize("character", [SPARK_RTM, TEXTBOOK], ids=lambda c: c.name)
@pytest.mark.parametrize("name", CASES)
def test_flows_and_single_records_agree(name: str, character: Character) -> None:
    case = CASES[name]
    flows = measure(case, character, FluidRun)
    agree(flows, [measure(case, character, partial(EventRun, seed=seed)) for seed in SEEDS])


@pytest.mark.parametrize("name", CASES)
def test_they_agree_when_chance_decides_how_many_records_come(name: str) -> None:
    """Lognormal gaps in the one, drawn numbers of records per step in the other."""
    case, cv2 = CASES[name], lognormal_cv2(1.0)
    flows, single = (
        [measure(case, TEXTBOOK, partial(kind, seed=seed, arrival_cv2=cv2)) for seed in SEEDS]
        for kind in (FluidRun, EventRun)
    )
    mean = Found(
        float(np.mean([one.throughput_per_s for one in flows])),
        float(np.mean([one.latency_s for one in flows])),
        flows[0].busiest,
    )
    agree(mean, single)
    assert len({one.latency_s for one in flows}) == len(SEEDS)  # the seed decides


def agree(flows: Found, single: list[Found]) -> None:
    throughput = np.mean([one.throughput_per_s for one in single])
    latency = np.mean([one.latency_s for one in single])
    assert flows.throughput_per_s == pytest.approx(throughput, rel=0.05)
    assert flows.latency_s == pytest.approx(latency, rel=0.20)
    assert {one.busiest for one in single} == {flows.busiest}
