"""Sends events to many clients: one reader of the journal for all, a bounded queue for each.

The loop of the controller never waits for a client. A client that does not read what it gets is
dropped: it can come back with `Last-Event-ID` and misses no event of the journal. The stream of a
client whose token or session has ended is closed within a second.
"""

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.concurrency import run_in_threadpool

from trilithon import logs
from trilithon.control.journal import Journal
from trilithon.control.journal.rows import EventRow
from trilithon.errors import TooManyRequests
from trilithon.service.access.roles import Caller
from trilithon.service.monitor.facts import RoundFacts
from trilithon.service.monitor.snapshots import RoundSnapshot
from trilithon.service.visibility import Redaction, sees_job

READ_EVERY_S: Final = 0.25
# How often the callers of all streams are checked again.
CHECK_EVERY_S: Final = 1.0
# Messages that may wait for a client; beyond that it is dropped.
QUEUE: Final = 64
MAX_CLIENTS: Final = 1000
MAX_CLIENTS_PER_TOKEN: Final = 250
# A comment that shows proxies and clients that the connection lives.
PING_EVERY_S: Final = 15.0
PING: Final = b": alive\n\n"
_log = logs.logger()


def encoded(event: str, text: str, id_: int | None = None) -> bytes:
    """A server-sent event with JSON in one line."""
    head = f"event: {event}\n" + (f"id: {id_}\n" if id_ is not None else "")
    return f"{head}data: {text}\n\n".encode()


@dataclass(eq=False)
class _Client:
    caller: Caller
    snapshots: bool
    # From which event of the journal on it is served by the hub.
    after: int
    queue: "asyncio.Queue[bytes]" = field(default_factory=lambda: asyncio.Queue(QUEUE))
    dropped: bool = False

    def put(self, message: bytes) -> bool:
        try:
            self.queue.put_nowait(message)
        except asyncio.QueueFull:
            return False
        return True

    def end(self) -> None:
        """Ends the stream at once, without what waits for it."""
        self.dropped = True
        while not self.queue.empty():
            self.queue.get_nowait()
        self.queue.put_nowait(b"")


