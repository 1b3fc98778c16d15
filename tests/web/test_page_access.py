"""What a visitor may not see is on no page, and what they may not do does not happen."""

import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
from tests.web.page_desk import Site, append, config_of, csrf, served

from notewright.engine.move import move
from notewright.notes.path import NotePath

pytestmark = pytest.mark.slow

SECRET = "zanzibar"
NOTES = {
    "Open.md": "Tea. See [[Hidden]].\n",
    "Other.md": "[[Open]] mentions tea\n",
    "Private/Hidden.md": "---\naliases: [Zanzibar alias]\n---\nTea at Zanzibar [[Open]]\n",
    "Private/Zanzibar plan.md": "# Zanzibar\nOpen the tea [[Nowhere in Zanzibar]]\n",
    "Private/zanzibar.png": b"\x89PNG\r\n\x1a\n",
    ".obsidian/zanzibar.md": "Tea in Zanzibar\n",
}


class Seen:
    """A site on which hidden things happened, and a visitor who may not see them."""

    def __init__(self, site: Site, client: httpx2.Client, changes: dict[str, str]) -> None:
        self.site, self.client, self.changes = site, client, changes


def happen(site: Site) -> dict[str, str]:
    """Changes by somebody who may do everything: of an open note, a hidden one, both, and a move into hiding."""
    agent = site.agent("zanzibar-free")
    names = {"open": append(agent, "Open.md", "More.\n"), "hidden": append(agent, "Private/Hidden.md", "Zanzibar!\n")}
    moved = move(agent, NotePath("Open.md"), NotePath("Open tea.md"))  # rewrites a link in a hidden note
    assert moved.change_id
    return names | {"both": moved.change_id}


@pytest.fixture(params=["workspace", "token"])
def seen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Seen]:
    """Hidden by the rules of the workspace, or by those of the visitor's token."""
    config = config_of(tmp_path, {"Main": NOTES, "Zanzibar": {"Far.md": "far\n"}})
    by_token = request.param == "token"
    first, second = config.workspaces
    open_config = replace(config, workspaces=(first,))
    hidden = replace(config, workspaces=(first if by_token else replace(first, hide=("Private/**",)), second))
    with served(hidden) as site:
        free = Site(site.base, open_config, site.registry)
        changes = happen(free)
        free.close()
        narrow = {"hide": ("Private/**",)} if by_token else {}
        token = site.token("guest", workspaces=("main",), **narrow)
        yield Seen(site, site.client(token), changes)


def addresses(changes: dict[str, str]) -> list[str]:
    found = [
        "/", "/?workspace=zanzibar", "/?note=Private", "/?note=Private/Hidden.md", "/?note=zanzibar", "/connect",
        "/connect?workspace=zanzibar", "/w/", "/w/main/", "/w/main/?folder=Private", "/w/main/?folder=.obsidian",
        "/w/main/search?q=tea", "/w/main/search?q=alias", "/w/main/search?q=path:Private", "/w/main/health",
        "/w/main/notes/Open%20tea.md", "/w/main/notes/Other.md", "/w/main/notes/Private/Hidden.md",
        "/w/main/notes/Hidden", "/w/main/notes/Private", "/w/main/notes/.obsidian/zanzibar.md",
        "/w/main/files/Private/Hidden.md", "/w/main/files/.obsidian/zanzibar.md", "/w/main/undo?client=x&since=0",
        "/w/zanzibar/", "/w/zanzibar/notes/Far.md", "/w/zanzibar/health", "/w/zanzibar/search?q=far", "/w/Main/",
    ]  # fmt: skip
    for change in changes.values():
        found += [f"/w/main/changes/{change}", f"/w/main/changes/{change}/undo", f"/w/zanzibar/changes/{change}"]
    return found


def test_nothing_hidden_is_on_any_page(seen: Seen) -> None:
    for address in addresses(seen.changes):
        answer = seen.client.get(address)
        text = answer.text.lower()
        # who made a change is told of those that may be seen; what was typed is shown again
        for known in (
            "zanzibar-free",
            'value="zanzibar"',
            f"/w/{SECRET}",
            "note=zanzibar",
            "workspace=zanzibar",
            ".obsidian/zanzibar.md",
        ):
            text = text.replace(known, "")
        assert SECRET not in text, address
        assert "private/hidden" not in text.replace("private/hidden.md", "" if "Private" in address else "!"), address


def test_a_hidden_note_a_change_of_it_and_one_that_is_not_there_look_the_same(seen: Seen) -> None:
    for hidden, missing in (
        ("/w/main/notes/Private/Hidden.md", "/w/main/notes/Private/Hiddem.md"),
        ("/w/main/files/Private/zanzibar.png", "/w/main/files/Private/zanzibaX.png"),
        (f"/w/main/changes/{seen.changes['hidden']}", "/w/main/changes/abcdefgh"),
        ("/w/zanzibar/", "/w/nothing/"),
        ("/w/zanzibar/notes/Far.md", "/w/nothing/notes/Far.md"),
    ):
        one, other = seen.client.get(hidden), seen.client.get(missing)
        assert one.status_code == other.status_code == 404
        names = re.compile(r"(?:[a-z0-9]{8}, )*[a-z0-9]{8}\b|Private/\w+\.\w+|zanzibar|nothing", re.I)  # lists too
        assert names.sub("", one.text) == names.sub("", other.text)


