"""What a browser carries here, and what other people's pages and notes could make of it.

Only the HTML is looked at here; that nothing runs in a real browser is shown in test_page_browser.py.
"""

import http.client
import json
import re
import time
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, unquote, urlencode, urljoin, urlsplit

import pytest
from tests.server.guarded import CALL, GARDEN, HTML, JSON, Answer, Guarded, guarded, serving

from notewright.app.compose_http import Site
from notewright.engine.library import digest_of
from notewright.server.auth.browser_session import COOKIE_SECONDS, BrowserSessions

pytestmark = pytest.mark.slow

FORM = {**HTML, "content-type": "application/x-www-form-urlencoded"}
BAD = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>{{7*7}}"
EVIL = "\"'><script>alert(1)<script><img src=x onerror=alert(1)>{{7*7}}"  # as a file may be called
HOSTILE = {
    f"{EVIL}.md": (
        f"---\ntags: ['{EVIL}']\naliases: [x{BAD}]\n'{BAD}': '{BAD}'\nlink: '[[{EVIL}]]'\n---\n# {BAD}\n\n{BAD}\n"
    ),
    "Links.md": """
[a](javascript:alert(1)) [b](JaVaScRiPt&#58;alert(1)) [c](data:text/html,<script>alert(1)</script>) [g](vbscript:x)
![d](javascript:alert(1)) ![e](https://evil.example/pixel.png) <https://x.example/"onmouseover=alert(1)>
[f](<javascript:alert(1)> "title\\" onclick=alert(1)") [h](//evil.example) [i](\x01javascript:x) [[//evil.example]]
<iframe src=javascript:alert(1)></iframe><svg onload=alert(1)><style>*{display:none}</style>
<a href='javascript:alert(1)'>x</a> <base href='https://evil.example/'> <meta http-equiv=refresh content=0>
[[javascript:alert(1)]] [[Tea|<script>alert(1)</script>]] ![[x.png|" onerror=alert(1)]]

```html
<script>alert(1)</script>
```

```"onload=alert(1)
x
```

| <b onclick=x> |
|---|
| <script> |

# <script>alert(1)</script>

[ref]: javascript:alert(1)
[ref] [j][ref]

%% <script> %%

- [ ] <script> \ufdd00\ufdd1 \ufdd09999\ufdd1 &lt;script&gt;alert(1)&lt;/script&gt; \u202e<script>
""",
    "drawing.svg": b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
    "page.html": b"<script>alert(1)</script>",
    "picture.png": b"<html><script>alert(1)</script>",
    "mixed.gif": b"GIF89a<script>alert(1)</script>",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("guarded"), garden=dict(GARDEN) | HOSTILE) as running:
        yield running


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Guarded]:
    with guarded(tmp_path) as running:
        yield running


def csrf(server: Guarded, visit: str) -> str:
    return BrowserSessions(server.site.registry.secret("cookies")).csrf(visit)


def own_csrf(server: Guarded, who: str) -> str:
    """Of a browser that signed in with this token."""
    return csrf(server, digest_of(server.tokens[who]))


def sign_in(server: Guarded, token: str, onward: str = "/", **headers: str) -> Answer:
    form = urlencode({"token": token, "next": onward, "csrf": csrf(server, "sign-in")}).encode()
    return server.ask("POST", "/sign-in", {**FORM, **headers}, form, stranger=True)


# ---- forms --------------------------------------------------------------------------------------------


STRANGE_PAGES: list[dict[str, str]] = [
    *({"sec-fetch-site": site} for site in ("cross-site", "same-site")),
    *({"origin": origin} for origin in ("https://evil.example", "null")),
]


def posts(server: Guarded) -> dict[str, dict[str, str]]:
    """Every form there is, filled in so that it would do something."""
    forms = {
        "/tokens": {"name": f"by form {time.monotonic_ns()}"},
        "/tokens/revoke": {"name": "lens"},
        "/sign-out": {},
        f"/w/garden/changes/{server.change}/undo": {},
        "/w/garden/undo": {"client": "claude", "since": "2020-01-01"},
    }
    paths = {re.sub(r"{change}", server.change, door.path).replace("{workspace}", "garden") for door in server.doors
             if door.methods == {"POST"} and not door.path.startswith(("/api", "/admin"))}  # fmt: skip
    assert paths == forms.keys() | {"/sign-in"}, "a form is not tried"
    return forms


