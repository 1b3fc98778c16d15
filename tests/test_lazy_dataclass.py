"""Our dataclasses and named tuples beside those of the standard library: whoever uses one cannot tell which it is."""

import dataclasses
import pickle
import re
import typing
from collections.abc import Callable
from typing import Any

import pytest

from notewright import lazy_dataclass

Kind = Any  # a module with `dataclass` and `field`


def classes(kind: Kind) -> tuple[type, type, type]:
    @kind.dataclass(frozen=True)
    class Tea:
        name: str
        degrees: int = 80
        leaves: tuple[str, ...] = kind.field(default_factory=lambda: ("a", "b"))
        bought: float | None = kind.field(default=None, compare=False)

    @kind.dataclass(frozen=True)
    class Blend(Tea):
        parts: int = 2

        def __post_init__(self) -> None:
            if self.parts < 2:
                raise ValueError("a blend has two parts")

    @kind.dataclass
    class Pot:
        tea: Any
        cups: list[int] = kind.field(default_factory=list)

    return Tea, Blend, Pot


THEIRS, OURS = classes(dataclasses), classes(lazy_dataclass)


def told(work: Callable[..., object], *args: Any) -> str:
    """What comes of it, or what it says against it."""
    try:
        return re.sub(r"[<(]?classes\.<locals>\.", "", repr(work(*args)))
    except Exception as error:
        return re.sub(r"(classes|tuples)\.<locals>\.", "", f"{type(error).__name__}: {error}")


@pytest.mark.parametrize(
    "work",
    [
        lambda Tea, Blend, Pot: Tea("Sencha"),
        lambda Tea, Blend, Pot: (Tea("Sencha", 70, bought=1.5), Blend("Earl", parts=3), Pot(Tea("Oolong"), [2])),
        lambda Tea, Blend, Pot: Tea(),
        lambda Tea, Blend, Pot: Tea("Sencha", colour="green"),
        lambda Tea, Blend, Pot: Blend("Earl", parts=1),
        lambda Tea, Blend, Pot: (Tea("a") == Tea("a"), Tea("a") == Tea("b"), Tea("a", bought=1) == Tea("a", bought=2)),
        lambda Tea, Blend, Pot: (Tea("a") == Blend("a"), Tea("a") == "a", Pot(1) == Pot(1), Pot(1) != Pot(2)),
        lambda Tea, Blend, Pot: (hash(Tea("a")) == hash(Tea("a", bought=1)), len({Tea("a"), Tea("a"), Blend("a")})),
        lambda Tea, Blend, Pot: hash(Pot(1)),
        lambda Tea, Blend, Pot: setattr(Tea("a"), "name", "b"),
        lambda Tea, Blend, Pot: setattr(Tea("a"), "other", "b"),
        lambda Tea, Blend, Pot: setattr(Pot(1), "tea", 2),
        lambda Tea, Blend, Pot: (Pot(1).cups is Pot(1).cups, Tea.degrees, hasattr(Tea, "leaves")),
        lambda Tea, Blend, Pot: (Tea.__match_args__, Blend.__match_args__),
        lambda Tea, Blend, Pot: [one.name for one in dataclasses.fields(Blend)],
        lambda Tea, Blend, Pot: dataclasses.asdict(Pot(Tea("a"), [1])),
        lambda Tea, Blend, Pot: dataclasses.replace(Blend("a"), name="b"),
        lambda Tea, Blend, Pot: dataclasses.replace(Blend("a"), parts=0),
        lambda Tea, Blend, Pot: dataclasses.is_dataclass(Tea) and dataclasses.is_dataclass(Pot(1)),
    ],
)
def test_they_do_and_refuse_the_same(work: Callable[..., object]) -> None:
    assert told(work, *OURS) == told(work, *THEIRS)


def test_replacing_keeps_the_rest_and_checks_it_again() -> None:
    _, Blend, _ = OURS
    blend = Blend("Earl", 95, parts=3)
    assert lazy_dataclass.replace(blend, name="Grey") == Blend("Grey", 95, parts=3)
    with pytest.raises(ValueError, match="two parts"):
        lazy_dataclass.replace(blend, parts=0)
    with pytest.raises(TypeError, match="colour"):
        lazy_dataclass.replace(blend, colour="black")  # type: ignore[call-arg]


@lazy_dataclass.dataclass(frozen=True)
class Cup:
    name: str


def test_a_frozen_one_goes_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(Cup("tea"))) == Cup("tea")


def tuples(kind: Kind) -> type:
    class Tea(kind.NamedTuple):  # type: ignore[misc]
        """A tea."""

        name: str
        degrees: int = 80
        leaves: tuple[str, ...] = ("a", "b")

        @property
        def hot(self) -> bool:
            return self.degrees > 90

        def warmer(self) -> Any:
            return self._replace(degrees=self.degrees + 5)

    return Tea


@pytest.mark.parametrize(
    "work",
    [
        lambda Tea: (Tea("Sencha"), Tea("Sencha", 70), Tea("Sencha", leaves=("c",)), Tea(degrees=1, name="x")),
        lambda Tea: Tea(),
        lambda Tea: Tea("a", 1, (), 2),
        lambda Tea: Tea("Sencha", colour="green"),
        lambda Tea: Tea("Sencha", name="Oolong"),
        lambda Tea: (Tea("a").name, Tea("a")[1], Tea("a").hot, Tea("a", 95).warmer().degrees, *Tea("a")),
        lambda Tea: (Tea("a") == Tea("a"), Tea("a") == ("a", 80, ("a", "b")), Tea("a") < Tea("b"), hash(Tea("a"))),
        lambda Tea: (Tea._fields, Tea._field_defaults, Tea.__match_args__, Tea.__doc__, Tea.__name__, type(Tea)),
        lambda Tea: (Tea._make(["a", 1, ()]), Tea("a")._asdict(), hasattr(Tea("a"), "__dict__")),
        lambda Tea: Tea._make(["a"]),
        lambda Tea: Tea("a")._replace(colour="green"),
        lambda Tea: setattr(Tea("a"), "name", "b"),
        lambda Tea: setattr(Tea("a"), "other", "b"),
    ],
)
@pytest.mark.parametrize("before", [0, lazy_dataclass.MAX_UNCOMPILED_INSTANCES + 1])
def test_named_tuples_do_and_refuse_the_same_whether_few_or_many_were_made(
    work: Callable[..., object], before: int
) -> None:
    ours, theirs = tuples(lazy_dataclass), tuples(typing)
    for number in range(before):
        assert ours(str(number), degrees=number) == theirs(str(number), degrees=number)
    assert told(work, ours) == told(work, theirs)


def test_dataclasses_are_the_same_whether_few_or_many_were_made() -> None:
    Tea, Blend, Pot = classes(lazy_dataclass)
    few = [Tea("a", bought=1.0), Blend("b", 3, parts=4), Pot(5)]
    for _ in range(lazy_dataclass.MAX_UNCOMPILED_INSTANCES + 1):
        many = [Tea("a", bought=1.0), Blend("b", 3, parts=4), Pot(5)]
    assert many == few
    assert repr(many) == repr(few)
    assert many[2].cups is not Pot(5).cups
    with pytest.raises(ValueError, match="two parts"):
        Blend("c", parts=1)


class Saucer(lazy_dataclass.NamedTuple):
    name: str
    cups: int = 1


def test_a_named_tuple_goes_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(Saucer("tea", 2))) == Saucer("tea", 2)
    assert type(pickle.loads(pickle.dumps(Saucer("tea")))) is Saucer
