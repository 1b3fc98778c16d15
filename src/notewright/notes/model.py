"""What a note is: tuples whose offsets are characters of the note's text, so that every edit is a splice.

Lines count from 1. A span is `[start, end)`. The text is what the bytes decode to, unchanged: line endings and a
byte order mark stay where they are.
"""

from collections.abc import Mapping
from typing import Any

from notewright.lazy_dataclass import NamedTuple
from notewright.notes.path import NotePath


class Heading(NamedTuple):
    level: int
    text: str  # raw inline Markdown, without marks and outer blanks
    line: int
    start: int  # of the heading's first line
    end: int  # after its last line's ending: the section's body begins here
    top: bool = True  # False inside a quote or list


class Section(NamedTuple):
    """A heading down to before the next heading of the same or a higher level."""

    heading: Heading
    start: int  # = heading.start
    body: int  # = heading.end
    end: int
    end_line: int  # exclusive


class Link(NamedTuple):
    kind: str  # wikilink, embed, markdown, markdown-embed, frontmatter
    target: str  # trimmed, percent-decoded in Markdown links; "" means the note itself
    subpath: str  # with its "#", else ""
    display: str | None  # explicit only
    line: int
    start: int  # of the whole link, "!" included
    end: int
    target_start: int  # of the target as written (before "#"), trimmed; in "<…>" without the angles; perhaps in a
    # definition, elsewhere in the note
    target_end: int
    key: str | None = None  # the property it stands in ("name" or "name.0")


class Tag(NamedTuple):
    name: str  # without "#", as spelled
    line: int
    start: int  # of the name itself, after "#"
    end: int
    inline: bool  # False in frontmatter


def tag_key(tag: str) -> str:
    """What two spellings of one tag share: `#` and case ignored."""
    return tag.lstrip("#").casefold()


class Block(NamedTuple):
    """Something with a block id."""

    id: str
    start_line: int
    end_line: int  # inclusive
    start: int  # span of the id itself, after "^"
    end: int


class Frontmatter(NamedTuple):
    """The block between the fences. `properties` is empty where there is none or it cannot be read."""

    present: bool
    start: int  # of the opening fence (after a byte order mark)
    end: int  # after the closing fence's line ending: the body begins here
    inner_start: int
    inner_end: int
    properties: Mapping[str, Any]
    problem: str | None = None  # why it cannot be read


class Note(NamedTuple):
    path: NotePath
    text: str
    title: str  # frontmatter title, else the first H1, else the stem
    frontmatter: Frontmatter
    headings: tuple[Heading, ...]
    links: tuple[Link, ...]  # body and frontmatter, in document order; URLs are left out
    tags: tuple[Tag, ...]  # frontmatter first, then inline, repeats kept
    blocks: tuple[Block, ...]
    aliases: tuple[str, ...]
    paragraphs: tuple[tuple[int, int], ...] = ()  # spans of running text: paragraphs, headings, table rows

    @property
    def body(self) -> str:
        return self.text[self.frontmatter.end :]
