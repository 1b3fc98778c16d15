"""The MCP inspector's command line, on both wires and in both eras."""

import json
import subprocess
from pathlib import Path

import pytest
from tests.clients.conftest import Npm
from tests.clients.questions import ANSWER, QUESTIONS, TOOLS

from notewright.config.settings import SURFACES

pytestmark = pytest.mark.slow

INSPECTOR = ".bin/mcp-inspector"
NOT_DONE = 5  # its exit code for a tool that refused or is not there


def inspect(npm: Npm, target: list[str], *words: str) -> tuple[int, str]:
    done = npm.run(INSPECTOR, "--cli", *target, *words, "--format", "json", "--quiet")
    return done.returncode, done.stdout


def over_http(base: str, surface: str) -> list[str]:
    """It takes an address for HTTP by itself only where that ends in /mcp."""
    return [f"{base}/mcp/{surface}", "--transport", "http"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("surface", SURFACES)
def test_the_inspector_finds_no_fault_in_the_tools_and_calls_one(npm: Npm, base: str, surface: str, era: str) -> None:
    target = [*over_http(base, surface), "--protocol-era", era]
    code, listed = inspect(npm, target, "--method", "tools/list", "--strict")
    assert code == 0 and len(json.loads(listed)["result"]["tools"]) == TOOLS[surface]
    tool, args = QUESTIONS[surface]
    words = ["--method", "tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(args)]
    code, answered = inspect(npm, target, *words)
    assert code == 0 and ANSWER in answered


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_starts_what_our_client_command_prints(
    npm: Npm, stdio: list[str], tmp_path: Path, era: str
) -> None:
    printed = subprocess.run([stdio[0], "client", "claude-desktop", *stdio[2:]], capture_output=True, check=True)
    (tmp_path / "mcp.json").write_bytes(printed.stdout)
    target = ["--config", str(tmp_path / "mcp.json"), "--server", "notewright", "--protocol-era", era]
    words = ["--method", "tools/call", "--tool-name", "read", "--tool-arg", "path=Start here"]
    code, answered = inspect(npm, target, *words)
    assert code == 0 and ANSWER in answered


def test_the_inspector_sees_a_refusal_as_one(npm: Npm, base: str) -> None:
    words = ["--method", "tools/call", "--tool-name", "read", "--tool-arg", "path=no such note"]
    assert inspect(npm, over_http(base, "notes"), *words)[0] == NOT_DONE
