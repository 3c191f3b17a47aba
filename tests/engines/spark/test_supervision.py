"""The engine looks after its queries; here they cost nothing, and tests move the clock."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JError
from structlog.testing import capture_logs

from tests.cluster import chain as chain_job
from tests.engines.spark.conftest import until
from trilithon.contract.condition import Cause
from trilithon.contract.engine import Health, RestartJob, Status
from trilithon.engines.spark import queries
from trilithon.engines.spark.compiler import Chain, plan_chain
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.kafka_monitor import Outage
from trilithon.engines.spark.overruns import Queues
from trilithon.engines.spark.start import RunningQuery
from trilithon.errors import KafkaUnreachable
from trilithon.model.allocation import initial
from trilithon.model.intent import Intent
from trilithon.model.job import Job

EXECUTOR_LOST = RuntimeError("ExecutorLostFailure (executor 1 exited)")
BROKEN = RuntimeError("[CAST_INVALID_INPUT] The value cannot be cast.")
# The driver's clock and the engine's steady clock run alike, from different moments.
DRIVER_S = 7e8
AWAY = RuntimeError("org.apache.kafka.common.errors.TimeoutException: no answer")


@dataclass
class FakeQuery:
    """A query that dies when it is told to."""

    error: Exception | None = None
    isActive: bool = True  # noqa: N815 - Spark's name
    stops: list[Exception] = field(default_factory=list)

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        if self.stops:
            raise self.stops.pop(0)
        self.isActive = False

    def die(self, error: Exception) -> None:
        self.error, self.isActive = error, False


def no_spark() -> Any:
    """A session of which nothing is asked but its executors: it has none."""
    spark = MagicMock()
    executors = spark._jvm.io.trilithon.probe.Executors
    executors.removable.return_value, executors.list.return_value = False, "{}"
    spark.conf.get.return_value = ""
    return spark


class World:
    """An engine without Spark: its queries are fakes, its clock and its executors are ours."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.tasks, self.stepped_s = 1000.0, 100, 0.0
        self.queries: dict[str, FakeQuery] = {}
        self.starts: list[str] = []
        # What the next starts of a job end with.
        self.refuses: dict[str, list[Exception]] = {}
        control: Any = MagicMock()
        control.tasks_per_stage.return_value = ()
        control.driver_time_s.side_effect = lambda: self.now_s + DRIVER_S
        control.threads.return_value = {}
        self.engine = SparkEngine(
            no_spark(),
            Kafka("broker:9092"),
            folder,
            tasks=lambda: self.tasks,
            slots=100,
            clock=lambda: self.now_s + 5e8 + self.stepped_s,
            steady_clock=lambda: self.now_s,
            control=control,
        )
        monkeypatch.setattr(self.engine.monitor, "start", lambda: None)
        monkeypatch.setattr(self.engine.boundaries, "end_and_hold", lambda *_: "")
        monkeypatch.setattr(queries, "start_frame", self._start)
        monkeypatch.setattr(queries, "build_frame", MagicMock())
        monkeypatch.setattr(queries, "plan_with_partitions", self._plan)
        self.partitions = self.engine.logs.partitions

    def _plan(self, _spark: Any, job: Job, _kafka: Kafka) -> Chain:
        topic = job.sources[0].topics[0]
        count = self.partitions.setdefault(topic, 2)
        return plan_chain(job, {"in": count}, {topic: count})

    def _start(self, _spark: Any, chain: Chain, *_: Any, **__: Any) -> RunningQuery:
        name = chain.job.id
        self.starts.append(name)
        if self.refuses.get(name):
            raise self.refuses[name].pop(0)
        self.queries[name] = FakeQuery()
        return RunningQuery(chain, self.queries[name], 1)  # type: ignore[arg-type]

    def submit(self, name: str, priority: float = 1.0) -> Job:
        """A job of ten tasks: two readers and eight of its operator."""
        job = replace(chain_job(name, operators=1, p95_ms=None), intent=Intent(priority=priority))
        assert self.engine.submit(job, initial(job)).status is Status.DONE
        return job

    def supervise(self, seconds: float = 1.0) -> None:
        """A second passes, and every start that was begun has ended."""
        self.now_s += seconds
        self.engine.supervise()
        until(lambda: not self.engine.starting)

    def health(self, job: Job) -> str:
        return self.engine.conditions()[job.id].health.value

    def reason(self, job: Job) -> str:
        return self.engine.conditions()[job.id].reason


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world_ = World(tmp_path, monkeypatch)
    yield world_
    until(lambda: not world_.engine.starting)


