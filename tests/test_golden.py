"""The words an agent reads, kept as text and replayed word for word over both wires. `--update` renews them."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.over_http import client_of, on_the_web
from tests.server.lines import NOTEWRIGHT, Lines
from tests.transcript import NOTED, Outside, Player, Transcript, Wire, Words

from notewright.app import compose
from notewright.config.load import CommandLine, load
from notewright.config.settings import SURFACES

HERE = Path(__file__).parent
SAMPLES = HERE / "workspaces"
FILES = sorted((HERE / "golden").glob("*/*.txt"))
NAMES = [f"{path.parent.name}/{path.stem}" for path in FILES]
OVER_HTTP = [(path, name) for path, name in zip(FILES, NAMES, strict=True) if not Transcript.read(path).stdio_only]


class Stdio:
    """Raw lines to a process that was started with these words."""

    def __init__(self, words: list[str], surface: str) -> None:
        self.server = Lines([NOTEWRIGHT, "serve", *words, "--surface", surface]).greet()

    def call(self, tool: str, args: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self.server.answer("tools/call", {"name": tool, "arguments": args})
        return answer


@contextlib.contextmanager
def over_stdio(words: list[str], surface: str) -> Iterator[Wire]:
    wire = Stdio(words, surface)
    try:
        yield wire
        _, errors = wire.server.leave()
        assert b"Traceback" not in errors
    finally:
        wire.server.process.kill()


@contextlib.contextmanager
def over_the_web(words: list[str], surface: str) -> Iterator[Wire]:
    _, file, _, state = words
    config = load(CommandLine((), file, {"state": state}))
    with on_the_web(config) as address, client_of(address, surface) as client:
        yield client


def served(transcript: Transcript, place: Path) -> tuple[list[str], Path]:
    """The words for `notewright serve`, and the folder of the first workspace, filled with its sample."""
    lines: list[str] = []
    for name, sample in transcript.workspaces.items():
        root = place / name
        shutil.copytree(SAMPLES / sample, root)
        for path in (root, *root.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
            os.utime(path, (NOTED, NOTED))
        lines += [f"[workspaces.{json.dumps(name)}]", f"location = {json.dumps(str(root))}"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in transcript.settings.items()]
    (place / "config.toml").write_text("\n".join(lines) + "\n")
    return ["--config", str(place / "config.toml"), "--state", str(place / "kept")], place / next(
        iter(transcript.workspaces)
    )


def played(path: Path, place: Path, serve: Any) -> str:
    transcript = Transcript.read(path)
    words, root = served(transcript, place)
    outside = Outside(root)
    for said in transcript.before:
        outside.act(said)
    try:
        with serve(words, path.parent.name) as wire:
            return Player(wire, root, Words(root), outside).play(transcript)
    finally:
        outside.close()


def quick_or_slow(path: Path) -> Any:
    """Somebody who keeps saving is waited for, two seconds each time."""
    return pytest.param(path, marks=pytest.mark.slow) if "$ keep saving" in path.read_text() else path


@pytest.mark.parametrize("path", [quick_or_slow(path) for path in FILES], ids=NAMES)
def test_a_transcript_is_replayed_word_for_word(path: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    found = played(path, tmp_path, over_stdio)
    if request.config.getoption("--update"):
        path.write_text(found)
    assert found.split("\n") == path.read_text().split("\n")


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path, _ in OVER_HTTP], ids=[name for _, name in OVER_HTTP])
def test_the_same_calls_over_http_give_the_same_answers(path: Path, tmp_path: Path) -> None:
    assert played(path, tmp_path, over_the_web).split("\n") == path.read_text().split("\n")


# ---- nothing is left out ------------------------------------------------------------------------------

REFUSALS = {  # what each dialect documents; left out is what no client can bring about on purpose
    "notes": [
        *(f"! {code}: " for code in ["not_found", "ambiguous", "exists", "conflict", "invalid", "too_large"]),
        *("! read_only: ", "! forbidden: ", "! busy: ", "!! -32602 Unknown tool"),
    ],
    "cairn": [
        *("! not_found: Note '", "! validation_error: ", "! alias_conflict: ", "! conflict: ", "! unauthorized: "),
        *("requires 'find'", "requires 'section'", "requires 'content'", "'find' text not found", "(ambiguous)"),
        *("! validation_error: Section '", "At least one search parameter", "Invalid cursor", "Invalid date"),
        "!! -32602 Unknown tool",
    ],
    "lens": [
        *("! Error: Document not found: ", "!! -32602 Unknown tool: ", "!! -32602 Missing required parameter: "),
        *("!! -32602 Invalid offset", "!! -32602 Invalid pattern", "!! -32602 Invalid parameter: "),
    ],
    "obsidian": [
        *("Note 'Nowhere' not found", "already exists", "Invalid frontmatter JSON", "Tags not in allowed list"),
        *("Tag 'Person' is for people", "Tag 'claude' marks", "Invalid search mode", "Invalid tag_logic"),
        *("Invalid direction", "tags must be a JSON list", "Text 'milk' not found", "Exactly one of 'before'"),
        *("Pattern 'Sugar' not found", "Section 'Milk' not found", "Invalid note name", "Vault is read-only"),
        *("is not UTF-8", "!! -32602 Unknown tool"),
    ],
    "second_brain": [
        *(f"! Error {code}: " for code in (400, 403, 404, 409, 413, 429, 503, 507)),
        "!! -32602 Unknown tool",
    ],
    "octarine": [
        *(f'"code":"{code}"' for code in ["WORKSPACE_NOT_FOUND", "INVALID_WORKSPACE_NAME", "NOTE_NOT_FOUND"]),
        *(f'"code":"{code}"' for code in ["INVALID_NOTE_PATH", "WORKSPACE_READ_ONLY", "FILE_TOO_LARGE"]),
        *(f'"code":"{code}"' for code in ["INVALID_CONTENT", "IO_ERROR", "INVALID_QUERY", "RATE_LIMIT_EXCEEDED"]),
        "!! -32602 ",
    ],
}


def transcripts_of(surface: str) -> list[str]:
    return [line for path in FILES if path.parent.name == surface for line in path.read_text().split("\n")]


@pytest.mark.parametrize("surface", SURFACES)
def test_every_tool_with_every_parameter_appears(surface: str) -> None:
    offered = compose.load_surface(surface, load(CommandLine((".",), None, {}))).tools
    calls = [line[2:].split(" ", 1) for line in transcripts_of(surface) if line.startswith("> ")]
    used = {(tool, name) for tool, args in calls for name in json.loads(args)}
    missing = {(tool.name, name) for tool in offered for name in tool.schema["properties"]} - used
    assert {tool.name for tool in offered} - {tool for tool, _ in calls} == set()
    assert missing == set()


@pytest.mark.parametrize("surface", SURFACES)
def test_every_documented_refusal_appears(surface: str) -> None:
    said = [line for line in transcripts_of(surface) if line.startswith("!")]
    assert [words for words in REFUSALS[surface] if not any(words in line for line in said)] == []
