"""A bucket as a workspace: named on the command line, in the file, by the owner and over the API."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import cast

import obstore
import pytest
from tests.bucket import READ_KEY, READ_SECRET, Bucket, Weed
from tests.conftest import ROOT
from tests.server.lines import NOTEWRIGHT
from tests.stores.test_bucket import listing_with

from notewright.accounts.base import Grant, WorkspaceRecord
from notewright.app.open_workspaces import OpenWorkspaces
from notewright.app.opening import close_workspace, open_registry, open_workspace
from notewright.cli.main import main
from notewright.config.load import CommandLine, Config, WorkspaceConfig, load
from notewright.engine import library
from notewright.engine.changes.history import undo
from notewright.engine.find.search import parse_query, search
from notewright.engine.library import Library, Principal
from notewright.engine.move import move
from notewright.engine.read import read
from notewright.engine.workspace import Workspace
from notewright.engine.write import create, edit_note
from notewright.errors import Busy, Forbidden, Invalid, Problem, Unavailable
from notewright.ledger.base import Actor
from notewright.notes.edits.edit import Append
from notewright.notes.path import NotePath
from notewright.stores.s3.lease import Lease
from notewright.stores.s3.store import S3Store
from notewright.surfaces.base import Call, Session
from notewright.surfaces.notes.tools import SURFACE
from notewright.surfaces.perform import perform
from notewright.surfaces.second_brain.tools import surface as second_brain

pytestmark = pytest.mark.slow

Open = Callable[..., Workspace]


def config_of(bucket: Bucket, place: Path, **settings: object) -> Config:
    one = WorkspaceConfig("Notes", "notes", bucket.location, endpoint=bucket.weed.endpoint, poll_seconds=1)
    one = replace(one, **settings)  # type: ignore[arg-type]
    return Config((one,), str(place / "state"), str(place / "cache"))


@pytest.fixture
def opened(bucket: Bucket, tmp_path: Path) -> Iterator[Open]:
    made: list[Workspace] = []

    def make(where: str = "machine", **settings: object) -> Workspace:
        config = config_of(bucket, tmp_path / where, **settings)
        made.append(open_workspace(config.workspaces[0], config))
        return made[-1]

    yield make
    for ws in made:
        close_workspace(ws)


def test_a_bucket_is_read_written_searched_renamed_and_undone_as_a_folder_is(bucket: Bucket, opened: Open) -> None:
    bucket.put("Tea.md", b"# Tea\n\ngreen leaves\n")
    bucket.put("f/Cup.md", b"for [[Tea]]\n")
    ws = opened()
    assert read(ws, NotePath("Tea.md")).text == "# Tea\n\ngreen leaves\n"
    create(ws, NotePath("new/Pot.md"), b"a pot for [[Tea]]\n")
    edit_note(ws, NotePath("Tea.md"), [Append("and more")])
    assert [hit.path for hit in search(ws, parse_query("green leaves")).items] == ["Tea.md"]
    moved = move(ws, NotePath("Tea.md"), "drinks/Chai")
    assert moved.count == 2 and bucket.get("f/Cup.md") == b"for [[Chai]]\n"
    undo(ws, moved.change_id or "")
    assert bucket.get("f/Cup.md") == b"for [[Tea]]\n" and bucket.get("Tea.md").endswith(b"and more")


def test_history_and_index_are_on_this_machine_and_in_the_bucket_is_nothing_of_ours(
    bucket: Bucket, opened: Open, tmp_path: Path
) -> None:
    ws = opened()
    create(ws, NotePath("Tea.md"), b"tea\n")
    assert (tmp_path / "machine" / "state" / ws.store.identity / "ledger.db").is_file()
    assert any((tmp_path / "machine" / "cache" / ws.store.identity).iterdir())
    stored = bucket.keys()
    assert [key for key in stored if not key.startswith(".notewright/")] == ["Tea.md"]


def test_a_second_machine_reads_and_is_told_why_it_may_not_write(bucket: Bucket, opened: Open) -> None:
    first = opened("first")
    create(first, NotePath("Tea.md"), b"tea\n")
    second = opened("second")
    assert read(second, NotePath("Tea.md")).text == "tea\n"
    with pytest.raises(Busy, match="writes to these notes: this machine reads them until that one ends") as refused:
        edit_note(second, NotePath("Tea.md"), [Append("more")])
    assert "change" not in refused.value.details and second.ledger.find_unfinished() == []
    edit_note(first, NotePath("Tea.md"), [Append("first")])
    first.store.close()
    lease_of(second).renew()
    edit_note(second, NotePath("Tea.md"), [Append("second")])
    assert bucket.get("Tea.md") == b"tea\nfirst\nsecond"


def test_two_processes_of_one_machine_both_write(bucket: Bucket, opened: Open) -> None:
    one, other = opened(), opened()
    create(one, NotePath("Tea.md"), b"tea\n")
    edit_note(other, NotePath("Tea.md"), [Append("other")])
    one.store.close()
    edit_note(other, NotePath("Tea.md"), [Append("more")])
    assert not lease_of(opened("elsewhere")).may_write()


def test_a_server_that_may_only_read_leaves_the_lease_to_others(bucket: Bucket, opened: Open) -> None:
    opened("reader", read_only=True)
    assert ".notewright/lease" not in bucket.keys()  # noqa: SIM118
    assert lease_of(opened("writer")).may_write()


def test_tools_send_as_few_requests_as_can_be(bucket: Bucket, opened: Open) -> None:
    links = 20
    bucket.put("Target.md", b"# Target\n")
    for number in range(links):
        bucket.put(f"f/{number}.md", b"see [[Target]]\n")
    ws = opened(endpoint=bucket.proxy.endpoint, poll_seconds=3600)
    ws.follower.wait(20)

    def sent(tool: str, **args: object) -> Counter[str]:
        heard: Counter[str] = Counter()
        others = ".notewright", f"prefix={bucket.prefix}%2F"  # renewing the lease, and looking for others' changes

        def count(kind: str, target: str) -> None:
            heard.update([kind] if others[0] not in target and not target.endswith(others[1]) else [])

        bucket.proxy.hears = count
        call = Call(Library.of([ws]), Actor("ann", "desk", "notes", tool), Session())
        answer = perform(SURFACE, call, tool, args)
        assert not answer.is_error, answer.text
        return heard

    assert sent("read", path="Target") == {"GET": 1}
    assert sent("edit", path="f/3.md", edits=[{"append": "more"}]) == {"GET": 1, "PUT": 1}
    assert sent("write", path="new/folder/Note.md", content="new").total() <= 3
    assert sent("search", query="target") == {}
    for old, new in (("Target", "Other"), ("Other", "a new/folder/Third")):
        assert sent("move", **{"from": old, "to": new}).total() <= 2 * links + 10


def lease_of(ws: Workspace) -> Lease:
    held = cast(S3Store, ws.store)._lease
    assert held is not None
    return held


def test_the_configuration_names_a_bucket_with_its_settings(tmp_path: Path) -> None:
    file = tmp_path / "notewright.toml"
    file.write_text(
        '[workspaces.Work]\nlocation = "S3://Bucket/a/b/"\nendpoint = "https://s3.example"\nregion = "auto"\n'
        "path_style = true\npoll_seconds = 5\n"
    )
    (work,) = load(CommandLine(file=str(file)), environ={}, folder=str(tmp_path)).workspaces
    assert (work.name, work.id, work.location) == ("Work", "work", "s3://Bucket/a/b")
    assert (work.endpoint, work.region, work.path_style, work.poll_seconds) == ("https://s3.example", "auto", True, 5)


@pytest.mark.parametrize(
    ("location", "name", "place"),
    [
        ("s3://bucket/some/prefix/", "prefix", "s3://bucket/some/prefix"),
        ("S3://bucket", "bucket", "s3://bucket"),
        ("Work=s3://bucket/x=y", "Work", "s3://bucket/x=y"),
    ],
)
def test_the_command_line_names_a_bucket(tmp_path: Path, location: str, name: str, place: str) -> None:
    (one,) = load(CommandLine((location,)), environ={}, folder=str(tmp_path)).workspaces
    assert (one.name, one.location) == (name, place)


@pytest.mark.parametrize("location", ["s3://", "s3:///x", "s3://b", "s3://key:secret@bucket/x", "s3://bucket/../x"])
def test_what_names_no_bucket_is_refused(tmp_path: Path, location: str) -> None:
    with pytest.raises(Invalid, match="write it as s3://bucket/prefix"):
        load(CommandLine((location,)), environ={}, folder=str(tmp_path))


def test_two_workspaces_of_a_bucket_may_not_overlap(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="overlap"):
        load(CommandLine(("A=s3://bucket/a", "B=s3://bucket/a/b")), environ={}, folder=str(tmp_path))
    load(CommandLine(("A=s3://bucket/a", "B=s3://bucket/ab")), environ={}, folder=str(tmp_path))


def test_without_the_package_a_bucket_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("obstore", "notewright.stores.s3"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "obstore", None)
    asked = WorkspaceConfig("Notes", "notes", "s3://bucket/notes")
    with pytest.raises(Invalid, match=r"pip install 'notewright\[s3]'"):
        open_workspace(asked, Config((asked,), str(tmp_path / "state"), str(tmp_path / "cache")))


def test_keys_that_are_wrong_and_a_bucket_that_is_not_there_are_refused_at_the_start(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Problem, match="make the bucket, or name another"):
        OpenWorkspaces(config_of(bucket, tmp_path, location="s3://nowhere/notes"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(Unavailable, match="AWS_SECRET_ACCESS_KEY or the profile"):
        OpenWorkspaces(config_of(bucket, tmp_path))


SKEWED = "the service refuses the bucket notes: RequestTimeTooSkewed. set this machine's clock"
WRONG: dict[str, tuple[dict[str, str], str]] = {  # what is wrong: variables, and what is said
    "no such bucket": ({}, "the service refuses the bucket nowhere: NoSuchBucket. make the bucket, or name another"),
    "a wrong secret": ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "SignatureDoesNotMatch. look at AWS_SECRET_ACCESS_KEY"),
    "a wrong key": ({"AWS_ACCESS_KEY_ID": "nobody"}, "InvalidAccessKeyId. look at AWS_ACCESS_KEY_ID"),
    "a wrong clock": ({}, SKEWED),
    "nobody there": ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "the bucket notes does not answer"),
    "a profile that is not there": ({"AWS_PROFILE": "nobody"}, "there is no AWS profile nobody"),
}


@pytest.mark.parametrize("more", [[], ["--http", "0"]], ids=["stdio", "http"])
def test_serve_refuses_a_bucket_that_it_cannot_serve_before_anybody_is_welcomed(
    bucket: Bucket, tmp_path: Path, more: list[str]
) -> None:
    bucket.proxy.breaks = lambda kind, key, number: "skewed"

    def serve(wrong: str, variables: dict[str, str]) -> subprocess.Popen[str]:
        location = "s3://nowhere/x" if wrong == "no such bucket" else bucket.location
        endpoint = bucket.proxy.endpoint if wrong == "a wrong clock" else bucket.weed.endpoint
        environ = {**os.environ, "AWS_ENDPOINT_URL": endpoint, **variables}
        if wrong == "a profile that is not there":
            environ = {name: value for name, value in environ.items() if not name.startswith("AWS_ACCESS")}
        command = [NOTEWRIGHT, "serve", location, "--state", str(tmp_path), *more]
        pipe = subprocess.PIPE  # nobody says anything, and nobody leaves
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environ, text=True)

    tried = {wrong: serve(wrong, variables) for wrong, (variables, _) in WRONG.items()}
    try:
        for wrong, process in tried.items():
            assert process.wait(60) == 1, wrong
            assert process.stdout is not None and process.stderr is not None
            said = process.stderr.read()
            assert process.stdout.read() == ""
            assert said.startswith("notewright: ") and WRONG[wrong][1] in said and said.count("\n") == 1, (wrong, said)
    finally:
        for process in tried.values():
            process.kill()
            process.communicate()


def test_a_bucket_that_cannot_be_opened_disturbs_no_other_workspace(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put("Tea.md", b"tea\n")
    config = config_of(bucket, tmp_path)
    with closing(open_registry(config)) as registry:
        settings = {"name": "Gone", "endpoint": bucket.weed.endpoint}
        registry.put_record(WorkspaceRecord("s3://nowhere/x", settings, added=True))
        with closing(OpenWorkspaces(config, registry)) as library:
            assert [ws.name for ws in library.workspaces()] == ["Notes"]
            assert read(library.find_workspace("Notes"), NotePath("Tea.md")).text == "tea\n"


def test_with_credentials_that_may_only_read_every_write_is_refused_with_the_rights_it_needs(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bucket.put("Tea.md", b"green tea\n")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", READ_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", READ_SECRET)
    with closing(OpenWorkspaces(config_of(bucket, tmp_path))) as library:
        ws = library.find_workspace("Notes")
        assert "may not write to the bucket (s3:PutObject and s3:DeleteObject)" in caplog.text
        assert [hit.path for hit in search(ws, parse_query("green")).items] == ["Tea.md"]
        for write in (
            lambda: edit_note(ws, NotePath("Tea.md"), [Append("more")]),
            lambda: create(ws, NotePath("New.md"), b"new"),
            lambda: move(ws, NotePath("Tea.md"), "Chai"),
        ):
            with pytest.raises(Forbidden, match="s3:PutObject") as refused:
                write()
            assert "change" not in refused.value.details
        assert ws.ledger.find_unfinished() == []
    assert bucket.keys() == ["Tea.md"] and bucket.get("Tea.md") == b"green tea\n"


def test_keys_that_are_no_paths_are_named_by_check_and_hide_no_other_note(
    bucket: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SeaweedFS takes none of them: the proxy answers that they are there."""
    bucket.put("Tea.md", b"green tea\n")
    odd = {"a//b.md": "''", "../c.md": "'..'", "x" * 1025: "longer than 255 bytes", "back\\slash.md": "backslash"}
    own = [f"{bucket.prefix}/{name}" for name in ("Tea.md", "f/", *odd)]
    bucket.proxy.listing = listing_with(*own)
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.proxy.endpoint)
    asked = ["--workspace", bucket.location, "--state", str(tmp_path)]
    assert main(["check", *asked]) == 1
    printed = capsys.readouterr()
    found = {line.partition(": ")[0]: line for line in printed.out.splitlines()}
    assert set(found) == set(odd) and printed.err == "4 findings\n"
    assert all(why in found[name] for name, why in odd.items())
    assert main(["search", "green", *asked]) == 0
    assert "Tea.md" in capsys.readouterr().out