def wait_for(world: World, condition: Callable[[], object], seconds: float = 120.0) -> float:
    """How long a condition takes, by the world's clock."""
    began_s = world.now_s
    while not condition():
        assert world.now_s - began_s < seconds, "the condition did not come"
        world.supervise()
    return world.now_s - began_s


def test_a_query_that_dies_of_an_outage_is_retried_for_ever_and_says_when(world: World) -> None:
    job = world.submit("a")
    world.refuses[job.id] = [AWAY] * 25
    with capture_logs() as events:
        world.queries[job.id].die(AWAY)
        world.supervise()
    condition = world.engine.conditions()[job.id]
    assert (condition.health, condition.cause) == (Health.DEGRADED, Cause.KAFKA)
    assert condition.next_try_s == pytest.approx(world.now_s + 5e8 + 1.0)
    (died,) = [event for event in events if event["event"] == "query_died"]
    assert died["exc_info"] is AWAY
    while world.refuses[job.id]:
        world.supervise(30.0)
        assert world.health(job) == "degraded"
    wait_for(world, lambda: world.health(job) == "running", 31)


def test_a_fault_of_the_job_fails_it_frees_its_tasks_and_a_restart_starts_it(world: World) -> None:
    job, other = world.submit("a"), world.submit("b")
    for _ in range(3):
        world.queries[job.id].die(BROKEN)
        wait_for(world, lambda: world.queries[job.id].isActive or world.health(job) == "failed")
    assert "`trilithon job resume ads/a` starts it again" in world.reason(job)
    assert set(world.engine.ledger.entries) == {other.id}
    starts = len(world.starts)
    world.supervise(3600)
    assert len(world.starts) == starts
    assert world.health(other) == "running"
    # The tasks are somebody else's by now.
    world.tasks = 15
    refused = world.engine.apply(RestartJob("r1", job.id))
    assert (refused.status, refused.code) == (Status.REFUSED, "DOES_NOT_FIT")
    assert set(world.engine.ledger.entries) == {other.id}
    world.tasks = 100
    assert world.engine.apply(RestartJob("r2", job.id)).status is Status.DONE
    assert world.health(job) == "running"
    assert world.engine.ledger.unoccupied_tasks == 80


def test_a_resumed_job_that_meets_an_outage_is_retried(world: World) -> None:
    job = world.submit("a")
    for _ in range(3):
        world.queries[job.id].die(BROKEN)
        wait_for(world, lambda: world.queries[job.id].isActive or world.health(job) == "failed")
    world.refuses[job.id] = [AWAY]
    assert world.engine.apply(RestartJob("r1", job.id)).status is Status.FAILED
    assert world.health(job) == "degraded"
    wait_for(world, lambda: world.health(job) == "running")


