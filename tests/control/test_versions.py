"""New versions of a job: what they mean, what comes of them, and that no moment is a bad one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import FakeCluster, chain
from tests.control.scene import World, rules
from trilithon.contract.engine import Condition, Health
from trilithon.control.journal.rows import SpecStatus
from trilithon.errors import NeedsNewCheckpoint
from trilithon.model.action import Reallocate, RestartJob, Status
from trilithon.model.allocation import initial
from trilithon.model.capability import Ability
from trilithon.model.job import HeldTasks, Job, Parallelism, Work
from trilithon.policies.policy import State, Verdict
from trilithon.policies.scene import Scene
from trilithon.policies.threshold import ThresholdPolicy

JOB = chain()


class TestNewVersions:
    def test_an_intent_is_changed_while_the_job_runs(self, world: World) -> None:
        world.commands.apply(JOB)
        world.rounds(5)
        acceptance = world.commands.apply(chain(p95_ms=50))
        world.rounds(3)
        assert acceptance.plan.impact == "live"
        assert world.cluster.checkpoints[JOB.id] == {"": 1}
        assert (
            world.controller.freshness.observer.series.last.jobs[JOB.id].intent
            == chain(p95_ms=50).intent
        )

    def test_other_work_without_state_goes_on_from_the_checkpoint(self, world: World) -> None:
        world.commands.apply(JOB)
        world.rounds(5)
        told = world.commands.apply(_with(Work(where="v >= 1")))
        assert told.plan.impact == "restart"
        assert "checkpoint" in told.message
        world.rounds(8)
        assert world.cluster.checkpoints[JOB.id] == {"": 2}
        assert world.cluster.jobs()[JOB.id].job.operators[0].work.where == "v >= 1"
        assert world.controller.state.jobs[JOB.id].version.status is SpecStatus.GOOD

    def test_it_begins_with_what_the_one_before_had_as_far_as_it_may(self, world: World) -> None:
        world.commands.apply(JOB)
        world.rounds(3)
        now = initial(JOB).rescaled({"o0": 3, "o1": 2}).next_generation()
        assert world.cluster.apply(Reallocate(replace(now, weights={"o1": (1, 2)}))).changed
        world.round()
        first, second = JOB.operators
        narrower = replace(first, parallelism=replace(first.parallelism, max=2))
        world.commands.apply(replace(JOB, operators=(narrower, second)))
        wanted = world.controller.state.jobs[JOB.id].wanted
        assert wanted.parallelism == {"o0": 2, "o1": 2}
        # What was said of an operator whose number stays is still meant.
        assert wanted.weights == {"o1": (1, 2)}
        assert wanted.generation > now.generation

    def test_other_sources_need_a_new_checkpoint_and_somebody_who_means_it(
        self, world: World
    ) -> None:
        world.commands.apply(JOB)
        world.rounds(5)
        source = replace(JOB.sources[0], options=(("subscribe", "elsewhere"),))
        other = replace(JOB, sources=(source,))
        assert world.commands.plan(other).impact == "anew"
        with pytest.raises(NeedsNewCheckpoint, match="sources"):
            world.commands.apply(other)
        assert world.commands.apply(other, anew=True).generation == 2
        world.rounds(3)
        assert world.cluster.checkpoints[JOB.id] == {"": 1, "g2": 1}

    def test_one_that_does_not_become_healthy_is_rolled_back_to_the_last_good_one(
        self, world: World
    ) -> None:
        world.commands.apply(JOB)
        world.rounds(5)
        world.cluster.condition[JOB.id] = Condition(Health.DEGRADED, "It dies again and again.")
        source = replace(JOB.sources[0], options=(("subscribe", "elsewhere"),))
        world.commands.apply(replace(JOB, sources=(source,)), anew=True)
        world.rounds(20)
        assert world.cluster.jobs()[JOB.id].job.sources == JOB.sources
        # It goes on from where it was, as if nothing had been.
        assert world.cluster.checkpoints[JOB.id] == {"": 2, "g2": 1}
        assert world.rows("SELECT generation, standing FROM spec") == [(1, "good"), (2, "failed")]
        assert any("again and again" in e[0] for e in world.rows("SELECT text FROM event"))

    def test_one_that_the_engine_refuses_is_rolled_back_at_once(self, world: World) -> None:
        world.commands.apply(JOB)
        world.rounds(5)
        huge = replace(
            JOB,
            operators=tuple(replace(o, parallelism=Parallelism(1, 1, 5000)) for o in JOB.operators),
        )
        world.commands.apply(huge)
        world.rounds(2)
        assert world.cluster.jobs()[JOB.id].job.operators == JOB.operators
        assert world.controller.state.jobs[JOB.id].version.generation == 1
        # The next version has a number of its own.
        assert world.commands.apply(chain(p95_ms=7)).generation == 3

    def test_one_that_the_engine_refuses_does_not_disturb_the_one_that_runs(
        self, world: World
    ) -> None:
        world.commands.apply(JOB)
        world.rounds(5)
        lives = dict(world.cluster.checkpoints[JOB.id])
        world.commands.apply(
            replace(
                JOB,
                operators=tuple(
                    replace(o, parallelism=Parallelism(1, 1, 5000)) for o in JOB.operators
                ),
            )
        )
        for _ in range(3):
            world.round()
            assert JOB.id in world.cluster.jobs()
        assert world.cluster.checkpoints[JOB.id] == lives
        assert not [a for a in world.cluster.done if isinstance(a, RestartJob)]

    def test_one_of_which_nobody_knows_whether_it_runs_is_not_given_up(self, world: World) -> None:
        world.commands.apply(JOB)
        world.rounds(5)
        world.cluster.fails.append(Status.UNKNOWN)
        world.commands.apply(_with(Work(where="v >= 2")))
        world.rounds(8)
        assert world.cluster.jobs()[JOB.id].job.operators[0].work.where == "v >= 2"
        assert world.rows("SELECT generation, standing FROM spec") == [(1, "good"), (2, "good")]

    def test_what_a_new_version_costs_is_learned(self, world: World) -> None:
        world.commands.apply(JOB)
        world.rounds(5)
        world.commands.apply(_with(Work(where="v >= 2")))
        world.rounds(10)
        assert Ability.RESTART_JOB in world.controller.state.jobs[JOB.id].gap_s

    def test_an_engine_that_cannot_restart_is_told_to_stop_and_to_start(self, world: World) -> None:
        world.commands.apply(JOB)
        world.rounds(5)
        world.cluster.cannot_restart = True
        world.commands.apply(_with(Work(where="v >= 2")))
        world.rounds(3)
        assert world.cluster.jobs()[JOB.id].job.operators[0].work.where == "v >= 2"
        assert world.cluster.checkpoints[JOB.id] == {"": 2}

    @pytest.mark.parametrize(
        ("options", "partitions", "impact"),
        [
            ((("subscribe", "elsewhere"),), None, "anew"),
            ((("subscribe", "in"), ("startingOffsets", "earliest")), None, "restart"),
            ((("subscribe", "in"),), 3, "restart"),
        ],
    )
    def test_only_other_topics_need_a_new_checkpoint(
        self, world: World, options: Any, partitions: int | None, impact: str
    ) -> None:
        first = replace(JOB, sources=(replace(JOB.sources[0], options=(("subscribe", "in"),)),))
        world.commands.apply(first)
        source = replace(first.sources[0], options=options, partitions=partitions)
        assert world.commands.plan(replace(first, sources=(source,))).impact == impact

    def test_holding_other_tasks_is_a_restart(self, world: World) -> None:
        world.commands.apply(JOB)
        first, *others = JOB.operators
        wide = replace(first, parallelism=replace(first.parallelism, tasks=HeldTasks.ALL))
        plan = world.commands.plan(replace(JOB, operators=(wide, *others)))
        assert plan.impact == "restart"
        assert "it holds another number of tasks" in str(plan)

    def test_a_new_job_is_new_and_not_unchanged(self, world: World) -> None:
        assert world.commands.plan(JOB).impact == "new"
        assert str(world.commands.plan(JOB)) == "The job is new."
        assert world.commands.apply(JOB).plan.impact == "new"

    def test_the_same_again_changes_nothing(self, world: World) -> None:
        world.commands.apply(JOB)
        world.rounds(2)
        assert world.commands.apply(JOB).plan.impact == "none"
        assert world.rows("SELECT count(*) FROM spec") == [(1,)]


def _with(work: Work) -> Job:
    return replace(JOB, operators=(replace(JOB.operators[0], work=work), JOB.operators[1]))


class TestOddMoments:
    def test_one_whose_allocation_is_refused_does_not_keep_a_daemon_from_starting(
        self, tmp_path: Path
    ) -> None:
        world = World(tmp_path, FakeCluster(slots=2))
        world.commands.apply(JOB)
        world.rounds(5)
        first, second = JOB.operators
        more = replace(first, parallelism=replace(first.parallelism, min=3, initial=3))
        assert world.commands.apply(replace(JOB, operators=(more, second))).plan.impact == "live"
        world.rounds(5)
        assert world.rows("SELECT standing FROM allocation WHERE spec = 2") == [("refused",)]
        world.start()
        assert world.controller.state.jobs[JOB.id].wanted.parallelism == {"o0": 1, "o1": 1}
        world.rounds(5)
        assert world.parallelism(JOB.id) == {"o0": 1, "o1": 1}

    def test_one_that_comes_while_the_first_is_being_started_is_brought_about_next(
        self, world: World
    ) -> None:
        submit, renamed = world.cluster.submit, replace(JOB.operators[0], name="renamed")
        names = {"o0": "renamed"}
        edges = tuple(
            replace(e, source=names.get(e.source, e.source), target=names.get(e.target, e.target))
            for e in JOB.edges
        )
        other = replace(JOB, operators=(renamed, *JOB.operators[1:]), edges=edges)

        def slow(*given: Any) -> object:
            done = submit(*given)
            world.cluster.submit = submit  # type: ignore[method-assign]
            world.commands.apply(other)
            return done

        world.cluster.submit = slow  # type: ignore[method-assign, assignment]
        world.commands.apply(JOB)
        world.rounds(5)
        assert set(world.parallelism(JOB.id)) == {"renamed", "o1"}
        assert world.rows("SELECT count(*) FROM allocation WHERE standing = 'refused'") == [(0,)]

    def test_the_time_that_starting_takes_does_not_count_against_it(self, world: World) -> None:
        world.commands.apply(JOB)
        world.rounds(5)
        apply = world.cluster.apply

        def slow(action: Any) -> object:
            done = apply(action)
            world.cluster.advance(130.0 if isinstance(action, RestartJob) else 0.0)
            return done

        world.cluster.apply = slow  # type: ignore[method-assign, assignment]
        world.commands.apply(_with(Work(where="v >= 1")))
        world.rounds(10)
        assert world.controller.state.jobs[JOB.id].version.status is SpecStatus.GOOD
        assert world.cluster.jobs()[JOB.id].job.operators[0].work.where == "v >= 1"

    def test_one_that_was_healthy_in_time_is_not_rolled_back_before_it_is_good(
        self, tmp_path: Path
    ) -> None:
        world = World(tmp_path, rules=rules(healthy_within_s=60.0, good_after_s=50.0))
        world.commands.apply(JOB)
        world.rounds(12)
        world.cluster.condition[JOB.id] = Condition(Health.DEGRADED, "It takes its time.")
        world.commands.apply(_with(Work(where="v >= 1")))
        world.rounds(3)
        world.cluster.condition.pop(JOB.id)
        world.rounds(12)
        assert world.controller.state.jobs[JOB.id].version.generation == 2
        assert world.controller.state.jobs[JOB.id].version.status is SpecStatus.GOOD

    def test_what_an_owner_changes_while_a_policy_decides_is_not_overwritten(
        self, tmp_path: Path
    ) -> None:
        first, second = JOB.operators
        narrow = replace(first, parallelism=replace(first.parallelism, max=1))

        worlds: list[World] = []

        class Slow(ThresholdPolicy):
            def decide(self, scene: Scene, state: State) -> Verdict:
                verdict = super().decide(scene, state)
                [world_] = worlds
                if verdict.decisions and world_.controller.state.jobs[JOB.id].last_spec == 1:
                    world_.commands.apply(replace(JOB, operators=(narrow, second)))
                return verdict

        world = World(tmp_path, policy=Slow())
        worlds.append(world)
        world.cluster.rates[JOB.id] = 250.0
        world.commands.apply(JOB)
        world.rounds(20)
        assert world.parallelism(JOB.id)["o0"] == 1
        assert world.controller.state.jobs[JOB.id].version.generation == 2
        assert world.rows("SELECT count(*) FROM spec WHERE standing = 'failed'") == [(0,)]


def test_a_job_that_is_taken_over_goes_on_from_the_checkpoint_that_it_has(tmp_path: Path) -> None:
    world = World(tmp_path / "one")
    world.commands.apply(JOB)
    world.rounds(5)
    source = replace(JOB.sources[0], options=(("subscribe", "elsewhere"),))
    moved = replace(JOB, sources=(source,))
    world.commands.apply(moved, anew=True)
    world.rounds(5)
    assert world.cluster.runs_from[JOB.id] == "g2"
    other = World(tmp_path / "two", world.cluster)
    other.rounds(5)
    first, second = moved.operators
    other.commands.apply(
        replace(moved, operators=(replace(first, work=Work(where="v >= 1")), second))
    )
    other.rounds(5)
    assert world.cluster.runs_from[JOB.id] == "g2"
    for world_ in (world, other):
        assert world_.journal is not None
        world_.journal.close()