def test_a_note_whose_key_ends_with_a_slash_is_named_by_check_and_hides_no_other(
    bucket: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put("Tea.md", b"green tea\n")
    listing = listing_with(f"{bucket.prefix}/Tea.md", f"{bucket.prefix}/Cup.md/")
    bucket.proxy.listing = listing.replace(b"<Size>0</Size>", b"<Size>5</Size>")
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.proxy.endpoint)
    asked = ["--workspace", bucket.location, "--state", str(tmp_path)]
    assert main(["check", *asked]) == 1
    assert capsys.readouterr().out == "Cup.md: it is listed and cannot be read: its key may end with a slash\n"
    assert main(["search", "green", *asked]) == 0


def test_two_keys_that_differ_only_by_unicode_form_are_two_notes_and_a_third_is_refused(
    bucket: Bucket, opened: Open
) -> None:
    composed, decomposed, alone = "caf\u00e9.md", "cafe\u0301.md", "e\u0301tude.md"
    for name in (composed, decomposed, alone):
        bucket.put(name, b"begin\n")
    ws = opened()
    ws.follower.wait(20)
    for name in (composed, decomposed, alone):
        assert f"Edited {name}" in said(ws, "edit", path=name, edits=[{"append": ascii(name)}])
        assert bucket.get(name) == f"begin\n{name!a}".encode()
    assert "same name in another spelling" in said(ws, "write", path="\u00e9tude.md", content="x")
    assert alone in said(ws, "read", path="\u00e9tude.md")  # there is no other
    assert "cannot be a name: it is longer than 900 bytes" in said(
        ws, "write", path="/".join(["x" * 200] * 6), content=""
    )


