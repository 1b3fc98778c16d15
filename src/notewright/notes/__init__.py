"""What a note is: paths, parsing, links, edits. Pure: no I/O, no await, no clock."""

from notewright.notes.model import Block, Frontmatter, Heading, Link, Note, Section, Tag
from notewright.notes.path import NotePath, name_problem, path_key, path_problem, with_md, without_md

__all__ = [
    "Block",
    "Frontmatter",
    "Heading",
    "Link",
    "Note",
    "NotePath",
    "Section",
    "Tag",
    "name_problem",
    "path_key",
    "path_problem",
    "with_md",
    "without_md",
]
