"""`notes` over several workspaces, and for those who may not see or change everything (contracts G, design §11)."""

from dataclasses import replace
from typing import Any

import pytest
from tests.surfaces.notes_agent import Agent, MakeAgent

from notewright.engine.access import Access
from notewright.errors import Unavailable

WORK = {"Tea.md": "# Tea\n[[Plan]]\n", "Projects/Plan.md": "plan for tea\n", "Both.md": "w\n"}
HOME = {"Garden/Roses.md": "roses and tea\n", "Both.md": "h\n"}


@pytest.fixture
def two(make: MakeAgent) -> Agent:
    return make(Work=WORK, Home=HOME)


# ---- several workspaces -------------------------------------------------------------------------------


def test_every_path_begins_with_its_workspace(two: Agent) -> None:
    assert two.said("read", path="Work/Tea").startswith("Work/Tea.md · version ")
    assert two.said("read", path="work/tea.md").startswith("Work/Tea.md · version ")
    assert two.said("list") == "2 workspaces:\nWork/ (3 notes)\nHome/ (2 notes)"
    assert two.said("list", folder="Home").split("\n")[1] == "Home/Garden/ (1 note)"
    assert "Home/Garden/Roses.md:1: roses and tea" in two.said("grep", pattern="tea")
    assert "1. Home/Garden/Roses.md (L1, " in two.said("search", query="roses")
    assert "\n→ Work/Projects/Plan.md (L2): [[Plan]]" in two.said("links", path="Work/Tea")
    assert "## Home/Garden/Roses.md (L1)" in two.said("context", about="roses")
    assert two.said("context", about="Work/Tea").startswith("2 passages about Work/Tea.md:\n\n## Work/Tea.md (L1-2,")
    assert "Work/Projects/Plan.md  " in two.said("list", glob="**/P*.md")


def test_searches_reach_every_workspace_or_one(two: Agent) -> None:
    assert two.said("grep", pattern="tea").startswith("3 lines in 3 notes match:")
    assert two.said("grep", pattern="tea", folder="Home").startswith("1 line in 1 note match:")
    assert "Home/" not in two.said("search", query="tea", folder="Work")
    assert two.said("list", glob="**/*.md", sort="size").startswith("5 files like **/*.md:")


def test_a_glob_may_begin_with_a_workspace_as_paths_do(make: MakeAgent) -> None:
    two = make(Work=WORK, Home={**HOME, "Work/Tea.md": "tea at home\n"})
    assert two.said("list", glob="Work/*.md").split("\n")[0] == "2 files like Work/*.md:"
    assert "\nWork/Tea.md  " in two.said("list", glob="work/T*.md")
    assert two.said("list", glob="Home/**/*.md").startswith("3 files like ")
    assert two.said("list", glob="Work/*.md", folder="Home").split("\n")[1].startswith("Home/Work/Tea.md  ")
    assert two.said("list", glob="*.md").startswith("3 files like *.md:")
    assert "Home/" not in two.said("grep", pattern="tea", glob="Work/**")
    assert two.said("grep", pattern="tea", glob="Home/Garden/*") == (
        "1 line in 1 note match:\nHome/Garden/Roses.md:1: roses and tea"
    )


def test_a_bare_name_may_be_in_any_workspace_but_not_in_two(two: Agent) -> None:
    assert two.said("read", path="Roses").startswith("Home/Garden/Roses.md · ")
    assert two.refused("read", path="Both") == (
        "ambiguous: 'Both' could be any of 2 notes: Work/Both.md, Home/Both.md. Give one of these paths."
    )
    assert two.refused("read", path="Rosse").startswith("not_found: there is no Rosse. Nearest: Home/Garden/Roses.md")


