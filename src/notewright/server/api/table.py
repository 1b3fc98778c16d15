"""What an operation of the API is. The routes and the OpenAPI document are made of the same list of these."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from notewright.server.api import schemas
from notewright.server.api.asking import Asked
from notewright.server.api.schemas import Schema
from notewright.server.gate import SMALL, Need

Pieces = Iterator[bytes]


@dataclass(frozen=True)
class Operation:
    """One thing that can be asked for. `run` may block: it runs in a thread, and returns the document to answer."""

    method: Literal["GET", "POST", "PATCH", "DELETE"]
    path: str
    need: Need
    summary: str
    run: Callable[[Asked], Any]
    answer: Schema | None  # None: a zip file, and `run` gives its pieces
    query: Schema = field(default_factory=lambda: schemas.NOTHING)
    body: Schema | None = None  # None: none is taken
    status: int = 200
    uploads: bool = False  # the body is a zip file
    most_bytes: int = SMALL
    anybody: bool = False  # also for tokens that are narrowed to surfaces

    @property
    def name(self) -> str:
        """As it stands in the history, and in OpenAPI."""
        return self.run.__name__.rstrip("_")

    @property
    def plain_path(self) -> str:
        """Without what the framework wants to know of its parts."""
        return re.sub(r"\{(\w+):\w+\}", r"{\1}", self.path)

    @property
    def parts(self) -> list[str]:
        return re.findall(r"\{(\w+)\}", self.plain_path)
