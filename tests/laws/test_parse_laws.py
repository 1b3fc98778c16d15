"""Laws of the parser: whatever the text, its spans, lines and values fit together."""

import re
from itertools import pairwise

import pyromark
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tools.note_structure import block_structure, list_items

from notewright.notes.mentions import find_mentions
from notewright.notes.model import Note
from notewright.notes.parse.headings import find_section, list_sections
from notewright.notes.parse.parser import parse
from notewright.notes.path import NotePath
from notewright.notes.words import index_words, query_words

# fmt: off
PIECES = [
    "# h", "## b ##", "#", "foo", "bar baz", "- ", "* ", "1. ", "2) ", "> ", ">", "    ", "\t", "  ", "```",
    "~~~", "`", "``", "---", "===", "***", "+ ", "\n", "\n", "\n", "\n\n", "[[w]]", "[t](u.md)", "![i](p.png)",
    "<div>", "</div>", "<!--", "-->", "<b>", "\\", "\\[", "<pre>", "</pre>", "<?", "?>", '"', "(", ")", "*",
    "_", "[[a#h]]", "é", "- - -", "10. ", "-\n", "[x](<a b>)", '[a](b "t")',
]
ODD = [
    "[[", "]]", "![[e|d]]", "[", "](x.md)", "]", "[r]: /u", "| a | b |", "|---|---|", "|", "%%", "$", "$$",
    "#tag", "#1", "^id", " ^b-1", "\r\n", "\r", "\ufeff", "\x00", "\u2028", "日本", "😀", "שלום", "---\n",
    "tags: [a, b]\n", 'up: "[[x]]"\n', "a: {{date}}\n", "[^1]: ", "http://x.y/#a", "&amp;", "%20", "\ud800",
    "- [ ] ", "[[a|b]]",
]
REFERENCES = [
    "[t][re]", "[re][]", "[re]", "![i][re]", "[ RE\n]", "[t][no]", "[t][re][se]", "[se]", "[re](u v)",
    "[a [re] b][se]", "[![i][re]][se]", "[re]: u.md\n", "[re]: <v w> 't'\n", "[se]:\n/u\n", "> [re]: q.md\n",
    "[re]: p", "- [se]: l.md\n",
]
# fmt: on
MARKDOWN = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)
REFERRING = st.lists(st.sampled_from(PIECES + REFERENCES * 3), max_size=14).map("".join)
ANYTHING = st.one_of(st.text(), REFERRING, st.lists(st.sampled_from(PIECES + ODD), max_size=20).map("".join))
WRITTEN = ("Inline", "Reference", "Collapsed", "Shortcut")
OPENINGS = {
    "wikilink": ("[[", "]]"),
    "embed": ("![[", "]]"),
    "markdown": ("[", (")", "]")),
    "markdown-embed": ("![", (")", "]")),
    "frontmatter": ("[[", "]]"),
}


def read(text: str) -> Note:
    return parse(NotePath("a.md"), text)


def newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


@given(ANYTHING)
def test_every_link_begins_and_ends_as_its_kind_demands(text):
    for link in read(text).links:
        opening, closing = OPENINGS[link.kind]
        written = text[link.start : link.end]
        assert written.startswith(opening) and written.endswith(closing)
        if closing == "]]" or written.endswith(")"):
            assert link.start <= link.target_start <= link.target_end <= link.end
        else:
            assert "]:" in text[: link.target_start] and link.target_start <= link.target_end <= len(text)
        if not link.kind.startswith("markdown"):
            assert text[link.target_start : link.target_end] == link.target
        assert link.line == newlines(text[: link.start]).count("\n") + 1


@given(ANYTHING)
def test_every_tag_and_block_id_stands_where_it_says(text):
    note = read(text)
    for tag in note.tags:
        assert text[tag.start : tag.end] in (tag.name, "" if not tag.inline else tag.name)
        assert text[tag.start - 1] == "#" or not tag.inline
    for block in note.blocks:
        assert text[block.start - 1 : block.end] == "^" + block.id
        assert 1 <= block.start_line <= block.end_line <= newlines(text).count("\n") + 1


@given(ANYTHING)
def test_headings_stand_on_their_lines_and_sections_nest(text):
    note = read(text)
    assert [heading.start for heading in note.headings] == sorted({heading.start for heading in note.headings})
    for heading in note.headings:
        assert heading.line == newlines(text[: heading.start]).count("\n") + 1
        assert heading.start == note.frontmatter.end or text[heading.start - 1] in "\r\n"
        assert heading.end == len(text) or text[heading.end - 1] in "\r\n"
        assert "\n" not in heading.text
    for section in list_sections(note):
        assert section.start < section.body <= section.end <= len(text)
        inside = [other for other in note.headings if section.start < other.start < section.end]
        assert all(other.level > section.heading.level for other in inside)


