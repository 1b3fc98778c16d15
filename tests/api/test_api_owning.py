"""The JSON API for owners: workspaces, tokens, indexes and backups, changed while everything goes on."""

import io
import json
import os
import random
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.api.api_site import NOTES, Served, config_of, served
from tests.server.lines import over_http
from tests.waiting import eventually

from notewright.cli.main import main

pytestmark = pytest.mark.slow

ALL, ONE = "/api/v1/workspaces", "/api/v1/workspaces/main"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Served]:
    """A server that may make workspaces, where nobody ever made a token."""
    (tmp_path / "root").mkdir()
    with served(tmp_path, config_of(tmp_path, "Main", workspaces_root=str(tmp_path / "root"))) as made:
        yield made


@pytest.fixture
def client(site: Served) -> Iterator[httpx2.Client]:
    with site.client() as client:
        yield client


def told(response: httpx2.Response, status: int = 200) -> Any:
    assert response.status_code == status, response.text
    return response.json()


def refused(response: httpx2.Response, status: int, code: str) -> str:
    error = told(response, status)["error"]
    assert error["code"] == code, error
    return f"{error['message']}. {error['hint']}"


def audit(site: Served) -> list[tuple[str, Any]]:
    lines = (Path(site.site.config.state) / "audit.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    return [(one["action"], one.get("workspace") or one.get("token")) for one in events if one["event"] == "admin"]


# ---- workspaces ---------------------------------------------------------------------------------------


def test_a_workspace_is_made_served_renamed_and_let_go(site: Served, client: httpx2.Client) -> None:
    made = told(client.post(ALL, json={"name": "Team Notes", "timezone": "Asia/Tokyo", "read_only": False}), 201)
    assert (made["id"], made["timezone"], made["added"]) == ("team-notes", "Asia/Tokyo", True)
    assert made["location"] == str(site.folder / "root" / "team-notes")
    with site.surface("notes") as notes:
        assert "Team Notes/" in notes("list")
        notes("write", path="Team Notes/Hello.md", content="hello")
    renamed = told(client.patch(f"{ALL}/team-notes", json={"name": "Crew"}))
    assert (renamed["id"], renamed["name"]) == ("team-notes", "Crew")
    assert told(client.get(f"{ALL}/team-notes/notes/Hello.md"))["text"] == "hello"
    with httpx2.Client(base_url=site.address, headers={"accept": "application/json"}) as mcp:
        call = {"name": "read", "arguments": {"path": "Hello"}}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        assert "hello" in mcp.post("/w/team-notes/mcp/notes", json=asked).text
    assert told(client.delete(f"{ALL}/team-notes")) == {"removed": "team-notes"}
    assert client.get(f"{ALL}/team-notes").status_code == 404
    assert (site.folder / "root" / "team-notes" / "Hello.md").read_text() == "hello"
    assert audit(site) == [(f"workspace_{what}", "team-notes") for what in ("added", "changed", "dropped")]


def test_settings_hold_at_once_over_mcp_and_here(site: Served, client: httpx2.Client) -> None:
    with site.surface("notes") as notes:
        assert "Diary" in notes("list", folder="Private")
        told(client.patch(ONE, json={"hide": ["Private/**"], "read_only": True}))
        assert "Diary" not in notes("list", glob="**")
        assert notes.call("write", {"path": "New.md", "content": "x"})["result"]["isError"]
        refused(client.get(f"{ONE}/notes/Private/Diary.md"), 404, "not_found")
        assert told(client.get(f"{ONE}/notes"))["total"] == 3
        refused(client.post(f"{ONE}/undo", json={"client": "x"}), 404, "not_found")
        whole = told(client.patch(ONE, json={"hide": None, "read_only": None}))
        assert (whole["hide"], whole["read_only"], whole["changed"]) == ([], False, [])
        notes("write", path="New.md", content="x")
        told(client.patch(ONE, json={"max_file_size": 10, "quota_files": 5}))
        assert notes.call("write", {"path": "Big.md", "content": "x" * 20})["result"]["isError"]
        assert "the most is 5" in str(notes.call("write", {"path": "More.md", "content": "x"}))


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({}, 400, "name is required"),
        ({"name": ""}, 400, "name"),
        ({"name": "Main"}, 409, "already"),
        ({"name": "main"}, 409, "already"),
        ({"name": "Ｍａｉｎ"}, 409, "already"),
        ({"name": "a/b"}, 400, "is no name"),
        ({"name": "a\u202eb"}, 400, "is no name"),
        ({"name": "a\x00b"}, 400, "is no name"),
        ({"name": "x" * 101}, 400, "is no name"),
        ({"name": "New", "location": "/etc"}, 400, "no place"),
        ({"name": "New", "location": "../Main"}, 400, "no place"),
        ({"name": "New", "location": "a/../../b"}, 400, "no place"),
        ({"name": "New", "location": "a\x00b"}, 400, "no place"),
        ({"name": "New", "location": "out"}, 400, "cannot be a workspace"),
        ({"name": "New", "location": "s3://bucket/notes"}, 400, "not in this version"),
        ({"name": "New", "location": "live:new"}, 400, "not in this version"),
        ({"name": "New", "location": "out/deep"}, 400, "cannot be a workspace"),
        ({"name": "New", "location": "x" * 2000}, 400, "at most 1000"),
        ({"name": "New", "timezone": "Mars/Base"}, 400, "no timezone"),
        ({"name": "New", "hide": ["{"]}, 400, "is not a glob"),
        ({"name": "New", "hide": "Private"}, 400, "must be array"),
        ({"name": "New", "read_only": "yes"}, 400, "must be boolean"),
        ({"name": "New", "max_file_size": 0}, 400, "at least 1"),
        ({"name": "New", "write_under": []}, 400, "at least 1 items"),
        ({"name": "New", "quota_files": 1 << 60}, 400, "at most"),
        ({"name": "New", "bootstrap": "para"}, 400, "known are name, location, timezone"),
        ({"name": "New", "id": "other"}, 400, "is not known"),
    ],
)
def test_a_workspace_that_cannot_be_is_refused_and_nothing_is_made(
    site: Served, client: httpx2.Client, body: dict[str, Any], status: int, said: str
) -> None:
    (site.folder / "root" / "out").symlink_to(site.folder / "Main")
    answer = client.post(ALL, json=body)
    assert said in refused(answer, status, "exists" if status == 409 else "invalid")
    assert os.listdir(site.folder / "root") == ["out"]
    assert len(told(client.get(ALL))["workspaces"]) == 1


