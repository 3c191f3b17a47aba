"""Guards the border of the API: hosts that it answers to, bodies that it reads, and an answer to
whatever fails behind it.
"""

import time
from collections.abc import Callable, Iterable
from typing import Final

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trilithon import logs
from trilithon.errors import BodyTooLarge, NotUnderstood, TrilithonError
from trilithon.service.problems import refusal

MAX_BODY_BYTES: Final = 1 << 20
# Of a length that is a number; Python refuses to read far longer ones.
MAX_DIGITS: Final = 20
_log = logs.logger()


class KnownHosts:
    """Answers only to the names that it is served under: a page of another site must not reach it
    by DNS rebinding.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self.app = app
        self._hosts = frozenset(
            f"[{host}]" if ":" in host and host[0] != "[" else host.lower() for host in hosts
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = next((v for k, v in scope["headers"] if k == b"host"), b"").decode("latin-1")
            # `name`, `name:port`, `[address]` or `[address]:port`.
            name = given.partition("]")[0] + "]" if given[:1] == "[" else given.partition(":")[0]
            if name.lower() not in self._hosts:
                error = NotUnderstood(
                    "The service is not served under this name.", "`serve --name` adds names."
                )
                await refusal(error, 400)(scope, receive, send)
                return
        await self.app(scope, receive, send)


class Border:
    """Refuses large bodies before they are read, and answers failures of the application."""

    def __init__(
        self,
        app: ASGIApp,
        max_body_bytes: int = MAX_BODY_BYTES,
        observe: Callable[[str, int, float], None] = lambda *_: None,
    ) -> None:
        self.app, self.max_body_bytes, self._observe = app, max_body_bytes, observe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        declared = next((v for k, v in scope["headers"] if k == b"content-length"), b"0")
        began = time.monotonic()
        refused: JSONResponse | None = None
        if not declared.isdigit() or len(declared) > MAX_DIGITS:
            refused = refusal(NotUnderstood("The header Content-Length is no number."), 400)
        elif int(declared) > self.max_body_bytes:
            refused = refusal(self._too_large())
        if refused is not None:
            self._observe(scope["method"], refused.status_code, time.monotonic() - began)
            await refused(scope, receive, send)
            return
        started, read = False, 0

        async def counted() -> Message:
            """A body without a declared length counts while it is read."""
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self.max_body_bytes:
                raise self._too_large()
            return message

        async def noted(message: Message) -> None:
            nonlocal started
            if read > self.max_body_bytes:
                return  # whatever the application makes of a body that was cut off
            if not started:
                took_s = time.monotonic() - began
                self._observe(scope["method"], int(message["status"]), took_s)
            started = True
            await send(message)

        failure: TrilithonError | None = None
        try:
            await self.app(scope, counted, noted)
        except Exception as error:
            if started:
                raise
            if read <= self.max_body_bytes:
                where = {"method": scope["method"], "path": scope["path"]}
                _log.error("request_failed", **where, exc_info=error)
                failure = TrilithonError("The daemon failed.", "Its log has the traceback.")
        if read > self.max_body_bytes:
            failure = self._too_large()
        if failure is not None and not started:
            answer = refusal(failure)
            self._observe(scope["method"], answer.status_code, time.monotonic() - began)
            await answer(scope, receive, send)

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(f"The body has more than {self.max_body_bytes:,} bytes.")
