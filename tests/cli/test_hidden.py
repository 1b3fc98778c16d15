"""Where a configuration hides notes, the command line says of them what it says of notes that are not there."""

import re
from pathlib import Path

import pytest
from tests.conftest import write_files
from tests.server.guarded import BY_TOKEN, GARDEN, HIDING, PATTERN, RULE

from notewright.cli.main import main
from notewright.engine.access import Access

HIDE = (*HIDING, *RULE)
SEEN = {path: text for path, text in GARDEN.items() if Access(hide=HIDE).sees(path)}
ASKED = (
    ("grep", "."), ("grep", BY_TOKEN), ("links", "Map"), ("links", "Recipes/List"), ("links", "Larder"),
    ("links", "Attic/Larder"), ("links", "Pantry"), ("check",), ("log",), ("log", "Attic/Larder.md"), ("log", "Attic"),
    ("log", "Attic/None.md"), ("rename", "Tea", "Green Tea", "--dry-run"), ("rename", "Larder", "X", "--dry-run"),
    ("rename", "Attic/Larder.md", "X", "--dry-run"), ("rename", "Attic", "Loft", "--dry-run"),
    ("rename", "Tea", "Attic/Tea", "--dry-run"), ("undo", "--since", "2020-01-01", "--dry-run"),
)  # fmt: skip


class Shell:
    def __init__(self, place: Path, files: dict[str, str | bytes], capture: pytest.CaptureFixture[str]) -> None:
        self.place, self.capture = place, capture
        write_files(place / "Garden", files)
        hidden = ", ".join(f'"{pattern}"' for pattern in HIDE)
        (place / "c.toml").write_text(f'[workspaces.Garden]\nlocation = "Garden"\nhide = [{hidden}]\n')

    def told(self, *words: str) -> tuple[int, str]:
        """The exit code and everything printed, without what differs from one run to the next."""
        code = main(
            [
                *words,
                "--workspace",
                "Garden",
                "--config",
                str(self.place / "c.toml"),
                "--state",
                str(self.place / "state"),
            ]
        )
        read = self.capture.readouterr()
        said = (read.out + read.err).replace(str(self.place), "PLACE")
        return code, re.sub(r"\b[2-9a-z]{8}\b|\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?Z?", "X", said)


def test_no_command_answers_otherwise_because_of_what_is_hidden(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    full, empty = Shell(tmp_path / "with", GARDEN, capsys), Shell(tmp_path / "none", SEEN, capsys)
    assert full.told("links", "Map")[0] == empty.told("links", "Map")[0] == 0
    for words in (("rename", "Tea", "Leaf"), ("rename", "Leaf", "Tea"), *ASKED):
        for more in ((), ("--json",)):
            if words[0] == "rename" and "--dry-run" not in words and more:
                continue
            told = full.told(*words, *more)
            assert told == empty.told(*words, *more), words
            assert BY_TOKEN.lower() not in told[1].lower() or BY_TOKEN in words
            assert PATTERN.lower() not in told[1].lower()
