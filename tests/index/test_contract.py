"""What every index promises, whatever it is made of."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.index.parts import asked, facts, file, filing, paths, sqlite_index

from notewright.engine.find.search import find
from notewright.index.base import Filing, Index, Needles, PathGlob, Selection, Visibility
from notewright.index.sqlite.queries import names_like
from notewright.index.sqlite.schema import Connection
from notewright.index.sqlite.vocabulary import Vocabulary
from notewright.notes.glob import glob_name_start
from notewright.notes.path import NotePath, path_key

MAKERS: list[Callable[[Path], Index]] = [sqlite_index]
VAULT = {
    "Tea.md": "---\naliases: [Cha, Brew]\ntags: [drink/hot]\nstatus: Active\n---\n# Tea\n\nLeaves in water.\n\n"
    "## Water\n\nJust below boiling, see [[Kettle#Care|the kettle]].\n",
    "Kettle.md": "# Kettle\n\nBoils water. #drink #Tool\n\n## Care\n\nDescale it with vinegar.\n",
    "Projects/Tea Garden.md": "---\ntitle: The Garden\ncreated: 2020-05-01\n---\nPlant [tea](../Tea.md) in spring.\n",
    "Projects/Deep/Log.md": "Nothing but [[tea]] and [[Projects/Tea Garden]], [[no such note]].\n",
    "Projects/plan.png": None,
    "日记/学习笔记.md": "今天学习了很多新的东西。\n",
}


@pytest.fixture(params=MAKERS)
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Index]:
    made = request.param(tmp_path / "index")
    file(made, VAULT)
    yield made
    made.close()


# ---- files and names ----------------------------------------------------------------------------------


def test_what_was_filed_is_known_by_stamp_version_and_title(index: Index) -> None:
    known = index.find_file("Projects/Tea Garden.md")
    assert known is not None
    assert (known.title, known.modified_ns, known.problem) == ("The Garden", 1_000, None)
    assert index.find_file("nowhere.md") is None
    assert sorted(path for path, _ in index.stamps()) == sorted(VAULT)


def test_filing_again_takes_the_place_of_what_was_known(index: Index) -> None:
    index.file([filing("Tea.md", "Coffee only.")], drop=["Kettle.md", "never there.md"])
    assert index.text("Tea.md") == "Coffee only."
    assert paths(index, "boils vinegar") == []
    assert paths(index, "coffee") == ["Tea.md"]
    assert index.tags() == {} and index.links_from(["Tea.md"]) == []


def test_a_file_that_was_only_touched_gets_its_new_stamp_and_time(index: Index) -> None:
    index.file([filing("Tea.md", VAULT["Tea.md"], modified=9, stamp="new")])
    known = index.find_file("Tea.md")
    assert known is not None and (known.stamp, known.modified_ns) == ("new", 9)
    assert paths(index, "boiling")[0] == "Tea.md"


def test_names_are_found_by_key_with_and_without_md(index: Index) -> None:
    assert index.by_name("tea") == ["Tea.md"] == index.by_name("tea.md")
    assert index.by_name("plan.png") == ["Projects/plan.png"]
    assert index.by_other_name("alias", "cha") == ["Tea.md"] and index.by_other_name("title", "the garden") == [
        "Projects/Tea Garden.md"
    ]
    assert (
        index.by_other_name("slug", "projects-tea-garden")
        == ["Projects/Tea Garden.md"]
        == index.by_other_name("slug", "the-garden")
    )
    assert index.other_keys("Tea.md") == ["cha", "brew", "tea"]


def test_slugs_prefer_paths_to_aliases_to_titles_to_segments(index: Index) -> None:
    file(index, {"x.md": "---\naliases: [A B]\n---\n", "a-b.md": "", "z.md": "# A B", "q/A B.md": ""})
    assert index.by_other_name("slug", "a-b") == ["a-b.md", "x.md", "z.md", "q/A B.md"]


def test_names_alike_come_best_first(index: Index) -> None:
    assert index.names_like("ketle", limit=2)[0] == "Kettle.md"


@pytest.mark.parametrize("called", ["ketlte", "ekttle", "teh kettle", "Tae", "gardn tea", "学习笔计"])
def test_a_name_with_a_slip_or_its_words_the_other_way_round_is_found(index: Index, called: str) -> None:
    file(index, {f"Notes/{word} {number}.md": "x" for word in ("Teak", "Meeting", "Theory") for number in range(60)})
    meant = {"Tae": "Tea.md", "gardn tea": "Projects/Tea Garden.md", "学习笔计": "日记/学习笔记.md"}
    assert meant.get(called, "Kettle.md") in index.names_like(path_key(called))[:3]


def test_looking_for_names_alike_does_not_look_at_every_name(tmp_path: Path) -> None:
    index, words, steps = sqlite_index(tmp_path / "many", VAULT), Vocabulary(), list[int]()
    for many in (100, 2_000):
        file(index, {f"{number:04} Nothing of it.md": "" for number in range(many)})

        def counted(con: Connection) -> list[NotePath]:
            names_like(con, words, "other")  # words and notes are counted once
            con.db.set_progress_handler(lambda: bool(steps.append(many)), 100)  # noqa: B023  called before the next
            try:
                return names_like(con, words, "ketle")
            finally:
                con.db.set_progress_handler(None)

        assert index.ask(counted)[0] == "Kettle.md"
    assert steps.count(2_000) <= 2 * steps.count(100) + 10
    index.close()


def test_names_that_may_not_be_seen_take_no_place_of_others(index: Index) -> None:
    file(index, {f"Private/Kettle {number}.md": "x" for number in range(300)})
    assert index.names_like("kettle 1", limit=2, visible=Visibility(("Private",))) == ["Kettle.md"]


def test_twins_and_endings(index: Index) -> None:
    file(index, {"Other.md": "---\naliases: [CHA]\n---\n", "Board.CANVAS": None})
    assert index.shared_aliases() == [("cha", ["Other.md", "Tea.md"])]
    boards, _ = index.select(Selection(notes_only=False, suffixes=(".canvas",)))
    assert [known.path for known in boards] == ["Board.CANVAS"]


def test_counts_are_of_notes_other_files_and_bytes(index: Index) -> None:
    assert (index.total("notes"), index.total("files")) == (5, 6)
    files, size = (index.total("files"), index.total("bytes"))
    assert files == 6 and size > 300
    index.file([filing("Projects/plan.png")._replace(stamp="later", size=1_003)])
    assert (index.total("files"), index.total("bytes")) == (6, size + 1_000)
    index.file([filing("New.md", "four")], drop=["Projects/plan.png", "never there.md"])
    assert (index.total("files"), index.total("bytes")) == (6, size - 3 + 4)


# ---- links, tags, headings, properties ------------------------------------------------------------------


def test_links_of_a_note_come_in_order_with_their_lines(index: Index) -> None:
    (link,) = index.links_from(["Tea.md"])
    assert (link.kind, link.target, link.subpath) == ("wikilink", "Kettle", "#Care")
    assert link.line == 12
    assert [line.with_ellipses for line in index.lines_of([link])] == [
        "Just below boiling, see [[Kettle#Care|the kettle]]."
    ]
    assert [link.target for link in index.links_from(["Projects/Deep/Log.md"])] == [
        "tea",
        "Projects/Tea Garden",
        "no such note",
    ]


def test_links_toward_a_key_are_found_by_last_segment_and_by_slug(index: Index) -> None:
    def sources(*keys: str) -> list[str]:
        return [link.source for link in index.links_toward(keys)]

    assert sources("tea") == ["Projects/Deep/Log.md", "Projects/Tea Garden.md"]
    assert sources("tea garden") == sources("tea-garden") == sources("projects-tea-garden") == ["Projects/Deep/Log.md"]
    assert sources("kettle", "tea garden") == ["Projects/Deep/Log.md", "Tea.md"]


def test_links_of_many_notes_come_by_path(index: Index) -> None:
    sources = [link.source for link in index.links_from(sorted(VAULT))]
    assert len(sources) == 5 and sources == sorted(sources)


def test_a_long_line_is_cut_around_the_link(index: Index) -> None:
    file(index, {"Long.md": "x " * 3_000 + "before [[Tea]] after" + " y" * 3_000})
    (line,) = index.lines_of(index.links_from(["Long.md"]))
    assert len(line.text) <= 400 and "before «[[Tea]]» after" in line.with_marks


@pytest.mark.parametrize("start", ["Ca", "Caf", "Cafe", "Café", "CAFE", "2025-1", "2<", "C"])
def test_a_listing_by_how_names_begin_misses_none_that_begins_so(index: Index, start: str) -> None:
    names = [
        "Cafe.md",
        "Cafe\u0301.md",
        "Caf\u00e9.md",
        "In/Cafe 2.md",
        "In/Cafeteria.png",
        "2025-10.md",
        "2<\u0338.md",
    ]
    file(index, dict.fromkeys(names, "x"))
    for glob in (f"**/{start}*", f"{start}*"):
        among = Visibility(globs=(PathGlob(glob),))
        asked = Selection(notes_only=False, visible=among, name_start=glob_name_start(glob))
        assert index.select(asked) == index.select(asked._replace(name_start=""))


def test_tags_are_counted_by_note_whatever_their_case(index: Index) -> None:
    file(index, {"More.md": "#tool #TOOL #drink"})
    assert index.tags() == {"Tool": 2, "drink": 2, "drink/hot": 1}
    drinks, _ = index.select(Selection(tag_tree="#Drink"))
    assert [known.path for known in drinks] == ["Kettle.md", "More.md", "Tea.md"]
    assert index.select(Selection(tag_tree="")) == ([], 0)
    assert index.tags_of(["More.md", "Tea.md"]) == {"More.md": ["tool", "drink"], "Tea.md": ["drink/hot"]}
    assert index.tags(visible=Visibility(globs=(PathGlob("More.md"),))) == {"tool": 1, "drink": 1}


def test_properties_come_back_as_they_were(index: Index) -> None:
    assert index.property_of("aliases", ["Tea.md", "Kettle.md"]) == {"Tea.md": ["Cha", "Brew"]}
    assert index.property_of("status", ["Tea.md", "Kettle.md"]) == {"Tea.md": "Active"}


def test_a_note_that_could_not_be_read_is_listed_and_found_by_name_alone(index: Index) -> None:
    index.file([filing("Locked.md")])
    assert index.find_file("Locked.md") is not None and index.text("Locked.md") is None
    assert index.by_name("locked") == ["Locked.md"] and index.links_from(["Locked.md"]) == []


# ---- listings -------------------------------------------------------------------------------------------


def test_listings_stop_at_segments_and_say_how_many_there_are(index: Index) -> None:
    file(index, {"Projects2/x.md": ""})
    page, total = index.select(Selection(folder="Projects", limit=1))
    assert [known.path for known in page] == ["Projects/Deep/Log.md"] and total == 2
    page, total = index.select(Selection(folder="Projects", recursive=False, notes_only=False))
    assert [known.path for known in page] == ["Projects/Tea Garden.md", "Projects/plan.png"] and total == 2


def test_listings_sort_by_time_and_size_with_ties_by_path(index: Index) -> None:
    index.file([filing("new.md", "n", modified=5_000), filing("a.md", "n", modified=5_000)])
    by_time, _ = index.select(Selection(sort="modified", limit=2))
    assert [known.path for known in by_time] == ["a.md", "new.md"]
    by_size, _ = index.select(Selection(sort="size", limit=1))
    assert by_size[0].path == "Tea.md"


def test_a_folder_may_be_listed_with_the_note_of_its_name(index: Index) -> None:
    file(index, {"Projects.md": "", "Projects2.md": ""})
    for recursive, found in ((True, ["Projects.md", "Projects/Deep/Log.md", "Projects/Tea Garden.md"]),
                             (False, ["Projects.md", "Projects/Tea Garden.md"])):  # fmt: skip
        page, total = index.select(Selection(folder="Projects", recursive=recursive, folder_note=True))
        assert [known.path for known in page] == found and total == len(found)


def test_hidden_notes_are_neither_listed_nor_counted(index: Index) -> None:
    page, total = index.select(Selection(visible=Visibility(("Projects",)), limit=2, offset=1))
    assert [known.path for known in page] == ["Tea.md", "日记/学习笔记.md"] and total == 3
    assert index.folders(visible=Visibility(("Projects/Deep",))) == [("Projects", 1), ("日记", 1)]


@pytest.mark.parametrize("sort", ["path", "name", "modified", "size"])
@pytest.mark.parametrize("notes_only", [True, False])
def test_texts_that_every_path_holds_leave_nothing_out(index: Index, sort: str, notes_only: bool) -> None:
    def asked(*holding: str) -> tuple[list[str], int]:
        visible = Visibility(globs=(PathGlob("**/*{Garden,plan}*"),))
        chosen = Selection(sort=sort, notes_only=notes_only, holding=holding, visible=visible)
        found, total = index.select(chosen)
        return [known.path for known in found], total

    assert asked("Projects") == asked() and asked()[1] == (1 if notes_only else 2)
    assert asked("Projects", "Garden", ".md")[0] == ["Projects/Tea Garden.md"]
    assert asked("garden") == ([], 0)


def test_folders_below_one_are_counted_without_the_others(index: Index) -> None:
    every = dict(index.folders())
    assert dict(index.folders(below="Projects")) == {
        folder: count for folder, count in every.items() if folder.startswith("Projects/")
    }
    assert index.folders(below="Pro") == []


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("kett",), {"Kettle.md", "Tea.md"}),
        (("boil", "wat"), {"Kettle.md", "Tea.md"}),
        (("cha",), {"Tea.md"}),
        (("hot",), {"Tea.md"}),
        (("deep",), {"Projects/Deep/Log.md"}),
        (("学习",), {"日记/学习笔记.md"}),
        (("aliases",), set()),
        (("kettle", "absent"), set()),
        (("!!",), set()),
    ],
)
def test_prefix_words_must_all_begin_a_word_of_title_tags_aliases_path_or_body(
    index: Index, words: tuple[str, ...], found: set[str]
) -> None:
    page, total = index.select(Selection(prefix_words=words))
    assert {known.path for known in page} == found and total == len(found)


def test_selections_can_be_narrowed_by_tags_time_and_paths(index: Index) -> None:
    assert [known.path for known in index.select(Selection(tags=("TOOL", "drink")))[0]] == ["Kettle.md"]
    assert index.select(Selection(since_ns=1_000)) == ([], 0)
    assert index.select(Selection(among=frozenset(("Tea.md", "gone.md"))))[1] == 1


# ---- search ---------------------------------------------------------------------------------------------


def test_any_word_brings_a_note_and_stems_count(index: Index) -> None:
    assert paths(index, "boils zeppelin")[0] == "Kettle.md"
    assert set(paths(index, "boil")) >= {"Kettle.md", "Tea.md"}
    assert paths(index, "学习")[0] == "日记/学习笔记.md" == paths(index, "西")[0]


def test_asked_by_name_a_note_comes_first(index: Index) -> None:
    assert paths(index, "What do my notes say about the tea garden?")[0] == "Projects/Tea Garden.md"
    assert paths(index, "What do my notes say about brew?")[0] == "Tea.md"


def test_a_hit_shows_its_best_section_with_the_words_marked(index: Index) -> None:
    (hit, *_) = find(index, asked("descale vinegar")).items
    assert (hit.path, hit.heading, hit.line) == ("Kettle.md", "Care", 5)
    assert [hit.snippet[start:end] for start, end in hit.marks] == ["Descale", "vinegar"]
    (hit, *_) = find(index, asked("spring")).items
    assert (hit.path, hit.heading, hit.line) == ("Projects/Tea Garden.md", None, 1)


def test_totals_say_how_many_hold_any_and_all_of_the_words(index: Index) -> None:
    found = find(index, asked("water vinegar"))
    assert (found.total, found.with_all, found.cut) == (2, 1, False)
    assert find(index, asked("water zeppelin")).with_all == 0
    assert find(index, asked("tea water spring", limit=1)).cut


@pytest.mark.parametrize(
    ("conditions", "found"),
    [
        ({"phrases": ("below boiling",)}, {"Tea.md"}),
        ({"phrases": ("boiling below",)}, set()),
        ({"without": ("vinegar",)}, {"Tea.md"}),
        ({"tags": ("drink",)}, {"Tea.md", "Kettle.md"}),
        ({"without_tags": ("drink/hot",)}, {"Kettle.md"}),
        ({"paths": ("KETT",)}, {"Kettle.md"}),
        ({"without_paths": ("kett",)}, {"Tea.md"}),
        ({"properties": (("Status", "active"),)}, {"Tea.md"}),
        ({"without_properties": (("status", None),)}, {"Kettle.md"}),
        ({"folder": "Projects"}, set()),
        ({"since_ns": 1_000}, {"Tea.md", "Kettle.md"}),
        ({"since_ns": 1_001}, set()),
    ],
)
def test_conditions_hold_for_every_hit(index: Index, conditions: dict[str, object], found: set[str]) -> None:
    hits = find(index, asked("water leaves boiling", **conditions))
    assert {hit.path for hit in hits.items if hit.path in ("Tea.md", "Kettle.md")} == found
    assert hits.total >= len(found)


def test_a_condition_means_words_as_written_whatever_was_asked_before(index: Index) -> None:
    assert paths(index, "boils")
    assert paths(index, phrases=("boils water",)) == ["Kettle.md"] and paths(index, phrases=("boil water",)) == []


def test_conditions_alone_bring_the_newest_first(index: Index) -> None:
    index.file([filing("New.md", "#drink", modified=9_000)])
    assert paths(index, tags=("drink",)) == ["New.md", "Kettle.md", "Tea.md"]


def test_a_hidden_note_is_not_found_not_counted_and_what_it_says_does_not_count(index: Index) -> None:
    file(index, {"Private/Diary.md": "The zeppelin of [[Kettle]] flies, zeppelin, zeppelin.\n"})
    assert set(paths(index, "zeppelin")) == {"Private/Diary.md", "Kettle.md"}
    found = find(index, asked("zeppelin", visible=Visibility(("Private",))))
    assert (found.items, found.total, found.with_all) == ((), 0, 0)
    assert "zeppelin" not in found.nearest


def test_a_sentence_that_links_to_a_note_speaks_for_it(index: Index) -> None:
    file(index, {"Review.md": "The noisiest appliance we own is [[Kettle]].\n"})
    assert set(paths(index, "noisiest appliance")) == {"Review.md", "Kettle.md"}


def test_a_name_that_a_note_links_to_often_brings_each_of_its_namesakes_once(tmp_path: Path) -> None:
    index = sqlite_index(tmp_path, {f"{folder}/Readme.md": "what it is\n" for folder in "abc"})
    file(index, {"Log.md": "went back to [[Readme]]\n" * 20})
    by_path = {note.path: number for number, note in index.notes([1, 2, 3, 4]).items()}
    log = by_path.pop(NotePath("Log.md"))
    assert sorted(index.neighbours([log])) == sorted((log, readme) for readme in by_path.values())
    index.close()


def test_a_sentence_speaks_for_the_notes_it_links_to_and_not_for_those_of_the_next(index: Index) -> None:
    texts = {name: f"# {name}\n" for name in ("Lamp.md", "a/Stove.md", "b/Stove.md", "Oven.md")}
    loud = "The noisiest appliances are [[Kettle]], [[b/Stove]], [[Nothing]] and the [[Oven]]. A [[Lamp]] is not.\n"
    file(index, {**texts, "Review.md": loud})
    numbers = index.evidence(asked("noisiest appliances"), 100).best_mention
    assert {note.path for note in index.notes(list(numbers)).values()} == {"Kettle.md", "b/Stove.md", "Oven.md"}


TAGGED = [
    ("---\ntags: [kiln]\n---\n{}", "kiln"),
    ("---\ntags: work/kiln\n---\n{}", "kiln"),
    ("---\ntags: kiln/work\n---\n{}", "kilns"),
    ("{}\n\n#kiln\n", "kiln"),
    ("{}\n\n#work/kiln/small\n", "kiln"),
    ("---\ntags: [陶窑]\n---\n{}", "陶窑"),
]


@pytest.mark.parametrize(("form", "word"), TAGGED, ids=[form for form, _ in TAGGED])
@pytest.mark.parametrize("length", [30, 1_000])
def test_a_tagged_note_stands_above_one_that_mentions_the_word(index: Index, form: str, word: str, length: int) -> None:
    prose = "river stone cloud small house window garden paper light music " * (length // 10)
    others = {f"Other {number}.md": prose[: 60 * number] for number in range(1, 30)}
    mention = f"We passed a {word} on the way, in the rain, and went on to the river after that.\n"
    file(index, {**others, "Tagged.md": form.format(prose), "Mention.md": mention})
    assert paths(index, word)[:2] == ["Tagged.md", "Mention.md"]


def test_pages_of_a_search_follow_each_other(index: Index) -> None:
    whole = paths(index, "tea water", limit=10)
    assert [*paths(index, "tea water", limit=2), *paths(index, "tea water", limit=8, offset=2)] == whole
    assert len(set(whole)) == len(whole) > 2


def test_nothing_found_names_near_spellings_and_names(index: Index) -> None:
    found = find(index, asked("vinegr"))
    assert found.items == () and "vinegar" in found.nearest
    assert "Kettle" in find(index, asked("kettlle")).nearest


@pytest.mark.parametrize("question", ["", "???", '"', "a\x00b", "NEAR(x y)", "x OR", "*", "-", "\ud800", "(" * 99])
def test_no_question_is_an_error(index: Index, question: str) -> None:
    find(index, asked(question))


def test_one_note_alone_is_found(tmp_path: Path) -> None:
    with_one = sqlite_index(tmp_path / "one", {"Only.md": "# Only\n\nThe single word."})
    assert paths(with_one, "what is the single word?") == ["Only.md"]


# ---- texts ----------------------------------------------------------------------------------------------


def test_bodies_come_in_path_order_and_may_be_narrowed(index: Index) -> None:
    def looked_at(*groups: tuple[str, ...], folder: str = "") -> list[str]:
        return [body.path for batch in index.bodies(Needles(groups), folder=folder) for body in batch]

    assert looked_at() == sorted(path for path, text in VAULT.items() if text is not None)
    assert looked_at(folder="Projects") == ["Projects/Deep/Log.md", "Projects/Tea Garden.md"]
    assert "Kettle.md" in looked_at(("ineg",))
    assert index.text("Kettle.md") == VAULT["Kettle.md"]


def test_progress_counts_notes(index: Index) -> None:
    assert index.progress().done == 5 and not index.progress().building


def test_a_whole_page_of_text_is_a_question_too(index: Index) -> None:
    page = " ".join(f"word{number}" for number in range(2_000))
    file(index, {"Page.md": page})
    assert paths(index, page + " vinegar")[0] in ("Page.md", "Kettle.md")


def test_many_names_are_looked_up_as_each_would_be(index: Index) -> None:
    keys = ["tea", "tea.md", "kettle", "学习笔记", "plan.png", "plan", "no such note"]
    each = {key: list(index.by_name(key)) for key in keys}
    assert index.by_names(keys) == {key: found for key, found in each.items() if found}
    assert each["tea"] == each["tea.md"] == ["Tea.md"]


def test_what_is_asked_in_one_moment_is_answered_from_it_whatever_is_filed_meanwhile(index: Index) -> None:
    before = [path for path, _ in index.stamps()]

    def elsewhere(files: dict[str, str]) -> None:
        thread = threading.Thread(target=file, args=(index, files))
        thread.start()
        thread.join()

    with index.snapshot():
        assert [path for path, _ in index.stamps()] == before
        elsewhere({"New one.md": "[[Nowhere]]"})
        with index.snapshot():  # inside another
            assert index.links_from(["New one.md"]) == []
        assert [path for path, _ in index.stamps()] == before
    assert [link.target for link in index.links_from(["New one.md"])] == ["Nowhere"]
    assert "New one.md" in [path for path, _ in index.stamps()]


def test_what_is_filed_and_dropped_at_once_is_as_if_it_came_one_by_one(index: Index, tmp_path: Path) -> None:
    texts = {f"n{n}.md": f"# N{n}\n\nA sentence with [[n{n + 1}|a link]], again [[Tea]]. #t{n}\n" for n in range(70)}
    changed = {path: text.replace("sentence", "thought") for path, text in texts.items()}
    together, single = sqlite_index(tmp_path / "together"), sqlite_index(tmp_path / "single")
    file(together, texts)
    together.file(
        [filing(path, changed[path]) for path in list(texts)[10:]], drop=[*list(texts)[:10], "never there.md"]
    )
    for path in texts:
        file(single, {path: texts[path]})
    for path in list(texts)[10:]:
        file(single, {path: changed[path]})
    for path in list(texts)[:10]:
        single.file([], drop=[path])
    assert facts(together) == facts(single)
    for words in ("sentence", "thought", "link", "n12"):
        assert paths(together, words) == paths(single, words)
    together.close()
    single.close()


@pytest.mark.slow
def test_what_changed_at_once_is_filed_in_a_third_of_the_time_that_it_takes_one_by_one(tmp_path: Path) -> None:
    """In processor time, which other work on the machine does not change. FTS5 merges whole segments when what is
    removed and what is put come by turns: then it is half."""

    def texts(word: str) -> list[Filing]:
        pieces = [" ".join(f"Word{n * k % 997} {word} about [[N{n + k}]]." for k in range(6)) for n in range(300)]
        return [filing(f"N{n}.md", f"# N{n}\n\n{piece}\n") for n, piece in enumerate(pieces)]

    def seconds(*groups: list[Filing]) -> float:
        began = time.process_time()
        for group in groups:
            index.file(group)
        return time.process_time() - began

    shares = []
    for attempt in range(3):
        index = sqlite_index(tmp_path / str(attempt), {f"Other {n}.md": f"[[N{n}]] is other.\n" for n in range(300)})
        index.file(texts("before"))
        together = seconds(texts("together"))
        shares.append(together / seconds(*([one] for one in texts("single"))))
        index.close()
    assert min(shares) < 1 / 3, shares


def test_what_was_prepared_ahead_is_stored_like_everything_else(tmp_path: Path) -> None:
    notes = {
        "Tea.md": "---\naliases: [Brew]\ntags: [hot]\n---\n# Tea\n\nSee [[Water]], 茶の湯.\n\n## More\n\nend\n",
        "茶.md": "茶の湯 in a line [[Tea]]\n",
    }
    plain = sqlite_index(tmp_path / "plain", notes)
    ahead = sqlite_index(tmp_path / "ahead", {"Tea.md": "# Before\n"})
    for path, text in notes.items():
        known = filing(path, text)
        prepared = ahead.prepare(Filing(known.path, "", "", 0, 0, known.note))
        ahead.file([known._replace(ready=prepared.ready)])
    assert facts(ahead) == facts(plain)
    plain.close()
    ahead.close()
