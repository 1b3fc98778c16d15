"""Second Brain's dialect: five tools over any file by its exact path, and errors with numbers."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from notewright.accounts.limits import RateLimits, Window
from notewright.engine.changes.quotas import find_quota_share
from notewright.engine.dialects.octarine import find_size
from notewright.engine.find.grep import Grep
from notewright.engine.find.grep import grep as grep_notes
from notewright.engine.read import fetch, list_files
from notewright.engine.workspace import Workspace
from notewright.engine.write import change_path, change_text, delete, put
from notewright.errors import Ambiguous, Exists, Invalid, NotFound, Problem, TooLarge
from notewright.index.base import PathGlob, Selection, Visibility
from notewright.notes.edits.edit import Replace, apply
from notewright.notes.glob import compile_glob, glob_literals
from notewright.notes.path import NotePath, path_problem
from notewright.notes.times import format_utc
from notewright.surfaces.base import (
    MAX_ANSWER_BYTES,
    Answer,
    Args,
    BadArgument,
    Call,
    FailedCall,
    Schema,
    Style,
    Surface,
    rate_limited_error,
)
from notewright.surfaces.http_status import STATUS
from notewright.surfaces.resources import NoteResources
from notewright.surfaces.schema import CHANGES, LOOKS, field, flag, takes, text, tool
from notewright.surfaces.second_brain.prompts import INSTRUCTIONS, PROMPTS

WRITE_BYTES = 1_048_576
READ_BYTES = 10_485_760
PART_BYTES = 268_435_456  # a larger file is not looked into at all
PATH_CHARACTERS = 4096
ECHO = 1000  # characters of an argument that an error repeats
MAX_RESULTS = 1000
WINDOWS = (Window(100, 60, "minute"), Window(1000, 3600, "hour"), Window(10_000, 86_400, "day"))
WARN_AT = 0.8


class SecondBrainStyle(Style):
    """`Error {code}: {message}` with the number in `_meta`; too many calls are HTTP's 429 where there is HTTP."""

    table: ClassVar[dict[str, int]] = STATUS | {"ambiguous": 400, "not_text": 400, "unavailable": 500}

    def render_problem(self, failed: FailedCall) -> Answer:
        problem = failed.problem
        sought = problem.code == "not_found" and problem.details.get("what") == "text"
        code = 400 if sought else self.table[problem.code]
        if problem.code == "limited":
            wait, limit, name = (problem.details[key] for key in ("retry_after", "limit", "name"))
            message = f"Rate limit exceeded: {limit} tool calls per {name}. Retry after {wait} seconds."
            if failed.call.transport == "http":
                raise rate_limited_error(problem, message)
            return Answer.error(f"Error 429: {message}", meta={"code": 429})
        return Answer.error(f"Error {code}: {describe_problem(problem, failed.args)}", meta={"code": code})

    def render_bad_arguments(self, failed: FailedCall, fault: BadArgument) -> Answer:
        if fault.argument == "path" and failed.tool != "grep" and fault.fault in ("missing", "length"):
            message = "path parameter is required and cannot be empty"
        elif fault.argument == "range":
            message = "Invalid range - expected [start, end] line numbers"
        else:
            message = f"Invalid parameters: {fault.message}"
        return Answer.error(f"Error 400: {message}", meta={"code": 400})


def describe_problem(problem: Problem, args: Args) -> str:
    """The dialect's own message for a problem where it has one, else ours."""
    if problem.code in ("internal", "unavailable") and "change" not in problem.details:
        return "Internal server error"
    if isinstance(problem, NotFound) and problem.details.get("what") in ("note", "file"):
        return f"File not found: {args.get('path', '')}"
    if isinstance(problem, NotFound) and problem.details.get("what") == "text":
        return f'String not found in file: "{_shorten(args["old_str"])}"'
    if isinstance(problem, Ambiguous):
        return f'String is not unique in file (appears {problem.details["count"]} times): "{_shorten(args["old_str"])}"'
    if isinstance(problem, Exists):
        return f"Target path already exists: {args.get('new_path', args.get('path', ''))}"
    if problem.code == "quota":
        return f"Storage quota exceeded ({problem.message})"
    hint = problem.hint
    return f"{problem.message}. {hint[:1].upper()}{hint[1:]}" if hint else problem.message


def _shorten(text: str) -> str:
    return text if len(text) <= ECHO else text[:ECHO] + "…"


def _parse_path(raw: str, name: str = "path") -> NotePath:
    if not raw.strip():
        raise Invalid(f"{name} parameter is required and cannot be empty", what=name)
    problem = path_problem(raw)
    if problem is None and NotePath(raw).is_hidden:
        problem = "names beginning with a dot are out of reach"
    if problem:
        raise Invalid(f"Invalid {name} {_shorten(raw)!r}: {problem}", what=name)
    return NotePath(raw)


