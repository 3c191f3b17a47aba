"""How many instances are given and taken: equation 4 with its bounds,
and what makes a place congested.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policies.henge.model import ModelCluster, constant, line
from trilithon.errors import InvalidPolicy
from trilithon.model.columns import Edges, Machines
from trilithon.model.job import Bounds
from trilithon.model.snapshot import Snapshot
from trilithon.policies.henge.congestion import MEASURES, cluster_congestion, register
from trilithon.policies.henge.henge_parameters import HengeParameters
from trilithon.policies.henge.instance_counts import (
    InstanceGrant,
    ScalableOperator,
    extra_instances,
    plan_reconfiguration,
    plan_reduction,
)
from trilithon.policies.henge.view import observe
from trilithon.policies.scene import Span

DEFAULT = HengeParameters()
# To the letter: no bound but the operator's own.
LITERAL = HengeParameters(least_capacity=0, step_most=1000)


def operator(instances: int, capacity: float, most: int = 1000) -> ScalableOperator:
    return ScalableOperator("o", instances, Span(1, most), capacity / 0.3, capacity)


@pytest.mark.parametrize(
    ("capacity", "extra"),
    [(0.3, 0), (0.301, 1), (0.33, 1), (0.54, 8), (0.6, 10), (0.63, 11), (1.0, 24)],
)
def test_a_congested_operator_gets_ten_times_its_excess_rounded_up(
    capacity: float, extra: int
) -> None:
    """The report's figure 12: ten executors become eighteen in one round, at a capacity of 0.54."""
    assert extra_instances(operator(10, capacity), LITERAL) == extra


def test_with_few_instances_no_more_are_given_than_bring_it_to_the_threshold() -> None:
    assert extra_instances(operator(1, 0.6), LITERAL) == 10
    assert extra_instances(operator(1, 0.6), DEFAULT) == 1
    assert extra_instances(operator(4, 0.9), DEFAULT) == 8
    assert extra_instances(operator(40, 0.6), DEFAULT) == 10


@given(st.integers(1, 100), st.floats(0, 1.2), st.integers(1, 120))
def test_nobody_gets_more_than_it_may_have(instances: int, capacity: float, most: int) -> None:
    for parameters in (LITERAL, DEFAULT):
        extra = extra_instances(operator(instances, capacity, max(instances, most)), parameters)
        assert 0 <= extra <= max(instances, most) - instances
        assert extra <= parameters.step_most


def grant_of(cluster: ModelCluster, parameters: HengeParameters = DEFAULT) -> InstanceGrant:
    cluster.tick()
    scene = cluster.scene(60)
    view = observe(scene, parameters)
    assert view is not None
    return plan_reconfiguration(scene, view.jobs["t/a"], view, parameters)


def test_scarce_slots_go_one_by_one_to_whoever_is_still_the_busiest() -> None:
    job = line("a", "x", "y", "z", initial=4)
    cluster = ModelCluster.of([constant(job, 100, x=0.9, y=0.6, z=0.2)], slots=17)
    grant = grant_of(cluster)
    assert grant.wanted == 12
    assert grant.given == 5
    # 0.9 · 4/8 = 0.45 and 0.6 · 4/5 = 0.48: after them the fifth goes to x.
    assert grant.parallelism == {"x": 8, "y": 5}


def test_without_a_free_slot_a_job_is_starved_and_without_a_need_it_is_not() -> None:
    busy = ModelCluster.of([constant(line("a"), 100, work=0.9)], slots=10)
    calm = ModelCluster.of([constant(line("a"), 100, work=0.2)], slots=10)
    assert grant_of(busy).starved
    assert not grant_of(calm).starved
    assert grant_of(calm).parallelism == {}


def test_a_tenants_quota_and_the_jobs_own_bound_are_kept() -> None:
    cluster = ModelCluster.of([constant(line("a"), 100, work=0.9)], quotas={"t": 13})
    assert grant_of(cluster).parallelism == {"work": 13}
    job = replace(line("a"), bounds=Bounds(max_instances=11))
    assert grant_of(ModelCluster.of([constant(job, 100, work=0.9)])).parallelism == {"work": 11}
    full = ModelCluster.of([constant(line("a"), 100, work=0.9)], quotas={"t": 10})
    assert not grant_of(full).starved  # a Reduction of others would not help it


def parallelism_after_reduction(
    instances: int, capacity: float, parameters: HengeParameters = DEFAULT
) -> int:
    cluster = ModelCluster.of([constant(line("a", initial=instances), 20, work=capacity)])
    cluster.tick()
    scene = cluster.scene(60)
    view = observe(scene, parameters)
    assert view is not None
    return plan_reduction(scene, view.jobs["t/a"], view, parameters).get("work", instances)


