"""Signing in with an access token, and out again."""

import time

from starlette.responses import Response

from notewright.engine.library import digest_of, find_valid_token
from notewright.errors import Limited
from notewright.server.auth.authenticate import COOKIE_NAME, GUESS_LIMITS, client_address
from notewright.server.auth.browser_session import COOKIE_SECONDS
from notewright.web.addresses import safe_local_path, url_of
from notewright.web.frame import PAGE, PageRequest


def sign_in(request: PageRequest) -> Response:
    return _render(request, request.query.get("next", "/"))


def _render(request: PageRequest, next_path: str, problem: str = "", status: int = 200) -> Response:
    values = {
        "onward": safe_local_path(next_path),
        "problem": problem,
        "visitor": None,
        "signed_in": request.visitor is not None,
    }
    return request.page("sign_in.html", status, **values)


def submit_sign_in(request: PageRequest) -> Response:
    """Set a cookie for a valid token. Wrong tokens are limited for each address."""
    next_path = safe_local_path(request.form_value("next"))
    digest = digest_of(request.form_value("token").strip())
    token = find_valid_token(request.site.registry, digest, time.time())
    if token is None or (token.grant.surfaces is not None and PAGE not in token.grant.surfaces):
        return _reject(request, next_path, known=token is not None)
    request.site.operations.audit.record_sign_in(token.name)
    response = request.redirect(url_of(next_path))
    response.set_cookie(
        COOKIE_NAME,
        request.site.auth.cookies.issue(token.digest, time.time()),
        max_age=COOKIE_SECONDS,
        httponly=True,
        samesite="lax",
        secure=request.secure,
    )
    return response


def _reject(request: PageRequest, next_path: str, *, known: bool) -> Response:
    try:
        request.site.auth.limiter.count(f"guess {client_address(request.http.scope)}", GUESS_LIMITS)
    except Limited as problem:
        response = _render(request, next_path, f"Too many tries. {problem.hint.capitalize()}.", 429)
        response.headers["Retry-After"] = str(problem.details["retry_after"])
        return response
    request.site.operations.audit.record_sign_in("", failed=True)
    if known:
        return _render(request, next_path, "This token is for tools, not for the page.", 403)
    return _render(request, next_path, "This token is not known, was revoked or has expired.", 403)


def sign_out(request: PageRequest) -> Response:
    """Remove the cookie, and record the sign-out, so that no copy of it is valid any more."""
    if request.visitor is not None and request.visitor.session:
        request.site.registry.end_session(request.visitor.session, time.time(), COOKIE_SECONDS)
    response = request.redirect(url_of("/sign-in"))
    response.delete_cookie(COOKIE_NAME, httponly=True, samesite="lax", secure=request.secure)
    return response
