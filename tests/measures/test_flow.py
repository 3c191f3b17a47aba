"""Projected flows, on graphs whose rates can be worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from tests.strategies import COLUMNS, shape
from trilithon.measures.flow import Flow, ProjectedRates
from trilithon.measures.rates import could_take_rate, own_parked_share
from trilithon.model.columns import Edges, Instances, Sources
from trilithon.model.job import Edge, Job, Operator, Parallelism, Sink, Source
from trilithon.model.layout import Layout
from trilithon.model.series import Series, Window
from trilithon.model.snapshot import Snapshot


def flow(*edges: str, rates: dict[str, float], held_back: bool = False) -> Flow:
    """One instance each; `rates` are what a source offers and what an operator could take."""
    layout, given = shape(*edges, rates=rates)
    operator = layout.parallelism > 0
    return Flow(
        layout=layout,
        offered=np.where(operator, 0.0, given),
        instance_rate=np.where(operator, np.where(given == 0, np.inf, given), np.inf),
        selectivity=np.ones(len(layout.edge_source)),
        parallelism=layout.parallelism,
        held_back=held_back,
    )


def of(jobs: Flow, rates: ProjectedRates, name: str) -> tuple[float, float]:
    row = jobs.layout.node_names.index(name)
    return float(rates.input[row]), float(rates.taken[row])


def more(jobs: Flow, **extra: int) -> np.ndarray:
    return np.array([extra.get(name, 0) for name in jobs.layout.node_names], dtype=np.int64)


def test_children_follow_an_operator_that_gets_an_instance_as_far_as_they_can() -> None:
    line = flow("s>a", "a>b", "b>c", "c>k", rates={"s": 100, "a": 100, "b": 40, "c": 60})
    assert of(line, line.rates(), "k") == (40, 40)
    after = line.rates(more(line, b=1))
    assert of(line, after, "b") == (100, 80)
    assert of(line, after, "c") == (80, 60)
    assert of(line, after, "k") == (60, 60)
    assert line.throughput(after, np.ones(1)).tolist() == [60]
    assert line.most(np.ones(1)).tolist() == [100]


def test_without_back_pressure_arms_of_a_diamond_go_at_their_own_pace() -> None:
    arms = ("s>a", "a>b", "a>c", "b>d", "c>d", "d>k")
    free = flow(*arms, rates={"s": 100, "b": 50, "c": 80})
    assert of(free, free.rates(), "k") == (130, 130)
    paced = flow(*arms, rates={"s": 100, "b": 50, "c": 80}, held_back=True)
    rates = paced.rates()
    assert of(paced, rates, "k")[1] == pytest.approx(100)
    assert of(paced, rates, "s")[1] == pytest.approx(50)
    # What wants to come in is not what comes in: only `b` and `c` are short.
    assert of(paced, rates, "c") == pytest.approx((100, 50))


def test_senders_to_one_slow_receiver_are_lowered_alike() -> None:
    star = flow(
        "s>a", "r>b", "a>c", "b>c", "c>k", rates={"s": 60, "r": 30, "c": 45}, held_back=True
    )
    rates = star.rates()
    assert of(star, rates, "a")[1] == pytest.approx(30)
    assert of(star, rates, "b")[1] == pytest.approx(15)
    assert of(star, rates, "k")[1] == pytest.approx(45)


def test_a_backlog_gives_what_the_first_operators_take() -> None:
    line = flow("s>a", "a>b", "b>k", rates={"s": np.inf, "a": 70, "b": 50})
    assert of(line, line.rates(), "a") == (70, 70)
    assert of(line, line.rates(more(line, a=1)), "a") == (140, 140)


JOB = Job(
    tenant="t",
    name="chain",
    sources=(Source("s", COLUMNS, ()),),
    operators=(Operator("a", parallelism=Parallelism(2)), Operator("b")),
    edges=(Edge("s", "a"), Edge("a", "b"), Edge("b", "k")),
    sinks=(Sink("k", ()),),
)


def window() -> Window:
    """`b` can take 40 of the 50 that `a` could send it: `a` waits for a fifth of the time."""
    snapshot = replace(
        Snapshot.empty(10, Layout.build([JOB]), {JOB.id: JOB}),
        since_s=0,
        sources=Sources.of(1, arrived=[1000], taken=[400]),
        instances=Instances.of(3, taken=[200, 200, 400], busy_s=[8, 8, 10]),
        edges=Edges.of(
            3,
            emitted=[400, 400, 400],
            taken=[400, 400, 400],
            senders=[1, 2, 1],
            parked_s=[5, 4, 0],
        ),
    )
    seen = Series.of([snapshot]).window()
    assert seen is not None
    return seen


def test_an_operator_that_is_only_held_back_could_take_more_than_it_took() -> None:
    assert own_parked_share(window()).tolist() == pytest.approx([0.5, 0.2, 0, 0])
    assert could_take_rate(window())[1:3].tolist() == pytest.approx([50, 40])


def test_a_measured_flow_knows_what_each_operator_could_take_and_what_is_offered() -> None:
    seen = Flow.measured(window())
    rates = seen.rates()
    assert seen.held_back
    assert rates.could_take[1:3].tolist() == pytest.approx([50, 40])
    # The reader was held back for half of the time; the log grows faster than that.
    assert rates.input[:3].tolist() == pytest.approx([100, 100, 50])
    assert rates.taken[3] == pytest.approx(40)
    assert seen.rates(np.array([0, 0, 1, 0])).taken[3] == pytest.approx(50)