def test_without_a_place_for_them_none_is_made(tmp_path: Path) -> None:
    with served(tmp_path, config_of(tmp_path, "Main")) as site, site.client() as client:
        assert "notewright workspace add" in refused(client.post(ALL, json={"name": "New"}), 400, "invalid")


def test_reserved_words_are_no_ids(client: httpx2.Client) -> None:
    for name in ("mcp", "api", "admin", "w", "_system"):
        assert told(client.post(ALL, json={"name": name}), 201)["id"] not in ("mcp", "api", "admin", "w", "_system")


def test_a_change_that_is_wrong_in_part_is_not_made(client: httpx2.Client) -> None:
    refused(client.patch(ONE, json={"read_only": True, "timezone": "Mars/Base"}), 400, "invalid")
    refused(client.patch(ONE, json={}), 400, "invalid")
    refused(client.patch(f"{ALL}/nope", json={"read_only": True}), 404, "not_found")
    refused(client.patch(f"{ALL}/Main", json={"read_only": True}), 404, "not_found")
    assert told(client.get(ONE))["changed"] == []


def test_one_that_the_configuration_names_stays(client: httpx2.Client) -> None:
    assert "configuration names it" in refused(client.delete(ONE), 400, "invalid")
    refused(client.delete(f"{ALL}/nope"), 404, "not_found")


def test_one_whose_folder_is_gone_is_told_to_its_owner_and_can_be_removed(site: Served, client: httpx2.Client) -> None:
    told(client.post(ALL, json={"name": "Team"}), 201)
    with served(site.folder, site.site.config) as other, other.client() as another:  # as after a restart
        pass
    (site.folder / "root" / "team").rename(site.folder / "root" / "away")
    with served(site.folder, site.site.config) as other, other.client() as another:
        listed = told(another.get(ALL))["workspaces"]
        assert [(one["id"], one["available"]) for one in listed] == [("main", True), ("team", False)]
        assert another.get(f"{ALL}/team/notes").status_code == 404
        assert told(another.delete(f"{ALL}/team")) == {"removed": "team"}