def test_a_reduction_takes_four_fifths_of_what_is_not_congested_and_leaves_one() -> None:
    assert parallelism_after_reduction(20, 0.01) == 4
    assert parallelism_after_reduction(2, 0.01) == 1
    assert parallelism_after_reduction(1, 0.01) == 1
    assert parallelism_after_reduction(20, 0.31) == 20
    assert parallelism_after_reduction(20, 0.01, HengeParameters(reduction=0.9)) == 2
    assert parallelism_after_reduction(20, 0.01, HengeParameters(reduction=0.7)) == 6


def test_a_reduction_does_not_make_an_operator_too_busy_unless_told_so() -> None:
    assert parallelism_after_reduction(20, 0.28) == 7  # 0.28 · 20/7 = 0.8
    assert parallelism_after_reduction(20, 0.28, HengeParameters(reduced_capacity=10)) == 4


def waits(cluster: ModelCluster) -> Snapshot:
    """The last snapshot with a long queue before every instance, and input that is held back."""
    last = cluster.snapshots[-1]
    instances = replace(last.instances, sent=last.instances.taken + 150)
    columns = {name: last.edges.column(name) for name in last.edges.names()}
    columns["parked_s"] = columns["parked_s"] + 0.5 * cluster.part_s
    return replace(last, instances=instances, edges=Edges(**columns))


@pytest.mark.parametrize(("measure", "extra"), [("capacity", 0), ("queue", 1), ("etp", 1)])
def test_other_measures_of_congestion_see_what_capacity_does_not(measure: str, extra: int) -> None:
    cluster = ModelCluster.of([constant(line("a", "work"), 100, work=0.1)])
    parameters = HengeParameters(congestion=measure)
    cluster.tick()
    cluster.snapshots[-1] = waits(cluster)
    scene = cluster.scene(60)
    view = observe(scene, parameters)
    assert view is not None
    grant = plan_reconfiguration(scene, view.jobs["t/a"], view, parameters)
    assert grant.given == extra


def test_a_measure_of_ones_own_is_named_like_the_others() -> None:
    cluster = ModelCluster.of([constant(line("a", "work"), 100, work=0.1)])
    cluster.tick()
    scene = cluster.scene(60)
    with pytest.raises(InvalidPolicy, match="mine"):
        HengeParameters(congestion="mine")
    register("mine", lambda window, _: np.full(len(window.layout.node_names), 1.2))
    try:
        parameters = HengeParameters(congestion="mine", least_capacity=0)
        view = observe(scene, parameters)
        assert view is not None
        assert plan_reconfiguration(scene, view.jobs["t/a"], view, parameters).given == 2
        with pytest.raises(InvalidPolicy, match="exists"):
            register("mine", MEASURES["capacity"])
    finally:
        del MEASURES["mine"]


def test_an_operator_behind_a_congested_one_cannot_change_the_output_and_is_passed_over() -> None:
    job = line("a", "first", "second")
    cluster = ModelCluster.of([constant(job, 100, first=0.9, second=0.9)])
    cluster.tick()
    last = cluster.snapshots[-1]
    columns = {name: last.edges.column(name) for name in last.edges.names()}
    # Both are held back: what more instances of the first send would wait before the second.
    columns["parked_s"] = columns["parked_s"] + [5.0, 5.0, 0.0]
    cluster.snapshots[-1] = replace(last, edges=Edges(**columns))
    parameters = HengeParameters(congestion="etp")
    scene = cluster.scene(60)
    view = observe(scene, parameters)
    assert view is not None
    grant = plan_reconfiguration(scene, view.jobs["t/a"], view, parameters)
    assert list(grant.parallelism) == ["second"]


@pytest.mark.parametrize(
    ("loads", "congested"), [((9, 9, 1), True), ((9, 1, 1), False), ((8, 8, 8), False)]
)
def test_a_cluster_is_congested_when_most_machines_have_more_to_run_than_cores(
    loads: tuple[float, ...], congested: bool
) -> None:
    cluster = ModelCluster.of([constant(line("a"), 20)])
    last = cluster.snapshots[-1]
    machines = Machines.of(3, cores=[8.0] * 3, load=loads)
    assert cluster_congestion([replace(last, machines=machines)], DEFAULT).is_congested is congested


def test_a_moment_of_load_is_not_congestion_and_a_machine_without_numbers_neither() -> None:
    cluster = ModelCluster.of([constant(line("a"), 20)])
    last = cluster.snapshots[-1]

    def at(*load: float) -> Snapshot:
        return replace(last, machines=Machines.of(3, cores=[8.0] * 3, load=load))

    nan = float("nan")
    assert (
        cluster_congestion([at(1, 1, 1), at(1, 1, 1), at(20, 20, 20)], DEFAULT).congested_machines
        == 0
    )
    assert cluster_congestion([at(9, nan, nan), at(nan, 9, nan)], DEFAULT).congested_machines == 2
