"""Kafka goes away, or the host is killed: how soon that is seen, and how soon records flow again.

    python -m bench.proof_recovery kafka [--away 600] [--jobs 3]
    python -m bench.proof_recovery host [--jobs 3] [--cold]

A daemon and its host run as users run them, with a broker of their own; each job gets 50 records
per second. `kafka` kills the broker with SIGKILL and starts it again on the same address. `host`
kills the host and prints the time line of its return, from the logs of both processes. The host has
run for so long that it has made the archive of Spark's classes; `--cold` kills it before that, and
Spark starts without an archive. Both print when the jobs were no longer called `running`, when all
were again, and when the first record of each came out. Exit code 1 if a limit is missed. `kafka`
has a short form: `--away 20`.
"""

import argparse
import itertools
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from bench.proofs import figures
from bench.proofs.chain import line
from bench.proofs.deployment import Deployment, await_that, deployed
from bench.proofs.scene import make_topic, temporary_folder
from bench.proofs.timeline import marks
from bench.proofs.traffic import Load, Outlet
from trilithon import folders
from trilithon.engines.spark.broker import EmbeddedBroker
from trilithon.engines.spark.jars import CONNECTOR, fetch_jars
from trilithon.engines.spark.jdk import find_jdk
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.session import class_archive
from trilithon.model.job import Job

RATE_PER_S = 50.0
TASKS = 4
SETTLE_S = 10.0
ARCHIVE_S = 300.0
# What is promised, in seconds.
LIMITS = {
    "kafka": {"noticed_s": 15.0, "all_run_after_s": 60.0},
    "host": {"noticed_s": 5.0, "flows_after_s": 25.0},
}


class Flow:
    """The load of a job and what comes out of it."""

    def __init__(self, kafka: Kafka, job: Job, topics: tuple[str, str]) -> None:
        self.job = job
        self.load, self.outlet = Load(kafka, topics[0], RATE_PER_S), Outlet(kafka, topics[1])

    def first_since(self, at: float) -> float | None:
        """Seconds from a time to the first record that came out after it."""
        later = [arrival.at for arrival in self.outlet.since(at)]
        return round(later[0] - at, 2) if later else None

    def end(self) -> tuple[int, int]:
        """Records lost and doubled, when all that was sent had time to come out."""
        sent = self.load.stop()
        self.outlet.await_all(sent, 120)
        return self.outlet.lost_and_doubled(sent)


@contextmanager
def running(
    folder: Path, kafka: Kafka, jobs: int, *options: str
) -> Iterator[tuple[Deployment, list[Flow]]]:
    """Jobs under load. They have flowed for a while when this yields."""
    specs: list[tuple[Job, tuple[str, str]]] = []
    for i in range(jobs):
        topics = (f"in{i}", f"out{i}")
        for topic in topics:
            make_topic(kafka, topic)
        specs.append((line(f"job{i}", {"a": "n >= 0"}, TASKS, topics), topics))
    with deployed(folder / "state", "--kafka", kafka.servers, *options) as deployment:
        deployment.submit([job for job, _ in specs])
        flows = [Flow(kafka, job, topics) for job, topics in specs]
        try:
            await_that("records flow", lambda: all(len(f.outlet.arrivals) > 100 for f in flows), 60)
            time.sleep(SETTLE_S)
            yield deployment, flows
        finally:
            for flow in flows:
                flow.outlet.stop()


def kafka_away(folder: Path, away_s: float, jobs: int, options: Sequence[str]) -> dict[str, Any]:
    with ExitStack() as ending:
        place = folder / "broker"
        broker = EmbeddedBroker.start(place)
        ending.callback(broker.stop)
        kafka = Kafka(broker.address)
        deployment, flows = ending.enter_context(running(folder, kafka, jobs, *options))
        os.kill(broker.pid, signal.SIGKILL)
        killed = time.time()
        time.sleep(away_s)
        shown = deployment.problems()
        again = EmbeddedBroker.start(place)
        ending.callback(again.stop)
        assert again.address == broker.address
        back = time.time()
        await_that("all jobs run", lambda: runs_since(deployment, back) is not None, 180)
        await_that("records flow", lambda: None not in [f.first_since(back) for f in flows], 180)
        return {
            "jobs": jobs,
            "away_s": round(back - killed, 1),
            "noticed_s": deployment.first(killed, none_runs),
            "all_run_after_s": runs_since(deployment, back),
            "flows_after_s": max(flow.first_since(back) or 0.0 for flow in flows),
            "problem_shown": next(iter(shown.values())),
            "events": deployment.events(flows[0].job.id)[-4:],
            **outcome(flows),
        }


