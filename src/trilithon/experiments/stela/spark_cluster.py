"""Makes a Spark standalone cluster a `LiveCluster`: one job under load, and machines by command.

The load is more than the job can take: records are sent at a steady rate, except while too many are
on their way, so that the last of them arrive soon after the sending has ended. Times and ids of
what arrives are read from the topics of the sinks.
"""

import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from trilithon.control.rules import Rules
from trilithon.engines.spark.application import create_topics
from trilithon.engines.spark.cuts import cut_into_parts
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.masters import max_tasks
from trilithon.engines.spark.standalone import StandaloneCluster
from trilithon.errors import EngineFailed
from trilithon.experiments.stela.live_scaling import ActionThroughput, Arrival
from trilithon.model.job import Job, Operator
from trilithon.policies.requests import ScalingKind
from trilithon.service.system import RunningSystem, controlled_system
from trilithon.spec.job_file import parse_job
from trilithon.workloads.load_generator import PRODUCER, Pacer
from trilithon.workloads.paper_jobs import spark_job_text
from trilithon.workloads.records import Records
from trilithon.workloads.shapes import Constant
from trilithon.workloads.topic_reader import TopicReader

WORKERS: Final = 2
# Every operator begins with two instances and may have four, as in Star of the paper's table I.
INSTANCES, MOST = 2, 4
# An instance of the bottleneck is good for some 48 records a second, four of them for 190.
WAIT_MS: Final = 20
RATE_PER_S: Final = 250.0
# What may be on its way: two cuts before an operator hold up to 1,000 records each.
ON_THE_WAY: Final = 2500
KEYS: Final = 1000
SLOTS: Final = 20
# The rounds of a controller that people wait for.
LIMITS: Final = {"round_s": 1.0, "cool_down_s": 1.0, "fresh_s": 2.0, "good_after_s": 2.0}
WINDOW_S: Final = 10.0
# After a change, before the throughput is measured, and for how long. The policy measures what it
# has predicted within the same time.
SETTLE_S, MEASURED_S = 20.0, 12.0
CHECKED_S: Final = SETTLE_S + WINDOW_S
REQUEST_S: Final = 240.0
FLOWING_S: Final = 90.0
# After the end of the sending, as long as anything arrives.
QUIET_S: Final = 60.0
_POLL_S: Final = 0.1
_COUNT_EVERY_S: Final = 0.5
_ALL: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class ScalingJob:
    """One of the paper's jobs, with the operator that is its bottleneck, and into which branches a
    record is copied, by its number.
    """

    name: str
    bottleneck: str
    branches: Callable[[int], tuple[str, ...]]

    def job(self, label: str) -> Job:
        """The job with a name and topics of its own."""
        text = re.sub(rf"\b{self.name}\b", label, spark_job_text(self.name))
        text = text.replace("{subscribe: ", "{startingOffsets: earliest, subscribe: ")
        job = parse_job(text.encode())
        return replace(job, operators=tuple(map(self._operator, job.operators)))

    def _operator(self, operator: Operator) -> Operator:
        bounds = replace(operator.parallelism, initial=INSTANCES, min=1, max=MOST)
        work = operator.work
        if operator.name == self.bottleneck:
            slow = (re.sub(r"wait\(\d+\)", f"wait({WAIT_MS})", text) for text in work.select)
            work = replace(work, select=tuple(slow))
        return replace(operator, parallelism=bounds, work=work)

    @property
    def tasks(self) -> int:
        """The Spark tasks that it holds."""
        return cut_into_parts(self.job(self.name)).tasks

    @property
    def copies(self) -> float:
        """How many records arrive for one, in the mean."""
        return (len(self.branches(0)) + len(self.branches(1))) / 2


def _halved(number: int) -> tuple[str, ...]:
    """Star's first sink gets every second record."""
    return ("out1", "out2") if number % 2 == 0 else ("out2",)


STAR: Final = ScalingJob("star", "centre", _halved)
DIAMOND: Final = ScalingJob("diamond", "middle", lambda _: ("left", "middle", "right"))
LINEAR: Final = ScalingJob("linear", "third", lambda _: ("out",))
JOBS: Final = {case.name: case for case in (STAR, DIAMOND, LINEAR)}


