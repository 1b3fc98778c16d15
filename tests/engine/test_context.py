"""Context packs hold their budget and say where each passage stands."""

import pytest

from notewright.engine import about_note, about_words
from notewright.notes import NotePath


def test_the_best_section_of_each_note_is_taken(workspace) -> None:
    ws = workspace({"A.md": "# A\n\nwords\n\n## Tea\n\ngreen tea\n\n## Other\n\nx\n", "B.md": "no such thing\n"})
    pack = about_words([ws], "green tea", 1000)
    (first,) = [one for one in pack.passages if one.path == "A.md"]
    assert (first.heading, first.first_line, first.last_line, first.text) == ("Tea", 5, 7, "## Tea\n\ngreen tea")


def test_several_workspaces_share_one_budget_by_rank(workspace) -> None:
    one = workspace({f"N{n}.md": "tea " * 5 + "filler " * 50 for n in range(5)}, name="One")
    two = workspace({"Best.md": "# Tea\n\ntea tea tea\n"}, name="Two")
    pack = about_words([one, two], "tea", 300)
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
    pack = about_note(ws, NotePath("Hub.md"), 1000)
    assert [(one.path, one.why, one.first_line) for one in pack.passages] == [
        ("Hub.md", "itself", 1),
        ("In.md", "links here", 2),
        ("Out.md", "linked", 1),
    ]


@pytest.mark.parametrize("budget", [100, 200, 500, 3000])
def test_one_long_note_is_cut_at_a_line_and_leaves_room_for_others(workspace, budget: int) -> None:
    ws = workspace({"Long.md": "# Long\n" + "tea and more tea\n" * 3000, "Short.md": "tea\n"})
    pack = about_words([ws], "tea", budget)
    assert sum(passage.cost for passage in pack.passages) <= budget * 4
    assert {passage.path for passage in pack.passages} >= ({"Long.md", "Short.md"} if budget > 100 else {"Long.md"})
    long = next(passage for passage in pack.passages if passage.path == "Long.md")
    assert long.text.endswith("tea and more tea")
    assert long.last_line == long.first_line + long.text.count("\n")
