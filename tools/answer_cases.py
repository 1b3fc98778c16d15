"""Answers questions about the meaning of small vaults, each with the product's own functions.

One case a line on standard input, `{"id", "op", "args", "files"}`; one line for each on standard output,
`{"id", "answer"}` or `{"id", "skip"}`. Nothing is decided here.
"""

import base64
import json
import sys
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import note_structure

from notewright.errors import Exists, Invalid, NotFound, Problem
from notewright.notes import mentions
from notewright.notes.daily import DailySettings, daily_path
from notewright.notes.edits.edit import line_number
from notewright.notes.links import relabel
from notewright.notes.links.rename import RewrittenFile, plan_moves, plan_rename
from notewright.notes.links.resolve import InMemoryNames, resolve
from notewright.notes.links.syntax import link_display_text
from notewright.notes.model import Link, Note, tag_key
from notewright.notes.parse import headings
from notewright.notes.parse.headings import find_section
from notewright.notes.parse.parser import parse
from notewright.notes.path import NotePath, name_problem, path_problem
from notewright.notes.query import parse_query

Answer = dict[str, Any]


class Vault:
    """The files of one case."""

    def __init__(self, case: dict[str, Any]):
        self.args: dict[str, Any] = case.get("args") or {}
        self.files: dict[str, Any] = case.get("files") or {}
        self.paths = [NotePath(path) for path in self.files]
        self.names = InMemoryNames(self.paths)

    def text(self, path: str) -> str:
        held = self.files[path]
        if isinstance(held, str):
            return held
        return base64.b64decode(held.get("base64", "")).decode(errors="replace")

    def note(self, path: str) -> Note:
        return parse(NotePath(path), self.text(path))

    def asked(self) -> Note:
        return self.note(self.args["path"])

    def notes(self) -> list[Note]:
        return [self.note(path) for path in self.paths if path.is_note]

    def leads(self, link: Link, note: Note) -> str | None:
        return resolve(link.target, note.path, self.names)


# ---- links --------------------------------------------------------------------------------------------


def extract_links(vault: Vault) -> Answer:
    note = vault.asked()
    links = [_link(note, link) for link in note.links]
    return {
        "links": [link for link in links if link["kind"] != "frontmatter"],
        "frontmatter_links": [link for link in links if link["kind"] == "frontmatter"],
    }


def _link(note: Note, link: Link) -> Answer:
    start = len(note.text[: link.start].encode())
    raw = note.text[link.start : link.end]
    return {
        "kind": link.kind,
        "key": link.key,
        "target": link.target,
        "subpath": link.subpath,
        "display": link.display,
        "raw": raw,
        "line": link.line,
        "bytes": [start, start + len(raw.encode())],
    }


def display_text(vault: Vault) -> Answer:
    note = vault.asked()
    shown = [(note.text[link.start : link.end], link_display_text(link)) for link in note.links if link.key is None]
    return {"display_texts": [{"raw": raw, "display_text": text} for raw, text in shown]}


def resolve_links(vault: Vault) -> Answer:
    note = vault.asked()
    resolved = {link.target + link.subpath: vault.leads(link, note) for link in note.links}
    return {"resolved": resolved, "count": len(note.links)}


def link_graph(vault: Vault) -> Answer:
    resolved: dict[str, Counter[str]] = {}
    unresolved: dict[str, Counter[str]] = {}
    for note in vault.notes():
        resolved[note.path], unresolved[note.path] = Counter(), Counter()
        for link in note.links:
            path = vault.leads(link, note)
            if path is None:
                unresolved[note.path][link.target] += 1
            else:
                resolved[note.path][path] += 1
    return {"resolved": resolved, "unresolved": unresolved}


def backlinks(vault: Vault) -> Answer:
    found: Counter[str] = Counter()
    for note in vault.notes():
        found[note.path] += sum(vault.leads(link, note) == vault.args["path"] for link in note.links)
    found.pop(vault.args["path"], None)
    return {"backlinks": {path: count for path, count in found.items() if count}}


