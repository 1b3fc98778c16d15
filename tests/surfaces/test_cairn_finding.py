"""Cairn's search, links and list, word for word (contracts A1 to A3)."""

import base64
import json
from typing import Any

import pytest
from tests.surfaces.cairn_agent import JAMIE, OpenAgent

pytestmark = pytest.mark.slow  # its transcripts are quick

BASE = 1_771_941_600  # 2026-02-24T14:00:00Z


def cursor(value: Any) -> str:
    return base64.b64encode(json.dumps(value, separators=(",", ":")).encode()).decode()


# ---- search -------------------------------------------------------------------------------------------


def test_a_result_has_these_keys_in_this_order(cairn: OpenAgent) -> None:
    agent = cairn(
        {"daily/1": "---\ntags: [daily]\n---\nDiscussed V2.1 launch\nwith [[Jamie]]\n"}, times={"daily/1": BASE}
    )
    assert agent.said("search", query="laun") == (
        '{"results":[{"path":"daily/1","title":"1","snippet":"Discussed V2.1 launch with [[Jamie]]",'
        '"tags":["daily"],"modified":"2026-02-24T14:00:00Z"}],"total":1}'
    )


@pytest.mark.parametrize("args", [{}, {"limit": 5}, {"cursor": cursor({"offset": 0})}, {"tags": []}, {"query": " "}])
def test_a_search_for_nothing_is_refused(cairn: OpenAgent, args: dict[str, Any]) -> None:
    assert cairn().refused("search", **args) == "validation_error: At least one search parameter is required"


@pytest.mark.parametrize(
    ("query", "paths"),
    [
        ("gree tea", ["a", "b"]),
        ("TEA", ["a", "b", "c", "e"]),
        ("ea", []),
        ("tea black", ["c"]),
        ("kettle", ["b"]),
        ("drinks", ["b"]),
        ("hotdrink", ["e"]),
        ("oolong", ["e"]),
        ("cafe", ["d"]),
        ("緑茶", ["d"]),
        ("!!!", []),
        ('tea OR NOT "x* (', []),
    ],
)
def test_all_words_must_begin_words_of_title_tags_aliases_path_or_body(
    cairn: OpenAgent, query: str, paths: list[str]
) -> None:
    agent = cairn(
        {
            "a": "Green tea.",
            "drinks/b": "---\ntitle: Kettle\n---\ngreens and teapots",
            "c": "# Black tea\n",
            "d": "Café 緑茶の話",
            "e": "---\ntags: [hotdrink]\naliases: [Oolong Tea]\n---\n",
        }
    )
    found = agent.json("search", query=query)
    assert sorted(row["path"].removeprefix("drinks/") for row in found["results"]) == paths
    assert found["total"] == len(paths)


def test_results_come_latest_first_then_by_path(cairn: OpenAgent) -> None:
    notes = {name: "tea" for name in "bcad"}
    agent = cairn(notes, times={"a": BASE, "b": BASE, "c": BASE + 60, "d": BASE - 60})
    assert agent.paths("search", query="tea") == ["c", "a", "b", "d"]


def test_all_tags_must_be_there_whole_in_any_case(cairn: OpenAgent) -> None:
    agent = cairn({"a": "---\ntags: [Tea, hot]\n---\n", "b": "---\ntags: [tea/green, hot]\n---\n", "c": "tea"})
    assert agent.paths("search", tags=["tea"]) == ["a"]
    assert agent.paths("search", tags=["HOT", "#tea"]) == ["a"]
    assert agent.paths("search", tags=["tea", "nope"]) == []


@pytest.mark.parametrize("prefix", ["entities/person", "/entities/person/", "entities/person.md"])
def test_a_path_prefix_is_made_of_whole_segments(cairn: OpenAgent, prefix: str) -> None:
    paths = ["entities/person", "entities/person/a", "entities/person/x/b", "entities/personal", "entities/personal/c"]
    agent = cairn({path: "x" for path in paths})
    assert sorted(agent.paths("search", path_prefix=prefix)) == paths[:3]


def test_backlinks_are_found_with_the_line_of_the_link(cairn: OpenAgent) -> None:
    agent = cairn(
        {"people/jamie": JAMIE, "a": "x\n> met [[Jamie Wilson]] today\n", "b": "[[jamie]] tea\n", "c": "none"}
    )
    found = agent.json("search", backlinks_to="people/jamie")
    assert {row["path"]: row["snippet"] for row in found["results"]} == {
        "a": "met [[Jamie Wilson]] today",
        "b": "[[jamie]] tea",
    }
    assert agent.paths("search", backlinks_to="people/jamie", query="tea") == ["b"]
    assert agent.json("search", backlinks_to="never/there") == {"results": [], "total": 0}


@pytest.mark.parametrize(
    ("since", "paths"),
    [
        ("2026-02-24T13:59:59Z", ["later", "then"]),
        ("2026-02-24T14:00:00Z", ["later"]),
        ("2026-02-24T15:00:00+01:00", ["later"]),
        ("2026-02-24", ["later", "then"]),
        ("2026-02-25", []),
        ("9999-12-31", []),
        ("0001-01-01", ["later", "then"]),
    ],
)
def test_modified_since_leaves_that_moment_out(cairn: OpenAgent, since: str, paths: list[str]) -> None:
    agent = cairn({"then": "x", "later": "x"}, times={"then": BASE + 0.5, "later": BASE + 1})
    assert agent.paths("search", modified_since=since) == paths


