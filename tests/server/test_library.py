"""A library that opens while the server already answers."""

from queue import Queue

import pytest

from notewright.engine.library import LazyLibrary, Library
from notewright.errors import Unavailable


def test_surfaces_begin_in_every_workspace_when_the_library_is_open_and_before_anybody_calls(workspace) -> None:
    one, two = workspace({"A.md": ""}, name="One"), workspace({"B.md": ""}, name="Two")
    begun: Queue[str] = Queue()
    library = LazyLibrary(lambda: Library.of([one, two]), [lambda ws: begun.put(ws.name)])
    library.begin()
    assert [begun.get(timeout=10), begun.get(timeout=10)] == ["One", "Two"]


def test_a_surface_that_cannot_begin_does_not_keep_the_library_closed(workspace) -> None:
    def fails(ws: object) -> None:
        raise ValueError("no")

    library = LazyLibrary(lambda: Library.of([workspace({"A.md": ""}, name="One")]), [fails])
    assert [ws.name for ws in library.workspaces()] == ["One"]


def test_what_could_not_be_opened_is_tried_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def opened() -> Library:
        tried.append(1)
        if len(tried) < 3:
            raise Unavailable("the bucket does not answer")
        return Library.of([])

    library = LazyLibrary(opened)
    for _ in range(3):
        with pytest.raises(Unavailable):
            library.workspaces()
    assert len(tried) == 1
    monkeypatch.setattr("notewright.engine.library.RETRY_SECONDS", -1.0)
    with pytest.raises(Unavailable):
        library.workspaces()
    assert list(library.workspaces()) == [] and len(tried) == 3
