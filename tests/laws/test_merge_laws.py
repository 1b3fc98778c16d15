"""Laws of merging: both orders give the same, nothing is lost or doubled, and taken back gives what was there."""

import re
import time
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.engine.parts import memory_workspace, put, texts, write

from notewright.engine.changes.commit import commit
from notewright.engine.changes.history import undo
from notewright.engine.changes.merge import without_change
from notewright.engine.changes.plan import Plan
from notewright.errors import Conflict
from notewright.notes.edits.merge import merge

LINES = ["x", "text", "# A", "", "x y", "- x", "new"]  # few, so that they repeat
WORDS = re.compile(r"\w+|[^\w\s]")
Triple = tuple[str, str, str]


@st.composite
def changed(draw: st.DrawFn, lines: list[str], known: list[str]) -> list[str]:
    """The lines after one to three of them were put in, taken out or replaced."""
    lines = list(lines)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(lines)))
        lines[place : place + draw(st.integers(0, 1))] = draw(st.lists(st.sampled_from(known), max_size=2))
    return lines


@st.composite
def triples(draw: st.DrawFn) -> Triple:
    """A text and what two people made of it."""
    known = draw(st.lists(st.sampled_from(LINES), min_size=1, max_size=4, unique=True))
    end = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    base = draw(st.lists(st.sampled_from(known), max_size=8))
    sides = [base, draw(changed(base, [*known, "new"])), draw(changed(base, [*known, "new"]))]
    one, two, three = (end.join(lines) + draw(st.sampled_from(["", end])) for lines in sides)
    return one, two, three


TRUE_COUNTEREXAMPLES = [
    ("# A\ntext\n# A", "# A\nx\n# A", "# A\ntext\nx\n# A"),
    ("# A\ntext\n# A", "# A\nx\n# A", "# A\ntext\n# A\nx"),
    ("text", "x", "text\nx"),
    ("x\np\n", "x\np\nx\n", "p\n"),
    ("text\n# A\ntext", "# A\ntext\nx y\na, b\n# A\ntext\nx y\na, b", "x y\n# A\nx y"),
    ("\nx\n\n", "x\n\n", "\n\nx"),
    ("a\nlast\n", "a\nlast\nours\n", "a\nother"),
]


@pytest.mark.parametrize("triple", TRUE_COUNTEREXAMPLES)
def test_what_once_broke_a_law_of_merging_keeps_it(triple: Triple) -> None:
    _keeps_the_laws(triple)


@settings(max_examples=400, deadline=None)
@given(triples())
def test_merging_gives_both_changes_in_either_order_or_refuses(triple: Triple) -> None:
    _keeps_the_laws(triple)


def _keeps_the_laws(triple: Triple) -> None:
    base, ours, theirs = triple
    assert merge(base, ours, base) == ours == merge(base, base, ours) == merge(base, ours, ours)
    both = merge(base, ours, theirs)
    assert both == merge(base, theirs, ours)
    if both is None or base in (ours, theirs) or ours == theirs:
        return
    old, one, other, found = (Counter(WORDS.findall(text)) for text in (base, ours, theirs, both))
    assert found + old == one + other, "nothing is lost, nothing is there twice"
    assert _untouched(base, ours, theirs) - Counter(both.split("\n")) == Counter()
    assert merge(ours, base, both) in (None, theirs)
    assert merge(theirs, base, both) in (None, ours)
    assert without_change(base.encode(), ours.encode(), both.encode()) in (None, theirs.encode())


def _untouched(base: str, ours: str, theirs: str) -> Counter[str]:
    """Lines that must be there: as many of each as are left when both sides take out what they take out."""
    old, one, other = (Counter(text.split("\n")[:-1]) for text in (base, ours, theirs))
    return old - (old - one) - (old - other)


