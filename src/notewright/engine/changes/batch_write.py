"""Many files at once: as one change set, or as a few where it would hold too many files or bytes.

Between two change sets others can write; within one it is all or nothing. Each can be undone by itself.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count

from notewright.engine.changes.commit import Drop, Plan, Put, commit_latest, read_or_none, rehearse
from notewright.engine.workspace import Workspace
from notewright.errors import Forbidden, NotFound, Problem
from notewright.notes.path import NotePath
from notewright.stores.base import version_of

MOST_FILES = 2_000  # of one change set, for nobody else can write while it lasts
MOST_BYTES = 64 << 20  # new and old ones together, for they are in memory and in the history
LARGEST = 256 << 20  # a larger file is not kept in a history
MOST_REFUSALS = 20  # of single files by the file system, before the rest of a change set is given up too


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that was left out: `reason` is one word for programs, `words` are for people."""

    path: str
    reason: str
    words: str


class UnreadableFile(Exception):
    """A file that turns out to be none: damaged, or no longer there."""

    def __init__(self, reason: str, words: str) -> None:
        super().__init__(words)
        self.reason, self.words = reason, words


@dataclass(frozen=True, slots=True)
class IncomingFile:
    """A file that is to be in the workspace. `sha256` spares fetching what is there already."""

    path: NotePath
    size: int
    fetch: Callable[[], bytes]  # may raise NotComing
    sha256: str | None = None


@dataclass
class BatchResult:
    """What became of each file."""

    created: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    skipped: list[SkippedFile] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)

    def add(self, other: "BatchResult") -> None:
        for name in ("created", "replaced", "deleted", "unchanged", "skipped", "changes"):
            getattr(self, name).extend(getattr(other, name))


@dataclass
class _Batch:
    files: dict[NotePath, bytes | None] = field(default_factory=dict)  # None: it is to go
    size: int = 0

    def is_full_with(self, more: int) -> bool:
        return bool(self.files) and (self.size + more > MOST_BYTES or len(self.files) >= MOST_FILES)

    def add(self, path: NotePath, data: bytes | None, size: int) -> None:
        self.files[path] = data
        self.size += size


def write_files(
    ws: Workspace,
    coming: Iterable[IncomingFile],
    going: Iterable[tuple[NotePath, int]] = (),
    *,
    summary: Callable[[int], str],
    overwrite: bool,
    dry_run: bool = False,
    report: Callable[[int], None] = lambda done: None,
) -> BatchResult:
    """Write these files and remove those, as far as nothing is against it. `summary` is told how many files a change
    set has; `report` how many were looked at. The caller has checked who may do this."""
    came = BatchResult()
    try:
        for batch in _batches(ws, coming, going, came, report):
            came.add(_committed(ws, batch, summary, overwrite, dry_run))
    except Problem as problem:
        if came.changes:
            taken = ", ".join(came.changes)
            problem.hint = f"a part is done; undo takes it back: {taken}" + (
                f". {problem.hint}" if problem.hint else ""
            )
        raise
    return came


def _batches(
    ws: Workspace,
    coming: Iterable[IncomingFile],
    going: Iterable[tuple[NotePath, int]],
    came: BatchResult,
    report: Callable[[int], None],
) -> Iterator[_Batch]:
    """What is to change, in pieces that fit. What is as it should be already is told in `came`."""
    batch, counted = _Batch(), count(1)
    for one in coming:
        report(next(counted))
        try:
            data, size = _fetched(ws, one)
        except UnreadableFile as skipped:
            came.skipped.append(SkippedFile(one.path, skipped.reason, skipped.words))
            continue
        if data is None:
            came.unchanged.append(one.path)
            continue
        if batch.is_full_with(size):
            yield batch
            batch = _Batch()
        batch.add(one.path, data, size)
    for path, size in going:
        report(next(counted))
        if size > LARGEST:
            came.skipped.append(SkippedFile(path, "too_large", "it is too large to be kept for an undo, so it stays"))
            continue
        if batch.is_full_with(size):
            yield batch
            batch = _Batch()
        batch.add(path, None, size)
    if batch.files:
        yield batch


def _fetched(ws: Workspace, one: IncomingFile) -> tuple[bytes | None, int]:
    """New bytes and how much they weigh with the old ones; None where they are there already."""
    if one.size > LARGEST:
        raise UnreadableFile(
            "too_large", f"it has {one.size:,} bytes, and more than {LARGEST:,} are not kept for an undo"
        )
    try:
        there = read_or_none(ws.store, one.path)
    except Forbidden as problem:
        raise UnreadableFile("not_allowed", problem.message) from None
    if there is None and (what := _in_the_way(ws, one.path)):
        raise UnreadableFile("exists", what)
    if there is not None and version_of(there.data) == one.sha256:
        return None, 0
    data = one.fetch()
    if there is not None and there.data == data:
        return None, 0
    return data, len(data) + (len(there.data) if there else 0)


def _in_the_way(ws: Workspace, path: NotePath) -> str:
    """What keeps a new file from being made: a folder of its name, or a file where its folder should be."""
    here = path
    while here:
        try:
            kind = ws.store.stat(here).kind
        except (NotFound, Forbidden):
            here = NotePath(here.folder)
            continue
        if here == path:
            return f"{here} is a {kind}"
        return f"{here} is a file" if kind in ("file", "placeholder") else ""
    return ""


def _committed(
    ws: Workspace, batch: _Batch, summary: Callable[[int], str], overwrite: bool, dry_run: bool
) -> BatchResult:
    """One batch as one change set, without the files that the file system does not let be written."""
    refused: list[SkippedFile] = []
    while True:
        try:
            came = _tried(ws, batch, summary, overwrite, dry_run)
        except Forbidden as problem:
            path = problem.details.get("path")
            if path not in batch.files or len(refused) >= MOST_REFUSALS:
                raise
            del batch.files[path]
            refused.append(SkippedFile(path, "not_allowed", problem.message))
        else:
            came.skipped += refused
            return came


def _tried(ws: Workspace, batch: _Batch, summary: Callable[[int], str], overwrite: bool, dry_run: bool) -> BatchResult:
    outcome: list[BatchResult] = []

    def make() -> Plan:
        came = BatchResult()
        outcome[:] = [came]
        steps = [step for path, data in batch.files.items() if (step := _step(ws, path, data, overwrite, came))]
        gone = {step.path for step in steps if isinstance(step, Drop)}
        return Plan(tuple(steps), summary(len(steps)), emptied=_folders_of(gone))

    if dry_run:
        rehearse(ws, make())
        return outcome[0]
    done = commit_latest(ws, make)
    if done.id is not None:
        outcome[0].changes.append(done.id)
    return outcome[0]


def _step(ws: Workspace, path: NotePath, data: bytes | None, overwrite: bool, came: BatchResult) -> Put | Drop | None:
    """What brings one file there from what is there now."""
    there = read_or_none(ws.store, path)
    if data is None:
        if there is None:
            return None
        came.deleted.append(path)
        return Drop(path, there)
    if there is None:
        came.created.append(path)
        return Put(path, data, None)
    if there.data == data:
        came.unchanged.append(path)
        return None
    if not overwrite:
        came.skipped.append(SkippedFile(path, "exists", "there is another file of this name"))
        return None
    came.replaced.append(path)
    return Put(path, data, there)


def _folders_of(paths: Iterable[NotePath]) -> tuple[str, ...]:
    """Every folder these files are in, deepest first: those left empty go with them."""
    folders: set[str] = set()
    for path in paths:
        folder = path.folder
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return tuple(sorted(folders, key=lambda folder: (-folder.count("/"), folder)))
