"""Dataclasses, named tuples and protocols for the modules that a short command loads.

Those of the standard library compile up to six functions from source text while a class is defined, and load `inspect`
or `typing` for it, which was a third of a search on the command line. Ours make the first instances of a class without
compiling anything. Type checkers, `dataclasses.replace`, `fields` and `asdict` treat them like the standard ones.
`slots` are ignored: a command has few instances of each class, and slots would define the class twice.
"""

from __future__ import annotations

from _collections import _tuplegetter  # type: ignore[import-not-found]
from itertools import islice
from operator import attrgetter

TYPE_CHECKING = False  # type checkers take it for True by its name; importing it would load `typing`
if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass, field, replace
    from typing import Any, NamedTuple, Protocol

__all__ = ("NamedTuple", "Protocol", "dataclass", "field", "replace")
MAX_UNCOMPILED_INSTANCES = 30  # of one class; compiling its constructor takes as long as making so many without
_REQUIRED: Any = object()


class _Field:
    def __init__(
        self, default: Any = _REQUIRED, default_factory: Callable[[], Any] | None = None, compare: bool = True
    ) -> None:
        self.default, self.default_factory, self.compare = default, default_factory, compare


def _collect_values(fields: dict[str, _Field], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
    """A value for every field; None where one is missing or too many are given."""
    values, named = list(args), 0
    for name, field in islice(fields.items(), len(args), None):
        if name in kwargs:
            values.append(kwargs[name])
            named += 1
        elif field.default_factory is None and field.default is _REQUIRED:
            return None
        else:
            values.append(field.default if field.default_factory is None else field.default_factory())
    return values if named == len(kwargs) and len(values) == len(fields) else None


# ---- dataclasses --------------------------------------------------------------------------------------


def _dataclass(cls: Any = None, /, *, frozen: bool = False, slots: bool = False) -> Any:
    if cls is None:
        return lambda decorated: _dataclass(decorated, frozen=frozen)
    fields: dict[str, _Field] = dict(getattr(cls, "_lazy_fields", {}))
    for name in cls.__annotations__:
        given = vars(cls).get(name, _REQUIRED)
        fields[name] = given if isinstance(given, _Field) else _Field(given)
        if given is fields[name]:
            delattr(cls, name)
    made = 0

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal made
        made += 1
        values = _collect_values(fields, args, kwargs) if made <= MAX_UNCOMPILED_INSTANCES else None
        if values is None:
            lines = []
            for name, field in fields.items():
                made_value = f"_given_{name}() if {name} is _REQUIRED else {name}"
                lines.append(f"_set(self, {name!r}, {name if field.default_factory is None else made_value})")
            if hasattr(cls, "__post_init__"):
                lines.append("self.__post_init__()")
            cls.__init__ = _compile_method(cls, "__init__", fields, lines)
            cls.__init__(self, *args, **kwargs)
            return
        for name, value in zip(fields, values, strict=True):
            _set(self, name, value)
        if hasattr(cls, "__post_init__"):
            self.__post_init__()

    values = attrgetter(*(name for name, field in fields.items() if field.compare))

    def equals(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    cls._lazy_fields, cls.__dataclass_fields__ = fields, _StandardFields()
    cls.__match_args__ = tuple(fields)  # type: ignore[misc]
    cls.__init__, cls.__repr__, cls.__eq__ = init, _repr, equals
    cls.__hash__ = (lambda self: hash(values(self))) if frozen else None
    if frozen:
        cls.__setattr__ = cls.__delattr__ = _refuse_change
    return cls


_set = object.__setattr__


def _compile_method(cls: type, method: str, fields: dict[str, _Field], lines: list[str]) -> Any:
    """A method that takes a value for every field."""
    known: dict[str, Any] = {"_set": _set, "_tuple": tuple.__new__, "_REQUIRED": _REQUIRED}
    parameters = ["self"]
    for name, field in fields.items():
        known[f"_given_{name}"] = field.default_factory or field.default
        default = "" if field.default is _REQUIRED else f"=_given_{name}"
        parameters.append(f"{name}=_REQUIRED" if field.default_factory is not None else f"{name}{default}")
    exec(f"def {method}({', '.join(parameters)}):\n " + "\n ".join(lines), known)
    known[method].__qualname__ = f"{cls.__qualname__}.{method}"  # for its errors about missing arguments
    return known[method]


def _repr(self: Any) -> str:
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._lazy_fields)})"


def _refuse_change(self: Any, name: str, *value: Any) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _replace(record: Any, /, **changes: Any) -> Any:
    return type(record)(**{name: getattr(record, name) for name in record._lazy_fields} | changes)


class _StandardFields:
    """The `__dataclass_fields__` that the functions of `dataclasses` read, made when the first of them does."""

    def __get__(self, record: object, cls: Any) -> Any:
        from dataclasses import make_dataclass

        cls.__dataclass_fields__ = vars(make_dataclass(cls.__name__, cls._lazy_fields))["__dataclass_fields__"]
        return cls.__dataclass_fields__


# ---- named tuples -------------------------------------------------------------------------------------


class _Tuple(tuple):  # type: ignore[type-arg]
    """The methods of every named tuple."""

    __slots__ = ()
    _fields: tuple[str, ...]

    @classmethod
    def _make(cls, values: Any) -> Any:
        made = tuple.__new__(cls, values)
        if len(made) != len(cls._fields):
            raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
        return made

    def _replace(self, /, **changes: Any) -> Any:
        made = self._make(map(changes.pop, self._fields, self))
        if changes:
            raise ValueError(f"Got unexpected field names: {list(changes)!r}")
        return made

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def __repr__(self) -> str:
        pairs = zip(self._fields, self, strict=True)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in pairs)})"

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)


class _TupleMaker(type):
    """Turns a class body with fields into a subclass of tuple, whose own metaclass is `type`."""

    def __new__(maker, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> Any:
        if not bases:
            return type.__new__(maker, name, bases, body)
        cls: Any = type(name, (_Tuple,), {**body, "__slots__": ()})
        fields = {name: _Field(body.get(name, _REQUIRED)) for name in cls.__annotations__}
        for number, name in enumerate(fields):
            setattr(cls, name, _tuplegetter(number, f"Alias for field number {number}"))
        cls._fields = cls.__match_args__ = tuple(fields)  # type: ignore[misc]
        cls._field_defaults = {name: field.default for name, field in fields.items() if field.default is not _REQUIRED}
        made = 0

        def new(kind: Any, /, *args: Any, **kwargs: Any) -> Any:
            nonlocal made
            made += 1
            values = _collect_values(fields, args, kwargs) if made <= MAX_UNCOMPILED_INSTANCES else None
            if values is None:
                cls.__new__ = _compile_method(cls, "__new__", fields, [f"return _tuple(self, ({', '.join(fields)},))"])
                return cls.__new__(kind, *args, **kwargs)
            return tuple.__new__(kind, values)

        cls.__new__ = new
        return cls


if not TYPE_CHECKING:
    dataclass, field, replace = _dataclass, _Field, _replace
    NamedTuple, Protocol = _TupleMaker("NamedTuple", (), {}), object
