"""Owns the daemon's command: it finds the engine's host or starts one, serves the API, and ends cleanly."""

import contextlib
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from trilithon import folders
from trilithon.cli.options import (
    MASTER,
    SLOTS,
    Executors,
    Kafka,
    KafkaSettings,
    Master,
    Slots,
    SparkSettings,
    setup_of,
)
from trilithon.cli.output import progress
from trilithon.cli.run import socket_path
from trilithon.cli.settings import given_settings, read_settings
from trilithon.control import failpoints
from trilithon.control.rules import Rules
from trilithon.engines.host import Host
from trilithon.errors import HostUnreachable, InvalidSetting
from trilithon.service.daemon import calm_collector, daemon, publish, withdraw
from trilithon.service.keeper import HostKeeper
from trilithon.service.reattach import ReattachingEngine
from trilithon.spec.yaml_reader import read_yaml_file


def host_command(
    master: Master = MASTER,
    kafka: Kafka = None,
    kafka_settings: KafkaSettings = None,
    slots: Slots = SLOTS,
    executors: Executors = None,
    spark_settings: SparkSettings = None,
) -> None:
    """Run Spark and its jobs for a daemon, which may come and go; ends on SIGTERM or Ctrl-C."""
    # Spark is slow to import, and most commands do without.
    from trilithon.engines.spark.application import TopicsFirst, application  # noqa: PLC0415

    setup = setup_of(master, slots, kafka, kafka_settings, executors, spark_settings)
    with progress() as tell, application(setup, (), tell) as engine:
        host = Host(engine if kafka is not None else TopicsFirst(engine), socket_path())
        _on_signals(host.close)
        tell(f"answers at {host.path}")
        host.serve()
        # The engine is closed by whoever ended the host; it must not be left half way.
        host.close()


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
        int, typer.Option("--port", help="Of the API; 0 takes a free one.", min=0, max=65535)
    ] = 0,
    record: Annotated[
        Path | None, typer.Option("--record", help="Record every round into this folder.")
    ] = None,
    with_jobs: Annotated[
        bool, typer.Option("--with-jobs", help="At the end, end the host and the jobs as well.")
    ] = False,
) -> None:
    """Look after jobs: observe, decide, act, explain. Ends on SIGTERM or Ctrl-C; the jobs go on."""
    # A web server is slow to import, and most commands do without.
    import uvicorn  # noqa: PLC0415

    from trilithon.service.api import api  # noqa: PLC0415

    rules = Rules() if rules_file is None else Rules.of(read_yaml_file(rules_file).data)
    failpoints.arm_from_environment()
    folder = folders.state() / "daemon"
    command = _host(master, slots, kafka, kafka_settings, executors, spark_settings)
    host = HostKeeper(socket_path(), command, folders.state() / "host.log")
    engine = ReattachingEngine(host.reach)
    calm_collector()
    with daemon(engine, rules, folder, record) as running, progress() as tell:
        host.tell = tell
        host.ensure()
        running.wake()
        listening = _listen(port)
        publish(folder, listening.getsockname()[1], running.token)
        try:
            tell(f"answers at http://127.0.0.1:{listening.getsockname()[1]}")
            config = uvicorn.Config(
                api(running), log_level="warning", lifespan="off", timeout_graceful_shutdown=3
            )
            server = uvicorn.Server(config)
            # uvicorn raises a signal again after it has ended by it; here a signal is a normal end.
            server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
            _on_signals(lambda: setattr(server, "should_exit", True))
            server.run(sockets=[listening])
        finally:
            withdraw(folder)
            listening.close()
        running.stop()
        if with_jobs:
            tell("ending the host and its jobs; their checkpoints stay")
            try:
                host.end()
            except HostUnreachable:
                tell("there is no host any more")
    engine.close()


def _host(
    master: str,
    slots: int,
    kafka: str | None,
    kafka_settings: Path | None,
    executors: int | None,
    spark_settings: Sequence[str] | None,
) -> list[str]:
    """The command of a host with the options that this one was given. What cannot be read is told now,
    not when the host is needed.
    """
    given_settings(spark_settings or ())
    if kafka_settings is not None:
        read_settings(kafka_settings)
    given = {
        "--kafka": kafka,
        "--kafka-settings": kafka_settings and kafka_settings.resolve(),
        "--executors": executors,
    }
    command = [sys.executable, "-m", "trilithon", "host", "--master", master, "--slots", str(slots)]
    for name, value in given.items():
        command += [] if value is None else [name, str(value)]
    for setting in spark_settings or ():
        command += ["--set", setting]
    return command


def _on_signals(end: Callable[[], None]) -> None:
    def handle(_: int, __: FrameType | None) -> None:
        threading.Thread(target=end, daemon=True).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)


def _listen(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
    except OSError as error:
        listening.close()
        raise InvalidSetting(
            f"The API cannot listen on port {port}: {error.strerror}.",
            "Take another, or 0 for a free one.",
        ) from error
    # Whoever reads the address may come before the server is ready: they wait, and are not refused.
    listening.listen(128)
    return listening
