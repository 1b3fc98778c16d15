"""Writes many files at once: in one change set, or in several where one would hold too many files or bytes.

Other writers can get in between two change sets; each is all or nothing, and can be undone by itself.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

from notewright.engine.changes.commit import commit_latest
from notewright.engine.changes.plan import Drop, Plan, Put
from notewright.engine.workspace import Workspace
from notewright.errors import Forbidden, NotFound, Problem
from notewright.notes.path import NotePath
from notewright.stores.base import parents, read_or_none, version_of

MAX_FILES = 2_000  # of one change set: it holds the lock, so nobody else can write meanwhile
MAX_BYTES = 64 << 20  # old and new ones of a change set: they are held in memory and kept in the history
MAX_FILE_BYTES = 256 << 20  # a larger file is not kept in a history
_STAYS = "it is too large to be kept for an undo, so it stays"
MAX_REFUSALS = 20  # files that the file system may refuse before the whole change set is given up


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that was left out: `reason` is one word for programs, `words` is a message for people."""

    path: str
    reason: str
    words: str


class UnreadableFile(Exception):
    """A file that cannot be imported: damaged, gone, too large or not allowed."""

    def __init__(self, reason: str, words: str) -> None:
        super().__init__(words)
        self.reason, self.words = reason, words

    def to_skipped(self, path: str) -> SkippedFile:
        return SkippedFile(path, self.reason, self.words)


class IncomingFile(NamedTuple):
    """A file to write with the bytes that `fetch` returns; without `fetch` it is to be deleted."""

    path: NotePath
    size: int
    fetch: Callable[[], bytes] | None  # may raise UnreadableFile
    sha256: str | None = None  # where known, a file that is there already is not fetched


@dataclass(frozen=True)
class BatchResult:
    """What was done, or would be, to each file. `changes`: the ids of its change sets, each of which can be undone."""

    created: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    skipped: tuple[SkippedFile, ...] = ()
    changes: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """As JSON for programs."""
        lists = {field.name: list(getattr(self, field.name)) for field in fields(BatchResult)}
        return lists | {"skipped": [asdict(file) for file in self.skipped]}


def write_files(
    ws: Workspace,
    files: Iterable[IncomingFile | SkippedFile],
    *,
    summary: Callable[[int], str],
    overwrite: bool,
    dry_run: bool = False,
    report: Callable[[int], None] = lambda done: None,
) -> BatchResult:
    """Write and remove these files, except where something is in the way; SkippedFiles given are in the result too.
    `summary` gets the number of files of a change set, `report` the number of files looked at so far. The caller has
    checked that the client may do this."""
    writer = _BatchWriter(ws, summary, overwrite, dry_run)
    try:
        for batch in writer.make_batches(files, report):
            writer.commit(batch)
    except Problem as problem:
        if writer.changes:
            part = f"a part is done; undo takes it back: {', '.join(writer.changes)}"
            problem.hint = f"{part}. {problem.hint}" if problem.hint else part
        raise
    paths = {kind: tuple(sorted(paths)) for kind, paths in writer.paths.items()}
    skipped = tuple(sorted(writer.skipped, key=lambda file: file.path))
    return BatchResult(**paths, skipped=skipped, changes=tuple(writer.changes))


@dataclass
class _BatchWriter:
    """One call of `write_files`, with the outcome of its files so far."""

    ws: Workspace
    summary: Callable[[int], str]
    overwrite: bool
    dry_run: bool
    paths: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))  # by what was done to them
    skipped: list[SkippedFile] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)

    def make_batches(
        self, files: Iterable[IncomingFile | SkippedFile], report: Callable[[int], None]
    ) -> Iterator[dict[NotePath, bytes | None]]:
        """The new bytes of each file, None for one to delete, in batches that fit into a change set."""
        batch, total = dict[NotePath, bytes | None](), 0
        for count, file in enumerate(files, 1):
            report(count)
            try:
                fetched = self._fetch(file)
            except UnreadableFile as refused:
                self.skipped.append(refused.to_skipped(file.path))
                continue
            if fetched is None:
                self.paths["unchanged"].append(file.path)
                continue
            data, size = fetched
            if batch and (total + size > MAX_BYTES or len(batch) >= MAX_FILES):
                yield batch
                batch, total = {}, 0
            batch[NotePath(file.path)] = data
            total += size
        if batch:
            yield batch

    def _fetch(self, file: IncomingFile | SkippedFile) -> tuple[bytes | None, int] | None:
        """The new bytes, and the size of old and new ones together; None where the file has them already."""
        if isinstance(file, SkippedFile):
            raise UnreadableFile(file.reason, file.words)
        if file.size > MAX_FILE_BYTES:
            why = f"it has {file.size:,} bytes, and more than {MAX_FILE_BYTES:,} are not kept for an undo"
            raise UnreadableFile("too_large", why if file.fetch else _STAYS)
        if file.fetch is None:
            return None, file.size
        try:
            old = read_or_none(self.ws.store, file.path)
        except Forbidden as problem:
            raise UnreadableFile("not_allowed", problem.message) from None
        if old is None:
            _refuse_obstacle(self.ws, file.path)
            data = file.fetch()
            return data, len(data)
        if version_of(old.data) == file.sha256 or (data := file.fetch()) == old.data:
            return None
        return data, len(data) + len(old.data)

    def commit(self, batch: dict[NotePath, bytes | None]) -> None:
        """Write one batch as one change set, skipping files that the file system refuses."""
        refused: list[SkippedFile] = []

        def make_plan() -> tuple[Plan, dict[NotePath, tuple[str, Put | Drop | None]]]:
            steps = {path: self._make_step(path, data) for path, data in batch.items()}
            todo = tuple(step for _, step in steps.values() if step is not None)
            emptied = {folder for step in todo if isinstance(step, Drop) for folder in parents(step.path)}
            deepest_first = sorted(emptied, key=lambda folder: (-folder.count("/"), folder))
            return Plan(todo, self.summary(len(todo)), emptied=tuple(deepest_first)), steps

        while True:
            try:
                done, steps = commit_latest(self.ws, make_plan, dry_run=self.dry_run)
                break
            except Forbidden as problem:
                path = problem.details.get("path")
                if path not in batch or len(refused) >= MAX_REFUSALS:
                    raise
                del batch[path]
                refused.append(SkippedFile(path, "not_allowed", problem.message))
        if done.id:
            self.changes.append(done.id)
        for path, (kind, _) in steps.items():
            if kind == "exists":
                self.skipped.append(SkippedFile(path, kind, "there is another file of this name"))
            elif kind != "gone":
                self.paths[kind].append(path)
        self.skipped += refused

    def _make_step(self, path: NotePath, data: bytes | None) -> tuple[str, Put | Drop | None]:
        """What happens to one file, and the step that does it; None where there is nothing to do."""
        old = read_or_none(self.ws.store, path)
        if data is None:
            return ("gone", None) if old is None else ("deleted", Drop(path, old))
        if old is None:
            return "created", Put(path, data, None)
        if old.data == data:
            return "unchanged", None
        return ("replaced", Put(path, data, old)) if self.overwrite else ("exists", None)


def _refuse_obstacle(ws: Workspace, path: NotePath) -> None:
    """Refuse a new file where a folder has its name, or a file the name of its folder."""
    for place in (path, *map(NotePath, parents(path))):
        try:
            kind = ws.store.stat(place).kind
        except (NotFound, Forbidden):
            continue
        if place == path:
            raise UnreadableFile("exists", f"{place} is a {kind}")
        if kind in ("file", "placeholder"):
            raise UnreadableFile("exists", f"{place} is a file")
        return
