"""Many files at once: as one change set, or as a few where it would hold too many files or bytes.

Between two change sets others can write; within one it is all or nothing. Each can be undone by itself.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from notewright.engine.changes.commit import commit_latest, read_or_none, rehearse
from notewright.engine.changes.plan import Drop, Plan, Put
from notewright.engine.workspace import Workspace
from notewright.errors import Forbidden, NotFound, Problem
from notewright.notes.path import NotePath
from notewright.stores.base import parents, version_of

MAX_FILES = 2_000  # of one change set, for nobody else can write while it lasts
MAX_BYTES = 64 << 20  # new and old ones together, for they are in memory and in the history
MAX_FILE_BYTES = 256 << 20  # a larger file is not kept in a history
_STAYS = "it is too large to be kept for an undo, so it stays"
MAX_REFUSALS = 20  # of single files by the file system, before the rest of a change set is given up too


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

    def skipped(self, path: str) -> SkippedFile:
        return SkippedFile(path, self.reason, self.words)


@dataclass(frozen=True, slots=True)
class IncomingFile:
    """A file that is to be in the workspace as `fetch` brings it; without one it is to go."""

    path: NotePath
    size: int
    fetch: Callable[[], bytes] | None  # may raise UnreadableFile
    sha256: str | None = None  # spares fetching what is there already


@dataclass(frozen=True)
class BatchResult:
    """What became of each file, or would. `changes` take it back; there are several where it was much."""

    created: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    skipped: tuple[SkippedFile, ...] = ()
    changes: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """As JSON for programs."""
        lists = {one.name: list(getattr(self, one.name)) for one in fields(BatchResult)}
        return lists | {"skipped": [asdict(one) for one in self.skipped]}


def write_files(
    ws: Workspace,
    files: Iterable[IncomingFile | SkippedFile],
    *,
    summary: Callable[[int], str],
    overwrite: bool,
    dry_run: bool = False,
    report: Callable[[int], None] = lambda done: None,
) -> BatchResult:
    """Write and remove these files, as far as nothing is against it; what was skipped before is in the result too.
    `summary` is told how many files a change set has, `report` how many were looked at. The caller has checked who may
    do this."""
    writer = _BatchWriter(ws, summary, overwrite, dry_run)
    try:
        for batch in writer.batches(files, report):
            writer.commit(batch)
    except Problem as problem:
        if writer.changes:
            part = f"a part is done; undo takes it back: {', '.join(writer.changes)}"
            problem.hint = f"{part}. {problem.hint}" if problem.hint else part
        raise
    paths = {kind: tuple(sorted(paths)) for kind, paths in writer.paths.items()}
    skipped = tuple(sorted(writer.skipped, key=lambda one: one.path))
    return BatchResult(**paths, skipped=skipped, changes=tuple(writer.changes))


@dataclass
class _BatchWriter:
    """One call of `write_files`, and what became of its files so far."""

    ws: Workspace
    summary: Callable[[int], str]
    overwrite: bool
    dry_run: bool
    paths: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))  # by what was done to them
    skipped: list[SkippedFile] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)

    def batches(
        self, files: Iterable[IncomingFile | SkippedFile], report: Callable[[int], None]
    ) -> Iterator[dict[NotePath, bytes | None]]:
        """What is to change, None being what is to go, in pieces that fit."""
        batch, total = dict[NotePath, bytes | None](), 0
        for count, one in enumerate(files, 1):
            report(count)
            try:
                fetched = self._fetch(one)
            except UnreadableFile as refused:
                self.skipped.append(refused.skipped(one.path))
                continue
            if fetched is None:
                self.paths["unchanged"].append(one.path)
                continue
            data, size = fetched
            if batch and (total + size > MAX_BYTES or len(batch) >= MAX_FILES):
                yield batch
                batch, total = {}, 0
            batch[NotePath(one.path)] = data
            total += size
        if batch:
            yield batch

    def _fetch(self, one: IncomingFile | SkippedFile) -> tuple[bytes | None, int] | None:
        """New bytes and how much they weigh with the old ones; None where they are there already."""
        if isinstance(one, SkippedFile):
            raise UnreadableFile(one.reason, one.words)
        if one.size > MAX_FILE_BYTES:
            why = f"it has {one.size:,} bytes, and more than {MAX_FILE_BYTES:,} are not kept for an undo"
            raise UnreadableFile("too_large", why if one.fetch else _STAYS)
        if one.fetch is None:
            return None, one.size
        try:
            there = read_or_none(self.ws.store, one.path)
        except Forbidden as problem:
            raise UnreadableFile("not_allowed", problem.message) from None
        if there is None:
            _refuse_obstacle(self.ws, one.path)
            data = one.fetch()
            return data, len(data)
        if version_of(there.data) == one.sha256 or (data := one.fetch()) == there.data:
            return None
        return data, len(data) + len(there.data)

    def commit(self, batch: dict[NotePath, bytes | None]) -> None:
        """One batch as one change set, without the files that the file system does not let be written."""
        steps: dict[NotePath, tuple[str, Put | Drop | None]] = {}
        refused: list[SkippedFile] = []

        def make() -> Plan:
            steps.clear()
            steps.update((path, self._step(path, data)) for path, data in batch.items())
            todo = tuple(step for _, step in steps.values() if step is not None)
            emptied = {folder for step in todo if isinstance(step, Drop) for folder in parents(step.path)}
            deepest_first = sorted(emptied, key=lambda folder: (-folder.count("/"), folder))
            return Plan(todo, self.summary(len(todo)), emptied=tuple(deepest_first))

        while True:
            try:
                if self.dry_run:
                    rehearse(self.ws, make())
                elif change := commit_latest(self.ws, make).id:
                    self.changes.append(change)
                break
            except Forbidden as problem:
                path = problem.details.get("path")
                if path not in batch or len(refused) >= MAX_REFUSALS:
                    raise
                del batch[path]
                refused.append(SkippedFile(path, "not_allowed", problem.message))
        for path, (kind, _) in steps.items():
            if kind == "exists":
                self.skipped.append(SkippedFile(path, kind, "there is another file of this name"))
            elif kind != "gone":
                self.paths[kind].append(path)
        self.skipped += refused

    def _step(self, path: NotePath, data: bytes | None) -> tuple[str, Put | Drop | None]:
        """What brings one file there from what is there now."""
        there = read_or_none(self.ws.store, path)
        if data is None:
            return ("gone", None) if there is None else ("deleted", Drop(path, there))
        if there is None:
            return "created", Put(path, data, None)
        if there.data == data:
            return "unchanged", None
        return ("replaced", Put(path, data, there)) if self.overwrite else ("exists", None)


def _refuse_obstacle(ws: Workspace, path: NotePath) -> None:
    """A folder of its name, or a file where its folder should be, keeps a new file from being made."""
    for here in (path, *map(NotePath, parents(path))):
        try:
            kind = ws.store.stat(here).kind
        except (NotFound, Forbidden):
            continue
        if here == path:
            raise UnreadableFile("exists", f"{here} is a {kind}")
        if kind in ("file", "placeholder"):
            raise UnreadableFile("exists", f"{here} is a file")
        return