def test_a_command_is_seen_by_a_server_that_runs(
    site: Served, client: httpx2.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    (site.folder / "Later").mkdir()
    (site.folder / "Later" / "New.md").write_text("new")
    state = ("--state", str(site.folder / "kept"))
    assert main(["workspace", "add", str(site.folder / "Later"), *state]) == 0
    assert told(client.get(f"{ALL}/later/notes/New.md"))["text"] == "new"
    assert main(["workspace", "set", str(site.folder / "Main"), "hide=Private/**", *state]) == 0
    refused(client.get(f"{ONE}/notes/Private/Diary.md"), 404, "not_found")
    assert main(["workspace", "rename", "later", "Soon", *state]) == 0
    assert told(client.get(f"{ALL}/later"))["name"] == "Soon"
    assert main(["workspace", "remove", "Soon", *state]) == 0
    assert client.get(f"{ALL}/later").status_code == 404
    assert [action for action, _ in audit(site)] == ["workspace_added", *["workspace_changed"] * 2, "workspace_dropped"]
    capsys.readouterr()


def test_the_whole_product_with_a_workspace_added_while_it_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "Tea.md").write_text(name)
    state = ("--state", str(tmp_path / "kept"))
    with over_http(f"One={tmp_path / 'one'}", *state) as address, httpx2.Client(base_url=address, timeout=30) as client:
        assert told(client.get(f"{ALL}/one/notes/Tea.md"))["text"] == "one"
        assert main(["workspace", "add", f"Two={tmp_path / 'two'}", *state]) == 0
        assert told(client.get(f"{ALL}/two/notes/Tea.md"))["text"] == "two"
        assert main(["workspace", "set", "Two", "hide=Tea.md", *state]) == 0
        assert client.get(f"{ALL}/two/notes/Tea.md").status_code == 404
        told(client.post(f"{ALL}/one/rebuild-index"), 202)
        assert eventually(lambda: told(client.get(f"{ALL}/one/rebuild-index"))["status"] == "done")
    capsys.readouterr()


# ---- indexes ------------------------------------------------------------------------------------------


def test_an_index_is_rebuilt_and_every_process_knows(site: Served, client: httpx2.Client) -> None:
    (site.folder / "Main" / "Bad.md").write_bytes(b"caf\xe9")
    status = f"{ONE}/rebuild-index"
    assert eventually(lambda: told(client.get(status))["status"] == "idle")
    began = told(client.post(status), 202)
    assert began["status"] in ("running", "done")
    with served(site.folder, site.site.config) as other, other.client() as another:
        ended = eventually(lambda: (now := told(another.get(status)))["status"] == "done" and now)
    assert ended["notes_indexed"] == len(NOTES) + 1
    assert [error["path"] for error in ended["errors"]] == ["Bad.md"]
    assert told(client.get(status)) == ended
    assert ("rebuild", "main") in audit(site)


def test_a_rebuild_whose_process_died_has_failed(site: Served, client: httpx2.Client) -> None:
    identity = site.site.library.workspaces()[0].store.identity
    file = Path(site.site.config.cache) / identity / "rebuild"
    file.write_text('{"status": "running", "began": 1.0}')
    now = eventually(lambda: (now := told(client.get(f"{ONE}/rebuild-index")))["status"] != "running" and now)
    assert (now["status"], now["message"]) == ("failed", "the server ended before the index was built")
    file.write_text("torn {")
    assert told(client.get(f"{ONE}/rebuild-index"))["status"] == "idle"


# ---- tokens -------------------------------------------------------------------------------------------


