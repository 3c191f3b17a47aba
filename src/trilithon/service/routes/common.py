"""What all routes share: the daemon behind them, and limits of what one request may ask for."""

from typing import Annotated, Any, Final

from fastapi import Depends, Path, Query, Request

from trilithon.service.access.roles import Caller
from trilithon.service.daemon import Daemon
from trilithon.service.resources import JobLists
from trilithon.service.visibility import Redaction

API: Final = "/api/v1"
# The largest integer that SQLite keeps.
MAX_ID: Final = 2**63 - 1


async def _daemon(request: Request) -> Daemon:
    daemon: Daemon = request.app.state.daemon
    return daemon


async def _lists(request: Request) -> JobLists:
    lists: JobLists = request.app.state.job_lists
    return lists


Lists = Annotated[JobLists, Depends(_lists)]
Served = Annotated[Daemon, Depends(_daemon)]
Limit = Annotated[int, Query(ge=1, le=10_000)]
Since = Annotated[float, Query(ge=0, le=1e12, allow_inf_nan=False)]
EventId = Annotated[int, Query(ge=0, le=MAX_ID)]
Tenant = Annotated[str, Path(max_length=63)]
JobName = Annotated[str, Path(max_length=63)]


def redacted(daemon: Daemon, caller: Caller, data: Any) -> Any:
    """An answer without the names of jobs that the caller does not see."""
    return Redaction(caller, daemon.journal.jobs).data(data)
