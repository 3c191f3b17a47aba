"""Owns the command `host`: the engine host in a process of its own."""

import os
from dataclasses import replace

from trilithon import logs
from trilithon.cli.log_options import AsJson, Level, announcing
from trilithon.cli.processes import on_signals, socket_path
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
from trilithon.cli.spark_setup import setup_of
from trilithon.engines.host import Host
from trilithon.engines.spark.application import TopicCreatingEngine, application
from trilithon.engines.spark.replacement import replace_this_host


def host_command(
    master: Master = MASTER,
    kafka: Kafka = None,
    kafka_settings: KafkaSettings = None,
    slots: Slots = SLOTS,
    executors: Executors = None,
    spark_settings: SparkSettings = None,
    log_level: Level = logs.LogLevel.INFO,
    log_json: AsJson = False,
) -> None:
    """Run the engine host: Spark and its jobs. It outlives daemons; SIGTERM or Ctrl-C ends it."""
    logs.configure(log_level, json=log_json)
    logs.logger().info("host_starting", pid=os.getpid())
    setup = setup_of(master, slots, kafka, kafka_settings, executors, spark_settings)
    setup = replace(setup, archive_classes=True)
    with (
        announcing(as_json=log_json) as tell,
        application(setup, (), tell, replace_this_host) as engine,
    ):
        host = Host(engine if kafka is not None else TopicCreatingEngine(engine), socket_path())
        on_signals(host.close)
        tell(f"listening on {host.path}")
        host.serve()
        # Another thread may be closing the engine: wait for it.
        host.close()
