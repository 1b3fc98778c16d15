"""What a note is: paths, parsing, links, edits. Pure: no I/O, no await, no clock."""

from notewright.notes.glob import glob_matcher, glob_prefix
from notewright.notes.headings import HeadingRule, find_section, heading_key, sections
from notewright.notes.links import shown_text
from notewright.notes.model import Block, Frontmatter, Heading, Link, Note, Section, Tag
from notewright.notes.parse import parse
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
from notewright.notes.tags import is_tag, property_tags, tag_key
from notewright.notes.words import FRAME, Mention, drop_frame, index_words, mentions, query_words

__all__ = [
    "CAIRN",
    "FRAME",
    "OBSIDIAN",
    "STEM",
    "Block",
    "Frontmatter",
    "Heading",
    "HeadingRule",
    "Link",
    "LinkPolicy",
    "Meaning",
    "Mention",
    "Names",
    "Note",
    "NotePath",
    "PlainNames",
    "Section",
    "Tag",
    "drop_frame",
    "find_section",
    "glob_matcher",
    "glob_prefix",
    "heading_key",
    "index_words",
    "is_tag",
    "lens",
    "link_key",
    "meaning",
    "mentions",
    "name_keys",
    "name_problem",
    "names_of",
    "parse",
    "path_key",
    "path_problem",
    "property_tags",
    "query_words",
    "resolve",
    "sections",
    "shown_text",
    "slug_key",
    "tag_key",
    "with_md",
    "without_md",
]
