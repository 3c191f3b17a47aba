"""Owns the embedded Kafka broker: one KRaft process, reached from this machine only.

A broker belongs to a folder: its data, its log, its properties and `broker.json`, which says where it
answers. Tests and demos start it tethered (it ends with the process that started it, even if that is
killed); the command line starts it detached. A file lock makes starts and stops of one folder wait for
each other.
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
from trilithon.engines.spark.jars import BROKER, Progress, jars, java
from trilithon.errors import BrokerUnavailable

HOST = "127.0.0.1"
READY_S = 90.0
STOP_S = 20.0
TRIES = 3
MARK = "-Dtrilithon.broker="

# Relative paths: the broker runs in its folder, whose name may hold what a properties file cannot.
# Bounds on what is kept, because a load generator fills any disk.
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
class Record:
    """What `broker.json` says of the process: who it is and where it answers."""

    pid: int
    port: int
    cluster: str
    tethered_to: int | None
    ready: bool

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"


@dataclass(frozen=True, slots=True)
class Status:
    """What is known of the broker of a folder. Without a process there is only the folder."""

    folder: Path
    log: Path
    pid: int | None = None
    address: str | None = None
    answers: bool = False


@dataclass(slots=True)
class EmbeddedBroker:
    """A broker that answers. As a context it is stopped at the end, unless it was there before."""

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
        """Starts the broker of a folder and waits until it answers, or attaches to a detached one."""
        folder = default_folder() if folder is None else folder.resolve()
        parts = jars(BROKER, progress)
        with _alone(folder):
            if there := _attach(folder):
                return cls(folder, there.address, there.pid, started=False)
            progress(f"broker: starting in {folder}")
            last = _read(folder)
            for attempt in range(TRIES):
                record, watcher = _launch(folder, parts, last, detached=detached)
                try:
                    _await(folder, record)
                except BrokerUnavailable:
                    _give_up(folder, record, watcher)
                    # Between choosing a port and listening on it, somebody else may have taken it.
                    if attempt == TRIES - 1 or "already in use" not in _tail(folder):
                        raise
                    last = None
                except BaseException:
                    _give_up(folder, record, watcher)
                    raise
                else:
                    _write(folder, Record(**{**asdict(record), "ready": True}))
                    return cls(folder, record.address, record.pid, started=True, _watcher=watcher)
        raise AssertionError

    def stop(self) -> None:
        """Ends the broker if this object started it; its data stays."""
        if not self.started:
            return
        self.started = False
        if self._watcher is None:
            stop(self.folder)
            return
        _release(self._watcher)
        _forget(self.folder)

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


def status(folder: Path | None = None) -> Status:
    """Looks, and changes nothing."""
    folder = default_folder() if folder is None else folder.resolve()
    record = _read(folder)
    if record is None or not _ours(record.pid, folder):
        return Status(folder, folder / "broker.log")
    answers = _answers(record, timeout_s=5.0)
    return Status(folder, folder / "broker.log", record.pid, record.address, answers)


def stop(folder: Path | None = None) -> int | None:
    """Ends the broker of a folder, by force if it must be; its process id, or None if none ran."""
    folder = default_folder() if folder is None else folder.resolve()
    if not folder.is_dir():
        return None
    with _alone(folder):
        record = _read(folder)
        ended = record is not None and _end(record.pid, folder)
        _forget(folder)
    return record.pid if record is not None and ended else None


def _attach(folder: Path) -> Record | None:
    """The broker that runs in the folder already; the remains of others are cleared away."""
    record = _read(folder)
    if record is None or not _ours(record.pid, folder):
        return None
    if record.ready and record.tethered_to is not None:
        raise BrokerUnavailable(
            f"The broker of {folder} (process {record.pid}) ends with process {record.tethered_to}.",
            "Choose another folder, or wait until that has ended.",
        )
    if record.ready and _answers(record, timeout_s=10.0):
        return record
    # Whoever started it was killed before it was ready, or it hangs.
    _end(record.pid, folder)
    return None


def _launch(
    folder: Path, parts: list[Path], last: Record | None, *, detached: bool
) -> "tuple[Record, subprocess.Popen[str] | None]":
    # The same address as last time, if it is free, so that it can be kept in other programs' settings.
    port, controller = _free_ports(last.port if last is not None else 0, 0)
    properties = PROPERTIES.format(host=HOST, port=port, controller=controller)
    (folder / "server.properties").write_text(properties, encoding="utf-8")
    log = folder / "broker.log"
    log.write_bytes(b"")
    program = [str(java()), "-cp", os.pathsep.join(map(str, parts)), f"{MARK}{folder}"]
    cluster = _format(folder, program)
    command = [*program, "-Xmx512m", "-XX:+UseSerialGC", "-Djava.awt.headless=true",
               "-Dorg.apache.logging.log4j.level=WARN", "kafka.Kafka", "server.properties"]  # fmt: skip
    watcher = subprocess.Popen(  # noqa: S603 - our own program
        # -I and -S: neither the user's environment nor site-packages are needed.
        [sys.executable, "-I", "-S", tether.__file__, "detached" if detached else "tethered",
         str(log), *command],
        cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert watcher.stdout is not None  # noqa: S101 - it is a pipe
    with watcher.stdout as out:
        pid = int(out.readline() or -1)
    record = Record(pid, port, cluster, None if detached else os.getpid(), ready=False)
    _write(folder, record)
    if detached:
        _release(watcher)
    return record, None if detached else watcher


def _format(folder: Path, program: list[str]) -> str:
    """Makes the data folder if there is none; the id of the cluster, by which a broker is known."""
    meta = folder / "data" / "meta.properties"
    if not meta.is_file():
        # A word that begins with a dash would be taken for an option.
        cluster = "T" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
        done = subprocess.run(  # noqa: S603 - the JDK's own java
            [*program, "-XX:TieredStopAtLevel=1", "kafka.tools.StorageTool", "format",
             "-t", cluster, "-c", "server.properties"],
            cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0 or not meta.is_file():
            (folder / "broker.log").write_text(done.stdout + done.stderr, encoding="utf-8")
            raise _failed(folder, "its data folder cannot be made")
    known = dict(line.split("=", 1) for line in meta.read_text().splitlines() if "=" in line)
    return known.get("cluster.id", "")


def _await(folder: Path, record: Record) -> None:
    """Returns when the broker answers, with its own name."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if not _ours(record.pid, folder):
            raise _failed(folder, "it ended at once")
        if _listens(record.port) and _answers(record, timeout_s=5.0):
            return
        time.sleep(0.05)
    raise _failed(folder, f"it does not answer after {READY_S:g} s")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0


