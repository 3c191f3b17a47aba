"""Owns the host: an engine behind a socket of its owner, which goes on when whoever called it dies.

One request per line, one answer per line, JSON. Jobs are changed by one caller at a time, and reports are
taken meanwhile: they are kept for a while, and every caller reads them from where it was. When nobody asks,
the host asks by itself, since that is when an engine looks after its jobs.
"""

import contextlib
import json
import os
import socket
import stat
import struct
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from trilithon.contract import wire
from trilithon.contract.engine import Engine
from trilithon.errors import EngineFailed, HostRuns, NotUnderstood, TrilithonError
from trilithon.model.report import Report
from trilithon.recording import reports as report_forms
from trilithon.recording.snapshots import job_from_json

# Ten minutes of reports of a few executors.
KEPT_REPORTS: Final = 2000
# A job file has at most 256 KiB; what is larger is no request.
LONGEST_REQUEST: Final = 4 * 2**20
LOOK_S: Final = 1.0
_CHANGING: Final = ("submit", "cancel", "apply")
ENDING_S: Final = 10.0
END_AFTER_S: Final = 0.2


class Host:
    """Serves an engine on a socket until it is closed."""

    def __init__(self, engine: Engine, path: Path) -> None:
        self.engine, self.path = engine, path
        self._changing: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._reading = threading.Lock()
        self._looked_s = 0.0
        self._reports: deque[tuple[int, Report]] = deque(maxlen=KEPT_REPORTS)
        self._number = 0
        self._stopped = threading.Event()
        self._socket = _listen(path)

    def serve(self) -> None:
        """Answers callers, each in a thread of its own, until `close`."""
        threading.Thread(target=self._look_after, daemon=True).start()
        while not self._stopped.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                break
            threading.Thread(target=self._answer_all, args=(connection,), daemon=True).start()

    @contextlib.contextmanager
    def in_background(self) -> Iterator[None]:
        """Answers callers from a thread of this process, and ends with whoever asked for it."""
        serving = threading.Thread(target=self.serve, daemon=True)
        serving.start()
        try:
            yield
        finally:
            self.close()
            serving.join(timeout=ENDING_S)

    def close(self) -> None:
        """Ends the host and its engine. A second call does nothing."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.path.unlink(missing_ok=True)
        with self._reading:
            self.engine.close()

    def _look_after(self) -> None:
        """Jobs are looked after also while nobody asks how they are."""
        while not self._stopped.wait(LOOK_S / 2):
            if time.monotonic() - self._looked_s > LOOK_S:
                with self._reading, contextlib.suppress(Exception):
                    self._take_reports()

    def _answer_all(self, connection: socket.socket) -> None:
        """Answers one caller until it is gone, however it goes."""
        with connection, connection.makefile("rb") as stream, contextlib.suppress(OSError):
            if _peer(connection) != os.getuid():
                return
            while not self._stopped.is_set():
                line = stream.readline(LONGEST_REQUEST)
                if not line.endswith(b"\n"):
                    return  # the caller is gone, or its request has no end
                connection.sendall(json.dumps(self._answer(line)).encode() + b"\n")

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            call: Callable[[dict[str, Any]], Any] = self._calls()[request["call"]]
            with self._lock_of(request):
                return {"ok": call(request)}
        except TrilithonError as error:
            return {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
        except (KeyError, TypeError, ValueError) as error:
            message = f"This is not a request: {type(error).__name__} {error}."
            return {"error": {"code": NotUnderstood.code, "message": message, "hint": ""}}
        except Exception as error:  # noqa: BLE001 - whatever an engine throws, the host goes on
            lines = str(error).strip().splitlines() or [""]
            message = f"The engine failed: {type(error).__name__} {lines[0]}"
            return {"error": {"code": EngineFailed.code, "message": message, "hint": ""}}

    def _lock_of(self, request: dict[str, Any]) -> threading.Lock:
        """A job is changed by one caller at a time, and none waits for another job's start."""
        return self._changing[_job_of(request)] if request["call"] in _CHANGING else self._reading

    def _calls(self) -> dict[str, Callable[[dict[str, Any]], Any]]:
        engine = self.engine
        return {
            "submit": lambda r: wire.outcome_to_json(
                engine.submit(
                    job_from_json(r["job"]),
                    wire.allocation_from_json(r["allocation"]),
                    str(r.get("checkpoint", "")),
                )
            ),
            "cancel": lambda r: wire.outcome_to_json(
                engine.cancel(r["job"], bool(r.get("keep", False)))
            ),
            "apply": lambda r: wire.outcome_to_json(
                engine.apply(wire.action_from_json(r["action"]))
            ),
            "capabilities": lambda _: wire.capabilities_to_json(engine.capabilities()),
            "jobs": lambda _: {
                name: wire.accepted_to_json(found) for name, found in engine.jobs().items()
            },
            "reports": lambda r: self._reports_since(int(r["since"])),
            "end": lambda _: self._end(),
        }

    def _end(self) -> None:
        """Ends the host, once whoever asked for it has the answer."""
        threading.Timer(END_AFTER_S, self.close).start()

    def _reports_since(self, since: int) -> dict[str, Any]:
        self._take_reports()
        found = [
            report_forms.report_to_json(report)
            for number, report in self._reports
            if number > since
        ]
        return {"upto": self._number, "reports": found}

    def _take_reports(self) -> None:
        self._looked_s = time.monotonic()
        if self._stopped.is_set():
            return
        for report in self.engine.reports():
            self._number += 1
            self._reports.append((self._number, report))


def _job_of(request: dict[str, Any]) -> str:
    """Which job a request changes; empty for the cluster."""
    if request["call"] == "submit":
        return f"{request['job']['tenant']}/{request['job']['name']}"
    if request["call"] == "cancel":
        return str(request["job"])
    action = request["action"]
    return str(action.get("allocation", action).get("job", ""))


def _listen(path: Path) -> socket.socket:
    """A socket that only its owner can open. One that nobody answers any more is taken over."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
        if _answers(path):
            raise HostRuns(f"A host answers at {path} already.", "Use it, or end it first.")
        path.unlink()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listening.bind(str(path))
    finally:
        os.umask(before)
    listening.listen(16)
    return listening


def _answers(path: Path) -> bool:
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as trial:
        try:
            trial.connect(str(path))
        except OSError:
            return False
        return True


def _peer(connection: socket.socket) -> int:
    """Whose process is at the other end."""
    if not hasattr(socket, "SO_PEERCRED"):
        return os.getuid()  # elsewhere the permissions of the file must do
    size = struct.calcsize("3i")
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(struct.unpack("3i", found)[1])
