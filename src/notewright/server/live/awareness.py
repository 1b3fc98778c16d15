"""Who is in a document and where their cursors are: the last state of each client, until it goes. Pure.

Clients pass on the states of each other, so that every state comes back from all of them: only what is newer by its
clock is news. A state belongs to the connection that sent it first: nobody changes that of another person's client.
"""

from collections.abc import Iterable
from typing import Protocol

from notewright.errors import Invalid
from notewright.server.live.frames import ClientState

MAX_CLIENTS = 32  # whose states one connection may send as its own
MAX_GONE = 1024  # clients whose clocks are remembered after they went, so that no echo brings them back


class AwarenessOwner(Protocol):
    """A connection."""

    @property
    def person(self) -> str: ...


class Awareness:
    """The states of one document."""

    def __init__(self) -> None:
        self._states: dict[int, tuple[ClientState, AwarenessOwner]] = {}
        self._gone: dict[int, int] = {}  # clients and their last clocks

    def states(self) -> list[ClientState]:
        return [state for state, _ in self._states.values()]

    def update(self, states: Iterable[ClientState], by: AwarenessOwner) -> list[ClientState]:
        """Take in what a connection sent. Returns what is news to the others; Invalid for more clients than one
        connection can have."""
        news = [one for one in states if self._is_news(one, by)]
        for one in news:
            if one.state is None:
                self._remove(one)
            else:
                self._states[one.client] = one, by
        if sum(owner is by for _, owner in self._states.values()) > MAX_CLIENTS:
            raise Invalid("too many clients on one connection", what="frame")
        return news

    def remove_all_of(self, by: AwarenessOwner) -> list[ClientState]:
        """Its connection has gone. Returns what is news to the others."""
        gone = [ClientState(one.client, one.clock, None) for one, owner in self._states.values() if owner is by]
        for one in gone:
            self._remove(one)
        return gone

    def _is_news(self, one: ClientState, by: AwarenessOwner) -> bool:
        known = self._states.get(one.client)
        if known is None:
            return one.state is not None and one.clock > self._gone.get(one.client, -1)
        old, owner = known
        if owner.person != by.person:
            return False
        return one.clock > old.clock or (one.clock == old.clock and one.state is None)

    def _remove(self, one: ClientState) -> None:
        self._states.pop(one.client, None)
        self._gone.pop(one.client, None)
        self._gone[one.client] = one.clock
        if len(self._gone) > MAX_GONE:
            del self._gone[next(iter(self._gone))]
