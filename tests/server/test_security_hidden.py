"""What is hidden is not there: not in any answer, and not in how an answer differs.

The strongest way to say so: two servers, of which one has notes that are hidden and the other has not. Whatever those
ask from whom they are hidden, both answer the same, word for word.
"""

import io
import json
import os
import re
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

import pytest
from tests.server.every_call import calls, surfaces
from tests.server.guarded import (
    BY_RULE,
    BY_TOKEN,
    GARDEN,
    HIDING,
    HTML,
    JSON,
    PATTERN,
    RULE,
    WORKSPACE,
    Answer,
    Guarded,
    guarded,
)
from tests.waiting import until

from notewright.config.settings import SURFACES
from notewright.engine.access import Access
from notewright.engine.changes.history import list_changes
from notewright.engine.workspace import Workspace
from notewright.ledger.base import ChangeQuery

pytestmark = pytest.mark.slow

HIDDEN = tuple(path for path in GARDEN if not Access(hide=HIDING + RULE).sees(path))
CANARIES = (BY_RULE, BY_TOKEN, PATTERN, WORKSPACE, "Private/", "Hidden/")
DULL = ("Tea", "Map", "Larder", "Attic/Larder", "Door", "shared", "", "**/*.md", ".*", BY_TOKEN[:-1], "Deep")
TELLING = (f"Private/{BY_TOKEN}.md", BY_TOKEN, f"{BY_RULE}alias", "Private")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """One with a past: what is hidden was made, moved out of sight and into it, and deleted."""
    with guarded(tmp_path_factory.mktemp("guarded")) as running:
        _live(running)
        yield running


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Guarded, Guarded]]:
    """The second has nothing to hide."""
    plain = {path: text for path, text in GARDEN.items() if path not in HIDDEN}
    place, other = (tmp_path_factory.mktemp(name) for name in ("with", "without"))
    with guarded(place) as full, guarded(other, garden=plain) as empty:
        _live_unseen(full)
        for one in (full, empty):  # the same is done in both, and what is hidden follows
            _do(one, "move", **{"from": "Tea", "to": "Green Tea"})
            _do(one, "move", **{"from": "Green Tea", "to": "Tea"})
            one.names = [change.id for change in _garden(one).ledger.find_changes(ChangeQuery(limit=100))]
            _date(one, sorted(plain))
        yield full, empty


def _date(server: Guarded, paths: list[str]) -> None:
    """Save the files one after the other: of two that one rename wrote, a quick machine dates both alike."""
    ws, times = _garden(server), {path: 1_760_000_000 + number for number, path in enumerate(paths)}
    for path, at in times.items():
        os.utime(server.place / "notes" / "Garden" / path, (at, at))
    until(lambda: all(_is_dated(ws, path, at) for path, at in times.items()))


def _is_dated(ws: Workspace, path: str, at: int) -> bool:
    filed = ws.index.find_file(path)
    return filed is not None and filed.modified_ns == at * 10**9


def _do(server: Guarded, tool: str, surface: str = "notes", **args: Any) -> None:
    done = server.call("owner", surface, tool, args, "/w/garden/mcp").json()["result"]
    assert not done["isError"], done


def _garden(server: Guarded) -> Workspace:
    return next(ws for ws in server.site.library.workspaces() if ws.id == "garden")


def _live_unseen(server: Guarded) -> None:
    """What is hidden is overwritten, moved and deleted, so that there are copies of it."""
    for path in (f"{PATTERN}.md", "Attic/Tea.md", f"Private/{BY_TOKEN}.md"):
        text = GARDEN[path]
        for content in ("another text\n", text):
            _do(server, "octarine_write_note", "octarine", workspace="Garden", note_path=path, content=content)
    for path in (f"Attic/{BY_TOKEN}first", "Attic/Map"):
        _do(server, "write", path=path, content=f"{BY_TOKEN} [[Tea]]")
        _do(server, "move", **{"from": f"{path}.md", "to": f"{path} again"})
        _do(server, "delete", path=f"{path} again")


