"""The parts every surface is made of: plain values, and three small hooks for its dialect.

A surface is data plus thin functions. It decides nothing: it turns arguments into the engine's values, and the
engine's values and problems into its own words. A complete one:

    def read(call: Call, args: Args) -> str:
        'Read one note.'                                   # what an agent reads of it
        return engine.read(call.workspace, NotePath.parse(args["path"])).text

    class Plain(Style):                                    # how this dialect renders errors
        table = {"not_found": "not_found", ...}            # a word for every code: a test compares
        def render_problem(self, failed: FailedCall) -> Answer:
            return Answer.error(f"{self.table[failed.problem.code]}: {failed.problem}")

    SURFACE = Surface("plain", "Notes.", (tool("read", read, READ, LOOKS),), Plain())

What happens to a call, in this order (`perform`): the tool is looked up (an RpcError without it), `coerce` may
loosen the arguments, they are checked against the schema (`Style.render_bad_arguments`), `run` runs, a Problem becomes
the dialect's words (`Style.render_problem`), anything else is logged and becomes an Internal problem. Nothing of it
knows MCP: a test calls `perform(surface, call, "read", {...})` and looks at the Answer.

- `run(call, args)` is an ordinary blocking function; it runs in a worker thread, many at once. It returns text, or an
  Answer when it has several blocks, an image or `_meta`. It raises Problems and nothing else on purpose.
- `call.workspace` is the workspace the client is bound to (or the first named), already asking as this user, client,
  surface and tool. A surface over the whole library uses `call.workspaces` and `call.find_workspace(...)`.
- `args` have passed the schema and no default is filled in: an argument left out and one given as its default can be
  told apart. `3.0` for an integer has become 3.
- Something once per session (obsidian's context block): `Surface.finish` gets every successful answer last, and asks
  `call.session.mark_once("context")`.
- Call limits: `Surface.guard(call, tool)` runs before the arguments are looked at and raises Limited.
- A dialect that takes "5" for 5: `coerce=coerce_leniently`. Notes as resources: `resources=NoteResources("note:///")`.
- Long work calls `call.report(done, total, words)` now and then and `call.stop_if_cancelled()` between steps.
- A refusal that is a protocol error in the dialect is raised by the Style: `raise RpcError(INVALID_PARAMS, words)`.
  Over HTTP it may carry a status and headers (`call.transport` says which wire it is).
"""

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from notewright.accounts.limits import MAX_STORED_DIGESTS
from notewright.engine.indexing.ready import describe_unread
from notewright.engine.library import Library
from notewright.engine.workspace import CALL_SECONDS, Limits, ShownVersions, Workspace
from notewright.errors import Invalid, Problem
from notewright.ledger.base import Actor
from notewright.notes.path import NotePath

if TYPE_CHECKING:
    from notewright.surfaces.resources import NoteResources

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
RESOURCE_NOT_FOUND = -32002
RATE_LIMITED = -32004

Args = dict[str, Any]
Schema = Mapping[str, Any]
Transport = Literal["stdio", "http"]


class LastShown(OrderedDict[NotePath, str]):
    """The last version of each note that a client was shown, for the MAX_STORED_DIGESTS notes shown last."""

    def __setitem__(self, path: NotePath, version: str) -> None:
        super().__setitem__(path, version)
        self.move_to_end(path)
        if len(self) > MAX_STORED_DIGESTS:
            self.popitem(last=False)


class Session:
    """What a server remembers about one client between its calls: little, in memory, thread-safe."""

    def __init__(self, client: str = "", *, initialized: bool = True) -> None:
        self.client = client
        self.initialized = initialized  # the client has sent `notifications/initialized`
        self.values: dict[str, Any] = {}  # small things a surface keeps; hold `lock` to read and change together
        self.lock = threading.Lock()
        self._done: set[str] = set()
        self._shown: dict[str, LastShown] = {}
        self._bound: dict[tuple[str, str], tuple[Workspace, Actor, Workspace]] = {}  # by id and tool

    def bind(self, workspace: Workspace, actor: Actor, *, keep: bool) -> Workspace:
        """The workspace bound to this client and tool; with `keep` it is cached while the workspace is the same."""
        kept = self._bound.get((workspace.id, actor.tool))
        if kept is not None and kept[0] is workspace and kept[1] is actor:
            return kept[2]
        shown = workspace.shown if workspace.live is None else self.shown_versions(workspace.id)
        bound = replace(workspace, actor=actor, limits=_limit_wait(workspace.limits), shown=shown)
        if keep:
            self._bound[workspace.id, actor.tool] = (workspace, actor, bound)
        return bound

    def shown_versions(self, workspace: str) -> ShownVersions:
        """The versions of notes this client was shown last. Sessions over HTTP override it: workers share them."""
        with self.lock:
            return self._shown.setdefault(workspace, LastShown())

    def has_done(self, what: str) -> bool:
        """Whether `mark_once` was called with it."""
        return what in self._done

    def mark_once(self, what: str) -> bool:
        """True for the first call in this session, and never again."""
        with self.lock:
            first = what not in self._done
            self._done.add(what)
            return first