def test_while_kafka_is_away_nobody_runs_and_when_it_is_back_everybody_starts_at_once(
    world: World,
) -> None:
    waits, lives = world.submit("waits"), world.submit("lives")
    for _ in range(6):  # a long back-off
        world.queries[waits.id].die(AWAY)
        world.supervise()
        wait_for(world, lambda: world.queries[waits.id].isActive)
    world.queries[waits.id].die(AWAY)
    world.supervise()
    since_s = world.now_s
    starts = len(world.starts)
    world.engine.monitor.outage = Outage(since_s, "Kafka does not answer.", since_s + 1)
    for _ in range(100):
        world.supervise(6.0)
    assert len(world.starts) == starts
    # The query of one of them is alive: that is not to run.
    for job in (waits, lives):
        condition = world.engine.conditions()[job.id]
        assert (condition.health, condition.cause) == (Health.DEGRADED, Cause.KAFKA)
        assert condition.reason == "Kafka does not answer."
        assert condition.next_try_s == since_s + 1 + 5e8
    world.engine.monitor.outage = None
    world.supervise(0.5)
    assert {world.health(job) for job in (waits, lives)} == {"running"}
    assert world.starts[starts:] == [waits.id]


def test_many_jobs_that_are_submitted_without_kafka_wait_for_it_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    def silent(*_: Any) -> Chain:
        nonlocal asked
        asked += 1
        world.now_s += 10.0
        raise KafkaUnreachable("Kafka does not answer.")

    jobs = [chain_job(f"j{i}", operators=1, p95_ms=None) for i in range(20)]
    with monkeypatch.context() as patched:
        patched.setattr(queries, "plan_with_partitions", silent)
        codes = {world.engine.submit(job, initial(job)).code for job in jobs}
        assert (codes, asked) == ({"KAFKA_UNREACHABLE"}, 1)
        world.now_s += 15.0
        assert world.engine.submit(jobs[0], initial(jobs[0])).code == "KAFKA_UNREACHABLE"
        assert asked == 2
    world.now_s += 15.0
    assert world.engine.submit(jobs[0], initial(jobs[0])).status is Status.DONE


def test_when_executors_are_gone_jobs_start_by_priority_and_the_others_wait_and_say_so(
    world: World,
) -> None:
    world.tasks = 40
    low, middle, high = (world.submit(n, p) for n, p in (("low", 1), ("middle", 5), ("high", 9)))
    healthy = world.submit("healthy", 0.5)
    for job in (low, middle, high):
        world.queries[job.id].die(EXECUTOR_LOST)
    world.tasks = 27
    world.starts.clear()
    for _ in range(20):
        world.supervise()
    assert world.starts == [high.id]
    assert world.health(healthy) == "running"
    for job in (middle, low):
        assert world.health(job) == "degraded"
        assert world.reason(job) == "Waits for tasks: needs 10, free 7 of 27."
        assert world.engine.conditions()[job.id].cause is Cause.TASKS
    # Nobody else is let in before those that wait.
    new = chain_job("new", operators=1, p95_ms=None)
    assert world.engine.submit(new, initial(new)).code == "DOES_NOT_FIT"
    world.tasks = 40
    took_s = wait_for(world, lambda: {world.health(j) for j in (low, middle)} == {"running"})
    assert took_s <= 5.0
    # The last two start side by side.
    assert (world.starts[0], set(world.starts[1:])) == (high.id, {middle.id, low.id})


def test_a_topic_that_got_partitions_disturbs_nobody_and_is_read_when_there_is_room(
    world: World,
) -> None:
    """The job was stopped, and its readers took tasks that others needed for their next batch."""
    world.tasks = 21
    job, other = world.submit("a"), world.submit("b")
    first, beside = world.queries[job.id], world.queries[other.id]
    world.partitions["a-in"] = 5
    for _ in range(5):
        world.supervise()
    assert first.isActive
    condition = world.engine.conditions()[job.id]
    assert condition.health is Health.RUNNING
    assert condition.reason == (
        "New partitions are not read yet: a-in (3). Their readers need 3 tasks, free 1 of 21."
    )
    world.tasks = 23
    world.supervise()
    until(lambda: not world.engine.starting)
    assert not first.isActive
    assert world.queries[job.id].isActive
    assert world.engine.ledger.entries[job.id].tasks == 13
    world.supervise()
    assert world.engine.conditions()[job.id].reason == ""
    assert world.starts == [job.id, other.id, job.id]
    assert world.queries[other.id] is beside


