"""When a batch may be ended early, and what its checkpoint says: without Spark."""

from pathlib import Path
from typing import Any

import pytest

from tests.model.test_validation import GOOD
from trilithon.engines.spark.boundary import Boundaries
from trilithon.engines.spark.checkpoint import last_committed, offsets_at


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


def report(at_s: float, executor: str, **taken: int) -> dict[str, Any]:
    """What an executor tells of readers of the source `s`, named r0, r1 …"""
    instances = [
        {"job": GOOD.id, "operator": "s", "index": int(name[1:]), "taken": count}
        for name, count in taken.items()
    ]
    return {"time_us": at_s * 1e6, "executor": executor, "instances": instances}


def test_a_batch_ends_only_while_all_readers_get_records(
    boundaries: Boundaries, control: FakeControl, now: list[float]
) -> None:
    boundaries.observe([report(98, "0", r0=5, r1=5), report(99, "0", r0=9, r1=7)], {GOOD.id: GOOD})
    assert boundaries.end(GOOD.id, 2)
    assert control.ended == [(GOOD.id, "run:3", False)]
    now[0] = 103.0
    boundaries.observe([report(102, "0", r0=12, r1=7)], {GOOD.id: GOOD})
    assert not boundaries.end(GOOD.id, 2)  # the second reader waits


def test_a_reader_that_was_elsewhere_before_is_not_taken_for_one_that_reads(
    boundaries: Boundaries, now: list[float]
) -> None:
    """Both executors tell a count of the reader again and again; neither grows."""
    for second in range(90, 101):
        reports = [report(second, "0", r0=50), report(second, "1", r0=70)]
        boundaries.observe(reports, {GOOD.id: GOOD})
    assert not boundaries.all_reading(GOOD.id, 1)


def test_a_batch_that_does_not_end_though_it_was_told_to_is_noticed(
    boundaries: Boundaries, control: FakeControl, now: list[float]
) -> None:
    boundaries.observe([report(99, "0", r0=5)], {GOOD.id: GOOD})
    assert boundaries.end(GOOD.id, 1)
    now[0] = 105.0
    assert not boundaries.stuck(GOOD.id)
    now[0] = 111.0
    assert boundaries.stuck(GOOD.id)
    control.running = "run:4"
    assert not boundaries.stuck(GOOD.id)


def test_a_query_that_is_dead_is_not_waited_for(boundaries: Boundaries, tmp_path: Path) -> None:
    boundaries.observe([report(99, "0", r0=5)], {GOOD.id: GOOD})
    assert boundaries.end_and_hold(GOOD.id, 1, tmp_path, lambda: False) == "the query died"


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
