"""Does search bring the note that was meant? The bars of the shared questions hold."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.index.parts import asked, filing

from notewright.engine.find.search import find
from notewright.index.sqlite.index import SqliteIndex


def opened(vault: Path, folder: Path) -> SqliteIndex:
    index = SqliteIndex(folder)
    notes = sorted(vault.rglob("*.md"))
    index.file(filing(str(note.relative_to(vault)), note.read_text("utf-8", "replace")) for note in notes)
    return index


@pytest.mark.slow
def test_the_notes_that_were_meant_are_among_the_first(shared: Path, tmp_path: Path) -> None:
    finding = shared / "finding"
    questions = [json.loads(line) for line in (finding / "questions.jsonl").read_text("utf-8").splitlines()]
    vaults = {question["vault"] for question in questions}
    indexes = {vault: opened(finding / "vaults" / vault, tmp_path / vault) for vault in vaults}
    answers = []
    for question in questions:
        hits = find(indexes[question["vault"]], asked(question["query"], limit=20)).items
        answers.append(json.dumps({"id": question["id"], "paths": [hit.path for hit in hits]}))
    judged = subprocess.run(
        [sys.executable, str(shared / "tools" / "score_finding.py"), "-"],
        input="\n".join(answers), text=True, capture_output=True, timeout=60,
    )  # fmt: skip
    print(judged.stdout)
    assert judged.returncode == 0, judged.stdout + judged.stderr
