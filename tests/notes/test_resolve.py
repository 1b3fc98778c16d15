"""Which note a link means."""

from itertools import product

import pytest

from notewright.notes.links import names as namesakes
from notewright.notes.links.resolve import (
    CAIRN,
    OBSIDIAN,
    STEM,
    STEM_OR_PATH,
    InMemoryNames,
    LinkPolicy,
    lens_policy,
    link_key,
    list_slugs,
    resolve,
    resolve_link,
    slug_key,
)
from notewright.notes.parse.parser import parse
from notewright.notes.path import NotePath


def names(*paths: str) -> InMemoryNames:
    return InMemoryNames(NotePath(path) for path in paths)


def means(target: str, source: str, *paths: str, policy: LinkPolicy = OBSIDIAN) -> str | None:
    return resolve(target, NotePath(source), names(*paths, source), policy)


def test_an_empty_target_is_the_note_itself() -> None:
    assert means("", "a/x.md") == "a/x.md"


@pytest.mark.parametrize("policy", [OBSIDIAN, STEM, STEM_OR_PATH, CAIRN])
def test_many_of_one_name_are_told_apart_as_few_are(policy: LinkPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = ("", "a/", "b/", "A/", "a/b/", "a/c/", "b/a/b/", "né/", "long/")
    paths = [f"{folder}{name}" for folder, name in product(folders, ("T.md", "t.md", "T.md.md", "T", "T.png"))]
    targets = [
        "".join(found) for found in product(("", "/", "./", "../", "a/", "A/", "b/", "a/b/", "x/"), ("T", "t.md"))
    ]
    asked = [(target, f"{folder}x.md") for target, folder in product([*targets, "T.png", "t.md.md"], folders)]

    def answers() -> list[object]:
        known = names(*paths)
        return [resolve_link(target, NotePath(source), known, policy) for target, source in asked]

    monkeypatch.setattr(namesakes, "FEW", 1000)
    one_by_one = answers()
    monkeypatch.setattr(namesakes, "FEW", 0)
    assert answers() == one_by_one


def test_links_among_many_files_of_one_name_take_time_in_proportion_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [f"s{number % 20}/d{number}/index.md" for number in range(1000)]
    known, compared = names(*paths), []
    monkeypatch.setattr(namesakes, "path_key", lambda path: compared.append(path) or path.lower())
    for path in paths:
        assert resolve("index", NotePath(path), known) == resolve(path, NotePath("a/x.md"), known) == path
        assert resolve("index", NotePath(path), known, STEM_OR_PATH) == path
        assert resolve(path[path.index("/") + 1 :], NotePath("a/x.md"), known) == path
    assert len(compared) < 10 * len(paths)


def test_dots_are_relative_to_the_source_and_nothing_else_is_tried() -> None:
    assert means("./y", "a/x.md", "y.md", "a/y.md") == "a/y.md"
    assert means("../y", "a/x.md", "y.md", "a/y.md") == "y.md"
    assert means("../y", "a/x.md", "a/y.md") is None
    assert means("../../y", "a/x.md", "y.md") is None


def test_an_exact_path_wins_over_a_note_beside_the_source() -> None:
    assert means("Note", "z/x.md", "Note.md", "z/Note.md") == "Note.md"


def test_own_folder_then_the_shortest_path_then_code_points() -> None:
    paths = ["zzzz/Note.md", "a/b/Note.md", "c/d/Note.md"]
    assert means("Note", "zzzz/x.md", *paths) == "zzzz/Note.md"
    assert means("Note", "zzzz/deep/x.md", *paths) == "a/b/Note.md"
    assert means("b/Note", "x.md", *paths) == "a/b/Note.md"


def test_only_a_choice_by_code_points_is_called_ambiguous() -> None:
    found = resolve_link("Note", NotePath("x.md"), names("bb/Note.md", "aa/Note.md", "long/Note.md"))
    assert (found.path, found.ambiguous) == ("aa/Note.md", True)
    assert not resolve_link("Note", NotePath("x.md"), names("a/Note.md", "long/Note.md")).ambiguous


@pytest.mark.parametrize("target", ["ext", "Ext.MD", "EXT.md", "a/EXT"])
def test_case_and_the_extension_of_notes_do_not_matter(target: str) -> None:
    assert means(target, "x.md", "a/Ext.md") == "a/Ext.md"


def test_composition_does_not_matter() -> None:
    assert means("Caf\u00e9", "x.md", "Cafe\u0301.md") == "Cafe\u0301.md"


def test_of_case_twins_the_one_spelled_the_same_is_meant() -> None:
    assert means("note", "x.md", "Note.md", "note.md") == "note.md"
    assert means("Note", "x.md", "d/Note.md", "d/note.md") == "d/Note.md"


def test_other_files_need_their_extension() -> None:
    assert means("Figure", "x.md", "Figure.png") is None
    assert means("figure.png", "x.md", "p/Figure.png") == "p/Figure.png"
    assert means("Figure", "x.md", "Figure.png", "sub/Figure.md") == "sub/Figure.md"


def test_names_with_dots_are_names() -> None:
    assert means("v2.0", "x.md", "a/v2.0.md") == "a/v2.0.md"
    assert means("pic.png", "x.md", "pic.png", "pic.png.md") == "pic.png"
    assert means("x.md", "y.md", "x.md", "x.md.md") == "x.md"
    assert means("LICENSE", "x.md", "LICENSE", "LICENSE.md") == "LICENSE.md"


def test_a_leading_slash_is_the_root() -> None:
    assert means("/about", "z/x.md", "about.md", "z/about.md") == "about.md"
    assert means("/about", "z/x.md", "z/about.md") is None


@pytest.mark.parametrize("target", ["a/", "..", ".", "/", "//", "|", "a/../b", "a//b"])
def test_odd_targets_are_broken_links(target: str) -> None:
    assert means(target, "x.md", "a/b.md", "b.md") is None


def test_a_stem_policy_compares_exactly() -> None:
    assert means("B", "x.md", "long/B.md", "d/B.md", policy=STEM) == "d/B.md"
    assert means("b", "x.md", "B.md", policy=STEM) is None
    assert means("d/B", "x.md", "d/B.md", policy=STEM) is None


@pytest.mark.parametrize("policy", [STEM, STEM_OR_PATH])
def test_a_note_comes_before_a_file_of_the_same_name(policy: LinkPolicy) -> None:
    assert means("v1", "x.md", "v1", "deep/down/v1.md", policy=policy) == "deep/down/v1.md"
    assert means("v1", "x.md", "long/v1", "a/v1", policy=policy) == "a/v1"


def test_of_notes_with_one_stem_the_top_then_the_own_folder_then_the_shortest_path_is_meant() -> None:
    paths = ["B.md", "own/B.md", "z/B.md", "long/folder/B.md"]
    assert means("B", "own/x.md", *paths, policy=STEM_OR_PATH) == "B.md"
    assert means("B", "own/x.md", *paths[1:], policy=STEM_OR_PATH) == "own/B.md"
    assert means("B", "other/x.md", *paths[1:], policy=STEM_OR_PATH) == "z/B.md"
    assert means("b", "own/x.md", *paths, policy=STEM_OR_PATH) is None
    assert means("long/folder/B", "own/x.md", *paths, policy=STEM_OR_PATH) == "long/folder/B.md"
    assert means("own/B.md", "x.md", *paths, policy=STEM_OR_PATH) == "own/B.md"


def test_one_look_up_by_last_segment_is_enough() -> None:
    assert link_key("a/b/Tea.MD") == "tea.md"
    asked: list[str] = []

    class Counting(InMemoryNames):
        def by_name(self, key: str) -> list[NotePath]:
            asked.append(key)
            return [NotePath("a/Tea.md")]

    assert resolve("Tea", NotePath("x.md"), Counting()) == "a/Tea.md"
    assert asked == ["tea"]


def cairn(target: str, **found: str) -> str | None:
    names = InMemoryNames()
    for path, (kind, key) in ((path, pair.split("=", 1)) for path, pair in found.items()):
        names.paths_by_key[kind, key].append(NotePath(path + ".md"))
    return resolve(target, NotePath("x.md"), names, CAIRN)


def test_cairn_tries_path_alias_title_segment_slug() -> None:
    assert cairn("Jamie", Jamie="name=jamie", jamie="name=jamie") == "Jamie.md"
    assert cairn("JAMIE", jamie="name=jamie", other="alias=jamie") == "jamie.md"
    assert cairn("jw", other="alias=jw", third="title=jw") == "other.md"
    assert cairn("jw", third="title=jw", **{"d/jw": "name=jw"}) == "third.md"
    assert cairn("jw", **{"d/jw": "name=jw"}) == "d/jw.md"
    assert cairn("Jamie Wilson", some="slug=jamie-wilson") == "some.md"
    assert cairn("nobody") is None


def test_a_slug_is_a_path_before_an_alias_before_a_title_before_a_last_segment() -> None:
    notes = [
        parse(NotePath("tea time.md"), "# By path\n"),
        parse(NotePath("a.md"), "---\naliases: [Tea - Time]\n---\n# By alias\n"),
        parse(NotePath("b.md"), "# Tea, time\n"),
        parse(NotePath("d/tea_time.md"), "# By last segment\n"),
    ]
    for left in range(len(notes)):  # whatever comes first in the order of the notes
        some = notes[left:][::-1]
        assert InMemoryNames([note.path for note in some], some).by_other_name("slug", "tea-time") == [
            note.path for note in notes[left:]
        ]
    assert list_slugs(notes[1]) == [(0, "a"), (1, "tea-time"), (2, "by-alias"), (3, "a")]
    assert list_slugs(parse(NotePath("d/!.md"), "# ?\n")) == [(0, "d")]


def test_slugs_are_lower_case_with_dashes() -> None:
    assert slug_key("Jamie  Wilson (CEO)!") == "jamie-wilson-ceo"


def test_lens_goes_from_the_source_outwards() -> None:
    policy = lens_policy(["Lens Edu", "Lens"])
    paths = ["Lens/Bio/Cell.md", "Lens/Cell.md", "Lens Edu/Cell.md", "Lens Edu/Only.md", "Lens/Deep/Down/Leaf.md"]
    assert means("Cell", "Lens/Bio/x.md", *paths, policy=policy) == "Lens/Bio/Cell.md"
    assert means("../../../Cell", "Lens/Bio/x.md", *paths, policy=policy) == "Lens/Cell.md"
    assert means("Cell.md", "Lens/Other/x.md", *paths, policy=policy) == "Lens/Cell.md"
    assert means("Lens Edu/Cell", "Lens/x.md", *paths, policy=policy) == "Lens Edu/Cell.md"
    assert means("cell", "Lens/Bio/x.md", *paths, policy=policy) == "Lens/Bio/Cell.md"
    assert means("only", "Lens/x.md", *paths, policy=policy) == "Lens Edu/Only.md"
    assert means("Leaf", "Lens Edu/x.md", *paths, policy=policy) == "Lens/Deep/Down/Leaf.md"
