"""What somebody tries who does not want to be told no: odd addresses, headers and tokens, strange Hosts and Origins.

Whatever is tried, it is either one of our routes with its own decision, or nothing.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.server.guarded import CALL, HTML, JSON, WORKSPACE, Guarded, guarded
from tests.server.lines import ENVELOPE

pytestmark = pytest.mark.slow

ID = WORKSPACE.lower()
SENT = {**JSON, "content-type": "application/json"}
WRITE = {**CALL, "params": {"name": "write", "arguments": {"path": "Garden/Planted", "content": "x"}}}
NUMBERS = "notewright_calls_total"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("guarded"), http__origins=("https://app.example",)) as running:
        yield running


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """One without tokens: everybody on this machine is its owner, and so is every page they look at, if it could."""
    with guarded(tmp_path_factory.mktemp("local"), tokens=False) as running:
        yield running


def raw(server: Guarded, *lines: str | bytes, body: bytes = b"") -> tuple[int, str]:
    """A request of exactly these lines, with a Host before the second of them unless there is one already."""
    told = [line.encode("latin-1") if isinstance(line, str) else line for line in lines]
    if not any(line.lower().startswith(b"host:") for line in told):
        told.insert(1, f"Host: 127.0.0.1:{server.port}".encode())
    heard = server.raw(b"\r\n".join([*told, b"Connection: close", b"", body])).decode("latin-1")
    status = re.match(r"HTTP/1\.1 (\d+)", heard)
    return int(status[1]) if status else 0, heard


# ---- addresses ----------------------------------------------------------------------------------------

ODD = [
    "//mcp", "///metrics", "/mcp/../metrics", "/%6detrics", "/metrics/", "/metrics/.", "/./metrics", "/metrics%20",
    "/metrics;x", "/metrics%3f", "/metrics%00", "/METRICS", "/metrics%2f", "/healthz/../metrics",
    "/healthz%2f..%2fmetrics", "/healthz/metrics", "/static/../metrics", "/static/%2e%2e/metrics",
    "/static/..%2fmetrics", "/static/mcp", "/sign-in/../connect", "/sign-in/", "/.well-known/../metrics",
    "/.well-known/mcp", "/.well-known/oauth-protected-resource/../../metrics",
    "/.well-known/oauth-protected-resource/%2e%2e/%2e%2e/metrics", f"/w/garden/../{ID}/", f"/w/garden/%2e%2e/{ID}/",
    f"/w/garden/..%2f{ID}/", f"/w/{ID}%2f", f"/w//{ID}/", f"/W/{ID}/", f"/w/{ID}/mcp/notes/", f"/w/{ID}/mcp//notes",
    f"/{ID}/mcp/", f"//{ID}/mcp", "/mcp/notes/../lens", "/mcp/notes%00", "/mcp%2fnotes", "/MCP/notes",
    "/api/../metrics", "/api/v1/../v1/tokens", "/api//v1/tokens", "/api/v1/tokens/", "/api/v1/TOKENS",
    "/api/v1/tokens%2f..", "/admin/backup/", "/%2e/metrics", "/..%c0%af/metrics", "/\xff\xfe", "/%ff%fe/mcp",
    "/metrics?/healthz", "/metrics#/healthz", "/" + "a/" * 3000,
]  # fmt: skip


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_no_way_to_write_an_address_opens_it_to_strangers(server: Guarded, method: str) -> None:
    for path in ODD:
        status, heard = raw(server, f"{method} {path} HTTP/1.1", "Content-Length: 0")
        public = path.startswith(("/.well-known/oauth-", "/sign-in", "/static/mcp"))
        assert status in ((401, 404) if public else (400, 401)), (path, heard)
        assert NUMBERS not in heard and WORKSPACE not in heard


def test_no_way_to_write_an_address_shows_a_workspace_that_is_not_for_one(server: Guarded) -> None:
    for path in ODD:
        for accept in ("text/html", "application/json"):
            status, heard = raw(
                server,
                f"GET {path} HTTP/1.1",
                f"Authorization: Bearer {server.tokens['gardener']}",
                f"Accept: {accept}",
            )
            assert status in (200, 307, 400, 403, 404, 405), (path, heard)
            assert NUMBERS not in heard and WORKSPACE not in heard, path


@pytest.mark.parametrize(
    "target",
    ["http://127.0.0.1/metrics", "http://evil.example/metrics", "HTTP://localhost/healthz/../metrics", "*", "metrics"],
)
@pytest.mark.parametrize("method", ["GET", "OPTIONS", "POST"])
def test_a_target_in_another_form_is_no_way_around(server: Guarded, method: str, target: str) -> None:
    status, heard = raw(server, f"{method} {target} HTTP/1.1", "Content-Length: 0")
    assert status in (400, 401, 403) and NUMBERS not in heard


NAMES_OF_NO_NOTE = [
    "../../../../etc/passwd", "..%2f..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/etc/passwd", "/etc/passwd",
    "%2fetc%2fpasswd", f"../{WORKSPACE}/{WORKSPACE}note.md", f"..%2f{WORKSPACE}%2f{WORKSPACE}note.md",
    ".obsidian/app.json", ".git/config", "Tea.md%00", "Tea.md/", "Tea.md/..", "./Tea.md", "Recipes/../Tea.md", "con",
    "a" * 5000, "%ff%fe", "Hidden/", "Hidden", "..%5c..%5cetc", "~/.ssh/id_rsa", "%c0%ae%c0%ae/x", "Tea.md::$DATA",
    "\\\\server\\share", "%0d%0aSet-Cookie:x=y",
]  # fmt: skip


@pytest.mark.parametrize("where", ["/w/garden/notes/", "/w/garden/files/", "/api/v1/workspaces/garden/notes/"])
def test_no_name_of_a_note_leads_out_of_its_workspace(server: Guarded, where: str) -> None:
    for name in NAMES_OF_NO_NOTE:
        for method in ("GET", "HEAD"):
            answer = server.ask(method, where + name, {**HTML, **server.bearer("owner")})
            assert answer.status in (303, 400, 404), (name, answer.text)
            assert "root:" not in answer.text and WORKSPACE + "text" not in answer.text, name
            assert answer.headers.get("set-cookie") is None


@pytest.mark.parametrize("name", [*NAMES_OF_NO_NOTE, "Garden", "GARDEN", "garden.", "garden%20", "gard\u0435n"])
def test_no_name_of_a_workspace_is_anything_but_an_id(server: Guarded, name: str) -> None:
    quoted = name.encode().decode("latin-1")
    for path in (f"/w/{quoted}/", f"/w/{quoted}/mcp/notes", f"/{quoted}/mcp", f"/api/v1/workspaces/{quoted}"):
        status, heard = raw(
            server, f"GET {path.replace(' ', '%20')} HTTP/1.1", f"Authorization: Bearer {server.tokens['owner']}"
        )
        assert status in (307, 400, 404, 405), (path, heard)
        assert "Steep" not in heard and "root:" not in heard


# ---- headers ------------------------------------------------------------------------------------------

PERSUASIVE = {
    "x-http-method-override": "DELETE", "x-method-override": "POST", "x-original-url": "/healthz",
    "x-rewrite-url": "/healthz", "x-forwarded-for": "127.0.0.1", "x-forwarded-host": "localhost",
    "x-forwarded-user": "owner", "x-remote-user": "owner", "x-real-ip": "127.0.0.1", "forwarded": "for=127.0.0.1",
    "x-forwarded-prefix": "/healthz", "x-notewright": "1", "remote-user": "owner", "x-csrf-token": "x",
    "x-original-host": "localhost", "x-accel-redirect": "/etc/passwd", "upgrade": "websocket", "mcp-session-id": "x",
    "proxy-authorization": "Basic eDp4", "sec-fetch-site": "same-origin",
}  # fmt: skip


def test_no_header_speaks_for_a_caller(server: Guarded) -> None:
    for name, value in PERSUASIVE.items():
        for method, path in (("GET", "/metrics"), ("POST", "/mcp/notes"), ("DELETE", "/api/v1/tokens/owner")):
            assert server.ask(method, path, {**SENT, name: value}).status == 401, name
    all_of_them = {**SENT, **PERSUASIVE, **server.bearer("reader")}
    assert server.ask("GET", f"/w/garden/changes/{server.change}", all_of_them).status == 200
    assert server.ask("POST", f"/w/garden/changes/{server.change}/undo", all_of_them, b"").status == 403
    assert server.ask("GET", "/api/v1/tokens", all_of_them).status == 403


def test_a_token_anywhere_but_in_its_header_is_no_token(server: Guarded) -> None:
    token = server.tokens["owner"]
    for place in (f"/metrics?access_token={token}", f"/metrics?token={token}", f"/metrics/{token}", f"/{token}/mcp"):
        assert server.ask("GET", place).status == 401
    form = f"access_token={token}".encode()
    assert server.ask("POST", "/mcp", {"content-type": "application/x-www-form-urlencoded"}, form).status == 401
    for name in ("x-api-key", "x-auth-token", "token", "proxy-authorization", "www-authenticate", "cookie"):
        assert server.ask("GET", "/metrics", {name: f"Bearer {token}"}).status == 401, name
    assert server.ask("GET", "/metrics", {"cookie": f"notewright={token}"}).status == 401


def test_only_a_plain_bearer_header_is_understood(server: Guarded) -> None:
    token = server.tokens["owner"]
    good = [f"Bearer {token}", f"bearer {token}", f"BEARER   {token} "]
    bad = [
        token, "Bearer", "Bearer ", f"Bearer{token}", f"Bearer\t{token}", f"Token {token}", f"Bearer {token} x",
        f"Bearer {token},x", f'Bearer "{token}"', f"Bearer token={token}", f"Bearer {token.upper()}",
        f"Bearer {token[:-1]}", f"Bearer {token}=", f"Basic {token}", "Basic b3duZXI6b3duZXI=", f"Digest {token}",
        f"Bearer  Bearer {token}", "Bearer null", "Bearer *", "Bearer " + "x" * 20_000, "Bearer nw_",
        "Bearer \xe9\xff", f"Bearer {token}\xa0", "Bearer ../../x", "Bearer ' or 1=1 --",
    ]  # fmt: skip
    assert [raw(server, "GET /metrics HTTP/1.1", f"Authorization: {way}")[0] for way in good] == [200] * len(good)
    for way in bad:
        status, heard = raw(server, "GET /metrics HTTP/1.1", f"Authorization: {way}")
        assert status in (400, 401, 429) and NUMBERS not in heard, way
        assert token not in heard


def test_two_tokens_are_none(server: Guarded) -> None:
    good, bad = (f"Authorization: Bearer {server.tokens[who]}" for who in ("owner", "wrong"))
    for pair in ((good, bad), (bad, good), (good, good), (good, "authorization: Basic eDp4")):
        assert raw(server, "GET /metrics HTTP/1.1", *pair)[0] in (400, 401, 429)


def test_a_token_that_is_no_good_is_not_made_good_by_a_cookie(server: Guarded) -> None:
    both = {**server.cookie("owner"), **server.bearer("expired")}
    assert server.ask("GET", "/metrics", both, stranger=True).status == 401
    assert server.ask("GET", "/metrics", {**server.bearer("owner"), "cookie": "notewright=junk; a=b"}).status == 200
    assert server.ask("GET", "/connect", {**HTML, **server.cookie("lens"), **server.bearer("owner")}).status == 200


def test_cookies_of_others_do_not_stand_in_the_way_of_ours(server: Guarded) -> None:
    ours = server.cookie("owner")["cookie"]
    for others in ('a={"x": 1}', "a=b c", "=", "a[]=1", ";;;", "ключ=1", 'q="unfinished'):
        told = f"{others}; {ours}".encode().decode("latin-1")
        assert raw(server, "GET /metrics HTTP/1.1", f"Cookie: {told}")[0] == 200, others


@pytest.mark.parametrize("wrong", ["", "x", "A" * 96, "../..", "A" * 6000, "%00", "notewright=", "a.b.c", '"\\'])
def test_a_cookie_nobody_issued_opens_nothing(server: Guarded, wrong: str) -> None:
    assert server.ask("GET", "/metrics", {"cookie": f"notewright={wrong}"}).status == 401


@pytest.mark.parametrize("name", ["x-forwarded-for", "forwarded", "x-real-ip", "x-forwarded-host"])
def test_what_a_tunnel_passes_on_is_not_this_machine_asking(local: Guarded, name: str) -> None:
    """Somebody made us public by mistake, by a tunnel that calls us by our own name."""
    through = {**SENT, name: "203.0.113.9"}
    for method, path in (("GET", "/metrics"), ("POST", "/mcp/notes"), ("GET", "/api/v1/tokens"), ("GET", "/w/garden/")):
        body = json.dumps(CALL).encode() if method == "POST" else None
        assert local.ask(method, path, through, body).status == 401
        assert local.ask(method, path, SENT, body).status == 200
    assert "access token" in local.ask("GET", "/metrics", through).json()["error_description"]
    assert local.ask("GET", "/", {**HTML, name: "203.0.113.9"}).headers["location"] == "/sign-in?next=/"
    assert local.ask("GET", "/healthz", through).status == 200


def test_a_session_is_good_for_who_got_it_and_where(server: Guarded) -> None:
    for surface in ("lens", "second_brain", "notes"):
        theirs = server.session("owner", surface)
        listing = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
        assert (
            server.ask("POST", f"/mcp/{surface}", {**SENT, **server.bearer("owner"), **theirs}, listing).status == 200
        )
        stolen = server.ask("POST", f"/mcp/{surface}", {**SENT, **server.bearer("reader"), **theirs}, listing)
        assert stolen.status in (200, 404) and (surface == "notes" or stolen.status == 404)
        ended = server.ask("DELETE", f"/mcp/{surface}", {**JSON, **server.bearer("reader"), **theirs})
        assert ended.status == 404, surface
    elsewhere = {**SENT, **server.bearer("owner"), **server.session("owner", "lens")}
    assert server.ask("POST", "/mcp/second_brain", elsewhere, listing).status == 404


BEYOND = [
    "../outside", "a/../../outside", "/etc", "/tmp/outside", "..", ".", "", "a/./b", ".hidden", "a\x00b", "a\nb",
    "~/x", "link/x", "a//b", "a/", "C:\\x", "..\\outside", "x" * 300, "%2e%2e/outside",
]  # fmt: skip


def test_no_workspace_is_made_beyond_its_folder(server: Guarded) -> None:
    (server.place / "root" / "link").symlink_to(server.place)
    before = {path for path in server.place.rglob("*") if "state" not in path.parts and "cache" not in path.parts}
    sent = {**SENT, **server.bearer("owner")}
    for number, location in enumerate(BEYOND):
        body = json.dumps({"name": f"Made {number}", "location": location}).encode()
        made = server.ask("POST", "/api/v1/workspaces", sent, body)
        assert made.status in (201, 400, 404, 409), (location, made.text)
        if made.status == 201:
            assert made.json()["location"].startswith(str(server.place / "root") + "/"), location
            assert ".." not in made.json()["location"]
    for name in (
        *BEYOND,
        "mcp",
        "api",
        "w",
        "Garden",
        "garden",
        "GARDEN",
        "\u202egarden",
        "gar\u200bden",
        "static",
        ".well-known",
    ):
        made = server.ask("POST", "/api/v1/workspaces", sent, json.dumps({"name": name}).encode())
        assert made.status in (201, 400, 409), (name, made.text)
        if made.status == 201:
            assert re.fullmatch(r"[a-z0-9_-]{3,40}", made.json()["id"]) and made.json()["id"] not in (
                "mcp",
                "api",
                "static",
            )
    after = {path for path in server.place.rglob("*") if "state" not in path.parts and "cache" not in path.parts}
    assert all(server.place / "root" in path.parents for path in after - before)
    assert not (server.place.parent / "outside").exists() and not (server.place / "outside").exists()
    assert server.ask("GET", "/w/garden/notes/Tea.md", {**HTML, **server.bearer("owner")}).status == 200


# ---- Host and Origin ----------------------------------------------------------------------------------

STRANGE_HOSTS = [
    "evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "evil@localhost", "localhost@evil.example",
    "user:pw@127.0.0.1", "localhost/evil", "localhost#evil", "localhost?evil", "localhost:80:80", "localhost:port",
    "[::1", "::1", "127.1", "2130706433", "0x7f000001", "0.0.0.0", "127.0.0.1\\@evil.example", "localhost:999999",
    "6.6.6.6", "[::ffff:127.0.0.1]", "", " ", "local host", "localhost..", "localhos\xe9",
]  # fmt: skip


def test_a_name_that_is_not_ours_is_answered_by_nothing(server: Guarded) -> None:
    """A page that had its own name bound to this machine is answered by none of our routes."""
    for door in server.doors:
        path = re.sub(r"{\w+(:\w+)?}", "x", door.path)
        for method in ("GET", "POST", "OPTIONS"):
            answer = server.ask(method, path, {**SENT, **server.bearer("owner"), "host": "evil.example:8484"})
            assert answer.status == 421, path
    for host in STRANGE_HOSTS:
        assert raw(server, "GET /healthz HTTP/1.1", f"Host: {host}")[0] in (400, 421), host
    assert server.raw(b"GET /healthz HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 421")
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:8484", "localhost.", "localhost.:80"):
        assert raw(server, "GET /healthz HTTP/1.1", f"Host: {host}")[0] == 200, host


STRANGE_ORIGINS = [
    "https://evil.example", "null", "http://127.0.0.1.evil.example", "http://localhost@evil.example", "file://", "",
    "x", "chrome-extension://abcdef", "http://6.6.6.6", "http://[::1", "https://app.example.evil.example",
    "https://app.example:444", "http://app.example", "http://0.0.0.0",
]  # fmt: skip


def test_a_page_of_somebody_else_gets_nothing_on_any_route(server: Guarded) -> None:
    for door in server.doors:
        path = re.sub(r"{\w+(:\w+)?}", "x", door.path)
        for origin in STRANGE_ORIGINS if door.path in ("/", "/mcp", "/events", "/sign-in") else STRANGE_ORIGINS[:2]:
            for method in ("GET", "POST", "OPTIONS"):
                answer = server.ask(method, path, {**SENT, **server.bearer("owner"), "origin": origin})
                public = path.startswith("/.well-known/oauth-protected-resource")
                assert public or answer.status == 403, (method, path, origin)
                assert public or "access-control-allow-origin" not in answer.headers
                assert "access-control-allow-credentials" not in answer.headers


def test_a_page_that_the_owner_named_brings_its_own_token_and_no_cookie(server: Guarded) -> None:
    page = {"origin": "https://app.example"}
    asks = {**page, "access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    before = server.ask("OPTIONS", "/mcp/notes", asks)
    assert before.status == 200 and before.headers["access-control-allow-origin"] == "https://app.example"
    body = json.dumps(CALL).encode()
    assert server.ask("POST", "/mcp/notes", {**SENT, **page, **server.bearer("owner")}, body).status == 200
    refused = server.ask("POST", "/mcp/notes", {**SENT, **page, **server.cookie("owner")}, body)
    assert refused.status == 401 and "access-control-allow-credentials" not in refused.headers


def test_a_page_at_another_port_of_this_machine_is_not_spoken_for_by_our_cookie(server: Guarded) -> None:
    body = json.dumps(CALL).encode()
    for origin in ("http://127.0.0.1:3000", "http://localhost", f"http://localhost:{server.port}"):
        headers = {**SENT, **server.cookie("owner"), "origin": origin}
        assert server.ask("POST", "/mcp/notes", headers, body).status == 403
        assert server.ask("POST", "/api/v1/backup", {**headers, "x-notewright": "1"}, b"").status == 403
        assert server.ask("GET", "/api/v1/backups", headers).status == 403
    ours = {**SENT, **server.cookie("owner"), "origin": server.address}
    assert server.ask("POST", "/mcp/notes", ours, body).status == 200


CHANGING = {"POST", "PUT", "PATCH", "DELETE"}


def test_before_there_are_tokens_a_page_at_another_port_can_change_nothing_on_any_route(local: Guarded) -> None:
    """Every route of the application, with every method that it takes and is not safe: a new one included."""
    before, tried = local.files(), 0
    foreign = ["http://127.0.0.1:3000", "http://localhost", f"http://localhost:{local.port}", "null", "http://evil.ex"]
    foreign += [f"ftp://127.0.0.1:{local.port}", f"{local.address}, {local.address}", f"http://127.0.0.1:{local.port}0"]
    for door in local.doors:
        path = re.sub(r"{\w+(:\w+)?}", "garden", door.path)
        for method in CHANGING if door.methods is None else CHANGING & door.methods:
            for origin in foreign:
                answer = local.ask(method, path, {**SENT, "x-notewright": "1", "origin": origin}, b"{}")
                assert (answer.status, "Origin" in answer.text) == (403, True), (method, path, origin)
                tried += 1
    assert tried > 20 * len(foreign), "there are that many routes that change something"
    assert local.files() == before
    for path in ("/admin/backup", "/api/v1/backup", "/api/v1/workspaces/garden/rebuild-index"):
        assert local.ask("POST", path, {"origin": local.address}).status in (200, 202), path
        assert local.ask("POST", path).status in (200, 202), path


def test_the_page_behind_a_public_address_is_our_own(tmp_path: Path) -> None:
    with guarded(tmp_path, http__public_url="https://notes.example/mine", http__origins=("https://app.ex",)) as running:
        sent, body = {**SENT, **running.bearer("owner")}, json.dumps(CALL).encode()
        for origin, status in (
            ("https://notes.example", 200),
            ("https://app.ex", 200),
            (running.address, 200),
            ("https://notes.example:8000", 403),
            ("https://app.ex:8000", 403),
        ):
            assert running.ask("POST", "/mcp/notes", sent | {"origin": origin}, body).status == status, origin


KINDS = [
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "text/plain;application/json",
    "",
]


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_page_may_send_without_being_asked_does_nothing(local: Guarded, kind: str) -> None:
    """A form of any page can be sent here with one of these kinds, and says nothing of where it comes from in old
    browsers. JSON cannot, and is the only thing that does something."""
    modern: dict[str, Any] = {**WRITE, "params": {**WRITE["params"], "_meta": ENVELOPE}}
    headers = {"accept": "application/json, text/event-stream"} | ({"content-type": kind} if kind else {})
    before = local.files()
    for message in (WRITE, modern):
        era = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call"} if message is modern else {}
        for path in ("/mcp", "/mcp/notes", "/w/garden/mcp/notes"):
            for more in ({}, {"origin": "http://localhost:3000"}):
                answer = local.ask("POST", path, headers | era | more, json.dumps(message).encode())
                assert answer.status in ((403,) if more else (400, 406, 415)), (path, answer.whole)
    for path in (
        f"/w/garden/changes/{local.change}/undo",
        "/tokens",
        "/api/v1/tokens",
        "/api/v1/workspaces/garden/undo",
    ):
        body = b"client=claude&since=2020-01-01&name=x&x=" + json.dumps({"name": "x", "client": "claude"}).encode()
        cross = headers | {"sec-fetch-site": "same-site", "origin": "http://localhost:3000"}
        assert local.ask("POST", path, cross, body).status in (400, 403), path
    assert local.files() == before and not local.site.registry.tokens()
    assert local.ask("POST", "/mcp", SENT, json.dumps(WRITE).encode()).status == 200
    assert local.files() != before
    (local.place / "notes/Garden/Planted.md").unlink()
