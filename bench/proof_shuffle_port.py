"""Who can reach the streaming shuffle of Spark, whatever Spark's settings say.

    python -m bench.proof_shuffle_port [--settings bound authenticated]

Runs a real-time query with a shuffle in one JVM and lists the sockets on which that JVM listens,
before the query and while it runs. What the query adds are the servers of the shuffle's writers.
A stranger, a plain TCP connection from another of the machine's addresses without any secret, then
sends one of them a message that no reader would send. All of this again with each of Spark's
settings that might bind or protect a server. It takes a minute or two.
"""

import argparse
import json
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from bench.proofs.chain import line, run
from bench.proofs.scene import scene
from bench.proofs.traffic import Load
from trilithon.engines.spark.session import driver_process
from trilithon.errors import QueryNotStarted

TASKS: Final = 2
LISTENS: Final = "0A"
RPC_REQUEST: Final = 3
ENDS_S: Final = 60.0
LOAD_PER_S: Final = 500.0
UNDISTURBED_S: Final = 10.0
# SPARK_LOCAL_IP, spark.driver.host and spark.driver.bindAddress are 127.0.0.1 in both: a session on
# this machine sets them.
SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "bound": {},
    "authenticated": {
        "spark.authenticate": "true",
        "spark.authenticate.secret": "a secret that the stranger does not have",
        "spark.network.crypto.enabled": "true",
    },
}


@dataclass(frozen=True)
class Exposure:
    """What a stranger found with some settings of Spark."""

    settings: str
    # How many servers the JVM had before the query, and how many of them on all interfaces.
    before: int
    before_on_all_interfaces: int
    # The same of those that came with the query.
    shuffle: int
    shuffle_on_all_interfaces: int
    # Whether the query lived until the stranger came, who came from this address.
    alive: bool
    stranger: str
    # Whether the server took the stranger's connection, and what came of the query.
    connected: bool
    query_ended: str


def listening(pid: int) -> set[tuple[str, int]]:
    """The addresses and ports on which a process listens."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            target = str(link.readlink())
            if target.startswith("socket:["):
                inodes.add(target[len("socket:[") : -1])
    servers = set()
    for table in ("tcp", "tcp6"):
        for row in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            columns = row.split()
            if columns[3] == LISTENS and columns[9] in inodes:
                address, port = columns[1].split(":")
                servers.add((_readable(address), int(port, 16)))
    return servers


def _readable(address: str) -> str:
    """An address of /proc/net, whose words are in the byte order of the machine."""
    words = [int(address[i : i + 8], 16) for i in range(0, len(address), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    return socket.inet_ntop(family, packed).removeprefix("::ffff:")


def on_all_interfaces(servers: set[tuple[str, int]]) -> set[int]:
    return {port for address, port in servers if address in {"0.0.0.0", "::"}}  # noqa: S104


def own_address() -> str:
    """An address of this machine that is not loopback; loopback if it has no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: it only chooses an interface
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def send_nonsense(address: str, port: int) -> None:
    """Sends one message of Spark's protocol, with a body that is no message of the shuffle."""
    body = b"\x7f"
    header = struct.pack(">QBQI", 8 + 1 + 8 + 4 + len(body), RPC_REQUEST, 1, len(body))
    with socket.create_connection((address, port), timeout=5) as stranger:
        stranger.sendall(header + body)
        time.sleep(1.0)


def expose(name: str) -> Exposure:
    """Runs the query with the settings of this name, and lets a stranger at it."""
    with scene("local", 8, SETTINGS[name]) as stage:
        jvm = driver_process()
        if jvm is None:
            raise QueryNotStarted("Spark has no process of its own.")
        before = listening(jvm)
        topics = (stage.topic(f"{name}-in"), stage.topic(f"{name}-out"))
        running = run(stage, line(f"exposed-{name}", {"A": "true"}, TASKS, topics))
        came = _added(jvm, before)
        # Without a stranger the query lives, and a writer notices trouble when it writes.
        load = Load(stage.kafka, topics[0], rate_per_s=LOAD_PER_S)
        time.sleep(UNDISTURBED_S)
        alive = running.query.exception() is None
        stranger = own_address()
        open_ports = sorted(on_all_interfaces(came))
        connected = False
        if open_ports:
            with suppress(OSError):
                send_nonsense(stranger, open_ports[0])
                connected = True
        ended = _end_of(running.query)
        load.stop()
        return Exposure(
            name,
            len(before),
            len(on_all_interfaces(before)),
            len(came),
            len(open_ports),
            alive,
            stranger,
            connected,
            ended,
        )


def _added(jvm: int, before: set[tuple[str, int]]) -> set[tuple[str, int]]:
    """The servers that came with the query: a writer's task starts its own."""
    deadline = time.monotonic() + ENDS_S
    while time.monotonic() < deadline and not listening(jvm) - before:
        time.sleep(0.2)
    time.sleep(1.0)
    return listening(jvm) - before


def _end_of(query: Any) -> str:
    """The cause of a query's death; empty if it lives."""
    deadline = time.monotonic() + ENDS_S
    while time.monotonic() < deadline:
        if (failure := query.exception()) is not None:
            causes = [text.strip() for text in str(failure).splitlines() if text.strip()]
            return next((text for text in causes if "message" in text.lower()), causes[0])[:200]
        time.sleep(0.2)
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    for name in parser.parse_args().settings:
        print(json.dumps(asdict(expose(name))), flush=True)


if __name__ == "__main__":
    main()
