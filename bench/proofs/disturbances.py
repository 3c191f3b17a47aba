"""What disturbs a job on a cluster: rescales, and kills of drivers, executors and brokers."""

import os
import random
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.proofs.chaos_shapes import Shape
from bench.proofs.deployment import Deployment, await_that
from bench.proofs.usage import is_executor
from trilithon.contract.engine import Reallocate
from trilithon.engines.remote import RemoteEngine
from trilithon.engines.spark.background_process import command_line
from trilithon.engines.spark.broker import EmbeddedBroker
from trilithon.engines.spark.standalone import StandaloneCluster
from trilithon.errors import TrilithonError

RETURN_S: Final = 300.0


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


@dataclass
class Chaos:
    """A job on a cluster, and what disturbs it."""

    deployment: Deployment
    cluster: StandaloneCluster
    broker: EmbeddedBroker
    shape: Shape
    random: random.Random
    _drivers_killed: int = field(default=0, init=False)

    def disturb(self, kind: str) -> str:
        """Disturbs the job, and returns what that was in detail."""
        actions: dict[str, Callable[[], str]] = {
            "rescale": self._rescale,
            "driver": self._kill_driver,
            "executor": self._kill_executor,
            "broker": self._bounce_broker,
        }
        return actions[kind]()

    def _rescale(self) -> str:
        """Another number of instances for each elastic operator, asked for until the host takes
        it.
        """
        steps = {
            name: self.random.randint(1, most - 1) for name, most in self.shape.elastic.items()
        }
        before: dict[str, int] = {}
        wanted: dict[str, int] = {}

        def taken() -> bool:
            try:
                host = RemoteEngine(self.deployment.folder / "host.sock")
                try:
                    allocation = host.jobs()[self.shape.job.id].allocation
                    for name, most in self.shape.elastic.items():
                        before[name] = allocation.parallelism[name]
                        wanted[name] = (before[name] - 1 + steps[name]) % most + 1
                    after = allocation.rescaled(wanted).next_generation()
                    return host.apply(Reallocate(after)).changed
                finally:
                    host.close()
            except (OSError, KeyError, TrilithonError):
                return False

        await_that("the host rescales", taken, RETURN_S)
        return ", ".join(f"{name} {before[name]} → {count}" for name, count in wanted.items())

    def _kill_driver(self) -> str:
        """Kills the process of the host, the next time its JVM, and so on. Waits until the
        executors of its application are gone, too: until then they go on with what they have.
        """
        executors, host = set(self.executors()), self.deployment.host
        of_jvm = self._drivers_killed % 2 == 1
        self._drivers_killed += 1
        os.kill(jvm_of(host) if of_jvm else host, signal.SIGKILL)
        await_that("its executors end", lambda: not executors & set(self.executors()), RETURN_S)
        return "the JVM" if of_jvm else "the host"

    def _kill_executor(self) -> str:
        await_that("executors run", lambda: bool(self.executors()), RETURN_S)
        running = self.executors()
        killed = self.random.choice(running)
        os.kill(killed, signal.SIGKILL)
        await_that("it is gone", lambda: killed not in self.executors(), RETURN_S)
        return f"1 of {len(running)}"

    def executors(self) -> list[int]:
        """The executors that workers started. A worker has other children, and dead ones."""
        workers = [worker.pid for worker in self.cluster.status().workers]
        started = [child for pid in workers if pid is not None for child in children(pid)]
        return sorted(filter(is_executor, started))

    def _bounce_broker(self) -> str:
        os.kill(self.broker.pid, signal.SIGKILL)
        await_that("the broker is back", self.broker.revive, RETURN_S)
        return "started again"


def children(pid: int) -> list[int]:
    pids: list[int] = []
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            pids += map(int, listing.read_text().split())
    return pids


def jvm_of(host: int) -> int:
    """The process of a host's JVM: the one of its children that runs Spark."""
    (jvm,) = (
        child
        for child in children(host)
        if "org.apache.spark.deploy.SparkSubmit" in command_line(child)
    )
    return jvm