def unlinked_mentions(vault: Vault) -> Answer:
    asked = vault.asked()
    called = [asked.path.stem, *asked.aliases]
    others = [note for note in vault.notes() if note.path != asked.path]
    return {"notes": [note.path for note in others if mentions.find_unlinked_mentions(note, called)]}


def note_aliases(vault: Vault) -> Answer:
    return {"aliases": {note.path: list(note.aliases) for note in vault.notes() if note.aliases}}


# ---- structure ----------------------------------------------------------------------------------------


def extract_headings(vault: Vault) -> Answer:
    return {"headings": [{"level": h.level, "text": h.text, "line": h.line} for h in vault.asked().headings]}


def section_range(vault: Vault) -> Answer:
    note, subpath = vault.asked(), vault.args.get("subpath") or vault.args.get("heading") or ""
    section = find_section(note, subpath)
    if section is None:
        return {"error": "not_found"}
    return {"start_line": section.heading.line, "end_line_exclusive": section.end_line}


def extract_blocks(vault: Vault) -> Answer:
    blocks = vault.asked().blocks
    return {"blocks": [{"id": b.id, "start_line": b.start_line, "end_line": b.end_line} for b in blocks]}


def block_structure(vault: Vault) -> Answer:
    blocks = note_structure.block_structure(vault.asked())
    return {"sections": [{"type": b.kind, "start_line": b.start_line, "end_line": b.end_line} for b in blocks]}


def extract_list_items(vault: Vault) -> Answer:
    items = note_structure.list_items(vault.asked())
    return {
        "items": [
            {"line": item.line, "end_line": item.end_line, "task": item.task, "parent_line": item.parent_line}
            for item in items
        ]
    }


def heading_slugs(vault: Vault) -> Answer:
    texts = vault.args["headings"]
    if vault.args.get("style") == "obsidian":
        return {"slugs": [note_structure.obsidian_slug(text) for text in texts]}
    return {"slugs": headings.heading_slugs(texts)}


# ---- tags and properties ------------------------------------------------------------------------------


def extract_tags(vault: Vault) -> Answer:
    tags = vault.asked().tags
    return {
        "inline": [{"tag": tag.name, "line": tag.line} for tag in tags if tag.inline],
        "frontmatter": [tag.name for tag in tags if not tag.inline],
        "all": [tag.name for tag in tags],
    }


def notes_with_tag(vault: Vault) -> Answer:
    nested, tag = vault.args.get("include_nested", True), vault.args["tag"]
    fits = note_structure.tag_under if nested else lambda name, wanted: tag_key(name) == tag_key(wanted)
    return {"paths": [note.path for note in vault.notes() if any(fits(own.name, tag) for own in note.tags)]}


def tag_counts(vault: Vault) -> Answer:
    return {"counts_ci": Counter(tag_key(tag.name) for note in vault.notes() for tag in note.tags)}


def parse_frontmatter(vault: Vault) -> Answer:
    note = vault.asked()
    front = note.frontmatter
    answer: Answer = {
        "present": front.present,
        "properties": dict(front.properties) or None,
        "invalid": front.problem is not None,
        "body": note.body,
    }
    if front.present:
        answer["start_line"] = line_number(note.text, front.start)
        answer["end_line"] = line_number(note.text, front.inner_end)
    return answer


# ---- renaming -----------------------------------------------------------------------------------------


def _renamed(vault: Vault, change: Callable[[], dict[str, Any]]) -> Answer:
    codes = {NotFound: "not_found", Exists: "already_exists", Invalid: "invalid_argument"}
    try:
        return {"files": change()}
    except Problem as problem:
        return {"error": codes.get(type(problem), problem.code), "files": vault.files}


