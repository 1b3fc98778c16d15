"""Who is in a document and where their cursors are: the last state each client told, until it goes. Pure.

Clients pass on what they hear of each other, so that every state comes back from all of them: only what is newer by its
clock is news. Whose state it is, is decided by who told it first: nobody changes that of another person's client.
"""

from collections.abc import Iterable
from typing import Protocol

from notewright.errors import Invalid
from notewright.server.live.frames import ClientState

MAX_CLIENTS = 32  # that one connection may tell of as its own
MAX_GONE = 1024  # clients whose clocks are remembered after they went, so that no echo brings them back


class Teller(Protocol):
    """A connection."""

    @property
    def person(self) -> str: ...


class Awareness:
    """The states of one document."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[ClientState, Teller]] = {}  # and who told it
        self._gone: dict[int, int] = {}

    def states(self) -> list[ClientState]:
        return [told for told, _ in self._known.values()]

    def hear(self, states: Iterable[ClientState], by: Teller) -> list[ClientState]:
        """What of it is news to the others; Invalid for more clients than one connection can have."""
        news = [one for one in states if self._is_news(one, by)]
        for one in news:
            if one.state is None:
                self._forget(one)
            else:
                self._known[one.client] = one, by
        if sum(teller is by for _, teller in self._known.values()) > MAX_CLIENTS:
            raise Invalid("too many clients on one connection", what="frame")
        return news

    def leave(self, by: Teller) -> list[ClientState]:
        """Its connection has gone: what the others are to be told."""
        gone = [ClientState(told.client, told.clock, None) for told, teller in self._known.values() if teller is by]
        for one in gone:
            self._forget(one)
        return gone

    def _is_news(self, one: ClientState, by: Teller) -> bool:
        known = self._known.get(one.client)
        if known is None:
            return one.state is not None and one.clock > self._gone.get(one.client, -1)
        told, teller = known
        if teller.person != by.person:
            return False
        return one.clock > told.clock or (one.clock == told.clock and one.state is None)

    def _forget(self, one: ClientState) -> None:
        self._known.pop(one.client, None)
        self._gone.pop(one.client, None)
        self._gone[one.client] = one.clock
        if len(self._gone) > MAX_GONE:
            del self._gone[next(iter(self._gone))]
