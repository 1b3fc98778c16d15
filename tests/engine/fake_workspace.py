"""A stand-in for a workspace: texts in memory, an index that narrows as far as it soundly may, and a store."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from notewright.engine.access import Access
from notewright.engine.workspace import IndexFollower, Limits
from notewright.errors import NotFound
from notewright.index.base import EVERYTHING, Body, Generation, IndexedFile, Needles, Selection, Visibility
from notewright.notes.path import NotePath
from notewright.stores.base import Entry, Stored


class FakeIndex:
    """Only texts that hold one member of every group, case ignored, two at a time."""

    def __init__(self, texts: dict[str, str], files: Iterable[str] = ()) -> None:
        self.texts, self.files = texts, files
        self.looked_at: list[str] = []

    def snapshot(self, of: Generation | None = None) -> AbstractContextManager[None]:
        return nullcontext()

    def generation(self) -> Generation:
        return Generation("fake", True)

    def folders(self, *, visible: Visibility = EVERYTHING) -> list[tuple[str, int]]:
        return []

    def select(self, selection: Selection) -> tuple[list[IndexedFile], int]:
        sees = selection.visible.sees
        found = [IndexedFile(NotePath(path), "", "", 0, 0, path) for path in sorted(self.files) if sees(path)]
        return found, len(found)

    def bodies(self, needles: Needles, *, folder: str = "", visible: Visibility = EVERYTHING) -> Iterator[list[Body]]:
        batch: list[Body] = []
        for path, text in sorted(self.texts.items()):
            folded = text.casefold()
            holds = all(any(member.casefold() in folded for member in group) for group in needles.groups)
            if holds and visible.sees(path) and path.startswith(f"{folder}/" if folder else ""):
                self.looked_at.append(path)
                batch.append(Body(NotePath(path), text.encode(), 0, len(text.encode())))
            if len(batch) == 2:
                yield batch
                batch = []
        if batch:
            yield batch


class FakeStore:
    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files

    def stat(self, path: NotePath) -> Entry:
        if any(other.startswith(f"{path}/") for other in self.files):
            return Entry(path, "folder", "", 0, 0)
        if path not in self.files:
            raise NotFound(f"there is no {path}", what="file", path=path)
        return Entry(path, "file", "", len(self.files[path]), 0)

    def read(self, path: NotePath) -> Stored:
        return Stored(self.files[path], "", self.stat(path))


class WholeIndex(FakeIndex):
    """Every text, whatever it holds."""

    def bodies(self, needles: Needles, *, folder: str = "", visible: Visibility = EVERYTHING) -> Iterator[list[Body]]:
        yield [Body(NotePath(path), text.encode(), 0, len(text.encode())) for path, text in sorted(self.texts.items())]


def fake_ws(files: dict[str, str | bytes], *, hide: tuple[str, ...] = (), seconds: float = 20.0) -> Any:
    """A workspace of these files; notes are those that end in .md."""
    data = {path: text.encode() if isinstance(text, str) else text for path, text in files.items()}
    notes = {path: text.decode(errors="replace") for path, text in data.items() if path.endswith(".md")}
    return SimpleNamespace(
        store=FakeStore(data),
        index=FakeIndex(notes, data),
        access=Access(hide=hide),
        follower=IndexFollower(),
        limits=Limits(seconds=seconds),
    )


def fake_workspace_of_folder(root: Path) -> Any:
    """The notes of a folder, dot files left out."""
    paths = [
        path for path in root.rglob("*.md") if not any(part.startswith(".") for part in path.relative_to(root).parts)
    ]
    return fake_ws({path.relative_to(root).as_posix(): path.read_bytes() for path in paths if path.is_file()})
