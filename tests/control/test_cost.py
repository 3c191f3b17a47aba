"""What actions cost is learned from reports: how long a job's records stopped."""

import pytest

from trilithon.control.cost import LONGEST_WATCH_S, Costs
from trilithon.model.capability import Ability
from trilithon.model.columns import Instances, Sources
from trilithon.model.report import Report


def report(at_s: float, taken: float, arrived: float) -> Report:
    return Report(
        "sender",
        int(at_s),
        at_s,
        instance_keys=(("t/j", "a", 0),),
        instances=Instances.of(1, taken=[taken]),
        source_keys=(("t/j", "in"),),
        sources=Sources.of(1, arrived=[arrived]),
    )


def learned(
    until_s: int, taken: dict[range, float] | None = None, arrives: bool = True
) -> list[tuple[Ability, float]]:
    """A job whose records move by one a second, but for some spans, after a restart at 10 s."""
    costs, count, gaps = Costs(30.0), 0.0, []
    for second in range(until_s):
        if not any(second in span for span in taken or {}):
            count += 1
        costs.take([report(float(second), count, float(second) if arrives else 0.0)])
        if second == 10:
            costs.began("t/j", Ability.RESTART_JOB, 10.0)
        gaps += [(gap.ability, gap.seconds) for gap in costs.ended(float(second))]
    return gaps


def test_a_job_that_flows_on_has_no_gap() -> None:
    assert learned(60) == [(Ability.RESTART_JOB, 0.0)]


def test_a_gap_is_as_long_as_the_records_stood() -> None:
    [(_, gap_s)] = learned(60, {range(11, 21): 0})
    assert gap_s == pytest.approx(10.0, abs=2.0)


@pytest.mark.parametrize("length_s", [45, 120, 400])
def test_a_gap_that_outlasts_the_watch_is_learned_whole(length_s: int) -> None:
    """The watch ends 30 s after the action; a longer outage was learned as 28 s."""
    [(_, gap_s)] = learned(length_s + 60, {range(11, 11 + length_s): 0})
    assert gap_s == pytest.approx(length_s, abs=3.0)


def test_a_gap_that_begins_within_the_watch_is_learned_whole() -> None:
    [(_, gap_s)] = learned(200, {range(35, 105): 0})
    assert gap_s == pytest.approx(70.0, abs=3.0)


def test_a_job_without_load_after_the_action_is_no_gap() -> None:
    """Records moved after the action, then no more came: nothing stood."""
    [(_, gap_s)] = learned(200, {range(35, 199): 0}, arrives=False)
    assert gap_s == 0.0


def test_of_a_job_that_never_had_records_nothing_is_learned() -> None:
    end = int(LONGEST_WATCH_S) + 60
    assert learned(end, {range(end): 0}, arrives=False) == []


def test_a_job_that_stands_for_ever_is_learned_to_stand_at_least_so_long() -> None:
    end = int(LONGEST_WATCH_S) + 60
    [(_, gap_s)] = learned(end, {range(11, end): 0})
    assert gap_s >= LONGEST_WATCH_S - 20
