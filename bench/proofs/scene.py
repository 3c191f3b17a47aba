"""The testbed of a proof: a broker, a Spark session on some master, and a temporary folder."""

import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyspark
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from bench.proofs.control import ProofControl
from bench.proofs.processes import Processes
from trilithon.engines.spark.broker import EmbeddedBroker
from trilithon.engines.spark.jars import CONNECTOR, fetch_jars, java
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.session import session

KINDS: Final = ("local", "cluster", "local-cluster")
EXECUTORS: Final = 2
MEMORY_MB: Final = 1024
_LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True)
class Scene:
    """What a proof runs on."""

    spark: SparkSession
    kafka: Kafka
    control: ProofControl
    folder: Path
    kind: str

    def topic(self, name: str, partitions: int = 1) -> str:
        make_topic(self.kafka, name, partitions)
        return name


@contextmanager
def scene(kind: str, cores: int, settings: Mapping[str, str] | None = None) -> Iterator[Scene]:
    """One JVM (`local`), or two executors with `cores` task slots each: more than real cores."""
    with ExitStack() as ending:
        folder = Path(ending.enter_context(temporary_folder()))
        broker = ending.enter_context(EmbeddedBroker.start(folder / "broker"))
        processes = ending.enter_context(closing(Processes(folder)))
        master, needed = _master(kind, cores, processes)
        spark = ending.enter_context(
            session(
                master,
                folder / "spark",
                fetch_jars(CONNECTOR),
                settings={**needed, **(settings or {})},
                executors=None if kind == "local" else EXECUTORS,
            )
        )
        yield Scene(spark, Kafka(broker.address), ProofControl(spark), folder, kind)


def temporary_folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="trilithon-proof-", ignore_cleanup_errors=True)


def make_topic(kafka: Kafka, name: str, partitions: int = 1) -> None:
    admin = AdminClient({**kafka.client, "log_level": 0})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(timeout=30)
    # A busy broker answers before it knows the topic itself.
    deadline = time.monotonic() + 30
    while name not in admin.list_topics(timeout=30).topics and time.monotonic() < deadline:
        time.sleep(0.05)


def _master(kind: str, cores: int, processes: Processes) -> tuple[str, dict[str, str]]:
    if kind == "local":
        return f"local[{EXECUTORS * cores}]", {}
    if kind == "local-cluster":
        return f"local-cluster[{EXECUTORS},{cores},{MEMORY_MB}]", {}
    settings = {"spark.executor.memory": f"{MEMORY_MB}m", "spark.executor.cores": str(cores)}
    return _cluster(cores, processes), settings


def _cluster(cores: int, processes: Processes) -> str:
    """Starts a standalone master and workers from PySpark's files; returns the master's address."""
    home = Path(pyspark.__file__).parent
    port, ui, *worker_uis = _free_ports(2 + EXECUTORS)
    env = {
        "SPARK_HOME": str(home),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_DIRS": str(processes.folder),
        "SPARK_LOCAL_IP": _LOOPBACK,
        "JAVA_HOME": str(java().parent.parent),
    }
    run = [str(home / "bin" / "spark-class")]
    master = f"spark://{_LOOPBACK}:{port}"
    deploy = "org.apache.spark.deploy"
    here = ["--host", _LOOPBACK]
    processes.start(
        "master",
        [*run, f"{deploy}.master.Master", *here, "--port", str(port), "--webui-port", str(ui)],
        env,
    )
    for number, worker_ui in enumerate(worker_uis):
        size = ["--cores", str(cores), "--memory", f"{MEMORY_MB}m"]
        place = ["--webui-port", str(worker_ui), "--work-dir", str(processes.folder / f"{number}")]
        command = [*run, f"{deploy}.worker.Worker", *here, *size, *place, master]
        processes.start(f"worker{number}", command, env)
    return master


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for bound in sockets:
        bound.bind((_LOOPBACK, 0))
    ports = [int(bound.getsockname()[1]) for bound in sockets]
    for bound in sockets:
        bound.close()
    return ports