def read(call: Call, args: Args) -> str:
    """Read a file, whole, some of its lines, or its first bytes."""
    ws, path = call.workspace, _parse_path(args["path"])
    lines = _parse_range(args["range"]) if "range" in args else None
    most = _parse_count(args, "max_bytes")
    size, is_whole = find_size(ws, path), lines is None and most is None
    limit = READ_BYTES if is_whole else PART_BYTES
    if size > limit:
        hint = "give range or max_bytes" if is_whole else ""
        raise TooLarge(f"File exceeds the {limit >> 20}MB read limit", hint=hint, size=size, limit=limit)
    text = fetch(ws, path).data.decode(errors="replace")
    if lines is not None:
        text = "\n".join(text.split("\n")[lines])
    return text if most is None else text.encode()[:most].decode(errors="ignore")


def _parse_range(given: list[float]) -> slice:
    start, end = (int(one) if isinstance(one, int) or one.is_integer() else None for one in given)
    if start is None or end is None:
        raise Invalid("Invalid range - line numbers must be whole numbers", what="range")
    if start < 1 or end < 1:
        raise Invalid("Invalid range - line numbers must be >= 1", what="range")
    if start > end:
        raise Invalid("Invalid range - start line must be <= end line", what="range")
    return slice(start - 1, end)


def write(call: Call, args: Args) -> Answer:
    """Make a file or replace all of it. Use edit to change a part."""
    ws, path = call.workspace, _parse_path(args["path"])
    data = args["content"].encode()
    if len(data) > WRITE_BYTES:
        raise TooLarge("Content exceeds 1MB limit", size=len(data), limit=WRITE_BYTES)
    put(ws, path, data)
    return _add_quota_warning(ws, f"Successfully wrote {len(data)} bytes to {path}")


def edit(call: Call, args: Args) -> Answer:
    """Replace a text that occurs once, and/or move the file; or delete it."""
    ws, path = call.workspace, _parse_path(args["path"])
    if args.get("delete"):
        delete(ws, path, trash=False)
        return Answer.of(f"Successfully deleted {path}")
    change = _make_replacement(path, args.get("old_str"), args.get("new_str"))
    if "new_path" in args:
        new = _parse_path(args["new_path"], "new_path")
        change_path(ws, path, new, change)
        return _add_quota_warning(ws, f"Successfully moved {path} to {new}")
    if change is None:
        raise Invalid("No operation specified (provide old_str/new_str, new_path, or delete)", what="path")
    change_text(ws, path, change)
    return _add_quota_warning(ws, f"Successfully edited {path}")


def _make_replacement(path: NotePath, old: str | None, new: str | None) -> Callable[[str], str] | None:
    if old is None and new is None:
        return None
    if old is None:
        raise Invalid("old_str is required when new_str is provided", what="old_str")
    if new is None:
        raise Invalid("new_str is required when old_str is provided", what="new_str")
    if not old:
        raise Invalid("old_str cannot be empty", what="old_str")
    return lambda text: apply(text, Replace(old, new), path)


def _add_quota_warning(ws: Workspace, text: str) -> Answer:
    """The answer, with a warning if the workspace is nearly full."""
    used = find_quota_share(ws)
    if used is None or used < WARN_AT:
        return Answer.of(text)
    full = "nearly" if ws.access.hide else f"{used:.0%}"  # a caller who may not see all of it gets no exact share
    return Answer.of(text, meta={"warning": f"Storage is {full} full"})


def glob(call: Call, args: Args) -> Answer:
    """Find files by name pattern; newest first, with size and date."""
    ws, pattern = call.workspace, args["pattern"]
    if not pattern.strip():
        raise Invalid("Invalid glob pattern: it is empty", what="pattern")
    limit = min(_parse_count(args, "max_results") or 100, MAX_RESULTS)
    with _translate_pattern_errors("glob"):
        wanted = PathGlob(pattern)
    chosen = Selection(
        notes_only=False,
        sort="modified",
        limit=limit,
        holding=glob_literals(pattern),
        visible=Visibility(ws.access.hide, globs=(wanted,)),
    )
    found, total = list_files(ws, chosen)
    rows = [{"path": one.path, "size": one.size, "modified": format_utc(one.modified_ns / 1e9)} for one in found]
    return _format_rows(rows, total)


