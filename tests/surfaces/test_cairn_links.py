"""Cairn's links, word for word (contracts A1, A2.9 to A2.16)."""

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.surfaces.cairn_agent import JAMIE, Agent, OpenAgent

from notewright.engine.access import Access
from notewright.engine.changes.history import list_changes, undo
from notewright.engine.library import Library
from notewright.engine.write import change_path, delete
from notewright.ledger.base import Actor, ChangeQuery
from notewright.notes.path import NotePath
from notewright.surfaces.base import Call, Cancelled
from notewright.surfaces.cairn.tools import SURFACE
from notewright.surfaces.perform import perform

pytestmark = pytest.mark.slow  # its transcripts are quick


def test_links_both_ways_have_these_keys_in_this_order(cairn: OpenAgent) -> None:
    agent = cairn(
        {
            "entities/person/jamie": JAMIE + "At [[entities/company/brainwaves|work]], [[Nowhere#x]] and [[jamie]].\n",
            "entities/company/brainwaves": "# Brainwaves\n",
            "daily/2026-02-24": "- Discussed V2.1 launch with [[Jamie]]\n- again [[Jamie]]\n",
        }
    )
    assert agent.said("links", path="entities/person/jamie") == (
        '{"path":"entities/person/jamie","incoming":[{"path":"daily/2026-02-24","title":"2026-02-24",'
        '"context":"Discussed V2.1 launch with [[Jamie]]"}],"outgoing":[{"path":"entities/company/brainwaves",'
        '"title":"Brainwaves"},{"path":"Nowhere","title":"Nowhere"}]}'
    )


def test_the_direction_that_is_not_asked_for_is_empty(cairn: OpenAgent) -> None:
    agent = cairn({"a": "[[b]]", "b": "[[a]]"})
    one = [{"path": "b", "title": "b"}]
    assert agent.json("links", path="a", direction="out") == {"path": "a", "incoming": [], "outgoing": one}
    assert agent.json("links", path="a", direction="in")["outgoing"] == []
    assert len(agent.json("links", path="a", direction="both")["incoming"]) == 1


def ends(agent: Agent, way: str, **args: Any) -> list[str]:
    return [end["path"] for end in agent.json("links", **args)[way]]


def test_depth_goes_further_and_names_every_note_once(cairn: OpenAgent) -> None:
    agent = cairn({"a": "[[b]] [[c]]", "b": "[[d]] [[a]]", "c": "[[d]] [[gone]]", "d": "[[e]]", "e": "[[a]]"})
    assert ends(agent, "outgoing", path="a") == ["b", "c"]
    assert ends(agent, "outgoing", path="a", depth=2) == ["b", "c", "d", "gone"]
    assert ends(agent, "outgoing", path="a", depth=99) == ["b", "c", "d", "gone", "e"]
    assert ends(agent, "incoming", path="e", depth=2) == ["d", "b", "c"]


def test_links_in_code_and_to_oneself_are_none(cairn: OpenAgent) -> None:
    agent = cairn({"a": "[[a]] [[#h]] `[[b]]`\n```\n[[b]]\n```\n    [[b]]\n[b](b.md)\n", "b": ""})
    assert agent.json("links", path="a") == {"path": "a", "incoming": [], "outgoing": []}


@pytest.mark.parametrize(
    "written",
    [
        "people/jamie",
        "People/JAMIE",
        "JW",
        " jw ",
        "Jamie Wilson",
        "jamie",
        "jamie wilson#x",
        "jamie-wilson|he",
        "people-jamie",
    ],
)
def test_a_link_may_use_the_path_an_alias_the_title_the_segment_or_a_slug(cairn: OpenAgent, written: str) -> None:
    agent = cairn({"people/jamie": "---\naliases: [JW]\ntitle: Jamie Wilson\n---\n", "a": f"![[{written}]]"})
    assert ends(agent, "incoming", path="people/jamie") == ["a"]
    assert ends(agent, "outgoing", path="a") == ["people/jamie"]


def test_a_slug_finds_a_name_with_blanks(cairn: OpenAgent) -> None:
    agent = cairn({"p/Old Contact": "", "a": "[[old-contact]]", "b": "[[P/old contact]]"})
    assert ends(agent, "incoming", path="p/Old Contact") == ["a", "b"]


