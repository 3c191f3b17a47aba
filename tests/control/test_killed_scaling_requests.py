"""Requests for machines end whole, or everything is as before, wherever the daemon dies."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.control.scaling_scene import JOBS, World, measured_world
from trilithon.control import engine_calls, failpoints
from trilithon.control.journal import database
from trilithon.policies.requests import ScalingKind

# Where a request passes, and how often: machines are added or removed once, both jobs changed. The
# last round only sees that all is done.
TIMES = {"round": 2, "start": 1, "end": 2, "reallocate": 2, "one_shot": 1, "wish": 2}
PLACES = [
    (point, nth)
    for point in failpoints.POINTS
    for nth in range(1, TIMES.get(point.split(".")[1], 0) + 1)
]


class Killed(BaseException):
    """As `kill -9`: nothing catches it."""


class Death:
    """Arms a failpoint; what dies there is started again."""

    def __init__(self, world: World, patch: pytest.MonkeyPatch) -> None:
        self.world, self.patch, self.count = world, patch, 0
        patch.setattr(os, "kill", self._kill)

    def _kill(self, *_: object) -> None:
        self.count += 1
        self.patch.setattr(failpoints, "_armed", None)
        raise Killed

    def arm(self, point: str, nth: int = 1) -> None:
        self.patch.setattr(failpoints, "_hits", {})
        self.patch.setattr(failpoints, "_armed", (point, nth))

    def rounds(self, count: int) -> None:
        try:
            self.world.rounds(count)
        except Killed:
            self.start()

    def start(self) -> None:
        try:
            self.world.start()
        except Killed:
            self.world.start()


@dataclass(frozen=True)
class Asked:
    """What is asked of the cluster: a machine more, one fewer, or this one fewer."""

    kind: ScalingKind
    names: tuple[str, ...] = ()

    def of(self, world: World) -> None:
        world.commands.scale(self.kind, 1, machine_names=self.names)

    def __str__(self) -> str:
        return " ".join((self.kind.words, *self.names))


ASKED = [
    pytest.param(asked, id=str(asked))
    for asked in (Asked(ScalingKind.OUT), Asked(ScalingKind.IN), Asked(ScalingKind.IN, ("m3",)))
]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    yield from measured_world(tmp_path)


def check_whole_or_as_before(world: World, asked: Asked, before: dict[str, Any]) -> None:
    for _ in range(80):
        if None not in world.ended:
            break
        world.rounds(1)
    world.rounds(2)
    (done,) = world.ended
    machines = world.engine.machines.names()
    scale_out = asked.kind is ScalingKind.OUT
    if done:
        assert len(machines) == (5 if scale_out else 3)
        assert not set(asked.names) & set(machines)
        assert world.allocations != before
        places = [by for _, places in world.allocations.values() for by in places.values()]
        assert {machine for by in places for machine in by} <= {*machines, None}
        if scale_out:
            assert all(world.allocations[job] != before[job] for job in JOBS)
        return
    assert world.allocations == before
    # A machine that was added has no instance; none has gone.
    assert len(machines) in ({4, 5} if scale_out else {4})
    # It can be repeated.
    asked.of(world)
    world.rounds(8)
    assert world.ended[-1]


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize(("point", "nth"), PLACES)
def test_killed_anywhere_a_request_ends_whole_or_everything_is_as_before(
    asked: Asked, point: str, nth: int, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = world.allocations
    asked.of(world)
    death = Death(world, monkeypatch)
    death.arm(point, nth)
    death.rounds(6)
    assert death.count == 1
    check_whole_or_as_before(world, asked, before)


@pytest.mark.parametrize("asked", ASKED)
def test_every_place_that_a_request_passes_is_one_to_be_killed_at(
    asked: Asked, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writes of what is wanted of a job were once among those that nobody was killed at."""
    passed: Counter[str] = Counter()
    for module in (database, engine_calls):
        monkeypatch.setattr(module, "hit", lambda name: passed.update([name]))
    asked.of(world)
    assert set(passed) == {f"journal.request.{when}" for when in ("before", "inside", "after")}
    passed.clear()
    while None in world.ended:
        world.rounds(1)
    assert {point: nth for point, nth in passed.items() if nth > TIMES["round"]} == (
        {f"journal.round.{when}": 3 for when in ("before", "inside", "after")}
        if asked.kind is ScalingKind.OUT
        else {}
    )
    assert {(point, min(nth, TIMES["round"])) for point, nth in passed.items()} <= set(PLACES)


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("when", ["before", "inside", "after"])
def test_killed_while_a_request_is_written_it_is_there_or_not(
    asked: Asked, when: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = world.allocations
    death = Death(world, monkeypatch)
    death.arm(f"journal.request.{when}")
    with pytest.raises(Killed):
        asked.of(world)
    death.start()
    assert death.count == 1
    assert world.ended == ([None] if when == "after" else [])
    if when != "after":
        world.rounds(3)
        assert world.allocations == before
        asked.of(world)
    check_whole_or_as_before(world, asked, before)


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("when", ["before", "inside", "after"])
@pytest.mark.parametrize(
    ("first", "write"),
    [
        ("engine.one_shot.after", "recover"),
        ("engine.reallocate.after", "recover"),
        ("engine.reallocate.after", "settle"),
    ],
)
def test_killed_again_while_it_recovers_it_ends_the_same_way(
    asked: Asked,
    first: str,
    write: str,
    when: str,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = world.allocations
    asked.of(world)
    death = Death(world, monkeypatch)
    death.arm(first)
    with pytest.raises(Killed):
        world.rounds(6)
    death.arm(f"journal.{write}.{when}")
    death.start()
    death.rounds(1)
    assert death.count == 2
    check_whole_or_as_before(world, asked, before)