class Cancelled(BaseException):
    """The client cancelled this call: unwinds it without an answer. Not an Exception, so that nothing catches it."""


Report = Callable[[float, float | None, str | None], None]  # of progress: done, total, in words


def no_report(done: float, total: float | None, message: str | None) -> None:
    """For a client that did not ask for progress."""


@dataclass(eq=False, slots=True)
class Call:
    """One call of a tool: library, actor, session and transport."""

    library: Library
    actor: Actor = field(default_factory=Actor)
    session: Session = field(default_factory=Session)
    transport: Transport = "stdio"
    cancelled: Callable[[], bool] = bool  # bool() is False: never cancelled
    report: Report = no_report
    record_refusal: Callable[[Problem], None] = lambda problem: None  # called with the problem before it is rendered
    used: dict[str, Workspace] = field(default_factory=dict, init=False, repr=False)  # by id
    _served: Sequence[Workspace] | None = field(default=None, init=False, repr=False)

    @property
    def workspace(self) -> Workspace:
        """The workspace this client is bound to, or the first named."""
        served = self._served if self._served is not None else self.served
        first = served[0] if served else self.library.default
        return self.used.get(first.id) or self._use(first)

    @property
    def workspaces(self) -> tuple[Workspace, ...]:
        return tuple(map(self._use, self.served))

    @property
    def served(self) -> Sequence[Workspace]:
        """The workspaces, cached for this call: each look-up in the library checks whether the owner changed any."""
        if self._served is None:
            self._served = self.library.workspaces()
        return self._served

    @property
    def caller(self) -> str:
        """The name under which calls are counted for limits: the user, else the client."""
        return self.actor.user or self.actor.client

    def find_workspace(self, which: str) -> Workspace:
        return self._use(self.library.find_workspace(which))

    def _use(self, workspace: Workspace) -> Workspace:
        bound = self.used.get(workspace.id)
        if bound is None:
            keep = self.transport == "stdio"  # over HTTP there are thousands of sessions
            bound = self.used[workspace.id] = self.session.bind(workspace, self.actor, keep=keep)
        return bound

    def stop_if_cancelled(self) -> None:
        if self.cancelled():
            raise Cancelled


@lru_cache(maxsize=64)
def _limit_wait(limits: Limits) -> Limits:
    return replace(limits, index_seconds=CALL_SECONDS)


@dataclass(frozen=True, slots=True)
class Image:
    """A picture among the blocks of an answer."""

    data: bytes
    mime: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call gives back: blocks of text and images, and `_meta` where the dialect has it."""

    blocks: tuple[str | Image, ...]
    is_error: bool = False
    meta: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, *blocks: str | Image, meta: Mapping[str, Any] | None = None) -> "Answer":
        return cls(blocks, meta=meta)

    @classmethod
    def error(cls, text: str, meta: Mapping[str, Any] | None = None) -> "Answer":
        """An answer with an error message for the agent (`isError`)."""
        return cls((text,), is_error=True, meta=meta)

    @property
    def text(self) -> str:
        """The text blocks, one after the other."""
        return "\n".join(block for block in self.blocks if isinstance(block, str))


@dataclass(eq=False)
class RpcError(Exception):
    """An error sent as a JSON-RPC error instead of an answer. It may set the status and headers over HTTP."""

    code: int
    message: str
    data: Any = None
    status: int | None = field(default=None, kw_only=True)
    headers: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    def __str__(self) -> str:
        return self.message


def rate_limited_error(problem: Problem, words: str) -> RpcError:
    """The error for Limited over HTTP: 429 with the seconds to wait."""
    wait, limit, window = (problem.details[name] for name in ("retry_after", "limit", "name"))
    data = {"retryAfter": wait, "limit": limit, "window": window}
    return RpcError(RATE_LIMITED, words, data, status=429, headers={"Retry-After": str(wait)})


# Most important first: of several mistakes in one call only the first is reported.
ArgumentFault = Literal["surrogate", "missing", "unknown", "type", "enum", "range", "length", "pattern", "shape"]


class BadArgument(Invalid):
    """Arguments that the tool's schema refuses.

    `fault` is what kind of mistake, `argument` the top-level name, `where` the whole place (`edits[2].with`),
    `expected` what would have been right ("integer", ["in", "out"], 1, or the known names for an unknown argument).
    """

    def __init__(
        self, message: str, fault: ArgumentFault, argument: str, where: str = "", expected: Any = None
    ) -> None:
        super().__init__(message, what=argument)
        self.fault = fault
        self.argument = argument
        self.where = where or argument
        self.expected = expected


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A failed call, for a Style to render."""

    problem: Problem
    tool: str
    args: Args
    call: Call


