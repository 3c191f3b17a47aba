"""Records pass a job while its cluster is disturbed again and again: none may be lost.

    python -m bench.chaos [--records 100000] [--seed 1] [--rate 500] [--rescales 5]
        [--driver-kills 2] [--executor-kills 3] [--broker-kills 5]

A daemon and its host run as users run them, on a standalone cluster of two workers, with a broker
of their own. The seed draws the order of the disturbances and after how many records each comes.
Every kill is SIGKILL. A disturbance comes when records flow again after the one before, so that
each hits a job that works; the time that this takes is printed beside it.

At the end every record that was sent must have arrived. Doubles are counted as they are in the
topic, and again after those with the same record id are dropped: that leaves none, unless the job
wrote one record under two ids. Exit code 1 if a record is lost or a double is left. Short form:
`--records 4000 --rescales 1 --driver-kills 0 --executor-kills 1 --broker-kills 1`.
"""

import argparse
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.proofs import figures
from bench.proofs.chain import line
from bench.proofs.deployment import Deployment, await_that, deployed
from bench.proofs.scene import make_topic, temporary_folder
from bench.proofs.traffic import Load, reader_of
from trilithon.contract.engine import Reallocate
from trilithon.engines.remote import RemoteEngine
from trilithon.engines.spark.broker import EmbeddedBroker
from trilithon.engines.spark.cut_records import ID_HEADER
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.standalone import StandaloneCluster
from trilithon.errors import TrilithonError
from trilithon.model.job import Job

RATE_PER_S = 500.0
TASKS = 6
WORKERS, WORKER_TASKS, WORKER_MB = 2, 16, 1024
OPERATORS = {"first": "n >= 0", "second": "n >= 0"}
RETURN_S = 300.0
# Records in flight may still arrive for so long after what they came from was killed.
EFFECT_S = 1.0


@dataclass(frozen=True, slots=True)
class Disturbance:
    """What happens when so many records were sent."""

    after: int
    kind: str