@given(ANYTHING)
def test_frontmatter_and_body_are_the_whole_text(text):
    note = read(text)
    front = note.frontmatter
    assert text[: front.end] + note.body == text
    assert 0 <= front.start <= front.inner_start <= front.inner_end <= front.end
    assert front.problem is None or not front.properties


@given(ANYTHING)
def test_running_text_is_in_order_and_holds_every_link_and_tag_of_the_body(text):
    note = read(text)
    places = [place for span in note.paragraphs for place in span]
    assert places == sorted(places) and (not places or places[-1] <= len(text))
    body = [link for link in note.links if link.key is None] + [tag for tag in note.tags if tag.inline]
    for found in body:
        assert any(start <= found.start and found.end <= end for start, end in note.paragraphs)
    assert len(find_mentions(note)) == sum(link.key is None for link in note.links)


@given(ANYTHING.filter(lambda text: "\r" not in text))
@example("---\na: |\n  x \n\n  y\n---\n- a\n\n  b ^c\n")
def test_crlf_gives_the_same_values(text):
    plain, other = read(text), read(text.replace("\n", "\r\n"))
    assert other.frontmatter.properties == plain.frontmatter.properties
    assert [(h.level, h.text, h.line, h.top) for h in other.headings] == [
        (h.level, h.text, h.line, h.top) for h in plain.headings
    ]
    assert [(k.kind, k.target, k.subpath, k.line, k.key) for k in other.links] == [
        (k.kind, k.target, k.subpath, k.line, k.key) for k in plain.links
    ]
    assert [(t.name, t.line, t.inline) for t in other.tags] == [(t.name, t.line, t.inline) for t in plain.tags]
    assert [(b.id, b.start_line, b.end_line) for b in other.blocks] == [
        (b.id, b.start_line, b.end_line) for b in plain.blocks
    ]
    assert (other.title, other.aliases) == (plain.title, plain.aliases)


@given(ANYTHING)
def test_a_heading_is_found_by_its_own_text(text):
    note = read(text)
    for heading in note.headings:
        if re.search(r"\w", heading.text):
            found = find_section(note, heading.text)
            assert found is not None and found.start <= heading.start


@given(ANYTHING)
def test_the_structure_of_a_note_is_in_order(text):
    note = read(text)
    lines = newlines(text).count("\n") + 1
    blocks = block_structure(note)
    assert all(1 <= block.start_line <= block.end_line <= lines for block in blocks)
    assert all(one.end_line <= other.start_line for one, other in pairwise(blocks))
    assert all(1 <= item.line <= item.end_line <= lines for item in list_items(note))


@given(st.text())
def test_words_are_cut_the_same_in_index_and_question(text):
    assert set(query_words(text)) <= set(query_words(index_words(text)))


@given(MARKDOWN.filter(lambda text: not text.startswith("---")))
@settings(max_examples=1000, derandomize=True, deadline=None)
def test_headings_and_links_are_those_of_another_commonmark_parser(text):
    note = read(text)
    headings, links = judged(text)
    assert [(heading.level, heading.line) for heading in note.headings] == headings
    assert [(len(text[: link.start].encode()), text[link.start : link.end]) for link in note.links] == [
        (start, written) for start, written, _ in links
    ]


@given(REFERRING.filter(lambda text: not re.match("---", text) and not re.search(r"\\\[|\t|  ", text)))
@settings(max_examples=1000, derandomize=True, deadline=None)
def test_links_by_reference_are_those_of_another_commonmark_parser(text):
    found = [(len(text[: link.start].encode()), link.target + link.subpath) for link in read(text).links]
    assert found == [(start, leads) for start, _, leads in judged(text)[1]]


def judged(text: str) -> tuple[list[tuple[int, int]], list[tuple[int, str, str]]]:
    """Headings with lines, and links (byte offset, as written, where it leads), as pulldown-cmark finds them."""
    data, headings, links = text.encode(), [], []
    for event, span in pyromark.events_with_range(text, options=pyromark.Options.ENABLE_WIKILINKS):
        begun = event.get("Start") if isinstance(event, dict) else None
        if not isinstance(begun, dict):
            continue
        start, end = span["start"], span["end"]
        if "Heading" in begun:
            headings.append((int(begun["Heading"]["level"][1]), data[:start].count(b"\n") + 1))
        link = begun.get("Link") or begun.get("Image")
        if link and ("WikiLink" in link["link_type"] or link["link_type"] in WRITTEN) and link["dest_url"]:
            links.append((start, data[start:end].decode(), link["dest_url"]))
    return headings, links
