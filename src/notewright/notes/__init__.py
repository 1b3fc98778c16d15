"""What a note is: paths, parsing, links, edits. Pure: no I/O, no await, no clock."""

from typing import TYPE_CHECKING

from notewright.doors import door

if TYPE_CHECKING:
    from notewright.notes.daily import DailySettings, daily_path, fill_template, format_moment, parse_daily_settings
    from notewright.notes.edits import (
        AddTag,
        Append,
        Edit,
        InsertAtLine,
        InsertBesideText,
        Overwrite,
        Prepend,
        RemoveProperty,
        RemoveTag,
        Replace,
        ReplaceBody,
        RewriteTargets,
        SetProperty,
        apply,
        apply_all,
        front_of,
        line_at,
        may_apply_again,
    )
    from notewright.notes.embeds import expand_embeds, unlinked_mentions
    from notewright.notes.excerpts import Excerpt, beginning, line_around, sentence_around
    from notewright.notes.glob import glob_matcher, glob_pieces, glob_prefix
    from notewright.notes.headings import HeadingRule, find_section, heading_key, sections
    from notewright.notes.links import shown_text
    from notewright.notes.merge import holds_change, merge
    from notewright.notes.model import Block, Frontmatter, Heading, Link, Note, Section, Tag
    from notewright.notes.parse import parse, parse_words
    from notewright.notes.path import NotePath, name_problem, path_key, path_problem, with_md, without_md
    from notewright.notes.query import (
        Condition,
        SearchTerms,
        has_property,
        parse_query,
        parse_terms,
        satisfies,
        tag_under,
    )
    from notewright.notes.relabel import rename_block, rename_heading, rename_tag
    from notewright.notes.rename import Moves, Rewritten, moves_of, names_after, plan_rename, touched_keys
    from notewright.notes.resolve import (
        CAIRN,
        OBSIDIAN,
        STEM,
        STEM_OR_PATH,
        LinkPolicy,
        Meaning,
        Names,
        PlainNames,
        enumerate_slugs,
        lens,
        link_key,
        meaning,
        name_keys,
        names_of,
        resolve,
        slug_key,
    )
    from notewright.notes.sectionedits import (
        AppendToSection,
        DeleteSection,
        PrependToSection,
        ReplaceSection,
        section_of,
        section_text,
    )
    from notewright.notes.slugs import heading_slugs
    from notewright.notes.splices import Splice, line_ending, spliced
    from notewright.notes.structure import ListItem, TopBlock, block_structure, list_items
    from notewright.notes.tags import is_tag, property_tags, tag_key
    from notewright.notes.words import FRAME, Mention, drop_frame, index_words, mentions, query_words
    from notewright.notes.yaml import ListStyle, yaml_block, yaml_entry
else:  # each part is loaded when it is first asked for
    __getattr__ = door(
        __name__,
        {
            "daily": "DailySettings daily_path fill_template format_moment parse_daily_settings",
            "edits": (
                "AddTag Append Edit InsertAtLine InsertBesideText Overwrite Prepend RemoveProperty RemoveTag "
                "Replace ReplaceBody RewriteTargets SetProperty apply apply_all front_of line_at may_apply_again"
            ),
            "embeds": "expand_embeds unlinked_mentions",
            "excerpts": "Excerpt beginning line_around sentence_around",
            "glob": "glob_matcher glob_pieces glob_prefix",
            "headings": "HeadingRule find_section heading_key sections",
            "links": "shown_text",
            "merge": "holds_change merge",
            "model": "Block Frontmatter Heading Link Note Section Tag",
            "parse": "parse parse_words",
            "path": "NotePath name_problem path_key path_problem with_md without_md",
            "query": "Condition SearchTerms has_property parse_query parse_terms satisfies tag_under",
            "relabel": "rename_block rename_heading rename_tag",
            "rename": "Moves Rewritten moves_of names_after plan_rename touched_keys",
            "resolve": (
                "CAIRN OBSIDIAN STEM STEM_OR_PATH LinkPolicy Meaning Names PlainNames enumerate_slugs lens "
                "link_key meaning name_keys names_of resolve slug_key"
            ),
            "sectionedits": "AppendToSection DeleteSection PrependToSection ReplaceSection section_of section_text",
            "slugs": "heading_slugs",
            "splices": "Splice line_ending spliced",
            "structure": "ListItem TopBlock block_structure list_items",
            "tags": "is_tag property_tags tag_key",
            "words": "FRAME Mention drop_frame index_words mentions query_words",
            "yaml": "ListStyle yaml_block yaml_entry",
        },
    )

__all__ = [
    "CAIRN",
    "FRAME",
    "OBSIDIAN",
    "STEM",
    "STEM_OR_PATH",
    "AddTag",
    "Append",
    "AppendToSection",
    "Block",
    "Condition",
    "DailySettings",
    "DeleteSection",
    "Edit",
    "Excerpt",
    "Frontmatter",
    "Heading",
    "HeadingRule",
    "InsertAtLine",
    "InsertBesideText",
    "Link",
    "LinkPolicy",
    "ListItem",
    "ListStyle",
    "Meaning",
    "Mention",
    "Moves",
    "Names",
    "Note",
    "NotePath",
    "Overwrite",
    "PlainNames",
    "Prepend",
    "PrependToSection",
    "RemoveProperty",
    "RemoveTag",
    "Replace",
    "ReplaceBody",
    "ReplaceSection",
    "RewriteTargets",
    "Rewritten",
    "SearchTerms",
    "Section",
    "SetProperty",
    "Splice",
    "Tag",
    "TopBlock",
    "apply",
    "apply_all",
    "beginning",
    "block_structure",
    "daily_path",
    "drop_frame",
    "enumerate_slugs",
    "expand_embeds",
    "fill_template",
    "find_section",
    "format_moment",
    "front_of",
    "glob_matcher",
    "glob_pieces",
    "glob_prefix",
    "has_property",
    "heading_key",
    "heading_slugs",
    "holds_change",
    "index_words",
    "is_tag",
    "lens",
    "line_around",
    "line_at",
    "line_ending",
    "link_key",
    "list_items",
    "may_apply_again",
    "meaning",
    "mentions",
    "merge",
    "moves_of",
    "name_keys",
    "name_problem",
    "names_after",
    "names_of",
    "parse",
    "parse_daily_settings",
    "parse_query",
    "parse_terms",
    "parse_words",
    "path_key",
    "path_problem",
    "plan_rename",
    "property_tags",
    "query_words",
    "rename_block",
    "rename_heading",
    "rename_tag",
    "resolve",
    "satisfies",
    "section_of",
    "section_text",
    "sections",
    "sentence_around",
    "shown_text",
    "slug_key",
    "spliced",
    "tag_key",
    "tag_under",
    "touched_keys",
    "unlinked_mentions",
    "with_md",
    "without_md",
    "yaml_block",
    "yaml_entry",
]
