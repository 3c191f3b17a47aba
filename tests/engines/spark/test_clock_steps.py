"""The wall clock is set by an hour while jobs run: the engine's durations do not follow it."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.engines.spark.conftest import until
from tests.engines.spark.test_supervision import DRIVER_S, World
from trilithon.contract.engine import RestartJob
from trilithon.engines.spark.incarnations import Incarnations
from trilithon.model.job import Job
from trilithon.model.report import Report

HOUR_S = 3600.0
TOPIC = "a-in"
either_way = pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])


class Measured(World):
    """A world whose executor reports what its readers do: two partitions of the topic."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, monkeypatch)
        self.sequence = 0
        self.drained: list[dict[str, Any]] = []
        self.ends: dict[str, int] = {}
        control: Any = self.engine.control
        control.drain_reports.side_effect = self._drain
        control.batches.return_value = {}
        monkeypatch.setattr(self.engine.logs, "ends", lambda _: dict(self.ends))
        monkeypatch.setattr(self.engine.monitor, "topics", lambda: {TOPIC})

    def _drain(self) -> dict[str, Any]:
        drained, self.drained = self.drained, []
        return {"reports": drained, "lost": []}

    def look(self, job: Job, end: int, read: int, *, idle: bool = False) -> list[Report]:
        """A second passes: Kafka tells where the topic ends, and the readers where they are."""
        self.now_s += 1.0
        self.ends = {TOPIC: end}
        self.engine.monitor.poll()
        reports = self.engine.reports()
        self.sequence += 1
        reader = {"job": job.id, "incarnation": 1, "batch": 0, "idle": idle, "skipped": 0}
        self.drained.append(
            {
                "version": 1, "executor": "0", "host": "h", "sequence": self.sequence,
                "time_us": (self.now_s + 0.5 + DRIVER_S) * 1e6,
                "wall_us": (self.engine.clock() + 0.5) * 1e6,
                "clock": {"error_us": 10}, "instances": [],
                "machine": {"cores": 2, "load": 0.5, "cpu_machine": 0.1},
                "readers": [
                    {**reader, "partition": f"{TOPIC}-{number}", "next": read // 2}
                    for number in range(2)
                ],
            }
        )  # fmt: skip  # a report, as it travels
        self.now_s += 0.6
        self.engine.collector.collect()
        self.now_s += 0.4
        return list(reports)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Measured]:
    world_ = Measured(tmp_path, monkeypatch)
    yield world_
    until(lambda: not world_.engine.starting)


@either_way
def test_the_host_reports_arrivals_all_the_time(world: Measured, step_s: float) -> None:
    """Its next report was due by the wall clock: after a step back there was none for an hour."""
    job, times_s = world.submit("a"), []
    for second in range(10):
        if second == 5:
            world.stepped_s = step_s
        times_s += [
            report.time_s - world.stepped_s
            for report in world.look(job, 100 * second, 100 * second)
            if report.sender.endswith("host")
        ]
    assert [round(after - before) for before, after in pairwise(times_s)] == [2] * 9


@either_way
def test_what_waits_in_a_cut_is_known_all_the_time(world: Measured, step_s: float) -> None:
    """Points of before a step back hid those after it for an hour, and a full cut held its writers
    at no record a second; after a step forwards the reader seemed to stand still.
    """
    job, lags = world.submit("a"), world.engine.dags.lags
    for second in range(20):
        if second == 10:
            world.stepped_s = step_s
        world.look(job, 10_000 * second + 500, 10_000 * second)
        if second > 1:
            now_s = world.engine.collector.driver_time_s()
            lag = lags.lag(job.id, [TOPIC], now_s, dict)
            # The end was read a quarter of a period before the readers told where they are.
            assert lag == pytest.approx(500, abs=5100), second
            assert lags._rate_per_s(job.id, TOPIC, now_s) == pytest.approx(5000)


@either_way
def test_what_is_left_when_no_reader_finds_a_record_is_none_after_a_step(
    world: Measured, step_s: float
) -> None:
    """The ends were timed by the wall clock and the reports by the driver's: after a step forwards
    markers of transactions counted as lag until the next restart.
    """
    job = world.submit("a")
    for second in range(6):
        if second == 2:
            world.stepped_s = step_s
        world.look(job, 103 * second, 100 * second, idle=True)
    assert world.engine.backlogs.lag(job, world.ends) == 0


def test_a_restart_takes_no_hour_when_the_clock_is_set_meanwhile(
    world: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = world.submit("a")

    def step(*_: object) -> str:
        world.stepped_s, world.now_s = -HOUR_S, world.now_s + 2
        return ""

    monkeypatch.setattr(world.engine.boundaries, "end_and_hold", step)
    assert world.engine.apply(RestartJob("r", job.id)).took_s == pytest.approx(2)


def test_incarnations_grow_from_host_to_host_though_the_clock_is_set_back(tmp_path: Path) -> None:
    """The counts of a host that began with smaller numbers were dropped as those of an earlier
    incarnation.
    """
    path, now_s = tmp_path / "engine" / "incarnation", 1_800_000_000.0
    first = Incarnations(path, lambda: now_s)
    assert first.least == now_s
    first.note(1_800_000_007)
    first.note(1_800_000_003)  # of another job
    again = Incarnations(path, lambda: now_s - HOUR_S)
    assert (again.begin(), again.least) == (1_800_000_008, 1_800_000_009)
    assert Incarnations(path, lambda: now_s + HOUR_S).least == now_s + HOUR_S
    # Applications of tenants share the file.
    first.note(1_800_000_100)
    again.note(1_800_000_050)
    assert Incarnations(path, lambda: now_s).least == 1_800_000_101
    path.write_text("what", encoding="utf-8")
    assert Incarnations(path, lambda: now_s).least == now_s
