"""Who may come to which address: a walk over every route there is, with every kind of caller and every method.

The walk goes over the application's own list. A route that is added is walked too; one that does not say who may use
it, or whose address nobody can make up here, fails.
"""

import json
import re
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.testclient import TestClient
from tests.server.guarded import BY_RULE, BY_TOKEN, CALL, HTML, JSON, WORKSPACE, Answer, Guarded, guarded

from notewright.accounts.base import Grant
from notewright.engine.library import new_token
from notewright.server.auth.authenticate import GuardedRoute, Need

pytestmark = pytest.mark.slow

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")
STRANGERS = ("nobody", "wrong", "expired", "revoked")
SECRETS = (
    WORKSPACE,
    WORKSPACE.lower(),
    BY_RULE,
    BY_TOKEN,
    "Broth",
    "Steep",
    "/notes/",
    "guest",
    "gardener",
    "Traceback",
)
ANYBODY = {"/api/v1/me"}  # for tokens of any surface: whoever holds one may ask what it is good for
NOTHING = {"/api", "/api/{rest:path}"}  # says in JSON that nothing is there
NOT_LIVE = {"/w/{workspace}/edit/{path:path}"}  # of notes that are live, which these are not
QUERY = {"/api/v1/workspaces/{id}/search": "?q=tea", "/w/{workspace}/undo": "?client=claude&since=2020-01-01"}
NO_PAGE = "nowhere-at-all"  # a workspace that is not there
EMPTY_ZIP = b"PK\x05\x06" + bytes(18)
SENT = {**JSON, "content-type": "application/json"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("guarded")) as running:
        yield running


def url(server: Guarded, door: GuardedRoute, workspace: str = "garden") -> str:
    """An address of this door. Say here what a new kind of part looks like."""
    parts = {"workspace": workspace, "id": workspace, "surface": "notes", "change": server.change, "rest": "nothing"}
    parts["path"] = "mcp/notes" if door.path.startswith("/.well-known") else "Tea.md"
    parts["name"] = "page.css" if door.path.startswith("/static") else "nobody-by-that-name"
    path = re.sub(r"{(\w+)(?::\w+)?}", lambda found: quote(parts[found[1]]), door.path)
    return path + QUERY.get(door.path, "")


def allowed(door: GuardedRoute) -> list[str]:
    """The methods of a door; those it looks at by itself, where it takes all."""
    return sorted(door.methods) if door.methods is not None else ["DELETE", "GET", "POST"]


def is_open(server: Guarded, path: str, method: str) -> bool:
    """Whether some door lets anybody in, in this way."""
    return any(
        door.need == "open" and door.path_regex.match(path.partition("?")[0]) and method in (door.methods or METHODS)
        for door in server.doors
    )


def headers_of(server: Guarded, who: str) -> dict[str, str]:
    return {} if who == "nobody" else server.bearer(who)


def asked(server: Guarded, door: GuardedRoute, who: str, method: str, workspace: str = "garden") -> Answer:
    """A request of somebody known, with a body that would be understood."""
    headers, body = {**SENT, **server.bearer(who)}, b""
    if "mcp" in door.path and method == "POST":
        body = json.dumps(CALL).encode()
    if door.path.endswith("/import"):
        headers, body = {**headers, "content-type": "application/zip"}, EMPTY_ZIP
    return server.ask(method, url(server, door, workspace), headers, body)


def challenge(answer: Answer) -> dict[str, str]:
    scheme, _, rest = answer.headers["www-authenticate"].partition(" ")
    assert scheme == "Bearer"
    return dict(re.findall(r'(\w+)="([^"]*)"', rest))


def reveals(answer: Answer) -> list[str]:
    return [secret for secret in SECRETS if secret in answer.whole]


# ---- strangers ----------------------------------------------------------------------------------------


def test_every_route_says_who_may_use_it(server: Guarded) -> None:
    for door in server.doors:
        assert door.need in ("open", "read", "write", "owner"), door.path
        assert door.path_regex.match(unquote(url(server, door)).partition("?")[0]), door.path
    needs = {door.need for door in server.doors}
    assert needs == {"open", "read", "write", "owner"}


def test_what_anybody_may_see_is_this_and_no_more(server: Guarded) -> None:
    assert sorted({door.path for door in server.doors if door.need == "open"}) == [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/{path:path}",
        "/health",
        "/healthz",
        "/readyz",
        "/sign-in",
        "/sign-out",
        "/static/{name}",
    ]


