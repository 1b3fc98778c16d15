"""Reading arguments: workspaces in front of paths, pages, points in time."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, tzinfo
from functools import lru_cache

from notewright.engine.read import Reading, find_folder, name_similarity, read_exact_path
from notewright.engine.read import locate as locate_note
from notewright.engine.workspace import Workspace
from notewright.errors import Ambiguous, Invalid, NotFound, Problem
from notewright.notes.path import NotePath
from notewright.notes.times import parse_time, to_datetime
from notewright.surfaces.base import Args, Call

MAX_PATH_CHARS = 4_096  # characters of a path; more is not quoted back
_NO_PREFIX = nullcontext()  # nearly every call passes here, some of them twice


@dataclass(frozen=True, slots=True)
class NamedPath:
    """A file, folder or nothing yet, in one workspace."""

    ws: Workspace
    path: NotePath


class Places:
    """Paths as `notes` writes them: with several workspaces each begins with the workspace's name."""

    __slots__ = ("call", "several")

    def __init__(self, call: Call) -> None:
        self.call, self.several = call, len(call.served) > 1

    def show(self, ws: Workspace, path: str) -> str:
        if not self.several:
            return path
        return f"{ws.name}/{path}" if path else ws.name

    def prefixing_problems(self, ws: Workspace) -> AbstractContextManager[None]:
        """Within this block, problems name their paths as this caller knows them."""
        return self._prefix_problems(ws) if self.several else _NO_PREFIX

    @contextmanager
    def _prefix_problems(self, ws: Workspace) -> Iterator[None]:
        try:
            yield
        except Problem as problem:
            raise self._prefix_problem(ws, problem) from problem

    def _prefix_problem(self, ws: Workspace, problem: Problem) -> Problem:
        details = problem.details
        named = {details.get("path"), *details.get("nearest", ()), *details.get("candidates", ())}
        paths = sorted((path for path in named if isinstance(path, str) and path), key=len, reverse=True)
        if details.get("what") in ("section", "block", "tag", "change", "workspace") or not paths:
            paths = [details["path"]] if details.get("path") else []
        if not paths:
            return problem
        either = re.compile(rf"(?<![\w/])(?:{'|'.join(map(re.escape, paths))})(?!\w)")
        message, hint = (
            either.sub(lambda found: f"{ws.name}/{found[0]}", text) for text in (problem.message, problem.hint)
        )
        return type(problem)(message, hint=hint, **details)

    def split(self, raw: str) -> tuple[Workspace, str]:
        """The workspace a path begins with, and the rest; NotFound with the names when it begins with none."""
        wanted = raw.strip("/")  # blanks may belong to a name that is there
        if len(wanted) > MAX_PATH_CHARS:
            message = f"a path may have {MAX_PATH_CHARS} characters at most"
            raise Invalid(message, hint="give a shorter one", what="path")
        if not self.several:
            return self.call.workspace, wanted if wanted.strip().strip("/") else ""
        wanted = wanted.lstrip().lstrip("/")
        workspaces = sorted(self.call.workspaces, key=lambda ws: -len(ws.name))  # "A" and "A/B" may both be names
        for fold in (str, str.casefold):
            for ws in workspaces:
                if fold(wanted.rstrip() + "/") == fold(ws.name + "/"):
                    return ws, ""
                if fold(wanted).startswith(fold(ws.name + "/")):
                    return ws, wanted[len(ws.name) + 1 :]
        names = [ws.name for ws in self.call.workspaces]
        raise NotFound(
            f"{raw!r} begins with no workspace", hint=f"begin with {' or '.join(name + '/' for name in names)}",
            what="workspace", nearest=names,
        )  # fmt: skip

    def locate(self, raw: str) -> NamedPath:
        """The file meant by a path, a name or an alias."""
        try:
            ws, rest = self.split(raw)
        except NotFound:
            return self._locate_by_name(raw)
        if not rest:
            raise Invalid(f"{raw!r} is not a note", hint="name a note by its path", what="path")
        with self.prefixing_problems(ws):
            return NamedPath(ws, locate_note(ws, rest))

    def read(self, raw: str) -> tuple[Workspace, Reading] | None:
        """The note whose whole path this is, read; None where `locate` has to find it."""
        try:
            ws, rest = self.split(raw)
        except NotFound:
            return None
        with self.prefixing_problems(ws):
            found = read_exact_path(ws, rest)
        return (ws, found) if found is not None else None

    def _locate_by_name(self, raw: str) -> NamedPath:
        """A bare name may be in any workspace; in several it is ambiguous."""
        found: list[NamedPath] = []
        candidates: list[str] = []
        near: list[NamedPath] = []
        for ws in self.call.workspaces:
            try:
                place = NamedPath(ws, locate_note(ws, raw))
            except NotFound as missing:
                near += [NamedPath(ws, path) for path in missing.details.get("nearest", ())]
            except Ambiguous as several:
                candidates += [self.show(ws, path) for path in several.details["candidates"]]
            else:
                found.append(place)
                candidates.append(self.show(ws, place.path))
        if len(candidates) > 1:
            raise Ambiguous(
                f"{raw!r} could be any of {len(candidates)} notes: {', '.join(candidates[:10])}",
                hint="give one of these paths", what="note", candidates=candidates,
            )  # fmt: skip
        if found:
            return found[0]
        near.sort(key=lambda place: -name_similarity(raw, place.path))
        nearest = [self.show(place.ws, place.path) for place in near[:3]]
        hint = f"nearest: {', '.join(nearest)}" if nearest else "list shows what is there"
        raise NotFound(f"there is no {raw}", hint=hint, what="note", nearest=nearest)

    def folders(self, raw: str) -> list[tuple[Workspace, str]]:
        """Which folders of which workspaces a `folder` argument means; `""` is everywhere."""
        if not raw.strip().strip("/"):
            return [(ws, "") for ws in self.call.workspaces]
        ws, rest = self.split(raw)
        with self.prefixing_problems(ws):
            return [(ws, find_folder(ws, rest))]

    def globbed_folders(self, raw: str, glob: str | None) -> list[tuple[Workspace, str, str | None]]:
        """The folders, each with the glob to use below it. Like a path, a glob may begin with a workspace's name."""
        if glob and self.several and not raw.strip().strip("/"):
            with suppress(NotFound):
                ws, rest = self.split(glob)
                if rest:
                    return [(ws, "", rest)]
        return [(ws, folder, glob) for ws, folder in self.folders(raw)]


