"""The loop: from a record to a decision and back, whatever happens in between."""

import json
from pathlib import Path

import pytest

from tests.cluster import FakeCluster, chain
from tests.control.scene import World, rules
from tests.fakes import FakePolicy
from trilithon.control.explain import explain
from trilithon.control.journal.rows import DesiredState
from trilithon.control.rules import QuietHours, Rules
from trilithon.errors import JobEnding, NotFound
from trilithon.model.action import Reallocate, RestartJob, Status
from trilithon.model.allocation import initial
from trilithon.model.capability import Ability
from trilithon.model.change import JobRestart
from trilithon.model.job import Bounds
from trilithon.model.mode import Mode
from trilithon.policies.decision import Decision
from trilithon.policies.policy import State, Verdict, decision_id
from trilithon.policies.scene import Scene

JOB = chain()


def test_a_job_that_misses_its_threshold_meets_it_after_a_while(world: World) -> None:
    world.cluster.rates[JOB.id] = 250.0
    world.commands.apply(JOB)
    world.rounds(40)
    assert world.parallelism(JOB.id)["o0"] >= 3
    assessment = world.controller.assessment()
    assert assessment is not None
    assert assessment.intents.met[0] == 1.0


def test_with_the_mode_off_it_does_not(world: World) -> None:
    world.cluster.rates[JOB.id] = 250.0
    world.commands.apply(JOB, Mode.OFF)
    world.rounds(40)
    assert world.parallelism(JOB.id) == {"o0": 1, "o1": 1}
    assert world.rows("SELECT * FROM decision") == []


def test_with_the_mode_advise_it_is_told_and_not_done(world: World) -> None:
    world.cluster.rates[JOB.id] = 250.0
    world.commands.apply(JOB, Mode.ADVISE)
    world.rounds(20)
    assert world.parallelism(JOB.id) == {"o0": 1, "o1": 1}
    # The same advice again and again is one row.
    [(times, granted)] = world.rows(
        "SELECT times, granted FROM decision WHERE clips LIKE '%ADVICE_ONLY%'"
    )
    assert times > 10
    assert granted == "[]"
    world.commands.mode(JOB.id, Mode.AUTO)
    world.rounds(4)
    assert world.parallelism(JOB.id) != {"o0": 1, "o1": 1}


def test_wanted_stands_in_the_journal_before_the_engine_is_told(world: World) -> None:
    world.cluster.rates[JOB.id] = 250.0
    world.commands.apply(JOB)
    apply, seen = world.cluster.apply, []

    def look(action: Reallocate) -> object:
        [row] = world.rows(
            "SELECT standing FROM allocation WHERE generation = ?", action.allocation.generation
        )
        [(kind, ended)] = world.rows("SELECT kind, ended_s FROM action ORDER BY rowid DESC LIMIT 1")
        seen.append((row[0], kind, ended))
        return apply(action)

    world.cluster.apply = look  # type: ignore[method-assign, assignment]
    world.rounds(10)
    assert seen
    assert set(seen) == {("wanted", "reallocate", None)}


def test_an_allocation_that_the_engine_lost_is_brought_about_again(world: World) -> None:
    world.commands.apply(JOB)
    world.rounds(3)
    wider = initial(JOB).rescaled({"o0": 3}).next_generation()
    assert world.cluster.apply(Reallocate(wider)).changed
    world.round()
    assert (
        world.controller.state.jobs[JOB.id].wanted == wider
    )  # somebody else's change is taken over
    world.cluster.allocations[JOB.id] = initial(JOB)
    world.round()
    assert world.cluster.allocations[JOB.id] == wider


def test_a_job_that_the_engine_lost_is_started_again_as_it_was(world: World) -> None:
    world.cluster.rates[JOB.id] = 250.0
    world.commands.apply(JOB)
    world.rounds(40)
    before = world.cluster.allocations[JOB.id]
    assert before.instances > 2
    world.cluster.cancel(JOB.id, keep=True)
    world.round()
    assert world.cluster.allocations[JOB.id] == before


def test_a_job_that_somebody_else_started_is_looked_after(world: World) -> None:
    world.cluster.rates[JOB.id] = 250.0
    world.cluster.submit(JOB, initial(JOB))
    world.rounds(20)
    assert world.parallelism(JOB.id)["o0"] > 1
    # Also one that was there before, was deleted, and is there again.
    world.commands.delete(JOB.id)
    world.rounds(2)
    assert world.cluster.jobs() == {}
    world.cluster.submit(JOB, initial(JOB))
    world.rounds(20)
    assert world.parallelism(JOB.id)["o0"] > 1


