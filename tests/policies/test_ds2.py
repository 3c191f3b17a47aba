"""The policy `ds2`: the instances that true rates ask for, whatever the shape of the job."""

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.strategies import jobs as random_jobs
from trilithon.control.rules import Limits
from trilithon.model.allocation import Allocation, initial
from trilithon.model.capability import Capabilities
from trilithon.model.change import ParallelismChange
from trilithon.model.columns import Edges, Instances, Machines, Sinks, Sources
from trilithon.model.job import Bounds, Edge, Grouping, Job, Operator, Parallelism, Sink, Source
from trilithon.model.layout import Layout
from trilithon.model.mode import Mode
from trilithon.model.series import Series
from trilithon.model.sketches import Sketches
from trilithon.model.snapshot import Snapshot
from trilithon.policies.decision import Decision
from trilithon.policies.ds2 import BEHIND, BEHIND_AT_LIMIT, FEWER_SUFFICE, Ds2Parameters, Ds2Policy
from trilithon.policies.policy import State
from trilithon.policies.scene import Cluster, JobStatus, Scene, Span
from trilithon.scenarios.run import simulate
from trilithon.scenarios.scenario import load_scenario

INTERVAL_S = 10.0


def graph(*edges: tuple[str, str], name: str = "job", tenant: str = "t", most: int = 10_000) -> Job:
    """A job from its edges: nodes named `in…` are sources, `out…` sinks, the rest operators."""
    nodes = list(dict.fromkeys(node for edge in edges for node in edge))
    operators = [node for node in nodes if not node.startswith(("in", "out"))]
    return Job(
        tenant=tenant,
        name=name,
        sources=tuple(Source(node, (), ()) for node in nodes if node.startswith("in")),
        operators=tuple(Operator(o, parallelism=Parallelism(1, 1, most)) for o in operators),
        edges=tuple(Edge(a, b) for a, b in edges),
        sinks=tuple(Sink(node, ()) for node in nodes if node.startswith("out")),
    )


def chain(*operators: str, **settings: Any) -> Job:
    return graph(*pairwise(["in", *operators, "out"]), **settings)


@dataclass
class LinearJob:
    """A job whose instances have a fixed speed and share their records evenly.

    Sources have a rate, edges a selectivity. Back-pressure lets every operator do the share of its
    input that the slowest can do; what is left stays in the log.
    """

    job: Job
    rate_per_s: Mapping[str, float]
    speed_per_s: Mapping[str, float]
    selectivity: Mapping[tuple[str, str], float] = field(default_factory=dict)
    # How many times as long a record takes with p instances as with one.
    slowdown: Mapping[str, float] = field(default_factory=dict)
    # The share of what arrives that the readers can read.
    readable: float = math.inf
    backlog: float = 0.0
    missing: bool = False

    def input_of(self, node: str) -> float:
        """Records per second that a node gets if nothing holds it back."""
        if node in self.rate_per_s:
            return self.rate_per_s[node]
        return sum(
            self.input_of(edge.source) * self.selectivity.get((edge.source, edge.target), 1.0)
            for edge in self.job.parents[node]
        )

    def speed(self, operator: str, instances: int) -> float:
        return self.speed_per_s[operator] / (1 + self.slowdown.get(operator, 0) * (instances - 1))

    def needed(self, operator: str) -> int:
        exact = self.input_of(operator) / self.speed_per_s[operator]
        return max(1, math.ceil(exact - 1e-9))