def _answers(record: Record, timeout_s: float) -> bool:
    client = AdminClient({"bootstrap.servers": record.address, "log_level": 0})
    try:
        found = client.list_topics(timeout=timeout_s)
    except KafkaException:
        return False
    return found.cluster_id == record.cluster and bool(found.brokers)


def _failed(folder: Path, why: str) -> BrokerUnavailable:
    lines = [line for line in _tail(folder).splitlines() if line.strip() and line[:1] not in "\t "]
    last = f" It said: {lines[-1].strip()[:300]}" if lines else ""
    return BrokerUnavailable(
        f"The embedded broker does not start: {why}.{last}", f"Its log is {folder / 'broker.log'}."
    )


def _tail(folder: Path) -> str:
    try:
        return (folder / "broker.log").read_bytes()[-20_000:].decode(errors="replace")
    except OSError:
        return ""


def _give_up(folder: Path, record: Record, watcher: "subprocess.Popen[str] | None") -> None:
    _end(record.pid, folder, grace_s=0.0)
    if watcher is not None:
        _release(watcher)
    _forget(folder)


def _release(watcher: "subprocess.Popen[str]") -> None:
    """Closes the line to the watcher, which then ends what it watches, and waits for it."""
    assert watcher.stdin is not None  # noqa: S101 - it is a pipe
    watcher.stdin.close()
    watcher.wait(STOP_S)


# -- the process and its file


def _read(folder: Path) -> Record | None:
    try:
        return Record(**json.loads((folder / "broker.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _write(folder: Path, record: Record) -> None:
    new = folder / "broker.json.new"
    new.write_text(json.dumps(asdict(record)) + "\n", encoding="utf-8")
    new.replace(folder / "broker.json")


def _forget(folder: Path) -> None:
    """The process is gone; the port is kept, to be used again."""
    if record := _read(folder):
        _write(folder, Record(**{**asdict(record), "pid": -1, "ready": False}))


def _ours(pid: int, folder: Path) -> bool:
    """Whether a process is the broker of this folder: a number alone may be anybody's by now."""
    return pid > 0 and f"{MARK}{folder}" in command_line(pid)


def command_line(pid: int) -> list[str]:
    """The words of a living process's command; none if it is gone (or waits to be buried)."""
    if Path("/proc/self/cmdline").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            return []
    told = subprocess.run(  # noqa: S603 - a standard tool
        ["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return told.stdout.split()


def _end(pid: int, folder: Path, grace_s: float = tether.GRACE_S) -> bool:
    """Ends our process, by force after a grace time; False if it was not ours or not there."""
    with _handle(pid) as send:
        if not _ours(pid, folder):
            return False
        send(signal.SIGTERM)
        if not _gone(pid, folder, grace_s):
            send(signal.SIGKILL)
            _gone(pid, folder, STOP_S)
    return True


def _gone(pid: int, folder: Path, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while _ours(pid, folder):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True


@contextmanager
def _handle(pid: int) -> Iterator[Callable[[signal.Signals], None]]:
    """Sends signals to the process that has this number now, and to no later one, where Linux helps."""
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


def _alone(folder: Path) -> AbstractContextManager[None]:
    """One start or stop at a time, in a folder that is its owner's."""
    return folders.locked(folder, "state", "TRILITHON_STATE", 0o700)


def _free_ports(*wanted: int) -> list[int]:
    """Ports that nobody listens on now: the wanted ones if they are free, else any."""
    held = []
    try:
        for port in wanted:
            one = socket.socket()
            held.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind((HOST, port))
            except OSError:
                one.bind((HOST, 0))
        return [int(one.getsockname()[1]) for one in held]
    finally:
        for one in held:
            one.close()