@pytest.mark.parametrize("who", STRANGERS)
def test_a_stranger_gets_nowhere_by_any_method(server: Guarded, who: str) -> None:
    for door in server.doors:
        path = url(server, door)
        for method in METHODS:
            answer = server.ask(method, path, {**SENT, **headers_of(server, who)}, stranger=True)
            where = f"{method} {path}"
            if is_open(server, path, method):
                assert answer.status in (200, 204, 403), where
            else:
                assert answer.status == 401, where
                told = challenge(answer)
                assert told["resource_metadata"].startswith(f"{server.address}/.well-known/oauth-protected-resource")
                assert told.get("error", "") == ("" if who == "nobody" else "invalid_token"), where
            assert not reveals(answer), where
            assert method != "HEAD" or not answer.body


@pytest.mark.parametrize("who", STRANGERS)
def test_a_stranger_cannot_tell_a_workspace_or_a_page_that_is_there_from_one_that_is_not(
    server: Guarded, who: str
) -> None:
    for door in server.doors:
        for method in ("GET", "POST"):
            pairs = [url(server, door, workspace) for workspace in (WORKSPACE.lower(), NO_PAGE)]
            there, not_there = (
                server.ask(method, path, {**SENT, **headers_of(server, who)}, stranger=True).whole for path in pairs
            )
            assert there.replace(WORKSPACE.lower(), NO_PAGE) == not_there, door.path
    known = server.ask("GET", "/connect", {**JSON, **headers_of(server, who)}, stranger=True).whole
    assert known == server.ask("GET", "/no/such/page", {**JSON, **headers_of(server, who)}, stranger=True).whole


def test_a_browser_without_a_token_is_sent_to_sign_in_and_a_program_is_not(server: Guarded) -> None:
    for door in server.doors:
        path = url(server, door)
        if "GET" not in allowed(door) or is_open(server, path, "GET"):
            continue
        for method in ("GET", "HEAD"):
            sent = server.ask(method, path, HTML)
            assert (sent.status, sent.headers["location"]) == (303, f"/sign-in?next={quote(path)}"), path
            assert sent.headers["cache-control"] == "no-store" and not sent.body
        assert server.ask("POST", path, HTML, b"").status in (401, 403)
        assert server.ask("GET", path, {**HTML, **server.bearer("expired")}, stranger=True).status == 401


# ---- those who may some things ------------------------------------------------------------------------


def test_the_owner_comes_everywhere(server: Guarded) -> None:
    """Else the walk would be one along closed doors that lead nowhere."""
    for door in server.doors:
        if "GET" in allowed(door):
            answer = asked(server, door, "owner", "GET")
            wanted = 405 if door.methods is None else 404 if door.path in NOTHING | NOT_LIVE else 200
            assert answer.status == wanted, (door.path, answer.text)
    for surface in ("/mcp/{surface}", "/w/{workspace}/mcp/{surface}", "/mcp"):
        door = next(door for door in server.doors if door.path == surface)
        assert asked(server, door, "owner", "POST").status == 200, surface


@pytest.mark.parametrize("who", ["reader", "gardener", "guest", "clerk", "lens", "page", "outsider"])
def test_only_who_is_narrowed_by_nothing_owns_the_server(server: Guarded, who: str) -> None:
    for door in server.doors:
        if door.need == "owner":
            for method in set(allowed(door)) - {"HEAD"}:
                answer = asked(server, door, who, method)
                assert (answer.status, challenge(answer)["error"]) == (403, "insufficient_scope"), door.path
                assert challenge(answer)["scope"] == "notes:admin" and not reveals(answer)


def test_who_may_only_read_uses_no_route_that_writes(server: Guarded) -> None:
    before = server.files()
    for door in server.doors:
        if door.need in ("write", "owner"):
            for method in allowed(door):
                answer = asked(server, door, "reader", method)
                assert (answer.status, challenge(answer)["error"]) == (403, "insufficient_scope"), door.path
    assert server.files() == before


def test_who_is_let_in_for_one_surface_uses_no_other_route(server: Guarded) -> None:
    for door in server.doors:
        if door.need == "open" or door.path in ANYBODY:
            continue
        for method in set(allowed(door)) - {"HEAD"}:
            answer = asked(server, door, "lens", method)
            assert answer.status == (404 if door.path in NOTHING else 403), (method, door.path, answer.text)
            assert not reveals(answer)
    assert server.call("lens", "lens", "list_notes", {}).status == 200
    assert server.ask("POST", "/mcp/octarine", {**SENT, **server.bearer("lens")}, b"{}").status == 403


def test_a_token_for_the_page_opens_no_tools(server: Guarded) -> None:
    for path in ("/mcp", "/mcp/notes", "/mcp/lens", "/w/garden/mcp/notes", "/garden/mcp"):
        assert server.ask("POST", path, {**SENT, **server.bearer("page")}, json.dumps(CALL).encode()).status == 403
    assert server.ask("GET", "/", {**HTML, **server.bearer("page")}).status == 200


