"""Measures the service under load: event streams, some of them slow, and reads beside the rounds.

    python -m bench.service_load            500 jobs, 200 streams, 200 reads/s
    python -m bench.service_load --quick    50 jobs, 20 streams, 5 s

A daemon runs in a process of its own, a round every two seconds, over an engine that costs nothing
(that of bench.control). Clients run in another process. By turns nobody is connected, then all
streams are; a tenth of them never read. So a machine that gets slower or faster meanwhile does so
in both. Rounds with streams are compared with rounds without. Then 200 reads/s come on top, for
the latencies of reads and for what they cost the round; and then nobody again, with the streams
that never read still open at their end.

Columns: `round ms` is the time of a round, `round CPU` what its thread used of the CPU for it,
`shown CPU` what the same thread used to publish it, `beside CPU` what all other threads of the
daemon used from one round to the next.
"""

import argparse
import asyncio
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from bench import control
from bench.control import EngineClock, Ready, controller
from trilithon.service.access.gate import Access
from trilithon.service.access.rates import RateLimiter
from trilithon.service.access.roles import Role
from trilithon.service.access.store import AccessStore
from trilithon.service.api import api
from trilithon.service.daemon import Daemon, calm_collector
from trilithon.service.web_server import STUCK_AFTER_S, serving_in_background

TENANTS = 20
TURNS = 3
# What a round may take longer while streams are connected.
MOST_GROWTH = 0.10
PERIOD_S = 2.0
SLOW_SHARE, ADMIN_SHARE = 0.1, 0.05
CONNECTIONS = 20
# What the streams take to connect, and what they may take.
CONNECTS_S, PATIENCE_S = 3.0, 60.0
# What readers ask for, by turns: mostly one job, sometimes the tenant's list.
PATHS = (
    "/jobs/{tenant}/{name}",
    "/jobs/{tenant}/{name}",
    "/history?job={tenant}/{name}&points=200",
    "/jobs/{tenant}/{name}/explanation",
    "/jobs",
)


def serve(folder: Path, jobs: int) -> None:
    """The daemon's process: a round every two seconds, and a line with its cost for each."""
    # To make reports is the work of an engine, in another process: here as little of it as can be.
    control.REPORTS_PER_ROUND = 1
    controlled, engine = controller(folder, jobs)
    store = AccessStore(folder / "access.sqlite", time.time)
    access = Access(store, "owner", limiter=RateLimiter(1e6, 1e6))
    daemon = Daemon(controlled, controlled.journal, access=access)
    tokens = [store.create(f"t{i}", {f"t{i}": Role.VIEWER})[1] for i in range(TENANTS)]
    assert isinstance(controlled.clock, EngineClock)
    calm_collector()
    with serving_in_background(api(daemon)) as url:
        print(json.dumps({"url": url, "tokens": tokens}), flush=True)
        number, beside = 0, _beside_ms()
        while True:
            began = time.monotonic()
            beside = _round(daemon, engine, number, beside)
            number += 1
            time.sleep(max(0.0, PERIOD_S - (time.monotonic() - began)))


def _beside_ms() -> float:
    """What all threads but this one have used of the CPU."""
    return 1000 * (time.process_time() - time.thread_time())


def _round(daemon: Daemon, engine: Ready, number: int, beside_before: float) -> float:
    """A round and its line; returns what other threads have used up to now."""
    engine.prepare(number)
    wall, cpu = time.perf_counter(), time.thread_time()
    done = daemon.controller.round()
    round_ms, round_cpu_ms = _since(wall, cpu)
    wall, cpu = time.perf_counter(), time.thread_time()
    daemon.monitor.after_round(done, round_ms / 1000)
    shown_ms, shown_cpu_ms = _since(wall, cpu)
    beside = _beside_ms()
    print(
        json.dumps(
            {
                "time": time.time(),
                "round_ms": round_ms,
                "round_cpu_ms": round_cpu_ms,
                "shown_ms": shown_ms,
                "shown_cpu_ms": shown_cpu_ms,
                "beside_cpu_ms": beside - beside_before,
                "clients": daemon.monitor.hub.clients,
                "dropped": daemon.monitor.hub.dropped,
                "fds": sum(1 for _ in Path("/proc/self/fd").iterdir()),
            }
        ),
        flush=True,
    )
    return beside


def _since(wall: float, cpu: float) -> tuple[float, float]:
    return 1000 * (time.perf_counter() - wall), 1000 * (time.thread_time() - cpu)


