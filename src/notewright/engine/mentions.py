"""Unlinked mentions: notes that name another without linking to it."""

import re
from dataclasses import dataclass

from notewright.engine.links import incoming
from notewright.engine.read import read
from notewright.engine.workspace import Workspace
from notewright.index import Needles
from notewright.notes import Excerpt, NotePath, line_around, parse, sentence_around, unlinked_mentions

MOST = 200


@dataclass(frozen=True, slots=True)
class Mentioned:
    path: NotePath
    line: int
    context: Excerpt  # the line, with the name in it


def mentions(ws: Workspace, path: NotePath) -> list[Mentioned]:
    """Lines of notes that do not link to this one and yet name it, by its name or an alias; bounded."""
    linked = {path, *(link.source for link in incoming(ws, path))}
    called = dict.fromkeys(name for name in (path.stem, *read(ws, path).note.aliases) if len(name.strip()) > 1)
    found: dict[tuple[NotePath, int], Mentioned] = {}
    for name in called:
        for batch in ws.index.bodies(Needles(((name,),)), visible=ws.access.sees):
            for body in batch:
                text = body.text
                if body.path in linked or name.casefold() not in text.casefold():
                    continue
                lines = text.split("\n")
                for line in unlinked_mentions(parse(body.path, text), [name]):
                    found[body.path, line] = Mentioned(body.path, line, _named(lines[line - 1], name))
                if len(found) >= MOST:
                    return sorted(found.values(), key=lambda one: (one.path, one.line))
    return sorted(found.values(), key=lambda one: (one.path, one.line))


def _named(line: str, name: str) -> Excerpt:
    """The line, of a long one the sentence with the name."""
    found = re.search(re.escape(name.strip()), line, re.IGNORECASE)
    return sentence_around(line_around(line, *(found.span() if found else (0, 0))))
