"""`notes`, what was done and taking it back (contracts G, design §7.4)."""

import re
from typing import Any

import pytest
from tests.conftest import read_files
from tests.surfaces.notes_agent import Agent, MakeAgent

POEM = "".join(f"line {number}\n" for number in range(1, 31))


class Clock:
    """Goes on by a minute whenever it is looked at."""

    def __init__(self) -> None:
        self.now = 1793620800.0  # 2026-11-02T12:00:00Z

    def __call__(self) -> float:
        self.now += 60
        return self.now


def files(agent: Agent) -> dict[str, bytes]:
    return {path: data for path, data in read_files(agent.root).items() if not path.startswith(".trash/")}


# ---- history ------------------------------------------------------------------------------------------


def test_history_says_when_who_with_which_tool_and_what_newest_first(make: MakeAgent) -> None:
    agent = make({"A.md": "1"}, clock=Clock())
    first = agent.done("edit", path="A", edits=[{"append": "2"}])
    second = agent.another("cursor").done("write", path="B", content="x")
    assert agent.said("history").split("\n") == [
        "2 changes, newest first:",
        f"{second}  2026-11-02T12:02:00Z  cursor notes.write: created B.md",
        f"{first}  2026-11-02T12:01:00Z  claude notes.edit: edited A.md",
    ]


def test_the_history_of_a_note_follows_its_moves_and_outlives_it(make: MakeAgent) -> None:
    agent = make({"A.md": "1", "Other.md": ""})
    made = [agent.done("edit", path="A", edits=[{"append": "2"}]), agent.done("move", **{"from": "A", "to": "x/B"})]
    agent.done("edit", path="Other", edits=[{"append": "2"}])
    made.append(agent.done("delete", path="B"))
    for name in ("x/B", "x/B.md", "B", "b"):
        assert re.findall(r"^(\w+)  ", agent.said("history", path=name), re.MULTILINE) == made[::-1]
    assert agent.said("history", path="x").startswith("2 changes") or agent.said("history", path="x").startswith("3 ")
    assert agent.refused("history", path="Nope").startswith("not_found: there is no Nope. ")


def test_the_history_of_a_note_follows_several_moves_that_were_taken_back_together(make: MakeAgent) -> None:
    agent = make({"A.md": "1"})
    made = [agent.done("move", **{"from": "A", "to": "x/B"}), agent.done("edit", path="B", edits=[{"append": "2"}])]
    made.append(agent.done("move", **{"from": "B", "to": "y/C"}))
    made.append(agent.done("undo", since="2020-01-01"))
    assert re.findall(r"^(\w+)  ", agent.said("history", path="A"), re.MULTILINE) == made[::-1]


def test_moves_taken_back_together_and_made_again_carry_later_words_along(make: MakeAgent) -> None:
    agent = make({"A.md": "1\n"})
    agent.done("move", **{"from": "A", "to": "x/B"})
    agent.done("move", **{"from": "B", "to": "y/C"})
    back = agent.done("undo", since="2020-01-01")
    agent.done("edit", path="A", edits=[{"append": "later"}])
    agent.done("undo", change=back)
    assert files(agent) == {"y/C.md": b"1\nlater"}


def test_names_that_were_swapped_are_swapped_back(make: MakeAgent) -> None:
    agent = make({"A.md": "a\n", "B.md": "b\n"})
    for old, new in (("A", "T"), ("B", "A"), ("T", "B")):
        agent.done("move", **{"from": old, "to": new})
    back = agent.done("undo", since="2020-01-01")
    assert files(agent) == {"A.md": b"a\n", "B.md": b"b\n"}
    agent.done("undo", change=back)
    assert files(agent) == {"A.md": b"b\n", "B.md": b"a\n"}


