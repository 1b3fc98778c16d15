"""Thirty-odd things people ask of an agent, as it would do them through `notes` in the example notebook.

Each task says what the person wants, what the agent calls, and what must be true at the end.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tests.conftest import read_files
from tests.tasks.agent import Agent, change, first_path, paths, version


@dataclass(frozen=True)
class Task:
    wanted: str
    do: Callable[[Agent], None]
    most_calls: int
    most_bytes: int


# ---- finding ------------------------------------------------------------------------------------------


def find_a_decision(agent: Agent) -> None:
    hit = first_path(agent("search", query="why did we choose the deck oven?"))
    assert hit == "Decisions/Why a deck oven.md"
    assert "1. **The flue.**" in agent("read", path=hit, section="The reasons, in the order they counted")


def find_a_number(agent: Agent) -> None:
    assert "£6,800" in agent("context", about="what did the Halvorsen cost?", budget=1000)


def find_who_knows(agent: Agent) -> None:
    assert first_path(agent("search", query="who can repair the flue of the brick oven? tag:people")) == (
        "People/Ilse Brandt.md"
    )


def find_by_a_wrong_name(agent: Agent) -> None:
    said = agent.refused("read", path="Tomasz Wierzbiki")
    assert "Nearest: People/Tomasz Wierzbicki.md" in said
    assert "02:30" in agent("read", path="People/Tomasz Wierzbicki.md")


def find_by_a_wrong_word(agent: Agent) -> None:
    near = agent("search", query="gypsem")
    assert "Nearest: gypsum" in near
    assert "Lime, not gypsum" in agent("search", query="gypsum", limit=3)


def gather_a_topic(agent: Agent) -> None:
    pack = agent("context", about="damp on the north wall", budget=2000)
    assert "## Projects/Damp.md" in pack
    assert "## Decisions/Lime, not gypsum.md" in pack
    assert len(pack) <= 8000


def gather_around_a_note(agent: Agent) -> None:
    pack = agent("context", about="People/Freya Lund.md", budget=1500)
    assert "(L1-" in pack
    assert "links here)" in pack


def list_open_tasks(agent: Agent) -> None:
    assert agent("grep", pattern=r"^\s*- \[ \]").startswith("8 lines in 4 notes match:")


def list_people_and_their_roles(agent: Agent) -> None:
    lines = agent("grep", pattern="^role:", folder="People").split("\n")
    assert len(lines) == 11
    assert "People/Devi Raman.md:3: role: books and permits" in lines or any("Devi Raman" in line for line in lines)


def look_at_a_picture(agent: Agent) -> None:
    assert "attachments/oven-door.png" in agent("list", glob="**/*.png")
    assert len(agent.ask("read", path="attachments/oven-door.png").blocks) == 2


def know_a_long_note_without_reading_it(agent: Agent) -> None:
    outline = agent("read", path="Why a deck oven", outline=True)
    assert "## Sums (L" in outline
    assert "**£0.55**" in agent("read", path="Why a deck oven", section="Sums")


def see_what_leans_on_a_note(agent: Agent) -> None:
    assert "Start here.md" in paths(agent("links", path="Bake schedule", direction="in"))


def find_broken_links_and_orphans(agent: Agent) -> None:
    agent("write", path="Ideas/Sesame loaf", content="Like the [[Harbor loaf]], with seeds.\n")
    ends = agent("links", path="/")
    assert ends.startswith("Everything: 1 broken link, 0 ambiguous, 2 notes that nothing links to")
    agent("edit", path="Sesame loaf", edits=[{"replace": "[[Harbor loaf]]", "with": "[[Harbour loaf]]"}])
    assert agent("links", path="Ideas/").startswith("Ideas: 0 broken links")


# ---- days ---------------------------------------------------------------------------------------------


def note_something_today(agent: Agent) -> None:
    made = agent("daily", append="- The mixer hums again", section="Workshop")
    assert made.startswith("Created Daily/")
    again = agent("daily", append="- Greased it", section="Workshop")
    assert agent.text(again.split(" ")[1]).endswith("## Workshop\n- The mixer hums again\n- Greased it\n")


def recall_a_day(agent: Agent) -> None:
    assert "Kitchen table, four of us" in agent("daily", date="2025-03-27")


# ---- writing ------------------------------------------------------------------------------------------


def tick_off_a_question(agent: Agent) -> None:
    line = agent("grep", pattern="Marquis wheat for a second winter").split("\n")[1]
    path, _, text = line.partition(":8: ")
    agent("edit", path=path, edits=[{"replace": text, "with": text.replace("- [ ]", "- [x]")}])
    assert "- [x] Does [[Freya Lund]]" in agent.text("Open questions.md")


def add_a_row_to_a_table(agent: Agent) -> None:
    agent("read", path="Damp", section="The meter")
    row = "| 2025-10-12 | 61 | five weeks of baking |"
    new = f"{row}\n| 2025-11-16 | 60 | first frost |"
    agent("edit", path="Damp", edits=[{"replace": row, "with": new}])
    assert "five weeks of baking |\n| 2025-11-16 | 60 |" in agent.text("Projects/Damp.md")


def write_a_decision_and_enter_it(agent: Agent) -> None:
    content = "---\ntags: [decision]\nstatus: holds\n---\n# No sandwiches\n\nBread only. See [[Four days a week]].\n"
    agent("write", path="Decisions/No sandwiches", content=content)
    last = "| 2025-08-30 | [[No online orders]] | an app with our name on it |"
    row = f"{last}\n| 2025-11-15 | [[No sandwiches]] | a second queue |"
    agent("edit", path="Start here", edits=[{"replace": last, "with": row}])
    assert "← Start here.md" in agent("links", path="No sandwiches")


def change_several_places_at_once(agent: Agent) -> None:
    edits = [
        {"section": "What we would do again", "append": "Ask the neighbours first."},
        {"replace": "£1,150 with the crane", "with": "£1,150, crane included"},
        {"append": "\nClosed.\n"},
    ]
    agent("edit", path="Ovens", edits=edits)
    assert agent.text("Projects/Ovens.md").endswith("Ask the neighbours first.\n\nClosed.\n")


def insert_beside_a_line(agent: Agent) -> None:
    read = agent("read", path="Timeline", lines="1-12")
    agent("edit", path="Timeline", edits=[{"after": 4, "insert": "\n*Kept by Nora.*"}], version=version(read))
    assert agent.text("Timeline.md").split("\n")[5] == "*Kept by Nora.*"


def correct_a_word_everywhere(agent: Agent) -> None:
    where = paths(agent("grep", pattern="credit union", ignore_case=False))
    notes = {path.partition(".md:")[0] + ".md" if ".md:" in path else path for path in where}
    for note in sorted(notes):
        agent("edit", path=note, edits=[{"replace": "credit union", "with": "credit society", "all": True}])
    assert agent("grep", pattern="credit union", ignore_case=False) == "No line matches."


def tag_a_set_of_notes(agent: Agent) -> None:
    for note in paths(agent("list", folder="Decisions")):
        agent("properties", path=note, add_tags=["year/2025"])
    assert agent("search", query="tag:year", limit=10).startswith("6 notes found, newest first:")


def set_a_state_and_find_by_it(agent: Agent) -> None:
    agent("properties", path="Damp", set={"status": "done"}, remove_tags=["walls"])
    assert "Projects/Damp.md" in agent("search", query="[status:done] path:projects")


def link_what_is_only_mentioned(agent: Agent) -> None:
    found = agent("links", path="Damp", direction="in", mentions=True)
    assert "~ Decisions/Two flours.md (L11): " in found
    agent("edit", path="Two flours", edits=[{"replace": "by a damp wall", "with": "by a [[Damp|damp]] wall"}])
    assert "links 11 in" in agent("links", path="Damp", direction="in")


# ---- moving -------------------------------------------------------------------------------------------


def rename_a_person_everywhere(agent: Agent) -> None:
    agent("move", **{"from": "Wren Castellan", "to": "People/Wren Orr", "dry_run": True})
    moved = agent("move", **{"from": "Wren Castellan", "to": "People/Wren Orr"})
    assert moved.startswith("Moved People/Wren Castellan.md to People/Wren Orr.md; ")
    agent("edit", path="Wren Orr", edits=[{"replace": "# Wren Castellan", "with": "# Wren Orr"}])
    assert "[[Wren Castellan" not in agent("grep", pattern=r"\[\[Wren", limit=100)
    assert agent("links", path="/").startswith("Everything: 0 broken links")


def keep_the_old_name_as_an_alias(agent: Agent) -> None:
    agent("move", **{"from": "Agnes", "to": "Reference/The brick oven"})
    agent("properties", path="The brick oven", set={"aliases": ["Agnes"]})
    assert agent("read", path="agnes", lines="1-3").startswith("Reference/The brick oven.md")


def archive_a_project(agent: Agent) -> None:
    agent("move", **{"from": "Shopfront", "to": "Archive/2025/"})
    agent("properties", path="Shopfront", set={"status": "archived"})
    assert agent("links", path="/").startswith("Everything: 0 broken links")
    assert "status: archived" in agent.text("Archive/2025/Shopfront.md")


def archive_a_folder(agent: Agent) -> None:
    agent("move", **{"from": "Daily/", "to": "Archive/"})
    assert "Archive/Daily/ (12 notes)" in agent("list", folder="Archive")
    assert agent("links", path="/").startswith("Everything: 0 broken links")


def split_a_note(agent: Agent) -> None:
    letter = agent("read", path="Budget", section="The letter to the credit union")
    body = letter.split("\n", 2)[2]
    agent("write", path="Reference/The letter", content=f"# The letter to the credit union\n{body}")
    pointer = "It has its own page: [[The letter]]."
    agent("edit", path="Budget", edits=[{"section": "The letter to the credit union", "with": pointer}])
    assert "Dear Mrs. Okafor" in agent.text("Reference/The letter.md")
    assert "Okafor" not in agent.text("Reference/Budget.md")


def merge_two_notes(agent: Agent) -> None:
    log = agent("read", path="Flour log").split("\n", 1)[1]
    agent("edit", path="Suppliers", edits=[{"append": "\n## Flour log\n" + log.split("# Flour log\n", 1)[1]}])
    gone = agent("delete", path="Flour log")
    for note in gone.split("\n")[1:-1]:
        agent("edit", path=note, edits=[{"replace": "[[Flour log", "with": "[[Suppliers", "all": True}])
    assert agent("links", path="/").startswith("Everything: 0 broken links")


def delete_only_what_nobody_needs(agent: Agent) -> None:
    assert "5 notes link to it:" in agent("delete", path="Lime, not gypsum", dry_run=True)
    agent("write", path="Scratch", content="x")
    assert "no note links to it." in agent("delete", path="Scratch")


# ---- taking back --------------------------------------------------------------------------------------


def undo_an_afternoon(agent: Agent) -> None:
    before = read_files(agent.root)
    agent("edit", path="Damp", edits=[{"append": "x"}])
    agent("move", **{"from": "Leaven", "to": "Recipes/Sourdough"})
    agent("delete", path="Timeline")
    agent("write", path="Junk", content="x")
    agent("undo", since="2025-01-01")
    after = read_files(agent.root)
    assert {path: data for path, data in after.items() if not path.startswith(".trash/")} == before


def undo_one_thing_and_keep_what_came_after(agent: Agent) -> None:
    wrong = change(agent("edit", path="Damp", edits=[{"replace": "the wall ate its own face", "with": "it was wet"}]))
    agent("edit", path="Damp", edits=[{"append": "\nMeasured again.\n"}])
    agent("undo", change=wrong)
    assert "the wall ate its own face" in agent.text("Projects/Damp.md")
    assert agent.text("Projects/Damp.md").endswith("Measured again.\n")


def see_what_was_done(agent: Agent) -> None:
    made = change(agent("edit", path="Damp", edits=[{"append": "x"}]))
    assert made in agent("history", path="Damp", limit=5)
    assert "\n+x" in agent("history", change=made)


def write_though_somebody_else_did(agent: Agent) -> None:
    seen = version(agent("read", path="Timeline"))
    (agent.root / "Timeline.md").write_text(agent.text("Timeline.md") + "- Somebody else was here.\n")
    conflict = agent.refused("write", path="Timeline", content="mine", version=seen)
    assert "+- Somebody else was here." in conflict
    agent("edit", path="Timeline", edits=[{"append": "- And so was I.\n"}], version=seen)
    assert agent.text("Timeline.md").endswith("- Somebody else was here.\n- And so was I.\n")


TASKS = (
    Task("find a decision and its reasons", find_a_decision, 2, 4500),
    Task("find a number", find_a_number, 1, 4500),
    Task("find who knows", find_who_knows, 1, 3000),
    Task("find a note though its name is misspelled", find_by_a_wrong_name, 2, 2500),
    Task("find a note though a word is misspelled", find_by_a_wrong_word, 2, 2000),
    Task("gather what is known of a topic", gather_a_topic, 1, 8500),
    Task("gather what is around a note", gather_around_a_note, 1, 6500),
    Task("list what is open", list_open_tasks, 1, 1500),
    Task("list people and their roles", list_people_and_their_roles, 1, 1200),
    Task("look at a picture", look_at_a_picture, 2, 500),
    Task("know a long note without reading it", know_a_long_note_without_reading_it, 2, 1800),
    Task("see what leans on a note", see_what_leans_on_a_note, 1, 3000),
    Task("find broken links and orphans, and mend one", find_broken_links_and_orphans, 4, 1500),
    Task("note something today under a heading", note_something_today, 2, 800),
    Task("recall a day", recall_a_day, 1, 4000),
    Task("tick off a question", tick_off_a_question, 2, 1500),
    Task("add a row to a table", add_a_row_to_a_table, 2, 1800),
    Task("write a decision and enter it", write_a_decision_and_enter_it, 3, 1800),
    Task("change several places at once", change_several_places_at_once, 1, 1500),
    Task("insert beside a line", insert_beside_a_line, 2, 2000),
    Task("correct a word everywhere", correct_a_word_everywhere, 5, 2500),
    Task("tag a set of notes", tag_a_set_of_notes, 8, 5000),
    Task("set a state and find by it", set_a_state_and_find_by_it, 2, 2000),
    Task("link what is only mentioned", link_what_is_only_mentioned, 3, 4500),
    Task("rename a person everywhere", rename_a_person_everywhere, 5, 5500),
    Task("keep the old name as an alias", keep_the_old_name_as_an_alias, 3, 2000),
    Task("archive a project", archive_a_project, 3, 1500),
    Task("archive a folder", archive_a_folder, 3, 1000),
    Task("split a note", split_a_note, 3, 7500),
    Task("merge two notes", merge_two_notes, 12, 9000),
    Task("delete only what nobody needs", delete_only_what_nobody_needs, 3, 1000),
    Task("undo an afternoon", undo_an_afternoon, 5, 3000),
    Task("undo one thing and keep what came after", undo_one_thing_and_keep_what_came_after, 3, 2000),
    Task("see what was done", see_what_was_done, 3, 1500),
    Task("write though somebody else did", write_though_somebody_else_did, 3, 3500),
)