def grep(call: Call, args: Args) -> Answer:
    """Find lines by regular expression in all files or below a path; case ignored."""
    ws, pattern, ignore_case = call.workspace, args["pattern"], True
    for prefix, means in (("(?-i)", False), ("(?i)", True)):
        if pattern.startswith(prefix):
            pattern, ignore_case = pattern[len(prefix) :], means
            break
    if not pattern:
        raise Invalid("Invalid regex pattern: it is empty", what="pattern")
    lines = min(_parse_count(args, "context_lines", least=0) or 0, MAX_RESULTS)
    scope = args["path"].removesuffix("/") if args.get("path") else None
    if scope is not None:
        if re.search(r"(^|/)(\.|/|$)|[\x00-\x1f\x7f]", scope) or len(scope) > PATH_CHARACTERS:
            message = f"Invalid path {_shorten(args['path'])!r}: name a file or folder from the root, or a glob"
            raise Invalid(message, what="path")
        if re.search(r"[*?\[{]", scope):
            with _translate_pattern_errors("glob"):
                compile_glob(scope)
    query = Grep(
        pattern,
        dialect="python-like",
        ignore_case=ignore_case,
        path=scope,
        files=True,
        context=lines,
        limit=min(_parse_count(args, "max_matches") or 50, MAX_RESULTS),
        spans=0,
        cancelled=call.cancelled,
    )
    with _translate_pattern_errors("regex"):
        found = grep_notes(ws, query)
    rows = []
    for one in found.items:
        row: dict[str, Any] = {"path": one.path, "line": one.line, "match": one.text}
        rows.append(row | {"context": [*one.before, one.text, *one.after]} if lines else row)
    return _format_rows(rows, found.total_lines, found.late)


@contextmanager
def _translate_pattern_errors(kind: str) -> Iterator[None]:
    """Raise errors of a pattern with the dialect's own message."""
    try:
        yield
    except Invalid as wrong:
        raise Invalid(f"Invalid {kind} pattern: {wrong.message}", hint=wrong.hint, what="pattern") from None


def _parse_count(args: Args, name: str, *, least: int = 1) -> int | None:
    """A whole number that is not too small, if it was given."""
    number = args.get(name)
    if number is not None and (not isinstance(number, int) or number < least):
        raise Invalid(f"{name} must be a whole number, at least {least}", what=name)
    return number


def _format_rows(rows: list[dict[str, Any]], total: int, late: bool = False) -> Answer:
    text, kept = json.dumps(rows, ensure_ascii=False, indent=2), len(rows)
    while kept and len(text) > MAX_ANSWER_BYTES:
        kept = min(kept - 1, kept * MAX_ANSWER_BYTES // len(text))
        text = json.dumps(rows[:kept], ensure_ascii=False, indent=2)
    cut = late or kept < total
    return Answer.of(text, meta={"truncated": True, "total": total} if cut else None)


NUMBER = {"type": "number"}
PATH = text("Path from the root, extension included", required=True)
READ = takes(
    path=PATH,
    range=field("array", "First and last line, from 1", items=NUMBER, minItems=2, maxItems=2),
    max_bytes=field("number", "Read no more than this"),
)
WRITE = takes(path=PATH, content=text("The whole file, at most 1 MB", required=True))
EDIT = takes(
    path=PATH,
    old_str=text("Text to replace; must be there exactly once"),
    new_str=text("What to put there; empty removes it"),
    new_path=text("Move the file here"),
    delete=flag("Remove the file; the rest is ignored"),
)
GLOB = takes(
    pattern=text("Such as projects/**/*.md", required=True), max_results=field("number", "Default 100, most 1000")
)
GREP = takes(
    pattern=text("Regular expression; begin with (?-i) to mind case", required=True),
    path=text("File, folder or glob to look in"),
    max_matches=field("number", "Default 50, most 1000"),
    context_lines=field("number", "Lines before and after"),
)
TOOLS = (
    tool("read", read, READ, LOOKS, by_index=False),
    tool("write", write, WRITE, CHANGES),
    tool("edit", edit, EDIT, CHANGES),
    tool("glob", glob, GLOB, LOOKS),
    tool("grep", grep, GREP, LOOKS),
)


def _drop_when_deleting(schema: Schema, args: Args) -> Args:
    """Where a file is to be deleted, drop all other arguments: they are ignored, even invalid ones."""
    deleting = schema is EDIT and args.get("delete") is True
    return {name: args[name] for name in ("path", "delete") if name in args} if deleting else args


def surface(limiter: RateLimits | None = None) -> Surface:
    """The surface. Without a limiter calls are not limited."""

    def guard(call: Call, tool: str) -> None:
        if limiter is not None:
            limiter.count(f"second_brain {call.caller}", WINDOWS)

    return Surface(
        "second_brain",
        INSTRUCTIONS,
        TOOLS,
        SecondBrainStyle(),
        prompts=PROMPTS,
        resources=NoteResources("file:///", notes_only=False, whole_library=False, audience=("user",)),
        coerce=_drop_when_deleting,
        guard=guard,
        has_own_limits=limiter is not None,
        sessions="required",
        sse=False,
    )
