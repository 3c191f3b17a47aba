"""Finds the Kafka that `load` and `peek` use: the one that is named, or the embedded broker."""

from trilithon.engines.spark import broker
from trilithon.errors import BrokerUnavailable


def kafka_address(kafka: str | None) -> str:
    """The address of this Kafka, or of the embedded broker, whoever started that."""
    if kafka is not None:
        return kafka
    current = broker.status()
    if current.address is None or not current.answers:
        raise BrokerUnavailable(
            "The embedded broker is not running, and no other Kafka was named.",
            "Start it with `trilithon broker start` (its topics are kept), "
            "or name a Kafka with --kafka host:port.",
        )
    return current.address
