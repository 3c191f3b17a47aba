"""Runs the embedded Kafka broker: one KRaft process that listens on this machine only.

A broker belongs to a folder with its data, log, properties and `broker.json`, which has its process
id and port. Tests and demos start it tethered: it ends with the process that started it, even if
that is killed. The command line starts it detached. A file lock serializes starts and stops in one
folder.
"""

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from trilithon import folders
from trilithon.engines.spark import tether
from trilithon.engines.spark.jars import BROKER, Progress, fetch_jars, java
from trilithon.errors import BrokerUnavailable

HOST = "127.0.0.1"
READY_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 20.0
START_ATTEMPTS = 3
PROCESS_MARK = "-Dtrilithon.broker="

# The paths are relative because the name of the folder may contain characters that a properties
# file cannot. Retention is bounded because a load generator fills any disk.
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
log.dirs=data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
num.network.threads=2
num.io.threads=2
log.retention.hours=24
log.retention.bytes=1073741824
log.segment.bytes=134217728
log.retention.check.interval.ms=60000
"""


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """The content of `broker.json`: the broker's process and its port."""

    pid: int
    port: int
    cluster: str
    tethered_to: int | None
    ready: bool

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """The state of the broker of a folder; without a process, pid and address are None."""

    folder: Path
    log: Path
    pid: int | None = None
    address: str | None = None
    answers: bool = False


