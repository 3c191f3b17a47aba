"""A job under load, for tests: numbered records in, a consumer of the sink's topic out."""

import json
import threading
import time
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer

from bench.proofs.traffic import reader_of
from tests.engines.spark.conftest import until
from trilithon.engines.spark.cut_records import ID_HEADER
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.pacing import BatchPacer, RunningBatch
from trilithon.model.job import Job
from trilithon.spec.job_file import parse_job

PARTITIONS = 2
SENT_WHILE_DOWN = 50


def job_named(name: str, partitions: int = PARTITIONS) -> Job:
    """Reader → spread → keyed → sink, over topics of its own."""
    return parse_job(f"""
name: {name}
trigger: {{realTime: 10 minutes}}
sources:
  - name: in
    options: {{subscribe: {name}-in, startingOffsets: earliest}}
    schema: {{n: BIGINT, k: INT}}
    partitions: {partitions}
operators:
  - {{name: spread, input: in, where: n >= 0, parallelism: {{initial: 2, max: 4}}}}
  - name: keyed
    input: {{from: spread, grouping: by_key, key: [k]}}
    select: [n, k]
    parallelism: {{initial: 2, max: 4}}
sinks:
  - {{name: out, input: keyed, key: k, options: {{topic: {name}-out}}}}
""")


@dataclass(frozen=True)
class Written:
    """A record in a topic that a job wrote: its value and its id."""

    value: dict[str, Any]
    id: str


def read_all(kafka: Kafka, topic: str) -> list[Written]:
    """What is in a topic now, each partition in its order."""
    consumer, rows = reader_of(kafka, topic), list[Written]()
    left = {
        place.partition: consumer.get_watermark_offsets(place)[1] for place in consumer.assignment()
    }
    left = {partition: end for partition, end in left.items() if end > 0}
    while left:
        message = consumer.poll(1.0)
        if message is None or message.error() is not None:
            continue
        value, headers, partition = message.value(), message.headers(), message.partition()
        assert value is not None
        source = dict(headers or [])[ID_HEADER]
        assert isinstance(source, bytes)
        rows.append(Written(json.loads(value), source.decode()))
        if (message.offset() or 0) + 1 >= left.get(partition or 0, 0):
            left.pop(partition or 0, None)
    consumer.close()
    return rows


@dataclass
class Got:
    """What a consumer of the sink's topic read: values with ids, when it read them, and when they
    were written.
    """

    value: dict[str, Any]
    id: str
    at_s: float
    written_s: float

    @property
    def number(self) -> int:
        return int(self.value["n"])

    @property
    def key(self) -> int:
        return int(self.value["k"])


class Flow:
    """A load at a steady rate on some partitions of a job's source, and a reader of its sink."""

    def __init__(
        self, kafka: Kafka, name: str, rate_per_s: float, partitions: int = PARTITIONS
    ) -> None:
        self.rate_per_s, self.sent, self.got = rate_per_s, 0, list[Got]()
        self._partitions = partitions
        self._name, self._kafka = name, kafka
        self._ended = threading.Event()
        self._sending = threading.Event()
        self._paused = threading.Event()
        self._threads = [threading.Thread(target=t, daemon=True) for t in (self._send, self._read)]
        for thread in self._threads:
            thread.start()

    def _send(self) -> None:
        # Without idempotence a retry of the producer looks like a record that the engine doubled.
        settings = {"linger.ms": 0, "log_level": 0, "enable.idempotence": True}
        producer = Producer({**self._kafka.client, **settings})
        began = time.monotonic()
        while not self._sending.is_set():
            if self._paused.is_set():
                began = time.monotonic() - self.sent / self.rate_per_s
            for _ in range(int((time.monotonic() - began) * self.rate_per_s) - self.sent):
                value = self.value(self.sent)
                # By key: a key is always in one partition.
                partition = (self.sent % 50) % self._partitions
                producer.produce(f"{self._name}-in", value, partition=partition)
                self.sent += 1
            producer.poll(0.005)
        assert producer.flush(120) == 0

    def value(self, number: int) -> str:
        return json.dumps({"n": number, "k": number % 50})

    def _read(self) -> None:
        consumer = reader_of(self._kafka, f"{self._name}-out")
        while not self._ended.is_set():
            # One by one: to wait for several would add to the time at which each is seen.
            message = consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            value, headers = message.value(), message.headers()
            assert value is not None
            assert headers is not None
            read, source = json.loads(value), dict(headers)[ID_HEADER]
            assert isinstance(source, bytes)
            written_s = message.timestamp()[1] / 1000
            self.got.append(Got(read, source.decode(), time.time(), written_s))
        consumer.close()

    def pause(self) -> None:
        self._paused.set()
        time.sleep(0.1)

    def resume(self) -> None:
        self._paused.clear()

    def stop_sending(self) -> int:
        self._sending.set()
        self._threads[0].join()
        return self.sent

    def await_all(self, timeout_s: float = 240) -> None:
        until(lambda: self.arrived >= self.sent, timeout_s)

    @property
    def arrived(self) -> int:
        """How many of the records have arrived, each counted once."""
        return len(self.arrivals_s())

    def arrivals_s(self) -> dict[int, float]:
        """When each record arrived for the first time, by its number."""
        first: dict[int, float] = {}
        for one in list(self.got):
            first.setdefault(one.number, one.at_s)
        return first

    def goes_on_s(self, sent: int) -> float | None:
        """When the first record arrived of those that were sent after so many."""
        return min((s for number, s in self.arrivals_s().items() if number >= sent), default=None)

    def sent_while_down(self) -> int:
        """Waits for records to be sent while the job is down, none of which may have arrived: the
        fault lasts. Returns how many were sent before them.
        """
        before = self.sent
        until(lambda: self.sent >= before + SENT_WHILE_DOWN)
        assert self.goes_on_s(before) is None, "the job is not down"
        return before

    @property
    def doubled(self) -> int:
        got = list(self.got)
        return len(got) - len(set(map(self.row, got)))

    def row(self, arrival: Got) -> Hashable:
        """What comes out once if nothing is replayed."""
        return arrival.number

    def removable_by_id(self) -> bool:
        """Whether copies of a row, and they alone, have the same id."""
        rows = {(self.row(one), one.id) for one in list(self.got)}
        return len(rows) == len({row for row, _ in rows}) == len({id_ for _, id_ in rows})

    def end(self) -> None:
        self.stop_sending()
        self._ended.set()
        self._threads[1].join()


@dataclass
class Scene:
    engine: SparkEngine
    job: Job
    flow: Flow

    def polled(self) -> bool:
        """Lets the engine supervise its jobs, as a host does."""
        self.engine.reports()
        return True

    def undisturbed(self) -> bool:
        """Whether the job ran in one incarnation all the time: then nothing is replayed."""
        accepted = self.engine.jobs()[self.job.id]
        assert (accepted.health, accepted.reason) == ("running", "")
        return self.flow.doubled == 0

    def flowing(self) -> None:
        """Waits until records come out."""
        before = len(self.flow.got)
        until(lambda: self.polled() and len(self.flow.got) > before + 50)


class NoPacing(BatchPacer):
    """Ends no batch by itself: for tests of what else may end one. On a busy machine a backlog
    would be a reason to end any.
    """

    def next_end(
        self, _now_s: float, _batches: Iterable[RunningBatch], *, hold: bool = False
    ) -> str | None:
        del hold
        return None