@dataclass(frozen=True, slots=True)
class OffsetPage:
    """Which part of a long answer is requested."""

    about: str  # the question, so that a cursor of another one is refused
    offset: int
    limit: int

    @classmethod
    def of(cls, tool: str, args: Args, limit: int, question: Sequence[str]) -> "OffsetPage":
        """The page these arguments ask for; `question` names those that make it another question. Invalid for a cursor
        that is not ours or belongs to another question."""
        about = " ".join([tool, *(repr(args.get(name)) for name in question)])
        offset = 0
        if cursor := args.get("cursor"):
            shown, _, question_hash = cursor.partition("-")
            if question_hash != _short_hash(about) or not re.fullmatch("[0-9a-f]{1,6}", shown):
                hint = "leave it out to begin again"
                raise Invalid("this cursor belongs to another question", hint=hint, what="cursor")
            offset = int(shown, 16)
        return cls(about, offset, args.get("limit", limit))

    @property
    def end(self) -> int:
        return self.offset + self.limit

    def cursor(self, shown: int) -> str:
        """Where the next page begins, if so many of this one were shown."""
        return f"{self.offset + shown:x}-{_short_hash(self.about)}"


def _short_hash(about: str) -> str:
    return hashlib.sha256(about.encode("utf-8", "replace")).hexdigest()[:8]


def parse_since(raw: str, zone: tzinfo, what: str = "since") -> float:
    """`YYYY-MM-DD` (midnight in the zone) or RFC 3339, as seconds since 1970."""
    seconds = parse_time(raw, zone, strict=True)
    if seconds is None:
        shown = raw if len(raw) <= 100 else raw[:99] + "…"
        raise Invalid(f"{shown!r} is not a time", hint="write YYYY-MM-DD or RFC 3339 with Z or an offset", what=what)
    return seconds


@lru_cache(maxsize=2_048)  # a page of a listing has a hundred of them
def format_day(seconds: float, zone: tzinfo = UTC) -> str:
    """The date, on a clock of that zone."""
    return to_datetime(seconds, zone).date().isoformat()