def test_hidden_changes_are_not_told_as_they_happen(seen: Seen) -> None:
    with seen.client.stream("GET", "/events?after=0", headers={"accept": "text/event-stream"}) as stream:
        told = list[str]()
        for line in stream.iter_lines():
            told += [json.loads(line[6:])["html"]] if line.startswith("data: ") else []
            if len(told) == 2:
                break
    assert seen.changes["open"] in told[0] and seen.changes["both"] in told[1]
    assert "private" not in "".join(told).lower()


def test_a_hidden_change_cannot_be_taken_back(seen: Seen) -> None:
    before = {file: file.read_bytes() for file in seen.site.place().rglob("*.md")}
    token = csrf(seen.client.get("/connect"))
    answer = seen.client.post(f"/w/main/changes/{seen.changes['hidden']}/undo", data={"csrf": token})
    assert answer.status_code == 404
    answer = seen.client.post("/w/main/undo", data={"csrf": token, "client": "zanzibar-free", "since": "0"})
    assert answer.status_code in (403, 404) or "Private" not in answer.text
    hidden = seen.site.place() / "Private/Hidden.md"
    assert b"Zanzibar!" in before[hidden] and b"Zanzibar!" in hidden.read_bytes()


# ---- narrowed visitors --------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with served(config_of(tmp_path, {"Main": NOTES, "Work": {"Plan.md": "plan\n"}})) as site:
        yield site


def test_a_read_only_visitor_looks_and_takes_nothing_back(site: Site) -> None:
    name = append(site.agent(), "Open.md", "More.\n")
    reader = site.client(site.token("reader", read_only=True))
    page = reader.get(f"/w/main/changes/{name}")
    assert page.status_code == 200 and "Undo…" not in page.text
    answer = reader.post(f"/w/main/changes/{name}/undo", data={"csrf": csrf(reader.get("/connect"))})
    assert answer.status_code == 403
    assert reader.post("/w/main/undo", data={"csrf": csrf(page), "client": "claude", "since": "0"}).status_code == 403
    assert "More." in (site.place() / "Open.md").read_text()


def test_a_visitor_takes_back_only_where_they_may_write(site: Site) -> None:
    agent = site.agent()
    outside, inside = append(agent, "Open.md", "More.\n"), append(agent, "Private/Hidden.md", "More.\n")
    writer = site.client(site.token("writer", write_under=("Private/**",)))
    token = csrf(writer.get("/connect"))
    assert writer.post(f"/w/main/changes/{outside}/undo", data={"csrf": token}).status_code == 403
    assert writer.post(f"/w/main/changes/{inside}/undo", data={"csrf": token}).status_code == 200
    assert "More." in (site.place() / "Open.md").read_text()
    assert "More." not in (site.place() / "Private/Hidden.md").read_text()


def test_only_the_owner_sees_and_makes_tokens(site: Site) -> None:
    site.token("another-token")
    for narrow in ({"read_only": True}, {"workspaces": ("main",)}, {"hide": ("x",)}, {"write_under": ("x",)}):
        guest = site.client(site.token(f"guest {len(site.registry.tokens())}", **narrow))
        page = guest.get("/connect")
        assert "another-token" not in page.text and "A new token" not in page.text
        assert guest.post("/tokens", data={"csrf": csrf(page), "name": "mine"}).status_code == 403
        assert guest.post("/tokens/revoke", data={"csrf": csrf(page), "name": "another-token"}).status_code == 403
    assert all(token.is_valid(time.time()) and token.name != "mine" for token in site.registry.tokens())


def test_a_token_for_tools_is_none_for_the_page(site: Site) -> None:
    tools, both = site.token("tools", surfaces=("lens",)), site.token("both", surfaces=("lens", "page"))
    client = site.client()
    page = client.get("/sign-in")
    answer = client.post("/sign-in", data={"csrf": csrf(page), "token": tools})
    assert answer.status_code == 403 and "set-cookie" not in answer.headers
    for address in ("/", "/events", "/w/main/", "/connect"):
        headers = {"authorization": f"Bearer {tools}"}
        assert client.get(address, headers=headers).status_code == 403, address
    assert site.client(both).get("/").status_code == 200


def test_a_visitor_is_shown_only_what_they_may_connect_to(site: Site) -> None:
    guest = site.client(site.token("guest", workspaces=("work",), surfaces=("cairn", "page"), read_only=True))
    text = guest.get("/connect").text
    assert "/mcp/cairn" in text and "YOUR_TOKEN" in text
    assert "/mcp/notes" not in text and "octarine" not in text and ">Main<" not in text
    assert "read only, in work, through cairn, page" in text