@dataclass
class Load:
    """What the clients saw."""

    events: int = 0
    snapshots: int = 0
    latencies_ms: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    late: int = 0


def stuck_stream(port: int) -> socket.socket:
    """A client that asks for all snapshots and reads none of them."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    client.sendall(_request("/events?snapshots=true", "owner"))
    return client


async def stream(port: int, token: str, load: Load) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    try:
        writer.write(_request("/events?snapshots=true", token))
        while line := await reader.readline():
            load.events += line.startswith(b"event:")
            load.snapshots += line.startswith(b"event: snapshot")
    except (OSError, ValueError) as error:
        load.failures.append(f"stream: {error}")
    finally:
        writer.close()


def _request(path: str, token: str) -> bytes:
    return (
        f"GET /api/v1{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
    ).encode()


async def read(
    port: int, tokens: Sequence[str], first: int, jobs: int, every_s: float, load: Load
) -> None:
    """One connection: a request each `every_s`, whether or not the one before was slow."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    number, due = first, time.perf_counter() + every_s * first / CONNECTIONS
    try:
        while True:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            job = number % jobs
            tenant = job % TENANTS
            path = PATHS[number % len(PATHS)].format(tenant=f"t{tenant}", name=f"job{job}")
            began = due  # by the plan: a late start counts as latency, too
            writer.write(_request(path, tokens[tenant]))
            status = await _answer(reader)
            load.latencies_ms.append(1000 * (time.perf_counter() - began))
            if status != 200:
                load.failures.append(f"{path}: {status}")
            number += CONNECTIONS + 1
            due += every_s
            load.late += time.perf_counter() > due
    finally:
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> int:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length:")
    )
    await reader.readexactly(length)
    return int(head.split(b" ")[1])


