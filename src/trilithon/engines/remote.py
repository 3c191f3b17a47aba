"""Owns the other end of a host's socket: an engine like any other to whoever calls it."""

import json
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trilithon.contract import wire
from trilithon.contract.engine import Accepted, Action, Capabilities, Outcome
from trilithon.errors import HostUnreachable, Refused
from trilithon.model.allocation import Allocation
from trilithon.model.job import Job
from trilithon.model.report import Report
from trilithon.recording import reports as report_forms
from trilithon.recording.snapshots import job_to_json


class RemoteEngine:
    """An engine in another process. Closing it leaves that one alone."""

    def __init__(self, path: Path, patience_s: float = 60.0) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(patience_s)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise HostUnreachable(
                f"No host answers at {path}: {error.strerror}.", "Start one with `trilithon run`."
            ) from error
        self._stream = self._socket.makefile("rwb")
        self._upto = 0
        self._jobs: dict[str, tuple[Any, Job]] = {}

    def submit(self, job: Job, allocation: Allocation, checkpoint: str = "") -> Outcome:
        given = {
            "job": job_to_json(job),
            "allocation": wire.allocation_to_json(allocation),
            "checkpoint": checkpoint,
        }
        return wire.outcome_from_json(self._ask("submit", given))

    def cancel(self, job: str, keep: bool = False) -> Outcome:
        return wire.outcome_from_json(self._ask("cancel", {"job": job, "keep": keep}))

    def apply(self, action: Action) -> Outcome:
        return wire.outcome_from_json(self._ask("apply", {"action": wire.action_to_json(action)}))

    def jobs(self) -> Mapping[str, Accepted]:
        found = {}
        for name, data in self._ask("jobs", {}).items():
            # Making a job of its file costs more than comparing two files, and it rarely changes.
            before = self._jobs.get(name)
            known = before[1] if before is not None and before[0] == data["job"] else None
            found[name] = wire.accepted_from_json(data, known)
            self._jobs[name] = (data["job"], found[name].job)
        self._jobs = {name: known for name, known in self._jobs.items() if name in found}
        return found

    def reports(self) -> Sequence[Report]:
        answer = self._ask("reports", {"since": self._upto})
        self._upto = answer["upto"]
        return [report_forms.report_from_json(report) for report in answer["reports"]]

    def capabilities(self) -> Capabilities:
        return wire.capabilities_from_json(self._ask("capabilities", {}))

    def end(self) -> None:
        """Ends the host and its jobs; their checkpoints stay."""
        self._ask("end", {})

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def _ask(self, call: str, given: Mapping[str, Any]) -> Any:
        try:
            self._stream.write(json.dumps({"call": call, **given}).encode() + b"\n")
            self._stream.flush()
            line = self._stream.readline()
        except (OSError, ValueError) as error:
            raise HostUnreachable(f"The host does not answer: {error}.") from error
        if not line:
            raise HostUnreachable("The host ended the connection.")
        answer = json.loads(line)
        if (refused := answer.get("error")) is not None:
            raise Refused(refused["code"], refused["message"], refused["hint"])
        return answer["ok"]