@settings(max_examples=60, deadline=None)
@given(triples())
@example(("text", "x", "text\nx"))
@example(("x\np\n", "x\np\nx\n", "p\n"))
def test_undoing_a_change_after_another_leaves_the_other_alone_or_refuses(triple: Triple) -> None:
    base, ours, theirs = triple
    both = merge(base, ours, theirs)
    if both is None or base in (ours, theirs) or ours == theirs:
        return
    ws = memory_workspace()
    write(ws, Note=base, Other="a\n")
    done = commit(ws, Plan((put(ws, "Note.md", ours), put(ws, "Other.md", "b\n")), "ours"))
    write(ws, Note=both)
    try:
        undo(ws, done.id or "")
    except Conflict:
        assert texts(ws) == {"Note.md": both, "Other.md": "b\n"}, "all or nothing"
    else:
        assert texts(ws) == {"Note.md": theirs, "Other.md": "a\n"}


NOTE = """---
tags: [plan, week]
status: open
---
# Week

Monday was wet.

## Tasks

- [ ] buy flour
- [ ] call Ilse
- [ ] oven

## Log

- 09:00 began
- 17:00 ended
"""

EVERYDAY = {
    "a word here and a word there": (("wet", "dry"), ("09:00 began", "08:30 began")),
    "two words of one line": (("Monday was", "Tuesday was"), ("wet.", "wet, and cold.")),
    "two lines that follow one another": (("[ ] buy", "[x] buy"), ("[ ] call", "[x] call")),
    "a property and the text below": (("status: open", "status: done"), ("# Week\n", "# Week 7\n")),
    "a tag and another property": (("plan, week", "plan, week, oven"), ("status: open", "status: done")),
    "a task and the log": (
        ("- [ ] oven\n", "- [ ] oven\n- [ ] tea\n"),
        ("17:00 ended\n", "17:00 ended\n- 18:00 home\n"),
    ),
    "a paragraph in each of two sections": (("wet.\n", "wet.\n\nThen dry.\n"), ("## Log\n\n", "## Log\n\nGood.\n\n")),
    "a new section and an edit above": (("## Log\n", "## Notes\n\nNone.\n\n## Log\n"), ("- [ ] oven", "- [x] oven")),
    "a line gone and one changed": (("- [ ] call Ilse\n", ""), ("09:00 began", "10:00 began")),
    "a section gone and a word elsewhere": (("## Log\n\n- 09:00 began\n- 17:00 ended\n", ""), ("wet", "dry")),
    "a link rewritten and a line put before it": (
        ("buy flour", "buy [[Rye]]"),
        ("- [ ] buy", "- [ ] first\n- [ ] buy"),
    ),
    "an append and the line before it": (("17:00 ended\n", "17:00 ended\nMore.\n"), ("17:00", "16:00")),
}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("name", EVERYDAY)
def test_everyday_changes_are_merged_and_either_is_taken_back(name: str, end: str) -> None:
    (old, new), (was, became) = EVERYDAY[name]
    base, old, new, was, became = (text.replace("\n", end) for text in (NOTE, old, new, was, became))
    assert base.count(old) == base.count(was) == 1
    ours, theirs = base.replace(old, new), base.replace(was, became)
    both = ours.replace(was, became)
    assert merge(base, ours, theirs) == both == merge(base, theirs, ours)
    assert without_change(base.encode(), ours.encode(), both.encode()) == theirs.encode()
    assert without_change(base.encode(), theirs.encode(), both.encode()) == ours.encode()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "end"),
    [("x\n", "x\ny\nx\n"), ("line {}\n", "end\n"), ("{} ", "end"), ("x ", " y x"), ("u{}\nx\ny\nx\n", "y\nx\n")],
)
def test_merging_takes_time_in_proportion_to_the_size(line: str, end: str) -> None:
    def seconds(count: int) -> float:
        base = "".join(line.format(number) for number in range(count))
        middle = len(base) // 2
        ours, theirs = base[:middle] + "ours" + base[middle:], "theirs\n" + base + end
        taken = list[float]()
        for _ in range(3):
            begun = time.process_time()
            merge(base, ours, theirs)
            taken.append(time.process_time() - begun)
        return min(taken)

    assert seconds(9_000) < 5 * seconds(3_000) + 0.3  # three times as long, not nine times