def test_a_note_moved_there_and_back_is_not_said_to_come_from_elsewhere(make: MakeAgent) -> None:
    agent = make({"A.md": "1\n"})
    made = [agent.done("move", **{"from": "A", "to": "B"}), agent.done("move", **{"from": "B", "to": "A"})]
    made.append(agent.done("edit", path="A", edits=[{"append": "2"}]))
    made.append(agent.done("undo", since="2020-01-01"))
    assert re.findall(r"^(\w+)  ", agent.said("history", path="A"), re.MULTILINE)[0] == made[-1]
    assert files(agent) == {"A.md": b"1\n"}


def test_history_since_a_time_and_up_to_a_limit(make: MakeAgent) -> None:
    agent = make({"A.md": ""}, clock=Clock())
    for _ in range(4):
        agent.done("edit", path="A", edits=[{"append": "x\n"}])
    assert agent.said("history", since="2026-11-02T12:03:00Z").startswith("2 changes, newest first:")
    assert agent.said("history", since="2026-11-03") == "No changes were made through this server since then."
    lines = agent.said("history", limit=3).split("\n")
    assert lines[0] == "3 changes, newest first:"
    assert lines[-1] == "[more changes: raise limit]"
    assert agent.refused("history", since="soon").startswith("invalid: 'soon' is not a time. ")


def test_one_change_is_shown_as_a_diff(make: MakeAgent) -> None:
    agent = make({"Tea.md": "one\ntwo\n", "A.md": "[[Tea]]\n"})
    change = agent.done("move", **{"from": "Tea", "to": "Cha"})
    lines = agent.said("history", change=change).split("\n")
    assert lines[0].endswith(" claude notes.move: moved Tea.md to Cha.md")
    assert lines[1:] == ["moved Cha.md from Tea.md", "changed A.md", "@@ -1 +1 @@", "-[[Tea]]", "+[[Cha]]"]
    said = agent.refused("history", change="nope")
    assert said == f"not_found: there is no change nope. The nearest are {change}."


# ---- undo ---------------------------------------------------------------------------------------------

CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("write", {"path": "New/Deep/Note", "content": "x"}),
    ("edit", {"path": "Tea", "edits": [{"replace": "one", "with": "1"}, {"append": "end"}]}),
    ("properties", {"path": "Tea", "set": {"a": 1}, "add_tags": ["t"]}),
    ("move", {"from": "Tea", "to": "Drinks/Cha"}),
    ("move", {"from": "f", "to": "g/"}),
    ("move", {"from": "p.png", "to": "pics/"}),
    ("delete", {"path": "Tea"}),
    ("delete", {"path": "p.png"}),
    ("daily", {"append": "x", "section": "Log"}),
]


@pytest.mark.parametrize(("tool", "args"), CHANGES, ids=[f"{tool} {list(args.values())}" for tool, args in CHANGES])
def test_nothing_a_tool_does_is_beyond_undo_and_undo_is_not_either(
    make: MakeAgent, tool: str, args: dict[str, Any]
) -> None:
    agent = make({"Tea.md": "one\n", "A.md": "[[Tea]] [[f/B]] ![[p.png]]", "f/B.md": "[[Tea]]", "p.png": b"\x89\xff"})
    before = files(agent)
    change = agent.done(tool, **args)
    after = files(agent)
    assert after != before
    back = agent.done("undo", change=change)
    assert files(agent) == before
    assert not (agent.root / "New").exists()
    agent.done("undo", change=back)
    assert files(agent) == after


def test_an_undo_around_later_words_says_what_was_kept(make: MakeAgent) -> None:
    agent = make({"Poem.md": POEM, "B.md": "b\n"})
    change = agent.done("edit", path="Poem", edits=[{"replace": "line 2\n", "with": "LINE 2\n"}])
    agent.outside("Poem.md", agent.text("Poem.md").replace("line 29", "later words"))
    for args in ({"dry_run": True}, {}):
        lines = agent.said("undo", change=change, **args).split("\n")
        assert lines[1] == "Poem.md is as before, but for later changes, which were kept:"
        assert "+later words" in lines and "-line 29" in lines and "-LINE 2" not in lines
    assert agent.text("Poem.md") == POEM.replace("line 29", "later words")


