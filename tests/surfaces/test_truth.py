"""Real vaults through the surfaces: the links, backlinks, lines and paths that independent tools found there."""

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import REAL_VAULTS

from notewright.app.open_workspaces import OpenWorkspaces
from notewright.config.load import Config, WorkspaceConfig
from notewright.config.octarine import Octarine
from notewright.ledger.base import Actor
from notewright.surfaces.base import Answer, Call, Surface
from notewright.surfaces.cairn import tools as cairn
from notewright.surfaces.lens import tools as lens
from notewright.surfaces.notes import tools as notes
from notewright.surfaces.obsidian import tools as obsidian
from notewright.surfaces.octarine import tools as octarine
from notewright.surfaces.perform import perform
from notewright.surfaces.second_brain import tools as second_brain

VAULTS = REAL_VAULTS[1:]  # most links of the first lead nowhere
pytestmark = pytest.mark.slow


class Served:
    """A shared vault behind all surfaces, and what is known of it."""

    def __init__(self, call: Call, truth: Path) -> None:
        self.call = call
        self.truth = truth

    def ask(self, surface: Surface, tool: str, **args: Any) -> Answer:
        answer = perform(surface, self.call, tool, args)
        assert not answer.is_error, answer.text
        return answer

    def told(self, name: str) -> Any:
        return json.loads((self.truth / name).read_text())


@pytest.fixture(scope="module", params=VAULTS)
def served(request: pytest.FixtureRequest, shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    kept = tmp_path_factory.mktemp("kept")
    asked = WorkspaceConfig("Vault", "vault", str(shared / "vaults" / request.param / "vault"), read_only=True)
    opened = OpenWorkspaces(Config((asked,), str(kept / "state"), str(kept / "cache")))
    opened.find_workspace("Vault").follower.wait(60)
    yield Served(Call(opened, Actor("u", "c")), shared / "truth" / request.param)
    opened.close()


def bare_links(served: Served) -> Iterator[tuple[str, dict[str, int]]]:
    """Notes with the notes their bare-name wikilinks lead to."""
    yield from list(served.told("graph.json")["resolved"].items())[:60]


def test_links_of_our_own_lead_where_the_graph_says(served: Served) -> None:
    for source, targets in bare_links(served):
        told = served.ask(notes.SURFACE, "links", path=source, direction="out").text
        for target in targets:
            assert f"→ {target}" in told, (source, target)


def test_lens_lists_every_forward_link_of_the_graph(served: Served) -> None:
    for source, targets in bare_links(served):
        told = served.ask(lens.SURFACE, "get_links", file_path=f"Vault/{source}").text
        forward = told.partition("Forward links")[2]
        for target in targets:
            if target.endswith(".md"):
                assert f"- Vault/{target}" in forward.splitlines(), (source, target)


def backlinks(served: Served) -> Iterator[tuple[str, set[str]]]:
    for target, sources in list(served.told("backlinks.json")["backlinks"].items())[:25]:
        yield target, set(sources)


def test_no_backlink_is_missing_from_our_own_lens_and_cairn(served: Served) -> None:
    for target, sources in backlinks(served):
        if not target.endswith(".md"):
            continue
        ours = served.ask(notes.SURFACE, "links", path=target, direction="in").text
        theirs = served.ask(lens.SURFACE, "get_links", file_path=f"Vault/{target}").text.partition("Forward")[0]
        found = json.loads(served.ask(cairn.SURFACE, "cairn_links", path=target, direction="in").text)["incoming"]
        paths = {one["path"] + ".md" for one in found}
        for source in sources - {target}:
            assert f"← {source}" in ours or "left out" in ours, (target, source)
            assert f"- Vault/{source}" in theirs, (target, source)
            assert source in paths, (target, source)


def test_second_brain_greps_what_ripgrep_found(served: Served) -> None:
    surface = second_brain.surface(None)
    for case in served.told("grep.json")["grep"]:
        pattern = re.escape(case["pattern"]) if case["fixed"] else case["pattern"]
        pattern = f"\\b(?:{pattern})\\b" if case["word"] else pattern
        pattern = pattern if case["ignore_case"] else f"(?-i){pattern}"
        if case["lines"] > 1000 or case["word"]:
            continue
        answer = served.ask(surface, "grep", pattern=pattern, path="**/*.md", max_matches=1000)
        lines = [(one["path"], one["line"]) for one in json.loads(answer.text)]
        digest = hashlib.sha256("".join(f"{path}:{line}\n" for path, line in lines).encode()).hexdigest()
        assert (len(lines), digest) == (case["lines"], case["sha256_of_path_line"]), case["pattern"]


def test_our_own_grep_counts_what_ripgrep_counts(served: Served) -> None:
    for case in served.told("grep.json")["grep"]:
        if case["fixed"] or case["word"] or not case["lines"]:
            continue
        told = served.ask(notes.SURFACE, "grep", pattern=case["pattern"], ignore_case=case["ignore_case"], limit=5)
        assert re.match(rf"{case['lines']:,} lines? in {case['files']:,} notes?", told.text), (
            case["pattern"],
            told.text,
        )


def test_globs_of_second_brain_and_lens_find_what_git_finds(served: Served) -> None:
    surface = second_brain.surface(None)
    for case in served.told("glob.json")["glob"]:
        if case["ignore_case"] or "?" in case["pattern"] or case["count"] > 1000:
            continue  # git's `?` is one byte, ours one character
        found = json.loads(served.ask(surface, "glob", pattern=case["pattern"], max_results=1000).text)
        paths = sorted(one["path"] for one in found)
        digest = hashlib.sha256("".join(f"{path}\n" for path in paths).encode()).hexdigest()
        assert (len(paths), digest) == (case["count"], case["sha256_of_paths"]), case["pattern"]
        documents = [f"Vault/{path}" for path in paths if path.endswith(".md")]
        listed = served.ask(lens.SURFACE, "glob", pattern=case["pattern"], path="Vault").text.split("\n")
        assert set(documents) <= set(listed), case["pattern"]  # a pattern may also fit the path with its folder


def test_obsidian_and_octarine_agree_on_what_holds_a_text(served: Served) -> None:
    surface = octarine.surface(None, Octarine())
    for text in ("the", "note", "links", "中"):
        answer = served.ask(obsidian.SURFACE, "search_notes", query=text, mode="content")
        found = json.loads(answer.text.partition("\n\n---\n")[0])
        envelope = json.loads(served.ask(surface, "octarine_search_notes", query=text, workspace="Vault", limit=1).text)
        assert envelope["data"]["totalResults"] >= len(found)  # it looks into the frontmatter too
