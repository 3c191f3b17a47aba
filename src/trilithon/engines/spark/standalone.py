"""Runs a Spark standalone cluster on this machine: a master and workers, for trying out clusters.

A cluster belongs to a folder with its logs, the workers' folders and `cluster.json`, which has the
process ids and ports. All processes listen on this machine only and run in the background until
`stop`. A file lock serializes starts and stops in one folder. An executor ends with its worker,
also if that is killed: it watches the connection to it.
"""

import json
import shutil
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from trilithon import folders
from trilithon.engines.spark import background_process
from trilithon.engines.spark.background_process import HOST
from trilithon.engines.spark.jdk import MISSING, find_jdk
from trilithon.engines.spark.probe import find_pyspark
from trilithon.errors import ClusterUnavailable, PartsMissing

READY_TIMEOUT_S: Final = 60.0
# The heap of the master and of each worker. The executors' is the workers' to divide.
_DAEMON_MEMORY: Final = "256m"
_POLL_S: Final = 0.05
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
# The files of applications that ended long ago are deleted: each has the jars of its executors.
_PROPERTIES: Final = """\
spark.master.rest.enabled=false
spark.worker.cleanup.enabled=true
spark.worker.cleanup.interval=600
spark.worker.cleanup.appDataTtl=3600
spark.ui.retainedApplications=20
"""


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A worker: its process, the port of its web page, by which others know it, and its size.
    `cores` are the tasks that run on it at once; they may be more than the machine has cores.
    """

    number: int
    pid: int
    web_port: int
    cores: int
    memory_mb: int


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """The content of `cluster.json`. A pid of -1 is a master that was stopped: its port is kept."""

    pid: int
    port: int
    web_port: int
    workers: tuple[WorkerRecord, ...] = ()
    # How many workers `start` was asked for: by them an engine divides its slots.
    asked_for: int = 0

    @property
    def master(self) -> str:
        return f"spark://{HOST}:{self.port}"


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker as the master sees it; `cores_used` is None for one that is not registered."""

    number: int
    pid: int | None
    cores: int
    memory_mb: int
    cores_used: int | None


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The state of the cluster of a folder; `pid` is None if no master runs."""

    folder: Path
    master: str | None = None
    pid: int | None = None
    answers: bool = False
    workers: tuple[WorkerStatus, ...] = ()

    @property
    def ready(self) -> bool:
        """Whether the master answers and every worker is registered with it."""
        return self.answers and all(worker.cores_used is not None for worker in self.workers)

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        return {**data, "folder": str(self.folder), "workers": list(data["workers"])}


@dataclass(frozen=True, slots=True)
class Room:
    """What a worker has left for executors."""

    cores: int
    memory_mb: int


@dataclass(frozen=True, slots=True)
class ClusterUse:
    """What the master says: the room of each live worker by its number, and of each application
    its name and the cores that it has been given, by its id.
    """

    workers: Mapping[int, Room]
    applications: Mapping[str, tuple[str, int]]


@dataclass
class StandaloneCluster:
    """The cluster of a folder. Every method may be called again after a failure."""

    folder: Path = field(default_factory=lambda: folders.state() / "cluster")
    progress: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        self.folder = self.folder.resolve()

    def start(self, workers: int, cores: int, memory_mb: int) -> ClusterStatus:
        """Makes sure that the master and at least so many workers run, and waits until they are
        registered. What runs already is left alone.
        """
        with self._locked():
            record = self._running() or self._start_master()
            alive = self._alive(record)
            record = replace(record, workers=alive, asked_for=max(workers, len(alive)))
            self._write(record)
            size = (cores, memory_mb)
            self._start_workers(record, [size] * (workers - len(alive)))
        return self.status()

    def add_workers(self, count: int) -> tuple[int, ...]:
        """Starts workers of the size of those that run; returns their numbers."""
        with self._locked():
            if (record := self._running()) is None:
                raise ClusterUnavailable(
                    f"No master runs in {self.folder}.", "`trilithon cluster start` starts one."
                )
            sizes = [(worker.cores, worker.memory_mb) for worker in record.workers]
            if not sizes:
                raise ClusterUnavailable(
                    f"The cluster of {self.folder} has no worker to take the size from.",
                    "`trilithon cluster start` starts workers of a size.",
                )
            return self._start_workers(record, [sizes[-1]] * count)

    def remove_workers(self, numbers: Sequence[int]) -> None:
        """Ends workers, and with them their executors. One that does not run is forgotten."""
        with self._locked():
            if (record := self._read()) is None:
                return
            for worker in record.workers:
                if worker.number in numbers:
                    self._end(worker)
            left = tuple(worker for worker in record.workers if worker.number not in numbers)
            self._write(replace(record, workers=left))

    def stop(self) -> list[int]:
        """Ends all processes, the workers first; returns the ids of those that ran."""
        if not self.folder.is_dir():
            return []
        with self._locked():
            if (record := self._read()) is None:
                return []
            with ThreadPoolExecutor(max(1, len(record.workers))) as pool:
                ended = list(pool.map(self._end, record.workers))
            stopped = [w.pid for w, ran in zip(record.workers, ended, strict=True) if ran]
            if background_process.terminate(record.pid, self._mark):
                stopped.append(record.pid)
            self._write(ClusterRecord(-1, record.port, record.web_port))
            return stopped

    def status(self) -> ClusterStatus:
        """The state of the cluster; changes nothing."""
        if (record := self._running()) is None:
            return ClusterStatus(self.folder)
        registered = _registered(record)
        workers = tuple(
            WorkerStatus(
                worker.number,
                worker.pid if self._runs(worker) else None,
                worker.cores,
                worker.memory_mb,
                None if registered is None else registered.get(worker.web_port),
            )
            for worker in record.workers
        )
        return ClusterStatus(
            self.folder, record.master, record.pid, registered is not None, workers
        )

    def use(self) -> ClusterUse | None:
        """What is free and who uses the rest; None if the master does not answer."""
        record = self._running()
        if record is None or (data := _master_state(record)) is None:
            return None
        numbers = {worker.web_port: worker.number for worker in record.workers}
        return ClusterUse(
            {
                numbers[port]: Room(int(worker["coresfree"]), int(worker["memoryfree"]))
                for port, worker in _live_workers(data).items()
                if port in numbers
            },
            {app["id"]: (str(app["name"]), int(app["cores"])) for app in data["activeapps"]},
        )

    def owns(self, master: str) -> bool:
        """Whether this is the address of the cluster's master, and it runs."""
        record = self._running()
        return record is not None and record.master == master

    @property
    def asked_for(self) -> int:
        """How many workers `start` was asked for."""
        record = self._read()
        return 0 if record is None else record.asked_for

    def worker_at(self, web_port: int) -> WorkerRecord | None:
        """The worker whose web page has this port."""
        record = self._read()
        workers = () if record is None else record.workers
        return next((worker for worker in workers if worker.web_port == web_port), None)

    # Starting.

    def _start_master(self) -> ClusterRecord:
        self.progress(f"cluster: starting a master in {self.folder}")
        last = self._read()
        # The same port as last time, if it is free: other programs may have it in their settings.
        port, web_port = background_process.free_ports(last.port if last else 0, 0)
        Path(self._mark).write_text(_PROPERTIES, encoding="utf-8")
        arguments = ["--host", HOST, "--port", str(port), "--webui-port", str(web_port)]
        pid = self._launch("master", _MASTER, arguments)
        record = ClusterRecord(pid, port, web_port)
        self._write(record)
        with self._undone_if_failing():
            self._await("master", pid, lambda: _registered(record) is not None)
        return record

    def _start_workers(
        self, record: ClusterRecord, sizes: Sequence[tuple[int, int]]
    ) -> tuple[int, ...]:
        """Starts workers of these cores and memories, all at once; those that do not register are
        ended again, with the others.
        """
        first = 1 + max((worker.number for worker in record.workers), default=0)
        new: list[WorkerRecord] = []
        for number, (cores, memory_mb) in enumerate(sizes, first):
            self.progress(f"cluster: starting worker {number}")
            port, web_port = background_process.free_ports(0, 0)
            work = self.folder / f"worker-{number}"
            shutil.rmtree(work, ignore_errors=True)
            arguments = ["--host", HOST, "--port", str(port), "--webui-port", str(web_port)]
            arguments += ["--cores", str(cores), "--memory", f"{memory_mb}M"]
            arguments += ["--work-dir", str(work), record.master]
            pid = self._launch(work.name, _WORKER, arguments)
            new.append(WorkerRecord(number, pid, web_port, cores, memory_mb))
            # Written before it is known to run: whatever happens now, `stop` ends it.
            self._write(replace(record, workers=(*record.workers, *new)))
        with self._undone_if_failing(record, new):
            for worker in new:
                self._await(
                    f"worker-{worker.number}", worker.pid, partial(_is_registered, record, worker)
                )
        return tuple(worker.number for worker in new)

    def _launch(self, name: str, program: str, arguments: Sequence[str]) -> int:
        if (home := find_jdk()) is None:
            raise PartsMissing(MISSING)
        if (spark_home := find_pyspark()) is None:
            raise PartsMissing("PySpark is not installed.")
        # Only Spark's own start script knows the options that its programs need of a JVM.
        script = str(spark_home / "bin" / "spark-class")
        command = [script, program, "--properties-file", self._mark, *arguments]
        environment = {
            "JAVA_HOME": str(home),
            "SPARK_HOME": str(spark_home),
            "SPARK_CONF_DIR": str(self.folder),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_PUBLIC_DNS": HOST,
            "SPARK_DAEMON_MEMORY": _DAEMON_MEMORY,
        }
        log = self.folder / f"{name}.log"
        log.write_bytes(b"")
        pid, _ = background_process.launch(
            command, self.folder, log, detached=True, environment=environment
        )
        return pid

    def _await(self, name: str, pid: int, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        log = self.folder / f"{name}.log"
        while not ready():
            if not background_process.runs(pid, self._mark):
                why = "its process ended"
            elif time.monotonic() > deadline:
                why = f"it is not registered after {READY_TIMEOUT_S:g} s"
            else:
                time.sleep(_POLL_S)
                continue
            raise ClusterUnavailable(
                f"The {name} of the cluster did not start: {why}."
                f"{background_process.last_line(log)}",
                f"Its log is {log}.",
            )

    @contextmanager
    def _undone_if_failing(
        self, record: ClusterRecord | None = None, new: Sequence[WorkerRecord] = ()
    ) -> Iterator[None]:
        """Ends what has just been started if it does not get ready: the new workers, or the master
        (without a record).
        """
        try:
            yield
        except BaseException:
            if record is not None:
                for worker in new:
                    self._end(worker)
                self._write(record)
            elif (started := self._read()) is not None:
                background_process.terminate(started.pid, self._mark)
                self._write(replace(started, pid=-1))
            raise

    # The processes and `cluster.json`.

    @property
    def _mark(self) -> str:
        """An argument of every process of this cluster."""
        return str(self.folder / "cluster.conf")

    def _runs(self, worker: WorkerRecord) -> bool:
        return background_process.runs(worker.pid, self._mark)

    def _alive(self, record: ClusterRecord) -> tuple[WorkerRecord, ...]:
        return tuple(worker for worker in record.workers if self._runs(worker))

    def _end(self, worker: WorkerRecord) -> bool:
        """Ends a worker by force: one that is asked to end still starts the executors that the
        master wants in the place of those that it ends, and such an executor outlives it.
        """
        return background_process.kill(worker.pid, self._mark)

    def _running(self) -> ClusterRecord | None:
        """The record of a cluster whose master runs."""
        record = self._read()
        if record is None or not background_process.runs(record.pid, self._mark):
            return None
        return record

    def _read(self) -> ClusterRecord | None:
        try:
            data = json.loads((self.folder / "cluster.json").read_text(encoding="utf-8"))
            workers = tuple(WorkerRecord(**worker) for worker in data.pop("workers"))
            return ClusterRecord(**data, workers=workers)
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def _write(self, record: ClusterRecord) -> None:
        new = self.folder / "cluster.json.new"
        new.write_text(json.dumps(asdict(record)) + "\n", encoding="utf-8")
        new.replace(self.folder / "cluster.json")

    def _locked(self) -> AbstractContextManager[None]:
        return folders.locked(self.folder, "state", "TRILITHON_STATE", 0o700)


def own_cluster(master: str) -> StandaloneCluster | None:
    """The standalone cluster of this state folder, if this is the address of its master."""
    cluster = StandaloneCluster()
    return cluster if cluster.owns(master) else None


def check_master(master: str) -> None:
    """Raises if a standalone master on this machine is not there: Spark would try for a minute."""
    address = urlsplit(master)
    here = address.scheme == "spark" and address.hostname in {HOST, "localhost"}
    if here and address.port is not None and not background_process.listens(address.port):
        raise ClusterUnavailable(
            f"No master listens at {master}.",
            "`trilithon cluster start` starts one and prints its address.",
        )


def _registered(record: ClusterRecord) -> dict[int, int] | None:
    """The workers that the master counts as alive, by the port of their web page, with the cores
    that executors use; None if the master does not answer.
    """
    if (data := _master_state(record)) is None:
        return None
    return {port: int(worker["coresused"]) for port, worker in _live_workers(data).items()}


def _master_state(record: ClusterRecord) -> dict[str, Any] | None:
    """What the master's web page says, as JSON; None if it does not answer."""
    address = f"http://{HOST}:{record.web_port}/json/"
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            data: dict[str, Any] = json.load(answer)
    except (OSError, ValueError):
        return None
    return data


def _live_workers(data: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """By the port of their web page."""
    return {
        int(worker["webuiaddress"].rpartition(":")[2]): worker
        for worker in data["workers"]
        if worker["state"] == "ALIVE"
    }


def _is_registered(record: ClusterRecord, worker: WorkerRecord) -> bool:
    return worker.web_port in (_registered(record) or {})
