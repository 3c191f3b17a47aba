"""Lists the Kafka options that a job may set. Connection and security belong to the engine.

A job that could set brokers, login modules or classes could read other tenants' data or run code.
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import Final

from trilithon.errors import Problem

SOURCE_OPTIONS: Final = frozenset(
    """subscribe startingOffsets startingTimestamp startingOffsetsByTimestamp
    startingOffsetsByTimestampStrategy failOnDataLoss includeHeaders minPartitions
    kafka.fetch.min.bytes kafka.fetch.max.wait.ms kafka.fetch.max.bytes
    kafka.max.partition.fetch.bytes kafka.max.poll.records kafka.isolation.level""".split()
)
SINK_OPTIONS: Final = frozenset(
    """topic kafka.linger.ms kafka.batch.size kafka.acks kafka.compression.type
    kafka.max.request.size kafka.delivery.timeout.ms kafka.request.timeout.ms""".split()
)


def check_options(
    options: Mapping[str, object], allowed: frozenset[str], path: str
) -> Iterator[Problem]:
    for name in options:
        if name not in allowed:
            near = difflib.get_close_matches(name, allowed, n=1)
            hint = f"Did you mean {near[0]!r}? " if near else ""
            yield Problem(
                "OPTION_NOT_ALLOWED",
                f"{path}.{name}",
                f"A job may not set the option {name!r}.",
                f"{hint}Brokers and security are settings of the engine.",
            )
    acks = str(options.get("kafka.acks", "all"))
    if acks not in {"all", "-1"}:
        yield Problem(
            "OPTION_LOSES_DATA",
            f"{path}.kafka.acks",
            f"With kafka.acks={acks} records are lost without a trace if a broker fails.",
            "Leave the option out: records are acknowledged by all in-sync replicas.",
        )