def cores_per_worker() -> int:
    """So many tasks of each worker that the largest job fits on those at the start."""
    return -(-max(case.tasks for case in JOBS.values()) // WORKERS)


def rules(strategy: str) -> Rules:
    # The machine that is added starts on the same two cores: what is measured meanwhile is not the
    # job's.
    parameters = {
        "strategy": strategy,
        "window_s": WINDOW_S,
        "calm_s": WINDOW_S,
        "patience_s": REQUEST_S,
        "settle_s": CHECKED_S,
    }
    return Rules.of({"policy": "stela", "limits": LIMITS, "parameters": parameters})


class NumberedLoad:
    """Sends numbered records to the sources of a job in turn, until it is stopped."""

    def __init__(self, kafka: str, job: Job, on_the_way: Callable[[int], float]) -> None:
        self.sent = 0
        self._topics = [topic for source in job.sources for topic in source.topics]
        self._on_the_way = on_the_way
        # Without idempotence a retry of the producer looks like a record that the engine doubled.
        settings = {"bootstrap.servers": kafka, "enable.idempotence": True}
        self._producer = Producer({**PRODUCER, **settings})
        self._records = Records(KEYS, zipf=0.0)
        self._ended = threading.Event()
        self._pool = ThreadPoolExecutor(1, "load")
        self._sending = self._pool.submit(self._send)

    def _send(self) -> None:
        pacer, began_s, counted_s, room = Pacer(Constant(RATE_PER_S)), time.monotonic(), 0.0, 0
        while not self._ended.wait(pacer.wait_s(time.monotonic() - began_s)):
            now_s = time.monotonic()
            if now_s - counted_s > _COUNT_EVERY_S:
                counted_s, room = now_s, ON_THE_WAY - round(self._on_the_way(self.sent))
            due = pacer.due(now_s - began_s)
            pacer.took(due)
            # What is due while too many are on their way is not sent at all.
            for key, value in self._records.make(self.sent, max(0, min(due, room)), time.time()):
                self._producer.produce(self._topics[self.sent % len(self._topics)], value, key)
                self.sent += 1
                room -= 1
            self._producer.poll(0)

    def stop(self) -> int:
        """How many records were sent; all of them are in Kafka. Raises what ended the sending."""
        self._ended.set()
        self._sending.result()
        self._pool.shutdown()
        if left := self._producer.flush(30):
            raise EngineFailed(f"{left} records were not sent.")
        return self.sent


@dataclass
class SparkLiveCluster:
    """A job that runs on a standalone cluster, under load."""

    case: ScalingJob
    job: Job
    system: RunningSystem
    engine: SparkEngine
    # Counts what is in the topics of the sinks.
    counter: TopicReader
    # What the strategy gave to each operator.
    given: dict[str, int] = field(default_factory=dict)
    _load: NumberedLoad = field(init=False)
    _sent: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self._load = NumberedLoad(self.system.kafka, self.job, self._on_the_way)

    @cached_property
    def _partitions(self) -> dict[str, list[int]]:
        topics = self.counter.topics()
        return {sink.topic: topics[sink.topic] for sink in self.job.sinks}

    def arrived(self) -> int:
        """How many records the sinks have written."""
        return sum(self.counter.count(topic, p) for topic, p in self._partitions.items())

    def _on_the_way(self, sent: int) -> float:
        return sent - self.arrived() / self.case.copies

    # What a turn needs.

    def now_s(self) -> float:
        return time.time()

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def await_flow(self) -> None:
        """Waits until records arrive and all machines of the start are seen."""
        self._until(
            lambda: self.arrived() > 0 and len(self._machines()) >= WORKERS,
            FLOWING_S,
            f"No record of {self.job.id} arrived",
        )

    def scale_out(self) -> None:
        before = self._parallelism()
        self._scale(ScalingKind.OUT)
        after = self._parallelism()
        self.given = {name: n - before[name] for name, n in after.items() if n != before[name]}

    def scale_in(self) -> None:
        self._scale(ScalingKind.IN)

    def prediction(self, kind: ScalingKind) -> ActionThroughput:
        """What the policy keeps of its latest action of this kind."""
        actions = self.system.daemon.controller.state.policy_state.get("actions", ())
        own = [each for each in actions if each["kind"] == kind.value]
        return (
            ActionThroughput(own[-1]["predicted"], own[-1]["realised"])
            if own
            else ActionThroughput()
        )

    def stop_sending(self) -> Collection[str]:
        sent = self._load.stop()
        ids = (f"{n}/{b}" for n in range(sent) for b in self.case.branches(n))
        self._sent = frozenset(ids)
        return self._sent

    def arrivals(self) -> Sequence[Arrival]:
        """All that arrived, when everything has, or nothing more does."""
        last, changed_s = -1, time.monotonic()
        while time.monotonic() - changed_s < QUIET_S:
            if (count := self.arrived()) != last:
                last, changed_s = count, time.monotonic()
            elif count >= len(self._sent):
                arrived = self._read()
                if self._sent <= {each.id for each in arrived}:
                    return arrived
            time.sleep(_POLL_S)
        return self._read()

    def _read(self) -> list[Arrival]:
        arrived: list[Arrival] = []
        with TopicReader(self.system.kafka) as reader:
            for sink in self.job.sinks:
                for record in reader.latest(sink.topic, _ALL):
                    value = record.decoded
                    branch = value.get("side", sink.name)
                    arrived.append(Arrival(record.time_s or 0.0, f"{value['seq']}/{branch}"))
        return arrived

    def end(self) -> None:
        self._load.stop()

    def _parallelism(self) -> dict[str, int]:
        return dict(self.engine.jobs()[self.job.id].allocation.parallelism)

    def _machines(self) -> set[str]:
        return set(self.engine.capabilities().machine_slots)

    def _scale(self, kind: ScalingKind) -> None:
        daemon = self.system.daemon
        request = daemon.cluster_commands.scale(kind, 1)
        daemon.wake()

        def ended() -> bool:
            rows = {row.request.id: row for row in daemon.journal.requests(_ALL)}
            if rows[request.id].done is False:
                raise EngineFailed(f"{kind.words}: {rows[request.id].message}")
            return rows[request.id].done is True

        self._until(ended, REQUEST_S, f"The {kind.words} did not end")

    def _until(self, condition: Callable[[], object], within_s: float, failure: str) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            if time.monotonic() > deadline:
                raise EngineFailed(f"{failure} within {within_s:g} s.")
            time.sleep(_POLL_S)


@dataclass
class SparkClusters:
    """Starts one job after the other on the same Spark application."""

    spark: SparkSession
    kafka: Kafka
    standalone: StandaloneCluster
    folder: Path
    tell: Callable[[str], None] = lambda _: None
    _count: int = 0

    @contextmanager
    def start(self, name: str, strategy: str) -> Iterator[SparkLiveCluster]:
        """A job that runs, under load, with an engine and a controller of its own."""
        self._count += 1
        case, folder = JOBS[name], self.folder / f"turn-{self._count}"
        # An embedded broker may know the topics of an earlier run.
        job = case.job(f"{name}-{int(time.time())}")
        create_topics(self.kafka, [job])
        engine = SparkEngine(
            self.spark,
            self.kafka,
            folder / "spark",
            tasks=lambda: max_tasks(self.spark),
            slots=SLOTS,
            cluster=self.standalone,
        )
        try:
            with (
                controlled_system(engine, [job], rules(strategy), folder, self.tell) as system,
                TopicReader(system.kafka) as counter,
            ):
                live = SparkLiveCluster(case, job, system, engine, counter)
                try:
                    live.await_flow()
                    yield live
                finally:
                    live.end()
        finally:
            # The controller has ended: it would start the job again.
            engine.cancel(job.id)
            self._give_back()
            _delete_topics(self.kafka, job)

    def _give_back(self) -> None:
        """A turn that failed may have left its machine."""
        workers = self.standalone.status().workers
        self.standalone.remove_workers([worker.number for worker in workers[WORKERS:]])


def _delete_topics(kafka: Kafka, job: Job) -> None:
    topics = [topic for source in job.sources for topic in source.topics]
    topics += [sink.topic for sink in job.sinks]
    admin = AdminClient({"log_level": 0, **kafka.client})
    for deletion in admin.delete_topics(topics).values():
        deletion.result(timeout=30)
