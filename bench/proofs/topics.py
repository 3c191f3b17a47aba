"""How many records a topic has."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.proofs.traffic import reader_of
from trilithon.engines.spark.kafka import Kafka


@contextmanager
def written_to(kafka: Kafka, topic: str) -> Iterator[Callable[[], int]]:
    """A function that tells how many records a topic has, without reading them."""
    consumer = reader_of(kafka, topic)
    places = consumer.assignment()
    try:
        yield lambda: sum(int(consumer.get_watermark_offsets(place)[1]) for place in places)
    finally:
        consumer.close()
