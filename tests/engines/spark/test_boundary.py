"""How a batch is ended early, and what its checkpoint says: without Spark."""

from pathlib import Path

import pytest

from tests.model.test_validation import GOOD
from trilithon.engines.spark.boundary import AskedToEnd, Boundaries
from trilithon.engines.spark.checkpoint import last_committed, offsets_at, partition_offsets


class FakeControl:
    """Knows one batch, and records which batches were ended."""

    def __init__(self) -> None:
        self.running = "run:3"
        self.ended: list[tuple[str, str, bool]] = []

    def batch(self, job: str) -> str:
        assert job == GOOD.id
        return self.running

    def end_batch(self, job: str, batch: str, *, hold: bool = False) -> None:
        self.ended.append((job, batch, hold))


@pytest.fixture
def control() -> FakeControl:
    return FakeControl()


@pytest.fixture
def now() -> list[float]:
    return [100.0]


@pytest.fixture
def boundaries(control: FakeControl, now: list[float]) -> Boundaries:
    return Boundaries(control, lambda: now[0])  # type: ignore[arg-type]


def test_a_batch_is_told_to_end_once(boundaries: Boundaries, control: FakeControl) -> None:
    assert boundaries.end(GOOD.id)
    assert boundaries.end(GOOD.id)
    control.running = "run:4"
    assert boundaries.end(GOOD.id)
    assert control.ended == [(GOOD.id, "run:3", False), (GOOD.id, "run:4", False)]


def test_before_the_first_batch_there_is_none_to_end(
    boundaries: Boundaries, control: FakeControl
) -> None:
    control.running = ""
    assert not boundaries.end(GOOD.id)
    assert control.ended == []


def test_a_batch_that_does_not_end_though_it_was_told_to_is_noticed(
    boundaries: Boundaries, control: FakeControl, now: list[float]
) -> None:
    assert boundaries.end(GOOD.id)
    now[0] = 699.0  # a slow job processes the records in flight
    assert not boundaries.stuck(GOOD.id)
    now[0] = 701.0
    assert boundaries.stuck(GOOD.id)
    control.running = "run:4"
    assert not boundaries.stuck(GOOD.id)


def test_how_long_ago_a_batch_was_told_to_end_is_known_until_it_ends(
    boundaries: Boundaries, control: FakeControl, now: list[float]
) -> None:
    assert boundaries.asked_to_end(GOOD.id) is None
    assert boundaries.end(GOOD.id)
    now[0] = 142.0
    assert boundaries.end(GOOD.id)  # asked again, it is the same end
    assert boundaries.asked_to_end(GOOD.id) == AskedToEnd(100.0, 42.0)
    control.running = "run:4"
    assert boundaries.asked_to_end(GOOD.id) is None


def test_a_query_that_is_dead_is_not_waited_for(
    boundaries: Boundaries, control: FakeControl, tmp_path: Path
) -> None:
    assert boundaries.end_and_hold(GOOD.id, tmp_path, lambda: False) == "the query died"
    assert control.ended == [(GOOD.id, "run:3", True)]


def test_a_batch_that_has_just_committed_is_not_ended_but_the_next_one(
    boundaries: Boundaries, control: FakeControl, tmp_path: Path
) -> None:
    def commit(batch: str) -> None:
        for folder in ("offsets", "commits"):
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / batch).write_text("v1\n{}")

    commit("3")
    asked = []

    def runs() -> bool:
        asked.append(control.running)
        if len(asked) == 3:
            control.running = "run:4"
        if len(asked) == 5:
            commit("4")
        return True

    assert boundaries.end_and_hold(GOOD.id, tmp_path, runs) == ""
    assert control.ended == [(GOOD.id, "run:4", True)]


def test_a_checkpoint_says_how_far_the_sources_were_read(tmp_path: Path) -> None:
    assert last_committed(tmp_path) is None
    assert offsets_at(tmp_path, None, 1) is None
    for i, began in enumerate(('{"in":{"0":3,"1":4}}', '{"also":{"0":9}}')):
        (tmp_path / "sources" / str(i)).mkdir(parents=True)
        (tmp_path / "sources" / str(i) / "0").write_text(f"\0v1\n{began}")
    assert offsets_at(tmp_path, None, 2) == [7, 9]
    for name in ("commits", "offsets"):
        (tmp_path / name).mkdir()
        (tmp_path / name / ".11.crc").write_text("")
    for batch in (9, 10):
        (tmp_path / "commits" / str(batch)).write_text("v1\n{}")
        lines = ["v1", "{}", f'{{"in":{{"0":{batch},"1":1}}}}', '{"also":{"0":20}}']
        (tmp_path / "offsets" / str(batch)).write_text("\n".join(lines))
    assert last_committed(tmp_path) == 10
    assert offsets_at(tmp_path, 10, 2) == [11, 20]
    assert offsets_at(tmp_path, 10, 3) is None
    assert partition_offsets(tmp_path, 10, 1) == {("in", 0): 10, ("in", 1): 1}
    assert partition_offsets(tmp_path, 10, 2) == {("in", 0): 10, ("in", 1): 1, ("also", 0): 20}
    assert partition_offsets(tmp_path, 11, 2) == {}
