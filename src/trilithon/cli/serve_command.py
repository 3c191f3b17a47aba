"""Owns the command `serve`: its options, and that others see at once that a daemon is starting."""

from pathlib import Path
from typing import Annotated

import typer

from trilithon import folders, logs
from trilithon.cli.log_options import AsJson, Level
from trilithon.cli.spark_options import (
    MASTER,
    SLOTS,
    Executors,
    Kafka,
    KafkaSettings,
    Master,
    Slots,
    SparkSettings,
)
from trilithon.service.address import announce


def serve_command(
    master: Master = MASTER,
    kafka: Kafka = None,
    kafka_settings: KafkaSettings = None,
    slots: Slots = SLOTS,
    executors: Executors = None,
    spark_settings: SparkSettings = None,
    rules_file: Annotated[
        Path | None,
        typer.Option("--rules", help="A YAML file: limits, quotas, quiet hours, policy."),
    ] = None,
    port: Annotated[
        int, typer.Option("--port", help="Port of the API; 0 takes a free one.", min=0, max=65535)
    ] = 0,
    record: Annotated[
        Path | None, typer.Option("--record", help="Record every round in this folder.")
    ] = None,
    with_jobs: Annotated[
        bool, typer.Option("--with-jobs", help="On exit, stop the host and the jobs as well.")
    ] = False,
    log_level: Level = logs.LogLevel.INFO,
    log_json: AsJson = False,
) -> None:
    """Control jobs: observe, decide, act, explain. Ends on SIGTERM or Ctrl-C; the jobs go on."""
    announce(folders.state() / "daemon")
    # Slow to import: commands that are called meanwhile wait for the announced daemon.
    from trilithon.cli.serving import serve  # noqa: PLC0415

    serve(
        master,
        kafka,
        kafka_settings,
        slots,
        executors,
        spark_settings,
        rules_file,
        port,
        record,
        with_jobs,
        log_level,
        log_json,
    )
