"""The monitor of Kafka notices an outage by itself, and its end."""

from collections.abc import Collection, Mapping

import pytest
from structlog.testing import capture_logs

from trilithon.engines.spark.kafka_monitor import FRESH_S, KafkaMonitor
from trilithon.errors import BrokerUnavailable, KafkaUnreachable


class FakeKafka:
    """Answers at once, or times out after four seconds of a clock that tests move."""

    def __init__(self) -> None:
        self.now_s, self.answers, self.asked = 100.0, True, 0

    def ends(self, topics: Collection[str]) -> Mapping[str, int]:
        self.asked += 1
        if not self.answers:
            self.now_s += 4.0
            raise KafkaUnreachable("Kafka does not answer at broker:9092.")
        return dict.fromkeys(topics, 7)

    def clock(self) -> float:
        return self.now_s

    def after(self, monitor: KafkaMonitor) -> None:
        """One call of the monitor, and its wait for the next."""
        wait_s = monitor.poll()
        self.now_s += wait_s


def away(monitor: KafkaMonitor) -> bool:
    return monitor.outage is not None


@pytest.fixture
def kafka() -> FakeKafka:
    return FakeKafka()


def test_an_outage_is_noticed_within_ten_seconds_and_so_is_its_end(kafka: FakeKafka) -> None:
    monitor = KafkaMonitor(kafka.ends, lambda: {"in"}, kafka.clock)
    assert monitor.ends == {}
    kafka.after(monitor)
    assert monitor.ends == {"in": 7}
    kafka.answers, began_s = False, kafka.now_s
    with capture_logs() as events:
        while monitor.outage is None:
            kafka.after(monitor)
        assert kafka.now_s - began_s <= 10.0
        assert monitor.outage.since_s == pytest.approx(began_s)
        assert monitor.outage.reason == "Kafka does not answer at broker:9092."
        assert monitor.outage.next_try_s - began_s <= 10.0
        # An old answer is no lag.
        assert kafka.now_s - began_s > FRESH_S
        assert monitor.ends == {}
        for _ in range(100):
            kafka.after(monitor)
        assert monitor.outage.since_s == pytest.approx(began_s)
        kafka.answers = True
        kafka.after(monitor)
    assert not away(monitor)
    assert monitor.ends == {"in": 7}
    # Once with its traceback, and once that it is over.
    assert [event["event"] for event in events] == ["kafka_away", "kafka_back"]
    assert isinstance(events[0]["exc_info"], KafkaUnreachable)


def test_one_call_that_fails_is_no_outage(kafka: FakeKafka) -> None:
    monitor = KafkaMonitor(kafka.ends, lambda: {"in"}, kafka.clock)
    for _ in range(5):
        kafka.answers = False
        monitor.poll()
        kafka.answers = True
        monitor.poll()
        assert monitor.outage is None


def test_without_jobs_nobody_is_asked(kafka: FakeKafka) -> None:
    topics = {"in"}
    monitor = KafkaMonitor(kafka.ends, lambda: topics, kafka.clock)
    kafka.answers = False
    for _ in range(3):
        monitor.poll()
    assert monitor.outage is not None
    topics.clear()
    asked = kafka.asked
    monitor.poll()
    assert not away(monitor)
    assert kafka.asked == asked


def test_a_broker_of_our_own_is_started_again(kafka: FakeKafka) -> None:
    revivals: list[float] = []

    def revive() -> None:
        revivals.append(kafka.now_s)
        if len(revivals) == 1:
            raise BrokerUnavailable("Another process listens at its port.")
        kafka.answers = True

    monitor = KafkaMonitor(kafka.ends, lambda: {"in"}, kafka.clock, revive)
    kafka.answers = False
    kafka.after(monitor)
    assert not revivals
    kafka.after(monitor)
    assert monitor.outage is not None
    assert monitor.outage.reason == "Another process listens at its port."
    kafka.after(monitor)
    kafka.after(monitor)
    assert len(revivals) == 2
    assert not away(monitor)
