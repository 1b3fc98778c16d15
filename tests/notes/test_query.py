"""The search language."""

import time

import pytest
from tools.note_structure import satisfies

from notewright.notes.parse.parser import parse
from notewright.notes.path import NotePath
from notewright.notes.query import parse_query, parse_terms

NOTE = parse(
    NotePath("Projects/Tea.md"),
    "---\ntags: [drink/hot]\nstatus: Done\nrating: 5\nlist: [a, b]\n---\nGreen tea with honey.\n#kitchen\n",
)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "green honey",
        "GREEN",
        '"green tea"',
        "-coffee",
        "green -coffee",
        "tag:drink",
        "tag:#kitchen",
        "-tag:drin",
        "path:projects",
        "file:tea",
        "-path:Archive",
        "[status]",
        "[status:done]",
        "[rating:5]",
        "[list:b]",
        "-[status:open]",
        "coffee OR tea",
        "green (coffee OR honey)",
        "-(coffee tea)",
        "green -(coffee OR milk)",
        'tag:drink "tea with" -milk path:Projects',
        '"green tea',
        "(green",
        "green)",
        "content:green",
    ],
)
def test_a_note_that_fulfils_a_query_is_found(query: str) -> None:
    assert satisfies(NOTE, parse_query(query))


@pytest.mark.parametrize(
    "query",
    [
        "coffee",
        "green coffee",
        '"tea green"',
        "-green",
        "tag:hot",
        "tag:kitch",
        "[status:open]",
        "[nothing]",
        "-[status]",
        "milk OR coffee",
        "green (milk OR coffee)",
        "-(green tea)",
        "path:Archive",
    ],
)
def test_a_note_that_does_not_is_not(query: str) -> None:
    assert not satisfies(NOTE, parse_query(query))


def test_a_query_is_laid_flat_for_an_index() -> None:
    terms = parse_terms('tea "hot milk" -coffee -"iced tea" tag:x -tag:#y path:A/ -path:B [k:v] -[k2] [k3]')
    assert (terms.words, terms.phrases, terms.without) == (("tea", "hot milk"), ("hot milk",), ("coffee", "iced tea"))
    assert (terms.tags, terms.without_tags, terms.paths, terms.without_paths) == (("x",), ("y",), ("A/",), ("B",))
    assert (terms.properties, terms.without_properties) == ((("k", "v"), ("k3", None)), (("k2", None),))


def test_words_of_every_alternative_are_words_to_rank_by() -> None:
    terms = parse_terms("tea (milk OR honey) -(coffee OR water)")
    assert terms.words == ("tea", "milk", "honey")


@pytest.mark.parametrize("query", ["(" * 5000, "-" * 500, "a OR " * 5000, '"' * 999, "[[[" * 500, "OR", "[[Tea]]"])
def test_no_query_is_too_odd_to_read(query: str) -> None:
    assert isinstance(satisfies(NOTE, parse_query(query)), bool)
    parse_terms(query)


def test_a_wikilink_in_a_query_is_a_word() -> None:
    assert parse_terms("[[Tea]]").words == ("[[Tea]]",)


@pytest.mark.parametrize(
    "query", ["[^3]: tea", "- [x] tea", "as [12] says", "[green tea](Tea.md)", "[Note: tea](<a b.md>)"]
)
def test_brackets_of_markdown_in_a_pasted_sentence_are_words_and_no_condition(query: str) -> None:
    terms = parse_terms(query)
    assert terms.words
    assert not terms.properties


@pytest.mark.parametrize("piece", ["[^ ", "[x: ", '[a:"', '["', "[1 ", "( ", "-tag:"])
def test_a_query_is_read_in_time_that_grows_with_its_length(piece: str) -> None:
    def seconds(times: int) -> float:
        began = time.process_time()
        parse_terms(piece * times)
        return time.process_time() - began

    short, long = (min(seconds(times) for _ in range(3)) for times in (4_000, 16_000))
    assert long < 8 * short + 0.05  # sixteen times as long where every bracket looks through the rest