@dataclass
class LinearCluster:
    """Some linear jobs that a policy sees every ten seconds; what it decides is done at once."""

    jobs: Mapping[str, LinearJob]
    policy: Ds2Policy = field(default_factory=Ds2Policy)
    slots: int | None = None
    quotas: Mapping[str, int] = field(default_factory=dict)
    time_s: float = 1_000.0
    round: int = 0
    state: State = field(default_factory=lambda: {"seed": 1})
    counted: defaultdict[tuple[str, ...], float] = field(default_factory=lambda: defaultdict(float))

    def __post_init__(self) -> None:
        self.statuses = {
            name: JobStatus(
                name,
                each.job.tenant,
                initial(each.job),
                self.time_s,
                spans={
                    o.name: Span(o.parallelism.min, o.parallelism.max) for o in each.job.operators
                },
            )
            for name, each in self.jobs.items()
        }
        self.series = Series((self.snapshot(),), self.policy.lookback_s)

    @classmethod
    def of(cls, *jobs: LinearJob, **settings: Any) -> "LinearCluster":
        return cls({each.job.id: each for each in jobs}, **settings)

    def parallelism(self, job: str | None = None) -> dict[str, int]:
        return dict(self.statuses[job or next(iter(self.jobs))].allocation.parallelism)

    def run(self, seconds: float = INTERVAL_S) -> None:
        self.time_s += seconds
        for name, each in self.jobs.items():
            self._work(name, each, seconds)

    def _work(self, name: str, each: LinearJob, seconds: float) -> None:
        p = self.statuses[name].allocation.parallelism
        able = [
            count * each.speed(o, count) / each.input_of(o)
            for o, count in p.items()
            if each.input_of(o) > 0
        ]
        arrived = sum(each.rate_per_s.values()) * seconds
        share = min([*able, each.readable, 1 + each.backlog / arrived if arrived else 1.0])
        each.backlog += arrived * (1 - share)
        for source, rate in each.rate_per_s.items():
            self.counted[name, source, "arrived"] += rate * seconds
            self.counted[name, source, "taken"] += rate * seconds * share
        for edge in each.job.edges:
            through = each.input_of(edge.source) * share * seconds
            sent = through * each.selectivity.get((edge.source, edge.target), 1.0)
            self.counted[name, edge.source, edge.target] += sent
        for o, count in p.items():
            taken = each.input_of(o) * share * seconds / count
            for i in range(count):
                self.counted[name, o, str(i), "taken"] += taken
                self.counted[name, o, str(i), "busy"] += taken / each.speed(o, count)

    def snapshot(self) -> Snapshot:
        jobs = {name: each.job for name, each in self.jobs.items()}
        counts = {name: self.parallelism(name) for name in jobs}
        layout = Layout.build(jobs.values(), counts)
        absent = {name for name, each in self.jobs.items() if each.missing}

        def values(keys: list[tuple[str, ...]]) -> list[float]:
            return [math.nan if key[0] in absent else self.counted[key] for key in keys]

        instances = [(j, o, str(i)) for j, o, i in layout.instance_row]
        taken = values([(*key, "taken") for key in instances])
        through = values(list(layout.edge_row))
        sources = list(layout.source_row)
        return replace(
            Snapshot.empty(self.time_s, layout, jobs),
            instances=Instances.of(
                len(taken),
                incarnation=np.zeros(len(taken)),
                taken=taken,
                busy_s=values([(*key, "busy") for key in instances]),
            ),
            edges=Edges.of(
                len(through), incarnation=np.zeros(len(through)), emitted=through, taken=through
            ),
            sources=Sources.of(
                len(sources),
                incarnation=np.zeros(len(sources)),
                arrived=values([(*key, "arrived") for key in sources]),
                taken=values([(*key, "taken") for key in sources]),
            ),
            sinks=Sinks.missing(len(layout.sink_row)),
            latencies=Sketches.missing(len(layout.sink_row)),
            machines=Machines.missing(0),
        )

    def decide(self) -> tuple[Decision, ...]:
        self.series = self.series.extended([self.snapshot()])
        self.round += 1
        used = sum(status.allocation.instances for status in self.statuses.values())
        cluster = Cluster(Capabilities({}), self.slots, used, self.quotas)
        scene = Scene(self.round, self.series, self.statuses, cluster)
        verdict = self.policy.decide(scene, self.state)
        assert json.loads(json.dumps(verdict.state)) == verdict.state
        assert verdict.next_round_s == self.policy.parameters.interval_s
        self.state = verdict.state
        return verdict.decisions

    def rounds(self, count: int) -> list[Decision]:
        """Lets intervals pass and does what is decided. The decisions of all of them."""
        decisions = []
        for _ in range(count):
            self.run()
            for decision in self.decide():
                decisions.append(decision)
                self.do(decision)
        return decisions

    def do(self, decision: Decision) -> None:
        for change in decision.changes:
            assert isinstance(change, ParallelismChange)
            self.rescale(change.job, **change.parallelism)

    def rescale(self, job: str, **counts: int) -> None:
        status = self.statuses[job]
        allocation: Allocation = status.allocation.rescaled(counts).next_generation()
        changed_s = self.time_s
        self.statuses[job] = replace(status, allocation=allocation, changed_s=changed_s)


def word_count(rate: float = 1000.0) -> LinearJob:
    """Sentences of ten words: a splitter does 100 sentences/s, a counter 400 words/s. For 1,000
    sentences/s that is 10 splitters and, for 10,000 words/s, 25 counters.
    """
    job = chain("split", "count")
    speeds = {"split": 100.0, "count": 400.0}
    return LinearJob(job, {"in": rate}, speeds, {("split", "count"): 10.0})


