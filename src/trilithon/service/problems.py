"""Answers errors: one shape for all of them, RFC 9457 with the product's codes."""

import math
import sqlite3
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from trilithon import logs
from trilithon.errors import (
    InvalidJob,
    JournalUnusable,
    NotFound,
    NotUnderstood,
    TooManyRequests,
    TrilithonError,
)
from trilithon.service.access.gate import SAFE_METHODS

MEDIA_TYPE: Final = "application/problem+json"
_log = logs.logger()


class RuleBroken(BaseModel):
    """One broken rule of a job."""

    code: str
    path: str
    message: str
    hint: str


class ProblemDocument(BaseModel):
    """An error, as RFC 9457 has it. `code` is stable; docs/reference/problems.md lists them."""

    type: str = Field(description="urn:trilithon:problem: and the code")
    title: str = Field(description="what kind of problem it is, the same for the same code")
    status: int
    detail: str = Field(description="what is wrong in this case")
    code: str
    hint: str = Field(description="what to do about it")
    problems: list[RuleBroken] = Field(description="every broken rule, of a job that is refused")


def problem_document(error: TrilithonError, status: int | None = None) -> dict[str, Any]:
    broken = error.problems if isinstance(error, InvalidJob) else ()
    return {
        "type": f"urn:trilithon:problem:{error.code.lower().replace('_', '-')}",
        "title": error.code.replace("_", " ").capitalize(),
        "status": status or error.http_status,
        "detail": error.message,
        "code": error.code,
        "hint": error.hint,
        "problems": [
            {"code": p.code, "path": p.path, "message": p.message, "hint": p.hint} for p in broken
        ],
    }


def refusal(error: TrilithonError, status: int | None = None) -> JSONResponse:
    document = problem_document(error, status)
    headers = {}
    if document["status"] == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, TooManyRequests):
        headers["Retry-After"] = str(math.ceil(error.retry_after_s))
    return JSONResponse(document, document["status"], headers, MEDIA_TYPE)


def answer_errors(app: FastAPI) -> None:
    """Makes every error of an application a problem document."""

    @app.exception_handler(TrilithonError)
    async def _ours(request: Request, error: TrilithonError) -> JSONResponse:
        write = _log.error if error.http_status >= 500 else _log.info
        where = {"method": request.method, "path": request.url.path}
        write("request_refused", **where, code=error.code, message=error.message)
        return refusal(error)

    @app.exception_handler(sqlite3.Error)
    async def _unwritten(request: Request, error: sqlite3.Error) -> JSONResponse:
        where = {"method": request.method, "path": request.url.path}
        _log.error("request_failed", **where, exc_info=error)
        # A command may write twice, and a failed commit may have reached the disk.
        changes = request.method not in SAFE_METHODS
        hint = "Read the present state: the change may have been made." if changes else "Try again."
        return refusal(JournalUnusable(f"The journal cannot be used: {error}.", hint))

    @app.exception_handler(RequestValidationError)
    async def _malformed(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        return refusal(NotUnderstood(f"{place}: {first['msg']}"))

    @app.exception_handler(HTTPException)
    async def _http(_: Request, error: HTTPException) -> JSONResponse:
        kind = NotFound if error.status_code == NotFound.http_status else NotUnderstood
        answer = refusal(kind(str(error.detail)), error.status_code)
        answer.headers.update(error.headers or {})
        return answer
