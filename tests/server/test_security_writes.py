"""Who may only read changes nothing, and who may write in one place changes nothing elsewhere, by whatever way.

Every refusal here is of something that works: the same call is made by the owner afterwards, and changes the notes.
"""

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.server.every_call import calls, surfaces
from tests.server.guarded import GARDEN, HTML, JSON, Guarded, guarded
from tests.server.lines import ENVELOPE
from tests.waiting import eventually

from notewright.engine.changes.history import list_changes
from notewright.ledger.base import ChangeQuery
from notewright.server.auth.browser_session import BrowserSessions

pytestmark = pytest.mark.slow

TEXT = "---\ntags: [old]\n---\n# Head\n\nalpha beta\n"
# How each tool that writes does so; `{}` is a note of its own for each of them.
WRITES: list[tuple[str, str, dict[str, Any]]] = [
    ("notes", "write", {"path": "New {}", "content": "x"}),
    ("notes", "edit", {"path": "{}", "edits": [{"append": "x"}]}),
    ("notes", "properties", {"path": "{}", "set": {"a": "b"}}),
    ("notes", "move", {"from": "{}", "to": "Moved {}"}),
    ("notes", "delete", {"path": "{}"}),
    ("notes", "daily", {"date": "2020-01-01", "append": "x"}),
    ("cairn", "cairn_write", {"path": "{}", "content": "x"}),
    ("cairn", "cairn_patch", {"path": "{}", "op": "append", "content": "x"}),
    ("cairn", "cairn_delete", {"path": "{}"}),
    ("cairn", "cairn_daily", {"date": "2020-01-02", "op": "append", "content": "x"}),
    ("obsidian", "create_note", {"name": "Made {}", "content": "x"}),
    ("obsidian", "append_note", {"name": "{}", "text": "x"}),
    ("obsidian", "update_note", {"name": "{}", "content": "x"}),
    ("obsidian", "delete_note", {"name": "{}"}),
    ("obsidian", "rename_note", {"old_name": "{}", "new_name": "Renamed {}"}),
    ("obsidian", "set_frontmatter", {"name": "{}", "key": "a", "value": "b"}),
    ("obsidian", "add_tag", {"name": "{}", "tag": "drink"}),
    ("obsidian", "remove_tag", {"name": "{}", "tag": "old"}),
    ("obsidian", "replace_text", {"name": "{}", "old_text": "alpha", "new_text": "x"}),
    ("obsidian", "insert_text", {"name": "{}", "text": "x", "after": "alpha beta"}),
    ("obsidian", "append_section", {"name": "{}", "section": "Head", "text": "x"}),
    ("obsidian", "update_section", {"name": "{}", "section": "Head", "content": "x"}),
    ("obsidian", "delete_section", {"name": "{}", "section": "Head"}),
    ("second_brain", "write", {"path": "{}.md", "content": "x"}),
    ("second_brain", "edit", {"path": "{}.md", "old_str": "alpha", "new_str": "x"}),
    ("octarine", "octarine_write_note", {"workspace": "Garden", "note_path": "{}.md", "content": "x"}),
]
UNDOING = {("notes", "undo")}  # tried for itself
READERS = ["reader", "guest-reader", "clerk"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    notes = {f"Note{number}.md": TEXT for number in range(len(WRITES))}
    with guarded(tmp_path_factory.mktemp("guarded"), garden=dict(GARDEN) | notes) as running:
        yield running


def filled(args: Any, note: str) -> Any:
    if isinstance(args, str):
        return args.replace("{}", note)
    if isinstance(args, list):
        return [filled(each, note) for each in args]
    return {key: filled(each, note) for key, each in args.items()} if isinstance(args, dict) else args


def refused(answer: Mapping[str, Any]) -> bool:
    """Octarine says so in what it answers, all others in the answer itself."""
    return (
        "error" in answer or answer["result"]["isError"] or '"success":false' in answer["result"]["content"][0]["text"]
    )


def changes(server: Guarded) -> int:
    return sum(len(list_changes(ws, ChangeQuery(limit=1000))) for ws in server.site.library.workspaces())


def test_every_tool_that_writes_is_tried() -> None:
    writing = {
        (surface.name, tool.name)
        for surface in surfaces()
        for tool in surface.tools
        if not (tool.annotations or {}).get("readOnlyHint")
    }
    assert writing == {(surface, tool) for surface, tool, _ in WRITES} | UNDOING


def test_who_may_not_write_writes_by_no_tool_in_either_era(server: Guarded) -> None:
    before, done = server.files(), changes(server)
    for number, (surface, tool, raw) in enumerate(WRITES):
        args = filled(raw, f"Note{number}")
        for who in READERS:
            assert refused(server.call(who, surface, tool, args).json()), (who, tool)
            assert refused(_modern(server, who, surface, tool, args)), (who, tool)
    assert server.files() == before and changes(server) == done
    for number, (surface, tool, raw) in enumerate(WRITES):
        told = server.call("owner", surface, tool, filled(raw, f"Note{number}"), "/w/garden/mcp").json()
        assert not refused(told), (tool, told)
        assert server.files() != before, tool
        before = server.files()


def _modern(server: Guarded, who: str, surface: str, tool: str, args: dict[str, Any]) -> Any:
    message = {"jsonrpc": "2.0", "id": 5, "method": "tools/call"}
    message |= {"params": {"name": tool, "arguments": args, "_meta": ENVELOPE}}  # type: ignore[dict-item]
    era = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": tool}
    headers = {**JSON, "content-type": "application/json", **era, **server.bearer(who)}
    answer = server.ask("POST", f"/mcp/{surface}", headers, json.dumps(message).encode())
    assert answer.status == 200, answer.text
    return answer.json()


def test_whatever_a_reader_calls_no_byte_changes(server: Guarded) -> None:
    before, done = server.files(), changes(server)
    for surface in surfaces():
        for tool in surface.tools:
            for args in calls(tool, "Tea", "Recipes/Broth.md", "Inbox/New", server.change):
                server.call("reader", surface.name, tool.name, args)
    assert server.files() == before and changes(server) == done


def test_who_may_write_in_one_place_writes_there_and_nowhere_else(server: Guarded) -> None:
    before = server.files()
    for surface in surfaces():
        for tool in surface.tools:
            for word in ("Tea", "Recipes/Broth.md", "Inbox/New", "Inbox/New.md", server.change, "Inbox/../Tea"):
                for args in calls(tool, word):
                    server.call("clerk", surface.name, tool.name, args, "/w/garden/mcp")
    after = server.files()
    touched = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert any(name.startswith("Garden/Inbox/") for name in touched)
    ours = ("Garden/Inbox/", "Garden/.trash/", "Garden/.backups/")
    assert all(name.startswith(ours) for name in touched), touched


def test_taking_back_is_writing(server: Guarded) -> None:
    before = server.files()
    page, api = f"/w/garden/changes/{server.change}/undo", f"/api/v1/workspaces/garden/changes/{server.change}/undo"
    for who in READERS:
        headers = {**HTML, **server.bearer(who)}
        csrf = BrowserSessions(server.site.registry.secret("cookies")).csrf(who)
        assert server.ask("POST", page, headers, f"csrf={csrf}".encode()).status == 403
        assert (
            server.ask("POST", "/w/garden/undo", headers, f"csrf={csrf}&client=claude&since=0".encode()).status == 403
        )
        assert server.ask("POST", api, {**JSON, **server.bearer(who)}, b"").status == 403
        since = json.dumps({"client": "claude"}).encode()
        sent = {**JSON, "content-type": "application/json", **server.bearer(who)}
        assert server.ask("POST", "/api/v1/workspaces/garden/undo", sent, since).status == 403
        assert refused(server.call(who, "notes", "undo", {"change": server.change}).json())
    assert server.files() == before
    assert server.ask("POST", api, {**JSON, **server.bearer("owner")}, b"").status == 200
    assert server.files() != before


def test_a_zip_file_brings_nothing_where_one_may_not_write(server: Guarded) -> None:
    names = [
        "Inbox/Come.md", "Else/Come.md", "Come.md", "../Come.md", "/Come.md", "Inbox/../Come.md", ".obsidian/x.json",
        "Tea.md", "..\\Come.md", "C:\\Come.md", "Inbox/.hidden", "Hidden/Come.md", "\u202eInbox/x.md",
        "Inbox/a\nb.md", "Inbox/" + "x" * 300,
    ]  # fmt: skip
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as zipped:
        for name in names:
            zipped.writestr(name, "planted")
        link = zipfile.ZipInfo("Inbox/link.md")
        link.external_attr = 0o120777 << 16
        zipped.writestr(link, "/etc/passwd")
    before, outside = server.files(), sorted(server.place.rglob("*"))
    kind = {"content-type": "application/zip"}
    for who in ("reader", "guest-reader"):
        place = "/api/v1/workspaces/garden/import?overwrite=true"
        assert server.ask("POST", place, {**server.bearer(who), **kind}, packed.getvalue()).status == 403
    assert server.files() == before
    came = server.ask(
        "POST", "/api/v1/workspaces/garden/import?overwrite=true", {**server.bearer("clerk"), **kind}, packed.getvalue()
    )
    assert came.status == 200, came.text
    assert came.json()["created"] == ["Inbox/Come.md"] and came.json()["replaced"] == []
    new = set(server.place.rglob("*")) - set(outside)
    assert {str(path.relative_to(server.place)) for path in new if "state" not in str(path)} <= {
        "notes/Garden/Inbox/Come.md",
        "notes/Garden/Inbox",
    }


def test_a_workspace_that_takes_no_writes_takes_none_from_its_owner(server: Guarded) -> None:
    sent = {**JSON, "content-type": "application/json", **server.bearer("owner")}
    closed = server.ask("PATCH", "/api/v1/workspaces/garden", sent, b'{"read_only": true}')
    assert closed.status == 200, closed.text
    before = server.files()
    try:
        for number, (surface, tool, raw) in enumerate(WRITES):
            server.call("owner", surface, tool, filled(raw, f"Note{number}"), "/w/garden/mcp")
        assert refused(server.call("owner", "notes", "write", {"path": "Open again", "content": "x"}).json())
        assert server.files() == before
    finally:
        server.ask("PATCH", "/api/v1/workspaces/garden", sent, b'{"read_only": null}')
    args = {"path": "Open again", "content": "x"}
    assert eventually(lambda: not refused(server.call("owner", "notes", "write", args, "/w/garden/mcp").json()))