class Hub:
    """The clients of a daemon's event stream. All of it but `publish` runs in the event loop."""

    def __init__(
        self,
        journal: Journal,
        event_data: Callable[[EventRow], dict[str, Any]],
        is_valid: Callable[[Caller], bool],
    ) -> None:
        self._journal, self._event_data, self._is_valid = journal, event_data, is_valid
        self._clients: set[_Client] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reader: asyncio.Task[None] | None = None
        self._upto = 0
        self._lock = threading.Lock()
        self.dropped = 0

    @property
    def clients(self) -> int:
        return len(self._clients)

    def publish(self, facts: RoundFacts) -> None:
        """Sends the facts of a round to those who want them. Called by the controller's thread;
        nothing here waits.
        """
        with self._lock:
            loop = self._loop
        if loop is not None and self._clients:
            with contextlib.suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(self._send_snapshot, facts)

    async def stream(
        self, caller: Caller, after: int | None, *, snapshots: bool, stopping: Callable[[], bool]
    ) -> AsyncGenerator[bytes]:
        """What one client gets, until it leaves, is dropped, its token or session ends, or the
        daemon stops.
        """
        await self._ensure_reader(stopping)
        client = _Client(caller, snapshots, self._upto)
        self._clients.add(client)
        try:
            yield PING  # so that the client sees the connection before something happens
            last = self._upto if after is None else after
            while last < client.after and not client.dropped:
                read = await run_in_threadpool(self._journal.events, last)
                known = await run_in_threadpool(self._journal.jobs)
                rows = [row for row in read if row.id <= client.after]
                if past := self._events(rows, caller, known):
                    yield past
                last = rows[-1].id if rows else client.after
            while not client.dropped:
                yield await client.queue.get()
        finally:
            self._clients.discard(client)

    def admit(self, caller: Caller) -> None:
        """Refuses a client beyond the limits, before the stream begins."""
        own = sum(1 for client in self._clients if client.caller.token == caller.token)
        if len(self._clients) >= MAX_CLIENTS or own >= MAX_CLIENTS_PER_TOKEN:
            raise TooManyRequests("Too many event streams are open.", "Close one.", 30.0)

    async def _ensure_reader(self, stopping: Callable[[], bool]) -> None:
        with self._lock:
            self._loop = asyncio.get_running_loop()
        if self._reader is None or self._reader.done() or self._reader.get_loop() != self._loop:
            self._upto = await run_in_threadpool(self._journal.last_event)
            self._reader = asyncio.create_task(self._read(stopping))

    async def _read(self, stopping: Callable[[], bool]) -> None:
        """Follows the journal for all clients, as long as there are any, and sends a sign of life
        to those for whom nothing waits: one timer for all of them.
        """
        idle_s = quiet_s = checked_s = 0.0
        while not stopping() and idle_s < 2 * PING_EVERY_S:
            try:
                rows = await run_in_threadpool(self._journal.events, self._upto)
                known = await run_in_threadpool(self._journal.jobs) if rows else ()
            except Exception:  # noqa: BLE001 - the next look may succeed
                _log.exception("events_not_read")
                rows = ()
            if rows:
                self._upto = rows[-1].id
                self._send_events(rows, known)
            await asyncio.sleep(READ_EVERY_S)
            idle_s = 0.0 if self._clients else idle_s + READ_EVERY_S
            quiet_s, checked_s = quiet_s + READ_EVERY_S, checked_s + READ_EVERY_S
            if checked_s >= CHECK_EVERY_S:
                checked_s = 0.0
                self._end_invalid()
            if quiet_s >= PING_EVERY_S:
                quiet_s = 0.0
                for client in self._clients:
                    if client.queue.empty():
                        client.put(PING)
        for client in list(self._clients):
            if not client.put(b""):
                self._drop(client)
            else:
                client.dropped = True

    def _events(self, rows: Sequence[EventRow], caller: Caller, known: Collection[str]) -> bytes:
        """What a caller gets of some events; `known` are all jobs of the journal."""
        redaction = Redaction(caller, lambda: known)
        seen = ((row, redaction.data(self._event_data(row))) for row in rows)
        return b"".join(
            encoded(row.kind, json.dumps(data, ensure_ascii=False, allow_nan=False), row.id)
            for row, data in seen
            if sees_job(caller, row.job)
        )

    def _send_events(self, rows: Sequence[EventRow], known: Collection[str]) -> None:
        """Several events are one message: a burst of them makes nobody look slow."""
        self._send(list(self._clients), lambda caller: self._events(rows, caller, known))

    def _send_snapshot(self, facts: RoundFacts) -> None:
        clients, snapshot = [each for each in self._clients if each.snapshots], RoundSnapshot(facts)
        self._send(clients, lambda caller: encoded("snapshot", snapshot.text(caller)))

    def _send(self, clients: Iterable[_Client], make: Callable[[Caller], bytes]) -> None:
        """Callers with the same rights get the same bytes, made once."""
        made: dict[tuple[bool, frozenset[str]], bytes] = {}
        for client in clients:
            key = (client.caller.cluster_admin, frozenset(client.caller.grants))
            if key not in made:
                made[key] = make(client.caller)
            if made[key] and not client.put(made[key]):
                self._drop(client)

    def _end_invalid(self) -> None:
        """Ends the streams of callers whose token was revoked or has expired, or whose session has
        ended since the stream began.
        """
        for client in list(self._clients):
            if not self._is_valid(client.caller):
                client.end()
                self._clients.discard(client)
                _log.info("stream_of_invalid_caller_ended", token=client.caller.token)

    def _drop(self, client: _Client) -> None:
        """Sends a client nothing more. Its stream ends with the message that is under way; if the
        client takes none of that, the kernel ends the connection (`web_server.STUCK_AFTER_S`).
        """
        client.dropped = True
        self.dropped += 1
        self._clients.discard(client)
        _log.info("slow_client_dropped", token=client.caller.token, waiting=QUEUE)
