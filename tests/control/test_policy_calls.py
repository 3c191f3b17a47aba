"""A policy that raises or takes too long does not stop the loop: it is skipped with an alert."""

import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cluster import chain
from tests.control.scene import World, rules
from trilithon.control.policy_calls import PolicyCalls
from trilithon.model.change import Alert
from trilithon.policies.layered import LayeredPolicy
from trilithon.policies.policy import State, Verdict
from trilithon.policies.scene import Scene
from trilithon.policies.threshold import ThresholdPolicy

JOB = chain("clicks")


@dataclass(frozen=True)
class Faulty(ThresholdPolicy):
    """A policy of a user that raises, or waits until it is let go."""

    name: str = "faulty"
    raises: bool = False
    go: threading.Event = field(default_factory=threading.Event)

    def decide(self, scene: Scene, state: State) -> Verdict:
        if self.raises:
            raise ValueError("it is broken")
        self.go.wait()
        return super().decide(scene, state)


def alerts(world: World) -> list[str]:
    last = world.controller.last
    assert last is not None
    return [
        change.code
        for ruling in last.rulings
        for change in ruling.decision.changes
        if isinstance(change, Alert)
    ]


def test_a_policy_that_raises_is_skipped_with_an_alert(tmp_path: Path) -> None:
    world = World(tmp_path, policy=Faulty(raises=True))
    world.rounds(3)
    assert alerts(world) == ["POLICY_FAILED"]
    [event] = world.rows("SELECT text FROM event WHERE kind = 'policy_failed'")
    assert "it is broken" in event[0]


def test_a_policy_that_takes_too_long_is_skipped_until_it_has_ended(tmp_path: Path) -> None:
    policy = Faulty()
    world = World(tmp_path, rules=rules(decide_s=1.0), policy=policy)
    world.round()
    assert alerts(world) == ["POLICY_TOO_SLOW"]
    world.round()
    assert alerts(world) == ["POLICY_TOO_SLOW"]
    policy.go.set()
    thread = world.controller._calls._running.thread
    assert thread is not None
    thread.join()
    world.round()
    assert alerts(world) == []


def test_where_time_stands_still_a_policy_decides_in_the_callers_thread(tmp_path: Path) -> None:
    """A policy of a simulated run on a busy machine was skipped as too slow: the run depended on
    how busy the machine was.
    """

    @dataclass(frozen=True)
    class Asking(ThresholdPolicy):
        threads: list[threading.Thread] = field(default_factory=list)

        def decide(self, scene: Scene, state: State) -> Verdict:
            self.threads.append(threading.current_thread())
            return super().decide(scene, state)

    policy = Asking()
    world = World(tmp_path)
    world.round()
    scene = world.controller.scene
    assert scene is not None
    calls = PolicyCalls(policy, None)
    calls.decide(scene, {})
    assert policy.threads == [threading.current_thread()]
    assert calls.error is None
    failing = PolicyCalls(Faulty(raises=True), None)
    failing.decide(scene, {})
    assert isinstance(failing.error, ValueError)


@pytest.mark.parametrize("broken_first", [True, False])
def test_a_layer_that_raises_does_not_stop_the_others(tmp_path: Path, broken_first: bool) -> None:
    seen: list[int] = []

    class Watching(ThresholdPolicy):
        def decide(self, scene: Scene, state: State) -> Verdict:
            seen.append(scene.round)
            return super().decide(scene, state)

    layers = (Faulty(raises=True), Watching())
    world = World(tmp_path, policy=LayeredPolicy(layers if broken_first else layers[::-1]))
    world.rounds(2)
    assert len(seen) == 2
    assert alerts(world) == ["POLICY_FAILED"]
