"""Generates load: writes records into a Kafka topic at the rate that a shape prescribes."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from trilithon.errors import BrokerUnavailable, InvalidLoad
from trilithon.workloads.shapes import Shape

CATCH_UP = 1.5
BURST_S = 0.05
TICK_S = 0.002
LONGEST_WAIT_S = 0.05
CHUNK = 256
ANSWER_S = 15.0
FLUSH_S = 35.0
# After Ctrl-C: for what is on its way to a broker that answers.
LAST_FLUSH_S = 0.5
# The Kafka client waits in C, where Ctrl-C does not reach it: so it waits in slices.
SLICE_S = 0.2
REQUEST_S = 1.0
# The partitioner of Java's producer, so that a key is in the same partition whoever writes it. A
# record that is not delivered within 30 s has failed. Delivery reports come for failures only:
# those of successes would cost CPU for every record.
PRODUCER: Mapping[str, Any] = {
    "partitioner": "murmur2_random",
    "linger.ms": 2,
    "message.timeout.ms": 30_000,
    "delivery.report.only.error": True,
    "log_level": 0,
}


class RecordMaker(Protocol):
    """Makes the records of a load, one after the other."""

    def make(self, first: int, count: int, now_s: float, /) -> Sequence[tuple[bytes | None, bytes]]:
        """Keys and values of the records from a number on, at one time."""
        ...


@dataclass(slots=True)
class Pacer:
    """Computes how many records are due. After a stall it catches up, but in any span of time it
    never allows more than `most_per_s` over that span plus BURST_S.
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
class LoadProgress:
    """A load in the middle: records delivered, records that wait in the client, and why Kafka does
    not answer (empty while it does).
    """

    at_s: float
    sent: int
    waiting: int
    unreachable: str


@dataclass(frozen=True, slots=True)
class LoadSummary:
    """What a load generator did. `wanted` records were scheduled, `sent` were delivered; a record
    is behind while it is due by the schedule and not yet handed to the Kafka client.
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
    records: RecordMaker,
    *,
    partitions: int | None = None,
    settings: Mapping[str, str] | None = None,
    on_progress: Callable[[LoadProgress], None] = lambda _: None,
) -> LoadSummary:
    """Sends records until the time is over or Ctrl-C. Calls `on_progress` once per second."""
    count = ensure_topic(kafka, topic, partitions, settings)
    generator = LoadGenerator(kafka, topic, shape, for_s, records, settings or {}, on_progress)
    return generator.run(count)


def ensure_topic(
    kafka: str, topic: str, partitions: int | None, settings: Mapping[str, str] | None = None
) -> int:
    """Returns the topic's number of partitions. Creates a missing topic, with 4 by default."""
    try:
        admin = AdminClient({"log_level": 0, **(settings or {}), "bootstrap.servers": kafka})
        existing = _topics(admin).get(topic)
        if existing is None:
            wanted = partitions or 4
            admin.create_topics([NewTopic(topic, wanted)])[topic].result(ANSWER_S)
            return wanted
    except KafkaException as error:
        raise unavailable(kafka, error) from error
    if partitions not in {None, len(existing.partitions)}:
        raise InvalidLoad(
            f"The topic {topic!r} has {len(existing.partitions)} partitions, not {partitions}.",
            "Leave --partitions out, or choose another topic.",
        )
    return len(existing.partitions)


def _topics(admin: AdminClient) -> Mapping[str, Any]:
    deadline = time.monotonic() + ANSWER_S
    while True:
        try:
            return admin.list_topics(timeout=REQUEST_S).topics
        except KafkaException:
            if time.monotonic() > deadline:
                raise


def unavailable(kafka: str, error: KafkaException) -> BrokerUnavailable:
    reason = error.args[0].str() if error.args and hasattr(error.args[0], "str") else str(error)
    return BrokerUnavailable(
        f"Kafka at {kafka} refused or did not answer: {reason.rstrip('.')}.",
        "Check the address and the settings; `trilithon broker start` starts one on this machine.",
    )


class LoadGenerator:
    """Sends the records of one load and counts what was delivered."""

    def __init__(
        self,
        kafka: str,
        topic: str,
        shape: Shape,
        for_s: float,
        records: RecordMaker,
        settings: Mapping[str, str],
        on_progress: Callable[[LoadProgress], None],
    ) -> None:
        self.topic, self.for_s, self.records, self.on_progress = topic, for_s, records, on_progress
        self.pacer = Pacer(shape)
        self.failed = self.bytes = 0
        self.unreachable = ""
        self._delivered = 0
        try:
            self.producer = Producer(
                {
                    **PRODUCER,
                    **settings,
                    "bootstrap.servers": kafka,
                    "on_delivery": self._count_failure,
                    "error_cb": self._lost,
                }
            )
        except KafkaException as error:
            raise unavailable(kafka, error) from error

    def _count_failure(self, error: object, _message: object) -> None:
        self.failed += error is not None

    def _lost(self, error: KafkaError) -> None:
        """The client has lost its connections. It does not say when it has them again."""
        self.unreachable = error.str()

    def _progress(self, at_s: float) -> LoadProgress:
        waiting = len(self.producer)
        delivered = max(0, self.pacer.sent - waiting - self.failed)
        if delivered > self._delivered or not waiting:
            self.unreachable = ""
        self._delivered = delivered
        return LoadProgress(at_s, delivered, waiting, self.unreachable)

    def run(self, partitions: int) -> LoadSummary:
        start = time.perf_counter()
        due_s, interrupted = self.for_s, False
        try:
            self._send(start)
            self._flush(start, FLUSH_S)
        except KeyboardInterrupt:
            interrupted = True
            due_s = min(time.perf_counter() - start, self.for_s)
            if not self._progress(due_s).unreachable:
                self.producer.flush(LAST_FLUSH_S)
        # What the client still has is not delivered; it counts these failures by the callback.
        self.producer.purge()
        self.producer.flush(LAST_FLUSH_S)
        # Up to the delivery of the last record: a record in the client's buffer is not sent.
        spent = time.perf_counter() - start
        pacer = self.pacer
        wanted = math.floor(pacer.shape.total(due_s) + 1e-6)
        sent = pacer.sent - self.failed
        return LoadSummary(
            topic=self.topic,
            partitions=partitions,
            seconds=spent,
            wanted=wanted,
            sent=sent,
            failed=self.failed,
            bytes=self.bytes,
            wanted_per_s=wanted / due_s,
            sent_per_s=sent / spent,
            most_behind=pacer.most_behind,
            behind_at_end=pacer.behind(due_s),
            interrupted=interrupted,
        )

    def _flush(self, start: float, within_s: float) -> None:
        """Waits until everything is delivered."""
        deadline = time.perf_counter() + within_s
        while self.producer.flush(SLICE_S) and time.perf_counter() < deadline:
            self.on_progress(self._progress(time.perf_counter() - start))

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
                self.on_progress(self._progress(now))
                second = math.floor(now) + 1.0
            if now >= self.for_s and (count < CHUNK or late()):
                return
            if count < CHUNK:
                time.sleep(min(pacer.wait_s(now), self.for_s - now))

    def _produce(self, count: int, start: float) -> None:
        """Hands records to the client. While its buffer is full this waits and falls behind."""
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
