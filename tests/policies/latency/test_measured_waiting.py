"""What was measured with fewer instances counts against scaling down to them again."""

import pytest

from tests.policies.latency.model import INTERVAL_S, Operating, QueueCluster, limit, line, scaling
from trilithon.measures.queueing import drained_waiting
from trilithon.model.change import ParallelismChange
from trilithon.model.series import Window
from trilithon.policies.decision import Decision
from trilithon.policies.latency import messages
from trilithon.policies.latency.latency_parameters import LatencyParameters

JOB = line("a", constraints=(limit(65.0, "in->a", "a"),), instances=4)


class LessRegular(Operating):
    """Arrivals at few instances are less regular than at many, as where records go in turn."""

    def waiting_s(self, p: int) -> float:
        self.coefficient = 3.0 if p <= 3 else 1.0
        return super().waiting_s(p)


def counts(decisions: list[Decision]) -> list[int]:
    return [
        change.parallelism["a"]
        for decision in scaling(decisions)
        for change in decision.changes
        if isinstance(change, ParallelismChange)
    ]


def oscillating(**parameters: float) -> QueueCluster:
    """With 4 and more instances the model says that 3 would do, with 3 that 6 are needed."""
    chosen = {"waiting_share_alone": 0.2, "error_bound": 100.0, "waiting_keep_s": 600.0}
    settings = LatencyParameters(**(chosen | parameters))  # type: ignore[arg-type]
    return QueueCluster.of((JOB, {"a": LessRegular(150.0)}), parameters=settings)


def test_instances_that_did_not_suffice_are_not_tried_again_at_the_same_load() -> None:
    """In PrimeTester on single records, it went back and forth between one and two instances."""
    assert len(counts(oscillating(waiting_keep_s=0.0).rounds(20))) > 4
    stage = oscillating()
    tried = counts(stage.rounds(20))
    assert tried == [3, 6, 4]


def test_they_are_tried_again_with_less_load_and_when_it_is_long_ago() -> None:
    stage = oscillating()
    stage.rounds(20)
    stage.operator("a").rate_per_s = 60.0
    stage.rounds(4)
    assert stage.parallelism()["a"] < 4
    stage = oscillating(waiting_keep_s=60.0)
    tried = counts(stage.rounds(30))
    assert 2 <= tried.count(3) <= 3


def test_what_is_remembered_makes_nothing_grow() -> None:
    stage = oscillating()
    stage.rounds(6)
    assert counts(stage.rounds(100)) == []


@pytest.mark.parametrize(("left", "wanted"), [(0.0, []), (1000.0, [5])])
def test_a_queue_that_is_worked_off_does_not_change_the_model(
    left: float, wanted: list[int]
) -> None:
    """In one random job, e fitted meanwhile asked for 64 instances where 14 had been enough. What
    is left of the queue is to be gone within an interval: 1,000 records of 10 ms take 2 instances
    of 5 s, beside 3 for the load.
    """
    operating = {"a": Operating(300.0, coefficient=30.0)}
    stage = QueueCluster.of((JOB, operating), queued={(JOB.id, "a"): left + 900.0})
    stage.queued = {(JOB.id, "a"): left}
    decisions = stage.rounds(1)
    assert counts(decisions) == wanted
    if wanted:
        assert "worked off" in scaling(decisions)[0].sentence
    assert messages.SCALE_UP in {d.reason for d in stage.rounds(4)}


def test_waiting_of_a_queue_that_is_worked_off() -> None:
    """Of 300/s that 4 instances of 10 ms take, 80/s are from a queue of 400 records. With 180/s to
    spare it is gone after 400/180 s of 5 s; meanwhile 200 records wait on average.
    """
    stage = QueueCluster.of((JOB, {"a": Operating(300.0)}), queued={(JOB.id, "a"): 400.0})
    stage.queued = {}
    window = window_of(stage)
    node = window.layout.node_row[JOB.id, "a"]
    expected = 400 / 180 * 200 / 1500
    assert drained_waiting(window)[node] == pytest.approx(expected)
    stage.queued = {(JOB.id, "a"): 400.0}
    window = window_of(stage)
    assert drained_waiting(window)[node] == 0


def window_of(stage: QueueCluster) -> Window:
    stage.rounds(1)
    window = stage.series.window(INTERVAL_S)
    assert window is not None
    return window
