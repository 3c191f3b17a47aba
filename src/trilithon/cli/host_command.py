"""Owns the command `host`: the engine host in a process of its own."""

import os
from contextlib import ExitStack
from dataclasses import replace
from typing import Annotated

import typer

from trilithon import logs
from trilithon.cli.log_options import AsJson, Level, announcing
from trilithon.cli.processes import on_signals, socket_path
from trilithon.cli.spark_options import (
    MASTER,
    SLOTS,
    Applications,
    Executors,
    Kafka,
    KafkaSettings,
    Master,
    Slots,
    SparkSettings,
    TenantKafka,
)
from trilithon.cli.spark_setup import setup_of
from trilithon.engines.host import Host
from trilithon.engines.spark.application import TopicCreatingEngine, application
from trilithon.engines.spark.replacement import replace_this_host
from trilithon.engines.spark.session import on_driver_end
from trilithon.engines.start_failure import start_failure_kept
from trilithon.model.validation import NAME


def _valid_name(name: str) -> str:
    """The name becomes part of paths."""
    if name and not NAME.fullmatch(name):
        raise typer.BadParameter("Write a name as that of a tenant: a-z, 0-9, - and _.")
    return name


def host_command(
    master: Master = MASTER,
    kafka: Kafka = None,
    kafka_settings: KafkaSettings = None,
    tenant_kafka: TenantKafka = None,
    slots: Slots = SLOTS,
    executors: Executors = None,
    spark_settings: SparkSettings = None,
    name: Annotated[
        str,
        typer.Option(
            "--application",
            help="The application of a tenant or a group; default: one for all tenants.",
            callback=_valid_name,
        ),
    ] = "",
    applications: Applications = 1,
    log_level: Level = logs.LogLevel.INFO,
    log_json: AsJson = False,
) -> None:
    """Run the engine host: Spark and its jobs. It outlives daemons; SIGTERM or Ctrl-C ends it."""
    logs.configure(log_level, json=log_json)
    logs.logger().info("host_starting", pid=os.getpid(), application=name)
    setup = setup_of(
        master,
        slots,
        kafka,
        kafka_settings,
        executors,
        spark_settings,
        tenant_kafka=tenant_kafka,
        # Several hosts share the embedded broker: it must not end with one of them.
        keep_broker=bool(name),
    )
    setup = replace(setup, name=name, applications=applications, archive_classes=True)
    path = socket_path(name)
    with announcing(as_json=log_json) as tell, ExitStack() as ending:
        with start_failure_kept(path):
            running = application(setup, (), tell, replace_this_host)
            engine = ending.enter_context(running)
            host = Host(engine if kafka is not None else TopicCreatingEngine(engine), path)
        on_signals(host.close)
        # Whoever stops all processes of a machine at once ends the JVM, too.
        on_driver_end(lambda reason: None if host.closed else replace_this_host(reason))
        tell(f"listening on {host.path}")
        host.serve()
        # Another thread may be closing the engine: wait for it.
        host.close()