def archive_made() -> bool:
    jdk = find_jdk()
    return jdk is not None and class_archive(jdk, fetch_jars(CONNECTOR)).path.is_file()


def host_killed(
    folder: Path, jobs: int, options: Sequence[str], *, cold: bool = False
) -> dict[str, Any]:
    with ExitStack() as ending:
        broker = ending.enter_context(EmbeddedBroker.start(folder / "broker"))
        kafka = Kafka(broker.address)
        deployment, flows = ending.enter_context(running(folder, kafka, jobs, *options))
        if not cold:
            await_that("the archive of classes is made", archive_made, ARCHIVE_S)
            time.sleep(SETTLE_S)
        before = deployment.host
        os.kill(before, signal.SIGKILL)
        killed = time.time()
        new_process_s = await_that("a new host", lambda: new_host(deployment, before), 60)
        path = folder / "state" / "host.sock"
        listening_s = new_process_s + await_that("it listens", lambda: listens(path), 120)
        listening = killed + listening_s
        await_that("all jobs run", lambda: runs_since(deployment, listening) is not None, 180)
        await_that("records flow", lambda: all(flowing(f, killed) for f in flows), 180)
        for mark in marks(folder / "state", killed):
            print(mark)
        return {
            "jobs": jobs,
            "noticed_s": deployment.first(killed, none_runs),
            "new_process_s": round(new_process_s, 2),
            "listening_s": round(listening_s, 2),
            "all_run_s": runs_since(deployment, listening),
            "first_flows_after_s": min(gap_end(flow, killed) for flow in flows),
            "flows_after_s": max(gap_end(flow, killed) for flow in flows),
            "events": deployment.events(flows[0].job.id)[-4:],
            **outcome(flows),
        }


def hide_archive(cache: Path) -> None:
    """Lets this process and those that it starts use a cache with the jars alone."""
    cache.mkdir()
    (cache / "jars").symlink_to(folders.cache() / "jars")
    os.environ["TRILITHON_CACHE"] = str(cache)


def runs_since(deployment: Deployment, at: float) -> float | None:
    """Seconds from a time until all jobs were called running."""
    return deployment.first(at, Deployment.all_run)


def listens(path: Path) -> bool:
    with closing(socket.socket(socket.AF_UNIX)) as trial:
        return trial.connect_ex(str(path)) == 0


def new_host(deployment: Deployment, before: int) -> bool:
    try:
        return deployment.host != before
    except ValueError:
        return False  # the old one is gone, the new one is not there yet


def gap_end(flow: Flow, killed: float) -> float:
    """Seconds from the kill to the end of the longest time without a record after it."""
    times = [killed, *(arrival.at for arrival in flow.outlet.since(killed))]
    gaps = [(b - a, b) for a, b in itertools.pairwise(times)]
    return round(max(gaps)[1] - killed, 2) if gaps else float("inf")


def flowing(flow: Flow, killed: float) -> bool:
    return len(flow.outlet.since(max(killed, time.time() - 3.0))) > RATE_PER_S


def none_runs(states: dict[str, str] | None) -> bool:
    return states is not None and "running" not in states.values()


def outcome(flows: Sequence[Flow]) -> dict[str, int]:
    results = [flow.end() for flow in flows]
    return {
        "sent": sum(flow.load.sent for flow in flows),
        "lost": sum(lost for lost, _ in results),
        "doubled": sum(doubled for _, doubled in results),
    }


def missed(kind: str, result: dict[str, Any]) -> list[str]:
    """The limits that a result misses; no record may be lost."""
    misses = [
        f"{name} is {result[name]}, the limit is {limit:g}"
        for name, limit in LIMITS[kind].items()
        if result[name] is None or result[name] > limit
    ]
    return misses + ([f"{result['lost']} records are lost"] if result["lost"] else [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=sorted(LIMITS))
    parser.add_argument("--away", type=float, default=600.0)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--cold", action="store_true", help="without an archive of classes")
    given = parser.parse_args()
    options = ["--master", f"local[{max(16, given.jobs * 8)}]", "--log-json"]
    with temporary_folder() as name:
        if given.cold:
            hide_archive(Path(name) / "cache")
        if given.kind == "kafka":
            result = kafka_away(Path(name), given.away, given.jobs, options)
        else:
            result = host_killed(Path(name), given.jobs, options, cold=given.cold)
    figures.show(f"{given.kind} away", result)
    figures.emit(f"recovery of {given.kind}", result)
    if misses := missed(given.kind, result):
        sys.exit("; ".join(misses))


if __name__ == "__main__":
    main()
