"""Octarine's envelope: how successes, errors, files, matches and the text around them are rendered."""

import json
import logging
import re
import stat
from collections.abc import Mapping
from typing import Any, ClassVar

from notewright.engine.dialects.octarine import RankedNote, is_folder
from notewright.engine.find.grep import TextMatch
from notewright.errors import Problem
from notewright.notes.times import format_utc
from notewright.stores.base import Entry
from notewright.surfaces.base import INVALID_PARAMS, Answer, Args, BadArgument, FailedCall, RpcError, Style

log = logging.getLogger(__name__)

CONTEXT = 100  # characters of a line shown around a match
ECHO = 300  # characters of an argument that an error repeats
OUTSIDE = "Symlink leaves the workspace"
TRAVERSAL = "Path traversal detected"
MESSAGES = {
    "WORKSPACE_NOT_FOUND": "Workspace not found",
    "INVALID_WORKSPACE_NAME": "Invalid workspace name",
    "NOTE_NOT_FOUND": "Note not found",
    "INVALID_NOTE_PATH": "Invalid note path",
    "PERMISSION_DENIED": "Permission denied",
    "WORKSPACE_READ_ONLY": "Workspace is read-only",
    "FILE_TOO_LARGE": "File exceeds the maximum size",
    "INVALID_CONTENT": "Invalid content",
    "IO_ERROR": "File system operation failed",
    "INVALID_QUERY": "Invalid query",
    "RATE_LIMIT_EXCEEDED": "Rate limit exceeded",
}
CODES = {  # of what is invalid: an argument, or what a problem says it is about
    "workspace": "INVALID_WORKSPACE_NAME",
    "note_path": "INVALID_NOTE_PATH",
    "path": "INVALID_NOTE_PATH",
    "folder": "INVALID_NOTE_PATH",
    "content": "INVALID_CONTENT",
    "query": "INVALID_QUERY",
    "pattern": "INVALID_QUERY",
}
WATCHED = {"PERMISSION_DENIED", "WORKSPACE_READ_ONLY", "RATE_LIMIT_EXCEEDED"}


as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def to_success(data: Mapping[str, Any]) -> str:
    return as_json({"success": True, "data": data})


class OctarineStyle(Style):
    """`{"success":false,"error":…,"code":…,"details":{…}}`; a wrong type of an optional argument is the protocol's."""

    table: ClassVar[dict[str, tuple[str, str]]] = {  # the code, and the reason where the problem gives none
        "not_found": ("NOTE_NOT_FOUND", ""),
        "ambiguous": ("IO_ERROR", "EINVAL"),
        "exists": ("IO_ERROR", "EEXIST"),
        "conflict": ("IO_ERROR", "ECONFLICT"),
        "invalid": ("INVALID_NOTE_PATH", ""),
        "not_text": ("INVALID_CONTENT", "The note that is there is not UTF-8"),
        "too_large": ("FILE_TOO_LARGE", ""),
        "read_only": ("WORKSPACE_READ_ONLY", ""),
        "forbidden": ("PERMISSION_DENIED", ""),
        "quota": ("IO_ERROR", "EDQUOT"),
        "no_space": ("IO_ERROR", "ENOSPC"),
        "busy": ("IO_ERROR", "EBUSY"),
        "indexing": ("IO_ERROR", "EAGAIN"),
        "limited": ("RATE_LIMIT_EXCEEDED", ""),
        "unavailable": ("IO_ERROR", "EIO"),
        "internal": ("IO_ERROR", "EIO"),
    }

    def render_problem(self, failed: FailedCall) -> Answer:
        problem = failed.problem
        if problem.code == "limited":
            facts = problem.details
            limits = {"limit": facts["limit"], "window": facts["window"], "retryAfter": facts["retry_after"]}
            return self._refuse(failed, "RATE_LIMIT_EXCEEDED", limits)
        if problem.code == "invalid" and problem.details.get("what") not in CODES:
            raise RpcError(INVALID_PARAMS, f"Invalid params: {problem.message}")
        code, reason = self._classify(problem, failed.tool)
        if "change" in problem.details:  # the agent must know before it tries again
            reason = f"{reason}: change {problem.details['change']} may have happened all the same"
        return self._refuse(failed, code, _collect_details(failed.args, reason or problem.message))

    def render_bad_arguments(self, failed: FailedCall, fault: BadArgument) -> Answer:
        code = CODES.get(fault.argument)
        if fault.argument == "directory" and fault.fault == "surrogate":
            code = "INVALID_NOTE_PATH"
        if code is None:
            raise RpcError(INVALID_PARAMS, f"Invalid params: {fault.message}")
        return self._refuse(failed, code, _collect_details(failed.args, fault.message))

    def _classify(self, problem: Problem, tool: str) -> tuple[str, str]:
        """The code and the reason: what the problem is about can matter more than its kind."""
        details = problem.details
        match problem.code, details.get("what"):
            case "not_found", "workspace":
                return "WORKSPACE_NOT_FOUND", ""
            case "not_found", _ if details.get("outside"):
                return "INVALID_NOTE_PATH", OUTSIDE
            case "not_found", _ if tool == "octarine_write_note":
                return "IO_ERROR", "ENOENT"
            case "exists", "folder":
                return "IO_ERROR", "EISDIR"
            case "forbidden", _ if details.get("by") == "rule":
                return "WORKSPACE_READ_ONLY", ""
            case "invalid", what:
                return CODES[str(what)], details.get("reason", "")
        return self.table[problem.code]

    def _refuse(self, failed: FailedCall, code: str, details: dict[str, Any]) -> Answer:
        if code in WATCHED or details.get("reason") in (TRAVERSAL, OUTSIDE):
            log.warning("%s refused to %r: %s %r", failed.tool, failed.call.caller, code, details)
        error = {"success": False, "error": MESSAGES[code], "code": code, "details": details}
        return Answer.error(as_json(error))