def _moved(vault: Vault, source: str) -> dict[str, Any]:
    moves = plan_moves(source, vault.args["to"], vault.paths)
    problem = name_problem(NotePath.parse(vault.args["to"].rstrip("/")))
    if problem:
        raise Invalid(problem)
    others = {path: vault.text(path) for path in vault.paths if path.lower().endswith((".canvas", ".base"))}
    planned = plan_rename(moves, vault.names, vault.notes(), others)
    files = {moves.get(path, path): vault.files[path] for path in vault.paths}
    return files | {each.after: each.text for each in planned}


def rename_note(vault: Vault) -> Answer:
    return _renamed(vault, lambda: _moved(vault, vault.args["from"]))


def rename_folder(vault: Vault) -> Answer:
    return _renamed(vault, lambda: _moved(vault, vault.args["from"].rstrip("/") + "/"))


def _inside(vault: Vault, plan: Callable[[], tuple[RewrittenFile, ...]]) -> Answer:
    return _renamed(vault, lambda: vault.files | {each.after: each.text for each in plan()})


def rename_heading(vault: Vault) -> Answer:
    args = vault.args
    return _inside(
        vault, lambda: relabel.rename_heading(vault.asked(), args["from"], args["to"], vault.names, vault.notes())
    )


def rename_block(vault: Vault) -> Answer:
    args = vault.args
    return _inside(
        vault, lambda: note_structure.rename_block(vault.asked(), args["from"], args["to"], vault.names, vault.notes())
    )


def rename_tag(vault: Vault) -> Answer:
    args = vault.args
    nested = args.get("include_nested", True)
    return _inside(vault, lambda: relabel.rename_tag(vault.notes(), args["from"], args["to"], nested=nested))


# ---- the rest -----------------------------------------------------------------------------------------


def daily_note_path(vault: Vault) -> Answer:
    settings = DailySettings(vault.args.get("folder") or "", vault.args["format"])
    return {"path": daily_path(settings, datetime.fromisoformat(vault.args["datetime_utc"]))}


def search_query(vault: Vault) -> Answer:
    wanted = parse_query(vault.args["query"])
    return {"paths": [note.path for note in vault.notes() if note_structure.satisfies(note, wanted)]}


def path_check(vault: Vault) -> Answer:
    path = vault.args["path"]
    return {"accepted": path_problem(path) is None and not NotePath(path).is_hidden}


def expand_embeds(vault: Vault) -> Answer:
    shown = note_structure.expand_embeds(vault.asked(), vault.names, lambda path: vault.note(path))
    return {"terminates": isinstance(shown, str)}


OPS: dict[str, Callable[[Vault], Answer]] = {
    op.__name__: op
    for op in (
        extract_links,
        display_text,
        resolve_links,
        link_graph,
        backlinks,
        unlinked_mentions,
        note_aliases,
        extract_headings,
        section_range,
        extract_blocks,
        block_structure,
        extract_list_items,
        extract_tags,
        notes_with_tag,
        tag_counts,
        parse_frontmatter,
        rename_note,
        rename_folder,
        rename_heading,
        rename_block,
        rename_tag,
        heading_slugs,
        daily_note_path,
        search_query,
        path_check,
        expand_embeds,
    )
}


def answered(line: str) -> Answer:
    """The reply to one line; a case that goes wrong is skipped with the reason."""
    case: Any = None
    try:
        case = json.loads(line)
        op = OPS.get(case["op"])
        if op is None:
            return {"id": case["id"], "skip": f"{case['op']} is not offered"}
        return {"id": case["id"], "answer": op(Vault(case))}
    except Exception as error:
        ident = case.get("id") if isinstance(case, dict) else None
        print(f"{ident}: {type(error).__name__}: {error}", file=sys.stderr)
        return {"id": ident if isinstance(ident, str) else "", "skip": f"{type(error).__name__}: {error}"}


def main() -> int:
    sys.stdin.reconfigure(encoding="utf-8", errors="surrogatepass")  # type: ignore[union-attr]
    for line in sys.stdin:
        if line.strip():
            print(json.dumps(answered(line)), flush=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