def test_a_change_is_shown_while_another_workspace_cannot_answer(two: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(change_id: str) -> None:
        raise Unavailable("the history cannot be read")

    made = two.done("edit", path="Work/Both", edits=[{"append": "more"}])
    monkeypatch.setattr(two.workspaces[1].ledger, "change", away)
    assert "Work/Both.md" in two.said("history", change=made)


def test_a_miss_names_whole_paths(two: Agent) -> None:
    assert two.refused("read", path="Work/Projects/Plans").startswith(
        "not_found: there is no Work/Projects/Plans. Nearest: Work/Projects/Plan.md"
    )
    assert two.refused("list", folder="Home/Gardn") == (
        "not_found: there is no folder Home/Gardn. Nearest folders: Home/Garden."
    )
    assert two.refused("read", path="Work/Tea", section="Te") == (
        "not_found: no section 'Te' in Work/Tea.md. Headings here: Tea."
    )
    assert two.refused("edit", path="Work/Tea", edits=[{"replace": "x", "with": "y"}]).startswith(
        "not_found: the text to replace is not in Work/Tea.md. "
    )
    assert two.refused("write", path="Work/tea", content="x").startswith("exists: Work/Tea.md is there already, ")
    assert two.refused("write", path="Work/Tea", content="x", version="0" * 12).startswith("conflict: Work/Tea.md ")
    assert two.refused("list", folder="Nope") == (
        "not_found: 'Nope' begins with no workspace. Begin with Work/ or Home/."
    )


def test_a_new_path_must_begin_with_a_workspace(two: Agent) -> None:
    assert two.said("write", path="Home/New", content="x").startswith("Created Home/New.md · ")
    for path in ("New", "Elsewhere/New"):
        assert two.refused("write", path=path, content="x").startswith("not_found: ")
    assert two.refused("write", path="Work", content="x").startswith("invalid: ")
    assert two.refused("read", path="Work").startswith("invalid: 'Work' is not a note. ")


def test_notes_move_within_their_workspace(two: Agent) -> None:
    answer = two.said("move", **{"from": "Work/Projects/Plan", "to": "Work/Old/"})
    assert answer.startswith("Moved Work/Projects/Plan.md to Work/Old/Plan.md; ")
    assert two.said("move", **{"from": "Work/Old/", "to": "Work/Older"}).startswith("Moved Work/Old to Work/Older; ")
    said = two.refused("move", **{"from": "Work/Tea", "to": "Home/Tea"})
    assert said == "invalid: notes cannot move between workspaces. Write it there and delete it here."
    assert two.refused("move", **{"from": "Work/Tea", "to": "Tea2"}).startswith("not_found: ")


def test_deleting_and_its_history_name_the_workspace(two: Agent) -> None:
    answer = two.said("delete", path="Work/Projects/Plan").split("\n")
    assert answer[:2] == ["Deleted Work/Projects/Plan.md (to Work/.trash/Plan.md); 1 note links to it:", "Work/Tea.md"]
    lines = two.said("history").split("\n")
    assert lines[1].endswith(" claude notes.delete in Work: deleted Projects/Plan.md")
    assert two.said("history", path="Work/Projects/Plan").startswith("1 change, ")
    assert two.said("history", path="Plan").startswith("1 change, ")


def test_daily_takes_the_workspace(two: Agent) -> None:
    assert two.said("daily", append="x").startswith("Created Work/daily/")
    assert two.said("daily", append="x", workspace="Home").startswith("Created Home/daily/")
    assert two.said("daily", workspace="home").startswith("Home/daily/")
    assert two.refused("daily", workspace="Hom").startswith("not_found: there is no workspace 'Hom'. ")


def test_undo_finds_a_change_in_any_workspace_and_takes_back_all(two: Agent) -> None:
    one = two.done("edit", path="Home/Both", edits=[{"append": "x"}])
    assert two.said("undo", change=one).split("\n")[1] == "Home/Both.md is as before"
    two.done("edit", path="Work/Both", edits=[{"append": "x"}])
    two.done("edit", path="Home/Both", edits=[{"append": "y"}])
    lines = two.said("undo", since="2020-01-01").split("\n")
    assert [line for line in lines if line.endswith(" is as before")] == [
        "Work/Both.md is as before",
        "Home/Both.md is as before",
    ]
    assert [line.partition("(")[0] for line in lines[-2:]] == ["Undo: undo", "Undo: undo"]


def test_what_stands_in_the_way_in_one_workspace_keeps_all_as_they_are(two: Agent) -> None:
    two.done("edit", path="Work/Both", edits=[{"replace": "w", "with": "W"}])
    two.done("edit", path="Home/Both", edits=[{"replace": "h", "with": "H"}])
    two.another().done("edit", path="Home/Both", edits=[{"replace": "H", "with": "X"}])
    assert two.refused("undo", since="2020-01-01").startswith("conflict: Home/Both.md was changed since ")
    assert two.text("Both.md") == "W\n"


def test_of_workspaces_whose_names_begin_alike_the_longer_is_meant(make: MakeAgent) -> None:
    agent = make(**{"Lens": {"A.md": "1"}, "Lens Edu": {"A.md": "2"}})
    assert agent.said("read", path="Lens Edu/A").endswith("2")
    assert agent.said("read", path="Lens/A").endswith("1")


# ---- hidden notes -------------------------------------------------------------------------------------

SECRETS = {
    "Open.md": "tea [[Secret]] secretword\n",
    "Private/Secret.md": "tea secretword [[Open]] about Open\n",
    "Projects/Plan.md": "plan\n",
    "Projects/Hidden.md": "plan [[Plan]] [[Open]]\n",
}
HIDE = {"hide": ("Private/**", "Projects/Hidden.md")}


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("search", {"query": "tea secretword about"}),
        ("search", {"query": "Secret"}),
        ("search", {"query": "Secrte"}),
        ("search", {"query": "", "since": "2020-01-01"}),
        ("grep", {"pattern": "secretword|plan"}),
        ("list", {}),
        ("list", {"glob": "**/*"}),
        ("list", {"folder": "Projects"}),
        ("links", {"path": "Open", "mentions": True}),
        ("links", {"path": "Plan", "depth": 3}),
        ("read", {"path": "Open", "outline": True}),
        ("context", {"about": "tea secretword"}),
        ("context", {"about": "Open.md"}),
        ("context", {"about": "Private/Secret.md"}),
        ("history", {}),
        ("move", {"from": "Open", "to": "Opened", "dry_run": True}),
        ("delete", {"path": "Open", "dry_run": True}),
    ],
)
def test_a_hidden_note_is_absent_from_every_answer(make: MakeAgent, tool: str, args: dict[str, Any]) -> None:
    agent = make(SECRETS)
    agent.done("edit", path="Secret", edits=[{"append": "mine"}])
    hidden = replace(agent, workspaces=(replace(agent.ws, access=Access(**HIDE)),))
    answer = hidden.said(tool, **args)
    said = answer.replace("[[Secret]]", "").replace("→ Secret", "").replace(args.get("query", " ") or " ", "")
    said = said.replace(args.get("about", " "), "")
    assert "Private" not in said
    assert "Secret" not in said
    assert "Hidden" not in said


