"""The page's editor as it is committed is the one that its sources make."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

WEB = Path(__file__).resolve().parent.parent / "src" / "notewright" / "web"
MADE = ("editor.js", "editor.licenses.txt")


def test_the_licences_of_what_is_bundled_are_beside_it() -> None:
    licences = (WEB / "static" / "editor.licenses.txt").read_text(encoding="utf-8")
    asked = json.loads((WEB / "editor" / "package.json").read_text(encoding="utf-8"))["dependencies"]
    assert [name for name, version in asked.items() if f"{name} {version} (MIT)\n\n" not in licences] == []
    assert "editor.licenses.txt" in (WEB / "static" / "editor.js").read_text(encoding="utf-8").partition("\n")[0]


@pytest.mark.slow
def test_the_committed_bundle_is_what_its_sources_make(tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("service: npm is missing")
    place = tmp_path / "editor"
    shutil.copytree(WEB / "editor", place, ignore=shutil.ignore_patterns("node_modules"))
    asked = ["npm", "ci", "--loglevel", "error"]
    done = subprocess.run(asked, cwd=place, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode and re.search("ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|network", done.stderr):
        pytest.skip(f"service: npm cannot fetch what the editor is made of: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    checked = subprocess.run(
        ["npm", "run", "--silent", "check"], cwd=place, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout
    subprocess.run(["node", "build.mjs", tmp_path], cwd=place, check=True, capture_output=True)
    for name in MADE:
        assert (tmp_path / name).read_bytes() == (WEB / "static" / name).read_bytes(), f"{name}: run make bundle"
