"""Measuring keeps working: every row is measured on a small vault."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.slow
def test_a_quick_run_measures_every_row() -> None:
    missing = [tool for tool in ("rg", "wrk") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed")
    done = subprocess.run(
        (sys.executable, "tools/bench.py", "--quick"), cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ") and not line.startswith("| ---")][1:]
    assert len(rows) > 30
    assert [row for row in rows if "not measured" in row] == []
    assert all(re.search(r"\| (ok|\*\*miss\*\*)?(, worse)? \|$", row) for row in rows)


def test_every_row_over_its_budget_is_explained_on_the_page() -> None:
    tables, _, explained = (ROOT / "docs" / "bench.md").read_text(encoding="utf-8").partition("\n## Missed, and why\n")
    missed = {line.split(" | ")[0].removeprefix("| ") for line in tables.splitlines() if "**miss**" in line}
    reasons = dict(re.findall(r"^\*\*(.+?)\*\* \(.+?\): (.+)$", explained, re.MULTILINE))
    assert set(reasons) == missed
    assert not [name for name, reason in reasons.items() if "not known" in reason]
