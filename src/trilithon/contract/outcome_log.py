"""Logs the outcome of each call that changes a job, in the host and in the daemon."""

from typing import Any

from trilithon import logs
from trilithon.model.action import Outcome, Status

_log = logs.logger()
_LEVELS = {Status.DONE: "info", Status.UNCHANGED: "debug"}


def log_outcome(outcome: Outcome, call: str, job: str, **fields: Any) -> None:
    """`call` is the method that was called: submit, cancel, apply."""
    details = {"code": outcome.code, "message": outcome.message, "took_s": outcome.took_s}
    fields |= {name: value for name, value in details.items() if value}
    write = getattr(_log, _LEVELS.get(outcome.status, "warning"))
    write("engine_action", call=call, job=job, status=outcome.status.value, **fields)
