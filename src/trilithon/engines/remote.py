"""The client of a host's socket: implements the engine contract for its callers."""

import contextlib
import json
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trilithon.contract import wire
from trilithon.contract.engine import Accepted, Action, Capabilities, Condition, Outcome
from trilithon.errors import HostUnreachable, Refused
from trilithon.model.allocation import Allocation
from trilithon.model.job import Job
from trilithon.model.report import Report
from trilithon.recording import reports as report_forms
from trilithon.recording.snapshots import job_to_json


class RemoteEngine:
    """An engine in another process. `close` disconnects and leaves the engine running."""

    def __init__(self, path: Path, timeout_s: float = 60.0) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise HostUnreachable(
                f"No host answers at {path}: {error.strerror}.", "Start one with `trilithon run`."
            ) from error
        self._stream = self._socket.makefile("rwb")
        self._last_number = 0
        self._jobs: dict[str, tuple[Any, Job]] = {}

    def submit(self, job: Job, allocation: Allocation, checkpoint: str = "") -> Outcome:
        arguments = {
            "job": job_to_json(job),
            "allocation": wire.allocation_to_json(allocation),
            "checkpoint": checkpoint,
        }
        return wire.outcome_from_json(self._call("submit", arguments))

    def cancel(self, job: str, keep: bool = False) -> Outcome:
        return wire.outcome_from_json(self._call("cancel", {"job": job, "keep": keep}))

    def apply(self, action: Action) -> Outcome:
        return wire.outcome_from_json(self._call("apply", {"action": wire.action_to_json(action)}))

    def jobs(self) -> Mapping[str, Accepted]:
        accepted = {}
        for name, data in self._call("jobs", {}).items():
            # Parsing a job costs more than comparing its JSON, which rarely changes.
            cached = self._jobs.get(name)
            known = cached[1] if cached is not None and cached[0] == data["job"] else None
            accepted[name] = wire.accepted_from_json(data, known)
            self._jobs[name] = (data["job"], accepted[name].job)
        self._jobs = {name: known for name, known in self._jobs.items() if name in accepted}
        return accepted

    def conditions(self) -> Mapping[str, Condition]:
        answer = self._call("conditions", {})
        return {name: wire.condition_from_json(data) for name, data in answer.items()}

    def reports(self) -> Sequence[Report]:
        answer = self._call("reports", {"since": self._last_number})
        self._last_number = answer["upto"]
        return [report_forms.report_from_json(report) for report in answer["reports"]]

    def capabilities(self) -> Capabilities:
        return wire.capabilities_from_json(self._call("capabilities", {}))

    def load_python(self, file: str, folders: Sequence[str]) -> Mapping[str, Any]:
        """The jobs of a Python file in one of these folders, or its problems. The host runs it in
        a process of its own.
        """
        answer: dict[str, Any] = self._call("load", {"file": file, "folders": list(folders)})
        return answer

    def edge_records(self, job: str, edge: str, count: int) -> list[dict[str, Any]]:
        arguments = {"job": job, "edge": edge, "count": count}
        records: list[dict[str, Any]] = self._call("records", arguments)
        return records

    def end(self) -> None:
        """Stops the host and its jobs; their checkpoints stay."""
        self._call("end", {})

    def close(self) -> None:
        # A request that a dead host did not take is still in the buffer: it cannot be flushed.
        with contextlib.suppress(OSError):
            self._stream.close()
        self._socket.close()

    def _call(self, call: str, arguments: Mapping[str, Any]) -> Any:
        try:
            self._stream.write(json.dumps({"call": call, **arguments}).encode() + b"\n")
            self._stream.flush()
            line = self._stream.readline()
        except (OSError, ValueError) as error:
            raise HostUnreachable(f"The host does not answer: {error}.") from error
        if not line:
            raise HostUnreachable("The host closed the connection.")
        answer = json.loads(line)
        if (refused := answer.get("error")) is not None:
            raise Refused(refused["code"], refused["message"], refused["hint"])
        return answer["ok"]
