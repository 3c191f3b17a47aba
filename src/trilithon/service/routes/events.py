"""What happens, as it happens: server-sent events of the journal, and of each round's snapshot."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from trilithon.service.access.gate import AnyCaller
from trilithon.service.routes.common import MAX_ID, Served

router = APIRouter(tags=["events"])
STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "server-sent events, until the client leaves; `data` of an event is JSON",
        "content": {
            "text/event-stream": {
                "schema": {"type": "string"},
                # OpenAPI 3.1 has no word for it: the shape of `data`, by the event's name.
                "x-event-data": {
                    "snapshot": {"$ref": "#/components/schemas/SnapshotAnswer"},
                    "*": {"$ref": "#/components/schemas/Event"},
                },
            }
        },
    }
}


@router.get("/events", response_class=StreamingResponse, responses=STREAM)
async def events(
    daemon: Served,
    caller: AnyCaller,
    after: Annotated[int | None, Query(ge=0, le=MAX_ID)] = None,
    snapshots: Annotated[bool, Query(description="also an event `snapshot` each round")] = False,
    last_event_id: Annotated[str | None, Header(max_length=20)] = None,
) -> StreamingResponse:
    """Events of the journal as they happen: decisions, alerts, states. From `after` on, or from
    the `Last-Event-ID` of a client that comes back. A client that does not read is dropped, and so
    is one whose token or session has ended.
    """
    upto = after
    if upto is None and last_event_id and last_event_id.isascii() and last_event_id.isdigit():
        upto = min(int(last_event_id), MAX_ID)
    daemon.monitor.hub.admit(caller)
    stream = daemon.monitor.hub.stream(
        caller, upto, snapshots=snapshots, stopping=lambda: daemon.stopping
    )
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)
