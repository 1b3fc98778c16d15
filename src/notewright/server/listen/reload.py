"""An application that can be replaced by another while requests are under way."""

from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send


class Replaceable:
    """Hands every request to the current application, which answers it to its end.

    An application holds nothing that must be ended: the lifespan of the first is that of the whole process.
    `state.end_streams` of one that is on its way out ends those of its requests that would not end by themselves.
    """

    def __init__(self, first: Starlette) -> None:
        self.app = first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)

    def replace(self, new: Starlette) -> None:
        old, self.app = self.app, new
        old.state.end_streams()

    def leave(self) -> None:
        """Everything is on its way out."""
        self.app.state.end_streams()
