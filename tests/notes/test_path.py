"""Paths: what their parts are."""

import pytest

from notewright.notes import NotePath


@pytest.mark.parametrize(
    ("path", "name", "stem", "folder"),
    [
        ("LICENSE", "LICENSE", "LICENSE", ""),
        ("a.md", "a.md", "a", ""),
        ("x/y/b.MD", "b.MD", "b", "x/y"),
        ("x/pic.png", "pic.png", "pic.png", "x"),
    ],
)
def test_the_parts_of_a_path_are_plain_text(path: str, name: str, stem: str, folder: str) -> None:
    parts = [NotePath(path).name, NotePath(path).stem, NotePath(path).folder]
    assert parts == [name, stem, folder]
    assert {type(part) for part in parts} == {str}  # a process hands rows of plain values to another
