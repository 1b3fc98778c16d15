"""`notewright serve --http` with an issuer in its configuration, and that issuer's tokens."""

import asyncio
import contextlib
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from tests.server.lines import over_http
from tests.server.provider import SECRET, Provider, provider
from tests.test_docs import EXAMPLES

from notewright.accounts.limits import RateLimits
from notewright.accounts.sqlite import SqliteAccounts
from notewright.server.auth.authenticate import Authenticate, AuthSettings, GuardedRoute
from notewright.server.auth.browser_session import BrowserSessions
from notewright.server.auth.oauth import Issuer, IssuerSettings

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Served:
    issuing: Provider
    address: str

    def post(self, path: str, token: str | None, **more: Any) -> httpx2.Response:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": more.pop("params", {"name": "list"})}
        headers = {"accept": "application/json", **({"authorization": f"Bearer {token}"} if token else {})}
        return httpx2.post(self.address + path, json=message, headers=headers | more.pop("headers", {}), timeout=30)

    def call(self, token: str, tool: str, **args: Any) -> dict[str, Any]:
        answer = self.post("/mcp/notes", token, params={"name": tool, "arguments": args})
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()["result"]
        return result

    def token(self, scope: str, path: str = "/mcp/notes", client: str = "agent") -> str:
        return self.issuing.token(self.address + path, scope, client)


@contextlib.contextmanager
def serving(issuing: Provider, place: Path, more: str = "") -> Iterator[Served]:
    shutil.copytree(EXAMPLES, place / "notes")
    shutil.copytree(EXAMPLES, place / "work")
    (place / "secret").write_text(SECRET)
    settings = f'issuer = "{issuing.issuer}"\nclient_id = "notewright"\nclient_secret_file = "{place / "secret"}"\n'
    (place / "config.toml").write_text(f"[auth]\n{settings}{more}")
    words = [f"Examples={place / 'notes'}", f"Work={place / 'work'}", "--state", str(place / "state")]
    with over_http(*words, "--config", str(place / "config.toml")) as address:
        yield Served(issuing, address)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with provider() as issuing, serving(issuing, tmp_path_factory.mktemp("served")) as running:
        yield running


def said(answer: httpx2.Response) -> dict[str, str]:
    """The parameters of WWW-Authenticate."""
    scheme, _, rest = answer.headers["www-authenticate"].partition(" ")
    assert scheme == "Bearer"
    return dict(re.findall(r'(\w+)="([^"]*)"', rest))


@pytest.mark.parametrize("path", ["/mcp/notes", "/mcp", "/w/work/mcp/notes", "/w/not-there/mcp/notes", "/examples/mcp"])
def test_who_comes_without_a_token_is_told_where_to_get_one(served: Served, path: str) -> None:
    answer = served.post(path, None)
    assert answer.status_code == 401
    document = f"{served.address}/.well-known/oauth-protected-resource{path}"
    assert said(answer) == {"resource_metadata": document, "scope": "notes:read notes:write"}
    about = httpx2.get(document).json()
    assert about["resource"] == served.address + path
    assert about["authorization_servers"] == [served.issuing.issuer]


@pytest.mark.parametrize("client", ["agent", "opaque-agent"])
def test_a_token_of_the_issuer_opens_what_its_scopes_say(served: Served, client: str) -> None:
    reader, writer = (served.token(scope, client=client) for scope in ("notes:read", "notes:write"))
    assert "Work/" in str(served.call(reader, "list"))
    refused = served.call(reader, "write", path=f"Work/Read only {client}", content="x")
    assert refused["isError"] and "read_only" in str(refused["content"])
    assert not served.call(writer, "write", path=f"Work/By {client}", content="x").get("isError")
    host = served.issuing.issuer.removeprefix("http://")
    assert f"{host}/{client}" in str(served.call(reader, "history"))


