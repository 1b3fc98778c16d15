"""One request on its way through the server: what logs, metrics and the audit log say of it.

Whoever works for a request finds it here, in the worker threads too, and may add what they learnt. Nothing heavy is
loaded: the logs of stdio pass here as well, where there is never a request.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class RequestContext:
    """What is known so far. `refused` is why it was turned away, `outcome` how its call of a tool ended.

    `scope` is the request's own (ASGI): who asks, and from where, stands there as soon as it is known. What follows
    `refused` is known when it is over: what the wire saw of it.
    """

    id: str
    scope: Mapping[str, Any] = field(default_factory=dict, repr=False)
    surface: str = ""
    tool: str = ""
    outcome: str = ""
    refused: str = ""
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


NOW: ContextVar[RequestContext | None] = ContextVar("visit", default=None)


def refuse(reason: str) -> None:
    """This request is being turned away; the first to say why is right."""
    visit = NOW.get()
    if visit is not None and not visit.refused:
        visit.refused = reason
