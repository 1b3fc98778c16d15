"""The context of one HTTP request: what logs, metrics and the audit log say of it.

It is a context variable, which worker threads see too, and to which every part of the server adds. Nothing heavy is
imported: the logs of stdio, where there is never a request, load this module as well.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class RequestContext:
    """What is known so far. `refusal` is why the request was turned away, `outcome` how its call of a tool ended.

    `scope` is the request's own (ASGI): the visitor and their address are in it as soon as they are known. The fields
    after `refusal` are set when the request is over.
    """

    id: str
    scope: Mapping[str, Any] = field(default_factory=dict, repr=False)
    surface: str = ""
    tool: str = ""
    outcome: str = ""
    refusal: str = ""
    route: str = ""  # the pattern of the route, never the path; "" where there is no such route
    status: int = 0
    seconds: float = 0.0
    size: int = 0  # bytes of the answer's body

    @property
    def address(self) -> str:
        client = self.scope.get("client")
        return str(client[0]) if client else ""

    @property
    def user(self) -> str:
        visitor = self.scope.get("notewright.visitor")
        return "" if visitor is None else str(visitor.principal.user)

    @property
    def via(self) -> str:
        visitor = self.scope.get("notewright.visitor")
        return "" if visitor is None else str(visitor.via)


CURRENT_REQUEST: ContextVar[RequestContext | None] = ContextVar("request", default=None)


def note_refusal(reason: str) -> None:
    """Record why the current request is turned away; the first reason is kept."""
    context = CURRENT_REQUEST.get()
    if context is not None and not context.refusal:
        context.refusal = reason