def test_an_alias_comes_before_the_title_and_segment_of_another_note(cairn: OpenAgent) -> None:
    agent = cairn({"x/tea": "# tea\n", "y": "---\naliases: [Tea]\n---\n", "a": "[[tea]]"})
    assert ends(agent, "outgoing", path="a") == ["y"]
    assert ends(agent, "incoming", path="x/tea") == []


def test_a_link_that_was_there_before_its_target_is_a_backlink_afterwards(cairn: OpenAgent) -> None:
    agent = cairn({"a": "[[JW]] [[people/new]]"})
    assert ends(agent, "outgoing", path="a") == ["JW", "people/new"]
    assert ends(agent, "incoming", path="people/new") == ["a"]
    agent.json("write", path="people/new", content="x", aliases=["JW"])
    assert ends(agent, "outgoing", path="a") == ["people/new"]
    assert agent.shown(path="people/new")["backlinks"] == "[a]"


def test_links_to_a_deleted_note_stay_under_its_path_also_those_by_alias(cairn: OpenAgent) -> None:
    agent = cairn({
        "people/jamie": "---\naliases: [JW]\ntitle: Jamie Wilson\n---\n[[a]]",
        "a": "[[JW]]", "b": "[[people/jamie]]", "c": "[[jamie-wilson]]", "d": "[[other]]",
    })  # fmt: skip
    agent.json("delete", path="people/jamie")
    assert ends(agent, "incoming", path="people/jamie") == ["a", "b", "c"]
    assert agent.json("links", path="a", direction="out")["outgoing"] == [{"path": "people/jamie", "title": "JW"}]
    assert sorted(agent.paths("search", backlinks_to="people/jamie")) == ["a", "b", "c"]
    assert ends(agent, "incoming", path="a") == []
    assert agent.refused("read", path="people/jamie").startswith("not_found: ")


def test_what_a_deleted_note_was_called_may_be_claimed_by_another(cairn: OpenAgent) -> None:
    agent = cairn({"old": "---\naliases: [JW]\n---\n", "a": "[[JW]]"})
    agent.json("delete", path="old")
    agent.json("write", path="new", content="x", aliases=["JW"])
    assert ends(agent, "outgoing", path="a") == ["new"]
    assert agent.refused("links", path="old") == "not_found: Note 'old' does not exist"


def test_without_its_history_a_dangling_link_is_known_by_what_is_written(cairn: OpenAgent) -> None:
    agent = cairn({"old": "---\naliases: [JW]\n---\n", "a": "[[JW]] [[old]]"})
    agent.json("delete", path="old")
    agent.ws.follower.wait(30)
    agent.ws.ledger.trim(keep_days=0, keep_bytes=0, now=list_changes(agent.ws, ChangeQuery())[0].at + 1)
    assert ends(agent, "outgoing", path="a") == ["JW", "old"]
    assert ends(agent, "incoming", path="old") == ["a"]


def test_a_deleted_note_that_is_brought_back_is_linked_to_again(cairn: OpenAgent) -> None:
    agent = cairn({"old": "---\naliases: [JW]\n---\n", "a": "[[JW]]"})
    agent.json("delete", path="old")
    assert ends(agent, "outgoing", path="a") == ["old"]
    undo(agent.ws, list_changes(agent.ws, ChangeQuery())[0].id)
    assert ends(agent, "outgoing", path="a") == ["old"]
    assert agent.shown(path="old")["backlinks"] == "[a]"


def test_a_moved_note_is_not_a_deleted_one(cairn: OpenAgent) -> None:
    agent = cairn({"old": "---\naliases: [JW]\n---\n", "a": "[[JW]]"})
    change_path(agent.ws, NotePath("old.md"), NotePath("new.md"), lambda text: "no alias")
    assert ends(agent, "outgoing", path="a") == ["JW"]


def test_what_other_surfaces_put_into_the_trash_is_deleted(cairn: OpenAgent) -> None:
    agent = cairn({"old": "---\naliases: [JW]\n---\n", "a": "[[JW]]"})
    delete(agent.ws, NotePath("old.md"), trash=True)
    assert ends(agent, "incoming", path="old") == ["a"]


