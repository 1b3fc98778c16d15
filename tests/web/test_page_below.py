"""The page behind a proxy that shows it below a path of its own, as `public_url` says."""

import json
import re
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from tests.server.guarded import GARDEN, HTML, Answer, Guarded, guarded

pytestmark = pytest.mark.slow

BELOW = "/notes"
PUBLIC = f"https://home.example{BELOW}"
FORM = {**HTML, "content-type": "application/x-www-form-urlencoded", "sec-fetch-site": "same-origin"}
NOTES = dict(GARDEN) | {"Pictures.md": "# Pictures\n\n![[cup.png]] ![](cup.png) [[Tea]] [tea](Tea.md) [[Nobody]]\n"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("below"), garden=NOTES, http__public_url=PUBLIC) as running:
        yield running


def through_the_proxy(server: Guarded, address: str, who: str | None = "owner", **more: str) -> Answer:
    """As a browser asks for an address, and a proxy that takes its path away hands it on."""
    parts = urlsplit(address)
    assert (parts.scheme, parts.netloc) in (("", ""), ("https", "home.example")), address
    assert parts.path.startswith(f"{BELOW}/"), f"{address} is not below {BELOW}"
    path = parts.path.removeprefix(BELOW) + (f"?{parts.query}" if parts.query else "")
    headers = {**HTML, "host": "home.example", **(server.cookie(who) if who else {}), **more}
    return server.ask("GET", path, headers)


def links(page: Answer) -> set[str]:
    """Everything that a browser would load or go to, and the stream that the script listens to."""
    found = re.findall(r'\b(?:href|src|action|data-events)="([^"]*)"', page.text)
    return {unescape(one) for one in found if not one.startswith(("#", "http:", "https:", "mailto:"))}


def test_every_link_of_every_page_keeps_the_path(server: Guarded) -> None:
    left, seen = [f"{BELOW}/", f"{BELOW}/w/garden/notes/Pictures.md", f"{BELOW}/w/garden/search?q=tea"], set[str]()
    while left:
        address = left.pop()
        if address in seen:
            continue
        seen.add(address)
        came = through_the_proxy(server, address)
        if came.status in (303, 307):
            left.append(came.headers["location"])
            continue
        only_posted = {"/sign-out": 405, "/tokens": 405, "/tokens/revoke": 405, "/w/garden/undo": 400}
        assert came.status == only_posted.get(address.removeprefix(BELOW), 200), (address, came.status)
        if came.headers.get("content-type", "").startswith("text/html"):
            left += links(came)
    shown = {urlsplit(address).path.removeprefix(BELOW) for address in seen}
    assert shown >= {"/", "/connect", "/events", "/w/", "/w/garden/", "/w/garden/files/cup.png", "/static/page.css"}
    assert any(path.endswith("/undo") for path in shown) and len(seen) > 30


def test_redirects_keep_the_path(server: Guarded) -> None:
    stranger = through_the_proxy(server, f"{BELOW}/w/garden/?folder=Recipes", who=None)
    assert (stranger.status, stranger.headers["location"]) == (
        303, f"{BELOW}/sign-in?next=/w/garden/%3Ffolder%3DRecipes",
    )  # fmt: skip
    page = through_the_proxy(server, stranger.headers["location"], who=None)
    fields = dict(re.findall(r'name="(csrf|next)" value="([^"]*)"', page.text))
    body = urlencode({**{name: unescape(value) for name, value in fields.items()}, "token": server.tokens["owner"]})
    entered = server.ask("POST", "/sign-in", {**FORM, "origin": "https://home.example"}, body.encode())
    assert (entered.status, entered.headers["location"]) == (303, f"{BELOW}/w/garden/?folder=Recipes")
    assert through_the_proxy(server, f"{BELOW}/w").headers["location"] == f"{BELOW}/w/"
    assert through_the_proxy(server, f"{BELOW}/connect/?surface=notes").headers["location"] == (
        f"{BELOW}/connect?surface=notes"
    )
    assert through_the_proxy(server, f"{BELOW}/nothing/").status == 404
    cookie = {"cookie": entered.headers["set-cookie"].partition(";")[0]}
    csrf = re.search(r'name="csrf" value="(\w+)"', server.ask("GET", "/", {**HTML, **cookie}).text)
    assert csrf
    left = server.ask("POST", "/sign-out", {**FORM, **cookie}, urlencode({"csrf": csrf[1]}).encode())
    assert (left.status, left.headers["location"]) == (303, f"{BELOW}/sign-in")


def test_what_clients_are_told_names_the_path_once(server: Guarded) -> None:
    page = through_the_proxy(server, f"{BELOW}/connect?workspace=garden&surface=notes")
    assert f"{PUBLIC}/w/garden/mcp/notes" in page.text and f"{BELOW}{BELOW}" not in page.text
    assert f"{PUBLIC}/mcp/notes" in through_the_proxy(server, f"{BELOW}/connect").text


def test_changes_that_are_told_as_they_happen_keep_the_path(server: Guarded) -> None:
    since = time.time() - 3600
    told = through_the_proxy(server, f"{BELOW}/events?after={since}", accept="text/event-stream")
    events = [json.loads(line.removeprefix("data: ")) for line in told.text.splitlines() if line.startswith("data: ")]
    found = {link for event in events for link in re.findall(r'href="([^"]*)"', event["html"])}
    assert found and all(link.startswith(f"{BELOW}/w/") for link in found)


def test_without_such_a_path_links_begin_at_the_top(tmp_path: Path) -> None:
    with guarded(tmp_path, http__public_url="https://home.example/") as running:
        page = running.ask("GET", "/", {**HTML, **running.cookie("owner")})
        assert {"/", "/connect", "/w/"} <= links(page) and not [one for one in links(page) if one.startswith("//")]