def test_a_workspace_one_may_not_see_is_one_that_is_not_there(server: Guarded) -> None:
    """Byte for byte, but for the name that was asked for."""
    walked = 0
    for door in server.doors:
        if not {"workspace", "id"} & set(door.param_convertors):
            continue
        for who in ("outsider", "gardener", "guest"):
            for method in allowed(door):
                there, not_there = (asked(server, door, who, method, name) for name in (WORKSPACE.lower(), NO_PAGE))
                assert there.whole.replace(WORKSPACE.lower(), NO_PAGE) == not_there.whole, (method, door.path)
                assert there.status in (403, 404, 405), (method, door.path)
                assert WORKSPACE not in there.whole
                walked += 1
    assert walked > 30


def test_a_workspace_one_may_not_see_takes_as_long_as_one_that_is_not_there(server: Guarded) -> None:
    def seconds(name: str) -> float:
        began = time.perf_counter()
        server.ask("GET", f"/w/{name}/notes/{WORKSPACE}note", {**HTML, **server.bearer("gardener")})
        return time.perf_counter() - began

    pairs = [(seconds(WORKSPACE.lower()), seconds(NO_PAGE)) for _ in range(40)]
    there, not_there = (statistics.median(side) for side in zip(*pairs, strict=True))
    assert there < 5 * not_there + 0.005 and not_there < 5 * there + 0.005


def test_nothing_of_a_workspace_one_may_not_see_is_on_any_route(server: Guarded) -> None:
    for door in server.doors:
        for who in ("gardener", "guest", "outsider"):
            for method in set(allowed(door)) - {"DELETE"}:
                answer = asked(server, door, who, method)
                assert WORKSPACE.lower() not in answer.whole.lower(), (method, door.path)


# ---- at once ------------------------------------------------------------------------------------------


def test_a_token_that_is_revoked_is_refused_at_once_in_every_form(server: Guarded) -> None:
    server.tokens["short"] = server.token("short")
    ways = [server.bearer("short"), server.cookie("short")]
    assert [server.ask("GET", "/metrics", way).status for way in ways] == [200, 200]
    assert server.site.registry.revoke("short", time.time())
    assert [server.ask("GET", "/metrics", way).status for way in ways] == [401, 401]


def test_a_token_that_expires_while_it_is_known_is_refused(server: Guarded) -> None:
    now = time.time()
    secret = new_token(server.site.registry, "moment", Grant(), now=now, expires=now + 0.6)
    headers = {"authorization": f"Bearer {secret}"}
    assert server.ask("GET", "/metrics", headers).status == 200
    time.sleep(max(0.0, now + 0.61 - time.time()))
    assert server.ask("GET", "/metrics", headers).status == 401


# ---- when something is missing ------------------------------------------------------------------------


@pytest.mark.parametrize("need", ["read", "write", "owner"])
def test_a_door_that_is_not_open_lets_nobody_pass_even_if_the_gate_is_missing(need: Need) -> None:
    async def inside(_: Request) -> Response:
        return Response("yours")

    site = TestClient(
        Starlette(routes=[GuardedRoute("/x", inside, need=need), GuardedRoute("/y", inside, need="open")])
    )
    assert site.get("/x").status_code == 401 and "www-authenticate" in site.get("/x").headers
    assert site.get("/y").text == "yours"


def test_a_registry_that_cannot_be_read_opens_nothing(tmp_path: Path) -> None:
    with guarded(tmp_path) as server:
        for file in (tmp_path / "state").glob("registry.db*"):
            file.write_bytes(b"not a database, not any more" * 1000)
        for who in ("nobody", "wrong", "expired", "revoked"):
            for door in server.doors:
                path = url(server, door)
                if "GET" in allowed(door) and not is_open(server, path, "GET"):
                    answer = server.ask("GET", path, {**JSON, **headers_of(server, who)}, stranger=True)
                    assert answer.status in (401, 500, 503), (who, path)
                    assert not reveals(answer) and str(tmp_path) not in answer.whole


def test_the_first_token_closes_the_server_at_once_and_for_good(tmp_path: Path) -> None:
    with guarded(tmp_path, tokens=False) as server:
        assert server.ask("GET", "/metrics", JSON).status == 200
        server.token("first")
        assert server.ask("GET", "/metrics", JSON).status == 401
        server.site.registry.revoke("first", time.time())
        assert server.ask("GET", "/metrics", JSON).status == 401