def test_a_form_that_is_not_ours_does_nothing(fresh: Guarded) -> None:
    before, tokens = fresh.files(), fresh.site.registry.tokens()
    wrong = [
        None,
        "",
        "0" * 64,
        own_csrf(fresh, "reader"),
        csrf(fresh, "sign-in"),
        csrf(fresh, ""),
        csrf(fresh, "owner"),
    ]
    for path, fields in posts(fresh).items():
        for told in wrong:
            body = urlencode(fields | ({"csrf": told} if told is not None else {})).encode()
            answer = fresh.ask("POST", path, {**FORM, **fresh.cookie("owner")}, body)
            assert answer.status == 403 and "set-cookie" not in answer.headers, (path, told)
        good = urlencode(fields | {"csrf": own_csrf(fresh, "owner")}).encode()
        for odd in STRANGE_PAGES:
            assert fresh.ask("POST", path, {**FORM, **fresh.cookie("owner"), **odd}, good).status == 403, path
        in_query = f"{path}?{urlencode(fields | {'csrf': own_csrf(fresh, 'owner')})}"
        assert fresh.ask("POST", in_query, {**FORM, **fresh.cookie("owner")}, b"").status == 403, path
    assert fresh.files() == before
    assert [one.name for one in fresh.site.registry.tokens() if one.revoked is None] == [
        one.name for one in tokens if one.revoked is None
    ]


def test_the_same_forms_made_by_us_do_something(fresh: Guarded) -> None:
    """Else the test above would be of forms that nobody understands."""
    for path, fields in posts(fresh).items():
        body = urlencode(fields | {"csrf": own_csrf(fresh, "owner")}).encode()
        answer = fresh.ask("POST", path, {**FORM, **fresh.cookie("owner"), "sec-fetch-site": "same-origin"}, body)
        assert answer.status in (200, 303, 404), (path, answer.text)
        assert answer.status != 404 or path == "/w/garden/undo"  # the other one has taken everything back
    assert not fresh.site.registry.token(digest_of(fresh.tokens["lens"])).is_valid(time.time())  # type: ignore[union-attr]


def test_the_api_takes_no_form_from_a_browser(fresh: Guarded) -> None:
    before = fresh.site.registry.tokens()
    for door in fresh.doors:
        if door.path.startswith(("/api/v1", "/admin")) and door.need != "read":
            path = re.sub(
                r"{(\w+)(:\w+)?}", lambda found: {"id": "garden", "name": "lens"}.get(found[1], "x"), door.path
            )
            for method in sorted(door.methods or ()):
                for kind in ("text/plain", "application/x-www-form-urlencoded", "application/json"):
                    headers = {**JSON, "content-type": kind, **fresh.cookie("owner")}
                    answer = fresh.ask(method, path, headers, b'{"name": "x"}')
                    assert answer.status == 403 or method in ("GET", "HEAD"), (method, path, kind)
    assert [one.name for one in fresh.site.registry.tokens()] == [one.name for one in before]


# ---- cookies ------------------------------------------------------------------------------------------


def test_a_cookie_says_who_may_read_it(server: Guarded) -> None:
    told = sign_in(server, server.tokens["owner"])
    assert (told.status, told.headers["location"], told.headers["cache-control"]) == (303, "/", "no-store")
    value, *parts = [part.strip().lower() for part in told.headers["set-cookie"].split(";")]
    assert set(parts) == {"httponly", "samesite=lax", "path=/", f"max-age={COOKIE_SECONDS}"}
    assert server.tokens["owner"].lower() not in value
    gone = server.ask(
        "POST", "/sign-out", {**FORM, **server.cookie("owner")}, urlencode({"csrf": own_csrf(server, "owner")}).encode()
    )
    assert "max-age=0" in gone.headers["set-cookie"].lower() and gone.headers["location"] == "/sign-in"


def test_a_cookie_over_https_stays_there(tmp_path: Path) -> None:
    with guarded(tmp_path, http__public_url="https://notes.example.com") as server:
        told = sign_in(server, server.tokens["owner"], host="notes.example.com")
        assert told.status == 303 and "secure" in told.headers["set-cookie"].lower()
        assert told.headers["location"] == "/"