def test_an_action_that_the_engine_refuses_changes_nothing_and_is_not_asked_every_round(
    world: World,
) -> None:
    world.cluster.rates[JOB.id] = 250.0
    world.commands.apply(JOB)
    world.cluster.fails = [Status.REFUSED] * 100
    world.rounds(30)
    assert world.parallelism(JOB.id) == {"o0": 1, "o1": 1}
    refused = world.rows("SELECT generation FROM allocation WHERE standing = 'refused'")
    assert 2 <= len(refused) <= 6
    world.cluster.fails = []
    world.rounds(40)
    assert world.parallelism(JOB.id)["o0"] > 1


@pytest.mark.parametrize("status", [Status.FAILED, Status.UNKNOWN])
def test_after_an_action_that_failed_or_that_nobody_knows_of_the_next_round_mends_it(
    world: World, status: Status
) -> None:
    world.cluster.rates[JOB.id] = 250.0
    world.commands.apply(JOB)
    world.cluster.fails = [status]
    world.rounds(60)
    held = world.controller.state.jobs[JOB.id]
    assert held.accepted == held.wanted == world.cluster.allocations[JOB.id]
    assert held.wanted.instances > 3
    assert world.rows("SELECT * FROM action WHERE ended_s IS NULL") == []


def test_an_engine_that_does_not_answer_is_asked_again(world: World) -> None:
    world.commands.apply(JOB)
    world.rounds(3)
    jobs = world.cluster.jobs

    def silent() -> object:
        raise NotFound("Nobody answers.")

    world.cluster.jobs = silent  # type: ignore[method-assign, assignment]
    assert "Nobody answers" in world.round().blind
    world.cluster.jobs = jobs  # type: ignore[method-assign]
    assert not world.round().blind


def test_a_job_that_does_not_fit_is_told_and_tried_again(world: World) -> None:
    world.cluster.ledger.slots = 3
    world.commands.apply(chain("first"))
    world.commands.apply(chain("second"))
    world.rounds(3)
    assert set(world.cluster.jobs()) == {"ads/first"}
    assert "DOES_NOT_FIT" in world.controller.state.jobs["ads/second"].problem
    world.commands.delete("ads/first")
    world.rounds(40)
    assert set(world.cluster.jobs()) == {"ads/second"}


def test_a_job_that_pauses_keeps_its_checkpoint_and_one_that_is_deleted_does_not(
    world: World,
) -> None:
    world.commands.apply(JOB)
    world.rounds(2)
    world.commands.pause(JOB.id)
    world.rounds(2)
    assert world.cluster.jobs() == {}
    assert world.cluster.checkpoints[JOB.id] == {"": 1}
    world.commands.resume(JOB.id)
    world.rounds(2)
    assert world.cluster.checkpoints[JOB.id] == {"": 2}
    world.commands.delete(JOB.id)
    with pytest.raises(JobEnding):
        world.commands.apply(JOB)
    world.rounds(2)
    assert world.cluster.checkpoints == {}
    with pytest.raises(NotFound):
        world.commands.pause(JOB.id)


class Restless(FakePolicy):
    """A policy that wants one restart, and remembers that it did."""

    name = "restless"

    def decide(self, scene: Scene, state: State) -> Verdict:
        if state.get("done"):
            return Verdict((), state, next_round_s=3.0)
        id_ = decision_id(scene, JOB.id)
        restart = JobRestart(JOB.id)
        ready = scene.statuses.get(JOB.id)
        if ready is None or not ready.open:
            return Verdict((), state)
        return Verdict(
            (Decision(id_, JOB.id, (restart,), "WHY", "It must."),), {**state, "done": 1}
        )


class Patient(Restless):
    """One that asks for rounds of a minute, and tells how much it sees."""

    name = "patient"
    lookback_s = 600.0
    seen = 0

    def decide(self, scene: Scene, state: State) -> Verdict:
        type(self).seen = len(scene.series)
        return Verdict((), state, next_round_s=60.0)


def test_rounds_that_a_policy_makes_longer_are_no_gap(tmp_path: Path) -> None:
    world = World(tmp_path, policy=Patient())
    world.commands.apply(JOB)
    for _ in range(8):
        world.round(60.0)
    assert Patient.seen >= 7


