"""What a new executor computes before it gets tasks, over a Spark that is a fake."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import MagicMock, call

import pytest

from tests.model.test_validation import GOOD
from trilithon.engines.spark import warm_up
from trilithon.engines.spark.compiler import plan_chain
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.ledger import Entry, Ledger
from trilithon.engines.spark.warm_up import RECORDS, TIMES, WARM_UP, RunningChain, WarmUp
from trilithon.model.job import Work

CHAIN = plan_chain(GOOD)
(TOPIC,) = GOOD.sources[0].topics


def running() -> RunningChain:
    return RunningChain(CHAIN, Kafka("k:1"), {(TOPIC, 0): 7, (TOPIC, 1): 100})


@pytest.fixture(autouse=True)
def build(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Instead of what builds a frame."""
    monkeypatch.setattr(warm_up, "_LEARNED_S", 0.0)
    fake = MagicMock()
    monkeypatch.setattr(warm_up, "build_frame", fake)
    return fake


def warm(ledger: Ledger, chains: Sequence[RunningChain], tasks: int = 100) -> tuple[Any, Any]:
    """The session and the probe after a warm-up of three executors."""
    spark, control = MagicMock(), MagicMock()
    control.start_job.return_value = 1
    WarmUp(spark, control, ledger, lambda: tasks, lambda: chains).run(3)
    return spark, control


def saving(build: Any) -> Any:
    """What computes the stages of a frame."""
    return build.return_value.write.format.return_value.mode.return_value.save


def writes(build: Any) -> int:
    return int(saving(build).call_count)


def test_the_stages_of_what_runs_are_computed_and_nothing_is_left(build: Any) -> None:
    ledger = Ledger(100, 10, entries={"t/a": Entry("t", 6, 4)})
    spark, control = warm(ledger, [running()])
    assert writes(build) == TIMES
    assert build.call_args.args[3] == WARM_UP
    assert ledger.entries == {"t/a": Entry("t", 6, 4)}
    assert ledger.running == frozenset()
    assert control.end_job.call_args_list == [call(WARM_UP)] * TIMES
    left = [each.args for each in spark.sparkContext.setLocalProperty.call_args_list]
    assert dict(left)["trilithon.job"] is None


def test_what_does_not_fit_beside_the_jobs_is_left_out(build: Any) -> None:
    """A query that begins a batch meanwhile would find no slots, and die of it."""
    width = running().width(3)
    ledger = Ledger(100, 10, entries={"t/a": Entry("t", 50, 4)})
    warm(ledger, [running()], 50 + width - 1)
    assert writes(build) == 0
    warm(ledger, [running()], 50 + width)
    assert writes(build) == TIMES
    assert ledger.entries == {"t/a": Entry("t", 50, 4)}


def test_slots_are_held_while_it_computes_and_a_failure_is_no_ones_problem(build: Any) -> None:
    ledger, reserved = Ledger(100, 10), []

    def fail() -> None:
        reserved.append((ledger.entries[WARM_UP].tasks, WARM_UP in ledger.running))
        raise RuntimeError("cold")

    saving(build).side_effect = fail
    warm(ledger, [running()])
    assert reserved == [(running().width(3), True)]
    assert ledger.entries == {}


def test_what_is_late_is_left_out(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_up, "WITHIN_S", 0.05)
    saving(build).side_effect = lambda: time.sleep(2.0)
    spark, _ = warm(Ledger(100, 10), [running()])
    assert writes(build) == 1
    spark.sparkContext.cancelJobGroup.assert_called_once()


def test_what_keeps_state_is_left_out(build: Any) -> None:
    first, *others = GOOD.operators
    stateful = replace(first, work=Work(deduplicate=("user",)))
    chain = replace(CHAIN, operators=(stateful, *others))
    warm(Ledger(100, 10), [replace(running(), chain=chain)])
    assert writes(build) == 0


def test_the_last_records_of_the_longest_partition_are_read_in_parts() -> None:
    spark = MagicMock()
    reader = spark.read.format.return_value.options
    running().read(spark, 3, {"subscribe": TOPIC, "kafka.acks": "1", "startingOffsets": "latest"})
    assert reader.call_args.kwargs == {
        "kafka.acks": "1",
        "assign": f'{{"{TOPIC}": [1]}}',
        "failOnDataLoss": "false",
    }
    starting = reader.return_value.option
    assert starting.call_args.args == (
        "startingOffsets",
        f'{{"{TOPIC}": {{"1": {100 - RECORDS}}}}}',
    )
    ending = starting.return_value.option
    assert ending.call_args.args == ("endingOffsets", f'{{"{TOPIC}": {{"1": 100}}}}')
    ending.return_value.load.return_value.repartition.assert_called_once_with(3)