@dataclass(slots=True)
class EmbeddedBroker:
    """A running broker. As a context manager it stops at the end, unless it ran before."""

    folder: Path
    address: str
    pid: int
    started: bool
    _watcher: "subprocess.Popen[str] | None" = field(default=None, repr=False)

    @classmethod
    def start(
        cls,
        folder: Path | None = None,
        *,
        detached: bool = False,
        progress: Progress = lambda _: None,
    ) -> Self:
        """Starts the broker of a folder and waits until it is ready; attaches to a detached one."""
        folder = default_folder() if folder is None else folder.resolve()
        class_path = fetch_jars(BROKER, progress)
        with _locked(folder):
            if running := _attach(folder):
                return cls(folder, running.address, running.pid, started=False)
            progress(f"broker: starting in {folder}")
            last = _read(folder)
            for attempt in range(START_ATTEMPTS):
                record, watcher = _launch(folder, class_path, last, detached=detached)
                try:
                    _wait_until_ready(folder, record)
                except BrokerUnavailable:
                    _abort_start(folder, record, watcher)
                    # Another process may have taken the port since it was chosen.
                    if attempt == START_ATTEMPTS - 1 or "already in use" not in _tail(folder):
                        raise
                    last = None
                except BaseException:
                    _abort_start(folder, record, watcher)
                    raise
                else:
                    _write(folder, BrokerRecord(**{**asdict(record), "ready": True}))
                    return cls(folder, record.address, record.pid, started=True, _watcher=watcher)
        raise AssertionError

    def revive(self) -> bool:
        """Starts the broker again, on the same port, if its process died; whether it had died."""
        if not self.started or _is_broker_of(self.pid, self.folder):
            return False
        detached = self._watcher is None
        if self._watcher is not None:
            # The process that watched the dead broker has nothing left to do.
            _release(self._watcher)
        again = EmbeddedBroker.start(self.folder, detached=detached)
        if again.address != self.address:
            again.stop()
            raise BrokerUnavailable(
                f"The embedded broker died, and another process listens at {self.address}.",
                "End that process.",
            )
        self.pid, self._watcher = again.pid, again._watcher  # noqa: SLF001 - the same class
        return True

    def stop(self) -> None:
        """Stops the broker if this object started it; its data stays."""
        if not self.started:
            return
        self.started = False
        if self._watcher is None:
            stop(self.folder)
            return
        _release(self._watcher)
        _clear_process(self.folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def default_folder() -> Path:
    return (folders.state() / "broker").resolve()


def status(folder: Path | None = None) -> BrokerStatus:
    """The state of the broker of a folder; changes nothing."""
    folder = default_folder() if folder is None else folder.resolve()
    record = _read(folder)
    if record is None or not _is_broker_of(record.pid, folder):
        return BrokerStatus(folder, folder / "broker.log")
    answers = _is_ready(record, timeout_s=5.0)
    return BrokerStatus(folder, folder / "broker.log", record.pid, record.address, answers)


def stop(folder: Path | None = None) -> int | None:
    """Stops the broker of a folder, by force if needed; its process id, or None if none ran."""
    folder = default_folder() if folder is None else folder.resolve()
    if not folder.is_dir():
        return None
    with _locked(folder):
        record = _read(folder)
        stopped = record is not None and _terminate(record.pid, folder)
        _clear_process(folder)
    return record.pid if record is not None and stopped else None


def _attach(folder: Path) -> BrokerRecord | None:
    """The broker that runs in the folder already; one that is not ready is terminated."""
    record = _read(folder)
    if record is None or not _is_broker_of(record.pid, folder):
        return None
    if record.ready and record.tethered_to is not None:
        # It ends when its owner does. An owner that was killed is gone: the broker ends by itself.
        if not any(command_line(record.tethered_to)):
            _wait_until_gone(record.pid, folder, STOP_TIMEOUT_S)
            return None
        raise BrokerUnavailable(
            f"The broker of {folder} (process {record.pid}) "
            f"ends with process {record.tethered_to}.",
            "Choose another folder, or wait until that process has ended.",
        )
    if record.ready and _is_ready(record, timeout_s=10.0):
        return record
    # The process that started it was killed before it was ready, or the broker hangs.
    _terminate(record.pid, folder)
    return None


def _launch(
    folder: Path, class_path: list[Path], last: BrokerRecord | None, *, detached: bool
) -> "tuple[BrokerRecord, subprocess.Popen[str] | None]":
    # The same port as last time, if it is free: other programs may have it in their settings.
    port, controller = _free_ports(last.port if last is not None else 0, 0)
    properties = PROPERTIES.format(host=HOST, port=port, controller=controller)
    (folder / "server.properties").write_text(properties, encoding="utf-8")
    log = folder / "broker.log"
    log.write_bytes(b"")
    program = [str(java()), "-cp", os.pathsep.join(map(str, class_path)), f"{PROCESS_MARK}{folder}"]
    cluster = _format(folder, program)
    options = ["-Xmx512m", "-XX:+UseSerialGC", "-Djava.awt.headless=true"]
    logging = "-Dorg.apache.logging.log4j.level=WARN"
    command = [*program, *options, logging, "kafka.Kafka", "server.properties"]
    # -I and -S: neither the user's environment nor site-packages are needed.
    watch = [sys.executable, "-I", "-S", tether.__file__, "detached" if detached else "tethered"]
    watcher = subprocess.Popen(  # noqa: S603 - our own program
        [*watch, str(log), *command],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert watcher.stdout is not None  # noqa: S101 - it is a pipe
    with watcher.stdout as out:
        pid = int(out.readline() or -1)
    record = BrokerRecord(pid, port, cluster, None if detached else os.getpid(), ready=False)
    _write(folder, record)
    if detached:
        _release(watcher)
    return record, None if detached else watcher


def _format(folder: Path, program: list[str]) -> str:
    """Formats the data folder if needed; returns the cluster id, which identifies the broker."""
    meta = folder / "data" / "meta.properties"
    if not meta.is_file():
        # An id that begins with a dash would be read as an option.
        cluster = "T" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
        tool = ["-XX:TieredStopAtLevel=1", "kafka.tools.StorageTool"]
        formatting = subprocess.run(  # noqa: S603 - the JDK's own java
            [*program, *tool, "format", "-t", cluster, "-c", "server.properties"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if formatting.returncode != 0 or not meta.is_file():
            output = formatting.stdout + formatting.stderr
            (folder / "broker.log").write_text(output, encoding="utf-8")
            raise _failed(folder, "its data folder cannot be formatted")
    properties = dict(line.split("=", 1) for line in meta.read_text().splitlines() if "=" in line)
    return properties.get("cluster.id", "")


def _wait_until_ready(folder: Path, record: BrokerRecord) -> None:
    """Returns when the broker answers with its own cluster id."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        if not _is_broker_of(record.pid, folder):
            raise _failed(folder, "its process ended")
        if _listens(record.port) and _is_ready(record, timeout_s=5.0):
            return
        time.sleep(0.05)
    raise _failed(folder, f"it does not answer within {READY_TIMEOUT_S:g} s")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0


def _is_ready(record: BrokerRecord, timeout_s: float) -> bool:
    client = AdminClient({"bootstrap.servers": record.address, "log_level": 0})
    try:
        metadata = client.list_topics(timeout=timeout_s)
    except KafkaException:
        return False
    return metadata.cluster_id == record.cluster and bool(metadata.brokers)


def _failed(folder: Path, why: str) -> BrokerUnavailable:
    lines = [line for line in _tail(folder).splitlines() if line.strip() and line[:1] not in "\t "]
    last = f" Its last log line: {lines[-1].strip()[:300]}" if lines else ""
    return BrokerUnavailable(
        f"The embedded broker did not start: {why}.{last}", f"Its log is {folder / 'broker.log'}."
    )


def _tail(folder: Path) -> str:
    try:
        return (folder / "broker.log").read_bytes()[-20_000:].decode(errors="replace")
    except OSError:
        return ""


def _abort_start(
    folder: Path, record: BrokerRecord, watcher: "subprocess.Popen[str] | None"
) -> None:
    _terminate(record.pid, folder, grace_s=0.0)
    if watcher is not None:
        _release(watcher)
    _clear_process(folder)


def _release(watcher: "subprocess.Popen[str]") -> None:
    """Closes the watcher's standard input, whereupon it ends the broker, and waits for it."""
    assert watcher.stdin is not None  # noqa: S101 - it is a pipe
    watcher.stdin.close()
    watcher.wait(STOP_TIMEOUT_S)


# -- the process and broker.json


def _read(folder: Path) -> BrokerRecord | None:
    try:
        return BrokerRecord(**json.loads((folder / "broker.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _write(folder: Path, record: BrokerRecord) -> None:
    new = folder / "broker.json.new"
    new.write_text(json.dumps(asdict(record)) + "\n", encoding="utf-8")
    new.replace(folder / "broker.json")


def _clear_process(folder: Path) -> None:
    """Records that no process runs; the port is kept for the next start."""
    if record := _read(folder):
        _write(folder, BrokerRecord(**{**asdict(record), "pid": -1, "ready": False}))


def _is_broker_of(pid: int, folder: Path) -> bool:
    """Whether a process is the broker of this folder: its id may have been reused by another."""
    return pid > 0 and f"{PROCESS_MARK}{folder}" in command_line(pid)


def command_line(pid: int) -> list[str]:
    """The command line of a process; empty if it is gone or a zombie."""
    if Path("/proc/self/cmdline").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            return []
    listed = subprocess.run(  # noqa: S603 - a standard tool
        ["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
    )
    return listed.stdout.split()


def _terminate(pid: int, folder: Path, grace_s: float = tether.GRACE_S) -> bool:
    """Terminates the broker, by force after a grace period; False if it does not run."""
    with _handle(pid) as send:
        if not _is_broker_of(pid, folder):
            return False
        send(signal.SIGTERM)
        if not _wait_until_gone(pid, folder, grace_s):
            send(signal.SIGKILL)
            _wait_until_gone(pid, folder, STOP_TIMEOUT_S)
    return True


def _wait_until_gone(pid: int, folder: Path, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while _is_broker_of(pid, folder):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True


@contextmanager
def _handle(pid: int) -> Iterator[Callable[[signal.Signals], None]]:
    """Sends signals to the process that has this id now; on Linux never to a later one."""
    descriptor = None
    if pid > 0 and sys.platform == "linux":
        with suppress(OSError):
            descriptor = os.pidfd_open(pid)

    def send(number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            if descriptor is not None and sys.platform == "linux":
                signal.pidfd_send_signal(descriptor, number)
            elif pid > 0:
                os.kill(pid, number)

    try:
        yield send
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _locked(folder: Path) -> AbstractContextManager[None]:
    """Serializes starts and stops in a folder that only its owner can read."""
    return folders.locked(folder, "state", "TRILITHON_STATE", 0o700)


def _free_ports(*wanted: int) -> list[int]:
    """Free ports: the wanted ones where possible, else any."""
    bound = []
    try:
        for port in wanted:
            trial = socket.socket()
            bound.append(trial)
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((HOST, port))
            except OSError:
                trial.bind((HOST, 0))
        return [int(trial.getsockname()[1]) for trial in bound]
    finally:
        for trial in bound:
            trial.close()
