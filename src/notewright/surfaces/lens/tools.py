"""Lens's dialect: three tools that answer in plain text over all workspaces, each a folder of documents."""

from typing import ClassVar

from notewright.engine.dialects.lens import find_backlinks, find_forward_links, full_name
from notewright.engine.read import list_files, probably_exists
from notewright.engine.read import read as read_note
from notewright.engine.workspace import Workspace
from notewright.errors import Invalid, NotFound, codes
from notewright.index.base import Selection
from notewright.notes.glob import compile_glob, glob_literals
from notewright.notes.path import NotePath, path_problem
from notewright.surfaces.base import (
    INVALID_PARAMS,
    Answer,
    Args,
    BadArgument,
    Call,
    FailedCall,
    RpcError,
    Style,
    Surface,
    join_bounded,
)
from notewright.surfaces.resources import NoteResources
from notewright.surfaces.schema import LOOKS, field, takes_only, text, tool

LINES = 2000
LINE_CHARACTERS = 2000
UNLOADABLE = {"unavailable", "forbidden", "busy"}


class LensStyle(Style):
    """`Error: …` as an answer where a better call would have worked; a wrong call is a protocol error."""

    table: ClassVar[dict[str, str]] = {code: "Error: " for code in codes()}

    def render_problem(self, failed: FailedCall) -> Answer:
        problem, named = failed.problem, failed.args.get("file_path")
        if isinstance(problem, NotFound) and named is not None:
            return Answer.error(f"Error: Document not found: {named}")
        if problem.code in UNLOADABLE and named is not None and "change" not in problem.details:
            return Answer.error(f"Error: Document data not loaded: {named}")
        if isinstance(problem, Invalid):
            raise RpcError(INVALID_PARAMS, f"Invalid {problem.details.get('what', 'arguments')}: {problem.message}")
        return Answer.error(f"{self.table[problem.code]}{problem}")

    def render_bad_arguments(self, failed: FailedCall, fault: BadArgument) -> Answer:
        if fault.fault == "missing":
            raise RpcError(INVALID_PARAMS, f"Missing required parameter: {fault.argument}")
        raise RpcError(INVALID_PARAMS, f"Invalid parameter: {fault.message}")


def _locate_document(call: Call, named: str) -> tuple[Workspace, NotePath]:
    """The document of exactly this path, else with `.md` added."""
    for ws in call.workspaces:
        rest = named.removeprefix(ws.name + "/")
        if rest == named or path_problem(rest) is not None:
            continue
        for spelling in (rest, rest + ".md"):
            path = NotePath(spelling)
            if path.is_note and ws.access.sees(path) and probably_exists(ws, path):
                return ws, path
    raise NotFound(f"there is no document {named}", what="note", path=named)


def read(call: Call, args: Args) -> str:
    """Read a document with line numbers: 2000 lines from the start unless offset and limit say otherwise."""
    first, count = max(1, _parse_whole(args, "offset", 0)), _parse_whole(args, "limit", LINES)
    ws, path = _locate_document(call, args["file_path"])
    lines = read_note(ws, path).text.split("\n")
    lines = lines[:-1] if lines[-1] == "" else lines
    shown = enumerate(lines[first - 1 : first - 1 + count], first)
    return "\n".join(f"{number:>6}\t{line.removesuffix(chr(13))[:LINE_CHARACTERS]}" for number, line in shown)


def _parse_whole(args: Args, name: str, default: int) -> int:
    number = args.get(name, default)
    if not isinstance(number, int) or number < 0:
        raise Invalid("it must be a whole number of lines, not negative", what=name)
    return number


def glob(call: Call, args: Args) -> Answer:
    """Find documents by path pattern (*, **, ?, [a-z], {a,b}). One path a line, in alphabetical order."""
    pattern = args["pattern"]
    if not pattern:
        raise Invalid("it is empty", what="pattern")
    scope = args.get("path", "").strip("/")
    matches, inside = compile_glob(pattern, negation=True), scope + "/" if scope else ""
    found = []
    for ws in call.workspaces:
        holding = tuple(piece for piece in glob_literals(pattern) if piece not in ws.name)
        for filed in list_files(ws, Selection(holding=holding, visible=ws.access.visibility))[0]:
            name = full_name(ws, filed.path)  # matches as a whole, or below the scope
            if name.startswith(inside) and (matches(name) or (scope and matches(name.removeprefix(inside)))):
                found.append(name)
    return join_bounded(sorted(found), "pattern") if found else Answer.of("No matches found.")


def get_links(call: Call, args: Args) -> str:
    """Documents that link to this one, and those it links to."""
    ws, path = _locate_document(call, args["file_path"])
    back = find_backlinks(call.workspaces, ws, path)
    forward = find_forward_links(call.workspaces, ws, path)
    lines = ["Backlinks (documents linking to this):", *([f"- {path}" for path in back] or ["- (none)"]), ""]
    lines += ["Forward links (documents this links to):", *([f"- {path}" for path in forward] or ["- (none)"])]
    return "\n".join(lines)


FILE_PATH = text("Folder/Name.md", required=True)
READ = takes_only(
    file_path=FILE_PATH,
    offset=field("number", "First line, from 1"),
    limit=field("number", "How many lines"),
)
GLOB = takes_only(pattern=text("Such as **/*.md", required=True), path=text("Folder to look in; default all"))
SURFACE = Surface(
    "lens",
    "Shared documents. A path is the folder's name, then the document: `Lens/Cell Theory.md`. glob finds documents by "
    "name, read shows one with line numbers, get_links shows what links to it and what it links to.",
    (
        tool("read", read, READ, LOOKS, by_index=False),
        tool("glob", glob, GLOB, LOOKS),
        tool("get_links", get_links, takes_only(file_path=FILE_PATH), LOOKS),
    ),
    LensStyle(),
    resources=NoteResources("note:///"),
    sessions="required",
    handshake=True,
)
