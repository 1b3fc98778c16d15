"""Globs, as git reads them."""

import hashlib
import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notewright.errors import Invalid
from notewright.notes.glob import compile_glob, glob_literals, glob_name_start, glob_prefix

HITS = [
    ("*.md", "a.md"),
    ("**/*.md", "a.md"),
    ("**/*.md", "x/y/a.md"),
    ("projects/**", "projects/a/b.png"),
    ("a/**/b", "a/b"),
    ("a/**/b", "a/x/y/b"),
    ("**/x/**/y/*.md", "1/x/2/3/y/n.md"),
    ("**/x/y/**", "x/x/y/z"),
    ("?.md", "é.md"),
    ("[a-c]*.md", "bx.md"),
    ("[!a]*", "b"),
    ("[]x]", "]"),
    ("[\\]x]", "]"),
    ("\\*.md", "*.md"),
    ("{a,b}/*.md", "b/n.md"),
    ("{a/b,c}.md", "a/b.md"),
    ("{a{1,2},b}", "a2"),
    ("x{,y}", "x"),
    ("{[,],b}", ","),
    ("*a*b*c", "xaxxbbxcc"),
    ("**", "a/b/c"),
    ("a**b", "axxb"),
]
MISSES = [
    ("*.md", "x/a.md"),
    ("*", "a/b"),
    ("?", "/"),
    ("a?b", "a/b"),
    ("a[/]b", "a/b"),
    ("a[!x]b", "a/b"),
    ("projects/**", "projects"),
    ("projects/**", "projects2/a"),
    ("a/*/b", "a/b"),
    ("*.md", "A.MD"),
    ("[z-a]", "m"),
    ("a**b", "a/b"),
    ("**/x/**/y", "x/z"),
    ("!a", "b"),
]


@pytest.mark.parametrize(("pattern", "path"), HITS)
def test_a_pattern_finds_what_it_describes(pattern: str, path: str) -> None:
    assert compile_glob(pattern)(path)


@pytest.mark.parametrize(("pattern", "path"), MISSES)
def test_a_pattern_finds_nothing_else(pattern: str, path: str) -> None:
    assert not compile_glob(pattern)(path)


def test_a_basename_pattern_looks_at_the_last_segment_unless_it_names_folders() -> None:
    assert compile_glob("*.md", basename=True)("a/b.md")
    assert not compile_glob("a/*.md", basename=True)("x/a/b.md")


def test_negation_is_asked_for_and_may_be_doubled() -> None:
    assert compile_glob("!*.md", negation=True)("a.png")
    assert not compile_glob("!*.md", negation=True)("a.md")
    assert compile_glob("!!*.md", negation=True)("a.md")


@pytest.mark.parametrize("pattern", ["", "[a", "{a", "{a,{b}", "a\\", "x" * 2000, "{a,b}" * 20, "{" * 300])
def test_an_unfinished_or_excessive_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(Invalid):
        compile_glob(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        *("*a" * 300 + "*b", "**/" * 200 + "x", "**/a*" * 150 + "b", "{a*,b*}" * 8 + "c"),
        *("[a-z]*" * 150, "?*" * 300),
    ],
)
def test_no_pattern_takes_long(pattern: str) -> None:
    begun = time.process_time()
    matches = compile_glob(pattern)
    assert not matches("a/" * 400 + "a" * 2000)
    assert time.process_time() - begun < 1


def test_the_sure_folders_of_a_pattern_narrow_a_listing() -> None:
    assert glob_prefix("a/b/*.md") == "a/b"
    assert glob_prefix("a/b*/c") == "a"
    assert glob_prefix("**/x") == ""
    assert glob_prefix("!a/b/c") == ""


def test_globs_find_in_every_vault_what_git_finds(shared: Path) -> None:
    for truth in sorted(shared.glob("truth/*/glob.json")):
        vault = shared / "vaults" / truth.parent.name / "vault"
        paths = sorted(p.relative_to(vault).as_posix() for p in vault.rglob("*") if p.is_file())
        paths = [path for path in paths if not path.startswith(".") and "/." not in path]
        for case in json.loads(truth.read_text())["glob"]:
            if "?" in case["pattern"] and not all(map(str.isascii, paths)):
                continue  # git's ? is one byte, ours one character
            fold = str.lower if case["ignore_case"] else str
            matches = compile_glob(fold(case["pattern"]))
            found = [path for path in paths if matches(fold(path))]
            said = (truth.parent.name, case["pattern"])
            assert (said, len(found)) == (said, case["count"])
            assert found[:12] == case["first"][:12], said
            digest = hashlib.sha256("".join(path + "\n" for path in found).encode()).hexdigest()
            joined = hashlib.sha256("\n".join(found).encode()).hexdigest()
            assert case["sha256_of_paths"] in (digest, joined), said


_PATHS = st.lists(st.text("ab*?[]\\é.", min_size=1, max_size=4), min_size=1, max_size=4).map("/".join)
_PATTERNS = st.lists(
    st.one_of(st.just("**"), st.text("ab*?[]!\\é.-", min_size=1, max_size=5)), min_size=1, max_size=4
).map("/".join)


@given(_PATTERNS, _PATHS)
def test_every_match_holds_the_pieces_of_its_pattern_and_begins_as_it_says(pattern: str, path: str) -> None:
    try:
        matches = compile_glob(pattern)
    except Invalid:
        return
    if matches(path):
        assert all(piece in path for piece in glob_literals(pattern))
        assert path.rpartition("/")[2].startswith(glob_name_start(pattern))


@pytest.mark.parametrize(
    ("pattern", "pieces"),
    [
        ("**/2025-1*.md", ("2025-1", ".md")),
        ("Projects/**", ("Projects",)),
        (r"a\*b?c", ("a*b", "c")),
        ("a[bc]d", ("a", "d")),
        ("{a,b}/c", ()),
        ("!a", ()),
    ],
)
def test_the_pieces_of_a_pattern(pattern: str, pieces: tuple[str, ...]) -> None:
    assert glob_literals(pattern) == pieces
