"""Renaming what is inside notes: a heading or a tag, with every link to it."""

import re
from collections.abc import Callable, Iterable
from functools import cache
from itertools import groupby

from notewright.errors import Exists, Invalid
from notewright.notes.edits.sections import require_section
from notewright.notes.edits.splices import Splice, apply_splices
from notewright.notes.links.names import Names
from notewright.notes.links.rename import MovedNames, RewrittenFile, encode_target
from notewright.notes.links.resolve import resolve
from notewright.notes.links.syntax import find_definition_end, is_reference, parse_destination, strip_links
from notewright.notes.model import Link, Note, tag_key
from notewright.notes.parse.headings import find_section, heading_ancestors, heading_key, subpath_keys
from notewright.notes.parse.parser import parse
from notewright.notes.parse.tags import is_tag

_NOT_IN_LINKS = re.compile(r"(?:[:#|^\\\[\]\s]|%%)+")


def rename_heading(note: Note, old: str, new: str, names: Names, notes: Iterable[Note]) -> tuple[RewrittenFile, ...]:
    """The texts that change when a heading of `note` gets a new text. `notes` are those that may link to it."""
    heading = require_section(note, old).heading
    new, place = new.strip(), note.text.find(heading.text, heading.start, heading.end)
    own = Splice(place, place + len(heading.text), new)
    after = parse(note.path, apply_splices(note.text, [own])) if new and place >= 0 else note
    at, key = note.headings.index(heading), heading_key(heading.text)
    if len(after.headings) != len(note.headings) or after.headings[at].text != new:
        raise Invalid(f"{new!r} cannot be a heading there", hint="use one line of text", what="to")
    touched = {heading_key(form(text)) for form in (str, strip_links) for text in (heading.text, new)}

    @cache  # a list of contents has as many links as the note has headings, all of which are looked through for each
    def find_subpath(written: str) -> str | None:
        found = None if touched.isdisjoint(subpath_keys(written)) else find_section(note, written)
        if found is None:
            return None
        index = note.headings.index(found.heading)
        ancestors, chain = _with_ancestors(note, index), _with_ancestors(after, index)
        replaced = written
        if at in ancestors:  # the renamed heading's part of the subpath
            parts = written.split("#")
            replaced = "#".join(_in_link(new) if part and heading_key(part) == key else part for part in parts)
        whole = "".join("#" + _in_link(after.headings[place].text) for place in chain)
        for subpath in (replaced, written, whole):
            found_after = find_section(after, subpath)
            if found_after is not None and after.headings.index(found_after.heading) == index:
                return subpath
        raise Exists(f"{note.path} has a heading {new!r} already", hint="choose another text", path=note.path)

    links = find_subpath_links(note, names, notes)
    return rewrite_subpaths(note, own, links, lambda link: find_subpath(link.subpath))


def _with_ancestors(note: Note, index: int) -> list[int]:
    """The heading at `index` and those it stands below, the highest first."""
    return [*list(heading_ancestors(note.headings))[index], index]


def _in_link(heading: str) -> str:
    return _NOT_IN_LINKS.sub(" ", heading).strip()


def rename_tag(notes: Iterable[Note], old: str, new: str, *, nested: bool = True) -> tuple[RewrittenFile, ...]:
    """The texts that change when a tag, and with `nested` those below it, get a new name. Case is ignored."""
    old, new = old.strip().removeprefix("#"), new.strip().removeprefix("#")
    if not is_tag(new) or new == old:
        raise Invalid(f"{new!r} cannot be a new tag", hint="use letters, digits, - _ and /", what="to")
    key, depth, texts = tag_key(old), old.count("/") + 1, []
    for note in notes:
        splices = set()
        for tag in note.tags:
            head = "/".join(tag.name.split("/")[:depth])
            renamed = tag_key(head) == key and (nested or head == tag.name)
            if renamed and note.text.startswith(head, tag.start) and tag.end > tag.start:
                splices.add(Splice(tag.start, tag.start + len(head), new))
        if splices:
            texts.append(RewrittenFile(note.path, note.path, apply_splices(note.text, splices), len(splices)))
    return tuple(texts)


# ---- links to a place in a note -----------------------------------------------------------------------


def find_subpath_links(note: Note, names: Names, notes: Iterable[Note]) -> list[tuple[Note, Link]]:
    """Every link with a subpath that leads to the note, its own included."""
    others = [other for other in notes if other.path != note.path]
    names = MovedNames(names, {})  # of which each is looked up once
    return [
        (other, link)
        for other in (note, *others)
        for link in other.links
        if link.subpath and resolve(link.target, other.path, names) == note.path
    ]


def rewrite_subpaths(
    note: Note, own: Splice, links: list[tuple[Note, Link]], find_subpath: Callable[[Link], str | None]
) -> tuple[RewrittenFile, ...]:
    """The note with its own change, and every text with a link whose subpath is a new one."""
    texts = [RewrittenFile(note.path, note.path, apply_splices(note.text, [own]), 0)]
    for path, group in groupby(links, lambda pair: pair[0].path):
        pairs = list(group)
        source = pairs[0][0]
        news = [(link, find_subpath(link)) for _, link in pairs]
        splices = {_subpath(source.text, link, new) for link, new in news if new is not None and new != link.subpath}
        if path == note.path:
            apart = [each for each in splices if each.end <= own.start or each.start >= own.end]
            texts[0] = RewrittenFile(path, path, apply_splices(note.text, [own, *apart]), len(apart))
        elif splices:
            texts.append(RewrittenFile(path, path, apply_splices(source.text, splices), len(splices)))
    return tuple(texts)


def _subpath(text: str, link: Link, new: str) -> Splice:
    """The splice that gives a link another subpath."""
    written = "#".join(encode_target(text, link, part) for part in new.split("#"))
    if not link.kind.startswith("markdown"):
        start = text.index("#", link.target_end)
        after = re.compile(r"\||\]\]").search(text, start)
        assert after is not None, "a link has an end"
        old = text[start : after.start()]
        old = old.rstrip("\\") if after[0] == "|" else old  # a bar in a table stands behind one
        return Splice(start, start + len(old.rstrip()), written)
    if is_reference(link):
        end = find_definition_end(text, link)
    else:
        where = parse_destination(text, text.rindex("(", link.start, link.target_start), link.end)
        end = where[1] if where else link.end - 1
    return Splice(text.index("#", link.target_end), end, written)