def said(ws: Workspace, tool: str, **args: object) -> str:
    call = Call(Library.of([ws]), Actor("ann", "desk", "notes", tool), Session())
    return perform(SURFACE, call, tool, args).text


def test_an_object_that_changes_between_list_and_get_is_indexed_as_it_was_read(bucket: Bucket, opened: Open) -> None:
    for number in range(4):
        bucket.put(f"n{number}.md", b"as it was listed\n")

    def change_first(kind: str, key: str, number: int) -> None:
        if kind == "GET" and key == f"{bucket.prefix}/n1.md":
            bucket.put("n1.md", b"as it was read\n")
        elif kind == "GET" and key == f"{bucket.prefix}/n2.md":
            obstore.delete(bucket.outside, key)

    bucket.proxy.breaks = change_first
    ws = opened(endpoint=bucket.proxy.endpoint, poll_seconds=1)
    ws.follower.wait(20)
    assert {hit.path for hit in search(ws, parse_query('"it was read"')).items} == {"n1.md"}
    assert {hit.path for hit in search(ws, parse_query('"it was listed"')).items} == {"n0.md", "n3.md"}
    assert said(ws, "read", path="n2.md").startswith("not_found: ")


def test_what_one_user_stores_is_bounded_over_all_their_buckets(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.weed.endpoint)
    bucket.put("work/Tea.md", b"12345")
    bucket.put("home/Tea.md", b"12345")
    flags = {"state": str(tmp_path), "user_quota_bytes": 12}
    places = tuple(f"{name}={bucket.location}/{name}" for name in ("work", "home"))
    config = load(CommandLine(places, flags=flags), environ={}, folder=str(tmp_path))
    with closing(OpenWorkspaces(config)) as library:
        own = Principal("ann", Grant(("work", "home"))).narrow_library(library)

        def write(workspace: str, content: str) -> str:
            call = Call(
                Library.of([own.find_workspace(workspace)]), Actor("ann", "desk", "second_brain", "write"), Session()
            )
            return perform(second_brain(None), call, "write", {"path": "New.md", "content": content}).text

        assert write("work", "123").startswith(
            "Error 507: Storage quota exceeded (all your workspaces together would hold"
        )
        assert write("work", "12") == "Successfully wrote 2 bytes to New.md"
        assert write("home", "1").startswith("Error 507: ")


