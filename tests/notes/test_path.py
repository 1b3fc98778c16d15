"""Paths: what their parts are."""

import pytest

from notewright.errors import Invalid
from notewright.notes.path import NotePath, name_problem, path_key, path_problem, with_md, without_md


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


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ("", "it is empty"),
        ("a\0b.md", "it holds a control character"),
        ("a\x1f.md", "it holds a control character"),
        ("a\x7f.md", "it holds a control character"),
        ("a\\b.md", "it holds a backslash"),
        ("\ud800.md", "it is not valid Unicode"),
        ("x/" * 2049, "it is too long"),
        ("/a.md", "'' is not a name"),
        ("a//b.md", "'' is not a name"),
        ("a/", "'' is not a name"),
        ("./a.md", "'.' is not a name"),
        ("a/../b.md", "'..' is not a name"),
        ("a/" + "é" * 128, "a name in it is longer than 255 bytes"),
    ],
)
def test_what_cannot_be_a_path_is_refused_and_says_why(raw: str, problem: str) -> None:
    assert path_problem(raw) == problem
    with pytest.raises(Invalid) as refused:
        NotePath.parse(raw)
    assert problem in refused.value.message and refused.value.details["what"] == "path"


@pytest.mark.parametrize(
    "raw", ["a", "...", "a b.md", "x" * 255, "é" * 127, ("x" * 255 + "/") * 15 + "x" * 255, "a /b."]
)
def test_odd_names_that_may_exist_are_paths(raw: str) -> None:
    assert path_problem(raw) is None
    assert NotePath.parse(raw) == raw and type(NotePath.parse(raw)) is NotePath


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("e\u0301.md", "it is not in NFC form"),
        ("a:b.md", "':' does not work in names on every system"),
        ("f/what?.md", "'?' does not work in names on every system"),
        (".hidden/a.md", "a name may not begin with a dot"),
        ("a /b.md", "a name may not end with a dot or a space"),
        ("a./b.md", "a name may not end with a dot or a space"),
        ("nul.md", "'nul.md' is a device name on Windows"),
        ("x/COM1", "'COM1' is a device name on Windows"),
        ("x" * 251, "a name in it is longer than 250 bytes"),
        ("x/" * 450 + "x", "it is longer than 900 bytes"),
    ],
)
def test_a_new_name_that_does_not_work_everywhere_is_refused_and_says_why(path: str, problem: str) -> None:
    assert path_problem(path) is None, "but it may be there"
    assert name_problem(path) == problem


@pytest.mark.parametrize("path", ["é.md", "null.md", "console.md", "x" * 250, "x/" * 449 + "xx", "a.b c/d-e.md"])
def test_a_new_name_that_works_everywhere_is_taken(path: str) -> None:
    assert name_problem(path) is None


def test_hidden_is_what_is_behind_a_dot_anywhere() -> None:
    assert [NotePath(path).is_hidden for path in (".a", "x/.a/b", "a.b", "x/a.", "x./a")] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_spellings_of_one_name_share_a_key() -> None:
    assert path_key("Straße/É.MD") == path_key("STRASSE/e\u0301.md") == "strasse/é.md"
    assert path_key("A b") == "a b" != path_key("a-b")


def test_md_is_put_on_and_taken_off_once_in_any_case() -> None:
    assert (with_md("a"), with_md("a.MD"), with_md("md")) == ("a.md", "a.MD", "md.md")
    assert (without_md("a.md"), without_md("a.Md"), without_md("a.txt"), without_md("md")) == ("a", "a", "a.txt", "md")
    assert NotePath("a.MD").is_note and not NotePath("md").is_note