@pytest.mark.parametrize("path", ["Private/Secret", "Secret", "Private/No", "Projects/Hidden.md", "Hidden", "Private"])
def test_reading_a_hidden_note_is_like_reading_none(make: MakeAgent, path: str) -> None:
    agent = make(SECRETS, **HIDE)
    for tool in ("read", "links", "properties", "delete", "history"):
        said = agent.refused(tool, path=path)
        assert said.startswith(f"not_found: there is no {path}. ")
        assert "Secret.md" not in said
        assert "Hidden.md" not in said.removeprefix(f"not_found: there is no {path}")
    assert agent.refused("list", folder="Private").startswith("not_found: there is no folder Private. ")
    assert agent.refused("edit", path=path, edits=[{"append": "x"}]).startswith("not_found: ")
    assert agent.refused("move", **{"from": path, "to": "x"}).startswith("not_found: ")


@pytest.mark.parametrize("path", ["Private/New", "Private/Secret", "Projects/Hidden", "Private/secret"])
def test_writing_where_notes_are_hidden_is_forbidden_whether_they_are_there_or_not(make: MakeAgent, path: str) -> None:
    agent = make(SECRETS, **HIDE)
    said = agent.refused("write", path=path, content="x")
    assert said.startswith(f"forbidden: writing to {path}.md is not allowed. ")
    assert agent.refused("write", path=path, content="x", version="0" * 12).startswith("forbidden: ")
    assert agent.refused("move", **{"from": "Open", "to": path}).startswith("forbidden: ")


