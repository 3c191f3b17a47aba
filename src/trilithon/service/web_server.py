"""Runs the HTTP server of a daemon: in the main thread of `serve`, or beside a program that has a
daemon of its own.
"""

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn
from fastapi import FastAPI

from trilithon.errors import InvalidSetting
from trilithon.service.exposure import ANY, LOOPBACK, Exposure

STUCK_AFTER_S: Final = 20.0
SEND_BUFFER_BYTES: Final = 256 * 1024


def listen(port: int, address: str = LOOPBACK) -> socket.socket:
    """A socket on an address, by default on loopback; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address, port))
    except OSError as error:
        listening.close()
        raise InvalidSetting(
            f"The API cannot listen on {address} port {port}: {error.strerror}.",
            "Choose another port, or 0 for a free one.",
        ) from error
    # Little waits in the kernel for a client that does not read: what it gets is not old.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # Accepted connections inherit it: one whose client takes nothing for so long is ended.
        listening.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * STUCK_AFTER_S)
        )
    # A client that reads the address before the server is ready waits instead of being refused.
    listening.listen(128)
    return listening


def url_of(listening: socket.socket, *, tls: bool = False) -> str:
    """The URL under which this machine reaches the service."""
    address, port = listening.getsockname()[:2]
    host = LOOPBACK if address in ANY else f"[{address}]" if ":" in address else address
    return f"{'https' if tls else 'http'}://{host}:{port}"


def web_server(app: FastAPI, exposure: Exposure | None = None) -> uvicorn.Server:
    """A server that leaves signals to its caller, and ends when `should_exit` is set."""
    tls = exposure is not None and exposure.tls
    config = uvicorn.Config(
        # uvicorn logs like everybody else here, not in a form of its own.
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=3,
        server_header=False,
        ssl_certfile=exposure.certificate if exposure is not None and tls else None,
        ssl_keyfile=exposure.key if exposure is not None and tls else None,
    )
    server = uvicorn.Server(config)
    # uvicorn raises a signal again after it has ended by it; here a signal is a normal end.
    setattr(server, "capture_signals", contextlib.nullcontext)  # noqa: B010 - a method
    return server


@contextmanager
def serving_in_background(app: FastAPI, port: int = 0) -> Iterator[str]:
    """Serves in a thread of its own until the context ends; yields the URL."""
    listening = listen(port)
    server = web_server(app)
    thread = threading.Thread(
        target=lambda: server.run(sockets=[listening]), name="http", daemon=True
    )
    thread.start()
    try:
        yield url_of(listening)
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