def test_a_deleted_note_that_may_not_be_seen_is_not_named(cairn: OpenAgent) -> None:
    agent = cairn({"Private/old": "---\naliases: [JW]\n---\n", "a": "[[JW]]"})
    agent.json("delete", path="Private/old")
    other = replace(agent, ws=replace(agent.ws, access=Access(hide=("Private/**",))))
    assert ends(other, "outgoing", path="a") == ["JW"]
    assert other.refused("links", path="Private/old") == "not_found: Note 'Private/old' does not exist"


def test_a_path_nobody_ever_wrote_is_not_found(cairn: OpenAgent) -> None:
    agent = cairn({"a": "[[tea]]"})
    assert agent.refused("links", path="x/tea") == "not_found: Note 'x/tea' does not exist"
    assert ends(agent, "incoming", path="Tea") == ["a"]


@pytest.mark.parametrize(
    ("line", "context"),
    [
        ("- [[t]] x", "[[t]] x"),
        ("  12) see [[t]]", "see [[t]]"),
        ("> - quoted [[t]]", "quoted [[t]]"),
        ("### About [[t]]", "About [[t]]"),
        ("#tag [[t]] -", "#tag [[t]] -"),
        ("- [ ] call [[t|them]]", "[ ] call [[t|them]]"),
    ],
)
def test_a_context_is_the_line_without_its_marks(cairn: OpenAgent, line: str, context: str) -> None:
    agent = cairn({"t": "", "a": f"before\n{line}\nafter"})
    assert agent.json("links", path="t")["incoming"][0]["context"] == context


def test_a_long_line_is_cut_around_its_link(cairn: OpenAgent) -> None:
    agent = cairn({"t": "", "a": "x" * 500 + " [[t]] " + "y" * 500, "b": "[[t]] " + "z" * 300})
    first, second = (end["context"] for end in agent.json("links", path="t")["incoming"])
    assert first.startswith("...x") and first.endswith("y...") and " [[t]] " in first and len(first) == 166
    assert second.startswith("[[t]] z") and second.endswith("z...") and len(second) == 163


def test_an_answer_of_thousands_of_links_is_cut_and_says_so(cairn: OpenAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("notewright.engine.find.graph.MAX_NEIGHBOURS", 3)
    agent = cairn({"hub": "", **{f"n{number}": "[[hub]]" for number in range(5)}})
    answer = agent("links", path="hub")
    assert len(json.loads(answer.text)["incoming"]) == 3
    assert answer.meta == {"truncated": True}


def test_a_client_that_gives_up_stops_the_walk(cairn: OpenAgent) -> None:
    asked = iter([False, False, True])
    call = Call(Library.of([cairn({"a": "[[b]]", "b": "[[c]]"}).ws]), Actor(), cancelled=lambda: next(asked))
    with pytest.raises(Cancelled):
        perform(SURFACE, call, "cairn_links", {"path": "a", "depth": 5, "direction": "out"})


def test_notes_are_resources_of_the_bound_workspace(cairn: OpenAgent) -> None:
    agent = cairn({"p/a": "text"})
    call = Call(Library.of([agent.ws]), Actor())
    assert SURFACE.resources is not None
    assert SURFACE.resources.read(call, "note:///p/a.md")["text"] == "text"


def test_hostile_notes_do_no_harm(cairn: OpenAgent) -> None:
    agent = cairn({
        "deep": "---\na: " + "[" * 5000 + "\n---\n", "many": "[[x]] " * 5000, "bad": b"\xff\xfe\x00",
        "json": '---\n{"title": "\\ud800", "type": ["x"], "tags": {"a": 1}}\n---\nbody',
        "types": "---\ntitle: true\ntype: {a: 1}\ntags: 7\naliases: {x: y}\nmodified: [1]\n---\nbody",
    })  # fmt: skip
    for path in ("deep", "many", "bad", "json", "types"):
        assert not agent("read", path=path).is_error
        assert not agent("read", path=path, metadata_only=True).is_error
        assert not agent("links", path=path, depth=3).is_error
    assert agent.json("list", sort="alpha")["total"] == 5
    assert len(agent.json("search", path_prefix="many")["results"]) == 1
