"""Renders a note as HTML that runs nothing.

Which links a note has, and where they lead, is the engine's answer; the Markdown library is told of them by a rule of
ours. HTML in notes is shown, not obeyed; what comes out is cleaned once more.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import nh3
from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from notewright.notes.links.resolve import Resolution
from notewright.notes.model import Link, Note
from notewright.notes.parse.headings import heading_slugs
from notewright.notes.path import NotePath
from notewright.web.addresses import url_of

RENDER_SECONDS = 3.0  # of processor time for one note; one that takes longer is shown as plain text
PICTURES = ("png", "jpg", "jpeg", "gif", "webp", "avif")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//")
_EXTERNAL = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
_COMMENT = re.compile(r"%%.*?%%", re.DOTALL)
_TAGS = {
    "a", "blockquote", "br", "code", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "img", "li", "ol", "p", "pre",
    "s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
_ATTRIBUTES = {"a": {"href", "title"}, "img": {"src", "alt", "title"}, "ol": {"start"}, "span": {"title"}}
_ATTRIBUTES |= {f"h{level}": {"id"} for level in range(1, 7)}
_CLASSES = {"a": {"embed", "external", "doubtful"}, "span": {"broken", "aside"}, "th": {"center", "right"}}
_CLASSES |= {"td": _CLASSES["th"]}

_RESOLVED = {"ours": True}  # on tokens made here, which need no more looking at

Attributes = dict[str, str | int | float]
Resolve = Callable[[str], Resolution]
Address = Callable[[NotePath], str]


class TooSlow(Exception):
    """The library took too long over a text."""


@dataclass(frozen=True, slots=True)
class LinkTargets:
    """Resolves the links of one note to URLs of the page."""

    resolve: Resolve
    note: Address
    file: Address

    def address(self, target: str, subpath: str = "") -> tuple[str | None, bool]:
        """The URL of a link's target, None if it is broken; and whether it is ambiguous."""
        if not target:
            return anchor(subpath) or "#main", False
        meant = self.resolve(target)
        if meant.path is None:
            return None, False
        return (self.note if meant.path.is_note else self.file)(meant.path) + anchor(subpath), meant.ambiguous


def anchor(subpath: str) -> str:
    """The fragment of a heading as links name it, `#Water#Temperature`; blocks have none."""
    heading = subpath.rpartition("#")[2].strip()
    return f"#{_heading_id(heading_slugs([heading])[0])}" if heading and not heading.startswith("^") else ""


def _heading_id(slug: str) -> str:
    return f"h-{slug}"  # so that no heading takes the place of something of the page's own


def render_note(note: Note, targets: LinkTargets) -> str:
    """Render the body of a note as sanitized HTML. TooSlow if that takes the library too long."""
    written_links = [link for link in note.links if link.kind in ("wikilink", "embed")]
    links = {_unescape_bar(note.text[link.start : link.end]): link for link in written_links}
    longest = max((link.end - link.start for link in written_links), default=0)
    env: dict[str, Any] = {"links": links, "longest": longest, "note": note, "targets": targets}
    env["until"] = time.thread_time() + RENDER_SECONDS
    return nh3.clean(
        _PARSER.render(note.text[note.frontmatter.end :], env),
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        allowed_classes=_CLASSES,
        url_schemes={"http", "https", "mailto"},
        attribute_filter=_keep_own_image_source,
        link_rel="noopener noreferrer",
    )


def _unescape_bar(written: str) -> str:
    """A link as the library gives it in a table, where its bar is written `\\|`."""
    return written.replace("\\|", "|")


def _keep_own_image_source(tag: str, attribute: str, value: str) -> str | None:
    return None if attribute == "src" and not value.startswith(url_of("/w/")) else value


# ---- rules of the library -----------------------------------------------------------------------------


def _check_deadline(state: StateBlock | StateInline, *_: object) -> bool:
    """A rule that never matches: it is tried at every step, and checks the deadline."""
    if time.thread_time() > state.env["until"]:
        raise TooSlow
    return False


