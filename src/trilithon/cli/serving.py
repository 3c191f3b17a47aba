"""Runs the daemon of `serve`: it attaches to the engine host or starts one, and serves the API."""

import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn

from trilithon import folders, logs
from trilithon.cli.log_options import announcing, log_arguments
from trilithon.cli.processes import on_signals, socket_path
from trilithon.cli.settings import given_settings, read_settings
from trilithon.control import failpoints
from trilithon.control.rules import Rules
from trilithon.engines.spark.compiler import unsupported
from trilithon.errors import HostUnreachable, InvalidSetting, TrilithonError
from trilithon.service.address import publish, withdraw
from trilithon.service.api import api
from trilithon.service.daemon import Daemon, calm_collector, daemon
from trilithon.service.keeper import HostKeeper
from trilithon.service.reattach import ReattachingEngine
from trilithon.spec.yaml_reader import read_yaml_file


def serve(
    master: str,
    kafka: str | None,
    kafka_settings: Path | None,
    slots: int,
    executors: int | None,
    spark_settings: Sequence[str] | None,
    rules_file: Path | None,
    port: int,
    record: Path | None,
    with_jobs: bool,
    log_level: logs.LogLevel,
    log_json: bool,
) -> None:
    """Serves the API until a signal ends the daemon, or its engine does not start."""
    logs.configure(log_level, json=log_json)
    rules = Rules() if rules_file is None else Rules.of(read_yaml_file(rules_file).data)
    failpoints.arm_from_environment()
    folder = folders.state() / "daemon"
    command = _host(master, slots, kafka, kafka_settings, executors, spark_settings)
    command += log_arguments(log_level, as_json=log_json)
    host = HostKeeper(socket_path(), command, folders.state() / "host.log")
    engine = ReattachingEngine(host.reach)
    calm_collector()
    starting = f"The engine is starting; its log is {host.log}."
    controlled = daemon(engine, rules, folder, record, unsupported=unsupported, starting=starting)
    with controlled as running, announcing(as_json=log_json) as tell:
        listening = _listen(port)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
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
        host.tell = lambda message: tell(f"listening on {url}; {message}")
        start = _EngineStart(host, running, end=lambda: setattr(server, "should_exit", True))
        start.begin()
        publish(folder, listening.getsockname()[1], running.token)
        try:
            on_signals(lambda: setattr(server, "should_exit", True))
            server.run(sockets=[listening])
        finally:
            withdraw(folder)
            listening.close()
        running.stop()
        if start.failure is not None:
            raise start.failure
        if with_jobs:
            tell("stopping the host and its jobs; their checkpoints stay")
            try:
                host.end()
            except HostUnreachable:
                tell("the host is gone already")
    engine.close()


class _EngineStart:
    """Attaches to the engine host, or starts one, in a thread of its own: meanwhile the daemon
    answers, and says that it is starting. If there is no host in the end, it ends the daemon.
    """

    def __init__(self, host: HostKeeper, running: Daemon, end: Callable[[], None]) -> None:
        self.host, self.running, self.end = host, running, end
        self.failure: TrilithonError | None = None

    def begin(self) -> None:
        threading.Thread(target=self._start, name="engine-start", daemon=True).start()

    def _start(self) -> None:
        try:
            self.host.ensure()
        except TrilithonError as error:
            self.failure = error
            self.end()
            return
        self.running.starting = ""
        self.running.wake()
        self.host.tell("the engine is ready")


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
