"""Patterns over real vaults, against what ripgrep found there."""

import hashlib
import json
from pathlib import Path

import pytest
from tests.conftest import REAL_VAULTS
from tests.engine.fake_workspace import fake_workspace_of_folder

from notewright.engine.find.grep import Grep, grep

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("vault", REAL_VAULTS)
def test_grep_finds_the_lines_that_ripgrep_finds(vault: str, shared: Path) -> None:
    root = next(place for place in (shared / "vaults" / vault).iterdir() if place.is_dir())
    ws = fake_workspace_of_folder(root)
    wrong = []
    for case in json.loads((shared / "truth" / vault / "grep.json").read_text())["grep"]:
        asked = Grep(
            case["pattern"],
            dialect="literal" if case["fixed"] else "re2",
            ignore_case=case["ignore_case"],
            whole_word=case["word"],
            limit=10**6,
        )
        found = grep(ws, asked)
        lines = "".join(f"{item.path}:{item.line}\n" for item in found.items)
        matches = sum(max(1, len(item.spans)) for item in found.items)  # an empty match has no span
        got = (found.total_notes, found.total_lines, matches, hashlib.sha256(lines.encode()).hexdigest())
        first = [[item.path, item.line] for item in found.items[:12]]
        if (*got, first) != (
            *(case[key] for key in ("files", "lines", "matches", "sha256_of_path_line")),
            case["first"],
        ):
            wrong.append((case["pattern"], got, first[:3]))
    assert wrong == []