def _parse_comment_block(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Skip a comment that begins with `%%` at the start of a line, up to the end of the line that closes it."""
    begin = state.bMarks[start] + state.tShift[start]
    if state.is_code_block(start) or not state.src.startswith("%%", begin):
        return False
    closing = state.src.find("%%", begin + 2, state.eMarks[end - 1])
    if closing < state.eMarks[start]:
        return False
    if not silent:
        line = start
        while line < end and state.eMarks[line] < closing:
            line += 1
        state.line = line + 1
    return True


def _parse_comment(state: StateInline, silent: bool) -> bool:
    found = _COMMENT.match(state.src, state.pos, state.posMax) if state.src.startswith("%%", state.pos) else None
    if found is None:
        return False
    state.pos = found.end()
    return True


def _parse_wikilink(state: StateInline, silent: bool) -> bool:
    """Parse a link that the engine found in this note, and resolve it. With `silent` the library looks for the end of a
    link around this one, which is not a link then."""
    if silent or not state.env["links"] or not state.src.startswith(("[[", "![["), state.pos):
        return False
    end = state.src.find("]]", state.pos, min(state.posMax, state.pos + state.env["longest"])) + 2
    link: Link | None = state.env["links"].get(_unescape_bar(state.src[state.pos : end]))
    if link is None:
        return False
    _push_link(state, link, state.env["targets"])
    state.pos = end
    return True


def _push_link(state: StateInline, link: Link, targets: LinkTargets) -> None:
    address, doubtful = targets.address(link.target, link.subpath)
    shown = link.display or " › ".join(part for part in (link.target, *link.subpath.split("#")) if part)
    if link.kind == "embed" and address is not None and _is_picture(link.target):
        image = state.push("image", "img", 0)
        image.attrs, image.meta = {"src": address, "alt": ""}, _RESOLVED
        alt = link.display or ""
        if not alt.strip() or re.fullmatch(r"\s*\d+(x\d+)?\s*", alt):  # `|300` is a width
            alt = link.target
        image.children = [Token("text", "", 0, content=alt)]
        return
    if state.pending:
        state.pushPending()
    state.tokens += _link_tokens(address, shown, "embed" if link.kind == "embed" else "doubtful" if doubtful else "")


def _is_picture(target: str) -> bool:
    return target.rpartition(".")[2].lower() in PICTURES


def _link_tokens(address: str | None, shown: str, kind: str) -> list[Token]:
    text = Token("text", "", 0, content=shown)
    if address is None:
        return [_open_span("broken", "leads nowhere"), text, Token("span_close", "span", -1)]
    attrs: Attributes = {"href": address}
    attrs |= {"class": kind} if kind else {}
    return [Token("link_open", "a", 1, attrs=attrs, meta=_RESOLVED), text, Token("link_close", "a", -1)]


def _open_span(kind: str, title: str) -> Token:
    return Token("span_open", "span", 1, attrs={"class": kind, "title": title})


# ---- after parsing --------------------------------------------------------------------------------------


def _rewrite_tokens(state: StateCore) -> None:
    """Lower headings by one level, replace styles of cells by classes, and resolve Markdown links."""
    _rewrite_headings(state, state.env["note"])
    for token in state.tokens:
        if token.type in ("th_open", "td_open"):
            side = str(token.attrs.pop("style", "")).removeprefix("text-align:")
            token.attrs |= {"class": side} if side else {}
        elif token.type == "fence":
            token.info = ""  # a note may not choose a class of the page
        token.children = _rewrite_inline(token.children, state.env["targets"]) if token.children else token.children


def _rewrite_headings(state: StateCore, note: Note) -> None:
    texts = [state.tokens[at + 1].content for at, token in enumerate(state.tokens) if token.type == "heading_open"]
    slugs = iter(heading_slugs(texts))
    if state.tokens and state.tokens[0].tag == "h1" and texts[0] == note.title:
        del state.tokens[:3]  # the page has it as its own heading
        next(slugs)
    for token in state.tokens:
        if token.type == "heading_open":
            token.attrs["id"] = _heading_id(next(slugs))
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(int(token.tag[1]) + 1, 6)}"


def _rewrite_inline(children: list[Token], targets: LinkTargets) -> list[Token]:
    rewritten: list[Token] = []
    closing_tokens: list[Token] = []  # the closing tokens of the links around
    for token in children:
        if token.type == "link_open":
            token = token if token.meta is _RESOLVED else _resolve_markdown_link(token, targets)
            closing_tokens.append(Token(f"{token.tag}_close", token.tag, -1))
        elif token.type == "link_close" and closing_tokens:
            token = closing_tokens.pop()
        elif token.type == "image" and token.meta is not _RESOLVED:
            rewritten += _resolve_image(token, targets, inside=bool(closing_tokens))
            continue
        rewritten.append(token)
    return rewritten


def _resolve_markdown_link(token: Token, targets: LinkTargets) -> Token:
    """Resolve a Markdown link: external, or to a note or file of this workspace."""
    href = str(token.attrs.get("href", ""))
    if _EXTERNAL.match(href):
        return Token("link_open", "a", 1, attrs={"href": href, "class": "external"})
    if _SCHEME.match(href):
        return _open_span("broken", f"leads to {href[:200]}")
    path, _, subpath = unquote(href).partition("#")
    address, doubtful = targets.address(path, f"#{subpath}" if subpath else "")
    return _link_tokens(address, "", "doubtful" if doubtful else "")[0]


def _resolve_image(token: Token, targets: LinkTargets, *, inside: bool) -> list[Token]:
    """Resolve an image of this workspace; a foreign one becomes a link, so that opening a note fetches nothing."""
    source = str(token.attrs.get("src", ""))
    shown = "".join(child.content for child in token.children or ()) or "image"
    if _SCHEME.match(source):
        address = source if _EXTERNAL.match(source) and not inside else None
        return _link_tokens(address, f"{shown} (image elsewhere)", "external")
    path = unquote(source).partition("#")[0]
    address, _ = targets.address(path) if path else (None, False)
    if address is None or not _is_picture(path):
        return _link_tokens(None if inside else address, shown, "embed")
    token.attrs = {"src": address, "alt": ""}
    return [token]


_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
_PARSER.block.ruler.before("table", "time", _check_deadline)
_PARSER.block.ruler.before("fence", "comment", _parse_comment_block, {"alt": ["paragraph", "blockquote", "list"]})
_PARSER.inline.ruler.before("text", "time", _check_deadline)
_PARSER.inline.ruler.before("escape", "comment", _parse_comment)
_PARSER.inline.ruler.before("link", "wikilink", _parse_wikilink)
_PARSER.core.ruler.push("finish", _rewrite_tokens)