def _live(server: Guarded) -> None:
    def do(tool: str, **args: Any) -> None:
        _do(server, tool, **args)

    def move(old: str, new: str) -> None:
        do("move", **{"from": old, "to": new})

    do("write", path=f"Private/{BY_TOKEN}new", content=f"{BY_TOKEN} [[Tea]]")
    move("Tea", "Green Tea")  # links of hidden notes follow
    move("Green Tea", "Tea")
    move(f"Private/{BY_TOKEN}", f"Private/{BY_TOKEN}moved")
    do("write", path="Recipes/Gone", content="plain")
    move("Recipes/Gone", f"Private/{BY_TOKEN}gone")
    do("write", path=f"Private/{BY_TOKEN}out", content="plain")
    move(f"Private/{BY_TOKEN}out", "Recipes/Out")
    do("write", path=f"Private/{BY_TOKEN}sub/In/One", content="plain")
    move(f"Private/{BY_TOKEN}sub/In/", "Recipes/")
    move("Recipes/In/", f"Private/{BY_TOKEN}back/")
    do("delete", path=f"Private/{BY_TOKEN}new")


def same(server: Guarded, answer: Answer) -> str:
    """What an answer says, without what differs from one server to the next."""
    said = answer.whole.replace(server.change, "CHANGE").replace(str(server.place), "PLACE")
    for name in server.names:
        said = said.replace(name, "CHANGE")
    said = re.sub(r"CHANGE(, CHANGE)+", "CHANGE", said)  # how many ids look like a word is chance
    said = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)", "TIME", said.replace(server.address, "HOST"))
    said = re.sub(
        r'executionTime\\":\d+|csrf" value="\w+|data-after="[\d.]+|since=[\d.]+|content-length": "\d+', "", said
    )
    said = re.sub(r"^id: [\d.]+$|\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(-\d+)?", "TIME", said, flags=re.M)  # events, old copies
    return re.sub(r"\d{1,2} \w{3} \d{4}, \d\d:\d\d", "TIME", said)


def unordered(said: str) -> list[str]:
    """The words of a ranking. How common a word is tells how much it counts, and is counted over all notes: what is
    hidden may change the order of hits, and nothing else."""
    return sorted(re.findall(r"\w+", re.sub(r'"score\\*": ?[\d.]+', "", said.replace("\\n", "\n"))))


RANKED = ("search", "context", "octarine_search_notes", "search?q=")


def alike(what: str, full: str, empty: str) -> bool:
    return unordered(full) == unordered(empty) if what.endswith(RANKED) or "search?q=" in what else full == empty


def tells(answer: str, asked: str = "") -> list[str]:
    """Words of what is hidden that nobody had said before."""
    return [word for word in CANARIES if word.lower() in answer.lower() and word.lower() not in asked.lower()]


# ---- tools --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SURFACES)
def test_no_tool_answers_otherwise_because_of_what_is_hidden(twins: tuple[Guarded, Guarded], name: str) -> None:
    surface = next(surface for surface in surfaces() if surface.name == name)
    for tool in surface.tools:
        for args in calls(tool, *DULL, *TELLING):
            full, empty = (same(server, server.call("guest-reader", name, tool.name, args)) for server in twins)
            assert alike(tool.name, full, empty), (tool.name, args)
            assert not tells(full, json.dumps(args)), (tool.name, args)


def test_copies_of_what_is_hidden_are_in_no_list_and_cannot_be_read(twins: tuple[Guarded, Guarded]) -> None:
    copies = [name.removeprefix("Garden/") for name in twins[0].files() if "/." in name]
    assert len(copies) > 6
    asked = [("octarine_read_note", {"note_path": copy}) for copy in copies]
    for folder in ("", ".backups", ".trash", "Attic", "Attic/.backups", "Recipes", *copies):
        for deep in (True, False):
            asked.append(("octarine_list_notes", {"directory": folder, "recursive": deep, "include_hidden": True}))
    for tool, args in asked:
        full, empty = (same(one, one.call("guest", "octarine", tool, {"workspace": "Garden", **args})) for one in twins)
        assert full == empty, (tool, args)
        assert not tells(full, json.dumps(args)), (tool, args)


@pytest.mark.parametrize("name", SURFACES)
def test_no_tool_tells_of_a_past_that_is_hidden(server: Guarded, name: str) -> None:
    surface = next(surface for surface in surfaces() if surface.name == name)
    for tool in surface.tools:
        for args in calls(tool, *DULL, dull="Broth"):
            answer = server.call("guest-reader", name, tool.name, args)
            assert not tells(answer.text, json.dumps(args)), (tool.name, args)


