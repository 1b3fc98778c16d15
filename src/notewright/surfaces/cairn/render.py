"""Formats Cairn's answers: the frontmatter it shows, contexts and snippets, pages, and its errors."""

import base64
import binascii
import json
import re
from collections.abc import Sequence
from datetime import UTC
from functools import lru_cache
from typing import Any, ClassVar

from notewright.engine.dialects.cairn import body_of
from notewright.engine.find.links import ResolvedLink
from notewright.engine.find.snippets import fold_text
from notewright.engine.read import Reading
from notewright.errors import Invalid, Problem, codes
from notewright.notes.edits.yaml import yaml_entry
from notewright.notes.model import Note
from notewright.notes.parse.tags import list_property_tags
from notewright.notes.path import without_md
from notewright.notes.times import format_utc, parse_time
from notewright.notes.words import query_words
from notewright.surfaces.base import Answer, Args, FailedCall, Style, describe_not_indexed
from notewright.surfaces.perform import replace_surrogates

CONTEXT_CHARS = 160  # of the line around a link
SNIPPET_CHARS = 120
DEFAULT_PAGE, MAX_PAGE = 20, 1000  # results
MOST_BACKLINKS = 5_000
MAX_NS = 2**63 - 1
MAX_OFFSET = 10**12
_MARKERS = re.compile(r"(?:\s*(?:[-*+]|\d{1,9}[.)]|>|#{1,6})(?=\s)\s+|\s*>)+")
_BLANKS = re.compile(r"\s+")


def to_json(**values: Any) -> str:
    """One line of JSON; what is None is left out."""
    kept = {name: value for name, value in values.items() if value is not None}
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":"))


# ---- a note -------------------------------------------------------------------------------------------


def format_head(reading: Reading, note: Note, backlinks: Sequence[ResolvedLink], *, contexts: bool) -> str:
    """The frontmatter as answers show it: title, type and tags, the other stored keys, `modified` and `backlinks`."""
    stored = dict(note.frontmatter.properties)
    first = {"title": note.title, "type": stored.pop("type", None)}
    tags = list_property_tags(stored) if any(key.lower() == "tags" for key in stored) else None
    modified = stored.pop("modified", None) or format_utc(reading.modified)
    others = {"aliases" if key.lower() == "aliases" else key: value for key, value in stored.items()}
    if "aliases" in others:
        others["aliases"] = list(note.aliases)
    hidden = {"title", "backlinks"} | {key for key in others if key.lower() == "tags"}
    head = {key: value for key, value in {**first, "tags": tags}.items() if value is not None}
    properties = {**head, **{key: value for key, value in others.items() if key not in hidden}, "modified": modified}
    lines = ["---", *(_to_yaml(key, value) for key, value in properties.items())]
    shown = backlinks[:MOST_BACKLINKS]
    if contexts and shown:
        lines.append("backlinks:")
        for link in shown:
            lines.append(f"  - {_to_yaml('path', without_md(link.source))}")
            lines.append(f"    {_to_yaml('context', cut_context(link))}")
    else:
        lines.append(_to_yaml("backlinks", [without_md(link.source) for link in shown]))
    if len(shown) < len(backlinks):
        lines.append(f"# {len(shown)} of {len(backlinks)} backlinks; cairn_search with backlinks_to finds all")
    return "\n".join([*lines, "---"])


def _to_yaml(key: str, value: Any) -> str:
    try:
        return yaml_entry(key, value, "flow")
    except Invalid:  # the name of a file that is not Unicode
        return yaml_entry(key, json.loads(replace_surrogates(json.dumps(value, ensure_ascii=False))), "flow")


# ---- pieces of text -----------------------------------------------------------------------------------


def cut_context(link: ResolvedLink) -> str:
    """The line a link stands in, without the marks at its beginning, cut around the link."""
    line, start, end = link.context.text, link.context.start, link.context.end
    first = min(found.end(), start) if (found := _MARKERS.match(line)) and not link.context.before else 0
    return _cut_window(line[first:], start - first, end - start, max(CONTEXT_CHARS, end - start))


def cut_snippet(text: str, query: str) -> str:
    """The text around the first word of a note that the query found, or the beginning of its body."""
    body = _BLANKS.sub(" ", body_of(text)).strip()
    found = _compile_pattern(query).search(fold_text(body)) if query_words(query) else None
    return _cut_window(body, found.start() if found else 0, found.end() - found.start() if found else 0, SNIPPET_CHARS)


