"""Runs the embedded Kafka broker: one KRaft process that listens on this machine only.

A broker belongs to a folder with its data, log, properties and `broker.json`, which has its process
id and port. Tests and demos start it tethered: it ends with the process that started it, even if
that is killed. The command line starts it detached. A file lock serializes starts and stops in one
folder.
"""

import base64
import json
import os
import subprocess
import time
import uuid
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from trilithon import folders
from trilithon.engines.spark import background_process
from trilithon.engines.spark.background_process import HOST, STOP_TIMEOUT_S, command_line
from trilithon.engines.spark.jars import BROKER, Progress, fetch_jars, java
from trilithon.errors import BrokerUnavailable

READY_TIMEOUT_S = 90.0
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
                    if (
                        attempt == START_ATTEMPTS - 1
                        or "already in use"
                        not in background_process.log_tail(folder / "broker.log")
                    ):
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
        """Starts the broker again, on the same port, if its process died; whether it had died. One
        that was running before is started again if it is known to have died, not if it was stopped.
        """
        if _is_broker_of(self.pid, self.folder):
            return False
        if not self.started:
            record = _read(self.folder)
            if record is None or record.pid != self.pid:
                # It was stopped, or another of its users has started it again.
                self.pid = record.pid if record is not None and record.pid > 0 else self.pid
                return False
        detached = self._watcher is None
        if self._watcher is not None:
            # The process that watched the dead broker has nothing left to do.
            background_process.release(self._watcher)
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
        background_process.release(self._watcher)
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
        stopped = record is not None and background_process.terminate(record.pid, _mark(folder))
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
            background_process.wait_until_gone(record.pid, _mark(folder), STOP_TIMEOUT_S)
            return None
        raise BrokerUnavailable(
            f"The broker of {folder} (process {record.pid}) "
            f"ends with process {record.tethered_to}.",
            "Choose another folder, or wait until that process has ended.",
        )
    if record.ready and _is_ready(record, timeout_s=10.0):
        return record
    # The process that started it was killed before it was ready, or the broker hangs.
    background_process.terminate(record.pid, _mark(folder))
    return None


def _launch(
    folder: Path, class_path: list[Path], last: BrokerRecord | None, *, detached: bool
) -> "tuple[BrokerRecord, subprocess.Popen[str] | None]":
    # The same port as last time, if it is free: other programs may have it in their settings.
    port, controller = background_process.free_ports(last.port if last is not None else 0, 0)
    properties = PROPERTIES.format(host=HOST, port=port, controller=controller)
    (folder / "server.properties").write_text(properties, encoding="utf-8")
    log = folder / "broker.log"
    log.write_bytes(b"")
    program = [str(java()), "-cp", os.pathsep.join(map(str, class_path)), f"{PROCESS_MARK}{folder}"]
    cluster = _format(folder, program)
    options = ["-Xmx512m", "-XX:+UseSerialGC", "-Djava.awt.headless=true"]
    logging = "-Dorg.apache.logging.log4j.level=WARN"
    command = [*program, *options, logging, "kafka.Kafka", "server.properties"]
    pid, watcher = background_process.launch(command, folder, log, detached=detached)
    record = BrokerRecord(pid, port, cluster, None if detached else os.getpid(), ready=False)
    _write(folder, record)
    return record, watcher


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
        if background_process.listens(record.port) and _is_ready(record, timeout_s=5.0):
            return
        time.sleep(0.05)
    raise _failed(folder, f"it does not answer within {READY_TIMEOUT_S:g} s")


def _is_ready(record: BrokerRecord, timeout_s: float) -> bool:
    client = AdminClient({"bootstrap.servers": record.address, "log_level": 0})
    try:
        metadata = client.list_topics(timeout=timeout_s)
    except KafkaException:
        return False
    return metadata.cluster_id == record.cluster and bool(metadata.brokers)


def _failed(folder: Path, why: str) -> BrokerUnavailable:
    last = background_process.last_line(folder / "broker.log")
    return BrokerUnavailable(
        f"The embedded broker did not start: {why}.{last}", f"Its log is {folder / 'broker.log'}."
    )


def _abort_start(
    folder: Path, record: BrokerRecord, watcher: "subprocess.Popen[str] | None"
) -> None:
    background_process.terminate(record.pid, _mark(folder), grace_s=0.0)
    if watcher is not None:
        background_process.release(watcher)
    _clear_process(folder)


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
    return background_process.runs(pid, _mark(folder))


def _mark(folder: Path) -> str:
    return f"{PROCESS_MARK}{folder}"


def _locked(folder: Path) -> AbstractContextManager[None]:
    """Serializes starts and stops in a folder that only its owner can read."""
    return folders.locked(folder, "state", "TRILITHON_STATE", 0o700)
