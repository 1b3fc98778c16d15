"""One request on its way through the server: what logs, metrics and the audit log say of it.

Whoever works for a request finds it here, in the worker threads too, and may add what they learnt. Nothing heavy is
loaded: the logs of stdio pass here as well, where there is never a request.
"""

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class Visit:
    """What is known so far. `refused` is why it was turned away, `outcome` how its call of a tool ended."""

    id: str
    address: str = ""
    user: str = ""
    via: str = ""
    surface: str = ""
    tool: str = ""
    outcome: str = ""
    refused: str = ""


NOW: ContextVar[Visit | None] = ContextVar("visit", default=None)


def refuse(reason: str) -> None:
    """This request is being turned away; the first to say why is right."""
    visit = NOW.get()
    if visit is not None and not visit.refused:
        visit.refused = reason
