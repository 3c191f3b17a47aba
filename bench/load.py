"""Measures how many records per second the load generator sends, beside plain confluent-kafka.

    python -m bench.load

Starts a broker of its own in a temporary folder. Each line is one run up to the last delivery; the
two take turns, so that whatever else the machine does meets both.
"""

import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer

from trilithon.engines.spark.broker import EmbeddedBroker
from trilithon.workloads.load_generator import PRODUCER, generate
from trilithon.workloads.records import Records
from trilithon.workloads.shapes import Constant

ROUNDS = 4
FOR_S = 3.0
PACED_PER_S = 50_000.0


def plain(kafka: str, topic: str, made: list[tuple[bytes, bytes]]) -> float:
    """Records per second of a bare loop over values that were made before."""
    producer = Producer({**PRODUCER, "bootstrap.servers": kafka})
    start = time.perf_counter()
    for key, value in made:
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:
                producer.poll(0.01)
    assert producer.flush(60) == 0
    return len(made) / (time.perf_counter() - start)


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedBroker.start(Path(folder) / "broker") as broker,
    ):
        print(f"{'run':<12} {'generator/s':>12} {'plain/s':>12} {'ratio':>6} {'bytes/value':>12}")
        for number in range(ROUNDS):
            free = generate(
                broker.address, "load", Constant(1e7), FOR_S, Records(1000, 1.1, seed=number)
            )
            assert free.failed == 0
            made = Records(1000, 1.1, seed=number).make(0, free.sent, time.time())
            bare = plain(broker.address, "load", made)
            each = free.bytes / free.sent
            name = "warm-up" if number == 0 else f"unbounded {number}"
            ratio = free.sent_per_s / bare
            print(
                f"{name:<12} {free.sent_per_s:>12,.0f} {bare:>12,.0f} {ratio:>6.2f} {each:>12.1f}"
            )
        paced = generate(broker.address, "load", Constant(PACED_PER_S), 10, Records(1000, 1.1))
        assert paced.failed == 0
        print(
            f"asked for {PACED_PER_S:,.0f}/s over 10 s: {paced.sent:,} of {paced.wanted:,} sent, "
            f"{paced.sent_per_s:,.0f}/s, at most {paced.most_behind:,} behind, "
            f"{paced.behind_at_end:,} at the end"
        )


if __name__ == "__main__":
    main()