class Telling(Restless):
    """One that tells news of the cluster in every round, the same twice."""

    name = "telling"

    def decide(self, scene: Scene, state: State) -> Verdict:
        said = f"News {scene.round // 2}."
        return Verdict((Decision(decision_id(scene, None), None, (), "NEWS", said),), state)


def test_news_of_the_cluster_is_counted_only_where_it_is_the_same(tmp_path: Path) -> None:
    world = World(tmp_path, policy=Telling())
    world.rounds(6)
    assert len(world.rows("SELECT * FROM decision")) in {3, 4}
    assert sum(row[0] for row in world.rows("SELECT times FROM decision")) == 6


def test_a_new_daemon_goes_on_where_the_old_one_was(world: World) -> None:
    world.cluster.rates[JOB.id] = 250.0
    world.commands.apply(JOB)
    world.commands.apply(chain("other", tenant="search"), Mode.ADVISE)
    world.rounds(30)
    before = world.controller.state
    world.start()
    after = world.controller.state
    assert after.round >= before.round - 6
    assert after.policy_state == before.policy_state
    for name, held in before.jobs.items():
        record = after.jobs[name]
        assert (record.job, record.wanted, record.accepted) == (
            held.job,
            held.wanted,
            held.accepted,
        )
        assert (record.mode, record.changed_s, record.gap_s) == (
            held.mode,
            held.changed_s,
            held.gap_s,
        )
    events = world.rows("SELECT count(*) FROM event")
    world.round()
    assert world.rows("SELECT count(*) FROM event") == events


def test_nothing_is_changed_while_metrics_are_missing_or_not_fresh_enough(world: World) -> None:
    world.cluster.rates[JOB.id] = 250.0
    world.commands.apply(JOB)
    world.round()
    world.cluster.silent.add(JOB.id)
    world.rounds(10)
    assert world.parallelism(JOB.id) == {"o0": 1, "o1": 1}
    world.cluster.silent.clear()
    world.rounds(2)
    assert world.parallelism(JOB.id) == {"o0": 1, "o1": 1}
    world.rounds(3)
    assert world.parallelism(JOB.id) != {"o0": 1, "o1": 1}


def test_an_executor_that_is_gone_does_not_hide_a_job_for_ever(world: World) -> None:
    world.cluster.rates[JOB.id] = 250.0
    world.commands.apply(JOB)
    world.rounds(2)
    # The query is started again elsewhere: the same instances, another sender.
    world.cluster.sender = "another"
    world.rounds(3)
    assert world.parallelism(JOB.id) == {"o0": 1, "o1": 1}
    world.rounds(8)
    assert world.parallelism(JOB.id) != {"o0": 1, "o1": 1}


@pytest.mark.parametrize("jump_s", [-3600.0, 3600.0])
def test_a_clock_that_jumps_makes_the_controller_wait_for_fresh_data_and_no_longer(
    world: World, jump_s: float
) -> None:
    world.cluster.rates[JOB.id] = 250.0
    world.commands.apply(JOB)
    world.rounds(3)
    world.clock.off_s = jump_s
    # The engine's reports have the jump, too: it is one machine's clock.
    world.cluster.now_s, world.clock.off_s = world.cluster.now_s + jump_s, 0.0
    world.round()
    assert world.parallelism(JOB.id) == {"o0": 1, "o1": 1}
    world.rounds(8)
    assert world.parallelism(JOB.id)["o0"] > 1


def test_in_quiet_hours_nothing_is_changed(tmp_path: Path) -> None:
    world = World(
        tmp_path, rules=Rules(quiet=(QuietHours.of("00:00-23:59"), QuietHours.of("23:59-00:00")))
    )
    world.cluster.rates[JOB.id] = 250.0
    world.commands.apply(JOB)
    world.rounds(10)
    assert world.parallelism(JOB.id) == {"o0": 1, "o1": 1}
    assert "QUIET_HOURS" in world.rows("SELECT clips FROM decision")[-1][0]


