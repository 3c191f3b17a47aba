"""Owns the daemon's command: it finds the engine's host or starts one, serves the API, and ends cleanly."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Annotated, Final

import typer

from trilithon import folders
from trilithon.cli.output import message_console, progress
from trilithon.cli.run import socket_path
from trilithon.control import failpoints
from trilithon.control.rules import Rules
from trilithon.engines.host import Host
from trilithon.engines.remote import RemoteEngine
from trilithon.errors import HostUnreachable
from trilithon.service.daemon import daemon, publish, withdraw
from trilithon.service.reattach import ReattachingEngine
from trilithon.spec.reader import read_file

# Spark and a broker take their time.
HOST_STARTS_S: Final = 180.0
# A job's start may take a minute, and the host answers one caller at a time.
PATIENCE_S: Final = 300.0
Master = Annotated[str, typer.Option("--master", help="Spark's master, if a host is started.")]
Kafka = Annotated[
    str | None, typer.Option("--kafka", help="host:port of a Kafka; without it, the embedded one.")
]
Slots = Annotated[int, typer.Option("--slots", help="Instances that may run at once.")]


def host_command(master: Master = "local[64]", kafka: Kafka = None, slots: Slots = 32) -> None:
    """Run Spark and its jobs for a daemon, which may come and go; ends on SIGTERM or Ctrl-C."""
    # Spark is slow to import, and most commands do without.
    from trilithon.engines.spark.application import Setup, TopicsFirst, application  # noqa: PLC0415

    setup = Setup(master, folders.state() / "spark", slots, kafka=kafka)
    with progress() as tell, application(setup, (), tell) as engine:
        host = Host(engine if kafka is not None else TopicsFirst(engine), socket_path())
        _on_signals(host.close)
        tell(f"answers at {host.path}")
        host.serve()
        # The engine is closed by whoever ended the host; it must not be left half way.
        host.close()


def serve_command(
    master: Master = "local[64]",
    kafka: Kafka = None,
    slots: Slots = 32,
    rules_file: Annotated[
        Path | None,
        typer.Option("--rules", help="A YAML file: limits, quotas, quiet hours, policy."),
    ] = None,
    port: Annotated[int, typer.Option("--port", help="Of the API; 0 takes a free one.")] = 0,
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

    rules = Rules() if rules_file is None else Rules.of(read_file(rules_file).data)
    failpoints.arm_from_environment()
    folder = folders.state() / "daemon"
    engine = ReattachingEngine(lambda: RemoteEngine(socket_path(), PATIENCE_S))
    with daemon(engine, rules, folder, record) as running, progress() as tell:
        _reach_host(tell, master, kafka, slots)
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
            _end_host()
    engine.close()


def _on_signals(end: Callable[[], None]) -> None:
    def handle(_: int, __: FrameType | None) -> None:
        threading.Thread(target=end, daemon=True).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)


def _listen(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", port))
    # Whoever reads the address may come before the server is ready: they wait, and are not refused.
    listening.listen(128)
    return listening


def _answers() -> bool:
    try:
        RemoteEngine(socket_path(), patience_s=5).close()
    except HostUnreachable:
        return False
    return True


def _reach_host(tell: Callable[[str], None], master: str, kafka: str | None, slots: int) -> None:
    """Finds the host that runs, or starts one that goes on when this process ends."""
    if _answers():
        tell("attached to the host that runs")
        return
    log = folders.state() / "host.log"
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    command = [sys.executable, "-m", "trilithon", "host", "--master", master, "--slots", str(slots)]
    if kafka is not None:
        command += ["--kafka", kafka]
    with log.open("ab") as stream:
        process = subprocess.Popen(  # noqa: S603 - ourselves
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
            env=os.environ.copy(),
        )
    tell(f"starting a host; its log is {log}")
    deadline = time.monotonic() + HOST_STARTS_S
    while not _answers():
        if process.poll() is not None or time.monotonic() > deadline:
            raise HostUnreachable("The host did not start.", f"Its log is {log}.")
        time.sleep(0.2)


def _end_host() -> None:
    try:
        remote = RemoteEngine(socket_path(), patience_s=PATIENCE_S)
    except HostUnreachable:
        message_console().print("There is no host any more.")
        return
    try:
        remote.end()
    finally:
        remote.close()
    deadline = time.monotonic() + 60.0
    while socket_path().exists() and time.monotonic() < deadline:
        time.sleep(0.1)