def test_a_token_is_told_once_and_holds_at_once(site: Served, client: httpx2.Client) -> None:
    owner = told(client.post("/api/v1/tokens", json={"name": "me"}), 201)["token"]
    assert client.get("/api/v1/tokens").status_code == 401  # from now on everybody needs one
    with site.client(owner) as mine:
        narrow = {"name": "bot", "workspaces": ["Main"], "surfaces": ["api", "second-brain"], "read_only": True}
        made = told(mine.post("/api/v1/tokens", json=narrow | {"hide": ["Private/**"], "expires": "90d"}), 201)
        assert (made["workspaces"], made["surfaces"]) == (["main"], ["api", "second_brain"])
        secret = made.pop("token")
        listed = mine.get("/api/v1/tokens")
        assert secret not in listed.text and owner not in listed.text
        assert [one["name"] for one in told(listed)["tokens"]] == ["me", "bot"]
        with site.client(secret) as bot:
            assert told(bot.get("/api/v1/me")) == {
                "user": "bot", "kind": "token", "owner": False, "read_only": True, "workspaces": ["main"],
                "surfaces": ["api", "second_brain"],
            }  # fmt: skip
            refused(bot.get("/api/v1/tokens"), 403, "forbidden")
            assert told(mine.delete("/api/v1/tokens/bot")) == {"revoked": "bot"}
            assert bot.get("/api/v1/me").status_code == 401
        refused(mine.delete("/api/v1/tokens/bot"), 404, "not_found")
    assert audit(site) == [("token_added", "me"), ("token_added", "bot"), ("token_revoked", "bot")]
    kept = [file.read_bytes() for file in Path(site.site.config.state).rglob("*") if file.is_file()]
    assert not any(owner.encode() in data or secret.encode() in data for data in kept)


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({}, 400, "name is required"),
        ({"name": "a/b"}, 400, "is no name for a token"),
        ({"name": "x" * 65}, 400, "at most 64"),
        ({"name": "x", "workspaces": ["Nope"]}, 404, "there is no workspace"),
        ({"name": "x", "workspaces": []}, 400, "at least 1"),
        ({"name": "x", "surfaces": ["nodes"]}, 400, "there is no surface"),
        ({"name": "x", "write_under": []}, 400, "at least 1"),
        ({"name": "x", "hide": ["{"]}, 400, "is not a glob"),
        ({"name": "x", "expires": "2001-01-01"}, 400, "expired already"),
        ({"name": "x", "expires": "soon"}, 400, "is not a time"),
        ({"name": "x", "owner": True}, 400, "is not known"),
    ],
)
def test_a_token_that_is_wrong_is_not_made(
    site: Served, client: httpx2.Client, body: dict[str, Any], status: int, said: str
) -> None:
    answer = client.post("/api/v1/tokens", json=body)
    assert said in refused(answer, status, "not_found" if status == 404 else "invalid")
    assert told(client.get("/api/v1/tokens"))["tokens"] == []


# ---- zip files ----------------------------------------------------------------------------------------

ZIP = {"content-type": "application/zip"}


