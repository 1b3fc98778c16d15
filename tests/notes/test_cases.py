"""The product's answers to semantic cases: our own everywhere, the shared ones where they are."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
FILES = sorted((ROOT / "tests/cases").glob("*.jsonl"))
OWN = [json.loads(line) for path in FILES for line in path.read_text(encoding="utf-8").split("\n") if line]


def ask(lines: str) -> list[dict[str, Any]]:
    command = [sys.executable, str(ROOT / "tools/answer_cases.py")]
    done = subprocess.run(command, input=lines.encode(), capture_output=True, timeout=60, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, Any]]:
    return {reply["id"]: reply for reply in ask("".join(json.dumps(case) + "\n" for case in OWN))}


@pytest.mark.parametrize("case", OWN, ids=lambda case: case["id"])
def test_a_case_of_our_own_holds(case: dict[str, Any], answers: dict[str, dict[str, Any]]) -> None:
    reply = answers[case["id"]]
    assert "answer" in reply, reply
    assert_holds(reply["answer"], case["expected"], case["id"])


def assert_holds(got: Any, wanted: Any, where: str) -> None:
    """Objects may say more than they were asked; maps of files, counts and properties may not."""
    if isinstance(wanted, list):
        assert isinstance(got, list) and len(got) == len(wanted), (where, got, wanted)
        for place, (one, other) in enumerate(zip(got, wanted, strict=True)):
            assert_holds(one, other, f"{where}.{place}")
    elif isinstance(wanted, dict):
        for key, value in wanted.items():
            assert key in got, (where, key, got)
            if isinstance(value, list):
                assert_holds(got[key], value, f"{where}.{key}")
            else:
                assert got[key] == value, (where, key, got[key], value)
    else:
        assert got == wanted, where


def test_a_case_that_makes_no_sense_does_not_end_the_run() -> None:
    odd = ['{"id": "1"}', "not json", '{"id": "2", "op": "nothing", "args": {}, "files": {}}']
    odd += ['{"id": "3", "op": "extract_links", "args": {"path": "gone.md"}, "files": {}}', "[]", "3"]
    good = '{"id": "4", "op": "path_check", "args": {"path": "a"}, "files": {}}'
    replies = {reply["id"]: reply for reply in ask("\n".join([*odd, good]) + "\n")}
    assert replies["4"] == {"id": "4", "answer": {"accepted": True}}
    assert all("skip" in replies[ident] for ident in "123")


def test_the_shared_cases_hold(shared: Path) -> None:
    command = [sys.executable, str(shared / "tools/score_cases.py"), "--project", str(ROOT)]
    command += ["--answers", f"{sys.executable} tools/answer_cases.py", "--all"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
