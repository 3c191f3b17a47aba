"""The crunch indicator: who is too hungry, what everybody needs, and what is missing."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policies.henge.model import Law, ModelCluster, Run, constant, line, shared
from trilithon.model.columns import Floats, Ints
from trilithon.model.intent import Metric, Threshold
from trilithon.policies.henge import messages
from trilithon.policies.henge.crunch import Crunch, Need, _grown, _Path, crunch
from trilithon.policies.henge.policy import HengePolicy


def crunch_of(*laws: Law, **settings: object) -> Crunch:
    cluster = ModelCluster.of(laws, **settings)
    for _ in range(6):
        cluster.tick()
    found = crunch(cluster.scene(70), {})
    assert found is not None
    return found


def need(found: Crunch, job: str) -> Need:
    return next(one for one in found.needs if one.job == job)


def juicy(name: str, capacity: float, instances: int = 10, most: int = 200) -> Law:
    job = line(name, initial=instances, most=most, thresholds=(Threshold(Metric.JUICE, 1.0),))
    return constant(job, 20, work=capacity)


def test_who_must_keep_up_needs_a_little_more_than_its_work() -> None:
    found = crunch_of(juicy("a", 0.45), slots=10)
    # 4.5 instances' worth of work, none of them busy for more than nine tenths of the time.
    assert need(found, "t/a").instances == {"work": 5}
    assert found.feasible is True
    assert found.slots_missing == 0


def test_a_job_that_falls_behind_needs_what_arrives_not_what_it_manages() -> None:
    law = juicy("a", 1.0)
    law.juice = lambda _: 0.5
    found = crunch_of(law, slots=15)
    # Ten busy instances manage half: twenty's worth of work, 23 at nine tenths.
    assert need(found, "t/a").instances == {"work": 23}
    assert found.slots_missing == 8
    assert found.feasible is False


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
    found = crunch_of(law, slots=instances)
    assert need(found, "t/a").instances == {"work": instances}
    assert found.feasible is True
    assert found.cores_needed == pytest.approx(instances if asked else 0)


def test_executors_on_one_host_have_its_cores_once() -> None:
    found = crunch_of(juicy("a", 0.5), cores=8, machines=("h0/1", "h0/2", "h1/3"))
    assert found.cores == 16


def test_the_slots_of_all_are_added_up_and_compared() -> None:
    found = crunch_of(juicy("a", 0.9), juicy("b", 0.45), constant(line("c"), 20), slots=15)
    assert [one.slots for one in found.needs] == [10, 5, 2]
    assert (found.slots_needed, found.slots_missing) == (17, 2)
    without_limit = crunch_of(juicy("a", 0.9), juicy("b", 0.45))
    assert without_limit.slots_missing == 0


def test_a_promise_below_the_service_time_cannot_be_kept_by_any_number() -> None:
    found = crunch_of(constant(line("a", ms=40), 100, work=0.5))  # 50 ms of work per record
    assert found.impossible == ("t/a",)
    assert found.feasible is False
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
    """What a way is measured by: what a record takes, and what it
    waits, shared by the instances.
    """

    service_s = np.array([0.0, 0.1, 0.1, 0.0, 0.0])
    alone_s = np.array([0.0, 0.05, 0.05, 0.12, 0.0])

    def waiting(self, nodes: Ints, counts: Floats) -> Floats:
        found: Floats = self.alone_s[nodes] / counts
        return found


def test_of_several_ways_only_the_longest_get_more() -> None:
    """Two ways of 150 ms side by side, and one of 120 ms on which more is waited."""
    edges = tuple((a, b, 0.0) for a, b in ((0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4)))
    path = _Path(np.array([1, 2, 3]), 0, 5, edges, Waiting())  # type: ignore[arg-type]
    promise = [Threshold(Metric.LATENCY, 140)]
    counts, met = _grown(path, np.ones(3), np.full(3, 9.0), promise)
    assert met
    assert counts.tolist() == [2, 2, 1]


def test_fixed_operators_keep_what_they_have() -> None:
    job = line("a", "free", "state", initial=8, thresholds=(Threshold(Metric.JUICE, 1.0),))
    found = crunch_of(constant(job, 20), fixed={"t/a": frozenset({"state"})})
    assert need(found, "t/a").instances == {"free": 1, "state": 8}


def test_without_numbers_nothing_is_claimed() -> None:
    law = juicy("a", 0.5)
    law.blind = True
    found = crunch_of(law, juicy("b", 0.5), slots=50)
    assert found.unknown == ("t/a",)
    assert found.feasible is None
    assert need(found, "t/a").slots == 1
    # Nor is anything missing for certain when what is unknown could do with less than it has.
    assert crunch_of(law, juicy("b", 0.5), slots=8).feasible is None
    assert crunch_of(law, juicy("b", 0.5), slots=6).feasible is False


def test_more_cpu_than_there_are_cores_cannot_be_divided_well() -> None:
    found = crunch_of(juicy("a", 0.9, instances=40), cores=8)
    assert found.cores == 24
    assert found.cores_needed == pytest.approx(36)
    assert found.feasible is False


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
    found = crunch(henge.cluster.scene(70), henge.state)
    assert found is not None
    assert found.hungry == ("t/slow",)
    assert set(found.missed) >= {"t/slow"}


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
    found = need(crunch_of(constant(job, 20, **dict(zip(names, busy, strict=True)))), "t/a")
    service = np.array(busy) * 2 / 100
    tail = {None: 1.0, "p95": np.log(20), "p99": np.log(100)}[statistic]

    def holds(counts: tuple[int, ...]) -> bool:
        rho = np.array(busy) * 2 / counts
        if (rho > 0.9 + 1e-9).any():
            return False
        return bool((service + tail * rho * service / (1 - rho)).sum() <= ms / 1000)

    fitting = [sum(counts) for counts in product(range(1, 9), repeat=len(busy)) if holds(counts)]
    assert found.possible is bool(fitting)
    if fitting:
        assert found.slots == min(fitting)
