"""Reads records of a Kafka topic for people: the latest ones, and those that come after them."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Self
from uuid import uuid4

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from trilithon.errors import NotFound
from trilithon.workloads.load_generator import ANSWER_S, REQUEST_S, SLICE_S, unavailable

END_OF_PARTITION: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 - its public name
FETCHED: Final = 500


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a topic. Bytes that are not UTF-8 are escaped."""

    partition: int
    offset: int
    time_s: float | None
    key: str | None
    value: str | None
    headers: tuple[tuple[str, str | None], ...] = ()

    @property
    def time(self) -> str | None:
        """The timestamp in ISO 8601, UTC, with milliseconds."""
        if self.time_s is None:
            return None
        return datetime.fromtimestamp(self.time_s, UTC).isoformat(timespec="milliseconds")

    @property
    def decoded(self) -> Any:
        """The value as data if it is JSON, else its text."""
        try:
            return None if self.value is None else json.loads(self.value)
        except ValueError:
            return self.value

    def as_data(self) -> dict[str, Any]:
        return {
            "partition": self.partition,
            "offset": self.offset,
            "time": self.time,
            "key": self.key,
            "value": self.decoded,
            "headers": dict(self.headers),
        }


def _is_about_the_group(message: Message) -> bool:
    """Kafka refused the consumer group: reading by offsets needs none, and nothing is committed."""
    error = message.error()
    return error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED


class TopicReader:
    """Reads topics of one Kafka cluster. It joins no consumer group and commits nothing."""

    def __init__(self, kafka: str, settings: Mapping[str, str] | None = None) -> None:
        self.kafka = kafka
        try:
            self._consumer = Consumer(
                {
                    "log_level": 0,
                    **(settings or {}),
                    "bootstrap.servers": kafka,
                    "group.id": f"trilithon-peek-{uuid4().hex}",
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "earliest",
                }
            )
        except KafkaException as error:
            raise unavailable(kafka, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def topics(self) -> dict[str, list[int]]:
        """The partitions of each topic, without Kafka's own topics."""
        # The Kafka client waits in C, where Ctrl-C does not reach it: so it waits in slices.
        deadline = time.monotonic() + ANSWER_S
        while True:
            try:
                listed = self._consumer.list_topics(timeout=REQUEST_S).topics
            except KafkaException as error:
                if time.monotonic() > deadline:
                    raise unavailable(self.kafka, error) from error
                continue
            return {
                name: sorted(topic.partitions)
                for name, topic in sorted(listed.items())
                if not name.startswith("__")
            }

    def count(self, topic: str, partitions: list[int]) -> int:
        """How many records a topic keeps; an upper bound for a compacted one."""
        return sum(high - low for low, high in self._bounds(topic, partitions).values())

    def latest(self, topic: str, count: int) -> list[Record]:
        """The latest records of a topic by their timestamps, the oldest of them first. The reader
        goes on after the end that the topic had then.
        """
        bounds = self._bounds(topic, self._partitions(topic))
        starts = {p: max(low, high - count) for p, (low, high) in bounds.items()}
        self._consumer.assign([TopicPartition(topic, p, at) for p, at in starts.items()])
        left = {p for p, (low, high) in bounds.items() if high > low and count > 0}
        records: list[Record] = []
        while left:
            for message in self._consumer.consume(FETCHED, SLICE_S):
                if _is_about_the_group(message):
                    continue
                partition, offset = message.partition() or 0, message.offset() or 0
                _, end = bounds[partition]
                if (error := message.error()) is None:
                    if offset < end:
                        records.append(_record(message))
                elif error.code() != END_OF_PARTITION:
                    raise unavailable(self.kafka, KafkaException(error))
                if error is not None or offset + 1 >= end:
                    left.discard(partition)
        self._consumer.assign([TopicPartition(topic, p, high) for p, (_, high) in bounds.items()])
        records.sort(key=lambda record: (record.time_s or 0.0, record.partition, record.offset))
        return records[-count:] if count else []

    def following(self, lost: Callable[[str], None]) -> Iterator[Record]:
        """Records as they come, after those of `latest`, without an end. Calls `lost` with the
        reason when Kafka does not answer; records come again when it does.
        """
        while True:
            for message in self._consumer.consume(FETCHED, SLICE_S):
                error = message.error()
                if error is None:
                    yield _record(message)
                elif error.code() != END_OF_PARTITION:
                    lost(error.str())

    def _partitions(self, topic: str) -> list[int]:
        topics = self.topics()
        if topic not in topics:
            known = ", ".join(topics) or "none"
            raise NotFound(f"Kafka at {self.kafka} has no topic {topic!r}.", f"Topics: {known}.")
        return topics[topic]

    def _bounds(self, topic: str, partitions: list[int]) -> dict[int, tuple[int, int]]:
        """The first offset of each partition, and the one after the last."""
        try:
            return {
                p: self._consumer.get_watermark_offsets(TopicPartition(topic, p), ANSWER_S)
                for p in partitions
            }
        except KafkaException as error:
            raise unavailable(self.kafka, error) from error


def _record(message: Message) -> Record:
    kind, stamp_ms = message.timestamp()
    return Record(
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        time_s=None if kind == TIMESTAMP_NOT_AVAILABLE else stamp_ms / 1000,
        key=text(message.key()),
        value=text(message.value()),
        headers=tuple((str(name), text(value)) for name, value in _headers(message)),
    )


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    headers: Any = message.headers() or []
    return list(headers.items() if isinstance(headers, dict) else headers)


def text(content: bytes | str | None) -> str | None:
    """Bytes as text; None stays None."""
    return content.decode(errors="backslashreplace") if isinstance(content, bytes) else content
