"""The search language: words, "phrases", `-word`, `tag:x`, `path:x`, `[key:value]`, `OR` and parentheses.

As in Obsidian, conditions stand side by side and all must hold; case is ignored. A query that is not well formed
is read as far as it goes: what nobody closed ends at the end. Brackets of Markdown are words, as questions are often
pasted from notes: `[^1]` and `[1]`, `[x]` of a task, `[text](target)`, `[label]: target`.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal

from notewright.lazy_dataclass import dataclass

MAX_CONDITIONS = 64
MAX_DEPTH = 16
MAX_VALUE_CHARS = 1_000  # of a property that is asked for: more is words, and is not looked through for every bracket
_MARKDOWN = r"\[(?:[^ ]|\d+|\^[^\[\]]*)\]"
_TOKEN = re.compile(
    r"""\s+|(?P<open>-?\()|(?P<close>\))"""
    r"""|(?P<minus>-)?(?:(?P<field>tag|path|file|content|line|section|block):[ ]?)?"""
    r"""(?:"(?P<phrase>(?:[^"\\]|\\.)*)(?:"|$)"""
    rf"""|(?!{_MARKDOWN})\[(?P<key>[^\[\]:"]+|"[^"]*")(?::(?P<value>"[^"]*"|[^\]]{{0,{MAX_VALUE_CHARS}}}))?\](?![(:])"""
    r"""|(?P<word>[^\s()"]+))"""
    r"""|(?P<stray>.)""",
    re.IGNORECASE | re.DOTALL,
)
Kind = Literal["word", "phrase", "tag", "path", "property"]


@dataclass(frozen=True, slots=True)
class Term:
    """One condition. `text` is in its own spelling; for a property it is the value, None for any."""

    kind: Kind
    text: str | None
    key: str = ""


@dataclass(frozen=True, slots=True)
class Not:
    of: "Condition"


@dataclass(frozen=True, slots=True)
class All:
    of: tuple["Condition", ...]


@dataclass(frozen=True, slots=True)
class Either:
    of: tuple["Condition", ...]


Condition = Term | Not | All | Either


@dataclass(frozen=True, slots=True)
class SearchTerms:
    """A query as lists for an index: what to rank by, and what must or must not hold."""

    words: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()
    without: tuple[str, ...] = ()  # words and phrases
    tags: tuple[str, ...] = ()
    without_tags: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    without_paths: tuple[str, ...] = ()
    properties: tuple[tuple[str, str | None], ...] = ()
    without_properties: tuple[tuple[str, str | None], ...] = ()


def parse_terms(query: str) -> SearchTerms:
    """The query as lists. Notes are ranked by the words of every alternative and phrase."""
    condition = parse_query(query)
    members = condition.of if isinstance(condition, All) else (condition,)
    held = [each for each in members if isinstance(each, Term)]
    denied = [each.of for each in members if isinstance(each, Not) and isinstance(each.of, Term)]
    ranked = [*held, *(term for each in members if isinstance(each, All | Either) for term in _collect_terms(each))]
    return SearchTerms(
        words=_select_texts(ranked, "word") + _select_texts(ranked, "phrase"),
        phrases=_select_texts(held, "phrase"),
        without=_select_texts(denied, "word") + _select_texts(denied, "phrase"),
        tags=_select_texts(held, "tag"),
        without_tags=_select_texts(denied, "tag"),
        paths=_select_texts(held, "path"),
        without_paths=_select_texts(denied, "path"),
        properties=_select_properties(held),
        without_properties=_select_properties(denied),
    )


def _select_texts(terms: list[Term], kind: Kind) -> tuple[str, ...]:
    return tuple(term.text for term in terms if term.kind == kind and term.text)


def _select_properties(terms: list[Term]) -> tuple[tuple[str, str | None], ...]:
    return tuple((term.key, term.text) for term in terms if term.kind == "property")


def _collect_terms(condition: Condition) -> list[Term]:
    match condition:
        case Term():
            return [condition]
        case All() | Either():
            return [term for each in condition.of for term in _collect_terms(each)]
    return []


# ---- reading ------------------------------------------------------------------------------------------


def parse_query(query: str) -> Condition:
    """The query as a tree: alternatives of conjunctions."""
    tokens = [found for found in _TOKEN.finditer(query) if not found[0].isspace()][: MAX_CONDITIONS * 4]
    condition, _ = _parse_alternatives(tokens, 0, 0)
    return condition


def _parse_alternatives(tokens: list[re.Match[str]], place: int, depth: int) -> tuple[Condition, int]:
    """Up to the closing parenthesis or the end; `OR` binds less than standing side by side."""
    choices: list[list[Condition]] = [[]]
    while place < len(tokens):
        token = tokens[place]
        place += 1
        if token["close"]:
            if depth:
                break
        elif token["open"] and depth < MAX_DEPTH:
            inner, place = _parse_alternatives(tokens, place, depth + 1)
            choices[-1].append(Not(inner) if token[0].startswith("-") else inner)
        elif token[0] == "OR":
            choices.append([])
        elif (term := _parse_term(token)) is not None:
            choices[-1].append(term)
    conditions = [choice[0] if len(choice) == 1 else All(tuple(choice)) for choice in choices if choice]
    if not conditions:
        return All(()), place
    return conditions[0] if len(conditions) == 1 else Either(tuple(conditions)), place


def _parse_term(token: re.Match[str]) -> Condition | None:
    field = (token["field"] or "").lower()
    text = token["word"] if token["word"] is not None else token["phrase"]
    if token["key"] is not None and not token["key"].strip('" '):
        return None  # `[ ]` begins a task
    if token["key"] is not None:
        value = token["value"]
        term = Term("property", value.strip('"') if value else None, token["key"].strip('"'))
    elif not text or not text.strip("-"):
        return None
    elif field == "tag":
        term = Term("tag", text.lstrip("#"))
    elif field in ("path", "file"):
        term = Term("path", text)
    else:
        term = Term("phrase" if token["phrase"] is not None else "word", text.replace('\\"', '"'))
    return Not(term) if token["minus"] else term


def has_property(properties: Mapping[str, Any], key: str, value: str | None) -> bool:
    """Whether a property is there, and holds the value where one is given. Case is ignored."""
    for name, held in properties.items():
        if str(name).casefold() == key.strip().casefold():
            if value is None:
                return True
            members = held if isinstance(held, list) else [held]
            texts = ("" if member is None else str(member).casefold() for member in members)
            return any(value.strip().casefold() in text for text in texts)
    return False