def test_what_actions_cost_is_learned(tmp_path: Path) -> None:
    world = World(
        tmp_path, rules=rules(round_s=1, fresh_s=3, cool_down_s=5, watch_s=10, stale_s=40)
    )
    world.commands.apply(JOB)
    for _ in range(20):
        world.round(1.0)
    held = world.controller.state.jobs[JOB.id]
    world.controller.costs.began(JOB.id, Ability.RESTART_JOB, world.cluster.now_s)
    world.cluster.rates[JOB.id] = 0.0
    for _ in range(6):
        world.round(1.0)
    world.cluster.rates[JOB.id] = 10.0
    for _ in range(10):
        world.round(1.0)
    assert held.gap_s[Ability.RESTART_JOB][0] == pytest.approx(5.0, abs=1.5)
    world.start()
    assert world.controller.state.jobs[JOB.id].gap_s == held.gap_s
    world.round(1.0)
    scene = world.controller._scene(world.cluster.capabilities(), world.cluster.now_s)
    assert scene.statuses[JOB.id].gap_s[Ability.RESTART_JOB] == pytest.approx(5.0, abs=1.5)


def test_an_explanation_tells_what_why_from_which_numbers_and_what_came_of_it(
    world: World,
) -> None:
    world.cluster.rates[JOB.id] = 250.0
    world.commands.apply(JOB)
    world.rounds(40)
    assert world.journal is not None
    explanations = explain(world.journal, JOB.id)
    first = "\n".join(explanations[0]["sentences"])
    done = next(row for row in explanations if row["granted"])
    sentences = "\n".join(done["sentences"])
    assert "threshold decided (LATENCY_MISSED)" in sentences
    assert "Based on: capacity 1, " in sentences
    assert ", latency.p95 " in sentences
    assert "×" in sentences
    assert "Done in " in sentences or "Done at " in sentences
    assert "It expected latency.p95 of at most 100" in sentences
    assert ": not met." in sentences
    assert "Nothing was granted" in first
    kept = [row["came"]["kept"] for row in explanations if row["came"]]
    assert kept == sorted(kept)
    assert kept[-1] is True
    json.dumps(explanations)
    with pytest.raises(NotFound):
        explain(world.journal, "no/body")


def test_a_one_shot_action_is_done_once_and_a_policy_may_ask_for_another_length_of_rounds(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, policy=Restless())
    world.commands.apply(JOB)
    rounds = world.rounds(10)
    world.start()
    rounds += world.rounds(10)
    assert [type(action) for action in world.cluster.done] == [RestartJob]
    assert rounds[-1].next_s == 3.0
    assert rounds[0].next_s == 10.0
    assert world.rows("SELECT kind, status FROM action") == [("restart_job", "done")]


@pytest.mark.parametrize(("begun", "status"), [(True, "unknown"), (False, "refused")])
def test_a_one_shot_action_that_a_crash_interrupted_is_never_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: bool, status: str
) -> None:
    world = World(tmp_path, policy=Restless())
    world.commands.apply(JOB)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if begun:
            patched.setattr(world.cluster, "apply", die)
        else:
            patched.setattr(world.journal, "start", die)
        with pytest.raises(KeyboardInterrupt):
            world.rounds(10)
    world.start()
    world.rounds(10)
    assert world.cluster.done == []
    assert world.rows("SELECT status FROM action") == [(status,)]


def test_a_recording_that_cannot_be_written_does_not_stop_the_controller(tmp_path: Path) -> None:
    class Full:
        def write(self, *_: object) -> None:
            raise OSError(28, "No space left on device")

    world = World(tmp_path, recorder=Full())
    world.cluster.rates[JOB.id] = 250.0
    world.commands.apply(JOB)
    world.rounds(8)
    assert world.parallelism(JOB.id) != {"o0": 1, "o1": 1}
    assert len(world.rows("SELECT * FROM event WHERE kind = 'recording_stopped'")) == 1


class Broken(Restless):
    name = "broken"

    def decide(self, scene: Scene, state: State) -> Verdict:
        raise ZeroDivisionError(f"round {scene.round} {state}")


def test_a_policy_that_fails_does_not_stop_the_controller(tmp_path: Path) -> None:
    world = World(tmp_path, policy=Broken())
    world.commands.apply(JOB)
    world.rounds(3)
    assert world.cluster.jobs()[JOB.id].health == "running"
    assert any("ZeroDivisionError" in row[0] for row in world.rows("SELECT text FROM event"))
    assert world.controller.state.jobs[JOB.id].desired is DesiredState.RUN


def test_a_job_with_a_fixed_operator_gets_advice_where_it_matters(tmp_path: Path) -> None:
    world = World(tmp_path, FakeCluster())
    job = chain(bounds=Bounds(fixed=("o0", "o1")))
    world.cluster.rates[job.id] = 250.0
    world.commands.apply(job)
    world.rounds(10)
    assert world.parallelism(job.id) == {"o0": 1, "o1": 1}
