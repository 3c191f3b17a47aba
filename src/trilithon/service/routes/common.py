"""What all routes share: the daemon behind them, limits of what one request may ask for, and
answers.
"""

import json
from typing import Annotated, Any, Final

from fastapi import Depends, Path, Query, Request
from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse

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


class JsonAnswer(JSONResponse):
    """An answer as JSON. The document has its shape, and tests compare them: checking each value
    of each answer would cost more than to make it.
    """

    def render(self, content: Any) -> bytes:
        # What a policy publishes may have more than plain data in it.
        return json.dumps(
            content,
            ensure_ascii=False,
            allow_nan=False,
            separators=(",", ":"),
            default=jsonable_encoder,
        ).encode()


def redacted(daemon: Daemon, caller: Caller, data: Any) -> Any:
    """An answer without the names of jobs that the caller does not see."""
    return Redaction(caller, daemon.journal.jobs).data(data)