def _cut_window(text: str, place: int, length: int, most: int) -> str:
    if len(text) <= most:
        return text
    start = max(0, min(place - max(most - length, 0) // 2, len(text) - most))
    end = start + most
    return ("..." if start else "") + text[start:end].strip() + ("..." if end < len(text) else "")


@lru_cache(maxsize=64)
def _compile_pattern(query: str) -> re.Pattern[str]:
    """A pattern for the beginnings of words, and for pairs of characters of scripts without blanks anywhere."""
    words = [re.escape(fold_text(word)) for word in query_words(query)]
    spaced = [word for word in words if word.isascii() or not _UNSPACED.match(word)]
    return re.compile("|".join([f"(?<![^\\W_]){word}" for word in spaced] + [w for w in words if w not in spaced]))


_UNSPACED = re.compile("[\u2e80-\u9fff\uac00-\ud7ff\uf900-\ufaff]")


# ---- pages and times ----------------------------------------------------------------------------------


def parse_page(args: Args) -> tuple[int, int]:
    """(offset, limit) of the page asked for."""
    limit = args.get("limit", DEFAULT_PAGE)
    if limit < 1:
        raise Invalid("limit must be at least 1", what="limit")
    if not args.get("cursor"):
        return 0, min(limit, MAX_PAGE)
    try:
        place = json.loads(base64.b64decode(args["cursor"], validate=True))
    except (binascii.Error, ValueError, RecursionError):
        place = None
    match place:
        case {"offset": int(offset)} if offset >= 0 and not isinstance(offset, bool):
            return min(offset, MAX_OFFSET), min(limit, MAX_PAGE)
    raise Invalid("Invalid cursor", what="cursor")


def next_cursor(offset: int, shown: int, total: int) -> str | None:
    """The cursor after this page, None where it is the last."""
    if not shown or offset + shown >= total:
        return None
    return base64.b64encode(json.dumps({"offset": offset + shown}, separators=(",", ":")).encode()).decode()


def parse_since_ns(raw: str) -> int:
    """The last nanosecond that is not after this time; for a time in whole seconds the last one of that second."""
    seconds = parse_time(raw, UTC)
    if seconds is None:
        raise Invalid(f"Invalid date '{raw}'", what="date")
    micros = round(seconds * 1_000_000)
    last = micros * 1000 + (0 if micros % 1_000_000 else 999_999_999)
    return max(-MAX_NS, min(last, MAX_NS))


# ---- refusals -----------------------------------------------------------------------------------------


class CairnStyle(Style):
    """Errors as `type: message`, always as an answer, never as a protocol error."""

    table: ClassVar[dict[str, str]] = {
        **dict.fromkeys(codes(), "internal_error"),
        **dict.fromkeys(("ambiguous", "invalid", "not_text", "too_large", "quota"), "validation_error"),
        **dict.fromkeys(("exists", "conflict", "busy"), "conflict"),
        **dict.fromkeys(("read_only", "forbidden"), "unauthorized"),
        "not_found": "not_found",
    }

    def render_problem(self, failed: FailedCall) -> Answer:
        kind, message = describe_problem(failed.problem, failed.args)
        return Answer.error(f"{kind or self.table[failed.problem.code]}: {message}")


def describe_problem(problem: Problem, args: Args) -> tuple[str | None, str]:
    """The dialect's own error type (None: that of the code) and its own message, else ours."""
    details = problem.details
    path = without_md(str(details.get("path", "")))
    match problem.code, details.get("what"):
        case "exists", _ if "alias" in details:
            return "alias_conflict", f"alias '{details['alias']}' is already claimed by '{path}'"
        case "exists", _:
            return None, f"'{path}' is there already, in this or another spelling"
        case "not_found", "note" | "file":
            return None, f"Note '{path}' does not exist"
        case "not_found", "section":
            return "validation_error", f"Section '{args.get('section')}' not found in note '{path}'"
        case "not_found", "text":
            return "validation_error", f"'find' text not found in note '{path}'"
        case "ambiguous", "text":
            return None, f"'find' text appears {details['count']} times in note '{path}' (ambiguous)"
        case "conflict", _ if path:
            return None, f"Note '{path}' changed, read it again"
        case "not_text", _:
            return None, f"Note '{path}' is not UTF-8"
        case "too_large", _:
            return None, f"Note '{path}' would be larger than {details['limit']:,} bytes"
        case "forbidden", _:
            return None, f"Writing to '{path}' is not allowed. {problem.hint}"
        case "indexing", _:
            done = f"{details.get('done')} of {details.get('total')}"
            return None, f"still indexing ({done}){describe_not_indexed(problem)}, try again"
    return None, str(problem)