def drawn(seed: int, records: int, counts: Mapping[str, int]) -> list[Disturbance]:
    """The disturbances of a run, in the order in which they come. None comes in the last tenth, so
    that records pass after the last one, too.
    """
    chosen = random.Random(seed)  # noqa: S311 - not for secrets
    kinds = [kind for kind in sorted(counts) for _ in range(counts[kind])]
    chosen.shuffle(kinds)
    times = sorted(chosen.sample(range(records // 20, records - records // 10), len(kinds)))
    return [Disturbance(after, kind) for after, kind in zip(times, kinds, strict=True)]


class Sink:
    """Counts what arrives in a topic: the numbers of the records, and the ids they came under."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self.times: dict[int, float] = {}
        self.ids: set[str] = set()
        self.arrivals, self.newest = 0, -1
        self._consumer = reader_of(kafka, topic)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            for message in self._consumer.consume(500, 0.1):
                value, headers = message.value(), message.headers()
                if message.error() is not None or value is None:
                    continue
                id_ = dict(headers or ())[ID_HEADER]
                self.ids.add(id_.decode() if isinstance(id_, bytes) else str(id_))
                number = int(json.loads(value)["n"])
                self.times.setdefault(number, time.time())
                self.newest = max(self.newest, number)
                self.arrivals += 1

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        self._consumer.close()


@dataclass
class Chaos:
    """A job on a cluster, and what disturbs it."""

    deployment: Deployment
    cluster: StandaloneCluster
    broker: EmbeddedBroker
    job: Job
    random: random.Random

    def disturb(self, kind: str) -> None:
        actions: dict[str, Callable[[], None]] = {
            "rescale": self._rescale,
            "driver": self._kill_driver,
            "executor": self._kill_executor,
            "broker": self._bounce_broker,
        }
        actions[kind]()

    def _rescale(self) -> None:
        """Another number of instances for each operator, asked for until the host takes it."""
        wanted = {name: self.random.randint(1, TASKS) for name in OPERATORS}

        def taken() -> bool:
            try:
                host = RemoteEngine(self.deployment.folder / "host.sock")
                try:
                    allocation = host.jobs()[self.job.id].allocation.rescaled(wanted)
                    return host.apply(Reallocate(allocation.next_generation())).applied
                finally:
                    host.close()
            except (OSError, KeyError, TrilithonError):
                return False

        await_that("the host rescales", taken, RETURN_S)

    def _kill_driver(self) -> None:
        """Kills the host, and waits until the executors of its application are gone, too: until
        then they go on with what they have.
        """
        executors = set(self.executors())
        os.kill(self.deployment.host, signal.SIGKILL)
        await_that("its executors end", lambda: not executors & set(self.executors()), RETURN_S)

    def _kill_executor(self) -> None:
        await_that("executors run", lambda: bool(self.executors()), RETURN_S)
        killed = self.random.choice(self.executors())
        os.kill(killed, signal.SIGKILL)
        await_that("it is gone", lambda: killed not in self.executors(), RETURN_S)

    def executors(self) -> list[int]:
        """The processes that workers started."""
        workers = [worker.pid for worker in self.cluster.status().workers]
        listings = [
            path for pid in workers for path in Path(f"/proc/{pid}/task").glob("*/children")
        ]
        return sorted(int(pid) for listing in listings for pid in listing.read_text().split())

    def _bounce_broker(self) -> None:
        os.kill(self.broker.pid, signal.SIGKILL)
        await_that("the broker is back", self.broker.revive, RETURN_S)


@contextmanager
def scene(folder: Path, chosen: random.Random) -> Iterator[tuple[Chaos, Kafka]]:
    """A job on a cluster with a broker; everything ends at the end."""
    with ExitStack() as ending:
        broker = ending.enter_context(EmbeddedBroker.start(folder / "broker"))
        cluster = StandaloneCluster(folder / "state" / "cluster")
        ending.callback(cluster.stop)
        master = cluster.start(WORKERS, WORKER_TASKS, WORKER_MB).master
        kafka = Kafka(broker.address)
        for topic in ("in", "out"):
            make_topic(kafka, topic, 2)
        job = line("chaos", OPERATORS, TASKS, ("in", "out"))
        options = ("--master", str(master), "--kafka", kafka.servers, "--log-json")
        deployment = ending.enter_context(deployed(folder / "state", *options))
        deployment.submit([job])
        yield Chaos(deployment, cluster, broker, job, chosen), kafka


def run(
    folder: Path, seed: int, records: int, rate_per_s: float, counts: Mapping[str, int]
) -> dict[str, Any]:
    plan = drawn(seed, records, counts)
    sending_s = records / rate_per_s + RETURN_S
    choices = random.Random(seed + 1)  # noqa: S311 - not for secrets
    with scene(folder, choices) as (chaos, kafka):
        sink = Sink(kafka, "out")
        load = Load(kafka, "in", rate_per_s)
        try:
            await_that("records flow", lambda: bool(sink.times), RETURN_S)
            log = [strike(chaos, item, load, sink, sending_s) for item in plan]
            await_that("all are sent", lambda: load.sent >= records, sending_s)
        finally:
            sent = load.stop()
        await_all(sink, sent)
        sink.end()
    return {
        "seed": seed,
        "sent": sent,
        "lost": sent - len(sink.times),
        "doubles": sink.arrivals - len(sink.times),
        "doubles_left_by_id": len(sink.ids) - len(sink.times),
        "disturbances": log,
    }


def strike(
    chaos: Chaos, disturbance: Disturbance, load: Load, sink: Sink, within_s: float
) -> dict[str, Any]:
    """Does what disturbs when its time has come, and waits until a record that was sent when it had
    taken effect has arrived.
    """
    await_that(f"{disturbance.after} sent", lambda: load.sent >= disturbance.after, within_s)
    sent, began = load.sent, time.time()
    chaos.disturb(disturbance.kind)
    time.sleep(EFFECT_S)
    in_effect = load.sent
    await_that("records flow again", lambda: sink.newest > in_effect, RETURN_S)
    took_s = round(time.time() - began, 1)
    print(f"{disturbance.kind:<9} after {sent:>7} records: flows again in {took_s} s", flush=True)
    return {"kind": disturbance.kind, "after": sent, "flows_again_s": took_s}


def await_all(sink: Sink, sent: int) -> None:
    """Waits until every record has arrived, or none has for a minute."""
    seen, since = -1, time.monotonic()
    while len(sink.times) < sent and time.monotonic() - since < RETURN_S / 5:
        if len(sink.times) != seen:
            seen, since = len(sink.times), time.monotonic()
        time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=RATE_PER_S)
    defaults = {"rescale": 5, "driver-kill": 2, "executor-kill": 3, "broker-kill": 5}
    for name, count in defaults.items():
        parser.add_argument(f"--{name}s", type=int, default=count)
    given = parser.parse_args()
    # As at the end: everything that was started is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    counts = {
        name.partition("-")[0]: getattr(given, f"{name.replace('-', '_')}s") for name in defaults
    }
    with temporary_folder() as name:
        result = run(Path(name), given.seed, given.records, given.rate, counts)
    figures.show("chaos", {key: value for key, value in result.items() if key != "disturbances"})
    figures.emit("chaos", result)
    if result["lost"] or result["doubles_left_by_id"]:
        sys.exit(f"{result['lost']} records are lost, {result['doubles_left_by_id']} are doubled")


if __name__ == "__main__":
    main()
