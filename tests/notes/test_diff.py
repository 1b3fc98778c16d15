"""Differences between two texts as people read them."""

import difflib

import pytest

from notewright.notes.edits.diff import compare_lines

OLD = [f"line {number}" for number in range(40)]


@pytest.mark.parametrize("context", [0, 1, 3])
@pytest.mark.parametrize(
    "new",
    [
        OLD,
        [*OLD, "more"],
        ["first", *OLD],
        [*OLD[:20], "other", *OLD[21:]],
        [*OLD[:5], "one", *OLD[5:20], *OLD[22:], "last"],
        [*OLD[:20], *OLD[25:]],
        OLD[:-1],
        [],
        ["new"],
    ],
)
def test_a_diff_is_what_difflib_says_without_the_names_of_files(new: list[str], context: int) -> None:
    assert compare_lines(OLD, new, context) == list(difflib.unified_diff(OLD, new, lineterm="", n=context))[2:]
    assert compare_lines(new, OLD, context) == list(difflib.unified_diff(new, OLD, lineterm="", n=context))[2:]


class Line(str):
    looked_up = 0

    def __hash__(self) -> int:
        Line.looked_up += 1
        return super().__hash__()


def test_of_a_long_text_only_what_lies_between_its_changes_is_matched() -> None:
    old = list(map(Line, ["", "same"] * 2_000))
    assert compare_lines(old, [*old[:1_000], Line("new"), *old[1_000:]], 1) == [
        "@@ -1000,2 +1000,3 @@",
        " same",
        "+new",
        " ",
    ]
    assert Line.looked_up < 20