def zipped(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def test_what_is_exported_can_be_imported(site: Served, client: httpx2.Client) -> None:
    answer = client.get(f"{ONE}/export.zip")
    assert (answer.headers["content-type"], answer.headers["cache-control"]) == ("application/zip", "no-store")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert {name: archive.read(name).decode() for name in archive.namelist()} == NOTES
    told(client.post(ALL, json={"name": "Copy"}), 201)
    place = f"{ALL}/copy/import"
    tried = told(client.post(f"{place}?dry_run=true", content=answer.content, headers=ZIP))
    assert (tried["created"], tried["changes"]) == (sorted(NOTES), [])
    done = told(client.post(place, content=answer.content, headers=ZIP))
    assert done["created"] == sorted(NOTES)
    assert told(client.get(f"{ALL}/copy/notes/Tea.md"))["text"] == NOTES["Tea.md"]
    told(client.post(f"{ALL}/copy/changes/{done['changes'][0]}/undo"))
    assert told(client.get(f"{ALL}/copy/notes"))["total"] == 0


def test_an_import_replaces_only_what_it_may(site: Served, client: httpx2.Client) -> None:
    new = zipped({"Tea.md": b"new", "../out.md": b"x", ".hidden.md": b"x", "In/Deep.md": b"deep"})
    first = told(client.post(f"{ONE}/import", content=new, headers=ZIP))
    assert (first["created"], first["replaced"]) == (["In/Deep.md"], [])
    assert {one["path"]: one["reason"] for one in first["skipped"]} == {
        "Tea.md": "exists", "../out.md": "bad_name", ".hidden.md": "dotted",
    }  # fmt: skip
    again = told(client.post(f"{ONE}/import?overwrite=true", content=new, headers=ZIP))
    assert (again["replaced"], again["unchanged"]) == (["Tea.md"], ["In/Deep.md"])
    assert not (site.folder / "out.md").exists()


def test_what_is_no_zip_file_is_refused(client: httpx2.Client) -> None:
    refused(client.post(f"{ONE}/import", content=b"no zip", headers=ZIP), 400, "invalid")
    refused(client.post(f"{ONE}/import", content=zipped({}), headers={"content-type": "text/plain"}), 400, "invalid")
    refused(client.post(f"{ONE}/import?overwrit=1", content=zipped({}), headers=ZIP), 400, "invalid")
    refused(client.post(f"{ALL}/nope/import", content=zipped({}), headers=ZIP), 404, "not_found")


def test_an_import_that_is_too_large_is_refused(tmp_path: Path) -> None:
    config = config_of(tmp_path, "Main", http__max_request_bytes=100_000)
    with served(tmp_path, config) as site, site.client() as client:
        large = zipped({"Large.md": random.Random(1).randbytes(200_000)})
        refused(client.post(f"{ONE}/import", content=large, headers=ZIP), 413, "too_large")
        pieces = (large[start : start + 10_000] for start in range(0, len(large), 10_000))
        refused(client.post(f"{ONE}/import", content=pieces, headers=ZIP), 413, "too_large")
        assert told(client.get(f"{ONE}/notes"))["total"] == len(NOTES)


def test_a_large_workspace_is_streamed_and_a_client_may_leave(site: Served, client: httpx2.Client) -> None:
    for number in range(200):
        (site.folder / "Main" / f"Noise {number}.md").write_bytes(random.Random(number).randbytes(20_000))
    with client.stream("GET", f"{ONE}/export.zip") as answer:
        assert "content-length" not in answer.headers
        assert next(answer.iter_raw()).startswith(b"PK")
    assert told(client.get("/api/v1/me"))["owner"]
    whole = client.get(f"{ONE}/export.zip").content
    assert len(zipfile.ZipFile(io.BytesIO(whole)).namelist()) == 200 + len(NOTES)


# ---- backups ------------------------------------------------------------------------------------------


def test_a_backup_is_made_and_listed(tmp_path: Path) -> None:
    config = config_of(tmp_path, "Main", backup__to=str(tmp_path / "backups"))
    with served(tmp_path, config) as site, site.client() as client:

        def made() -> Any:
            answer = client.post("/admin/backup")
            return answer.json() if answer.status_code == 200 else None  # the daily one may be under way

        record = eventually(made)
        assert set(record) >= {"success", "filesBackedUp", "filesSkipped", "totalBytes", "errors"}
        assert (record["success"], record["filesBackedUp"] + record["filesSkipped"]) == (True, len(NOTES))
        (tmp_path / "Main" / "New.md").write_text("new")
        assert told(client.post("/api/v1/backup"))["filesBackedUp"] == 1
        listed = told(client.get("/api/v1/backups"))["backups"]
        assert [(one["date"], one["files"]) for one in listed] == [(record["date"], len(NOTES) + 1)]
        assert "backup" in [action for action, _ in audit(site)]


def test_without_a_place_for_backups_none_is_made(tmp_path: Path) -> None:
    with served(tmp_path, config_of(tmp_path, "Main")) as site, site.client() as client:
        assert "backup.to" in refused(client.post("/api/v1/backup"), 400, "invalid")
        assert "backup.to" in refused(client.get("/api/v1/backups"), 400, "invalid")


@pytest.mark.parametrize("name", ["second_brain", "second-brain"])
def test_a_surface_answers_to_its_name_with_a_dash_too(site: Served, client: httpx2.Client, name: str) -> None:
    greeting = {
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
    }  # fmt: skip
    accept = {"accept": "application/json, text/event-stream"}
    for place in (f"/mcp/{name}", f"/w/main/mcp/{name}"):
        assert client.post(place, json=greeting, headers=accept).status_code == 200
    owner = told(client.post("/api/v1/tokens", json={"name": "me"}), 201)["token"]
    with site.client(owner) as mine:
        bot = told(mine.post("/api/v1/tokens", json={"name": "bot", "surfaces": ["second-brain"]}), 201)["token"]
    with site.client(bot) as narrow:
        assert narrow.post(f"/mcp/{name}", json=greeting, headers=accept).status_code == 200
        assert narrow.post("/mcp/notes", json=greeting, headers=accept).status_code == 403