def test_one_job_that_throws_does_not_keep_the_others_from_being_looked_after(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd, other = world.submit("a-odd"), world.submit("b")
    broken = MagicMock(side_effect=Py4JError("the gateway failed"))
    with monkeypatch.context() as patched, capture_logs() as events:
        patched.setattr(world.queries[odd.id], "exception", broken)
        world.queries[odd.id].isActive = False
        world.queries[other.id].die(AWAY)
        for _ in range(5):
            world.supervise()
        assert world.queries[other.id].isActive
        failed = [event for event in events if event["event"] == "supervision_failed"]
        # Once, with its traceback.
        assert [(event["job"], event["exc_info"]) for event in failed] == [(odd.id, True)]
    wait_for(world, lambda: world.queries[odd.id].isActive)


def test_a_stop_that_throws_leaves_neither_a_query_nor_an_entry(world: World) -> None:
    job = world.submit("a")
    query = world.queries[job.id]
    query.stops = [Py4JError("once")]
    assert world.engine.cancel(job.id).status is Status.DONE
    assert not query.isActive
    assert (world.engine.ledger.entries, world.engine.jobs()) == ({}, {})


def test_a_query_that_does_not_stop_stays_known_until_it_does(world: World) -> None:
    job = world.submit("a")
    query = world.queries[job.id]
    query.stops = [Py4JError("again")] * 4
    outcome = world.engine.cancel(job.id)
    assert (outcome.status, outcome.code) == (Status.FAILED, "ENGINE_FAILED")
    assert "does not stop" in outcome.message
    assert query.isActive
    assert set(world.engine.ledger.entries) == set(world.engine.jobs()) == {job.id}
    assert world.engine.apply(RestartJob("r", job.id)).status is Status.FAILED
    assert world.engine.cancel(job.id).status is Status.DONE
    assert (world.engine.ledger.entries, world.engine.jobs()) == ({}, {})


def test_the_end_of_an_engine_stops_the_others_though_one_throws(world: World) -> None:
    odd, other = world.submit("a"), world.submit("b")
    world.queries[odd.id].stops = [RuntimeError("no")] * 9
    world.engine.close()
    assert not world.queries[other.id].isActive


class Killer:
    """A world in which one job kills an executor a second after its query runs, and with it the
    queries of all jobs. The batch of another job that is told to end is committed.
    """

    def __init__(self, world: World, job: Job) -> None:
        self.world, self.job, self.deaths = world, job, 0
        control: Any = world.engine.control
        control.batch.side_effect = lambda name: f"run:{len(self.commits(name))}"
        control.end_batch.side_effect = lambda name, *_: self.commit(name)

    def commits(self, name: str) -> list[Path]:
        return list(self.folder(name).glob("*"))

    def folder(self, name: str) -> Path:
        return Path(str(self.world.engine.queries.checkpoints(name))) / "first" / "commits"

    def commit(self, name: str) -> None:
        if name == self.job.id:
            return
        batch = str(len(self.commits(name)))
        for folder in (self.folder(name).parent / "offsets", self.folder(name)):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / batch).touch()

    def pass_second(self) -> None:
        if self.world.queries[self.job.id].isActive:
            self.deaths += 1
            for query in self.world.queries.values():
                if query.isActive:
                    query.die(EXECUTOR_LOST)
        self.world.supervise()


