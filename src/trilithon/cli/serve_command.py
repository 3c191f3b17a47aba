"""Owns the command `serve`: it attaches to the engine host or starts one, and serves the API."""

import contextlib
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
import uvicorn

from trilithon import folders, logs
from trilithon.cli.log_options import AsJson, Level, announcing, log_arguments
from trilithon.cli.processes import on_signals, socket_path
from trilithon.cli.settings import given_settings, read_settings
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
from trilithon.control import failpoints
from trilithon.control.rules import Rules
from trilithon.errors import HostUnreachable, InvalidSetting
from trilithon.service.address import publish, withdraw
from trilithon.service.api import api
from trilithon.service.daemon import calm_collector, daemon
from trilithon.service.keeper import HostKeeper
from trilithon.service.reattach import ReattachingEngine
from trilithon.spec.yaml_reader import read_yaml_file


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
    logs.configure(log_level, json=log_json)
    rules = Rules() if rules_file is None else Rules.of(read_yaml_file(rules_file).data)
    failpoints.arm_from_environment()
    folder = folders.state() / "daemon"
    command = _host(master, slots, kafka, kafka_settings, executors, spark_settings)
    command += log_arguments(log_level, as_json=log_json)
    host = HostKeeper(socket_path(), command, folders.state() / "host.log")
    engine = ReattachingEngine(host.reach)
    calm_collector()
    with daemon(engine, rules, folder, record) as running, announcing(as_json=log_json) as tell:
        host.tell = tell
        host.ensure()
        running.wake()
        listening = _listen(port)
        publish(folder, listening.getsockname()[1], running.token)
        try:
            tell(f"listening on http://127.0.0.1:{listening.getsockname()[1]}")
            config = uvicorn.Config(
                # uvicorn logs like everybody else here, not in a form of its own.
                api(running),
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=3,
            )
            server = uvicorn.Server(config)
            # uvicorn raises a signal again after it has ended by it; here a signal is a normal end.
            setattr(server, "capture_signals", contextlib.nullcontext)  # noqa: B010 - a method
            on_signals(lambda: setattr(server, "should_exit", True))
            server.run(sockets=[listening])
        finally:
            withdraw(folder)
            listening.close()
        running.stop()
        if with_jobs:
            tell("stopping the host and its jobs; their checkpoints stay")
            try:
                host.end()
            except HostUnreachable:
                tell("the host is gone already")
    engine.close()


def _host(
    master: str,
    slots: int,
    kafka: str | None,
    kafka_settings: Path | None,
    executors: int | None,
    spark_settings: Sequence[str] | None,
) -> list[str]:
    """The command that starts a host with the options of this one. Invalid settings are refused
    here, not when the host starts.
    """
    given_settings(spark_settings or ())
    if kafka_settings is not None:
        read_settings(kafka_settings)
    optional = {
        "--kafka": kafka,
        "--kafka-settings": kafka_settings and kafka_settings.resolve(),
        "--executors": executors,
    }
    command = [sys.executable, "-m", "trilithon", "host", "--master", master, "--slots", str(slots)]
    for name, value in optional.items():
        command += [] if value is None else [name, str(value)]
    for setting in spark_settings or ():
        command += ["--set", setting]
    return command


def _listen(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
    except OSError as error:
        listening.close()
        raise InvalidSetting(
            f"The API cannot listen on port {port}: {error.strerror}.",
            "Choose another port, or 0 for a free one.",
        ) from error
    # A client that reads the address before the server is ready waits instead of being refused.
    listening.listen(128)
    return listening