def test_nobody_chooses_the_cookie_of_somebody_else(server: Guarded) -> None:
    fixed = "A" * 96
    told = sign_in(server, server.tokens["owner"], cookie=f"notewright={fixed}")
    assert fixed not in told.headers["set-cookie"]
    assert server.ask("GET", "/metrics", {"cookie": f"notewright={fixed}"}).status == 401
    of_reader = server.cookie("reader")
    form = urlencode({"token": server.tokens["owner"], "csrf": own_csrf(server, "reader")}).encode()
    given = server.ask("POST", "/sign-in", {**FORM, **of_reader}, form).headers["set-cookie"].partition(";")[0]
    assert given != of_reader["cookie"]
    assert server.ask("GET", "/api/v1/tokens", {"cookie": given}).status == 200
    assert server.ask("GET", "/api/v1/tokens", of_reader).status == 403


def test_a_cookie_ends_with_its_token_and_with_its_time(fresh: Guarded) -> None:
    made = BrowserSessions(fresh.site.registry.secret("cookies"))
    digest = digest_of(fresh.tokens["owner"])
    for at, status in ((time.time(), 200), (time.time() - COOKIE_SECONDS - 1, 401), (time.time() + 3600, 401)):
        assert fresh.ask("GET", "/metrics", {"cookie": f"notewright={made.issue(digest, at)}"}).status == status
    elsewhere = BrowserSessions(b"x" * 32).issue(digest, time.time())
    assert fresh.ask("GET", "/metrics", {"cookie": f"notewright={elsewhere}"}).status == 401
    for who in ("revoked", "expired"):
        assert fresh.ask("GET", "/", {**HTML, **fresh.cookie(who)}).status == 303
        assert "set-cookie" not in sign_in(fresh, fresh.tokens[who]).headers
    kept = fresh.cookie("owner")
    fresh.site.registry.revoke("owner", time.time())
    answer = fresh.ask("GET", "/", {**HTML, **kept})
    assert (answer.status, answer.headers["location"]) == (303, "/sign-in?next=/")


def test_a_token_for_tools_does_not_sign_in(server: Guarded) -> None:
    for who in ("lens", "revoked", "expired", "wrong"):
        told = sign_in(server, server.tokens[who])
        assert told.status == 403 and "set-cookie" not in told.headers
        assert server.tokens[who] not in told.text
    assert server.ask("GET", "/", {**HTML, **server.cookie("lens")}).status == 403


ELSEWHERE = [
    "https://evil.example", "//evil.example", "///evil.example", "/\\evil.example", "\\\\evil.example",
    "/\t/evil.example", "javascript:alert(1)", "data:text/html,x", "/%09/evil.example", " //evil.example",
    "/\n/evil.example", "evil.example", "", "/sign-out", "/sign-in?next=/sign-in", "http:evil.example",
    "https:/evil.example", "/\r\nSet-Cookie: x=y", "//evil.example/%2f..", "/..//evil.example", "/.//evil.example",
    "/;//evil.example", "/@evil.example", "/%5cevil.example", "/ok\x00", "?x=//evil.example",
]  # fmt: skip


def test_signing_in_leads_to_a_page_of_ours(server: Guarded) -> None:
    for onward in ELSEWHERE:
        told = sign_in(server, server.tokens["owner"], onward)
        place = told.headers["location"]
        assert told.status == 303 and place.startswith("/") and not place.startswith(("//", "/\\", "/sign-")), onward
        there = urlsplit(urljoin(server.address + "/sign-in", place))
        assert there.netloc == urlsplit(server.address).netloc, onward
        assert "x=y" not in told.headers["set-cookie"]
        shown = server.ask("GET", f"/sign-in?next={quote(onward)}", HTML)
        assert "evil.example" not in re.sub(r'value="/[^"/\\]*"', "", shown.text) or onward.startswith(
            ("/.", "/;", "/@", "/%")
        )
    assert sign_in(server, server.tokens["owner"], "/w/garden/?folder=Recipes").headers["location"] == (
        "/w/garden/?folder=Recipes"
    )


