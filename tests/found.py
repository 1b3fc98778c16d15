"""Which examples laws are tried with, and those that once broke one.

`make test` draws the same examples every time, `make check` a fifth of them. `make torture` draws new ones, many more
of them, and keeps what broke a law in `tests/cases/found.jsonl`: from then on it is tried by every run, before all
others. Seeds of simulations are kept beside it. Commit the line together with what mends it.
"""

import ast
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, example, settings

FOUND = Path(__file__).with_name("cases") / "found.jsonl"
SEEDS = FOUND.with_name("seeds.txt")
QUICK, TORTURE = "quick", "torture"
TIMES = 50  # as many examples in make torture
FEWER = 5  # times fewer in make check
PREFIX = "Failing test case: "


def load_profiles() -> None:
    """A busy machine breaks no law, so nothing here looks at the clock."""
    patient: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "database": None}
    settings.register_profile("same", derandomize=True, **patient)
    settings.register_profile(QUICK, derandomize=True, **patient)
    settings.register_profile(TORTURE, derandomize=False, print_blob=True, **patient)
    settings.load_profile("same")


def is_torture(config: pytest.Config) -> bool:
    return bool(config.getoption("--hypothesis-profile") == TORTURE)


# ---- trying -------------------------------------------------------------------------------------------


def times(config: pytest.Config) -> float:
    """How many examples are drawn for each that a law asks for."""
    return {QUICK: 1 / FEWER, TORTURE: TIMES}.get(config.getoption("--hypothesis-profile"), 1)


def prepare(items: Sequence[pytest.Item], *, times: float, found: Path = FOUND) -> None:
    """Give every law the examples that were found for it, and in make torture more time."""
    kept, done = _read(found), set[int]()
    for item in items:
        law = getattr(item, "obj", None)
        if not hasattr(law, "hypothesis") or id(law) in done or not isinstance(item, pytest.Function):
            continue
        done.add(id(law))
        for given in kept.get(_name(item), ()):
            example(**_values(given, item.module))(law)
        if times != 1:
            asked = law._hypothesis_internal_use_settings  # its own, if it has some
            drawn = max(1, round(times * (asked or settings()).max_examples))
            law._hypothesis_internal_use_settings = settings(asked, max_examples=drawn)


def _read(found: Path) -> dict[str, list[dict[str, str]]]:
    kept: dict[str, list[dict[str, str]]] = {}
    for line in found.read_text(encoding="utf-8").splitlines() if found.exists() else ():
        case = json.loads(line)
        kept.setdefault(case["test"], []).append(case["given"])
    return kept


def _values(given: dict[str, str], module: ModuleType) -> dict[str, Any]:
    """Arguments are kept as they are written in Python, with the names their test knows."""
    return {name: eval(source, vars(module)) for name, source in given.items()}


def _name(item: pytest.Function) -> str:
    return f"{item.path.relative_to(item.config.rootpath).as_posix()}::{item.originalname}"


# ---- keeping ------------------------------------------------------------------------------------------


def keep(item: pytest.Item, error: BaseException, found: Path = FOUND) -> None:
    """Write down the arguments that broke a law, once."""
    if not isinstance(item, pytest.Function) or not hasattr(item.obj, "hypothesis"):
        return
    for given in _arguments(error):
        try:
            _values(given, item.module)
        except Exception as unreadable:
            item.add_report_section("call", "found", f"cannot be kept, write a test with it: {given} ({unreadable})")
            continue
        if given not in _read(found).get(_name(item), []):
            with found.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"test": _name(item), "given": given}) + "\n")
            item.add_report_section("call", "found", f"kept in {found.name}: {given}")


def _arguments(error: BaseException) -> Iterator[dict[str, str]]:
    """From what Hypothesis notes on the errors it raises: calls, as Python writes them."""
    for note in getattr(error, "__notes__", ()):
        if note.startswith(PREFIX):
            text = note.removeprefix(PREFIX)
            call = ast.parse(text[: text.find("\n)") + 2] if "\n)" in text else text, mode="eval").body
            assert isinstance(call, ast.Call)
            yield {each.arg: ast.unparse(each.value) for each in call.keywords if each.arg}
    for inner in getattr(error, "exceptions", ()):
        yield from _arguments(inner)


# ---- seeds --------------------------------------------------------------------------------------------


def seeds(place: Path = SEEDS) -> list[int]:
    """Of simulations that once went wrong."""
    return [int(line) for line in place.read_text(encoding="utf-8").splitlines()] if place.exists() else []


def keep_seed(seed: int, place: Path = SEEDS) -> None:
    if seed not in seeds(place):
        with place.open("a", encoding="utf-8") as file:
            file.write(f"{seed}\n")
