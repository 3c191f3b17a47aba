"""The crunch indicator: which jobs are overly hungry, and how many slots each job needs."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policies.henge.model import Law, ModelCluster, Run, constant, line, shared
from trilithon.measures.demand import JobGraph
from trilithon.model.columns import Floats, Ints
from trilithon.model.intent import Metric, Threshold
from trilithon.policies.henge import messages
from trilithon.policies.henge.crunch import (
    Crunch,
    SlotNeed,
    _add_until_latency_met,
    compute_crunch,
)
from trilithon.policies.henge.henge_policy import HengePolicy


def crunch_of(*laws: Law, **settings: object) -> Crunch:
    cluster = ModelCluster.of(laws, **settings)
    for _ in range(6):
        cluster.tick()
    crunch = compute_crunch(cluster.scene(70), {})
    assert crunch is not None
    return crunch


def need(crunch: Crunch, job: str) -> SlotNeed:
    return next(entry for entry in crunch.needs if entry.job == job)


def juicy(name: str, capacity: float, instances: int = 10, most: int = 200) -> Law:
    job = line(name, initial=instances, most=most, thresholds=(Threshold(Metric.JUICE, 1.0),))
    return constant(job, 20, work=capacity)


def test_who_must_keep_up_needs_a_little_more_than_its_work() -> None:
    crunch = crunch_of(juicy("a", 0.45), slots=10)
    # 4.5 instances' worth of work, none of them busy for more than nine tenths of the time.
    assert need(crunch, "t/a").instances == {"work": 5}
    assert crunch.feasible is True
    assert crunch.slots_missing == 0


def test_a_job_that_falls_behind_needs_what_arrives_not_what_it_manages() -> None:
    law = juicy("a", 1.0)
    law.juice = lambda _: 0.5
    crunch = crunch_of(law, slots=15)
    # Ten busy instances manage half: twenty's worth of work, 23 at nine tenths.
    assert need(crunch, "t/a").instances == {"work": 23}
    assert crunch.slots_missing == 8
    assert crunch.feasible is False


@pytest.mark.parametrize(
    ("asked", "instances"),
    [
        ((Threshold(Metric.JUICE, 0.5),), 10),
        ((Threshold(Metric.THROUGHPUT, 40),), 8),
        ((Threshold(Metric.THROUGHPUT, 40), Threshold(Metric.JUICE, 0.6)), 12),
        ((), 1),
    ],
)
def test_who_is_promised_a_part_needs_what_carries_that_part(
    asked: tuple[Threshold, ...], instances: int
) -> None:
    """Ten busy instances manage half of 100 records/s."""
    law = constant(line("a", thresholds=asked), 20, work=1.0)
    law.juice = lambda _: 0.5
    crunch = crunch_of(law, slots=instances)
    assert need(crunch, "t/a").instances == {"work": instances}
    assert crunch.feasible is True
    assert crunch.cores_needed == pytest.approx(instances if asked else 0)


def test_executors_on_one_host_have_its_cores_once() -> None:
    crunch = crunch_of(juicy("a", 0.5), cores=8, machines=("h0/1", "h0/2", "h1/3"))
    assert crunch.cores == 16


def test_the_slots_of_all_are_added_up_and_compared() -> None:
    crunch = crunch_of(juicy("a", 0.9), juicy("b", 0.45), constant(line("c"), 20), slots=15)
    assert [entry.slots for entry in crunch.needs] == [10, 5, 2]
    assert (crunch.slots_needed, crunch.slots_missing) == (17, 2)
    without_limit = crunch_of(juicy("a", 0.9), juicy("b", 0.45))
    assert without_limit.slots_missing == 0


def test_a_promise_below_the_service_time_cannot_be_kept_by_any_number() -> None:
    crunch = crunch_of(constant(line("a", ms=40), 100, work=0.5))  # 50 ms of work per record
    assert crunch.impossible == ("t/a",)
    assert crunch.feasible is False
    possible = crunch_of(constant(line("a", ms=60), 100, work=0.5))
    assert possible.feasible is True
    assert (need(possible, "t/a").latency_ms or 0) <= 60


def test_more_throughput_than_comes_in_cannot_be_had() -> None:
    asked = (Threshold(Metric.THROUGHPUT, 150),)
    assert crunch_of(constant(line("a", thresholds=asked), 20)).impossible == ("t/a",)


def test_bounds_that_are_too_tight_are_told() -> None:
    assert crunch_of(juicy("a", 0.9, instances=2, most=4)).feasible is True
    law = juicy("b", 1.0, instances=2, most=4)
    law.juice = lambda _: 0.2
    assert crunch_of(law).impossible == ("t/b",)


class Waiting:
    """The service time of a record, and the time that it waits, which
    the instances share.
    """

    service_s = np.array([0.0, 0.1, 0.1, 0.0, 0.0])
    alone_s = np.array([0.0, 0.05, 0.05, 0.12, 0.0])

    def waiting(self, nodes: Ints, counts: Floats) -> Floats:
        waits: Floats = self.alone_s[nodes] / counts
        return waits


def test_of_several_ways_only_the_longest_get_more() -> None:
    """Two paths of 150 ms side by side, and one of 120 ms with longer waiting."""
    edges = tuple((a, b, 0.0) for a, b in ((0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4)))
    graph = JobGraph(np.array([1, 2, 3]), 0, 5, edges, Waiting())  # type: ignore[arg-type]
    promise = [Threshold(Metric.LATENCY, 140)]
    counts, met = _add_until_latency_met(graph, np.ones(3), np.full(3, 9.0), promise)
    assert met
    assert counts.tolist() == [2, 2, 1]


def test_fixed_operators_keep_what_they_have() -> None:
    job = line("a", "free", "state", initial=8, thresholds=(Threshold(Metric.JUICE, 1.0),))
    crunch = crunch_of(constant(job, 20), fixed={"t/a": frozenset({"state"})})
    assert need(crunch, "t/a").instances == {"free": 1, "state": 8}


def test_without_numbers_nothing_is_claimed() -> None:
    law = juicy("a", 0.5)
    law.metrics_missing = True
    crunch = crunch_of(law, juicy("b", 0.5), slots=50)
    assert crunch.unknown == ("t/a",)
    assert crunch.feasible is None
    assert need(crunch, "t/a").slots == 1
    # Nor is anything missing for certain when what is unknown could do with less than it has.
    assert crunch_of(law, juicy("b", 0.5), slots=8).feasible is None
    assert crunch_of(law, juicy("b", 0.5), slots=6).feasible is False


def test_more_cpu_than_there_are_cores_cannot_be_divided_well() -> None:
    crunch = crunch_of(juicy("a", 0.9, instances=40), cores=8)
    assert crunch.cores == 24
    assert crunch.cores_needed == pytest.approx(36)
    assert crunch.feasible is False


def test_many_misses_on_a_congested_cluster_are_the_papers_sign() -> None:
    laws = [constant(line("a"), 100), constant(line("b"), 100), constant(line("c"), 20)]
    assert crunch_of(*laws, load=lambda c: c.cores + 1).oversubscribed
    assert not crunch_of(*laws).oversubscribed


def test_overly_hungry_is_a_high_priority_that_many_steps_touched_in_vain() -> None:
    slow = line("slow", priority=90)
    laws = [
        Law(slow, lambda p: 4e4 / p["work"], lambda _: {"work": 0.6}),
        shared(line("quick"), 8),
        constant(line("calm", priority=10), 20),
    ]
    henge = Run(ModelCluster.of(laws), HengePolicy())
    for _ in range(4):
        henge.until(messages.RECONFIGURATION)
    crunch = compute_crunch(henge.cluster.scene(70), henge.state)
    assert crunch is not None
    assert crunch.hungry == ("t/slow",)
    assert set(crunch.missed) >= {"t/slow"}


@given(
    st.lists(st.floats(0.02, 0.95), min_size=1, max_size=3),
    st.integers(5, 400),
    st.sampled_from([None, "p95", "p99"]),
)
def test_no_smaller_number_of_instances_would_do(
    busy: list[float], ms: int, statistic: str | None
) -> None:
    """Compared with every division of up to eight instances per operator."""
    names = [f"o{i}" for i in range(len(busy))]
    job = line(
        "a", *names, initial=2, most=8, thresholds=(Threshold(Metric.LATENCY, ms, statistic),)
    )
    slot_need = need(crunch_of(constant(job, 20, **dict(zip(names, busy, strict=True)))), "t/a")
    service = np.array(busy) * 2 / 100
    tail = {None: 1.0, "p95": np.log(20), "p99": np.log(100)}[statistic]

    def holds(counts: tuple[int, ...]) -> bool:
        rho = np.array(busy) * 2 / counts
        if (rho > 0.9 + 1e-9).any():
            return False
        return bool((service + tail * rho * service / (1 - rho)).sum() <= ms / 1000)

    fitting = [sum(counts) for counts in product(range(1, 9), repeat=len(busy)) if holds(counts)]
    assert slot_need.possible is bool(fitting)
    if fitting:
        assert slot_need.slots == min(fitting)
