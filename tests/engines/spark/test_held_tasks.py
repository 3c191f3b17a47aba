"""How many tasks an operator holds, and what a job does that needs more. Without Spark."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster import chain as chain_job
from tests.engines.spark.conftest import until
from tests.engines.spark.test_supervision import World
from trilithon.contract.engine import How, Reallocate, RestartJob, Status
from trilithon.engines.spark.cuts import cut_into_parts
from trilithon.engines.spark.held_tasks import (
    ALL_UP_TO,
    FEWEST,
    follows_use,
    grown_tasks,
    growth_text,
    held_tasks,
    needed_tasks,
    partitions_before,
    tasks_at_start,
)
from trilithon.model.allocation import Allocation, initial
from trilithon.model.job import HeldTasks, Job, Operator, Parallelism, Work
from trilithon.spec.job_file import parse_job

ALL, FOLLOW = HeldTasks.ALL, HeldTasks.FOLLOW


def operator(
    initial_: int = 1, most: int = 16, tasks: HeldTasks | None = None, name: str = "a"
) -> Operator:
    return Operator(name, Work(where="v > 0"), Parallelism(initial_, 1, most, tasks))


def job_of(*operators: Operator) -> Job:
    job = chain_job("j", operators=len(operators), p95_ms=None)
    named = (replace(o, name=f"o{i}") for i, o in enumerate(operators))
    return replace(job, operators=tuple(named))


def wanting(job: Job, *instances: int, generation: int = 2) -> Allocation:
    counts = {o.name: n for o, n in zip(job.operators, instances, strict=True)}
    return Allocation(job.id, generation, counts)


# -- the rules


@pytest.mark.parametrize(
    ("given_", "tasks"),
    [
        (operator(1, 8), 8),
        (operator(1, 9), 4),
        (operator(1, 64), 4),
        (operator(3, 64), 6),
        (operator(40, 64), 64),
        (operator(1, 64, ALL), 64),
        (operator(1, 8, FOLLOW), 4),
        (operator(1, 3, FOLLOW), 3),
    ],
)
def test_a_small_maximum_is_held_whole_and_a_large_one_follows_its_use(
    given_: Operator, tasks: int
) -> None:
    assert tasks_at_start(given_) == tasks


def test_state_is_never_divided_by_use() -> None:
    counts = replace(operator(6, 64, FOLLOW), work=Work(aggregate=(("n", "count(*)"),)))
    assert not follows_use(counts)
    assert (tasks_at_start(counts), partitions_before(counts)) == (6, 6)


def test_the_topic_before_an_operator_does_not_follow_its_use() -> None:
    assert partitions_before(operator(1, 64)) == partitions_before(operator(40, 64)) == ALL_UP_TO
    assert partitions_before(operator(1, 5, FOLLOW)) == 5
    assert partitions_before(operator(1, 64, ALL)) == 64


def test_avoided_tasks_and_placements_need_tasks_beside_the_instances() -> None:
    job, three = job_of(operator()), wanting(job_of(operator()), 3)
    (only,) = job.operators
    assert needed_tasks(only, three, machines=1) == 3
    assert needed_tasks(only, replace(three, avoided={"o0": (1, 2)}), machines=1) == 5
    # Tasks beyond those in use are not needed to be avoided.
    assert needed_tasks(only, replace(three, avoided={"o0": (9,)}), machines=1) == 3
    # Two of them on one of four machines: each machine gets its share of the tasks.
    placed = replace(three, placement={"o0": ("h/1", "h/1", None)})
    assert needed_tasks(only, placed, machines=4) == 8
    assert needed_tasks(only, placed, machines=40) == 16


def test_a_restart_gives_back_what_is_idle_and_takes_no_more_than_before() -> None:
    job = job_of(operator())
    assert held_tasks(job, wanting(job, 6), 1) == {"o0": 12}
    assert held_tasks(job, wanting(job, 8), 1, {"o0": 12}) == {"o0": 12}
    assert held_tasks(job, wanting(job, 2), 1, {"o0": 12}) == {"o0": 4}
    assert held_tasks(job, wanting(job, 7), 1, {"o0": 6}) == {"o0": 14}


def test_growth_takes_spare_tasks_as_far_as_they_are_free() -> None:
    job = job_of(operator(), operator())
    before = {"o0": 4, "o1": 4}
    assert grown_tasks(job, wanting(job, 4, 4), 1, before, free=100) is None
    assert grown_tasks(job, wanting(job, 6, 1), 1, before, free=100) == {"o0": 12, "o1": 4}
    assert grown_tasks(job, wanting(job, 6, 1), 1, before, free=5) == {"o0": 9, "o1": 4}
    # What does not fit is for the ledger to refuse.
    assert grown_tasks(job, wanting(job, 6, 1), 1, before, free=0) == {"o0": 6, "o1": 4}
    # A restart that happens anyway gives back what another operator has no use for.
    assert grown_tasks(job, wanting(job, 1, 9), 1, {"o0": 12, "o1": 8}, free=0) == {
        "o0": 4,
        "o1": 16,
    }
    assert growth_text({"o0": 12, "o1": 8}, {"o0": 4, "o1": 16}) == (
        "o0 12 → 4 tasks, o1 8 → 16 tasks"
    )


@given(st.lists(st.integers(1, 64), min_size=1, max_size=20))
def test_there_are_always_enough_tasks_and_at_most_twice_the_use_after_a_restart(
    steps: list[int],
) -> None:
    job = job_of(operator(1, 64))
    held, restarts, most = held_tasks(job, wanting(job, 1), 1), 0, 0
    for count in steps:
        wanted = wanting(job, count)
        grown = grown_tasks(job, wanted, 1, held, free=1000)
        if grown is not None:
            restarts += 1
            held = grown
            assert held["o0"] <= max(FEWEST, 2 * count)
        assert count <= held["o0"] <= 64
        most = max(most, count)
    assert restarts <= max(0, (most - 1).bit_length() - 2) + (most > FEWEST)


def test_growth_instance_by_instance_takes_four_restarts() -> None:
    job, at = job_of(operator(1, 64)), []
    held = held_tasks(job, initial(job), 1)
    for count in range(1, 65):
        if (grown := grown_tasks(job, wanting(job, count), 1, held, free=1000)) is not None:
            at.append(count)
            held = grown
    assert at == [5, 11, 23, 47]


def test_parts_hold_few_tasks_at_the_start_and_may_grow() -> None:
    graph = cut_into_parts(
        parse_job("""