def _collect_details(args: Args, reason: str) -> dict[str, Any]:
    path = args.get("note_path", args.get("directory"))
    facts = {"workspace": args.get("workspace"), "path": path, "reason": reason}
    given = {key: value for key, value in facts.items() if isinstance(value, str) and value}
    return {key: value if len(value) <= ECHO else value[:ECHO] + "..." for key, value in given.items()}


# ---- files --------------------------------------------------------------------------------------------


def format_metadata(entry: Entry, created: float) -> dict[str, Any]:
    """Size, times and permissions of a note, as far as this store knows them."""
    facts: dict[str, Any] = {
        "size": entry.size,
        "created": format_utc(created),
        "modified": format_utc(entry.modified_ns / 1e9),
    }
    if entry.accessed_ns is not None:
        facts["accessed"] = format_utc(entry.accessed_ns / 1e9)
    if entry.mode is not None:
        facts["permissions"] = stat.filemode(entry.mode)[1:]
    return facts


def format_entry(entry: Entry, created: float | None) -> dict[str, Any]:
    """A file or folder of a listing. A symlink that leads nowhere has neither size nor times."""
    folder = is_folder(entry)
    facts: dict[str, Any] = {"path": entry.path, "type": "directory" if folder else "file"}
    if entry.kind != "symlink" or entry.mode is not None:
        if not folder:
            facts["size"] = entry.size
        facts["modified"] = format_utc(entry.modified_ns / 1e9)
        if created is not None:
            facts["created"] = format_utc(created)
    if entry.kind == "symlink":
        facts["isSymlink"] = True
        target = entry.target if entry.real is None else entry.real
        if target is not None and not target.startswith("/"):  # an absolute path of this machine is not shown
            facts["target"] = target
    return facts


# ---- matches ------------------------------------------------------------------------------------------


def format_result(one: RankedNote, preview: str, highlights: list[dict[str, Any]]) -> dict[str, Any]:
    found = one.found
    times = {"modified": format_utc(found.modified_ns / 1e9), "created": format_utc(one.created)}
    return {
        "workspace": one.ws.name,
        "path": found.path,
        "matches": found.matches,
        "preview": preview,
        "score": one.score,
        "highlights": highlights,
        "metadata": {"size": found.size, **times},
    }


def cut_preview(text: str, start: int, length: int) -> str:
    """`length` characters around a place, on one line, with `...` where text is cut."""
    low = max(0, min(start - length // 3, len(text) - length))
    return _add_dots(re.sub(r"\s+", " ", text[low : low + length]).strip(), low > 0, low + length < len(text))


def cut_line(text: str, place: TextMatch) -> str:
    """The line a match begins in, trimmed, with `...` where it is cut. Reads no more text than it shows."""
    low = max(0, place.start - CONTEXT // 3)
    low = max(low, place.start - place.column)
    high = min(len(text), low + CONTEXT)
    end = text.find("\n", place.start, high)
    cut_after = end < 0 and high < len(text) and text[high] not in "\r\n"
    return _add_dots(text[low : high if end < 0 else end].strip(), low > place.start - place.column, cut_after)


def _add_dots(text: str, before: bool, after: bool) -> str:
    return ("..." if before else "") + text + ("..." if after else "")