@pytest.mark.parametrize(
    ("body", "query", "snippet"),
    [
        ("short\n\n text ", "text", "short text"),
        ("w " * 100 + "Found here " + "z " * 100, "found", "..."),
        ("start " * 40, "a", "start " * 20),
        ("", "a", ""),
    ],
)
def test_a_snippet_is_a_window_around_the_first_word_found(
    cairn: OpenAgent, body: str, query: str, snippet: str
) -> None:
    agent = cairn({"a": "---\ntype: t\n---\n" + body})
    shown = agent.json("search", query=query, path_prefix="a")["results"][0]["snippet"]
    assert len(shown) <= 126
    if snippet == "...":
        assert shown.startswith("...") and shown.endswith("...") and "Found here" in shown
    elif len(body) > 120:
        assert shown == snippet.strip() + "..."
    else:
        assert shown == snippet


def test_without_a_query_the_snippet_is_the_beginning_of_the_body(cairn: OpenAgent) -> None:
    agent = cairn({"a": "---\ntags: [t]\n---\n\n# Title\ntext\n"})
    assert agent.json("search", tags=["t"])["results"][0]["snippet"] == "# Title text"


# ---- pages --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tool", "args"), [("search", {"query": "tea"}), ("list", {})])
def test_pages_follow_each_other_until_the_cursor_is_gone(cairn: OpenAgent, tool: str, args: dict[str, Any]) -> None:
    agent = cairn({f"n{number:02}": "tea" for number in range(25)})
    first = agent.json(tool, **args)
    assert (first["total"], first["cursor"]) == (25, "eyJvZmZzZXQiOjIwfQ==")
    last = agent.json(tool, **args, cursor=first["cursor"])
    assert "cursor" not in last and last["total"] == 25
    key = "results" if tool == "search" else "notes"
    assert len({row["path"] for row in first[key] + last[key]}) == 25
    assert "cursor" not in agent.json(tool, **args, limit=25)
    assert agent.json(tool, **args, cursor=cursor({"offset": 10**30}))[key] == []


@pytest.mark.parametrize(
    "wrong",
    ["!", "abc", cursor(20), cursor({"offset": -1}), cursor({"offset": True}), cursor({"offset": "1"}), "é", "20"],
)
def test_a_cursor_that_is_none_of_ours_is_refused(cairn: OpenAgent, wrong: str) -> None:
    agent = cairn({"a": "x"})
    assert agent.refused("search", query="x", cursor=wrong) == "validation_error: Invalid cursor"
    assert agent.refused("list", cursor=wrong) == "validation_error: Invalid cursor"


def test_a_limit_is_at_least_one_and_at_most_a_thousand(cairn: OpenAgent) -> None:
    agent = cairn({"a": "x"})
    for limit in (0, -5):
        assert agent.refused("list", limit=limit) == "validation_error: limit must be at least 1"
        assert agent.refused("search", query="x", limit=limit) == "validation_error: limit must be at least 1"
    assert agent.json("list", limit=10**9)["total"] == 1


# ---- list ---------------------------------------------------------------------------------------------


def test_a_list_has_these_keys_in_this_order(cairn: OpenAgent) -> None:
    agent = cairn({"p/jamie": JAMIE, "p/x": "x"}, times={"p/jamie": BASE, "p/x": BASE - 1})
    assert agent.said("list", path_prefix="/p/") == (
        '{"path_prefix":"p","notes":[{"path":"p/jamie","title":"Jamie Wilson","type":"person",'
        '"modified":"2026-02-24T14:00:00Z"},{"path":"p/x","title":"x","type":"","modified":"2026-02-24T13:59:59Z"}],'
        '"total":2}'
    )


def test_a_list_goes_no_deeper_unless_asked_but_without_a_prefix_it_has_everything(cairn: OpenAgent) -> None:
    agent = cairn({path: "x" for path in ["a", "a/b", "a/b/c", "ab", "ab/d"]})
    assert sorted(agent.paths("list")) == ["a", "a/b", "a/b/c", "ab", "ab/d"]
    assert sorted(agent.paths("list", path_prefix="")) == ["a", "a/b", "a/b/c", "ab", "ab/d"]
    assert sorted(agent.paths("list", recursive=False)) == ["a", "ab"]
    assert sorted(agent.paths("list", path_prefix="a")) == ["a", "a/b"]
    assert sorted(agent.paths("list", path_prefix="a", recursive=True)) == ["a", "a/b", "a/b/c"]
    assert agent.json("list", path_prefix="nope") == {"path_prefix": "nope", "notes": [], "total": 0}
    assert agent.json("list")["path_prefix"] == ""


def test_lists_are_sorted_by_change_by_birth_or_by_path(cairn: OpenAgent) -> None:
    notes = {
        "b": "---\ncreated: 2020-01-01\n---\n",
        "a-c": "---\ncreated: 2022-01-01\n---\n",
        "a": "---\ncreated: 2021-01-01\n---\n",
    }
    agent = cairn(notes, times={"b": BASE + 2, "a": BASE, "a-c": BASE + 1})
    assert agent.paths("list") == agent.paths("list", sort="modified") == ["b", "a-c", "a"]
    assert agent.paths("list", sort="created") == ["a-c", "a", "b"]
    assert agent.paths("list", sort="alpha") == ["a", "a-c", "b"]
    assert agent.paths("list", sort="alpha", limit=1, cursor=cursor({"offset": 1})) == ["a-c"]


def test_notes_alone_are_listed(cairn: OpenAgent) -> None:
    agent = cairn({"a": "x", ".hidden/b": "x", "Private/c": "x"}, hide=("Private/**",))
    (agent.root / "image.png").write_bytes(b"x")
    assert agent.paths("list") == ["a"]
