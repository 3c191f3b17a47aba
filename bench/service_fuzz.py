"""Sends a daemon requests that make no sense: none may end as a 500, and memory must stay flat.

    python -m bench.service_fuzz              20,000 requests
    python -m bench.service_fuzz --count 500  the short form that the tests run

`trilithon serve --engine simulated` runs in a process of its own and is asked over sockets: paths,
methods, headers, queries and bodies are made from the OpenAPI document and then broken in a seeded
way. The second half of the requests may not make the process larger by more than a twentieth.
"""

import argparse
import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trilithon.service.address import published
from trilithon.service.api import document, routed_app

WORDS = (
    "ads pageload henge .. %2e%2e %00 a/b ' \" <script> -1 0 1e400 NaN Infinity true null 💥 ٣ "
    "99999999999999999999999 * {} [] $(id) ;DROP --"
).split()
METHODS = ("GET", "PUT", "POST", "DELETE", "PATCH", "HEAD", "OPTIONS", "BREW")
SETTINGS = "requests: {per_s: 1000000, burst: 1000000, body_bytes: 65536}\n"


@contextmanager
def simulated_daemon(folder: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """A daemon as users have it, with limits that do not end the fuzzing."""
    (folder / "service.yaml").write_text(SETTINGS, encoding="utf-8")
    options = ["--engine", "simulated", "--service", str(folder / "service.yaml")]
    options += ["--log-level", "error"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "trilithon", "serve", *options],
            env={**os.environ, "TRILITHON_STATE": str(folder)},
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
    try:
        yield process.pid, published(folder / "daemon", 60.0)
    finally:
        process.terminate()
        process.wait(60)


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Fuzzer:
    """Makes requests, the same ones for the same seed."""

    def __init__(self, seed: int, token: str) -> None:
        self.random, self.token = random.Random(seed), token  # noqa: S311 - repeatable
        self.operations = [
            (method.upper(), path, operation)
            for path, methods in document(routed_app())["paths"].items()
            for method, operation in methods.items()
            if not path.endswith("/events")  # it does not end
        ]

    def request(self) -> tuple[str, str, dict[str, str], bytes | None]:
        pick = self.random
        method, path, operation = pick.choice(self.operations)
        if pick.random() < 0.1:
            method = pick.choice(METHODS)
        while "{" in path:
            start, _, rest = path.partition("{")
            name, _, end = rest.partition("}")
            real = {"tenant": "ads", "name": "pageload", "report": "crunch", "place": "clicks"}
            value = real.get(name, "x") if pick.random() < 0.6 else self._quoted(self.word())
            path = f"{start}{value}{end}"
        names = [p["name"] for p in operation.get("parameters", ()) if p["in"] == "query"]
        query = "&".join(
            f"{name}={self._quoted(self.word())}" for name in names if pick.random() < 0.4
        )
        headers = {"Content-Type": pick.choice(("application/json", "text/plain", "", "a/b;c"))}
        if pick.random() < 0.8:
            headers["Content-Type"] = "application/json"
        if pick.random() < 0.9:
            headers["Authorization"] = f"Bearer {self.token}"
        elif pick.random() < 0.5:
            headers["Authorization"] = self._quoted(self.word())
        for name in ("If-Match", "If-None-Match", "Cookie", "X-CSRF-Token", "Last-Event-ID"):
            if pick.random() < 0.05:
                headers[name] = self._quoted(self.word())
        body = self.body() if method in {"PUT", "POST", "PATCH"} or pick.random() < 0.05 else None
        return method, f"{path}?{query}" if query else path, headers, body

    def word(self) -> str:
        pick = self.random
        if pick.random() < 0.2:
            return "".join(chr(pick.randrange(0x20, 0x3000)) for _ in range(pick.randrange(40)))
        return pick.choice(WORDS) * (1 if pick.random() < 0.95 else 200)

    def body(self) -> bytes:
        pick = self.random
        kind = pick.random()
        if kind < 0.15:
            return pick.randbytes(pick.randrange(200))
        if kind < 0.2:
            return b"[" * pick.choice((100, 30_000))
        if kind < 0.22:
            return b'{"spec": "' + b"x" * 70_000 + b'"}'
        text = json.dumps(self._value(4))
        return text[: pick.randrange(len(text) + 1)].encode() if kind < 0.3 else text.encode()

    def _value(self, depth: int) -> Any:
        pick = self.random
        kind = pick.randrange(8 if depth else 5)
        if kind >= 5:
            keys = (
                "spec mode anew priority intent machines job dry_run name grants cluster_admin "
                "lifetime_s sources operators slo"
            ).split()
            return {
                pick.choice(keys) if pick.random() < 0.9 else self.word(): self._value(depth - 1)
                for _ in range(pick.randrange(5))
            }
        return (
            self.word(),
            pick.choice((0, -1, 2**63, 10**400, 1.5, 1e308)),
            pick.choice((True, False, None)),
            [self._value(depth - 1) for _ in range(pick.randrange(4))] if depth else [],
            pick.choice((float("nan"), float("inf"), "auto", "off", "viewer", {"ads": "viewer"})),
        )[kind]

    @staticmethod
    def _quoted(text: str) -> str:
        """As it can stand in a request line or a header."""
        return "".join(
            c if c.isascii() and c.isprintable() and c not in " #?&" else f"%{ord(c) & 255:02X}"
            for c in text
        )


def fuzz(count: int, seed: int = 1) -> dict[str, Any]:
    statuses: Counter[int] = Counter()
    broken: list[str] = []
    with tempfile.TemporaryDirectory() as name, simulated_daemon(Path(name)) as (pid, address):
        fuzzer = Fuzzer(seed, address["token"])
        host = address["url"].removeprefix("http://")
        connection = http.client.HTTPConnection(host, timeout=30)
        half = 0.0
        began = time.monotonic()
        for number in range(count):
            method, path, headers, body = fuzzer.request()
            try:
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
                answer.read()
                statuses[answer.status] += 1
                if answer.status >= 500 and answer.status != 503:
                    broken.append(f"{answer.status} {method} {path} {headers} {body!r}"[:500])
            except (http.client.HTTPException, OSError) as error:
                statuses[-1] += 1
                if not isinstance(error, http.client.RemoteDisconnected | ConnectionError):
                    broken.append(f"{error!r} {method} {path}"[:500])
                connection.close()
            if number == count // 2:
                half = resident_mib(pid)
        connection.close()
        took_s = time.monotonic() - began
        end = resident_mib(pid)
        log = (Path(name) / "log").read_text(encoding="utf-8", errors="replace")
        alive = Path(f"/proc/{pid}").exists()
    return {
        "requests": count,
        "statuses": dict(sorted(statuses.items())),
        "broken": broken,
        "half_mib": half,
        "end_mib": end,
        "took_s": took_s,
        "alive": alive,
        "errors_logged": log.count("request_failed"),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--count", type=int, default=20_000)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    result = fuzz(given.count, given.seed)
    print(f"{result['requests']} requests in {result['took_s']:.0f} s, by status:")
    print("  " + ", ".join(f"{k} {v}" for k, v in result["statuses"].items()))
    print(
        f"resident after half of them {result['half_mib']:.1f} MiB, at the end "
        f"{result['end_mib']:.1f} MiB ({100 * (result['end_mib'] / result['half_mib'] - 1):+.1f} %)"
    )
    for line in result["broken"][:10]:
        print(f"  {line}")
    assert not result["broken"]
    assert result["alive"]
    assert not result["errors_logged"]
    assert result["end_mib"] < 1.05 * result["half_mib"]


if __name__ == "__main__":
    main()
