"""The lag of all jobs is asked for by one call per cycle, however many topics there are."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trilithon.engines.spark.kafka import Kafka, Logs
from trilithon.engines.spark.kafka_monitor import KafkaMonitor


class _Jvm:
    """A JVM that counts the calls from Python and answers one of them."""

    def __init__(self, answer: Callable[..., str], calls: list[str], path: str = "") -> None:
        self._answer, self._calls, self._path = answer, calls, path

    def __getattr__(self, name: str) -> "_Jvm":
        return _Jvm(self._answer, self._calls, f"{self._path}.{name}")

    def __call__(self, *arguments: Any) -> Any:
        self._calls.append(self._path)
        if self._path == ".io.trilithon.source.TopicEnds.ask":
            return self._answer(*arguments)
        return self


def ends_of(_client: object, topics: str, committed: str) -> str:
    """Two partitions per topic; a topic that is read committed ends earlier. One is missing."""
    only_committed = json.loads(committed)
    return json.dumps(
        {
            name: [2, 90 if name in only_committed else 100]
            for name in json.loads(topics)
            if name != "missing"
        }
    )


def logs_of(calls: list[str], committed: frozenset[str] = frozenset()) -> Logs:
    spark = SimpleNamespace(_jvm=_Jvm(ends_of, calls))
    return Logs(cast("Any", spark), Kafka("broker:9092"), lambda: committed)


@pytest.mark.parametrize("count", [1, 10, 1000])
def test_one_call_per_cycle_asks_for_the_ends_of_all_topics(count: int) -> None:
    calls: list[str] = []
    logs, topics = logs_of(calls), [f"in{number}" for number in range(count)]
    monitor = KafkaMonitor(logs.ends, lambda: topics)
    monitor.poll()
    del calls[:]  # the first call connects the client
    for cycle in range(1, 6):
        monitor.poll()
        assert len(calls) == cycle
    assert monitor.ends == dict.fromkeys(topics, 100)
    assert logs.partitions == dict.fromkeys(topics, 2)


def test_a_topic_that_is_read_committed_is_asked_for_in_the_same_call() -> None:
    calls: list[str] = []
    logs = logs_of(calls, frozenset({"paid"}))
    logs.ends(["paid", "in"])
    del calls[:]
    assert logs.ends(["paid", "in", "missing"]) == {"paid": 90, "in": 100}
    assert len(calls) == 1
