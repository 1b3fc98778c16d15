"""How many calls a caller may make, as a surface sees it: it asks, and somebody keeps count."""

from collections.abc import Sequence
from typing import Protocol

from notewright.engine import Window

__all__ = ["Limiter", "Window"]


class Limiter(Protocol):
    """Every `engine.Traffic` is one. It is shared, so a surface puts its own name before the caller's."""

    def count(self, caller: str, windows: Sequence[Window]) -> None:
        """Let one more call through, or Limited with the seconds until the first free place."""
        ...