def test_a_hidden_day_is_like_a_day_without_a_note(make: MakeAgent) -> None:
    agent = make({"daily/2026-11-02.md": "secret"}, hide=("daily/**",))
    for date in ("2026-11-02", "2026-11-03"):
        assert agent.refused("daily", date=date).startswith(
            f"not_found: there is no note for {date} (daily/{date}.md)."
        )
        assert agent.refused("daily", date=date, append="x").startswith(f"forbidden: writing to daily/{date}.md ")


def test_the_twin_of_a_hidden_note_is_not_named(make: MakeAgent) -> None:
    agent = make(SECRETS, **HIDE)
    said = agent.refused("write", path="Projects/hidden", content="x")
    assert said.startswith("forbidden: writing to Projects/hidden.md is not allowed. ")
    assert "Hidden" not in said


def test_a_move_rewrites_links_in_hidden_notes_and_does_not_name_them(make: MakeAgent) -> None:
    agent = make(SECRETS, **HIDE)
    answer = agent.said("move", **{"from": "Open", "to": "Opened"})
    assert answer.startswith("Moved Open.md to Opened.md; no links to rewrite.\nUndo: ")
    assert "[[Opened]]" in agent.text("Private/Secret.md")
    assert agent.said("history", change=answer.split('"')[1]).count("\n") == 1
    agent.done("undo", change=answer.split('"')[1])
    assert agent.text("Private/Secret.md") == SECRETS["Private/Secret.md"]


def test_a_folder_that_holds_hidden_notes_does_not_move_as_a_whole(make: MakeAgent) -> None:
    agent = make(SECRETS, **HIDE)
    said = agent.refused("move", **{"from": "Projects", "to": "Old/"})
    assert said.startswith("forbidden: moving the folder Projects as a whole is not allowed. ")
    assert agent.there("Projects/Hidden.md")


# ---- who may not write --------------------------------------------------------------------------------

WRITES: list[tuple[str, dict[str, Any]]] = [
    ("write", {"path": "New", "content": "x"}),
    ("edit", {"path": "A", "edits": [{"append": "x"}]}),
    ("properties", {"path": "A", "set": {"a": 1}}),
    ("move", {"from": "A", "to": "B"}),
    ("delete", {"path": "A"}),
    ("daily", {"append": "x"}),
]


@pytest.mark.parametrize(("tool", "args"), WRITES, ids=[tool for tool, _ in WRITES])
def test_a_read_only_workspace_takes_no_writes(make: MakeAgent, tool: str, args: dict[str, Any]) -> None:
    agent = make({"A.md": "a"}, read_only=True)
    assert agent.refused(tool, **args) == ("read_only: this workspace is read-only. Ask its owner to allow writing.")
    assert agent.said("read", path="A").endswith("a")
    assert sorted(path.name for path in agent.root.iterdir()) == ["A.md"]


def test_undo_writes_too(make: MakeAgent) -> None:
    agent = make({"A.md": "a"})
    change = agent.done("edit", path="A", edits=[{"append": "x"}])
    closed = replace(agent, workspaces=(replace(agent.ws, access=Access(read_only=True)),))
    for args in ({"change": change}, {"since": "2020-01-01"}):
        assert closed.refused("undo", **args).startswith("read_only: ")
    elsewhere = replace(agent, workspaces=(replace(agent.ws, access=Access(write_under=("Inbox/**",))),))
    assert elsewhere.refused("undo", change=change).startswith("forbidden: ")


@pytest.mark.parametrize(("tool", "args"), WRITES, ids=[tool for tool, _ in WRITES])
def test_writing_is_allowed_only_under_the_folders_named(make: MakeAgent, tool: str, args: dict[str, Any]) -> None:
    agent = make({"A.md": "a", "Inbox/I.md": "i"}, write_under=("Inbox/**", "Drafts/**"))
    said = agent.refused(tool, **args)
    assert said.startswith("forbidden: writing to ")
    assert said.endswith(" is not allowed. Write under Inbox/** or Drafts/**.")
