"""The first notes of a new workspace, for people who want their folders laid out: PARA, once."""

from contextlib import suppress

from notewright.engine.changes import Plan, Put, commit
from notewright.engine.workspace import Workspace
from notewright.errors import Conflict, Exists
from notewright.notes import NotePath

README = NotePath("README.md")
PARA = {
    README: (
        "# Second brain\n\n"
        "Everything here has one of four places, by how soon it will be acted on:\n\n"
        "- [projects](projects/README.md): efforts with an outcome and an end\n"
        "- [areas](areas/README.md): responsibilities that last\n"
        "- [resources](resources/README.md): topics worth coming back to\n"
        "- [archives](archives/README.md): what is done or at rest\n\n"
        "Put a note where it will be needed next, and move it when that changes.\n"
    ),
    NotePath("projects/README.md"): (
        "# Projects\n\nOne folder for each effort that has an outcome and an end. "
        "When it is reached, the folder moves to archives.\n"
    ),
    NotePath("areas/README.md"): (
        "# Areas\n\nResponsibilities to keep up, without an end: health, home, finances, a team.\n"
    ),
    NotePath("resources/README.md"): "# Resources\n\nTopics and references that may be useful some day.\n",
    NotePath("archives/README.md"): "# Archives\n\nFinished projects and whatever else is at rest.\n",
}


def bootstrap(ws: Workspace) -> bool:
    """Lay out a workspace that is empty and always was: what people removed does not come back. True if it was done."""
    if ws.access.read_only or ws.ledger.first_seen([README]):
        return False
    if any(True for _ in ws.store.entries()):
        return False
    steps = tuple(Put(path, text.encode(), None) for path, text in PARA.items())
    with suppress(Conflict, Exists):  # another process was quicker
        commit(ws, Plan(steps, "laid out PARA folders"))
        return True
    return False