def test_the_example_worked_by_hand_is_right_in_one_step() -> None:
    """One splitter reads 40 of 1,000 sentences/s: one counter cannot count more than 400 words. Its
    true rate is 100/s all the same, as it works for 0.4 s of each second.
    """
    cluster = LinearCluster.of(word_count())
    decisions = cluster.rounds(8)
    assert [decision.reason for decision in decisions] == [BEHIND]
    assert cluster.parallelism() == {"split": 10, "count": 25}
    numbers = decisions[0].numbers
    assert numbers["split.x"] == pytest.approx(10)
    assert numbers["count.x"] == pytest.approx(25)
    assert numbers["split.true_rate_per_s"] == pytest.approx(100)
    assert numbers["count.wanted_input_per_s"] == pytest.approx(10_000)
    assert "split 1 → 10, count 1 → 25" in decisions[0].sentence
    assert decisions[0].expects is not None
    assert decisions[0].expects.metric == "juice"
    assert decisions[0].expects.by_s == pytest.approx(1_000 + INTERVAL_S + 3 * INTERVAL_S)


def test_a_falling_load_takes_instances_back_in_one_step() -> None:
    cluster = LinearCluster.of(word_count())
    cluster.rounds(4)
    each = cluster.jobs["t/job"]
    each.rate_per_s = {"in": 150.0}
    each.backlog = 0.0
    decisions = cluster.rounds(8)
    assert [decision.reason for decision in decisions] == [FEWER_SUFFICE]
    assert cluster.parallelism() == {"split": 2, "count": 4}


def test_output_is_not_rounded_up_with_the_instances() -> None:
    """2.5 splitters are 3; the counter gets what 250 sentences make, not what 3 splitters could."""
    cluster = LinearCluster.of(word_count(250.0))
    cluster.rounds(3)
    assert cluster.parallelism() == {"split": 3, "count": 7}


