"""`make test` draws the same examples every time; what `make torture` finds is kept, and tried ever after."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests import found
from tests.conftest import ROOT

CONFTEST = """
from pathlib import Path
from tests import found

KEPT = Path(__file__).with_name("found.jsonl")
found.TIMES = 5
found.load_profiles()

def pytest_collection_modifyitems(config, items):
    found.prepare(items, times=found.times(config), found=KEPT)

def pytest_runtest_makereport(item, call):
    if call.excinfo is not None and found.is_torture(item.config):
        found.keep(item, call.excinfo.value, KEPT)
"""
LAW = """
from dataclasses import dataclass
from pathlib import Path
from hypothesis import given, settings, strategies as st

@dataclass
class Box:
    number: int

@settings(max_examples=40)
@given(st.builds(Box, st.integers(0, 100_000)), st.text())
def test_law(box, text):
    with Path(__file__).with_name("drawn").open("a") as file:
        print(box, ascii(text), file=file)
    assert box.number < LIMIT
"""


def run(place: Path, *words: str, limit: int) -> tuple[int, list[str]]:
    """How it ended, and what was drawn."""
    (place / "test_law.py").write_text(LAW.replace("LIMIT", str(limit)), encoding="utf-8")
    (place / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (place / "drawn").write_text("", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(place), str(place)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([*command, *words], cwd=place, env=environment, capture_output=True, timeout=120)
    return done.returncode, (place / "drawn").read_text(encoding="utf-8").splitlines()


@pytest.mark.slow
def test_examples_are_the_same_every_time_and_leave_nothing_behind(tmp_path: Path) -> None:
    first, second = (run(tmp_path, limit=100_001) for _ in range(2))
    assert first == second and first[0] == 0 and len(set(first[1])) > 20
    assert not (tmp_path / ".hypothesis" / "examples").exists() and not (tmp_path / "found.jsonl").exists()


@pytest.mark.slow
def test_check_draws_fewer_torture_more_and_others_and_keeps_what_it_finds_as_a_case(tmp_path: Path) -> None:
    _, usual = run(tmp_path, limit=100_001)
    ended, fewer = run(tmp_path, "--hypothesis-profile", "quick", limit=100_001)
    assert ended == 0 and 0 < len(fewer) < len(usual) / 2
    ended, more = run(tmp_path, "--hypothesis-profile", "torture", limit=100_001)
    assert ended == 0 and len(more) > 2 * len(usual) and set(more) - set(usual)
    ended, _ = run(tmp_path, "--hypothesis-profile", "torture", "-m", "torture or hypothesis", limit=77)
    (line,) = (tmp_path / "found.jsonl").read_text(encoding="utf-8").splitlines()
    assert ended == 1
    assert json.loads(line) == {"test": "test_law.py::test_law", "given": {"box": "Box(77)", "text": "''"}}
    ended, drawn = run(tmp_path, limit=77)
    assert ended == 1 and drawn[0] == "Box(number=77) ''"
    ended, drawn = run(tmp_path, limit=100_001)
    assert ended == 0 and drawn == ["Box(number=77) ''", *usual]


def test_seeds_that_went_wrong_are_kept_once(tmp_path: Path) -> None:
    place = tmp_path / "seeds.txt"
    assert found.seeds(place) == []
    for seed in (4711, 12, 4711):
        found.keep_seed(seed, place)
    assert found.seeds(place) == [4711, 12]
