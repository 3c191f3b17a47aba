"""Owns the options of whatever starts Spark: where it runs, which Kafka it reads, how much there is."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trilithon import folders
from trilithon.cli.settings import given_numbers, given_settings, read_settings
from trilithon.spec.durations import parse_seconds

if TYPE_CHECKING:
    from trilithon.engines.spark.application import Setup

MASTER = "local[64]"
SLOTS = 32

Master = Annotated[str, typer.Option("--master", help="Spark's master, if Spark is started.")]
Kafka = Annotated[
    str | None, typer.Option("--kafka", help="host:port of a Kafka; without it, the embedded one.")
]
KafkaSettings = Annotated[
    Path | None,
    typer.Option(
        "--kafka-settings",
        help="A file of key=value lines for Kafka's Java client, as for security.",
    ),
]
Slots = Annotated[int, typer.Option("--slots", help="Instances that may run at once.", min=1)]
Executors = Annotated[
    int | None, typer.Option("--executors", help="How many to wait for before jobs start.", min=1)
]
SparkSettings = Annotated[
    list[str] | None,
    typer.Option("--set", help="NAME=VALUE: a setting of Spark's, as spark.executor.memory=2g."),
]


def span(text: str) -> float:
    """A span of time in an option, above 0."""
    try:
        found = parse_seconds(text)
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from error
    if found <= 0:
        raise typer.BadParameter("it must be above 0.")
    return found


def setup_of(
    master: str,
    slots: int,
    kafka: str | None,
    kafka_settings: Path | None,
    executors: int | None,
    spark_settings: Sequence[str] | None,
    quotas: Sequence[str] | None = None,
) -> "Setup":
    """What an application of this state folder is started with."""
    # Spark is slow to import, and most commands do without.
    from trilithon.engines.spark.application import Setup  # noqa: PLC0415

    return Setup(
        master,
        folders.state() / "spark",
        slots,
        kafka=kafka,
        kafka_settings={} if kafka_settings is None else read_settings(kafka_settings),
        spark_settings=given_settings(spark_settings or ()),
        quotas=given_numbers(quotas or ()),
        executors=executors,
    )