async def press(
    port: int,
    tokens: Sequence[str],
    jobs: int,
    streams: int,
    per_s: float,
    seconds: float,
    load: Load,
    connected: threading.Event,
) -> None:
    """Connects the streams, then reads for some seconds; only the streams, if `per_s` is 0."""
    before = load.snapshots
    admins = round(ADMIN_SHARE * streams)
    tasks = [
        asyncio.create_task(stream(port, "owner" if i < admins else tokens[i % TENANTS], load))
        for i in range(streams)
    ]
    await asyncio.sleep(CONNECTS_S)
    deadline = time.monotonic() + PATIENCE_S
    # A slow machine takes longer to connect them.
    while load.snapshots - before < streams and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    connected.set()
    if per_s:
        every_s = CONNECTIONS / per_s
        tasks += [
            asyncio.create_task(read(port, tokens, i, jobs, every_s, load))
            for i in range(CONNECTIONS)
        ]
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@dataclass
class Served:
    """The daemon's process, and the cost of its rounds as they come."""

    process: "subprocess.Popen[str]"
    rounds: list[dict[str, Any]] = field(default_factory=list)

    def collect(self, seconds: float) -> list[dict[str, Any]]:
        """The rounds of the next seconds, one at least."""
        return self.collect_until(threading.Event(), seconds)

    def collect_until(self, ended: threading.Event, seconds: float = inf) -> list[dict[str, Any]]:
        """The rounds until something has ended, or of the next seconds; one at least."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + seconds
        rows = [json.loads(self.process.stdout.readline())]
        while time.monotonic() < deadline and not ended.is_set():
            rows.append(json.loads(self.process.stdout.readline()))
        return rows

    def collect_between(
        self, begun: threading.Event, ended: threading.Event
    ) -> list[dict[str, Any]]:
        """The rounds from one event to another; those before it do not count."""
        self.collect_until(begun)
        return self.collect_until(ended)


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure(
    jobs: int,
    streams: int,
    per_s: float,
    seconds: float,
    settle_s: float = STUCK_AFTER_S + 10.0,
    turns: int = TURNS,
) -> dict[str, Any]:
    phases: dict[str, list[dict[str, Any]]] = {"alone": [], "streams": [], "and reads": []}
    slow, load = round(SLOW_SHARE * streams), Load()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ending:
        command = [sys.executable, "-m", "bench.service_load", "--serve", folder]
        process = subprocess.Popen(  # noqa: S603 - ourselves
            [*command, "--jobs", str(jobs)], stdout=subprocess.PIPE, text=True
        )
        ending.callback(process.wait)
        ending.callback(process.kill)
        assert process.stdout is not None
        started = json.loads(process.stdout.readline())
        served, port = Served(process), int(started["url"].rpartition(":")[2])

        async def pressed(reads_per_s: float) -> list[dict[str, Any]]:
            connected, ended = threading.Event(), threading.Event()
            collecting = asyncio.create_task(
                asyncio.to_thread(served.collect_between, connected, ended)
            )
            tokens, count = started["tokens"], streams - slow
            try:
                await press(port, tokens, jobs, count, reads_per_s, seconds, load, connected)
            finally:
                connected.set()
                ended.set()
            return await collecting

        served.collect(5.0)  # jobs start
        for turn in range(turns):
            phases["alone"] += served.collect(seconds)
            last = turn == turns - 1
            # Of the last turn they stay connected until the end: the daemon has to end them.
            with contextlib.ExitStack() as leaving:
                for _ in range(slow):
                    stuck = contextlib.closing(stuck_stream(port))
                    (ending if last else leaving).enter_context(stuck)
                phases["streams"] += asyncio.run(pressed(0.0))
            served.collect(PERIOD_S)  # they leave
        phases["and reads"] = asyncio.run(pressed(per_s))
        served.collect(settle_s)
        phases["after"] = served.collect(seconds)
        process.stdout.close()
    return summary(phases, load, streams)


def summary(
    phases: Mapping[str, Sequence[dict[str, Any]]], load: Load, streams: int
) -> dict[str, Any]:
    def median(rows: Sequence[dict[str, Any]], *keys: str) -> float:
        return float(statistics.median(sum(row[key] for key in keys) for row in rows))

    return {
        "phases": {
            name: {
                "rounds": len(rows),
                "round_ms": median(rows, "round_ms"),
                "round_cpu_ms": median(rows, "round_cpu_ms"),
                "shown_cpu_ms": median(rows, "shown_cpu_ms"),
                "both_cpu_ms": median(rows, "round_cpu_ms", "shown_cpu_ms"),
                "beside_cpu_ms": median(rows, "beside_cpu_ms"),
                "fds": max(row["fds"] for row in rows),
                "clients": max(row["clients"] for row in rows),
            }
            for name, rows in phases.items()
        },
        "streams": streams,
        "slow": round(SLOW_SHARE * streams),
        "dropped": phases["after"][-1]["dropped"],
        "events": load.events,
        "snapshots": load.snapshots,
        "reads": len(load.latencies_ms),
        "read_ms": {
            name: percentile(load.latencies_ms, share)
            for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0))
        },
        "failures": load.failures[:5],
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--serve", type=Path)
    options.add_argument("--jobs", type=int, default=500)
    options.add_argument("--seconds", type=float, default=30.0)
    given = options.parse_args()
    if given.serve is not None:
        serve(given.serve, given.jobs)
        return
    jobs, streams, seconds = (50, 20, 5.0) if given.quick else (given.jobs, 200, given.seconds)
    result = measure(jobs, streams, 200.0, seconds)
    print(f"{jobs} jobs, {streams} event streams, a tenth of which never read; then 200 reads/s")
    names = ("round ms", "round CPU", "shown CPU", "both CPU", "beside CPU", "fds", "clients")
    print(" ".join(f"{head:>10}" for head in ("phase", "rounds", *names)))
    for name, row in result["phases"].items():
        numbers = [
            f"{value:10.1f}" if isinstance(value, float) else f"{value:10}"
            for value in row.values()
        ]
        print(f"{name:>10} " + " ".join(numbers))
    alone = result["phases"]["alone"]
    for phase in ("streams", "and reads"):
        for key in ("round_ms", "round_cpu_ms", "both_cpu_ms"):
            growth = result["phases"][phase][key] / alone[key] - 1
            bound = ""
            if phase == "streams":
                kept = "kept" if growth < MOST_GROWTH else "not kept"
                bound = f" (less than {MOST_GROWTH:.0%}: {kept})"
            print(f"with {phase}: {key} grows by {100 * growth:+.1f} %{bound}")
    left = result["phases"]["after"]["clients"]
    print(
        f"of {result['slow']} streams that never read, the daemon still has {left} at the end, and "
        f"{result['phases']['after']['fds'] - alone['fds']:+} file descriptors"
    )
    read_ms = ", ".join(f"{name} {value:.1f} ms" for name, value in result["read_ms"].items())
    print(f"snapshots received: {result['snapshots']}; reads: {result['reads']}, {read_ms}")
    print(f"failures: {result['failures'] or 'none'}")


if __name__ == "__main__":
    main()
