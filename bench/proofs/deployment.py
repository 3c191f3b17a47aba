"""`trilithon serve` with its host, as users have it: processes of their own in a state folder."""

import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trilithon.model.job import Job
from trilithon.spec.dump import dump_job

POLL_S = 0.1
STARTS_S = 180.0


def await_that(what: str, holds: Callable[[], bool], timeout_s: float) -> float:
    """Waits for something, and returns how long that took."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > timeout_s:
            raise RuntimeError(f"timeout after {timeout_s:g} s: {what}")
        time.sleep(POLL_S)
    return time.monotonic() - began


class Deployment:
    """A running daemon; asks its API for the jobs ten times a second, and keeps what it said."""

    def __init__(self, folder: Path, process: "subprocess.Popen[bytes]") -> None:
        self.folder, self.process = folder, process
        # When, and the state of each job then; None if the daemon did not answer.
        self.timeline: list[tuple[float, dict[str, str] | None]] = []
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        address = json.loads((self.folder / "daemon" / "daemon.json").read_text(encoding="utf-8"))
        request = urllib.request.Request(  # noqa: S310 - our own daemon
            f"{address['url']}/api/v1{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {address['token']}",
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return json.load(answer)

    def states(self) -> dict[str, str]:
        rows = self.ask("GET", "/jobs")
        return {row["metadata"]["id"]: row["status"]["state"] for row in rows}

    def problems(self) -> dict[str, str]:
        rows = self.ask("GET", "/jobs")
        return {row["metadata"]["id"]: row["status"]["problem"] for row in rows}

    def events(self, job: str) -> list[str]:
        """The kinds of the job's events, the oldest first."""
        history = self.ask("GET", f"/jobs/{job}/history")
        return [event["kind"] for event in history["events"]]

    def submit(self, jobs: Sequence[Job], timeout_s: float = STARTS_S) -> None:
        for job in jobs:
            self.ask("PUT", f"/jobs/{job.id}", {"spec": dump_job(job)})
        await_that("all jobs run", lambda: self.all_run(self.states()), timeout_s)
        self._watcher.start()

    @staticmethod
    def all_run(states: dict[str, str] | None) -> bool:
        return states is not None and set(states.values()) == {"running"}

    def first(self, since: float, holds: Callable[[dict[str, str] | None], bool]) -> float | None:
        """Seconds from a time to the first moment at which the states fulfil a condition."""
        for at, states in list(self.timeline):
            if at >= since and holds(states):
                return round(at - since, 2)
        return None

    @property
    def host(self) -> int:
        """The process of the host."""
        children = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        (pid,) = {int(pid) for child in children for pid in child.read_text().split()}
        return pid

    def _watch(self) -> None:
        while not self._ended.wait(POLL_S):
            at = time.time()
            try:
                states: dict[str, str] | None = self.states()
            except (OSError, ValueError):
                states = None
            self.timeline.append((at, states))

    def close(self) -> None:
        self._ended.set()
        self.process.terminate()
        self.process.wait(60)


@contextmanager
def deployed(folder: Path, *options: str) -> Iterator[Deployment]:
    """A daemon that ends, with its host, at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "serve.log"
    with log.open("ab") as stream:
        process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "trilithon", "serve", "--with-jobs", *options],
            env={**os.environ, "TRILITHON_STATE": str(folder)},
            stdout=stream,
            stderr=stream,
        )
    deployment = Deployment(folder, process)

    def answers() -> bool:
        if process.poll() is not None:
            logs = (path for path in (log, folder / "host.log") if path.is_file())
            raise RuntimeError("\n".join(path.read_text("utf-8")[-3000:] for path in logs))
        try:
            return bool(deployment.ask("GET", "/health")["status"] == "ok")
        except (OSError, ValueError):
            return False

    try:
        await_that("the daemon answers", answers, STARTS_S)
        yield deployment
    finally:
        deployment.close()
