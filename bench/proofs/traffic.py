"""The load of a proof and its output: numbered records with the time they were sent."""

import bisect
import itertools
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from bench.proofs import figures
from trilithon.engines.spark.kafka import Kafka


@dataclass(frozen=True, slots=True)
class Arrival:
    """A record at the sink: its number, arrival, latency, the tasks it went through, and when the
    job wrote it.
    """

    number: int
    at: float
    latency_s: float
    tasks: tuple[int, ...]
    written: float


def _written(arrival: Arrival) -> float:
    return arrival.written


class Load:
    """Sends numbered records at a rate that can be changed, to all partitions of a topic or in
    turn to the first `partitions` of them.
    """

    def __init__(
        self, kafka: Kafka, topic: str, rate_per_s: float, partitions: int | None = None
    ) -> None:
        self.rate_per_s = rate_per_s
        self.sent = 0
        self._partitions = partitions
        # Without idempotence a retry of the producer looks like a record that the job doubled.
        settings = {"linger.ms": 0, "log_level": 0, "enable.idempotence": True}
        # A record waits for a broker that is away for as long as that takes.
        settings |= {"message.timeout.ms": 0}
        self._producer = Producer({**kafka.client, **settings})
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due = time.time()
        while not self._stop.is_set():
            value = json.dumps({"n": self.sent, "sent": time.time()})
            partition = -1 if self._partitions is None else self.sent % self._partitions
            self._producer.produce(self._topic, value.encode(), partition=partition)
            self.sent += 1
            self._producer.poll(0)
            due = max(due + 1 / self.rate_per_s, time.time() - 1)
            time.sleep(max(0.0, due - time.time()))

    def stop(self) -> int:
        """Stops, flushes, and returns the number of records sent."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(30) == 0
        return self.sent


def reader_of(kafka: Kafka, topic: str) -> Consumer:
    """A consumer that reads each record of a topic exactly once. It has no group: a rebalance could
    rewind it, and records read twice would look like duplicates.
    """
    settings = {"group.id": "nobody", "enable.auto.commit": False, "fetch.wait.max.ms": 2}
    consumer = Consumer({**kafka.client, **settings, "log_level": 0})
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    return consumer


class Outlet:
    """Reads the sink's topic continuously."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self.arrivals: list[Arrival] = []
        self._stop = threading.Event()
        self._consumer = reader_of(kafka, topic)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            # One by one: waiting for several would delay the time at which each is seen.
            message = self._consumer.poll(0.1)
            value = None if message is None or message.error() else message.value()
            if value is not None:
                now = time.time()
                record, _, tasks = value.decode().rpartition("}")
                read = json.loads(record + "}")
                passed = tuple(int(task) for task in tasks.split())
                written = (message.timestamp()[1] if message else 0) / 1000
                latency_s = now - read["sent"]
                self.arrivals.append(Arrival(read["n"], now, latency_s, passed, written))

    def await_all(self, sent: int, timeout_s: float) -> None:
        """Waits until every number has arrived, or for the timeout."""
        deadline = time.monotonic() + timeout_s
        while len({a.number for a in list(self.arrivals)}) < sent and time.monotonic() < deadline:
            time.sleep(0.1)

    def since(self, at: float, until: float | None = None) -> list[Arrival]:
        """The arrivals in a span of time."""
        end = time.time() if until is None else until
        start = bisect.bisect_left(self.arrivals, at, key=lambda a: a.at)
        return [a for a in self.arrivals[start:] if a.at < end]

    def p95_s(self, last_s: float) -> float:
        """The p95 latency of recent arrivals; infinite without any."""
        p95_s = figures.quantile((a.latency_s for a in self.since(time.time() - last_s)), 0.95)
        return float("inf") if p95_s is None else p95_s

    def await_calm(self, below_s: float = 0.1, timeout_s: float = 60) -> None:
        """Waits until p95 is below a bound."""
        deadline = time.monotonic() + timeout_s
        while (p95_s := self.p95_s(4)) > below_s:
            if time.monotonic() > deadline:
                raise RuntimeError(f"p95 is {p95_s} s after {timeout_s} s, not below {below_s} s")
            time.sleep(0.5)

    def lost_and_doubled(self, sent: int) -> tuple[int, int]:
        """The numbers that never arrived, and the arrivals beyond the first of each number."""
        distinct = {a.number for a in self.arrivals}
        return sent - len(distinct), len(self.arrivals) - len(distinct)

    def largest_gap_s(self, start: float, end: float) -> float:
        """The longest time without output inside a span."""
        times = [start, *(a.at for a in self.arrivals if start <= a.at <= end), end]
        return max(b - a for a, b in itertools.pairwise(times))

    def around(self, at: float) -> tuple[Arrival, Arrival] | None:
        """The last record that was written before a time and the first after it."""
        arrivals = list(self.arrivals)
        before = [a for a in arrivals if a.written <= at]
        after = [a for a in arrivals if a.written > at]
        return (max(before, key=_written), min(after, key=_written)) if before and after else None

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()


@contextmanager
def traffic(
    kafka: Kafka, topics: tuple[str, str], rate_per_s: float, partitions: int | None = None
) -> Iterator[tuple[Load, Outlet]]:
    """A load on the first topic and an outlet at the second, stopped together."""
    outlet = Outlet(kafka, topics[1])
    load = Load(kafka, topics[0], rate_per_s, partitions)
    try:
        yield load, outlet
    finally:
        load.stop()
        outlet.stop()