def test_a_diamond_adds_up_what_both_branches_send() -> None:
    job = graph(("in", "a"), ("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "out"))
    each = LinearJob(
        job,
        {"in": 100.0},
        {"a": 50.0, "b": 10.0, "c": 20.0, "d": 30.0},
        {("b", "d"): 0.5, ("c", "d"): 2.0},
    )
    cluster = LinearCluster.of(each)
    assert len(cluster.rounds(6)) == 1
    # d gets 100 · 0.5 + 100 · 2 = 250 records/s.
    assert cluster.parallelism() == {"a": 2, "b": 10, "c": 5, "d": 9}


def test_an_aggregation_passes_little_on() -> None:
    job = chain("parse", "sum", "store")
    speeds = {"parse": 500.0, "sum": 250.0, "store": 5.0}
    cluster = LinearCluster.of(LinearJob(job, {"in": 2000.0}, speeds, {("sum", "store"): 0.01}))
    cluster.rounds(4)
    assert cluster.parallelism() == {"parse": 4, "sum": 8, "store": 4}


def test_two_sources_add_up() -> None:
    job = graph(("in1", "a"), ("in2", "b"), ("a", "join"), ("b", "join"), ("join", "out"))
    speeds = {"a": 100.0, "b": 100.0, "join": 100.0}
    cluster = LinearCluster.of(LinearJob(job, {"in1": 150.0, "in2": 320.0}, speeds))
    cluster.rounds(4)
    assert cluster.parallelism() == {"a": 2, "b": 4, "join": 5}


def test_a_backlog_does_not_change_what_is_wanted() -> None:
    """The log's end grows with what arrives. While a backlog is worked off more is read than that,
    and DS2 does not take it for load.
    """
    each = word_count()
    each.backlog = 100_000.0
    cluster = LinearCluster.of(each)
    cluster.rescale("t/job", split=12, count=30)
    decisions = cluster.rounds(6)
    assert each.backlog > 0
    assert [decision.reason for decision in decisions] == [FEWER_SUFFICE]
    assert cluster.parallelism() == {"split": 10, "count": 25}


def test_instances_beyond_the_needed_come_from_the_scaling_factor() -> None:
    policy = Ds2Policy(Ds2Parameters(scaling_factor=0.2))
    cluster = LinearCluster.of(word_count(), policy=policy)
    cluster.rounds(6)
    assert cluster.parallelism() == {"split": 12, "count": 30}


def test_instances_that_slow_each_other_down_take_a_second_step() -> None:
    """1,050/s at 105/s are 10 instances; with 10 each does 105 / 1.09, and it takes 11 of them."""
    slow = LinearJob(chain("work"), {"in": 1050.0}, {"work": 105.0}, slowdown={"work": 0.01})
    cluster = LinearCluster.of(slow)
    assert len(cluster.rounds(20)) == 2
    assert cluster.parallelism() == {"work": 11}


@pytest.mark.parametrize(("source_ratio", "instances"), [(0.0, 10), (1.3, 10), (1.2, 13)])
def test_a_source_that_stays_behind_is_corrected_by_its_ratio(
    source_ratio: float, instances: int
) -> None:
    """Of 1,000 records/s 800 are read, although 10 instances could do them all: 1.25 · 10."""
    policy = Ds2Policy(Ds2Parameters(source_ratio=source_ratio))
    late = LinearJob(chain("work"), {"in": 1000.0}, {"work": 100.0}, readable=0.8)
    cluster = LinearCluster.of(late, policy=policy)
    cluster.rescale("t/job", work=10)
    cluster.rounds(3)
    assert cluster.parallelism() == {"work": instances}


def test_the_warm_up_is_time_and_not_a_number_of_rounds() -> None:
    cluster = LinearCluster.of(word_count())
    cluster.rounds(1)
    cluster.jobs["t/job"].rate_per_s = {"in": 2000.0}
    for _ in range(29):
        cluster.run(1.0)
        assert cluster.decide() == ()
    cluster.run(1.0)
    assert [decision.reason for decision in cluster.decide()] == [BEHIND]


def test_an_activation_waits_and_takes_the_median() -> None:
    policy = Ds2Policy(Ds2Parameters(activation=3))
    each = word_count()
    cluster = LinearCluster.of(each, policy=policy)
    for rate, expected in ((1000.0, []), (5000.0, []), (1000.0, [BEHIND])):
        each.rate_per_s = {"in": rate}
        assert [decision.reason for decision in cluster.rounds(1)] == expected
    assert cluster.parallelism() == {"split": 10, "count": 25}


def test_nothing_is_decided_from_missing_numbers() -> None:
    each = word_count()
    each.missing = True
    cluster = LinearCluster.of(each)
    assert cluster.rounds(4) == []


def test_an_operator_that_was_not_measured_holds_the_whole_job() -> None:
    """A stalled job takes nothing from its log: how fast its operators are is unknown, not 0."""
    cluster = LinearCluster.of(word_count())
    cluster.time_s += INTERVAL_S
    cluster.counted["t/job", "in", "arrived"] += 1000.0
    assert cluster.decide() == ()


def test_a_branch_without_records_needs_one_instance() -> None:
    job = graph(("in", "a"), ("a", "b"), ("a", "rare"), ("b", "out"), ("rare", "out"))
    each = LinearJob(job, {"in": 100.0}, {"a": 30.0, "b": 30.0, "rare": 10.0}, {("a", "rare"): 0.0})
    cluster = LinearCluster.of(each)
    cluster.rescale("t/job", rare=5)
    cluster.rounds(4)
    assert cluster.parallelism() == {"a": 4, "b": 4, "rare": 1}


@pytest.mark.parametrize(
    "change", [{"mode": Mode.OFF}, {"in_flight": True}, {"hold_reason": "COOL_DOWN"}]
)
def test_a_job_that_may_not_change_is_left_alone(change: dict[str, Any]) -> None:
    cluster = LinearCluster.of(word_count())
    cluster.statuses["t/job"] = replace(cluster.statuses["t/job"], **change)
    assert cluster.rounds(4) == []


def test_a_fixed_operator_keeps_its_instances_and_is_named_as_the_limit() -> None:
    cluster = LinearCluster.of(word_count())
    status = cluster.statuses["t/job"]
    cluster.statuses["t/job"] = replace(status, fixed=frozenset({"split"}))
    decisions = cluster.rounds(4)
    assert cluster.parallelism() == {"split": 1, "count": 25}
    assert [decision.reason for decision in decisions] == [BEHIND, BEHIND_AT_LIMIT]
    assert "limits leave split 1 of 10" in decisions[0].sentence
    assert decisions[1].changes == ()


def test_an_operator_that_gets_copies_keeps_its_instances() -> None:
    each = word_count()
    edges = [
        replace(e, grouping=Grouping.BROADCAST) if e.target == "count" else e
        for e in each.job.edges
    ]
    each.job = replace(each.job, edges=tuple(edges))
    cluster = LinearCluster.of(each)
    cluster.rounds(4)
    assert cluster.parallelism() == {"split": 10, "count": 1}


def test_the_maximum_of_an_operator_is_told_when_it_is_too_low() -> None:
    each = word_count()
    each.job = chain("split", "count", most=8)
    cluster = LinearCluster.of(each)
    decisions = cluster.rounds(6)
    assert cluster.parallelism() == {"split": 8, "count": 8}
    assert [decision.reason for decision in decisions][:2] == [BEHIND, BEHIND_AT_LIMIT]
    assert decisions[-1].expects is None
    assert decisions[1].causes == (decisions[0].id,)


def test_scarce_slots_go_by_name_and_then_to_the_operator_that_is_farthest_behind() -> None:
    """DS2 has no priorities: `a` gets all that it needs, `b` what is left of 46 slots."""
    first = word_count()
    first.job = replace(first.job, name="a")
    second = word_count()
    second.job = replace(second.job, name="b")
    cluster = LinearCluster.of(second, first, slots=46)
    decisions = cluster.rounds(1)
    assert [decision.job for decision in decisions] == ["t/a", "t/b"]
    assert cluster.parallelism("t/a") == {"split": 10, "count": 25}
    # 9 more than 2: shares of 10 and 25 as even as they can be.
    assert cluster.parallelism("t/b") == {"split": 3, "count": 8}
    assert decisions[1].reason == BEHIND
    assert decisions[1].expects is None
    assert "count 8 of 25" in decisions[1].sentence


def test_advice_takes_no_slots() -> None:
    first, second = word_count(), word_count()
    first.job, second.job = replace(first.job, name="a"), replace(second.job, name="b")
    cluster = LinearCluster.of(first, second, slots=37)
    cluster.statuses["t/a"] = replace(cluster.statuses["t/a"], mode=Mode.ADVISE)
    cluster.run()
    wanted = {decision.job: decision.changes[0] for decision in cluster.decide()}
    for job in ("t/a", "t/b"):
        assert wanted[job] == ParallelismChange(job, {"split": 10, "count": 25})


def test_quotas_and_the_maximum_of_a_job_limit_it() -> None:
    limited = word_count()
    limited.job = replace(limited.job, bounds=Bounds(max_instances=12))
    cluster = LinearCluster.of(limited)
    cluster.rounds(2)
    assert sum(cluster.parallelism().values()) == 12
    by_quota = LinearCluster.of(word_count(), quotas={"t": 9})
    by_quota.rounds(2)
    assert sum(by_quota.parallelism().values()) == 9


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_on_a_linear_system_without_skew_it_is_right_in_one_step_and_stays(
    data: st.DataObject,
) -> None:
    """The paper finds at most three steps on real systems; a linear one takes one."""
    job = data.draw(random_jobs())
    spans = [
        replace(o, parallelism=Parallelism(o.parallelism.initial, 1, 10**6)) for o in job.operators
    ]
    edges = [replace(edge, grouping=Grouping.SHUFFLE, key=()) for edge in job.edges]
    job = replace(job, operators=tuple(spans), edges=tuple(edges), bounds=Bounds())
    inner = [
        (edge.source, edge.target)
        for edge in edges
        if edge.source not in {source.name for source in job.sources}
    ]
    each = LinearJob(
        job,
        {source.name: data.draw(st.floats(1, 1000)) for source in job.sources},
        {o.name: data.draw(st.floats(5, 500)) for o in job.operators},
        {edge: data.draw(st.floats(0.1, 3)) for edge in inner},
    )
    wanted = {o.name: each.needed(o.name) for o in job.operators}
    assume(sum(wanted.values()) < 5_000)
    cluster = LinearCluster.of(each)
    decisions = cluster.rounds(10)
    assert cluster.parallelism() == wanted
    assert len(decisions) == int(wanted != {o.name: o.parallelism.initial for o in job.operators})


SIMULATED = """
name: steps
machines: {count: 4, cores: 4}
length: 12 minutes
warm_up: 60 s
cool_down: 0 s
round: 10 s
policy: {name: ds2}
jobs:
  - {file: pageload, parallelism: {all: 1}, load: {rate: 600}}
"""


def test_on_the_simulated_cluster_a_job_keeps_up_after_at_most_three_steps(tmp_path: Path) -> None:
    """The guard lets everything through: its default, twice the instances at most at once, would
    make more steps of each.
    """
    path = tmp_path / "steps.yaml"
    path.write_text(SIMULATED, encoding="utf-8")
    free = Limits(cool_down_s=0, up_factor=1e6, down_factor=0, down_delay_s=0)
    result = simulate(load_scenario(path), tmp_path / "run", limits=free)
    lines = (tmp_path / "run" / "decisions.jsonl").read_text(encoding="utf-8").splitlines()
    decisions = [json.loads(line) for line in lines]
    assert 1 <= len([d for d in decisions if d["reason"] == BEHIND]) <= 3
    assert max(d["time_s"] for d in decisions) < 6 * 60
    (job,) = result.figures.summary()
    assert job["juice"] == pytest.approx(1, abs=0.02)
