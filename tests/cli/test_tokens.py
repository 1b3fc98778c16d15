"""`notewright token`."""

import json
import re
import time
from datetime import UTC
from pathlib import Path

import pytest

from notewright.cli.arguments import parse_moment
from notewright.cli.main import main


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["token", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_token_is_shown_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = ("--state", str(tmp_path))
    code, out, err = run(capsys, "add", "phone", *state)
    assert code == 0
    assert re.fullmatch(r"nw_[\w-]{43}\n", out)
    assert "shown once" in err
    code, listed, _ = run(capsys, "list", *state, "--json")
    assert out.strip() not in listed
    assert json.loads(listed)["tokens"][0]["name"] == "phone"
    assert out.strip().encode() not in b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


def test_what_a_token_may_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "add",
        "bot",
        "--state",
        str(tmp_path),
        "--workspace",
        "My Notes",
        "--surface",
        "second-brain",
        "--read-only",
    ]
    _, out, _ = run(capsys, *words, "--hide", "Private/**", "--write-under", "Inbox/**", "--expires", "90d", "--json")
    made = json.loads(out)
    assert made["token"].startswith("nw_")
    assert (made["workspaces"], made["surfaces"], made["read_only"]) == (["my-notes"], ["second_brain"], True)
    assert (made["hide"], made["write_under"]) == (["Private/**"], ["Inbox/**"])
    _, out, _ = run(capsys, "list", "--state", str(tmp_path))
    assert "read only, in my-notes, through second_brain, without Private/**, writing only under Inbox/**" in out


def test_several_are_named_one_by_one_or_with_commas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "c.toml").write_text('[workspaces."Cats, Dogs"]\nlocation = "notes"\n')
    words = ["add", "bot", "--state", str(tmp_path), "--config", str(tmp_path / "c.toml"), "--json"]
    named = ["--workspace", "Work,Home", "--workspace", "Work", "--workspace", "Cats, Dogs"]
    _, out, _ = run(capsys, *words, *named, "--surface", "notes, second-brain", "--surface", "lens")
    made = json.loads(out)
    assert made["workspaces"] == ["work", "home", "cats-dogs"]
    assert made["surfaces"] == ["notes", "second_brain", "lens"]


def test_a_revoked_token_is_listed_as_that(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = ("--state", str(tmp_path))
    run(capsys, "add", "phone", *state)
    assert run(capsys, "revoke", "phone", *state)[0] == 0
    assert re.search(r"phone +revoked", run(capsys, "list", *state)[1])
    code, _, err = run(capsys, "revoke", "phone", *state)
    assert (code, "there is no token 'phone' to revoke" in err) == (1, True)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--surface", "nodes"], 2, "there is no surface 'nodes'"),
        (["--expires", "soon"], 2, "is not a time to come"),
        (["--expires", "2001-01-01"], 1, "expired already"),
    ],
)
def test_what_is_wrong_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], status: int, said: str
) -> None:
    code, out, err = run(capsys, "add", "phone", "--state", str(tmp_path), *words)
    assert (code, out) == (status, "")
    assert said in err


def test_times_to_come_are_written_as_people_write_them() -> None:
    now = time.time()

    def to_come(raw: str) -> float:
        return parse_moment(raw, UTC, now, "expires")

    assert to_come("90d") == now + 90 * 86_400
    assert to_come("12h") == now + 12 * 3600
    assert to_come("2027-01-31") == to_come("2027-01-31T00:00:00Z")


def test_who_made_and_revoked_tokens_stands_in_the_audit_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = run(capsys, "add", "phone", "--state", str(tmp_path))[1].strip()
    run(capsys, "revoke", "phone", "--state", str(tmp_path))
    told = (tmp_path / "state" / "audit.jsonl").read_text()
    lines = [json.loads(line) for line in told.splitlines()]
    assert [(line["action"], line["token"]) for line in lines] == [("token_added", "phone"), ("token_revoked", "phone")]
    assert secret not in told