def test_a_note_moved_back_with_later_words_says_so(make: MakeAgent) -> None:
    agent = make({"Tea.md": "one\n"})
    change = agent.done("move", **{"from": "Tea", "to": "Cha"})
    agent.done("edit", path="Cha", edits=[{"append": "two\n"}])
    said = agent.said("undo", change=change)
    assert "Tea.md is back, but for later changes, which were kept:" in said and "+two" in said


def test_what_stands_in_the_way_is_named(make: MakeAgent) -> None:
    agent = make({"Poem.md": POEM})
    first = agent.done("edit", path="Poem", edits=[{"replace": "line 3\n", "with": "THREE\n"}])
    second = agent.another("cursor").done("edit", path="Poem", edits=[{"replace": "THREE", "with": "3"}])
    now = agent.text("Poem.md")
    assert agent.refused("undo", change=first) == (
        f"conflict: Poem.md was changed since at the same place by cursor (change {second}). Undo {second} first."
    )
    assert agent.refused("undo", change=first, dry_run=True).startswith("conflict: ")
    assert agent.text("Poem.md") == now
    agent.done("undo", change=second)
    agent.done("undo", change=first)
    assert agent.text("Poem.md") == POEM


def test_a_name_that_is_taken_again_stands_in_the_way(make: MakeAgent) -> None:
    agent = make({"A.md": "old"})
    change = agent.done("delete", path="A")
    agent.done("write", path="A", content="new")
    assert agent.refused("undo", change=change).startswith("conflict: A.md is there again by claude (change ")
    assert agent.text("A.md") == "new"


def test_a_client_takes_back_its_own_afternoon_in_one_change(make: MakeAgent) -> None:
    agent = make({"A.md": "a\n", "B.md": "b\n", "C.md": "c\n[[A]]"}, clock=Clock())
    kept = agent.done("edit", path="A", edits=[{"append": "morning\n"}])
    before = files(agent)
    agent.done("write", path="New", content="x")
    agent.done("move", **{"from": "A", "to": "x/A2"})
    other = agent.another("cursor").done("edit", path="B", edits=[{"append": "theirs\n"}])
    agent.done("edit", path="C", edits=[{"append": "\nmine"}])
    agent.done("delete", path="New")
    dry = agent.said("undo", since="2026-11-02T12:02:00Z", dry_run=True)
    assert dry.startswith("Would take back 4 changes in ")
    change = agent.done("undo", since="2026-11-02T12:02:00Z")
    assert files(agent) == before | {"B.md": b"b\ntheirs\n"}
    said = agent.said("history", limit=1)
    assert f"{change}  " in said
    assert said.split("\n")[1].endswith(": undid 4 changes")
    assert {kept, other} <= set(re.findall(r"^(\w{6,})  ", agent.said("history"), re.MULTILINE))
    assert agent.refused("undo", since="2026-11-02T12:02:00Z").startswith("not_found: ")


def test_both_or_neither_of_change_and_since_is_invalid(make: MakeAgent) -> None:
    agent = make({"A.md": ""})
    for args in ({}, {"change": "abcdef", "since": "2026-01-01"}, {"dry_run": True}):
        assert agent.refused("undo", **args) == "invalid: give either change or since. History shows the ids."


def test_an_unknown_change_names_the_nearest_three(make: MakeAgent) -> None:
    agent = make({"A.md": ""})
    assert agent.refused("undo", change="abc") == (
        "not_found: there is no change abc. Nothing was changed through Notewright yet."
    )
    made = [agent.done("edit", path="A", edits=[{"append": "x"}]) for _ in range(5)]
    said = agent.refused("undo", change=made[2][:-1] + "?")
    assert re.search(rf"The nearest are .*\b{made[2]}\b", said)
