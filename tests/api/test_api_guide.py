"""The guide to the API does not lie: its examples are run, in order, and every call is in it."""

import re
import shutil
import subprocess
from pathlib import Path

import httpx2
import pytest
from tests.api.api_site import Served, config_of, served
from tests.waiting import eventually

from notewright.api.routes import OPERATIONS

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "api.md"


def examples() -> list[str]:
    return re.findall(r"^    (curl .*)$", GUIDE.read_text(encoding="utf-8"), re.M)


def run(command: str, site: Served, values: dict[str, str]) -> str:
    environment = {"PATH": "/usr/bin:/bin", "NOTEWRIGHT": site.address, **values}
    shell = ["/bin/sh", "-c", command.replace("curl ", "curl -sS --fail-with-body ", 1)]
    done = subprocess.run(shell, cwd=site.folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_every_example_works_in_the_order_it_stands_there(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("service: curl is not installed")
    (tmp_path / "root").mkdir()
    flags = {"workspaces_root": str(tmp_path / "root"), "backup__to": str(tmp_path / "backups")}
    with served(tmp_path, config_of(tmp_path, "Work", **flags)) as site:
        token = site.token("owner")
        with site.client(token) as client:
            values = {"TOKEN": token, "CHANGE": some_change(client)}
            assert eventually(lambda: client.get("/api/v1/workspaces/work/rebuild-index").json()["status"] == "idle")
            assert eventually(lambda: client.post("/api/v1/backup").status_code == 200)  # after the daily one
        for command in examples():
            if "/undo" in command and '"client"' in command:
                with site.client(token) as client:
                    some_change(client)
            run(command, site, values)
        assert (tmp_path / "work.zip").read_bytes().startswith(b"PK")


def some_change(client: httpx2.Client) -> str:
    """Something that was imported, as the examples do."""
    whole = client.get("/api/v1/workspaces/work/export.zip").content
    into = f"/api/v1/workspaces/work/import?into=Copy {len(whole)}"
    made = client.post(into, content=whole, headers={"content-type": "application/zip"})
    return str(made.json()["changes"][0])


def test_every_call_is_in_the_guide() -> None:
    said = GUIDE.read_text(encoding="utf-8")
    known = {"{id}": "(work|team)", "{path}": r"[\w/]+\.md", "{change}": r"\$CHANGE", "{name}": "phone"}
    for one in OPERATIONS:
        pattern = re.escape(one.plain_path)
        for part, example in known.items():
            pattern = pattern.replace(re.escape(part), example)
        assert re.search(rf"{pattern}(?![\w/])", said), one.plain_path


def test_there_are_examples() -> None:
    assert len(examples()) > 20
