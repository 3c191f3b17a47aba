"""ETP, by figure 2 of Stela and by a slow search that follows the definition word by word."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import jobs, shape
from trilithon.measures.capacity import congested_by_rates
from trilithon.measures.etp import (
    Rates,
    etp,
    etp_as_printed,
    etp_sum,
    next_target,
    project,
    projected_etp,
)
from trilithon.model.job import Job
from trilithon.model.layout import Layout

# Figure 2: throughput of the sinks 4, 7, 8, 9 and 10 adds up to 4,500. Every operator that is a
# sink in the paper has a sink of its own here.
FIGURE_2 = "s>1 1>2 1>3 2>4 3>5 3>6 5>7 5>8 6>9 6>10 4>k4 7>k7 8>k8 9>k9 10>k10".split()
THROUGHPUT = {"k4": 2000, "k7": 1000, "k8": 1000, "k9": 250, "k10": 250}


def test_figure_2_of_stela() -> None:
    layout, processing = shape(*FIGURE_2, rates=THROUGHPUT)
    congested = np.array([name in {"1", "3", "4", "6"} for name in layout.node_names])
    found = dict(zip(layout.node_names, etp(layout, processing, congested), strict=True))
    assert {name: round(100 * found[name]) for name in ("3", "4", "6", "1")} == {
        "3": 44,
        "4": 44,
        "6": 11,
        "1": 0,
    }


def test_sinks_with_weights_count_that_many_times() -> None:
    layout, processing = shape(*FIGURE_2, rates=THROUGHPUT)
    names = [layout.node_names[node] for node in layout.sink_nodes]
    congested = np.isin(layout.node_names, ["1", "3", "4", "6"])
    weights = np.array([4.0 if name == "k9" else 1.0 for name in names])
    rows = [layout.node_names.index(name) for name in ("3", "6")]
    share = etp(layout, processing, congested, weights)
    assert share[rows].tolist() == pytest.approx([2000 / 5250, 1250 / 5250])
    printed = etp_as_printed(layout, processing, congested, weights)
    assert printed[rows].tolist() == pytest.approx([2000 / 5250, 1250 / 5250])


def test_a_diamonds_sink_counts_once_by_definition_and_twice_as_printed() -> None:
    layout, processing = shape("s>a", "a>b", "a>c", "b>d", "c>d", "d>k", rates={"k": 100})
    calm = np.zeros(len(processing), dtype=bool)
    row = layout.node_names.index("a")
    assert etp(layout, processing, calm)[row] == 1
    assert etp_as_printed(layout, processing, calm)[row] == 2


def test_more_than_64_sinks_are_all_counted() -> None:
    edges = ["s>a", *(f"a>k{i}" for i in range(150))]
    layout, processing = shape(*edges, rates={f"k{i}": 2.0 for i in range(150)})
    calm = np.zeros(len(processing), dtype=bool)
    found = dict(zip(layout.node_names, etp(layout, processing, calm), strict=True))
    assert found["a"] == pytest.approx(1)
    assert found["k149"] == pytest.approx(1 / 150)


@given(jobs(), st.data())
def test_etp_is_what_a_walk_over_uncongested_paths_reaches(job: Job, data: st.DataObject) -> None:
    layout = Layout.build([job])
    nodes = len(layout.node_names)
    congested = np.array(data.draw(st.lists(st.booleans(), min_size=nodes, max_size=nodes)))
    processing = np.array(
        data.draw(st.lists(st.integers(1, 100), min_size=nodes, max_size=nodes)), dtype=float
    )
    sinks = {layout.node_names[n] for n in layout.sink_nodes}
    row = {name: i for i, name in enumerate(layout.node_names)}

    def reach(name: str) -> set[str]:
        found = {name} if name in sinks else set()
        for edge in job.children[name]:
            if edge.target in sinks or not congested[row[edge.target]]:
                found |= reach(edge.target)
        return found

    total = sum(processing[row[sink]] for sink in sinks)
    expected = [sum(processing[row[s]] for s in reach(name)) / total for name in layout.node_names]
    assert etp(layout, processing, congested).tolist() == pytest.approx(expected)


def test_one_more_instance_moves_the_rates_and_with_them_the_bottleneck() -> None:
    layout, processing = shape("s>a", "a>b", "b>k", rates={"s": 100, "a": 50, "b": 40, "k": 40})
    row = {name: i for i, name in enumerate(layout.node_names)}
    asked = np.array([100.0, 100.0, 50.0, 40.0])
    rates = Rates(asked, processing, np.array([100.0, 50.0, 40.0]), layout.parallelism)
    congested = congested_by_rates(asked, processing)
    assert etp(layout, processing, congested)[row["a"]] == 0  # b is congested and in the way
    extra = np.zeros(4, dtype=np.int64)
    extra[row["b"]] = 1
    after = project(layout, rates, extra)
    assert after.processing[row["b"]] == 80  # (k + 1)/k of 40
    assert after.input[row["k"]] == 80
    assert projected_etp(layout, rates, extra)[row["a"]] == 1


def test_etp_sum_adds_the_operators_of_a_machines_instances() -> None:
    layout, _ = shape("s>a", "a>b", "b>k")
    layout = Layout(**{**layout.__dict__, "machines": ("m0", "m1")})
    share = np.array([0.0, 0.25, 0.5, 1.0])
    assert etp_sum(layout, share, np.array([0.0, 0.0])).tolist() == [0.75, 0.0]
    assert np.isnan(etp_sum(layout, share, np.array([1.0, float("nan")]))).all()


def test_the_next_instance_goes_to_the_congested_operator_with_the_highest_etp() -> None:
    layout, processing = shape(*FIGURE_2, rates=THROUGHPUT)
    names = np.array(layout.node_names)
    congested = np.isin(names, ["1", "3", "4", "6"])
    found = etp(layout, processing, congested)
    assert names[next_target(layout, found, congested)[0]] in {"3", "4"}
    calm = np.zeros(len(names), dtype=bool)
    assert names[next_target(layout, etp(layout, processing, calm), calm)[0]] == "1"
    alone, _ = shape("s>k")
    assert next_target(alone, np.zeros(2), np.zeros(2, dtype=bool)).tolist() == [-1]
