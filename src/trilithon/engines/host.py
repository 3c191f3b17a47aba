"""Serves an engine on a Unix socket; goes on running when its clients die.

One request and one response per line, as JSON. Requests that change a job are serialized per job;
reports are read in parallel to them. The host keeps the latest reports, and each client reads on
from the number it has. Without clients the host polls the engine itself, because an engine
supervises its jobs when it is asked for reports.
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
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from trilithon import logs
from trilithon.contract import wire
from trilithon.contract.engine import Engine, ShowsRecords
from trilithon.contract.outcome_log import log_outcome
from trilithon.engines.python_jobs import load_python
from trilithon.errors import (
    EngineFailed,
    HostRuns,
    NotObservable,
    NotUnderstood,
    TrilithonError,
)
from trilithon.model.report import Report
from trilithon.recording import reports as report_forms
from trilithon.recording.snapshots import job_from_json

# Ten minutes of reports of a few executors.
KEPT_REPORTS: Final = 2000
# A job file has at most 256 KiB: a longer line is not a valid request.
MAX_REQUEST_BYTES: Final = 4 * 2**20
IDLE_POLL_S: Final = 1.0
_CHANGING_CALLS: Final = ("submit", "cancel", "apply")
SHUTDOWN_TIMEOUT_S: Final = 10.0
END_DELAY_S: Final = 0.2
_log = logs.logger()


class Host:
    """Serves an engine on a socket until it is closed."""

    def __init__(self, engine: Engine, path: Path) -> None:
        self.engine, self.path = engine, path
        self._job_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._reports_lock = threading.Lock()
        self._load_lock = threading.Lock()
        self._polled_s = 0.0
        self._reports: deque[tuple[int, Report]] = deque(maxlen=KEPT_REPORTS)
        self._last_number = 0
        self._stopped = threading.Event()
        self._socket = _listen(path)

    def serve(self) -> None:
        """Serves clients, each in its own thread, until `close`."""
        threading.Thread(target=self._poll_when_idle, daemon=True).start()
        while not self._stopped.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                break
            threading.Thread(target=self._serve_connection, args=(connection,), daemon=True).start()

    @contextlib.contextmanager
    def in_background(self) -> Iterator[None]:
        """Serves clients from a thread of this process until the context ends."""
        serving = threading.Thread(target=self.serve, daemon=True)
        serving.start()
        try:
            yield
        finally:
            self.close()
            serving.join(timeout=SHUTDOWN_TIMEOUT_S)

    @property
    def closed(self) -> bool:
        """Whether it was told to stop."""
        return self._stopped.is_set()

    def close(self) -> None:
        """Stops the host and closes its engine. A second call does nothing."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        # Before the socket is closed: `serve` returns then, and the process may end.
        self.path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with self._reports_lock:
            self.engine.close()

    def _poll_when_idle(self) -> None:
        """Polls the engine while no client does, so that it supervises its jobs."""
        failure = ""
        while not self._stopped.wait(IDLE_POLL_S / 2):
            if time.monotonic() - self._polled_s <= IDLE_POLL_S:
                continue
            try:
                with self._reports_lock:
                    self._take_reports()
                failure = ""
            except Exception as error:  # noqa: BLE001 - the next poll may succeed
                if (repeated := f"{type(error).__name__}: {error}") != failure:
                    _log.exception("supervision_failed")
                failure = repeated

    def _serve_connection(self, connection: socket.socket) -> None:
        """Serves one client until it disconnects."""
        with connection, connection.makefile("rb") as stream, contextlib.suppress(OSError):
            if _peer_uid(connection) != os.getuid():
                return
            while not self._stopped.is_set():
                line = stream.readline(MAX_REQUEST_BYTES)
                if not line.endswith(b"\n"):
                    return  # the client disconnected, or its request is too long
                connection.sendall(json.dumps(self._handle(line)).encode() + b"\n")

    def _handle(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            call: Callable[[dict[str, Any]], Any] = self._calls()[request["call"]]
            with self._lock_for(request):
                answer = call(request)
        except TrilithonError as error:
            _log.warning("call_refused", code=error.code, message=error.message)
            return {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
        except (KeyError, TypeError, ValueError) as error:
            _log.warning("call_not_understood", exc_info=True)
            message = f"The host cannot read this request: {type(error).__name__} {error}."
            return {"error": {"code": NotUnderstood.code, "message": message, "hint": ""}}
        except Exception as error:  # noqa: BLE001 - the host survives any engine error
            _log.exception("engine_failed", call=request["call"])
            lines = str(error).strip().splitlines() or [""]
            message = f"The engine failed: {type(error).__name__} {lines[0]}"
            return {"error": {"code": EngineFailed.code, "message": message, "hint": ""}}
        if request["call"] in _CHANGING_CALLS:
            log_outcome(wire.outcome_from_json(answer), request["call"], _job_of(request))
        return {"ok": answer}

    def _lock_for(self, request: dict[str, Any]) -> AbstractContextManager[object]:
        """One lock per job for changes, so that no job waits for another's start; one for reads.
        A Python file may run for long, and records may be long in coming: reads wait for neither.
        """
        if request["call"] == "load":
            return self._load_lock
        if request["call"] == "records":
            return contextlib.nullcontext()
        return (
            self._job_locks[_job_of(request)]
            if request["call"] in _CHANGING_CALLS
            else self._reports_lock
        )

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
                name: wire.accepted_to_json(accepted) for name, accepted in engine.jobs().items()
            },
            "conditions": lambda _: {
                name: wire.condition_to_json(condition)
                for name, condition in engine.conditions().items()
            },
            "reports": lambda r: self._reports_since(int(r["since"])),
            "records": lambda r: self._records(str(r["job"]), str(r["edge"]), int(r["count"])),
            "load": lambda r: load_python(str(r["file"]), [str(f) for f in r["folders"]]),
            "end": lambda _: self._end(),
        }

    def _records(self, job: str, edge: str, count: int) -> list[dict[str, Any]]:
        if not isinstance(self.engine, ShowsRecords):
            raise NotObservable("This engine shows no records inside a query.")
        return self.engine.edge_records(job, edge, count)

    def _end(self) -> None:
        """Stops the host after the client has got the response."""
        threading.Timer(END_DELAY_S, self.close).start()

    def _reports_since(self, since: int) -> dict[str, Any]:
        self._take_reports()
        newer = [
            report_forms.report_to_json(report)
            for number, report in self._reports
            if number > since
        ]
        return {"upto": self._last_number, "reports": newer}

    def _take_reports(self) -> None:
        self._polled_s = time.monotonic()
        if self._stopped.is_set():
            return
        for report in self.engine.reports():
            self._last_number += 1
            self._reports.append((self._last_number, report))


def _job_of(request: dict[str, Any]) -> str:
    """The job that a request changes; empty for one that changes the cluster."""
    if request["call"] == "submit":
        return f"{request['job']['tenant']}/{request['job']['name']}"
    if request["call"] == "cancel":
        return str(request["job"])
    action = request["action"]
    return str(action.get("allocation", action).get("job", ""))


def _listen(path: Path) -> socket.socket:
    """A socket that only its owner can open. It replaces one whose host no longer runs."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
        if _is_served(path):
            raise HostRuns(f"Another host serves {path} already.", "Use it, or stop it first.")
        path.unlink()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listening.bind(str(path))
    finally:
        os.umask(before)
    listening.listen(16)
    return listening


def _is_served(path: Path) -> bool:
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as trial:
        try:
            trial.connect(str(path))
        except OSError:
            return False
        return True


def _peer_uid(connection: socket.socket) -> int:
    """The user id of the process at the other end."""
    if not hasattr(socket, "SO_PEERCRED"):
        return os.getuid()  # not Linux: the permissions of the socket must do
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(struct.unpack("3i", credentials)[1])
