"""Owns the client of the daemon's API: its address, its token, its errors as exceptions."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from trilithon import folders
from trilithon.errors import DaemonUnreachable, InvalidJob, Problem, Refused, TrilithonError
from trilithon.service.address import published

if TYPE_CHECKING:
    import httpx2

PATIENCE_S: Final = 30.0


class Client:
    """Sends requests to the daemon of this user's state folder."""

    def __init__(self, http: "httpx2.Client") -> None:
        self._http = http

    def get(self, path: str, **params: Any) -> Any:
        return self._ask("GET", path, params=params)

    def post(self, path: str, body: Any = None) -> Any:
        return self._ask("POST", path, json=body)

    def put(self, path: str, body: Any) -> Any:
        return self._ask("PUT", path, json=body)

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
        raise _refusal(data.get("error", {}))


def _refusal(error: dict[str, Any]) -> TrilithonError:
    problems = [
        Problem(p["code"], p["path"], p["message"], p["hint"]) for p in error.get("problems", [])
    ]
    if problems:
        return InvalidJob(problems)
    return Refused(error.get("code", "REFUSED"), error.get("message", ""), error.get("hint", ""))


@contextmanager
def client(patience_s: float = 0.0) -> Iterator[Client]:
    """The client of the daemon of this state folder. `patience_s`: how long to wait for a daemon
    that may be starting.
    """
    import httpx2  # noqa: PLC0415 - slow to import, and most commands do without

    address = published(folders.state() / "daemon", patience_s)
    headers = {"Authorization": f"Bearer {address['token']}"}
    # The daemon is on this machine: a proxy of the environment must not be used.
    with httpx2.Client(
        base_url=address["url"], headers=headers, timeout=PATIENCE_S, trust_env=False
    ) as http:
        yield Client(http)