def test_a_token_for_one_workspace_and_surface_opens_no_other(served: Served) -> None:
    base = served.issuing.token(served.address, "notes:write workspace:work surface:notes")
    assert served.post("/w/work/mcp/notes", base).status_code == 200
    assert served.post("/w/examples/mcp/notes", base).status_code == 404
    assert served.post("/w/not-there/mcp/notes", base).text == served.post("/w/examples/mcp/notes", base).text
    assert served.post("/mcp/lens", base).status_code == 403
    assert "Examples" not in str(served.call(base, "list"))


def test_wrong_tokens_are_told_why(served: Served) -> None:
    for_another = served.post("/mcp/notes", served.token("notes:read", "/mcp/lens"))
    assert for_another.status_code == 401
    assert (
        said(for_another)["error"] == "invalid_token" and "another resource" in said(for_another)["error_description"]
    )
    too_little = served.post("/mcp/notes", served.token("unrelated"))
    assert too_little.status_code == 403
    assert (said(too_little)["error"], said(too_little)["scope"]) == ("insufficient_scope", "notes:read notes:write")
    assert "resource_metadata" in said(too_little)
    for token in ("made-up", "nw_made-up", "a.b.c", "x" * 20_000):
        answer = served.post("/mcp/notes", token)
        assert answer.status_code in (401, 431) and token not in answer.text
        assert answer.status_code == 431 or said(answer)["scope"] == "notes:read notes:write"


def test_a_token_in_the_address_is_no_token(served: Served) -> None:
    assert served.post(f"/mcp/notes?access_token={served.token('notes:read')}", None).status_code == 401


def test_pages_of_others_may_read_the_documents_and_nothing_else(served: Served) -> None:
    page = {"origin": "https://page.example"}
    document = f"{served.address}/.well-known/oauth-protected-resource/mcp/notes"
    assert httpx2.get(document, headers=page).headers["access-control-allow-origin"] == "*"
    asks_first = {
        **page,
        "access-control-request-method": "GET",
        "access-control-request-headers": "mcp-protocol-version",
    }
    assert httpx2.options(document, headers=asks_first).status_code == 204
    assert served.post("/mcp/notes", served.token("notes:read"), headers=page).status_code == 403


def test_who_the_issuer_calls_an_administrator_owns_the_server_and_others_do_not(served: Served) -> None:
    async def owned(_: Request) -> Response:
        return Response("yours")

    async def ask(scopes: list[str]) -> list[tuple[int, str | None]]:
        doors = [GuardedRoute("/owned", owned, need="owner")]
        async with Issuer(IssuerSettings(served.issuing.issuer)) as issuer:
            entry = AuthSettings(SqliteAccounts.in_memory(), BrowserSessions(b"key"), RateLimits(), issuer=issuer)
            site = httpx2.ASGITransport(Starlette(routes=doors, middleware=[Middleware(Authenticate, entry, doors)]))
            async with httpx2.AsyncClient(transport=site, base_url="https://notes.example.com") as client:
                tokens = [served.issuing.token("https://notes.example.com", scope) for scope in scopes]
                asked = [{"authorization": f"Bearer {token}"} for token in tokens]
                answers = [await client.get("/owned", headers=headers) for headers in asked]
                return [(one.status_code, said(one)["scope"] if one.status_code == 403 else None) for one in answers]

    found = asyncio.run(ask(["notes:read", "notes:write", "notes:admin workspace:work", "notes:admin"]))
    assert found == [(403, "notes:admin")] * 3 + [(200, None)]


def test_while_the_issuer_is_down_known_callers_go_on_and_new_ones_are_asked_to_wait(tmp_path: Path) -> None:
    with provider() as issuing, serving(issuing, tmp_path) as running:
        known, opaque = running.token("notes:read"), running.token("notes:read", client="opaque-agent")
        assert running.post("/mcp/notes", known).status_code == 200
        issuing.close()
        assert running.post("/mcp/notes", known).status_code == 200
        answer = running.post("/mcp/notes", opaque)
        assert answer.status_code == 503 and "does not answer" in answer.text
