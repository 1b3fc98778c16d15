"""What holds for every edit of every text."""

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from notewright.errors import Problem
from notewright.notes.edits.edit import Append, Edit, InsertAtLine, Prepend, Replace, apply, apply_all
from notewright.notes.edits.merge import merge
from notewright.notes.edits.properties import AddTag, RemoveProperty, RemoveTag, SetProperty
from notewright.notes.edits.sections import AppendToSection, DeleteSection, PrependToSection, ReplaceSection
from notewright.notes.parse.parser import parse
from notewright.notes.path import NotePath

PATH = NotePath("n.md")
LINES = ["# A", "## B", "text", "- item", "", "  ", "[[x]]", "#tag", "```", "é 日本", "> q", "---"]
FRONTS = [
    "",
    "---\na: 1\n---\n",
    "---\n# c\ntags: [x, 'y']\nb: \"q\"  # c\n---\n",
    "---\ntags:\n- x\n\nz: |\n  t\n---\n\n",
]
KEYS = ["a", "b", "tags", "new", "odd: key", "yes", "1"]
PIECES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**6), 10**6), st.floats(allow_nan=False, allow_infinity=False), PIECES
)
VALUES = st.one_of(
    SCALARS, st.lists(SCALARS, max_size=3), st.dictionaries(PIECES.filter(str.strip), SCALARS, max_size=2)
)


@st.composite
def texts(draw: st.DrawFn) -> str:
    lines = draw(st.lists(st.sampled_from(LINES), max_size=8))
    text = draw(st.sampled_from(FRONTS)) + "\n".join(lines) + draw(st.sampled_from(["", "\n", "\n\n"]))
    text = text.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))
    return draw(st.sampled_from(["", "\ufeff"])) + text


def edits() -> st.SearchStrategy[Edit]:
    content = st.sampled_from(["x", "x\n", "one\ntwo", "", "\n", "x\n\n"])
    heading = st.sampled_from(["A", "B", "A > B"])
    return st.one_of(
        st.builds(Append, content),
        st.builds(Append, content, separator=st.just("\n\n")),
        st.builds(Prepend, content),
        st.builds(Replace, st.sampled_from(["text", "é", "item"]), content, which=st.sampled_from(["only", "all"])),
        st.builds(InsertAtLine, st.integers(1, 8), content, after=st.booleans()),
        st.builds(ReplaceSection, heading, content),
        st.builds(AppendToSection, heading, content),
        st.builds(PrependToSection, heading, content),
        st.builds(DeleteSection, heading),
        st.builds(SetProperty, st.sampled_from(KEYS), VALUES),
        st.builds(RemoveProperty, st.sampled_from(KEYS)),
        st.builds(AddTag, st.sampled_from(["x", "new", "Y"])),
        st.builds(RemoveTag, st.sampled_from(["x", "y", "none"])),
    )


@settings(max_examples=120, deadline=None)
@given(texts(), edits())
def test_every_edit_leaves_everything_outside_its_splices_alone(text: str, edit: Edit) -> None:
    try:
        splices = sorted(edit.splices(text, PATH))
    except Problem:
        assume(False)
    after, place, gone = apply(text, edit), 0, 0
    for splice in splices:
        kept = text[gone : splice.start]
        assert after.startswith(kept + splice.new, place)
        place, gone = place + len(kept) + len(splice.new), splice.end
    assert after[place:] == text[gone:]


@settings(max_examples=120, deadline=None)
@given(texts(), edits())
def test_no_edit_brings_a_foreign_line_end_into_a_note(text: str, edit: Edit) -> None:
    assume("\r\n" in text)
    try:
        splices = edit.splices(text, PATH)
    except Problem:
        assume(False)
    given_text = getattr(edit, "text", None) or getattr(edit, "new", "") or ""
    for splice in splices:
        added = splice.new.replace(given_text, "") if given_text else splice.new
        assert "\n" not in added.replace("\r\n", "")


@settings(max_examples=120, deadline=None)
@given(texts(), st.sampled_from(KEYS), VALUES, st.sampled_from([None, "block", "flush", "flow"]))
def test_a_property_set_is_the_property_read_and_the_others_stay(text: str, key: str, value: Any, style: Any) -> None:
    before = parse(PATH, text).frontmatter
    assume(before.problem is None)
    after = parse(PATH, apply(text, SetProperty(key, value, style)))
    assert after.frontmatter.problem is None
    assert dict(after.frontmatter.properties) == {**before.properties, key: value}
    assert after.body == parse(PATH, text).body


@settings(max_examples=120, deadline=None)
@given(
    texts(),
    st.one_of(
        st.builds(SetProperty, st.sampled_from(KEYS), VALUES),
        st.builds(RemoveProperty, st.sampled_from(KEYS)),
        st.builds(AddTag, st.sampled_from(["x", "new"])),
        st.builds(RemoveTag, st.sampled_from(["x", "y"])),
    ),
)
def test_changing_properties_twice_is_changing_them_once(text: str, edit: Edit) -> None:
    assume(parse(PATH, text).frontmatter.problem is None)
    once = apply(text, edit)
    assert apply(once, edit) == once


@settings(max_examples=120, deadline=None)
@given(texts(), st.lists(edits(), min_size=2, max_size=4))
def test_edits_together_are_edits_one_by_one_where_no_line_is_counted(text: str, chosen: list[Edit]) -> None:
    assume(not any(isinstance(edit, InsertAtLine) for edit in chosen))
    one_by_one = text
    try:
        for edit in chosen:
            one_by_one = apply(one_by_one, edit)
    except Problem:
        assume(False)
    assert apply_all(text, chosen) == one_by_one


@settings(max_examples=120, deadline=None)
@given(texts(), edits(), edits())
def test_merging_takes_nothing_from_either_side(text: str, ours: Edit, theirs: Edit) -> None:
    try:
        one, other = apply(text, ours), apply(text, theirs)
    except Problem:
        assume(False)
    merged = merge(text, one, other)
    assert merged == merge(text, other, one)
    assert merge(text, one, text) == one
    assert merge(text, text, other) == other
    assert merge(text, one, one) == one
    if merged is not None and one != other:
        taken_back = merge(one, text, merged)
        assert taken_back is None or taken_back == other
