"""Signing in with an access token, and out again."""

import time

from starlette.responses import Response

from notewright.engine.library import admit
from notewright.errors import Limited
from notewright.server.auth.authenticate import COOKIE, GUESSES, address_of
from notewright.server.auth.browser_session import LASTS
from notewright.web.addresses import at, own_path
from notewright.web.frame import PAGE, PageRequest


def sign_in(asked: PageRequest) -> Response:
    return _page(asked, asked.query.get("next", "/"))


def _page(asked: PageRequest, onward: str, problem: str = "", status: int = 200) -> Response:
    values = {"onward": own_path(onward), "problem": problem, "visitor": None, "signed_in": asked.visitor is not None}
    return asked.page("sign_in.html", status, **values)


def sign_in_now(asked: PageRequest) -> Response:
    """A cookie for the token that was typed. Guesses are few: so many a minute from one address."""
    onward = own_path(asked.form_value("next"))
    token = admit(asked.site.registry, asked.form_value("token").strip(), time.time())
    if token is None or (token.grant.surfaces is not None and PAGE not in token.grant.surfaces):
        return _refused(asked, onward, known=token is not None)
    asked.site.audit.signed_in(token.name)
    response = asked.go(at(onward))
    response.set_cookie(
        COOKIE,
        asked.site.cookies.issue(token.digest, time.time()),
        max_age=LASTS,
        httponly=True,
        samesite="lax",
        secure=asked.secure,
    )
    return response


def _refused(asked: PageRequest, onward: str, *, known: bool) -> Response:
    try:
        asked.site.limiter.count(f"guess {address_of(asked.request.scope)}", GUESSES)
    except Limited as problem:
        response = _page(asked, onward, f"Too many tries. {problem.hint.capitalize()}.", 429)
        response.headers["Retry-After"] = str(problem.details["retry_after"])
        return response
    asked.site.audit.signed_in("", failed=True)
    if known:
        return _page(asked, onward, "This token is for tools, not for the page.", 403)
    return _page(asked, onward, "This token is not known, was revoked or has expired.", 403)


def sign_out(asked: PageRequest) -> Response:
    """The cookie is taken back, and is good for nobody any more who copied it."""
    if asked.visitor is not None and asked.visitor.session:
        asked.site.registry.end_session(asked.visitor.session, time.time(), LASTS)
    response = asked.go(at("/sign-in"))
    response.delete_cookie(COOKIE, httponly=True, samesite="lax", secure=asked.secure)
    return response