class Style(ABC):
    """How a dialect renders errors: `render_problem` returns the Answer to give, or raises RpcError."""

    table: ClassVar[Mapping[str, Any]]
    """From every code of `errors.codes()` to the dialect's word, number or function for it."""

    @abstractmethod
    def render_problem(self, failed: FailedCall) -> Answer:
        """The answer to a problem of the engine; Internal stands for any unexpected error."""

    def render_bad_arguments(self, failed: FailedCall, fault: BadArgument) -> Answer:
        """The answer to invalid arguments; rendered as any other problem, unless the dialect differs."""
        return self.render_problem(failed)


def describe_not_indexed(problem: Problem) -> str:
    """The notes that an Indexing problem names as not indexed yet, to be added to a dialect's own message."""
    missing = problem.details.get("missing")
    return f"; {describe_unread(missing)}" if missing else ""


@dataclass(frozen=True, eq=False)
class Tool:
    """One tool, as it stands in `tools/list`, and what it does.

    `schema` is sent exactly as given. `annotations` are wire names: readOnlyHint, destructiveHint, idempotentHint,
    openWorldHint, title. `by_index`: its answer may miss notes that are not indexed yet, and then says so.
    """

    name: str
    description: str
    schema: Schema
    run: Callable[[Call, Args], str | Answer]
    annotations: Mapping[str, Any] = field(default_factory=dict)
    by_index: bool = True


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a prompt."""

    name: str
    description: str = ""
    required: bool = False


@dataclass(frozen=True, eq=False)
class Prompt:
    """A text the user may ask for by name; `render` returns the message to the model, as the user."""

    name: str
    description: str
    arguments: tuple[Argument, ...]
    render: Callable[[Call, Mapping[str, str]], str]


Coerce = Callable[[Schema, Args], Args]


@dataclass(frozen=True, eq=False)
class Surface:
    """A set of tools in one dialect."""

    name: str
    instructions: str
    tools: tuple[Tool, ...]
    style: Style
    prompts: tuple[Prompt, ...] = ()
    resources: "NoteResources | None" = None
    coerce: Coerce | None = None  # before the check; leaves what it is given unchanged
    finish: Callable[[Call, Answer], Answer] | None = None  # changes every successful answer, last
    guard: Callable[[Call, str], None] | None = None  # before the arguments are looked at: call limits raise Limited
    has_own_limits: bool = False  # `guard` limits callers: the server need not
    begin: Callable[[Workspace], None] | None = None  # once, when a workspace is open; calls do not wait for it
    sessions: Literal["required", "offered"] = "offered"  # 2025-era HTTP without `mcp-session-id`: 400, or served
    handshake: bool = False  # a call before `notifications/initialized` is refused (2025 era)
    sse: bool = True  # False: over HTTP always one JSON answer


def merge_tools(surfaces: Sequence[Surface]) -> dict[str, tuple[Surface, Tool]]:
    """The tools of several surfaces by name; Invalid with the names that two of them claim."""
    tools: dict[str, tuple[Surface, Tool]] = {}
    twice: list[str] = []
    for surface in surfaces:
        for tool in surface.tools:
            if tool.name in tools:
                twice.append(f"{tool.name} ({tools[tool.name][0].name}, {surface.name})")
            tools[tool.name] = (surface, tool)
    if twice:
        raise Invalid("these surfaces cannot be served together, both have " + ", ".join(twice), what="surface")
    return tools


MAX_ANSWER_BYTES = 1 << 20


def count_fitting(sizes: Iterable[int], room: int) -> int:
    """How many of the items, from the first on, fit into `room`."""
    return sum(1 for _ in takewhile(lambda end: end <= room, accumulate(sizes)))


def join_bounded(
    entries: Sequence[str], narrow: str, *, separator: str = "\n", around: tuple[str, str] = ("", "")
) -> Answer:
    """The entries joined; `narrow` names the argument that asks for fewer."""
    sizes = (len(entry.encode("utf-8", "replace")) + len(separator) for entry in entries)
    room = MAX_ANSWER_BYTES + len(separator) - sum(len(text.encode("utf-8", "replace")) for text in around)
    kept = count_fitting(sizes, room)
    text = around[0] + separator.join(entries[:kept]) + around[1]
    if kept == len(entries):
        return Answer.of(text)
    notice = f"Cut: {kept} of {len(entries)} shown. Narrow the {narrow}."
    return Answer.of(text, notice, meta={"truncated": True, "total": len(entries)})