@pytest.mark.parametrize("where", ["/mcp", "/w/garden/mcp"])
def test_resources_completions_and_prompts_know_nothing_of_it(twins: tuple[Guarded, Guarded], where: str) -> None:
    begun = ["", "T", "P", "Pri", "Private/", BY_TOKEN[:4], BY_TOKEN, "Hid", BY_RULE[:3], "Garden/", WORKSPACE[:3]]
    uris = [f"{base}{quote(path)}" for base in ("note:///", "brain:///") for path in (*HIDDEN, "Tea.md")]
    for name in SURFACES:
        templates = twins[0].rpc("guest", name, _rpc("resources/templates/list"), where).json().get("result", {})
        asked = [
            _rpc(method) for method in ("resources/list", "resources/templates/list", "prompts/list", "tools/list")
        ]
        asked += [_rpc("resources/read", uri=uri) for uri in uris]
        for template in templates.get("resourceTemplates", ()):
            ref = {"type": "ref/resource", "uri": template["uriTemplate"]}
            asked += [_rpc("completion/complete", ref=ref, argument={"name": "path", "value": word}) for word in begun]
        for prompt in ("capture-note", "weekly-review", "research-summary"):
            values = {key: BY_TOKEN for key in ("topic", "title", "week", "week_of", "content", "folder", "source")}
            asked.append(_rpc("prompts/get", name=prompt, arguments=values))
            ref = {"type": "ref/prompt", "name": prompt}
            asked += [_rpc("completion/complete", ref=ref, argument={"name": "topic", "value": word}) for word in begun]
        for message in asked:
            full, empty = (same(server, server.rpc("guest", name, message, where)) for server in twins)
            assert full == empty, (name, message)
            assert not tells(full, json.dumps(message)), (name, message)


def _rpc(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 3, "method": method, "params": params}


# ---- page and API -------------------------------------------------------------------------------------

PLACES = [
    "/", "/?note=Private", f"/?note={BY_TOKEN}", "/?client=claude&since=2020-01-01", "/w/", "/w/garden/",
    "/w/garden/?folder=Private", "/w/garden/?folder=Hidden", "/w/garden/search", "/w/garden/search?q=tea",
    f"/w/garden/search?q={BY_TOKEN}", f"/w/garden/search?q={BY_TOKEN[:-1]}", "/w/garden/search?q=path:Private",
    f"/w/garden/search?q=tag:{BY_TOKEN}tag", "/w/garden/health", "/w/garden/undo?client=claude&since=2020-01-01",
    "/connect", "/connect?workspace=quillon", "/w/garden/notes/Tea.md", "/w/garden/notes/Tea",
    f"/w/garden/notes/{BY_TOKEN}", "/w/garden/notes/Private", "/events?after=0", "/api/v1/me", "/api/v1/workspaces",
    "/api/v1/workspaces/garden", "/api/v1/workspaces/garden/notes", "/readyz",
    "/api/v1/workspaces/garden/notes?prefix=Private", "/api/v1/workspaces/garden/search?q=tea",
    "/api/v1/workspaces/garden/check", f"/api/v1/workspaces/garden/search?q={BY_TOKEN[:-1]}",
    f"/api/v1/workspaces/garden/search?q={BY_RULE}alias", "/api/v1/workspaces/garden/links/Tea.md",
    "/api/v1/workspaces/garden/links/Recipes/Broth.md", "/api/v1/openapi.json", "/api/v1/workspaces/garden/changes",
    "/api/v1/workspaces/garden/changes?path=Private", "/api/v1/workspaces/garden/rebuild-index",
    *(f"{place}/{path}" for path in HIDDEN for place in ("/w/garden/notes", "/w/garden/files")),
    *(f"/api/v1/workspaces/garden/notes/{path}" for path in HIDDEN),
    *(f"/api/v1/workspaces/garden/links/{path}" for path in (*HIDDEN, "Map.md", "Recipes/List.md")), "/metrics",
    *(f"/api/v1/workspaces/garden/changes?path={path}" for path in (*HIDDEN, "Attic", "Cellar", "Attic/None.md")),
    *(f"/?note={path}" for path in (*HIDDEN, "Attic", "Cellar", "Attic/None.md", "Larder", "Door")),
    *(f"/events?after=0&note={path}" for path in (*HIDDEN, "Attic", "Attic/None.md")),
    *(f"/w/garden/notes/{path}" for path in ("Map.md", "Recipes/List.md", "Larder", "Pantry", "Attic", "Board.canvas")),
    *(f"/api/v1/workspaces/garden/changes?path={path}" for path in ("Tea.md", "Map.md", "Recipes", "Green%20Tea.md")),
]  # fmt: skip


