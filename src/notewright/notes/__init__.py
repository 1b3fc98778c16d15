"""What a note is: paths, parsing, links, edits. Pure: no I/O, no await, no clock."""

from notewright.notes.glob import glob_matcher, glob_prefix
from notewright.notes.model import Block, Frontmatter, Heading, Link, Note, Section, Tag
from notewright.notes.path import NotePath, name_problem, path_key, path_problem, with_md, without_md
from notewright.notes.resolve import (
    CAIRN,
    OBSIDIAN,
    STEM,
    LinkPolicy,
    Meaning,
    Names,
    PlainNames,
    lens,
    link_key,
    meaning,
    name_keys,
    names_of,
    resolve,
    slug_key,
)

__all__ = [
    "CAIRN",
    "OBSIDIAN",
    "STEM",
    "Block",
    "Frontmatter",
    "Heading",
    "Link",
    "LinkPolicy",
    "Meaning",
    "Names",
    "Note",
    "NotePath",
    "PlainNames",
    "Section",
    "Tag",
    "glob_matcher",
    "glob_prefix",
    "lens",
    "link_key",
    "meaning",
    "name_keys",
    "name_problem",
    "names_of",
    "path_key",
    "path_problem",
    "resolve",
    "slug_key",
    "with_md",
    "without_md",
]
