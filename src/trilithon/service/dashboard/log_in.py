"""Logs browsers in: with a token, or once with the code of a link that `trilithon dashboard`
prints.
"""

import math
import secrets
import threading
from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qs, urlsplit

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import RedirectResponse

from trilithon.errors import Forbidden
from trilithon.service.access.gate import Access, AnyCaller, Public
from trilithon.service.access.roles import Caller
from trilithon.service.access.sessions import COOKIE, Session, delete_cookie, set_cookie
from trilithon.service.dashboard.pages import HEADERS, ROOT, page

CODE_S: Final = 300.0
LOG_IN: Final = f"{ROOT}/login"
router = APIRouter(prefix=ROOT, include_in_schema=False)
# A part of the API, for `trilithon dashboard`.
codes_router = APIRouter(tags=["sessions"])


class LoginCodes:
    """Codes that log a caller in, once and within minutes: a link with one can be printed, a link
    with a token would stay in histories and logs.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._callers: dict[str, tuple[float, Caller]] = {}

    def create(self, caller: Caller, valid_s: float = CODE_S) -> str:
        code, now_s = secrets.token_urlsafe(24), self._clock()
        with self._lock:
            self._callers = {c: kept for c, kept in self._callers.items() if kept[0] > now_s}
            self._callers[code] = (now_s + valid_s, caller)
        return code

    def redeem(self, code: str) -> Caller | None:
        with self._lock:
            ends_s, caller = self._callers.pop(code, (0.0, None))
        return caller if self._clock() < ends_s else None


def path_of(code: str) -> str:
    return f"{LOG_IN}?code={code}"


def owner_link(app: FastAPI) -> str:
    """The path of a page that logs in whoever owns the daemon, once, as long as it runs."""
    access: Access = app.state.access
    owner = access.caller_of_token(access.local_token)
    codes: LoginCodes = app.state.login_codes
    return path_of(codes.create(owner, math.inf)) if owner is not None else LOG_IN


@router.get("/login")
def log_in_page(request: Request, caller: Public, code: str = "", to: str = ROOT) -> Response:
    if code and _comes_from_another_site(request):
        # Not redeemed: it would log a browser in as whoever made the other site's link.
        problem = "Another site opened this link. Copy it into the address bar to log in with it."
        return page("login.html", None, 403, to=_inside(to), problem=problem)
    if code and (redeemed := _codes(request).redeem(code)) is not None:
        return _logged_in(request, _access(request).sessions.start(redeemed), to)
    if caller is not None:
        return RedirectResponse(_inside(to), 303, HEADERS)
    problem = "This link was used already, or is too old." if code else ""
    return page("login.html", None, 403 if code else 200, to=_inside(to), problem=problem)


@router.post("/login")
async def log_in(request: Request, _: Public) -> Response:
    _refuse_other_sites(request)
    given = parse_qs((await request.body()).decode("utf-8", "replace"))
    to = _inside(given.get("to", [ROOT])[0])
    session = _access(request).log_in(given.get("token", [""])[0].strip())
    if session is None:
        problem = "This token is not valid."
        return page("login.html", None, 403, to=to, problem=problem)
    return _logged_in(request, session, to)


@router.post("/logout")
def log_out(request: Request, _: AnyCaller) -> Response:
    _access(request).sessions.end(request.cookies.get(COOKIE, ""))
    answer = Response(status_code=204, headers=HEADERS)
    delete_cookie(answer, secure=_secure(request))
    return answer


@codes_router.post("/login-codes")
def create_code(request: Request, caller: AnyCaller) -> dict[str, str]:
    """The path of a page that logs this caller's browser in: once, within five minutes."""
    return {"path": path_of(_codes(request).create(caller))}


def _logged_in(request: Request, session: Session, to: str) -> Response:
    answer = RedirectResponse(_inside(to), 303, HEADERS)
    set_cookie(answer, session, secure=_secure(request))
    return answer


def _inside(to: str) -> str:
    """Where to go after the log-in: a page of the dashboard, never another site."""
    parts = urlsplit(to)
    inside = parts.path == ROOT or parts.path.startswith(f"{ROOT}/")
    return parts.path if inside and not parts.scheme and not parts.netloc else ROOT


def _refuse_other_sites(request: Request) -> None:
    """A page of another site must not log a browser in as somebody else. `Origin: null` is refused,
    too: a page in a sandboxed frame sends it. Our own form sends its origin (`pages.HEADERS`).
    """
    origin = request.headers.get("origin")
    foreign = origin is not None and urlsplit(origin).netloc != request.headers.get("host")
    if foreign or _comes_from_another_site(request):
        raise Forbidden(
            "The request does not come from a page of this service.",
            "Open the log-in page of this service, and log in there.",
        )


def _comes_from_another_site(request: Request) -> bool:
    """Browsers say so themselves; what sends no such header is none, or is old."""
    return request.headers.get("sec-fetch-site", "none") not in {"same-origin", "none"}


def _access(request: Request) -> Access:
    access: Access = request.app.state.access
    return access


def _codes(request: Request) -> LoginCodes:
    codes: LoginCodes = request.app.state.login_codes
    return codes


def _secure(request: Request) -> bool:
    return request.url.scheme == "https"
