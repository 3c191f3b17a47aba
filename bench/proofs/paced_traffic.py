"""The traffic of a benchmark in a process of its own, so that nothing in the benchmark's process
delays what it sends and reads.

    python -m bench.proofs.paced_traffic SERVERS KIND RATE SECONDS IN OUT [IN OUT ...]

Sends records at a steady rate to each of the topics IN, reads the rows that come of them from OUT,
and prints three lines: when sending begins, when it has ended, and as JSON what came out. A row
tells in `sent` when the record that caused it was given to the Kafka client; its latency ends when
it is polled.
"""

import base64
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.proofs import figures
from trilithon.engines.spark.kafka import Kafka
from trilithon.workloads.ad_events import AdEvents

BEGAN: Final = "began"
ENDED: Final = "ended"
TICK_S: Final = 0.001
# What is late by so much is lost; doubles come within the second.
LATEST_S: Final = 60.0
DOUBLES_S: Final = 0.5
TEXT: Final = "abcdefghij" * 10
VIEW: Final = b'"event_type":"view"'
QUANTILES: Final = {"p50_ms": 0.5, "p90_ms": 0.9, "p95_ms": 0.95, "p99_ms": 0.99}

# From the number of a record, the time it is sent and its own time: its value, and how many rows
# come of it.
Maker = Callable[[int, float, float], tuple[bytes, int]]


def maker_of(kind: str) -> Maker:
    """`numbered` records, those with a `text`, or `ads`, of which only views make a row."""
    ads = AdEvents()

    def numbered(number: int, sent_s: float, _: float) -> tuple[bytes, int]:
        return json.dumps({"n": number, "sent": sent_s}).encode(), 1

    def text(number: int, sent_s: float, _: float) -> tuple[bytes, int]:
        return json.dumps({"n": number, "sent": sent_s, "text": TEXT}).encode(), 1

    def ad(number: int, sent_s: float, event_s: float) -> tuple[bytes, int]:
        ((_, value),) = ads.make(number, 1, event_s)
        return value[:-1] + f',"sent":{sent_s!r}}}'.encode(), int(VIEW in value)

    return {"numbered": numbered, "text": text, "ads": ad}[kind]


def sent_of(value: bytes) -> float:
    """When the record of a row was sent: the row is JSON, or a JSON text in base64."""
    row = value if value.startswith(b"{") else base64.b64decode(value)
    return float(json.loads(row)["sent"])


@dataclass(frozen=True, slots=True)
class Traffic:
    """Records that were sent, and the rows that came of them."""

    sent: int
    expected: int
    latencies_s: Sequence[float]
    sending_s: float
    # What the processes that did the work used while records were sent.
    cpu_s: float

    @property
    def lost(self) -> int:
        return max(0, self.expected - len(self.latencies_s))

    @property
    def doubled(self) -> int:
        return max(0, len(self.latencies_s) - self.expected)

    @property
    def quantiles_ms(self) -> dict[str, float | None]:
        found = {
            name: figures.quantile(self.latencies_s, share) for name, share in QUANTILES.items()
        }
        found["max_ms"] = max(self.latencies_s, default=None)
        return {name: None if s is None else round(1000 * s, 2) for name, s in found.items()}


def send(
    kafka: Kafka,
    kind: str,
    rate_per_s: float,
    seconds: float,
    topics: Sequence[tuple[str, str]],
    cpu_s: Callable[[], float] = lambda: 0.0,
) -> Traffic:
    """Runs the traffic on pairs of topics, in a process of its own."""
    named = [name for pair in topics for name in pair]
    settings = [kafka.servers, kind, f"{rate_per_s}", f"{seconds}", *named]
    command = [sys.executable, "-m", "bench.proofs.paced_traffic", *settings]
    process = subprocess.Popen(  # noqa: S603 - this program
        command, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process, process.stdout as lines:
        _expect(lines.readline(), BEGAN)
        began, before_s = time.monotonic(), cpu_s()
        _expect(lines.readline(), ENDED)
        spent_s, sending_s = cpu_s() - before_s, time.monotonic() - began
        result = json.loads(lines.readline())
    return Traffic(result["sent"], result["expected"], result["latencies_s"], sending_s, spent_s)


def _expect(line: str, word: str) -> None:
    if line.strip() != word:
        raise RuntimeError(f"the process that sends records has ended; it said {line!r}")


# -- in the process of its own


class Receiver:
    """Reads the rows that come into some topics from now on."""

    def __init__(self, kafka: Kafka, topics: Sequence[str]) -> None:
        settings = {"group.id": "nobody", "enable.auto.commit": False, "fetch.wait.max.ms": 2}
        self.latencies_s: list[float] = []
        self._consumer = Consumer({**kafka.client, **settings, "log_level": 0})
        listed = self._consumer.list_topics(timeout=30).topics
        places = [TopicPartition(t, number) for t in topics for number in listed[t].partitions]
        for place in places:
            place.offset = self._consumer.get_watermark_offsets(place, timeout=30)[1]
        self._consumer.assign(places)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            # One by one: waiting for several would delay the time at which each is seen.
            message = self._consumer.poll(0.1)
            value = None if message is None or message.error() else message.value()
            if value is not None:
                self.latencies_s.append(time.time() - sent_of(value))

    def finish(self, expected: int) -> list[float]:
        """The latencies of all rows, when as many have come as expected, or none comes any more."""
        deadline = time.monotonic() + LATEST_S
        while len(self.latencies_s) < expected and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(DOUBLES_S)
        self._ended.set()
        self._thread.join()
        self._consumer.close()
        return self.latencies_s


def run(
    kafka: Kafka, kind: str, rate_per_s: float, seconds: float, topics: Sequence[tuple[str, str]]
) -> dict[str, object]:
    """Sends to all partitions of all topics in turn."""
    make = maker_of(kind)
    # Without idempotence a retry of the producer looks like a record that the job doubled.
    settings = {"linger.ms": 0, "log_level": 0, "enable.idempotence": True}
    producer = Producer({**kafka.client, **settings})
    listed = producer.list_topics(timeout=30).topics
    read = [topic for topic, _ in topics]
    partitions = max(len(listed[topic].partitions) for topic in read)
    places = [(topic, number) for number in range(partitions) for topic in read]
    receiver = Receiver(kafka, [topic for _, topic in topics])
    sent = expected = 0
    print(BEGAN, flush=True)
    began = time.monotonic()
    while (now := time.monotonic()) < began + seconds:
        for _ in range(int((now - began) * rate_per_s * len(read)) - sent):
            topic, partition = places[sent % len(places)]
            at_s = time.time()
            value, rows = make(sent, at_s, at_s)
            producer.produce(topic, value, partition=partition)
            sent, expected = sent + 1, expected + rows
        producer.poll(TICK_S)
    assert producer.flush(30) == 0
    print(ENDED, flush=True)
    return {"sent": sent, "expected": expected, "latencies_s": receiver.finish(expected)}


def main() -> None:
    servers, kind, rate, seconds, *named = sys.argv[1:]
    topics = list(zip(named[::2], named[1::2], strict=True))
    print(json.dumps(run(Kafka(servers), kind, float(rate), float(seconds), topics)), flush=True)


if __name__ == "__main__":
    main()
