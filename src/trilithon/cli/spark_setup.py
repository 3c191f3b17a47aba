"""Makes the set-up of a Spark application from the options of a command."""

from collections.abc import Sequence
from pathlib import Path

from trilithon import folders
from trilithon.cli.settings import (
    given_numbers,
    given_settings,
    read_settings,
    read_tenant_kafka,
)
from trilithon.engines.spark.application import Setup


def setup_of(
    master: str,
    slots: int,
    kafka: str | None,
    kafka_settings: Path | None,
    executors: int | None,
    spark_settings: Sequence[str] | None,
    quotas: Sequence[str] | None = None,
    tenant_kafka: Sequence[str] | None = None,
    *,
    keep_broker: bool = False,
) -> Setup:
    """The set-up of an application in this state folder."""
    return Setup(
        master,
        folders.state() / "spark",
        slots,
        kafka=kafka,
        kafka_settings={} if kafka_settings is None else read_settings(kafka_settings),
        tenant_kafka=read_tenant_kafka(tenant_kafka or ()),
        spark_settings=given_settings(spark_settings or ()),
        quotas=given_numbers(quotas or ()),
        executors=executors,
        keep_broker=keep_broker,
    )
