"""Real vaults: renames byte for byte, and the graph, as independent tools saw them."""

import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest
from tests.conftest import REAL_VAULTS

from notewright.notes.links.rename import affected_keys, plan_rename
from notewright.notes.links.resolve import InMemoryNames, link_key, resolve
from notewright.notes.model import Note
from notewright.notes.parse.parser import parse
from notewright.notes.path import NotePath


class Vault:
    """A vault read once: its names and its notes."""

    def __init__(self, root: Path):
        files = (path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
        self.paths = [NotePath(path) for path in files if not NotePath(path).is_hidden]
        self.texts = {p: (root / p).read_bytes().decode(errors="replace") for p in self.paths if p.is_note}
        self.notes: dict[NotePath, Note] = {path: parse(path, text) for path, text in self.texts.items()}
        self.names: InMemoryNames = InMemoryNames(self.paths)


@pytest.fixture(scope="module", params=REAL_VAULTS)
def vault_and_truth(request: pytest.FixtureRequest, shared: Path) -> tuple[Vault, Path]:
    return Vault(shared / "vaults" / request.param / "vault"), shared / "truth" / request.param


@pytest.mark.slow
def test_a_rename_changes_exactly_the_links_to_the_note(vault_and_truth: tuple[Vault, Path]) -> None:
    vault, truth = vault_and_truth
    if not (truth / "renames.jsonl").exists():
        pytest.skip(f"no renames are known for {truth.name}")
    for line in (truth / "renames.jsonl").read_text().splitlines():
        case = json.loads(line)
        moves = {NotePath(case["from"]): NotePath(case["to"])}
        keys = affected_keys(moves)
        near = [n for n in vault.notes.values() if n.path in moves or any(link_key(x.target) in keys for x in n.links)]
        changed = {each.after: each.text for each in plan_rename(moves, vault.names, near)}
        said = {path: entry["sha256"] for path, entry in case["changed"].items()}
        hashed = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in changed.items()}
        assert hashed == said, case["from"]


def test_links_lead_where_the_graph_says(vault_and_truth: tuple[Vault, Path]) -> None:
    vault, truth = vault_and_truth
    graph = json.loads((truth / "graph.json").read_text())
    for part in ("resolved", "unresolved"):
        for source, wanted in graph[part].items():
            note = vault.notes[NotePath(source)]
            found: Counter[str] = Counter()
            for link in note.links:
                leads = resolve(link.target, note.path, vault.names)
                found[leads if part == "resolved" and leads else link.target if leads is None else ""] += 1
            missing = {name: (count, found[name]) for name, count in wanted.items() if found[name] < count}
            assert not missing, (source, part, missing)


def test_backlinks_are_never_fewer_than_known(vault_and_truth: tuple[Vault, Path]) -> None:
    vault, truth = vault_and_truth
    found: dict[str, Counter[str]] = {}
    for note in vault.notes.values():
        for link in note.links:
            leads = resolve(link.target, note.path, vault.names)
            if leads:
                found.setdefault(leads, Counter())[note.path] += 1
    known = json.loads((truth / "backlinks.json").read_text())
    for path, sources in known["backlinks"].items():
        for source, count in sources.items():
            assert found.get(path, Counter())[source] >= count, (path, source)
