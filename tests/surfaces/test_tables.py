"""Every surface has a word for every way we say no."""

import pytest

from notewright import errors
from notewright.app import compose
from notewright.config.load import CommandLine, load
from notewright.config.settings import SURFACES
from notewright.engine.library import Library
from notewright.errors import Problem
from notewright.surfaces.base import Answer, BadArgument, Call, FailedCall, RpcError
from notewright.surfaces.perform import perform


@pytest.mark.parametrize("name", SURFACES)
def test_no_error_code_is_missing_from_a_surfaces_table(name: str) -> None:
    style = compose.load_surface(name, load(CommandLine((".",), None, {}))).style
    assert set(style.table) == errors.codes()


DETAILS = {
    "ambiguous": {"what": "text", "count": 2, "lines": [1, 2], "candidates": ["A.md", "B.md"]},
    "limited": {"retry_after": 5, "limit": 100, "window": 60, "name": "minute"},
    "indexing": {"done": 1, "total": 2},
    "too_large": {"size": 2, "limit": 1},
    "conflict": {"path": "A.md", "current": None},
}


@pytest.mark.parametrize("name", SURFACES)
@pytest.mark.parametrize("kind", Problem.__subclasses__(), ids=lambda kind: kind.code)
def test_every_problem_is_put_into_words_by_every_tool(name: str, kind: type[Problem]) -> None:
    surface = compose.load_surface(name, load(CommandLine((".",), None, {})))
    call = Call(Library.of([]))
    for tool in surface.tools:
        args = {required: "x" for required in tool.schema.get("required", ())} | {"old_str": "x", "find": "x"}
        problem = kind("something is wrong", hint="do something else", **DETAILS.get(kind.code, {}))
        try:
            answer = surface.style.render_problem(FailedCall(problem, tool.name, args, call))
        except RpcError as refused:
            assert refused.message
            continue
        assert isinstance(answer, Answer)
        assert answer.is_error
        assert answer.text.strip()
        assert "Traceback" not in answer.text


@pytest.mark.parametrize("name", SURFACES)
def test_every_surface_answers_a_wrong_argument_and_an_unknown_tool(name: str) -> None:
    surface = compose.load_surface(name, load(CommandLine((".",), None, {})))
    with pytest.raises(RpcError, match="no_such_tool"):
        perform(surface, Call(Library.of([])), "no_such_tool", {})
    fault = BadArgument("limit must be integer", "type", "limit", "limit", "integer")
    try:
        answer = surface.style.render_bad_arguments(
            FailedCall(fault, surface.tools[0].name, {}, Call(Library.of([]))), fault
        )
    except RpcError as refused:
        assert refused.code == -32602
    else:
        assert answer.is_error


@pytest.mark.parametrize("name", SURFACES)
@pytest.mark.parametrize("kind", [errors.Unavailable, errors.Busy, errors.NoSpace])
def test_every_surface_names_the_change_that_may_have_happened(name: str, kind: type[Problem]) -> None:
    surface = compose.load_surface(name, load(CommandLine((".",), None, {})))
    problem = kind("no answer", hint="the next write completes change abc23xyz", path="A.md", change="abc23xyz")
    for tool in surface.tools:
        args = {required: "x" for required in tool.schema.get("required", ())}
        answer = surface.style.render_problem(FailedCall(problem, tool.name, args, Call(Library.of([]))))
        assert answer.is_error and "abc23xyz" in answer.text
