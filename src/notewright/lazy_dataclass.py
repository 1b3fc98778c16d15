"""Dataclasses for the modules that a short command loads: `__init__` is compiled when the first of a class is made.

Those of the standard library compile up to six functions from source text while a class is defined, and load `inspect`
for it, which was a third of a search on the command line. Type checkers, `dataclasses.replace`, `fields` and `asdict`
take these for the same. `slots` are not made: a command has few of each, and a class is defined twice for them.
"""

from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass, field, replace

__all__ = ("dataclass", "field", "replace")
_REQUIRED: Any = object()


class _Field:
    def __init__(
        self, default: Any = _REQUIRED, default_factory: "Callable[[], Any] | None" = None, compare: bool = True
    ) -> None:
        self.default, self.default_factory, self.compare = default, default_factory, compare


def _dataclass(cls: Any = None, /, *, frozen: bool = False, slots: bool = False) -> Any:
    if cls is None:
        return lambda decorated: _dataclass(decorated, frozen=frozen)
    fields: dict[str, _Field] = dict(getattr(cls, "_lazy_fields", {}))
    for name in vars(cls).get("__annotations__", ()):
        given = vars(cls).get(name, _REQUIRED)
        fields[name] = given if isinstance(given, _Field) else _Field(given)
        if given is fields[name]:
            delattr(cls, name)

    def compile_init(self: Any, *args: Any, **kwargs: Any) -> None:
        cls.__init__ = _compiled_init(cls, fields)
        cls.__init__(self, *args, **kwargs)

    values = attrgetter(*(name for name, one in fields.items() if one.compare))

    def equals(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    cls._lazy_fields, cls.__dataclass_fields__ = fields, _StandardFields()
    cls.__match_args__ = tuple(fields)  # type: ignore[misc]
    cls.__init__, cls.__repr__, cls.__eq__ = compile_init, _repr, equals
    cls.__hash__ = (lambda self: hash(values(self))) if frozen else None
    if frozen:
        cls.__setattr__ = cls.__delattr__ = _refuse
    return cls


def _compiled_init(cls: type, fields: dict[str, _Field]) -> Any:
    known: dict[str, Any] = {"_set": object.__setattr__, "_REQUIRED": _REQUIRED}
    parameters, lines = ["self"], list[str]()
    for name, one in fields.items():
        known[f"_given_{name}"] = one.default_factory or one.default
        if one.default_factory is not None:
            parameters.append(f"{name}=_REQUIRED")
            lines.append(f"_set(self, {name!r}, _given_{name}() if {name} is _REQUIRED else {name})")
        else:
            parameters.append(name if one.default is _REQUIRED else f"{name}=_given_{name}")
            lines.append(f"_set(self, {name!r}, {name})")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines), known)
    known["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"  # for what it says of missing arguments
    return known["__init__"]


def _repr(self: Any) -> str:
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._lazy_fields)})"


def _refuse(self: Any, name: str, *value: Any) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _replace(record: Any, /, **changes: Any) -> Any:
    return type(record)(**{name: getattr(record, name) for name in record._lazy_fields} | changes)


class _StandardFields:
    """What the functions of `dataclasses` look for, made when one of them does."""

    def __get__(self, record: object, cls: Any) -> Any:
        from dataclasses import make_dataclass

        cls.__dataclass_fields__ = vars(make_dataclass(cls.__name__, cls._lazy_fields))["__dataclass_fields__"]
        return cls.__dataclass_fields__


if not TYPE_CHECKING:
    dataclass, field, replace = _dataclass, _Field, _replace
