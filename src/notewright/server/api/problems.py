"""How a Problem is said over HTTP: one status for every code, one form for every refusal."""

import json
import logging
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from notewright.errors import Internal, Problem
from notewright.surfaces import BadArgument

log = logging.getLogger(__name__)

STATUS = {
    "not_found": 404,
    "ambiguous": 409,
    "exists": 409,
    "conflict": 409,
    "invalid": 400,
    "not_text": 422,
    "too_large": 413,
    "read_only": 403,
    "forbidden": 403,
    "quota": 507,
    "no_space": 507,
    "busy": 503,
    "indexing": 503,
    "limited": 429,
    "unavailable": 503,
    "internal": 500,
}
AGAIN = {"busy": 1, "indexing": 2, "unavailable": 5}  # seconds after which it is worth another try
CODES = {403: "forbidden", 404: "not_found", 413: "too_large"}  # of what the web framework refuses; else invalid
ALWAYS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def answered(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """One JSON document that nobody keeps. What is not text becomes a question mark."""
    body = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")
    return Response(body, status, {**ALWAYS, **(headers or {})}, "application/json")


def refused(problem: Problem) -> Response:
    headers = {}
    if problem.code in AGAIN or problem.code == "limited":
        headers["Retry-After"] = str(max(1, round(problem.details.get("retry_after", AGAIN.get(problem.code, 1)))))
    return _said(STATUS[problem.code], problem.code, problem.message, _hint(problem), headers)


def _hint(problem: Problem) -> str:
    if isinstance(problem, BadArgument) and problem.fault == "unknown":
        return f"known are {', '.join(problem.expected)}" if problem.expected else "none is taken here"
    return problem.hint


def failed(error: Exception, what: str) -> Response:
    """What we did not expect goes to the log whole and to the caller as nothing but our fault."""
    log.error("%s failed", what, exc_info=error)
    return refused(Internal("something went wrong here", hint="it is in the server's log"))


def refused_by_the_web(error: HTTPException) -> Response:
    return _said(error.status_code, CODES.get(error.status_code, "invalid"), error.detail, "", error.headers or {})


def _said(status: int, code: str, message: str, hint: str, headers: Mapping[str, str]) -> Response:
    return answered({"error": {"code": code, "message": message, "hint": hint}}, status, headers)
