"""The controller is killed under load: the host's job runs on, and a new controller attaches.

    python -m bench.proof_controller_death [--seconds 15]

The host and the controllers are separate processes. The controller rescales the job every 200 ms
under 300 records/s until it gets SIGKILL. The short form `--seconds 5` takes about a minute.
"""

import argparse
import math
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from bench.proofs import figures
from bench.proofs.host import JOB, socket_in
from bench.proofs.processes import Processes
from bench.proofs.scene import make_topic, temporary_folder
from bench.proofs.traffic import Outlet, traffic
from trilithon.engines.remote import RemoteEngine
from trilithon.engines.spark.broker import EmbeddedBroker
from trilithon.engines.spark.kafka import Kafka

RATE_PER_S = 300.0
TOPICS = ("in", "out")
HALF = b'{"call": "apply", "action": {"kind": "reallocate", "allocation": {"generation": 999999'


def measure(span_s: float) -> dict[str, Any]:
    with ExitStack() as ending:
        folder = Path(ending.enter_context(temporary_folder()))
        broker = ending.enter_context(EmbeddedBroker.start(folder / "broker"))
        kafka = Kafka(broker.address)
        for topic in TOPICS:
            make_topic(kafka, topic)
        processes = ending.enter_context(closing(Processes(folder)))
        path = socket_in(folder)
        command = [sys.executable, "-m", "bench.proofs.host", str(folder), broker.address, *TOPICS]
        processes.start("host", command)
        try:
            await_that("the host listens", path.exists, 90)
        except RuntimeError as error:
            raise RuntimeError(f"{error}\n{processes.printed('host')[-3000:]}") from error
        watcher = ending.enter_context(closing(RemoteEngine(path)))
        with traffic(kafka, TOPICS, RATE_PER_S) as (load, outlet):
            result = phases(processes, watcher, path, outlet, span_s)
            sent = load.stop()
            outlet.await_all(sent, 30)
            time.sleep(2.5)
            lost, doubled = outlet.lost_and_doubled(sent)
        taken, job = taken_by_a(watcher), watcher.jobs()[JOB]
        return {
            **result,
            "sent": sent,
            "taken_by_a": taken,
            "lost": lost,
            "doubled": doubled,
            "health": job.health,
        }


def phases(
    processes: Processes, watcher: RemoteEngine, path: Path, outlet: Outlet, span_s: float
) -> dict[str, Any]:
    """A span with the controller, one without, one with a new controller."""
    control = [sys.executable, "-m", "bench.proofs.controller", str(path), JOB]
    controller = processes.start("controller1", control)
    time.sleep(4)
    outlet.await_calm(below_s=0.2)
    time.sleep(span_s)
    assert (output := processes.printed("controller1")).count("\n") == 1, output
    killed = time.time()
    os.kill(controller, signal.SIGKILL)
    die_in_the_middle(path)
    time.sleep(0.5)
    left_at = generation(watcher)
    time.sleep(span_s - 0.5)
    still_at = generation(watcher)
    again = time.time()
    processes.start("controller2", control)
    await_that("the new controller acts", lambda: generation(watcher) > still_at, 20)
    acting_s = time.time() - again
    time.sleep(span_s)
    return {
        "before": span(outlet, killed - span_s, killed),
        "after": span(outlet, killed, again),
        "with_new_controller": span(outlet, again, time.time()),
        "generation_at_death": left_at,
        "generation_without_controller": still_at,
        "new_controller": processes.printed("controller2").splitlines()[0],
        "new_controller_acts_after_ms": round(1000 * acting_s),
        "generation_of_new_controller": generation(watcher),
        "socket_mode": oct(stat.S_IMODE(path.stat().st_mode)),
    }


def die_in_the_middle(path: Path) -> None:
    """Sends an incomplete request, like a controller that dies while it writes."""
    with closing(socket.socket(socket.AF_UNIX)) as half:
        half.connect(str(path))
        half.sendall(HALF)


def span(outlet: Outlet, start: float, end: float) -> dict[str, Any]:
    inside = [a.latency_s for a in outlet.since(start, end)]
    return {
        "per_s": round(len(inside) / (end - start), 1),
        **{f"p{round(100 * q)}_ms": figures.quantile_ms(inside, q) for q in (0.5, 0.95, 0.99)},
        "largest_gap_ms": round(1000 * outlet.largest_gap_s(start, end)),
    }


def generation(watcher: RemoteEngine) -> int:
    return watcher.jobs()[JOB].allocation.generation


def taken_by_a(watcher: RemoteEngine) -> int:
    """From the newest report of each sender: counts in it are cumulative."""
    newest = {report.sender: report for report in watcher.reports()}
    taken = [
        float(count)
        for report in newest.values()
        for key, count in zip(report.instance_keys, report.instances.taken, strict=True)
        if key[:2] == (JOB, "a")
    ]
    return round(sum(count for count in taken if not math.isnan(count)))


def await_that(what: str, holds: Callable[[], bool], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError(f"timeout after {timeout_s} s: {what}")
        time.sleep(0.02)


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--seconds", type=float, default=15.0, help="of each of the three spans")
    result = measure(arguments.parse_args().seconds)
    figures.show("the controller's death", result)
    figures.emit("controller_death", result)
    assert result["lost"] == result["doubled"] == 0
    assert result["sent"] == result["taken_by_a"]
    assert result["generation_at_death"] == result["generation_without_controller"] < 999999


if __name__ == "__main__":
    main()
