"""The TypeScript SDK's clients, of its first and second generation, on both wires."""

import json
from typing import Any

import pytest
from tests.clients.conftest import Npm
from tests.clients.questions import ANSWER, QUESTIONS, TOOLS

from notewright.config.settings import SURFACES

pytestmark = pytest.mark.slow

GENERATIONS = [(1, ""), (2, "2026-07-28")]


def talk(npm: Npm, surface: str, generation: tuple[int, str], server: dict[str, Any]) -> None:
    tool, args = QUESTIONS[surface]
    sdk, era = generation
    done = npm.run("talk.mjs", json.dumps({"sdk": sdk, "era": era, "tool": tool, "args": args, **server}))
    assert done.returncode == 0, done.stderr
    heard = json.loads(done.stdout)
    assert len(set(heard["tools"])) == TOOLS[surface]
    assert ANSWER in heard["content"][-1]["text"]
    assert heard["refusal"] in ("answer", -32602, -32601)


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("surface", SURFACES)
def test_the_typescript_client_is_served_over_http(
    npm: Npm, base: str, surface: str, generation: tuple[int, str]
) -> None:
    talk(npm, surface, generation, {"url": f"{base}/mcp/{surface}"})


@pytest.mark.parametrize("generation", GENERATIONS)
def test_the_typescript_client_is_served_on_stdio(npm: Npm, stdio: list[str], generation: tuple[int, str]) -> None:
    talk(npm, "notes", generation, {"command": stdio})
