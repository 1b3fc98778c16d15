"""What `make dist` makes can be installed and run by somebody who has nothing else of ours."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULES = ROOT / "tests" / "clients" / "node_modules"
EXTRAS = (".s3.", ".stores.live", "websocket_protocol")  # what buckets and live notes need is not asked for by all
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "first", "version": "1"}}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, ROOT / "tools" / "make_dist.py", place], check=True, capture_output=True)
    return place


@pytest.fixture(scope="module")
def bare(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel and what it depends on, and nothing else."""
    place = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    words = ["--python", str(place / "bin" / "python"), "install", "--quiet", "--disable-pip-version-check"]
    wheel = next(made.glob("*.whl"))
    command = [sys.executable, "-m", "pip", *words, "-c", str(ROOT / "constraints.txt"), str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode and re.search("No matching distribution|Could not (find|fetch)|connection", done.stderr):
        pytest.skip(f"service: pip cannot fetch what the wheel depends on: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    return place / "bin"


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def in_bundle(made: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(next(made.glob("*.mcpb"))) as bundle:
        return {name: bundle.read(name) for name in bundle.namelist()}


@pytest.mark.slow
def test_wheel_and_bundle_hold_every_module(made: Path) -> None:
    modules = {str(file.relative_to(ROOT / "src")) for file in (ROOT / "src" / "notewright").rglob("*.py")}
    with zipfile.ZipFile(next(made.glob("*.whl"))) as wheel:
        assert modules <= set(wheel.namelist())
    assert {f"src/{name}" for name in modules} <= set(in_bundle(made))


@pytest.mark.slow
def test_the_wheel_holds_the_pages_editor_with_its_licences_and_nothing_it_is_made_of(made: Path) -> None:
    with zipfile.ZipFile(next(made.glob("*.whl"))) as wheel:
        held = set(wheel.namelist())
    static = {f"notewright/web/static/{name}" for name in ("editor.js", "editor.licenses.txt", "page.js", "page.css")}
    assert static <= held
    assert [name for name in {*held, *in_bundle(made)} if "node_modules" in name] == []
    assert [name for name in held if name.startswith("notewright/web/editor/")] == []


@pytest.mark.slow
def test_the_bundle_says_what_a_desktop_client_must_know(made: Path) -> None:
    held = in_bundle(made)
    manifest = json.loads(held["manifest.json"])
    assert {"manifest_version", "name", "version", "description", "author", "server"} <= set(manifest)
    assert manifest["version"] == project()["project"]["version"]
    assert manifest["server"]["entry_point"] in held and "pyproject.toml" in held
    started = manifest["server"]["mcp_config"]
    asked = re.findall(r"\$\{user_config\.(\w+)\}", json.dumps(started))
    assert set(asked) == set(manifest["user_config"])
    assert len(manifest["tools"]) == 14 and all(tool["description"] for tool in manifest["tools"])


@pytest.mark.slow
def test_the_bundle_passes_the_validator_of_its_format(made: Path, tmp_path: Path) -> None:
    node = MODULES / ".bin" / "node"
    found = str(node) if node.exists() else shutil.which("node")
    if found is None or not (MODULES / "@anthropic-ai").is_dir():
        pytest.skip("service: the validator of bundles is not installed (make clients)")
    (tmp_path / "manifest.json").write_bytes(in_bundle(made)["manifest.json"])
    asked = [found, str(MODULES / ".bin" / "mcpb"), "validate", str(tmp_path / "manifest.json")]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "validation passes" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_the_registry_is_told_what_it_asks_for(made: Path) -> None:
    entry = json.loads((made / "server.json").read_text(encoding="utf-8"))
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", entry["name"])
    assert 1 <= len(entry["description"]) <= 100 and len(entry["title"]) <= 100
    assert f"mcp-name: {entry['name']}" in (ROOT / "README.md").read_text(encoding="utf-8")
    package = entry["packages"][0]
    assert {"registryType", "identifier", "version", "transport"} <= set(package)
    assert package["version"] == entry["version"] == project()["project"]["version"]
    assert package["transport"] == {"type": "stdio"}
    assert all(one.get("value") or one.get("valueHint") for one in package["packageArguments"])


@pytest.mark.slow
def test_the_same_source_makes_the_same_bundle(made: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "tools" / "make_dist.py", tmp_path], check=True, capture_output=True)
    assert next(tmp_path.glob("*.mcpb")).read_bytes() == next(made.glob("*.mcpb")).read_bytes()


@pytest.mark.slow
def test_a_stranger_installs_it_and_has_the_first_answer(
    bare: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a client does it: ask for the configuration, start what it says, shake hands, call a tool."""
    (tmp_path / "Notes").mkdir()
    (tmp_path / "Notes" / "Tea.md").write_text("# Tea\n\nSteep it.\n")
    home = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    printed = subprocess.run(
        [bare / "notewright", "client", "claude-desktop", tmp_path / "Notes"], env=home, capture_output=True, check=True
    )
    entry = json.loads(printed.stdout)["mcpServers"]["notewright"]
    assert entry["command"] == str(bare / "notewright")
    begun = time.monotonic()
    serving = subprocess.Popen(
        [entry["command"], *entry["args"]], env=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert serving.stdin is not None and serving.stdout is not None
    asked = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "read", "arguments": {"path": "Tea"}}},
    ]
    serving.stdin.write("".join(json.dumps(message) + "\n" for message in asked))
    serving.stdin.flush()
    heard = [json.loads(serving.stdout.readline())]
    greeted = time.monotonic()
    heard.append(json.loads(serving.stdout.readline()))
    answered = time.monotonic()
    serving.communicate(timeout=10)
    assert serving.returncode == 0 and "Steep it." in heard[1]["result"]["content"][0]["text"]
    with capsys.disabled():
        print(f"\nfrom a fresh install: greeted {greeted - begun:.2f} s, first tool answer {answered - begun:.2f} s")


@pytest.mark.slow
def test_a_machine_without_a_list_of_timezones_is_enough(bare: Path, tmp_path: Path) -> None:
    (tmp_path / "Tea.md").write_text("# Tea\n")
    asked = ["search", "tea", "--workspace", str(tmp_path), "--state", f"{tmp_path}-state"]
    done = subprocess.run([bare / "notewright", *asked], env={"PYTHONTZPATH": ""}, capture_output=True, text=True)
    assert done.returncode == 0 and "Tea.md" in done.stdout, done.stderr


@pytest.mark.slow
def test_every_surface_and_command_loads_with_only_what_the_wheel_asks_for(bare: Path, tmp_path: Path) -> None:
    """An import that only the development tools bring would be missed by every other test. Extras are left out."""
    names = "[m.name for m in pkgutil.walk_packages(notewright.__path__, 'notewright.') if '__main__' not in m.name]"
    chosen = f"[name for name in {names} if not any(part in name for part in {EXTRAS})]"
    loading = f"[importlib.import_module(name) for name in {chosen}]"
    code = f"import importlib, pkgutil, notewright; {loading}"
    done = subprocess.run([bare / "python", "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