def test_a_record_that_kills_executors_fails_its_job_and_no_other(world: World) -> None:
    """All jobs were restarted for ever, and died with each executor."""
    jobs = [world.submit(name) for name in ("a", "killer", "z")]
    killer = Killer(world, jobs[1])
    waited: set[str] = set()
    for _ in range(180):
        killer.pass_second()
        waited |= {world.reason(job) for job in jobs if "starts after" in world.reason(job)}
    assert [world.health(job) for job in jobs] == ["running", "failed", "running"]
    assert killer.deaths <= 7
    assert waited == {"Executors died while it and ads/a ran: it starts after ads/a."}
    reason = world.reason(jobs[1])
    assert reason.startswith("A record kills executors: 6 died while the job was at the same")
    assert "`trilithon job resume ads/killer` starts it again" in reason
    # The others are never suspected again, and a new host does not start the job either.
    assert not any(m.supervision.on_probation for m in world.engine.managed.values())
    folder, control = world.engine.folder, world.engine.control
    again = SparkEngine(
        no_spark(), Kafka("b:1"), folder, tasks=lambda: 50, slots=50, control=control
    )
    again.monitor.start = lambda: None  # type: ignore[method-assign]
    assert again.submit(jobs[1], initial(jobs[1])).status is Status.DONE
    assert again.conditions()[jobs[1].id].health is Health.FAILED
    # Its owner may try again.
    assert world.engine.apply(RestartJob("r", jobs[1].id)).status is Status.DONE
    assert world.health(jobs[1]) == "running"


def test_executors_that_die_of_something_else_fail_nobody(world: World) -> None:
    jobs = [world.submit(name) for name in ("a", "b", "c")]
    commits = Killer(world, replace(jobs[0], name="nobody"))
    for second in range(900):
        # A machine that dies every 47 s: jobs commit in between when they are told to.
        if second % 47 == 0:
            for query in world.queries.values():
                if query.isActive:
                    query.die(EXECUTOR_LOST)
        world.supervise()
        assert "failed" not in {world.health(job) for job in jobs}
    wait_for(world, lambda: {world.health(job) for job in jobs} == {"running"})
    assert all(commits.commits(job.id) for job in jobs)


def instance(job: Job, operator: str, taken: int = 0, **more: Any) -> dict[str, Any]:
    row = {"job": job.id, "operator": operator, "index": 0, "incarnation": 1, "taken": taken}
    return row | {"service": {"max_us": 1e6}, "out": {}, "origin_us": 1_700_000_000_000_000} | more


@pytest.fixture
def ending(world: World) -> dict[str, str]:
    """The running batch of each job, which a test sets."""
    batches: dict[str, str] = {}
    control: Any = world.engine.control
    control.batch.side_effect = lambda name: batches.get(name, "run:7")
    return batches


def reported(world: World, *instances: dict[str, Any]) -> None:
    """An executor has sent a report."""
    report = {"executor": "1", "instances": list(instances)}
    world.engine.overruns.queues.observe([report])
    jobs = {name: managed.job for name, managed in world.engine.managed.items()}
    world.engine.watchdog.records.observe([report], jobs)


def test_a_batch_that_was_told_to_end_and_does_not_is_a_problem_within_30_s(
    world: World, ending: dict[str, str]
) -> None:
    """It was abandoned after ten minutes, and nothing was shown until then."""
    job, slow = world.submit("a"), world.submit("slow")
    name = job.operators[0].name
    sent = {name: {"sent_to": {"0": 30, "1": 12}}}
    reported(
        world,
        *(instance(one, "in", 42, out=sent) for one in (job, slow)),
        *(instance(one, name, 5) for one in (job, slow)),
    )
    assert world.engine.boundaries.end(job.id)
    for _ in range(20):
        world.supervise()
    assert world.reason(job) == ""
    for _ in range(10):
        world.supervise()
    condition = world.engine.conditions()[job.id]
    assert condition.health is Health.RUNNING
    assert condition.reason == (
        f"The batch was told to end 25 s ago and has not: {name} has 37 records in its queue. If "
        "it has not ended 10 minutes after it was told to, the query is stopped and the records "
        "since its last commit are replayed."
    )
    # Its neighbour works as slowly, and nobody has told its batch to end.
    assert world.reason(slow) == ""
    ending[job.id] = "run:8"
    world.supervise()
    assert world.reason(job) == ""