@pytest.mark.parametrize("accept", ["text/html", "application/json"])
def test_no_page_differs_because_of_what_is_hidden(twins: tuple[Guarded, Guarded], accept: str) -> None:
    for path in PLACES:
        full, empty = (
            same(server, server.ask("GET", path, {"accept": accept, **server.bearer("guest")})) for server in twins
        )
        assert alike(path, full, empty), path
        assert not tells(full, path), path


def test_following_every_link_leads_to_nothing_hidden(server: Guarded) -> None:
    waiting, seen = ["/"], set[str]()
    while waiting and len(seen) < 400:
        path = waiting.pop(0)
        if path in seen:
            continue
        seen.add(path)
        answer = server.ask("GET", path, {**HTML, **server.bearer("guest")})
        assert answer.status in (200, 303, 400, 403, 404, 409), path
        assert not tells(answer.whole, path), (path, tells(answer.whole))
        links = [unescape(link) for link in re.findall(r'(?:href|src|action)="([^"#]+)', answer.text)]
        links += [answer.headers["location"]] if "location" in answer.headers else []
        waiting += [urljoin(path, link) for link in links if not urlsplit(link).scheme]
    assert len(seen) > 40 and not waiting


def test_no_change_that_is_hidden_can_be_looked_at_or_taken_back(server: Guarded) -> None:
    before = server.files()
    ws = next(ws for ws in server.site.library.workspaces() if ws.id == "garden")
    whole = [change.id for change in list_changes(_unhidden(ws), ChangeQuery(limit=100))]
    guest = _unhidden(ws, hide=("Private/**", "Hidden/**"))
    hidden = set(whole) - {change.id for change in list_changes(guest, ChangeQuery(limit=100))}
    assert len(hidden) > 3
    for change in whole:
        page, api = f"/w/garden/changes/{change}", f"/api/v1/workspaces/garden/changes/{change}"
        looked = [server.ask("GET", place, {**HTML, **server.bearer("guest")}) for place in (page, f"{page}/undo", api)]
        asked = [("history", {"change": change}), ("undo", {"change": change, "dry_run": True})]
        called = [server.call("guest", "notes", tool, args) for tool, args in asked]
        for answer in looked + called:
            assert not tells(answer.whole), (change, answer.text)
        if change in hidden:
            assert [answer.status for answer in looked] == [404] * 3
            undo = server.ask("POST", f"{api}/undo", {**JSON, **server.bearer("guest")}, b"")
            told = server.call("guest", "notes", "undo", {"change": change})
            assert undo.status == 404 and told.json()["result"]["isError"]
            assert not tells(undo.whole + told.whole)
    assert server.files() == before


def _unhidden(ws: Any, hide: tuple[str, ...] = ()) -> Any:
    return replace(ws, access=Access(hide=hide))


def test_an_export_holds_no_more_than_may_be_seen(server: Guarded) -> None:
    answer = server.ask("GET", "/api/v1/workspaces/garden/export.zip", server.bearer("guest"))
    with zipfile.ZipFile(io.BytesIO(answer.body)) as packed:
        for name in packed.namelist():
            assert not tells(name) and not tells(packed.read(name).decode("utf-8", "replace")), name
        assert "Tea.md" in packed.namelist()
    assert not tells(answer.whole)


