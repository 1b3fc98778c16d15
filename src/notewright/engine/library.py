"""All the workspaces one client may use."""

import difflib
from collections.abc import Sequence

from notewright.engine.workspace import Workspace
from notewright.errors import NotFound


class Shelf:
    """Workspaces in the order they were named; never empty."""

    def __init__(self, workspaces: Sequence[Workspace]) -> None:
        self._all = tuple(workspaces)

    def workspaces(self) -> Sequence[Workspace]:
        return self._all

    @property
    def default(self) -> Workspace:
        return self._all[0]

    def named(self, id_or_name: str) -> Workspace:
        for workspace in self._all:
            if id_or_name in (workspace.id, workspace.name):
                return workspace
        names = [workspace.name for workspace in self._all]
        near = difflib.get_close_matches(id_or_name, names, n=3) or names[:3]
        raise NotFound(
            f"there is no workspace {id_or_name!r}",
            hint=f"there is {', '.join(near)}",
            what="workspace",
            workspace=id_or_name,
            nearest=near,
        )

    def only(self, id_or_name: str) -> "Shelf":
        """The same library bound to one workspace."""
        return Shelf([self.named(id_or_name)])