def test_workspace_add_takes_a_bucket_with_its_settings_and_refuses_what_cannot_be_served(
    bucket: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket.put("Tea.md", b"green tea\n")
    state = ["--state", str(tmp_path)]
    assert main(["workspace", "add", "Tea=s3://nowhere/x", f"endpoint={bucket.weed.endpoint}", *state]) == 1
    assert "make the bucket, or name another" in capsys.readouterr().err
    assert main(["workspace", "add", f"Tea={bucket.location}", f"endpoint={bucket.weed.endpoint}", *state]) == 0
    assert f"Tea is {bucket.location}" in capsys.readouterr().out
    assert main(["search", "green", "--workspace", "Tea", *state]) == 0
    assert "Tea.md" in capsys.readouterr().out
    assert main(["workspace", "set", "Tea", "endpoint=http://elsewhere", *state]) == 1
    assert "endpoint cannot be set" in capsys.readouterr().err


def test_a_folder_called_as_the_prefix_is_found_by_its_path_on_the_command_line(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.weed.endpoint)
    bucket.put("Tea.md", b"tea\n")
    bucket.put(f"{bucket.prefix}/Tea.md", b"other tea\n")
    for typed in (f"{bucket.prefix}/Tea.md", f"{bucket.location}/{bucket.prefix}/Tea.md"):
        asked = ["rename", typed, "Chai", "--dry-run", "--workspace", bucket.location, "--state", str(tmp_path)]
        assert main(asked) == 0
        assert f"{bucket.prefix}/Tea.md" in capsys.readouterr().out


def test_the_api_makes_workspaces_beneath_a_prefix(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.weed.endpoint)
    flags = {"workspaces_root": bucket.location + "/", "state": str(tmp_path)}
    config = load(CommandLine(flags=flags), environ={}, folder=str(tmp_path))
    with closing(open_registry(config)) as registry:
        made = library.add_beneath(config, registry, "Team", None)
        assert made.location == f"{bucket.location}/team"
        with pytest.raises(Invalid, match="endpoint cannot be set"):
            library.add_beneath(config, registry, "Other", None, {"endpoint": "http://169.254.169.254"})
        with pytest.raises(Invalid):
            library.add_beneath(config, registry, "Other", "s3://elsewhere/x")
        with closing(OpenWorkspaces(config, registry)) as served:
            create(served.find_workspace("Team"), NotePath("Tea.md"), b"tea\n")
    assert bucket.get("team/Tea.md") == b"tea\n"


@pytest.mark.parametrize(("by", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 128 + signal.SIGTERM)])
def test_make_serve_bucket_serves_the_example_notes_and_leaves_nothing(
    weed: Weed, tmp_path: Path, by: int, code: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tools.serve_bucket", str(port)]
    environ = os.environ | {"TMPDIR": str(tmp_path)}
    tried = subprocess.Popen(command, cwd=ROOT, env=environ, stderr=subprocess.PIPE, start_new_session=True)
    try:
        until = time.monotonic() + 150
        ready = b""
        while b'"fresh"' not in ready and time.monotonic() < until:
            with contextlib.suppress(OSError):
                ready = urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5).read()
            time.sleep(0.1)
    finally:
        os.killpg(tried.pid, by) if by == signal.SIGINT else tried.terminate()
        _, err = tried.communicate(timeout=60)
    assert b'"fresh"' in ready, err
    assert tried.returncode == code and b"files are in s3://notes/examples" in err
    assert list(tmp_path.iterdir()) == []