def test_the_problem_of_a_batch_that_overruns_is_told_anew_twice_a_minute(
    world: World, ending: dict[str, str]
) -> None:
    """Each text is an event."""
    job = world.submit("a")
    name = job.operators[0].name
    world.engine.boundaries.end(job.id)
    texts: list[str] = []
    for second in range(85):
        reported(world, instance(job, "in", out={name: {"sent_to": {"0": 900 - second}}}))
        world.supervise()
        if (text := world.reason(job)) not in texts:
            texts.append(text)
    starts = [text.partition(" ago")[0] for text in texts]
    assert starts == ["", *(f"The batch was told to end {s} s" for s in (25, 55, 85))]
    assert f"{name} has 816 records in its queue" in texts[-1]


def test_a_batch_that_overruns_for_one_record_names_the_operator_and_its_limit(
    world: World, ending: dict[str, str]
) -> None:
    job = world.submit("a")
    name = job.operators[0].name
    reported(world, instance(job, name, 3, service={"max_us": 6e6}))
    world.engine.boundaries.end(job.id)
    for second in range(30):
        row = instance(job, name, 3, service={"max_us": 6e6}, stalled_us=1e6 * (60 + second))
        reported(world, row)
        world.supervise()
    assert world.reason(job) == (
        f"The batch was told to end 25 s ago and has not: {name} has been at one record for 84 s. "
        f"It stays open for that record. If {name} needs more than 120 s for it, the job is "
        "stopped and fails."
    )
    for _ in range(30):
        reported(world, instance(job, name, 3, service={"max_us": 6e6}, stalled_us=9e7))
        world.supervise(30)
    assert world.queries[job.id].isActive  # it is not abandoned after ten minutes


def test_a_batch_without_records_that_does_not_end_misses_its_commit_and_is_abandoned(
    world: World, ending: dict[str, str]
) -> None:
    job = world.submit("a")
    world.engine.boundaries.end(job.id)
    world.supervise(26)
    assert "no operator has a record left: Kafka has not taken what was" in world.reason(job)
    world.supervise(575)
    assert world.health(job) == "degraded"
    assert world.reason(job) == "A batch was told to end and did not."
    wait_for(world, lambda: world.health(job) == "running")
    assert world.reason(job) == ""


def test_a_batch_that_overruns_and_partitions_without_a_reader_are_both_told(
    world: World, ending: dict[str, str]
) -> None:
    world.tasks = 10
    job = world.submit("a")
    world.partitions["a-in"] = 5
    world.engine.boundaries.end(job.id)
    world.supervise(30)
    assert world.reason(job).startswith("New partitions are not read yet: a-in (3).")
    assert "The batch was told to end 30 s ago" in world.reason(job)


def test_a_wall_clock_that_is_set_makes_no_batch_look_overdue(
    world: World, ending: dict[str, str]
) -> None:
    """The time since then was taken from the wall clock: after a step of an hour a job whose batch
    was about to end was abandoned.
    """
    job = world.submit("a")
    world.engine.boundaries.end(job.id)
    world.stepped_s = 3600.0
    world.supervise(5)
    assert (world.health(job), world.reason(job)) == ("running", "")


def test_a_removed_machine_leaves_no_records_in_queues() -> None:
    """Its instances had taken them; without its counts they seemed to wait for ever."""
    queues, job = Queues(), chain_job("a", operators=1, p95_ms=None)
    name = job.operators[0].name
    sends = instance(job, "in", 100, out={name: {"sent_to": {"0": 60, "1": 40}}})
    queues.observe([{"executor": "1", "instances": [sends, instance(job, name, 57)]}])
    queues.observe([{"executor": "2", "instances": [instance(job, name, 40, index=1)]}])
    assert queues.waiting(job, 1) == {name: 3}
    queues.observe([], lost=["2"])
    assert queues.waiting(job, 1) == {name: 3}
    # In another incarnation everything is counted anew.
    sends = instance(job, "in", 9, incarnation=2, out={name: {"sent_to": {"0": 9}}})
    queues.observe([{"executor": "1", "instances": [sends]}])
    assert (queues.waiting(job, 1), queues.waiting(job, 2)) == ({}, {name: 9})
