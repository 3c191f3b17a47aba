"""Owns the client of the daemon's API: its address, its token, its errors as exceptions."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from trilithon import folders
from trilithon.errors import (
    DaemonUnreachable,
    InvalidJob,
    InvalidSetting,
    Problem,
    Refused,
    TrilithonError,
)
from trilithon.service.address import published

if TYPE_CHECKING:
    import ssl

    import httpx2

PATIENCE_S: Final = 30.0
URL: Final = "TRILITHON_URL"
TOKEN: Final = "TRILITHON_TOKEN"  # noqa: S105 - the name of a variable
CA: Final = "TRILITHON_CA"
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
API: Final = "/api/v1"


class Client:
    """Sends requests to a daemon."""

    def __init__(self, http: "httpx2.Client") -> None:
        self._http = http

    @property
    def url(self) -> str:
        """Where the daemon's pages are."""
        return str(self._http.base_url).rstrip("/").removesuffix(API)

    def get(self, path: str, **params: Any) -> Any:
        return self._ask("GET", path, params=params)

    def post(self, path: str, body: Any = None) -> Any:
        return self._ask("POST", path, json=body)

    def put(self, path: str, body: Any, **params: Any) -> Any:
        return self._ask("PUT", path, json=body, params=params)

    def delete(self, path: str) -> Any:
        return self._ask("DELETE", path)

    def _ask(self, method: str, path: str, **given: Any) -> Any:
        import httpx2  # noqa: PLC0415 - slow to import, and most commands do without

        try:
            answer = self._http.request(method, path, **given)
            data = answer.json()
        except (httpx2.HTTPError, ValueError) as error:
            raise DaemonUnreachable(
                f"The daemon at {self._http.base_url} does not answer: {error}.",
                "Start one with `trilithon serve`.",
            ) from error
        if answer.is_success:
            return data
        raise _refusal(data)


def _refusal(error: dict[str, Any]) -> TrilithonError:
    problems = [
        Problem(p["code"], p["path"], p["message"], p["hint"]) for p in error.get("problems", [])
    ]
    if problems:
        return InvalidJob(problems)
    return Refused(error.get("code", "REFUSED"), error.get("detail", ""), error.get("hint", ""))


@contextmanager
def client(patience_s: float = 0.0) -> Iterator[Client]:
    """The client of the daemon at $TRILITHON_URL, or of the daemon of this state folder.
    `patience_s`: how long to wait for a daemon of this machine that may be starting.
    """
    import httpx2  # noqa: PLC0415 - slow to import, and most commands do without

    url, token, own_certificate, is_local = _address(patience_s)
    with httpx2.Client(
        base_url=url + API,
        headers={"Authorization": f"Bearer {token}"},
        timeout=PATIENCE_S,
        verify=_certificates(own_certificate),
        # On this machine a proxy of the environment must not be used.
        trust_env=not is_local,
    ) as http:
        yield Client(http)


def is_local() -> bool:
    """Whether commands call the daemon of this machine's state folder."""
    return not os.environ.get(URL)


def _address(patience_s: float) -> tuple[str, str, str | None, bool]:
    """The URL and the token of the daemon to call, the certificate that it has if it is this
    machine's own, and whether it is.
    """
    if url := os.environ.get(URL):
        token = os.environ.get(TOKEN, "")
        check_remote(url, token)
        return url.rstrip("/"), token, None, False
    own = published(folders.state() / "daemon", patience_s)
    return own["url"], os.environ.get(TOKEN) or own["token"], own.get("certificate"), True


def check_remote(url: str, token: str) -> None:
    """Refuses to send a token where others can read it."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username:
        raise InvalidSetting(f"{URL} is {url!r}.", "Write https://host:port.")
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        raise InvalidSetting(
            f"{URL} is {url!r}: the token would be sent unencrypted.", "Use https://."
        )
    if not token.isascii() or not token.isprintable():
        raise InvalidSetting(f"{TOKEN} is no token.", "`trilithon token create` prints one.")


def _certificates(own: str | None) -> "bool | ssl.SSLContext":
    """Trusts the certificates of the system, or those in $TRILITHON_CA; of this machine's own
    daemon that very certificate, whatever name is in it.
    """
    if (file := own or os.environ.get(CA)) is None:
        return True
    import ssl  # noqa: PLC0415 - only for a daemon with a certificate of its own

    try:
        context = ssl.create_default_context(cafile=file)
    except OSError as error:
        raise InvalidSetting(f"The certificate {file} cannot be used: {error}.") from error
    if own is not None:
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