def test_nobody_is_sent_away_by_an_address(server: Guarded) -> None:
    for path in (
        "//evil.example",
        "//evil.example/w/",
        "/\\evil.example",
        "///evil.example/%2e%2e",
        "/w//evil.example/",
    ):
        for headers in (HTML, {**HTML, **server.bearer("owner")}):
            answer = server.ask("GET", path, headers)
            place = urlsplit(urljoin(server.address + path, answer.headers.get("location", "/")))
            assert place.netloc == urlsplit(server.address).netloc, (path, answer.headers)
            if place.path == "/sign-in":
                form = server.ask("GET", answer.headers["location"], HTML).text
                assert 'name="next" value="/' in form and 'value="//' not in form


# ---- what is shown ------------------------------------------------------------------------------------


class Look(HTMLParser):
    """Everything in a page that could run, load or send something."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told: Mapping[str, str | None] = dict(attrs)
        if tag in ("iframe", "object", "embed", "base", "style", "svg", "math", "frame", "applet", "portal"):
            self.found.append(tag)
        if tag == "script" and not re.fullmatch(r"/static/page\.js\?v=\w+", told.get("src") or ""):
            self.found.append(f"script {told}")
        if tag == "meta" and (told.get("http-equiv") or "refresh 5") not in ("refresh 5", "refresh"):
            self.found.append(f"meta {told}")
        for name, value in attrs:
            if name.startswith("on") or name in ("style", "srcdoc", "ping", "background", "formaction"):
                self.found.append(f"{tag} {name}")
            if name in ("href", "src", "action"):
                self._led(tag, name, value or "")

    def _led(self, tag: str, name: str, value: str) -> None:
        plain = re.sub(r"[\x00-\x20]", "", unquote(value)).lower()
        strange = re.match(r"(?!https?:|mailto:)[a-z][a-z0-9+.-]*:", plain) or plain.startswith("//")
        if strange or (name != "href" and not value.startswith("/")):
            self.found.append(f"{tag} {name} {value}")
        elif value.startswith("/"):
            self.links.append(value)


def look(html: str) -> Look:
    seen = Look()
    seen.feed(html)
    seen.close()
    return seen


def pages(server: Guarded, most: int = 250) -> Iterator[tuple[str, Answer]]:
    """Every page one comes to from the first, as the owner sees them."""
    odd = [f"/?{name}={quote(BAD)}" for name in ("note", "client", "since", "workspace", "before")]
    odd += [
        f"/w/garden/{place}{quote(BAD, safe='')}" for place in ("search?q=", "notes/", "changes/", "?folder=", "files/")
    ]
    odd += [f"/connect?surface={quote(BAD)}&workspace={quote(BAD)}", f"/w/{quote(BAD, safe='')}/", f"/{quote(BAD)}"]
    waiting, seen = ["/", "/w/garden/search?q=alert", "/w/garden/health", "/w/garden/notes/Links.md", *odd], set[str]()
    while waiting and len(seen) < most:
        path = waiting.pop(0).partition("#")[0]
        if path in seen or path.startswith("/static"):
            continue
        seen.add(path)
        answer = server.ask("GET", path, {**HTML, **server.bearer("owner")})
        yield path, answer
        if answer.headers.get("content-type", "").startswith("text/html"):
            waiting += look(answer.text).links
        elif "location" in answer.headers:
            waiting.append(answer.headers["location"])


def test_nothing_that_somebody_wrote_is_more_than_text(server: Guarded) -> None:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": BAD, "version": "1"}}
    sent = {**JSON, "content-type": "application/json", **server.bearer("owner")}
    begin = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
    session = server.ask("POST", "/mcp/notes", sent, json.dumps(begin).encode()).headers["mcp-session-id"]
    args = {"path": "Garden/Links", "edits": [{"append": BAD}]}
    wrote = {**CALL, "params": {"name": "edit", "arguments": args}}
    done = server.ask("POST", "/mcp/notes", {**sent, "mcp-session-id": session}, json.dumps(wrote).encode())
    assert not done.json()["result"]["isError"], done.text
    walked = list(pages(server))
    html = [(path, answer) for path, answer in walked if answer.headers.get("content-type", "").startswith("text/html")]
    assert len(html) > 30 and sum("alert(1)" in answer.text for _, answer in html) > 10
    for path, answer in html:
        assert not look(answer.text).found, (path, look(answer.text).found)
        assert (
            "<script>alert" not in answer.text and "<img src=x" not in answer.text and "49" not in look_for(answer)
        ), path
    told = server.ask("GET", "/events?after=1", {**HTML, **server.bearer("owner")}).text
    rows = [json.loads(line[6:]) for line in told.splitlines() if line.startswith("data: ")]
    assert rows and BAD in rows[-1]["said"]  # the page puts this one in as text, and the row as HTML
    assert not any(look(row["html"]).found or "<script>alert" in row["html"] for row in rows)


def look_for(answer: Answer) -> str:
    """Where a template in a note would have been worked out."""
    return " ".join(re.findall(r"onerror=alert\(1\)&gt;(\w*)", answer.text))


def test_every_page_says_what_it_may_do(server: Guarded) -> None:
    for path, answer in [*pages(server), ("/sign-in", server.ask("GET", "/sign-in", HTML))]:
        headers = answer.headers
        assert headers.get("x-content-type-options") == "nosniff", path
        if not headers.get("content-type", "").startswith("text/html"):
            continue
        policy = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'", path
        assert policy["script-src"] == policy["style-src"] == policy["form-action"] == "'self'", path
        assert not any("unsafe" in value or "*" in value or "data:" in value for value in policy.values())
        assert headers["cache-control"] == "no-store" and headers["cross-origin-opener-policy"] == "same-origin", path
        assert headers["referrer-policy"] in ("same-origin", "no-referrer"), path


def test_a_file_is_shown_only_if_it_is_a_picture_whatever_it_is_called(server: Guarded) -> None:
    shown = {"cup.png": "image/png", "mixed.gif": "image/gif"}
    for name in ("cup.png", "drawing.svg", "page.html", "picture.png", "mixed.gif", "Tea.md"):
        answer = server.ask("GET", f"/w/garden/files/{name}", {**HTML, **server.bearer("owner")})
        assert answer.status == 200
        assert answer.headers["content-type"] == shown.get(name, "application/octet-stream"), name
        assert answer.headers["content-disposition"].startswith("inline" if name in shown else "attachment"), name
        assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "no-cache" in answer.headers["cache-control"] and "private" in answer.headers["cache-control"]


def test_what_is_private_is_kept_by_no_cache(server: Guarded) -> None:
    for door in server.doors:
        if door.need != "open" and (door.methods is None or "GET" in door.methods):
            parts = {"workspace": "garden", "id": "garden", "path": "Tea.md", "change": server.change}
            path = re.sub(r"{(\w+)(:\w+)?}", lambda found: parts.get(found[1], "x"), door.path)  # noqa: B023
            told = server.ask("GET", path, {**HTML, **server.bearer("owner")}).headers
            assert "public" not in told.get("cache-control", "")
            assert told.get("cache-control") or "mcp" in path, path


def test_a_cookie_that_was_copied_ends_with_the_sign_out_and_no_other_does(fresh: Guarded) -> None:
    ours, elsewhere = fresh.cookie("owner"), fresh.cookie("owner")
    assert fresh.ask("GET", "/api/v1/me", ours).status == 200
    told = fresh.ask("POST", "/sign-out", {**FORM, **ours}, urlencode({"csrf": own_csrf(fresh, "owner")}).encode())
    assert told.status == 303
    raw = ours["cookie"]
    for copy in (raw, raw + "=", raw + "; other=1", raw[:-1] + chr(ord(raw[-1]) ^ 1)):  # as base64 may be spelled
        assert fresh.ask("GET", "/api/v1/me", {"cookie": copy}).status == 401
        assert (
            fresh.ask("POST", "/mcp/notes", {**JSON, "content-type": "application/json", "cookie": copy}).status == 401
        )
    assert fresh.ask("GET", "/api/v1/me", elsewhere).status == 200, "another browser is still in"
    with Site(fresh.site.config) as another, serving(another.build_app()) as port:  # a worker that was not told
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        for cookie, status in ((ours, 401), (elsewhere, 200)):
            connection.request("GET", "/api/v1/me", headers=cookie)
            answer = connection.getresponse()
            assert (answer.status, bool(answer.read())) == (status, True)
        connection.close()
