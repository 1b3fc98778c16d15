"""A library that opens while the server already answers."""

from queue import Queue

from notewright.engine.library import LateLibrary, Library


def test_surfaces_begin_in_every_workspace_when_the_library_is_open_and_before_anybody_calls(workspace) -> None:
    one, two = workspace({"A.md": ""}, name="One"), workspace({"B.md": ""}, name="Two")
    begun: Queue[str] = Queue()
    library = LateLibrary(lambda: Library.of([one, two]), [lambda ws: begun.put(ws.name)])
    library.begin()
    assert [begun.get(timeout=10), begun.get(timeout=10)] == ["One", "Two"]


def test_a_surface_that_cannot_begin_does_not_keep_the_library_closed(workspace) -> None:
    def fails(ws: object) -> None:
        raise ValueError("no")

    library = LateLibrary(lambda: Library.of([workspace({"A.md": ""}, name="One")]), [fails])
    assert [ws.name for ws in library.workspaces()] == ["One"]
