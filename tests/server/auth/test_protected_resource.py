"""What we say of ourselves to OAuth clients (RFC 9728): at every endpoint's own place, to everybody, no more."""

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx2
import pytest
from mcp.shared.auth import ProtectedResourceMetadata
from starlette.applications import Starlette

from notewright.config.settings import SURFACES
from notewright.server.auth.authenticate import metadata_url
from notewright.server.auth.protected_resource import resource_metadata, routes
from notewright.server.host_check import WELL_KNOWN

BASE = "https://notes.example.com"
ISSUER = "https://id.example"


def get(paths: Sequence[str], method: str = "GET", **settings: Any) -> list[httpx2.Response]:
    async def ask() -> list[httpx2.Response]:
        transport = httpx2.ASGITransport(Starlette(routes=routes(**settings)))
        async with httpx2.AsyncClient(transport=transport, base_url=BASE) as client:
            return [await client.request(method, path, headers={"Origin": "https://page.example"}) for path in paths]

    return asyncio.run(ask())


ENDPOINTS = [
    "",
    "/mcp",
    "/examples/mcp",
    *(f"/mcp/{surface}" for surface in SURFACES),
    "/mcp/second-brain",
    "/w/examples/mcp/second-brain",
    *(f"/w/{workspace}/mcp/{surface}" for workspace in ("examples", "not-there") for surface in SURFACES),
]


def test_every_endpoint_has_its_document_and_it_names_the_address_that_was_asked_for() -> None:
    answers = get([WELL_KNOWN + path for path in ENDPOINTS], issuer=ISSUER)
    for path, answer in zip(ENDPOINTS, answers, strict=True):
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "*"
        assert answer.json() == {
            "resource": BASE + path,
            "authorization_servers": [ISSUER],
            "scopes_supported": ["notes:read", "notes:write"],
            "bearer_methods_supported": ["header"],
            "resource_name": "Notewright",
        }
        ProtectedResourceMetadata.model_validate_json(answer.content)


def test_a_workspace_that_is_not_there_has_the_same_document() -> None:
    there, not_there = get([f"{WELL_KNOWN}/w/{name}/mcp/notes" for name in ("examples", "nothing_at-all")])
    assert there.text.replace("examples", "nothing_at-all") == not_there.text


def test_what_is_no_endpoint_has_none() -> None:
    paths = [
        "/mcp/nope",
        "/w/examples/mcp/nope",
        "/w/examples",
        "/w//mcp/notes",
        "/api/v1",
        "/a/b/mcp",
        '/"x"/mcp',
        "/é/mcp",
    ]
    assert {answer.status_code for answer in get([WELL_KNOWN + path for path in paths])} == {404}
    lens, notes = get([f"{WELL_KNOWN}/mcp/lens", f"{WELL_KNOWN}/mcp/notes"], surfaces=["notes"])
    assert (lens.status_code, notes.status_code) == (404, 200)


def test_where_only_our_own_tokens_are_used_no_issuer_is_named() -> None:
    (answer,) = get([f"{WELL_KNOWN}/mcp"])
    assert "authorization_servers" not in answer.json()


def test_a_browser_may_ask_first() -> None:
    (answer,) = get([f"{WELL_KNOWN}/mcp"], "OPTIONS")
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == "*" == answer.headers["access-control-allow-headers"]


def test_the_issuers_names_of_scopes_are_told() -> None:
    (answer,) = get([WELL_KNOWN], issuer=ISSUER, scopes=("kb.reader", "kb.editor"))
    assert answer.json()["scopes_supported"] == ["kb.reader", "kb.editor"]


@pytest.mark.parametrize("public_url", ["https://home.example/apps/notes", "https://home.example/apps/notes/"])
def test_behind_a_path_both_places_work_and_the_address_is_the_public_one(public_url: str) -> None:
    inserted, stripped, whole, other = get(
        [WELL_KNOWN + path for path in ("/apps/notes/mcp", "/mcp", "/apps/notes", "/apps/noteswright/mcp")],
        public_url=public_url,
    )
    assert inserted.json()["resource"] == stripped.json()["resource"] == "https://home.example/apps/notes/mcp"
    assert whole.json()["resource"] == "https://home.example/apps/notes"
    assert other.status_code == 404


def test_the_place_of_a_document_is_told_for_every_path() -> None:
    assert metadata_url(BASE, "/mcp/notes") == f"{BASE}{WELL_KNOWN}/mcp/notes"
    assert metadata_url(BASE, "/w/examples/mcp/notes/") == f"{BASE}{WELL_KNOWN}/w/examples/mcp/notes"
    assert metadata_url(f"{BASE}/apps/notes/", "/mcp") == f"{BASE}{WELL_KNOWN}/apps/notes/mcp"
    for path in ("/", "", "/api/v1/workspaces", '/x"y/z', "/metrics"):
        assert metadata_url(BASE, path) == f"{BASE}{WELL_KNOWN}"


def test_a_document_is_made_from_values_alone() -> None:
    made = resource_metadata(f"{BASE}/", "/mcp", ISSUER)
    assert (made["resource"], made["authorization_servers"]) == (f"{BASE}/mcp", [ISSUER])