name: j
sources: [{name: in, options: {subscribe: t}, schema: v INT, partitions: 2}]
operators:
  - {name: first, input: in}
  - {name: left, input: first, parallelism: {max: 64}}
  - {name: right, input: first}
sinks:
  - {name: x, input: left, options: {topic: x}}
  - {name: y, input: right, options: {topic: y}}
""")
    )
    sizes = {part.name: (part.readers, part.tasks, part.most_tasks) for part in graph.parts}
    assert sizes == {"first": (2, 10, 10), "left": (8, 12, 72), "right": (8, 16, 16)}


# -- the engine: its queries cost nothing here


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world_ = World(tmp_path, monkeypatch)
    yield world_
    until(lambda: not world_.engine.starting)


def submitted(world: World, *operators: Operator) -> Job:
    job = job_of(*operators)
    assert world.engine.submit(job, initial(job)).status is Status.DONE
    return job


def tasks_of(world: World, job: Job) -> int:
    return world.engine.ledger.entries[job.id].tasks


def test_a_job_grows_by_one_restart_and_the_next_steps_are_live(world: World) -> None:
    job = submitted(world, operator(1, 16))
    assert tasks_of(world, job) == 2 + 4
    capabilities = world.engine.capabilities()
    assert capabilities.tasks_held == {job.id: {"o0": 4}}
    assert capabilities.tasks_used == 6
    assert capabilities.of_parallelism(job.id, {"o0": 4}) is How.LIVE
    assert capabilities.of_parallelism(job.id, {"o0": 5}) is How.WITH_OUTAGE
    live = world.engine.apply(Reallocate(wanting(job, 4)))
    assert (live.status, live.code) == (Status.DONE, "")
    grown = world.engine.apply(Reallocate(wanting(job, 6, generation=3)))
    assert (grown.status, grown.code) == (Status.DONE, "RESTARTED")
    assert grown.message == "It was restarted with more tasks (o0 4 → 12 tasks)."
    assert tasks_of(world, job) == 2 + 12
    assert world.starts == [job.id] * 2
    table = world.engine.control.set_table.call_args.args[2]  # type: ignore[attr-defined]
    assert table["weights"] == [1.0] * 6 + [0.0] * 6
    again = world.engine.apply(Reallocate(wanting(job, 8, generation=4)))
    assert (again.status, again.code, len(world.starts)) == (Status.DONE, "", 2)
    assert world.engine.jobs()[job.id].allocation == wanting(job, 8, generation=4)
    assert world.engine.apply(Reallocate(wanting(job, 16, generation=5))).code == "RESTARTED"
    assert world.engine.capabilities().tasks_held == {}


def test_a_job_that_does_not_fit_with_more_tasks_is_refused_and_runs_on(world: World) -> None:
    job, other = submitted(world, operator(1, 16)), world.submit("b")
    world.tasks = 6 + 10 + 1
    query = world.queries[job.id]
    refused = world.engine.apply(Reallocate(wanting(job, 6)))
    assert (refused.status, refused.code) == (Status.REFUSED, "DOES_NOT_FIT")
    assert "needs 8 tasks; 7 of 17 are free" in refused.message
    assert (tasks_of(world, job), tasks_of(world, other)) == (6, 10)
    assert (query.isActive, world.starts) == (True, [job.id, other.id])
    assert world.engine.jobs()[job.id].allocation == initial(job)
    # One more, and it gets what it needs and no spare ones.
    world.tasks += 1
    assert world.engine.apply(Reallocate(wanting(job, 6))).code == "RESTARTED"
    assert tasks_of(world, job) == 8


def test_without_room_for_more_slots_no_task_is_taken(world: World) -> None:
    job = submitted(world, operator(1, 16))
    world.engine.ledger.slots = 5
    refused = world.engine.apply(Reallocate(wanting(job, 6)))
    assert (refused.status, refused.code) == (Status.REFUSED, "DOES_NOT_FIT")
    assert "slots" in refused.message
    assert tasks_of(world, job) == 6


def test_a_job_that_does_not_start_with_more_tasks_runs_as_before(world: World) -> None:
    job = submitted(world, operator(1, 16))
    world.refuses[job.id] = [RuntimeError("no")]
    failed = world.engine.apply(Reallocate(wanting(job, 6)))
    assert (failed.status, failed.code) == (Status.FAILED, "ENGINE_FAILED")
    assert "runs as before" in failed.message
    assert world.health(job) == "running"
    assert tasks_of(world, job) == 6
    assert world.engine.jobs()[job.id].allocation.parallelism == {"o0": 1}
    assert world.engine.capabilities().tasks_held == {job.id: {"o0": 4}}
    assert world.engine.apply(Reallocate(wanting(job, 6, generation=9))).code == "RESTARTED"


def test_tasks_are_given_back_at_a_restart_that_happens_anyway(world: World) -> None:
    job = submitted(world, operator(6, 16))
    assert tasks_of(world, job) == 2 + 12
    fewer = world.engine.apply(Reallocate(wanting(job, 1)))
    assert (fewer.status, fewer.code) == (Status.DONE, "")
    assert tasks_of(world, job) == 2 + 12
    assert world.engine.apply(RestartJob("r", job.id)).status is Status.DONE
    assert tasks_of(world, job) == 2 + 4


def test_a_query_that_died_comes_back_with_the_tasks_that_it_uses(world: World) -> None:
    job = submitted(world, operator(6, 16))
    world.engine.apply(Reallocate(wanting(job, 2)))
    world.queries[job.id].die(RuntimeError("ExecutorLostFailure (executor 1 exited)"))
    world.supervise()
    assert tasks_of(world, job) == 2 + 12
    # While it is down it is given more instances than it held tasks: it starts with enough.
    down = world.engine.apply(Reallocate(wanting(job, 14, generation=3)))
    assert (down.status, down.code) == (Status.DONE, "")
    assert tasks_of(world, job) == 2 + 16
    world.supervise(30.0)
    assert world.health(job) == "running"
    assert tasks_of(world, job) == 2 + 16
    world.engine.apply(Reallocate(wanting(job, 1, generation=4)))
    world.queries[job.id].die(RuntimeError("ExecutorLostFailure (executor 1 exited)"))
    world.supervise()
    world.supervise(30.0)
    assert (world.health(job), tasks_of(world, job)) == ("running", 2 + 4)
