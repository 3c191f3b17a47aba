"""Owns generating load: records into a Kafka topic, as many per second as a shape wants."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from trilithon.errors import BrokerUnavailable, InvalidLoad
from trilithon.workloads.records import Records
from trilithon.workloads.shapes import Shape

CATCH_UP = 1.5
BURST_S = 0.05
TICK_S = 0.002
LONGEST_WAIT_S = 0.05
CHUNK = 256
ANSWER_S = 15.0
FLUSH_S = 35.0
# Like Java's producer, so that a user is in the same partition whoever writes; what was not delivered
# within half a minute has failed. Only failures are told, which costs nothing while all is well.
PRODUCER: Mapping[str, Any] = {
    "partitioner": "murmur2_random",
    "linger.ms": 2,
    "message.timeout.ms": 30_000,
    "delivery.report.only.error": True,
    "log_level": 0,
}


@dataclass(slots=True)
class Pacer:
    """Says how many records are due. What a stall left over is made up for, but in any span of time
    never more is sent than `most_per_s` over that span and BURST_S.
    """

    shape: Shape
    sent: int = 0
    most_behind: int = 0
    most_per_s: float = field(init=False)
    _last_s: float = 0.0
    _allowed: float = 1.0

    def __post_init__(self) -> None:
        self.most_per_s = CATCH_UP * self.shape.peak_per_s

    def due(self, now_s: float) -> int:
        burst = max(1.0, self.most_per_s * BURST_S)
        self._allowed = min(self._allowed + self.most_per_s * (now_s - self._last_s), burst)
        self._last_s = now_s
        count = min(self.behind(now_s), int(self._allowed))
        self.most_behind = max(self.most_behind, self.behind(now_s) - count)
        return count

    def took(self, count: int) -> None:
        self.sent += count
        self._allowed -= count

    def behind(self, now_s: float) -> int:
        """Records that should have been sent and were not."""
        return max(0, math.floor(self.shape.total(now_s) + 1e-6) - self.sent)

    def wait_s(self, now_s: float) -> float:
        """How long nothing will be due."""
        rate = self.shape.rate_per_s(now_s)
        missing = self.sent + 1 - self.shape.total(now_s)
        wait = missing / rate if rate > 0 else LONGEST_WAIT_S
        return min(max(wait, TICK_S), LONGEST_WAIT_S)


@dataclass(frozen=True, slots=True)
class Summary:
    """What a load did: `wanted` is the schedule's, `sent` was delivered. Behind are the records that
    the schedule wanted by a moment and that had not been handed to the client by then.
    """

    topic: str
    partitions: int
    seconds: float
    wanted: int
    sent: int
    failed: int
    bytes: int
    wanted_per_s: float
    sent_per_s: float
    most_behind: int
    behind_at_end: int
    interrupted: bool


def generate(
    kafka: str,
    topic: str,
    shape: Shape,
    for_s: float,
    records: Records,
    *,
    partitions: int | None = None,
    settings: Mapping[str, str] | None = None,
    tell: Callable[[float, int], None] = lambda _at_s, _sent: None,
) -> Summary:
    """Sends records until the time is over or Ctrl-C; `tell` hears once per second how far it is."""
    found = ensure_topic(kafka, topic, partitions, settings)
    return _Run(kafka, topic, shape, for_s, records, settings or {}, tell).run(found)


def ensure_topic(
    kafka: str, topic: str, partitions: int | None, settings: Mapping[str, str] | None = None
) -> int:
    """The number of the topic's partitions; one that is not there is made, with four or as asked."""
    try:
        admin = AdminClient({"log_level": 0, **(settings or {}), "bootstrap.servers": kafka})
        there = admin.list_topics(timeout=ANSWER_S).topics.get(topic)
        if there is None:
            wanted = partitions or 4
            admin.create_topics([NewTopic(topic, wanted)])[topic].result(ANSWER_S)
            return wanted
    except KafkaException as error:
        raise unavailable(kafka, error) from error
    if partitions not in {None, len(there.partitions)}:
        raise InvalidLoad(
            f"The topic {topic!r} has {len(there.partitions)} partitions, not {partitions}.",
            "Leave --partitions out, or choose another topic.",
        )
    return len(there.partitions)


def unavailable(kafka: str, error: KafkaException) -> BrokerUnavailable:
    reason = error.args[0].str() if error.args and hasattr(error.args[0], "str") else str(error)
    return BrokerUnavailable(
        f"Kafka at {kafka} does not do what is asked: {reason.rstrip('.')}.",
        "Check the address and the settings; `trilithon broker start` starts one on this machine.",
    )


class _Run:
    def __init__(
        self,
        kafka: str,
        topic: str,
        shape: Shape,
        for_s: float,
        records: Records,
        settings: Mapping[str, str],
        tell: Callable[[float, int], None],
    ) -> None:
        self.topic, self.for_s, self.records, self.tell = topic, for_s, records, tell
        self.pacer = Pacer(shape)
        self.failed = self.bytes = 0
        try:
            self.producer = Producer(
                {**PRODUCER, **settings, "bootstrap.servers": kafka, "on_delivery": self._failed}
            )
        except KafkaException as error:
            raise unavailable(kafka, error) from error

    def _failed(self, error: object, _message: object) -> None:
        self.failed += error is not None

    def run(self, partitions: int) -> Summary:
        start = time.perf_counter()
        interrupted = False
        try:
            self._send(start)
        except KeyboardInterrupt:
            interrupted = True
        due_s = min(time.perf_counter() - start, self.for_s)
        # Not `self.failed += flush(…)`: failures are counted while it runs.
        left = self.producer.flush(FLUSH_S)
        self.failed += left
        # The time until the last record was delivered: what waits in a buffer is not sent.
        spent = time.perf_counter() - start
        pacer = self.pacer
        wanted = math.floor(pacer.shape.total(due_s) + 1e-6)
        sent = pacer.sent - self.failed
        return Summary(
            self.topic, partitions, spent, wanted, sent, self.failed, self.bytes,
            wanted / due_s, sent / spent, pacer.most_behind, pacer.behind(due_s), interrupted,
        )  # fmt: skip

    def _send(self, start: float) -> None:
        def late() -> bool:
            return time.perf_counter() - start > self.for_s + BURST_S

        pacer, second = self.pacer, 1.0
        while True:
            now = min(time.perf_counter() - start, self.for_s)
            count = min(pacer.due(now), CHUNK)
            if count:
                self._produce(count, start)
            self.producer.poll(0)
            if now >= second:
                self.tell(now, pacer.sent)
                second = math.floor(now) + 1.0
            if now >= self.for_s and (count < CHUNK or late()):
                return
            if count < CHUNK:
                time.sleep(min(pacer.wait_s(now), self.for_s - now))

    def _produce(self, count: int, start: float) -> None:
        """Hands records on; if Kafka does not keep up this waits, and the schedule runs ahead."""
        topic, produce = self.topic, self.producer.produce
        for key, value in self.records.make(self.pacer.sent, count, time.time()):
            while True:
                try:
                    produce(topic, value, key)
                    break
                except BufferError:
                    if time.perf_counter() - start > self.for_s:
                        return
                    self.producer.poll(0.01)
            self.pacer.took(1)
            self.bytes += len(value)
