"""Instances that share a core, on a machine whose shares can be worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from tests.strategies import COLUMNS
from trilithon.measures.contention import could_take_when_placed
from trilithon.model.columns import Instances, Machines
from trilithon.model.job import Edge, Job, Operator, Parallelism, Sink, Source
from trilithon.model.layout import Layout
from trilithon.model.series import Series, Window
from trilithon.model.snapshot import Snapshot

JOB = Job(
    tenant="t",
    name="pair",
    sources=(Source("s", COLUMNS, ()),),
    operators=(Operator("a", parallelism=Parallelism(2)),),
    edges=(Edge("s", "a"), Edge("a", "k")),
    sinks=(Sink("k", ()),),
)


def window(cpu_s: float) -> Window:
    """Two instances, each on a machine of one core, busy all the time with ten records a second."""
    layout = Layout.build([JOB], machines=("m0", "m1", "m2"))
    snapshot = replace(
        Snapshot.empty(10, layout, {JOB.id: JOB}),
        since_s=0,
        instances=Instances.of(
            2, taken=[100, 100], busy_s=[10, 10], cpu_s=[cpu_s, cpu_s], machine=[0, 1]
        ),
        machines=Machines.of(3, cores=[1, 1, 2]),
    )
    seen = Series.of([snapshot]).window()
    assert seen is not None
    return seen


def could(cpu_s: float, *machine: int) -> float:
    return float(could_take_when_placed(window(cpu_s), np.array(machine))[1])


def test_where_nothing_moves_nothing_changes() -> None:
    assert could(4.0, 0, 1) == pytest.approx(20)


def test_two_that_share_a_core_wait_for_each_other() -> None:
    # q = 0.4 · (1 + q), so each computes 5/3 times as long: 60 + 40 · 5/3 ms per record.
    assert could(4.0, 0, 0) == pytest.approx(2 / (0.06 + 0.04 * 5 / 3), rel=1e-3)


def test_two_that_only_compute_have_half_a_core_each() -> None:
    assert could(10.0, 0, 0) == pytest.approx(10)


def test_a_second_core_takes_the_second_instance() -> None:
    assert could(10.0, 2, 2) == pytest.approx(20)
