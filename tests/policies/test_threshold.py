"""The threshold policy: more where latency is missed, fewer where
there is room, and rest in between.
"""

import json
from dataclasses import replace

import pytest

from tests.cluster import FakeCluster, chain
from trilithon.contract.assembler import Assembler
from trilithon.model.action import Reallocate, Status
from trilithon.model.allocation import Allocation, initial
from trilithon.model.change import ParallelismChange
from trilithon.model.job import Job
from trilithon.model.mode import Mode
from trilithon.model.series import Series
from trilithon.policies.decision import Decision
from trilithon.policies.policy import State, Verdict
from trilithon.policies.scene import Cluster, JobStatus, Scene, Span
from trilithon.policies.threshold import AMPLE, AT_LIMIT, MISSED, ThresholdPolicy

JOB = chain()


class Stage:
    """One job on a cluster, seen by a policy every ten seconds, with nobody in between."""

    def __init__(self, job: Job = JOB, rate: float = 10.0) -> None:
        self.job, self.cluster = job, FakeCluster()
        self.policy = ThresholdPolicy()
        self.cluster.rates[job.id] = rate
        self.cluster.submit(job, initial(job))
        self.assembler = Assembler()
        self.assembler.expect(job, initial(job))
        self.series = Series((), self.policy.lookback_s)
        self.state: State = {"seed": 1}
        self.round = 0
        self.status = JobStatus(
            job.id,
            job.tenant,
            initial(job),
            self.cluster.now_s,
            spans={o.name: Span(o.parallelism.min, o.parallelism.max) for o in job.operators},
        )

    def decide(self) -> tuple[Decision, ...]:
        self.cluster.advance(10.0)
        for report in self.cluster.reports():
            self.assembler.take(report)
        self.series = self.series.extended([self.assembler.snapshot(self.cluster.now_s)])
        self.round += 1
        cluster = Cluster(self.cluster.capabilities())
        scene = Scene(self.round, self.series, {self.job.id: self.status}, cluster)
        verdict: Verdict = self.policy.decide(scene, self.state)
        assert json.loads(json.dumps(verdict.state)) == verdict.state
        self.state = verdict.state
        return verdict.decisions

    def obey(self, decision: Decision) -> None:
        for change in decision.changes:
            assert isinstance(change, ParallelismChange)
            wanted = self.status.allocation.changed([change]).next_generation()
            assert self.cluster.apply(Reallocate(wanted)).status is Status.DONE
            self.take(wanted)

    def take(self, allocation: Allocation) -> None:
        self.assembler.expect(self.job, allocation)
        self.status = replace(self.status, allocation=allocation, changed_s=self.cluster.now_s)

    def rounds(self, count: int) -> list[Decision]:
        decisions = []
        for _ in range(count):
            for decision in self.decide():
                decisions.append(decision)
                self.obey(decision)
        return decisions


def test_a_missed_threshold_raises_the_busiest_operator() -> None:
    stage = Stage(rate=150.0)
    stage.cluster.service_s[JOB.id, "o1"] = 0.012
    decisions = stage.rounds(3)
    assert [decision.reason for decision in decisions] == [MISSED]
    assert decisions[0].numbers["capacity"] == pytest.approx(1.0)
    assert stage.status.allocation.parallelism == {"o0": 1, "o1": 2}
    assert "o1" in decisions[0].sentence
    assert decisions[0].expects is not None
    assert decisions[0].expects.metric == "latency.p95"


def test_the_threshold_is_met_in_the_end_and_then_there_is_rest() -> None:
    stage = Stage(rate=350.0)
    stage.rounds(60)
    assert stage.rounds(40) == []
    values = stage.series.window(20)
    assert values is not None
    assert stage.status.allocation.parallelism["o0"] >= 4


def test_ample_room_lowers_down_to_the_minimum_one_by_one() -> None:
    stage = Stage(rate=5.0)
    stage.take(initial(JOB).rescaled({"o0": 4, "o1": 3}).next_generation())
    assert stage.cluster.apply(Reallocate(stage.status.allocation)).changed
    decisions = stage.rounds(40)
    assert {decision.reason for decision in decisions} == {AMPLE}
    assert len(decisions) == 5
    assert stage.status.allocation.parallelism == {"o0": 1, "o1": 1}


def test_what_did_not_suffice_is_not_tried_again_under_the_same_load() -> None:
    """Latency alone has room with two instances and is missed with one: without memory the policy
    would swing between them for ever.
    """
    stage = Stage(rate=90.0)
    assert len(stage.rounds(80)) < 6
    assert stage.rounds(40) == []


def test_it_is_tried_again_when_the_load_has_fallen() -> None:
    stage = Stage(rate=90.0)
    stage.rounds(30)
    assert stage.status.allocation.instances > 2
    stage.cluster.rates[JOB.id] = 5.0
    stage.rounds(40)
    assert stage.status.allocation.instances == 2


def test_a_limit_is_told_and_nothing_is_asked() -> None:
    stage = Stage(chain(most=1), rate=150.0)
    decisions = stage.rounds(4)
    assert {decision.reason for decision in decisions} == {AT_LIMIT}
    assert all(not decision.changes for decision in decisions)


@pytest.mark.parametrize(
    "change", [{"mode": Mode.OFF}, {"in_flight": True}, {"fixed": frozenset({"o0", "o1"})}]
)
def test_nothing_is_asked_where_nothing_may_be(change: dict[str, object]) -> None:
    stage = Stage(rate=150.0)
    stage.status = replace(stage.status, **change)  # type: ignore[arg-type]
    assert all(not decision.changes for decision in stage.rounds(4))


def test_nothing_is_decided_from_missing_numbers() -> None:
    stage = Stage(rate=150.0)
    stage.cluster.silent.add(JOB.id)
    assert stage.rounds(4) == []


def test_a_job_without_a_latency_threshold_is_left_alone() -> None:
    assert Stage(chain(p95_ms=None), rate=150.0).rounds(4) == []