def test_a_hidden_place_takes_nothing_in_and_does_not_say_whether_it_is_taken(twins: tuple[Guarded, Guarded]) -> None:
    """For every way to write, a hidden note that is there is refused as one that is not."""
    before = [server.files() for server in twins]
    for surface in surfaces():
        for tool in surface.tools:
            for path in HIDDEN if "daily" not in tool.name else ():  # whose note has the name of a day
                for args in calls(tool, path, dull=path):
                    full, empty = (same(one, one.call("guest", surface.name, tool.name, args)) for one in twins)
                    assert alike(tool.name, full, empty), (tool.name, args)
    for path in HIDDEN:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as zipped:
            zipped.writestr(path, "planted")
        for more in ("", "?overwrite=true", "?dry_run=true"):
            place, kind = f"/api/v1/workspaces/garden/import{more}", {"content-type": "application/zip"}
            came = [one.ask("POST", place, {**one.bearer("guest"), **kind}, packed.getvalue()) for one in twins]
            assert came[0].text == came[1].text and came[0].json()["created"] == [], came[0].text
    assert [server.files() for server in twins] == before


def test_who_writes_what_is_seen_learns_nothing_of_what_is_not(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Both servers are written to in the same way, and go on answering the same."""
    plain = {path: text for path, text in GARDEN.items() if path not in HIDDEN}
    place, other = (tmp_path_factory.mktemp(name) for name in ("with", "without"))
    with guarded(place) as full, guarded(other, garden=plain) as empty:
        for surface in surfaces():
            for tool in surface.tools:
                for word in ("Tea", "new", "Recipes/Broth"):
                    for args in calls(tool, word):
                        told = [
                            re.sub(r"\b[2-9a-z]{8}\b", "ID", same(one, answer).replace("\\n", "\n"))
                            for one in (full, empty)
                            for answer in [one.call("guest", surface.name, tool.name, args)]
                        ]
                        assert alike(tool.name, *told), (tool.name, args)
                        assert not tells(told[0], json.dumps(args))
        seen, all_seen = ({name for name in one.files() if "/.backups/" not in name} for one in (empty, full))
        assert seen == all_seen - {f"Garden/{path}" for path in HIDDEN} != all_seen


def test_taking_back_a_rename_tells_nothing_of_the_hidden_links_it_rewrote(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    plain = {path: text for path, text in GARDEN.items() if path not in HIDDEN}
    place, other = (tmp_path_factory.mktemp(name) for name in ("with", "without"))
    with guarded(place) as full, guarded(other, garden=plain) as empty:
        told = [_renamed_and_back(one) for one in (full, empty)]
        for with_hidden, without in zip(*told, strict=True):
            assert with_hidden == without
            assert not tells(with_hidden)
        assert b"[[Tea]]" in full.files()["Garden/Attic/Larder.md"]  # and it was taken back there too


def _renamed_and_back(server: Guarded) -> list[str]:
    """What a guest is told who renames notes and takes that back, by every way there is."""
    api, page = "/api/v1/workspaces/garden/changes", "/w/garden/changes"
    answers: list[Answer] = []

    def call(tool: str, surface: str = "notes", **args: Any) -> None:
        answers.append(server.call("guest", surface, tool, args))
        newest = [change.id for change in _garden(server).ledger.find_changes(ChangeQuery(limit=20))]
        server.names = list(dict.fromkeys([*server.names, *newest]))

    for dry in (True, False):
        call("move", **{"from": "Tea", "to": "Recipes/Green Tea", "dry_run": dry})
    call("rename_note", "obsidian", old_name="Map", new_name="Chart", dry_run=True)
    call("rename_note", "obsidian", old_name="Map", new_name="Chart")
    call("delete_note", "obsidian", name="List", dry_run=True)
    call("delete_note", "obsidian", name="List")
    changes = [change.id for change in _garden(server).ledger.find_changes(ChangeQuery(limit=3))]
    for change in changes:
        for path in (f"{api}/{change}", f"{page}/{change}", f"{page}/{change}/undo"):
            answers.append(server.ask("GET", path, {**HTML, **server.bearer("guest")}))
        call("history", change=change)
        call("undo", change=change, dry_run=True)
        call("undo", change=change)
        call("history")
    answers.append(server.ask("GET", api, {**JSON, **server.bearer("guest")}))
    answers.append(server.ask("GET", "/?client=t", {**HTML, **server.bearer("guest")}))
    return [same(server, answer) for answer in answers]
