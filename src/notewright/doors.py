"""Front doors that open slowly: a room's parts are loaded when they are first asked for, so that a command that needs
little starts soon."""

import importlib
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any


class Room(ModuleType):
    """A room keeps its names: a part that is called like one of them (`notes.parse`) does not take its place when it is
    loaded, as Python would have it."""

    names: frozenset[str]

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and name in self.names):
            super().__setattr__(name, value)


def door(room: str, parts: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a room: `parts` says which of its modules (or of other rooms) holds which names."""
    where = {name: part for part, names in parts.items() for name in names.split()}
    module = sys.modules[room]
    module.__dict__["names"] = frozenset(where)
    module.__class__ = Room

    def opened(name: str) -> Any:
        part = where.get(name)
        if part is None:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        holder = importlib.import_module(part if part.startswith("notewright.") else f"{room}.{part}")
        value = getattr(holder, name)
        setattr(module, name, value)
        return value

    return opened
