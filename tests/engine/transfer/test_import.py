"""Out as a zip file and in again, from zip files and folders that nobody should trust."""

import io
import os
import random
import stat
import struct
import subprocess
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.conftest import MakeWorkspace, write_files
from tests.engine.transfer.backup_parts import files

from notewright.engine.changes import batch_write
from notewright.engine.changes.history import list_changes, undo
from notewright.engine.find.search import parse_query, search
from notewright.engine.transfer import import_files as import_module
from notewright.engine.transfer.export import export_zip, zip_pieces
from notewright.engine.transfer.import_files import ImportResult, import_files
from notewright.engine.workspace import Workspace
from notewright.errors import Exists, Invalid, NotFound, ReadOnly, TooLarge
from notewright.ledger.base import ChangeQuery

NOTES: dict[str, str | bytes] = {
    "Tea.md": "# Tea\n\nGreen.\n",
    "Drinks/Coffee.md": "Black.\r\n",
    "Drinks/cup.png": bytes(range(256)) * 4,
    "Empty.md": "",
    "Latin.md": "caf\xe9\n".encode("latin-1"),
    "日本/ほうじ茶.md": "\ufeff# 茶\n",
}


def zipped(entries: Mapping[str, bytes] | list[tuple[str | zipfile.ZipInfo, bytes]]) -> io.BytesIO:
    """A zip file with these entries, however strange their names."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that are in there twice
        for name, data in entries.items() if isinstance(entries, Mapping) else entries:
            archive.writestr(name, data)
    out.seek(0)
    return out


def reasons(report: ImportResult) -> dict[str, str]:
    return {one.path: one.reason for one in report.skipped}


def written_to_a_pipe(ws: Workspace) -> bytes:
    """What export writes where nobody can go back."""
    read_end, write_end = os.pipe()
    with open(read_end, "rb") as reader, subprocess.Popen(["cat"], stdin=read_end, stdout=subprocess.PIPE) as cat:
        reader.close()
        with open(write_end, "wb") as out:
            export_zip(ws, out)
        return cat.communicate()[0]


# ---- out ----------------------------------------------------------------------------------------------


def test_a_zip_file_holds_every_file_with_its_bytes_and_time(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace(NOTES | {".obsidian/app.json": "{}"})
    os.utime(tmp_path / "Main" / "Tea.md", (0, 1_700_000_001))
    out = io.BytesIO()
    done = export_zip(ws, out)
    with zipfile.ZipFile(out) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == files(tmp_path / "Main")
        assert archive.namelist() == sorted(archive.namelist())
        assert archive.testzip() is None
        tea = archive.getinfo("Tea.md")
    assert (tea.date_time, tea.extra) == ((2023, 11, 14, 22, 13, 20), struct.pack("<HHBl", 0x5455, 5, 1, 1_700_000_001))
    assert done.sizes == {name: len(data) for name, data in files(tmp_path / "Main").items()} and done.skipped == []


@pytest.mark.slow
def test_the_same_notes_make_the_same_zip_file_and_a_pipe_will_do(workspace: MakeWorkspace) -> None:
    ws = workspace(NOTES)
    pieces = list(zip_pieces(ws))
    assert len(pieces) > 6 and b"".join(pieces) == b"".join(zip_pieces(ws)) == written_to_a_pipe(ws)
    with zipfile.ZipFile(io.BytesIO(b"".join(pieces))) as archive:
        assert archive.testzip() is None and len(archive.namelist()) == 6


def test_times_a_zip_file_cannot_say_do_no_harm(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace({"Old.md": "old\n", "Far.md": "far\n"})
    os.utime(tmp_path / "Main" / "Old.md", (0, -86_400 * 365))
    os.utime(tmp_path / "Main" / "Far.md", (0, 5_000_000_000))
    out = io.BytesIO()
    export_zip(ws, out)
    with zipfile.ZipFile(out) as archive:
        assert archive.getinfo("Old.md").date_time == (1980, 1, 1, 0, 0, 0)
        assert archive.getinfo("Far.md").date_time == (2107, 12, 31, 23, 59, 58)


def test_hidden_notes_are_in_no_zip_file_nor_what_leads_to_them(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace({"Tea.md": "tea\n", "Private/Diary.md": "secret\n"}, hide=("Private/**",))
    (tmp_path / "Main" / "Way.md").symlink_to("Private/Diary.md")
    (tmp_path / "Main" / "Also.md").symlink_to("Tea.md")
    out = io.BytesIO()
    done = export_zip(ws, out)
    with zipfile.ZipFile(out) as archive:
        assert archive.namelist() == ["Tea.md"]
    assert [(one.path, one.reason) for one in done.skipped] == [("Also.md", "symlink")]
    assert b"secret" not in out.getvalue() and b"Diary" not in out.getvalue()


# ---- in and out again ---------------------------------------------------------------------------------


def test_what_was_exported_comes_in_again_byte_for_byte_and_can_be_undone(
    workspace: MakeWorkspace, tmp_path: Path
) -> None:
    out = io.BytesIO()
    export_zip(workspace(NOTES), out)
    other = workspace({"Here.md": "here\n"}, "Other")
    report = import_files(other, out)
    assert report.created == tuple(sorted(NOTES)) and len(report.changes) == 1
    assert files(tmp_path / "Other") == files(tmp_path / "Main") | {"Here.md": b"here\n"}
    assert list_changes(other, ChangeQuery())[0].summary == "imported 6 files"
    assert [hit.path for hit in search(other, parse_query("green")).items] == ["Tea.md"]
    undo(other, report.changes[0])
    assert files(tmp_path / "Other") == {"Here.md": b"here\n"} and not (tmp_path / "Other" / "Drinks").exists()


def test_a_folder_comes_in_under_another_with_its_own_folders(workspace: MakeWorkspace, tmp_path: Path) -> None:
    write_files(tmp_path / "source", NOTES)
    ws = workspace()
    report = import_files(ws, tmp_path / "source", into="Archive/2026/")
    assert len(report.created) == 6 and report.skipped == ()
    assert files(tmp_path / "Main" / "Archive" / "2026") == files(tmp_path / "source")
    assert list_changes(ws, ChangeQuery())[0].summary == "imported 6 files from source into Archive/2026"


def test_a_dry_run_reports_the_same_and_writes_nothing(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace({"Tea.md": "mine\n", "Empty.md": ""})
    source = zipped({"Tea.md": b"theirs\n", "Empty.md": b"", "New.md": b"new\n", ".x": b""})
    planned = import_files(ws, source, overwrite=True, dry_run=True)
    assert (planned.dry_run, planned.changes) == (True, ())
    assert files(tmp_path / "Main") == {"Tea.md": b"mine\n", "Empty.md": b""}
    done = import_files(ws, source, overwrite=True)
    assert planned.record() | {"changes": list(done.changes), "dry_run": False} == done.record()


def test_notes_that_are_there_stay_unless_they_are_to_be_replaced(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace({"Tea.md": "mine\n", "Same.md": "same\n"})
    source = zipped({"Tea.md": b"theirs\n", "Same.md": b"same\n", "New.md": b"new\n"})
    report = import_files(ws, source)
    assert (report.created, report.replaced, report.unchanged) == (("New.md",), (), ("Same.md",))
    assert reasons(report) == {"Tea.md": "exists"}
    report = import_files(ws, source, overwrite=True)
    assert (report.created, report.replaced, report.unchanged) == ((), ("Tea.md",), ("New.md", "Same.md"))
    undo(ws, report.changes[0])
    assert (tmp_path / "Main" / "Tea.md").read_text() == "mine\n"


def test_what_is_much_becomes_several_changes(workspace: MakeWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_write, "MAX_BYTES", 25)
    ws = workspace()
    report = import_files(ws, zipped({f"N {number}.md": b"0123456789" for number in range(5)}))
    assert (len(report.created), len(report.changes)) == (5, 3)


# ---- what does not come in ----------------------------------------------------------------------------


def special(name: str, kind: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, (kind | 0o777) << 16
    return info


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../outside.md", "bad_name"),
        ("a/../../outside.md", "bad_name"),
        ("/etc/cron.d/evil.md", "bad_name"),
        ("//server/share.md", "bad_name"),
        ("a//b.md", "bad_name"),
        ("./a.md", "bad_name"),
        ("..\\outside.md", "dotted"),
        ("a\\b.md", "bad_name"),
        ("C:\\Users\\x.md", "bad_name"),
        ("C:/Users/x.md", "bad_name"),
        ("a\nb.md", "bad_name"),
        ("a\x1b[31m.md", "bad_name"),
        ("what?.md", "bad_name"),
        ("CON.md", "bad_name"),
        ("trailing ./x.md", "bad_name"),
        (f"{'x' * 251}.md", "bad_name"),
        ("/".join(["x" * 100] * 10), "bad_name"),
        (".git/config", "dotted"),
        ("a/.hidden/b.md", "dotted"),
        ("a/.DS_Store", "dotted"),
        ("__MACOSX/a/b.md", "rubbish"),
        ("a/Thumbs.db", "rubbish"),
        (".notewright-x", "dotted"),
    ],
)
def test_names_that_cannot_be_notes_are_left_out_with_the_reason(
    workspace: MakeWorkspace, tmp_path: Path, name: str, reason: str
) -> None:
    report = import_files(workspace(), zipped([(name, b"evil\n"), ("Fine.md", b"fine\n")]))
    assert reasons(report) == {name: reason}
    assert files(tmp_path / "Main") == {"Fine.md": b"fine\n"}
    assert not (tmp_path / "outside.md").exists() and os.listdir(tmp_path / "Main") == ["Fine.md"]


def test_a_name_cut_by_a_zero_byte_is_seen_whole(workspace: MakeWorkspace) -> None:
    raw = zipped([("Tea.mdX.exe", b"x")]).getvalue().replace(b"Tea.mdX.exe", b"Tea.md\0.exe")
    report = import_files(workspace(), io.BytesIO(raw))
    assert (report.created, list(reasons(report).values())) == ((), ["bad_name"])


def test_symlinks_and_devices_in_a_zip_file_are_left_out(workspace: MakeWorkspace, tmp_path: Path) -> None:
    report = import_files(
        workspace(),
        zipped(
            [
                (special("Way.md", stat.S_IFLNK), b"/etc/passwd"),
                (special("Pipe.md", stat.S_IFIFO), b""),
                (special("Plain.md", stat.S_IFREG), b"plain\n"),
            ]
        ),
    )
    assert reasons(report) == {"Way.md": "symlink", "Pipe.md": "special"}
    assert files(tmp_path / "Main") == {"Plain.md": b"plain\n"}


def test_of_names_that_are_the_same_the_first_comes(workspace: MakeWorkspace, tmp_path: Path) -> None:
    source = zipped(
        [
            ("Tea.md", b"first\n"),
            ("Tea.md", b"second\n"),
            ("TEA.md", b"third\n"),
            ("tea.md/inner.md", b"x"),
            ("Cafe\u0301.md", b"e\n"),
            ("Caf\u00e9.md", b"e again\n"),
            ("Folder/a.md", b"a\n"),
            ("folder/b.md", b"b\n"),
            ("Folder", b"no folder\n"),
        ]
    )
    report = import_files(workspace(), source)
    assert report.created == ("Café.md", "Folder/a.md", "Tea.md")
    assert [(one.path, one.reason) for one in report.skipped] == [
        ("Caf\u00e9.md", "twice"),
        ("Folder", "exists"),
        ("TEA.md", "exists"),
        ("Tea.md", "twice"),
        ("folder/b.md", "exists"),
        ("tea.md/inner.md", "exists"),
    ]
    assert (tmp_path / "Main" / "Tea.md").read_bytes() == b"first\n"


def test_another_spelling_of_what_is_there_is_left_out(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace({"Tea.md": "mine\n", "Drinks/Cup.md": "cup\n"})
    source = zipped(
        {"TEA.md": b"x", "drinks/New.md": b"x", "Drinks": b"x", "Tea.md/In.md": b"x", "Drinks/Cup.md": b"cup\n"}
    )
    report = import_files(ws, source, overwrite=True)
    assert set(reasons(report).values()) == {"exists"} and report.unchanged == ("Drinks/Cup.md",)
    assert "there is Tea.md" in next(one.words for one in report.skipped if one.path == "TEA.md")
    with pytest.raises(Exists, match="use Drinks"):
        import_files(ws, source, into="drinks")
    with pytest.raises(Invalid):
        import_files(ws, source, into="../up")
    assert files(tmp_path / "Main") == {"Tea.md": b"mine\n", "Drinks/Cup.md": b"cup\n"}


def test_two_spellings_that_are_both_there_are_no_obstacle(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace({"Tea.md": "a\n", "tea.md": "b\n", "Dir/x.md": "x\n", "dir/x.md": "y\n"})
    report = import_files(ws, zipped({"tea.md": b"new\n", "dir/z.md": b"z\n"}), overwrite=True)
    assert (report.created, report.replaced, report.skipped) == (("dir/z.md",), ("tea.md",), ())
    assert (tmp_path / "Main" / "Tea.md").read_text() == "a\n"


def test_a_zip_bomb_is_not_unpacked(workspace: MakeWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    ws = workspace(max_file_size=100 << 20)
    report = import_files(ws, zipped({"Bomb.md": bytes(50 << 20), "Fine.md": b"fine\n"}))
    assert (report.created, reasons(report)) == (("Fine.md",), {"Bomb.md": "bomb"})
    monkeypatch.setattr(import_module, "MAX_ZIP_BYTES", 1000)
    with pytest.raises(TooLarge, match="more than 1,000 bytes"):
        import_files(ws, zipped({f"N {number}.md": random.Random(number).randbytes(300) for number in range(4)}))
    monkeypatch.setattr(import_module, "MAX_ZIP_ENTRIES", 3)
    with pytest.raises(TooLarge, match="4 entries"):
        import_files(ws, zipped({f"N {number}.md": b"x" for number in range(4)}))


def test_a_zip_file_that_lies_about_a_size_is_found_out(workspace: MakeWorkspace) -> None:
    """The directory says ten bytes, the entry would unpack to far more."""
    data = zlib.compress(b"x" * 5000, 9)[2:-4]
    raw = zipped({"Liar.md": b"x" * 5000}).getvalue()
    assert data in raw
    lied = raw.replace(struct.pack("<L", 5000), struct.pack("<L", 10))
    report = import_files(workspace(), io.BytesIO(lied))
    assert (report.created, reasons(report)) == ((), {"Liar.md": "damaged"})


def test_damaged_and_encrypted_entries_and_strange_packings_are_left_out(workspace: MakeWorkspace) -> None:
    noise = random.Random(1).randbytes(200)
    raw = bytearray(zipped({"Bad.md": noise, "Locked.md": b"secret", "Fine.md": b"fine\n"}).getvalue())
    place = raw.index(noise[:20])
    raw[place] ^= 0xFF
    entry = raw.index(b"Locked.md", raw.index(b"PK\x01\x02")) - 46  # in the directory
    raw[entry + 8] |= 1
    report = import_files(workspace(), io.BytesIO(bytes(raw)))
    assert (report.created, reasons(report)) == (("Fine.md",), {"Bad.md": "damaged", "Locked.md": "encrypted"})
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("Packed.md", bytes(1000))
    assert reasons(import_files(workspace({}, "Two"), out)) == {"Packed.md": "unreadable"}


def test_names_in_utf8_that_do_not_say_so_are_read_as_such(workspace: MakeWorkspace) -> None:
    def unflagged(name: bytes) -> io.BytesIO:
        plain = zipped({"N" * len(name): b"x\n"}).getvalue()
        return io.BytesIO(plain.replace(b"N" * len(name), name))

    assert import_files(workspace(), unflagged("Grüße.md".encode())).created == ("Grüße.md",)
    assert import_files(workspace({}, "Two"), unflagged("Grüße.md".encode("cp437"))).created == ("Grüße.md",)
    broken = zipped({"Grüße.md": b"x\n"}).getvalue().replace("ü".encode(), b"\xff\xff")
    with pytest.raises(Invalid, match="no zip file that can be read"):
        import_files(workspace({}, "Three"), io.BytesIO(broken))


@pytest.mark.parametrize("raw", [b"", b"no zip file", b"PK\x03\x04" + bytes(40), b"PK\x05\x06" + b"\xff" * 18])
def test_what_is_no_zip_file_is_refused_in_words(workspace: MakeWorkspace, tmp_path: Path, raw: bytes) -> None:
    ws = workspace()
    (tmp_path / "x.zip").write_bytes(raw)
    for source in (io.BytesIO(raw), tmp_path / "x.zip"):
        with pytest.raises(Invalid, match="no zip file that can be read"):
            import_files(ws, source)
    with pytest.raises(NotFound):
        import_files(ws, tmp_path / "nothing.zip")


def test_a_zip_file_cut_at_any_place_is_refused_or_brings_whole_files(workspace: MakeWorkspace, tmp_path: Path) -> None:
    whole = zipped({"A.md": b"a" * 50, "B/C.md": b"c" * 50}).getvalue()
    ws = workspace()
    for length in range(0, len(whole), 7):
        try:
            import_files(ws, io.BytesIO(whole[:length]))
        except Invalid:
            pass
    assert all(data in (b"a" * 50, b"c" * 50) for data in files(tmp_path / "Main").values())


def test_symlinks_of_a_folder_are_not_followed(workspace: MakeWorkspace, tmp_path: Path) -> None:
    write_files(tmp_path / "secret", {"Key.md": "key\n"})
    write_files(tmp_path / "source", {"Tea.md": "tea\n", ".git/config": "x", "In/.hidden": "x"})
    (tmp_path / "source" / "Way.md").symlink_to(tmp_path / "secret" / "Key.md")
    (tmp_path / "source" / "Ways").symlink_to(tmp_path / "secret")
    (tmp_path / "source" / "Loop").symlink_to(tmp_path / "source")
    os.mkfifo(tmp_path / "source" / "Pipe.md")
    (tmp_path / "source" / os.fsdecode(b"caf\xe9.md")).write_text("x")
    report = import_files(workspace(), tmp_path / "source")
    assert report.created == ("Tea.md",)
    assert reasons(report) == {
        ".git/": "dotted",
        "In/.hidden": "dotted",
        "Way.md": "symlink",
        "Ways": "symlink",
        "Loop": "symlink",
        "Pipe.md": "special",
        "caf\\xe9.md": "bad_name",
    }
    assert files(tmp_path / "Main") == {"Tea.md": b"tea\n"}


def test_folders_nested_too_deep_for_a_note_are_left_out(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace({})
    write_files(tmp_path / "in", {"Shallow.md": b"here\n"})
    deep = tmp_path / "in"
    for name in ["n" * 200] * 6:
        deep /= name
        deep.mkdir()
    report = import_files(ws, tmp_path / "in")
    assert report.created == ("Shallow.md",)
    assert [(one.reason, one.words) for one in report.skipped] == [("bad_name", "it is longer than 900 bytes")]


def test_a_folder_swapped_for_a_symlink_meanwhile_is_not_followed(workspace: MakeWorkspace, tmp_path: Path) -> None:
    write_files(tmp_path / "secret", {"B.md": "key\n"})
    write_files(tmp_path / "source", {"A.md": "a\n", "In/B.md": "b\n"})

    def swap(done: int, total: int | None) -> None:
        if done == 2:
            os.rename(tmp_path / "source" / "In", tmp_path / "gone")
            (tmp_path / "source" / "In").symlink_to(tmp_path / "secret")

    import_files(workspace(), tmp_path / "source", report=swap)
    assert files(tmp_path / "Main") == {"A.md": b"a\n", "In/B.md": b"b\n"}


def test_a_workspace_is_not_imported_into_itself(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace({"In/Tea.md": "tea\n"})
    for place in (tmp_path, tmp_path / "Main", tmp_path / "Main" / "In"):
        with pytest.raises(Invalid, match="the folder to import"):
            import_files(ws, place)


# ---- who may, and how much ----------------------------------------------------------------------------


def test_only_where_the_caller_may_write_and_without_telling_what_is_hidden(
    workspace: MakeWorkspace, tmp_path: Path
) -> None:
    ws = workspace({"Private/Diary.md": "secret\n"}, hide=("Private/**",), write_under=("Inbox/**", "private/**"))
    source = zipped({"Inbox/a.md": b"a\n", "Other/b.md": b"b\n", "Private/Diary.md": b"x", "private/Diary.md": b"x"})
    report = import_files(ws, source, overwrite=True)
    assert report.created == ("Inbox/a.md",)
    assert set(reasons(report).values()) == {"not_allowed"} and len(report.skipped) == 3
    assert not any(
        "Private/Diary" in one.words or "Private," in one.words for one in report.skipped if one.path[0] == "p"
    )
    assert (tmp_path / "Main" / "Private" / "Diary.md").read_text() == "secret\n"


def test_a_read_only_workspace_takes_nothing(workspace: MakeWorkspace) -> None:
    with pytest.raises(ReadOnly):
        import_files(workspace(read_only=True), zipped({"A.md": b"a"}))


def test_sizes_and_quotas_hold(workspace: MakeWorkspace) -> None:
    ws = workspace({"Here.md": "0123456789"}, max_file_size=100, quota_files=4, quota_bytes=200)
    source = zipped(
        [
            ("Large.md", bytes(101)),
            ("A.md", random.Random(90).randbytes(90)),
            ("B.md", random.Random(95).randbytes(95)),
            ("C.md", random.Random(20).randbytes(20)),
            ("D.md", b""),
            ("Here.md", b"1234567890"),
            ("E.md", b""),
        ]
    )
    report = import_files(ws, source, overwrite=True)
    assert reasons(report) == {"Large.md": "too_large", "C.md": "quota", "E.md": "quota"}
    assert (report.created, report.replaced) == (("A.md", "B.md", "D.md"), ("Here.md",))


def test_a_symlink_in_the_workspace_is_not_written_through(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace({"Tea.md": "tea\n"})
    (tmp_path / "Main" / "Way.md").symlink_to("Tea.md")
    (tmp_path / "out").mkdir()
    (tmp_path / "Main" / "Out").symlink_to(tmp_path / "out")
    (tmp_path / "Main" / "In").symlink_to(".")
    source = zipped({"Way.md": b"x\n", "Out/x.md": b"x\n", "In/y.md": b"y\n", "Fine.md": b"fine\n"})
    report = import_files(ws, source, overwrite=True)
    assert reasons(report) == {"Way.md": "symlink", "Out/x.md": "not_allowed", "In/y.md": "not_allowed"}
    assert (report.created, len(report.changes)) == (("Fine.md",), 1)
    assert os.listdir(tmp_path / "out") == [] and (tmp_path / "Main" / "Tea.md").read_text() == "tea\n"
    assert not (tmp_path / "Main" / "y.md").exists()
