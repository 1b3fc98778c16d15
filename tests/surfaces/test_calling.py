"""What happens to every call, whatever the surface."""

from types import MappingProxyType
from typing import Any

import pytest

from notewright import errors
from notewright.errors import Internal, NotFound
from notewright.surfaces.base import (
    MAX_ANSWER_BYTES,
    Answer,
    BadArgument,
    Call,
    FailedCall,
    RpcError,
    Session,
    Style,
    Surface,
    Tool,
    join_bounded,
    merge_tools,
)
from notewright.surfaces.perform import coerce_leniently, perform


class Plain(Style):
    table = MappingProxyType({code: code for code in errors.codes()})

    def render_problem(self, failed: FailedCall) -> Answer:
        return Answer.error(f"{self.table[failed.problem.code]}: {failed.problem}")


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "limit": {"type": "integer", "minimum": 1},
        "sort": {"enum": ["name", "size"]},
        "deep": {"type": "boolean"},
        "edits": {
            "type": "array",
            "items": {"type": "object", "properties": {"with": {"type": "string"}}, "required": ["with"]},
        },
    },
    "required": ["path"],
    "additionalProperties": False,
}


def show(call: Call, args: dict[str, Any]) -> str:
    if args["path"] == "gone":
        raise NotFound("there is no gone.md", hint="try back.md")
    if args["path"] == "broken":
        raise RuntimeError("secret")
    return repr(args)


SURFACE = Surface("plain", "", (Tool("show", "Shows.", SCHEMA, show),), Plain())


def said(**args: Any) -> str:
    return perform(SURFACE, Call(library=None), "show", args).text  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({}, "path is required"),
        ({"path": 3}, "path must be string"),
        ({"path": "a", "limit": 0}, "limit must be at least 1"),
        ({"path": "a", "limit": True}, "limit must be integer"),
        ({"path": "a", "limit": 1.5}, "limit must be integer"),
        ({"path": "a", "limit": float("inf")}, "limit must be integer"),
        ({"path": "a", "sort": "age"}, "sort must be one of name, size"),
        ({"path": "a", "colour": 1}, "colour is not known"),
        ({"path": "a", "edits": [{"with": "x"}, {}]}, "edits[1].with is required"),
        ({"path": "a\ud800"}, "path holds a lone surrogate, which is not text"),
        ({"path": "a", "edits": [{"with": "\udfff"}]}, "edits holds a lone surrogate, which is not text"),
    ],
)
def test_a_mistake_in_the_arguments_is_said_in_few_words(args: dict[str, Any], words: str) -> None:
    assert said(**args) == f"invalid: {words}"


def test_a_missing_argument_is_named_before_any_other_mistake() -> None:
    assert said(limit=0, colour=1) == "invalid: path is required"


def test_a_style_learns_what_was_wrong_with_which_argument() -> None:
    seen: list[BadArgument] = []

    class Nosy(Plain):
        def render_bad_arguments(self, failed: FailedCall, fault: BadArgument) -> Answer:
            seen.append(fault)
            return Answer.error("no")

    surface = Surface("nosy", "", SURFACE.tools, Nosy())
    perform(surface, Call(library=None), "show", {"path": "a", "colour": 1})  # type: ignore[arg-type]
    assert (seen[0].fault, seen[0].argument) == ("unknown", "colour")
    assert seen[0].expected == ["path", "limit", "sort", "deep", "edits"]


def test_a_whole_number_written_with_a_point_is_an_integer() -> None:
    assert said(path="a", limit=3.0) == "{'path': 'a', 'limit': 3}"


def test_a_problem_is_put_into_the_words_of_the_dialect() -> None:
    assert said(path="gone") == "not_found: there is no gone.md. try back.md"


def test_what_we_did_not_expect_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    assert "secret" not in said(path="broken")
    assert said(path="broken").startswith(f"{Internal.code}: ")
    assert "secret" in caplog.text


def test_an_unknown_tool_is_a_protocol_error() -> None:
    with pytest.raises(RpcError) as refused:
        perform(SURFACE, Call(library=None), "nope", {})  # type: ignore[arg-type]
    assert (refused.value.code, refused.value.message) == (-32602, "Unknown tool: nope")


def test_text_that_is_not_unicode_leaves_with_replacement_characters() -> None:
    surface = Surface("bad", "", (Tool("t", "", {"type": "object"}, lambda call, args: "a\udcffb é"),), Plain())
    assert perform(surface, Call(library=None), "t", {}).text == "a\ufffdb é"  # type: ignore[arg-type]


def test_a_lenient_surface_takes_numbers_and_truths_written_as_text() -> None:
    given = {"path": "5", "limit": "5", "deep": "True", "sort": "5"}
    assert coerce_leniently(SCHEMA, given) == {"path": "5", "limit": 5, "deep": True, "sort": "5"}


def test_something_happens_once_in_a_session() -> None:
    session = Session()
    assert [session.mark_once("context"), session.mark_once("context"), session.mark_once("other")] == [
        True,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("separator", "around"), [("\n", ("", "")), (", ", ("[", "]")), (",", ('{"é": [', '], "n": 1}'))]
)
def test_a_joined_answer_is_whole_up_to_a_mebibyte_and_never_longer(separator: str, around: tuple[str, str]) -> None:
    frame = sum(len(text.encode()) for text in around)
    entries = ["é" * 500] * 1_000
    entries.append("x" * (MAX_ANSWER_BYTES - frame - 1_000 * (1_000 + len(separator))))
    whole = join_bounded(entries, "query", separator=separator, around=around)
    assert len(whole.text.encode()) == MAX_ANSWER_BYTES and whole.meta is None
    cut = join_bounded([*entries[:-1], entries[-1] + "x"], "query", separator=separator, around=around)
    assert cut.blocks[0] == separator.join(entries[:-1]).join(around)
    assert cut.blocks[1] == "Cut: 1000 of 1001 shown. Narrow the query."


def test_surfaces_that_claim_one_name_are_not_served_together() -> None:
    with pytest.raises(errors.Invalid, match=r"show \(plain, twin\)"):
        merge_tools([SURFACE, Surface("twin", "", SURFACE.tools, Plain())])
