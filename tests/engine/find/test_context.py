"""Context packs hold their budget and say where each passage stands."""

from pathlib import Path

import pytest
from tests.surfaces.notes_agent import agents

from notewright.engine.find.context import pack_for_note, pack_for_words
from notewright.notes.path import NotePath


def test_the_best_section_of_each_note_is_taken(workspace) -> None:
    ws = workspace({"A.md": "# A\n\nwords\n\n## Tea\n\ngreen tea\n\n## Other\n\nx\n", "B.md": "no such thing\n"})
    pack = pack_for_words([ws], "green tea", 1000)
    (first,) = [one for one in pack.passages if one.path == "A.md"]
    assert (first.heading, first.first_line, first.last_line, first.text) == ("Tea", 5, 7, "## Tea\n\ngreen tea")


def test_several_workspaces_share_one_budget_by_rank(workspace) -> None:
    one = workspace({f"N{n}.md": "tea " * 5 + "filler " * 50 for n in range(5)}, name="One")
    two = workspace({"Best.md": "# Tea\n\ntea tea tea\n"}, name="Two")
    pack = pack_for_words([one, two], "tea", 300)
    assert {passage.ws.name for passage in pack.passages} >= {"Two"}
    assert sum(passage.cost for passage in pack.passages) <= 300 * 4
    assert pack.left_out


def test_around_a_note_are_itself_those_that_link_to_it_and_what_it_links_to(workspace) -> None:
    ws = workspace(
        {
            "Hub.md": "---\ntags: x\n---\n[[Out]] ![[p.png]]\n",
            "In.md": "first\nsee [[Hub]] here\n[[Hub]]\n",
            "Out.md": "# Out\n\nabout out\n\n## Deep\n\nnot this\n",
            "p.png": b"1",
        }
    )
    pack = pack_for_note(ws, NotePath("Hub.md"), 1000)
    assert [(one.path, one.why, one.first_line) for one in pack.passages] == [
        ("Hub.md", "itself", 1),
        ("In.md", "links here", 2),
        ("Out.md", "linked", 1),
    ]


@pytest.mark.parametrize("budget", [100, 200, 500, 3000])
def test_one_long_note_is_cut_at_a_line_and_leaves_room_for_others(workspace, budget: int) -> None:
    ws = workspace({"Long.md": "# Long\n" + "tea and more tea\n" * 3000, "Short.md": "tea\n"})
    pack = pack_for_words([ws], "tea", budget)
    assert sum(passage.cost for passage in pack.passages) <= budget * 4
    assert {passage.path for passage in pack.passages} >= ({"Long.md", "Short.md"} if budget > 100 else {"Long.md"})
    long = next(passage for passage in pack.passages if passage.path == "Long.md")
    assert long.text.endswith("tea and more tea")
    assert long.last_line == long.first_line + long.text.count("\n")


ENGLISH = "The kettle was on the fire for tea, and nobody in the house knew for how long it had been there. "
CHINESE = "茶壶在火上烧了很久，屋里没有人知道它在那里放了多长时间。"


@pytest.mark.parametrize("sentence", [ENGLISH, CHINESE], ids=["english", "chinese"])
@pytest.mark.parametrize("notes", [1, 3, 12])
def test_long_sections_fill_the_budget_and_never_more(tmp_path: Path, sentence: str, notes: int) -> None:
    text = sentence * (90_000 // notes // len(sentence))
    with agents(tmp_path) as make:
        others = " ".join(f"[[Long {number}]]" for number in range(notes))
        files = {f"Long {number}.md": f"# Tea 茶壶 {number}\n\n{text}\n" for number in range(1, notes)}
        agent = make({"Long 0.md": f"# Tea 茶壶 0\n\n{others}\n\n{text}\n", **files})
        for budget in (500, 1_000, 4_000, 6_000 if notes > 1 else 20_000):
            for about in ("tea" if sentence is ENGLISH else "茶壶", "Long 0.md"):
                said = agent.said("context", about=about, budget=budget)
                assert 0.85 * budget * 4 <= len(said) <= budget * 4, (about, budget, len(said))


@pytest.mark.parametrize("budget", [1_000, 4_000])
def test_short_lines_and_many_short_sections_fill_the_budget_too(tmp_path: Path, budget: int) -> None:
    with agents(tmp_path) as make:
        lists = make({f"N{n}.md": "# Tea\n" + "- tea\n" * 3_000 for n in range(4)})
        short = make({f"N{n:03}.md": f"# Tea {n}\n\n" + ENGLISH * 5 for n in range(120)})
        for agent in (lists, short):
            assert 0.85 * budget * 4 <= len(agent.said("context", about="tea", budget=budget)) <= budget * 4


def test_a_passage_is_cut_after_a_sentence_and_says_how_far_it_goes_on(tmp_path: Path) -> None:
    with agents(tmp_path) as make:
        said = make({"Tea.md": "# Tea\n\n" + f"{ENGLISH * 12}\n\n" * 10}).said("context", about="kettle", budget=300)
    assert "## Tea.md › Tea (L1-3; cut, goes on to L21)" in said
    assert said.endswith("had been there.")


def test_a_cut_in_the_last_line_says_so(tmp_path: Path) -> None:
    with agents(tmp_path) as make:
        assert "(L1; cut in this line)" in make({"A.md": ENGLISH * 50}).said("context", about="kettle", budget=300)


def test_a_budget_too_small_for_anything_says_what_was_left_out(tmp_path: Path) -> None:
    path = "/".join(["a long name of a folder"] * 20) + "/Tea.md"
    with agents(tmp_path) as make:
        said = make({path: ENGLISH}).said("context", about="kettle", budget=100)
    assert said == "0 passages about “kettle”:\n\n[1 more passage left out: raise budget]"
