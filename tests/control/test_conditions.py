"""Failures and recoveries of jobs: what is shown and written, and how a failed job starts again."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster import START_S, FakeCluster, chain
from tests.control.scene import World, rules
from trilithon.contract.condition import Cause
from trilithon.contract.engine import Accepted, Action, Condition, Health, Outcome, Status
from trilithon.control.explain import explain
from trilithon.control.spec_changes import Impact
from trilithon.control.state import JobRecord
from trilithon.errors import HostUnreachable
from trilithon.model.action import RestartJob
from trilithon.model.allocation import Allocation
from trilithon.model.intent import Intent
from trilithon.model.job import Job, Work

JOB = chain()
KAFKA = Condition(Health.DEGRADED, "Kafka does not answer at b:9092.", Cause.KAFKA, START_S, None)


def failed(since_s: float) -> Condition:
    reason = "A cast failed. `trilithon job resume ads/chain` starts it again from its checkpoint."
    return Condition(Health.FAILED, reason, Cause.EXPRESSION, since_s)


class RestartableCluster(FakeCluster):
    """A restart heals a failed job, as on Spark."""

    def apply(self, action: Action) -> Outcome:
        outcome = super().apply(action)
        if isinstance(action, RestartJob) and outcome.status is Status.DONE:
            self.condition.pop(action.job, None)
        return outcome


@pytest.fixture
def running(tmp_path: Path) -> World:
    world = World(tmp_path, RestartableCluster())
    world.commands.apply(JOB)
    world.rounds(5)
    return world


def events(world: World) -> list[tuple[str, str]]:
    rows = world.rows("SELECT kind, text FROM event ORDER BY id")
    return [row for row in rows if row[0] in {"degraded", "failed", "recovered", "resumed"}]


def record(world: World, job: Job = JOB) -> JobRecord:
    return world.controller.state.jobs[job.id]


def test_an_outage_and_its_end_are_one_event_each_however_often_it_is_retried(
    running: World,
) -> None:
    began_s = running.cluster.now_s
    for i in range(20):
        next_s = running.cluster.now_s + i
        running.cluster.condition[JOB.id] = replace(KAFKA, since_s=began_s, next_try_s=next_s)
        running.controller.look() if i % 2 else running.round()
    assert record(running).health == "degraded"
    running.cluster.condition.pop(JOB.id)
    running.controller.look()
    assert (record(running).health, record(running).problem) == ("running", "")
    (down, down_text), (back, back_text) = events(running)
    assert (down, back) == ("degraded", "recovered")
    assert down_text.startswith("Kafka does not answer at b:9092. Next try at ")
    assert back_text == "The job runs again after 100 s. Kafka does not answer at b:9092."
    assert running.journal is not None
    explained = [entry for entry in explain(running.journal, JOB.id) if "event" in entry["id"]]
    assert [entry["sentences"][0].split(":")[0] for entry in explained] == [
        "The job is degraded",
        "The job recovered",
    ]


def test_another_cause_is_another_event(running: World) -> None:
    running.cluster.condition[JOB.id] = KAFKA
    running.controller.look()
    waits = "Waits for tasks: needs 12, free 7 of 19."
    running.cluster.condition[JOB.id] = replace(KAFKA, cause=Cause.TASKS, reason=waits)
    running.controller.look()
    running.cluster.condition[JOB.id] = failed(running.cluster.now_s)
    running.controller.look()
    assert [kind for kind, _ in events(running)] == ["degraded", "degraded", "failed"]
    assert events(running)[1][1] == waits


def test_an_outage_does_not_roll_a_new_version_back(running: World) -> None:
    changed = replace(JOB.operators[0], work=Work(where="v >= 7"))
    version = replace(JOB, operators=(changed, *JOB.operators[1:]))
    running.commands.apply(version)
    running.round()
    running.cluster.condition[JOB.id] = KAFKA
    running.rounds(60)
    assert record(running).version.generation == 2
    running.cluster.condition.pop(JOB.id)
    running.rounds(6)
    assert running.rows("SELECT generation, standing FROM spec") == [(1, "good"), (2, "good")]


def test_a_version_that_nobody_could_look_at_is_tried_again_soon_and_not_rolled_back(
    running: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    unreachable = Outcome(Status.REFUSED, "KAFKA_UNREACHABLE", "Kafka does not answer.")
    changed = replace(JOB.operators[0], work=Work(where="v >= 7"))
    running.commands.apply(replace(JOB, operators=(changed, *JOB.operators[1:])))
    with monkeypatch.context() as patched:
        patched.setattr(running.cluster, "apply", lambda _: unreachable)
        running.rounds(40)
    assert record(running).problem.endswith("KAFKA_UNREACHABLE: Kafka does not answer.")
    running.rounds(2)
    assert running.cluster.jobs()[JOB.id].job.operators[0].work.where == "v >= 7"


@pytest.mark.parametrize("restarted", [False, True])
def test_a_failed_job_starts_again_when_its_owner_resumes_it_and_once(
    running: World, restarted: bool
) -> None:
    running.cluster.condition[JOB.id] = failed(running.cluster.now_s)
    running.rounds(3)
    assert not running.cluster.done or not isinstance(running.cluster.done[-1], RestartJob)
    plan = running.commands.plan(JOB)
    assert plan.impact is Impact.NONE
    assert str(plan).startswith("Nothing changes: the job has failed. A cast failed.")
    assert "`trilithon job resume ads/chain`" in running.commands.apply(JOB).message
    running.commands.resume(JOB.id)
    if restarted:
        running.start()  # what was accepted is not lost with the daemon
    running.rounds(2)
    assert isinstance(running.cluster.done[-1], RestartJob)
    assert record(running).health == "running"
    kinds = [kind for kind, _ in events(running)]
    assert kinds[:2] == ["failed", "resumed"]
    assert kinds[-1] == "recovered"
    # It fails again: nobody asked for that.
    restarts = len([a for a in running.cluster.done if isinstance(a, RestartJob)])
    running.cluster.condition[JOB.id] = failed(running.cluster.now_s + 1)
    running.rounds(5)
    assert len([a for a in running.cluster.done if isinstance(a, RestartJob)]) == restarts
    assert record(running).failed


def test_the_slots_of_a_failed_job_are_free_for_others(running: World) -> None:
    assert running.controller.cluster.slots_used == 2
    running.cluster.condition[JOB.id] = failed(running.cluster.now_s)
    running.round()
    assert running.controller.cluster.slots_used == 0


def test_a_new_version_starts_a_failed_job_even_if_only_the_intent_changed(running: World) -> None:
    running.cluster.condition[JOB.id] = failed(running.cluster.now_s)
    running.round()
    accepted = running.commands.apply(replace(JOB, intent=Intent(priority=3.0)))
    assert "it is started again from its checkpoint" in accepted.message
    running.rounds(2)
    assert record(running).health == "running"


def test_a_resume_that_the_engine_refuses_says_why_and_is_tried_again(
    running: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.cluster.condition[JOB.id] = failed(running.cluster.now_s)
    running.round()
    running.commands.resume(JOB.id)
    no_room = Outcome(Status.REFUSED, "DOES_NOT_FIT", "It needs 12 tasks; 7 of 19 are free.")
    with monkeypatch.context() as patched:
        patched.setattr(running.cluster, "apply", lambda _: no_room)
        running.rounds(5)
    assert "needs 12 tasks; 7 of 19 are free" in record(running).problem
    running.rounds(3)
    assert record(running).health == "running"


class LosableCluster(RestartableCluster):
    """A host that dies with its jobs and comes back without them."""

    def __init__(self) -> None:
        super().__init__()
        self.lost, self.started = False, list[str]()

    def conditions(self) -> Mapping[str, Condition]:
        self._answer()
        return super().conditions()

    def jobs(self) -> dict[str, Accepted]:
        self._answer()
        return dict(super().jobs())

    def _answer(self) -> None:
        if self.lost:
            raise HostUnreachable("The host closed the connection.")

    def die(self) -> None:
        self.lost = True
        for name in list(self.jobs_by_name):
            self.jobs_by_name.pop(name)
            self.ledger.release(name)

    def submit(self, job: Job, allocation: Allocation, checkpoint: str = "") -> Outcome:
        self.started.append(job.id)
        return super().submit(job, allocation, checkpoint)


def test_no_job_of_a_lost_host_is_called_running_and_the_most_important_starts_first(
    tmp_path: Path,
) -> None:
    cluster = LosableCluster()
    world = World(tmp_path, cluster)
    jobs = [chain(f"j{i}", p95_ms=None) for i in range(3)]
    jobs[2] = replace(jobs[2], intent=Intent(priority=9.0))
    for job in jobs:
        world.commands.apply(job)
    world.rounds(3)
    cluster.die()
    assert not world.controller.look()
    for job in jobs:
        assert record(world, job).health == "degraded"
        assert "host does not answer" in record(world, job).problem
    # It is asked again at once, not after a whole round.
    assert world.round().next_s <= 1.0
    cluster.lost, cluster.started = False, []
    world.round()
    assert cluster.started[0] == jobs[2].id
    assert sorted(cluster.started) == sorted(job.id for job in jobs)
    assert {record(world, job).health for job in jobs} == {"running"}
    kinds = [kind for kind, _ in events(world)]
    assert kinds == ["degraded"] * 3 + ["recovered"] * 3


def test_a_job_that_does_not_fit_is_asked_for_again_within_a_minute(tmp_path: Path) -> None:
    """The wait doubled up to five minutes: a cluster that was whole again was not used."""
    cluster = FakeCluster(tasks=1)
    world = World(tmp_path, cluster, rules=rules(round_s=10))
    world.commands.apply(JOB)
    world.rounds(60)
    assert JOB.id not in cluster.jobs()
    cluster.ledger.tasks = 1000
    world.rounds(3)
    assert JOB.id in cluster.jobs()
