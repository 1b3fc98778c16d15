"""Performing one call of one tool, from its arguments to its answer: the same for every surface and every wire."""

import functools
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import jsonschema_rs

from notewright.engine.indexing.ready import describe_unread, list_unread, unread_log
from notewright.errors import Internal, Invalid, Problem
from notewright.index.base import Index
from notewright.notes.path import NotePath
from notewright.surfaces.base import (
    INVALID_PARAMS,
    Answer,
    Args,
    ArgumentFault,
    BadArgument,
    Call,
    Cancelled,
    FailedCall,
    Image,
    RpcError,
    Schema,
    Surface,
    Tool,
)

log = logging.getLogger(__name__)
MAX_ARGUMENT_DEPTH = 200  # levels of lists and objects in the arguments of a call
TOO_DEEP = "the arguments are nested too deeply"


def perform(surface: Surface, call: Call, name: str, args: Args) -> Answer:
    """The answer to a call. Raises RpcError where the dialect wants a protocol error, or Cancelled."""
    for tool in surface.tools:
        if tool.name == name:
            break
    else:
        call.record_refusal(Invalid("there is no such tool", what="tool"))
        raise RpcError(INVALID_PARAMS, f"Unknown tool: {replace_surrogates(name)}")
    try:
        if surface.guard is not None:
            surface.guard(call, name)
        args = surface.coerce(tool.schema, args) if surface.coerce else args
        args = check_arguments(tool.schema, _validator(tool), args)
        if call.cancelled():
            raise Cancelled
        looks = tool.by_index and tool.annotations.get("readOnlyHint")
        unread = unread_log.paths = {} if looks else None
        given = tool.run(call, args)
        answer = given if isinstance(given, Answer) else Answer((given,))
        if surface.finish is not None and not answer.is_error:
            answer = surface.finish(call, answer)
        is_whole = unread is None or (len(unread) == len(call.used) and not any(unread.values()))
        return clean_answer(answer if is_whole else _add_unread_notice(call, answer, unread or {}))
    except RpcError:
        raise
    except Exception as error:
        problem = to_problem(error, name)
        call.record_refusal(problem)
        failed = FailedCall(problem, name, args, call)
        if isinstance(problem, BadArgument):
            return clean_answer(surface.style.render_bad_arguments(failed, problem))
        return clean_answer(surface.style.render_problem(failed))
    finally:
        unread_log.paths = None


def _add_unread_notice(call: Call, answer: Answer, unread: Mapping[Index, Sequence[NotePath]]) -> Answer:
    """Append which notes are not indexed yet: what they hold may be missing from the answer."""
    try:
        left = [path for ws in call.used.values() for path in list_unread(ws, unread.get(ws.index))]
    except Problem:  # the call itself is done
        return answer
    if not left or answer.is_error:
        return answer
    notice = f"Still indexing; {describe_unread(left)}. What they say may be missing here."
    return Answer((*answer.blocks, notice), meta=answer.meta)


def to_problem(error: Exception, what: str) -> Problem:
    """A Problem as it is; an error we did not expect is logged and becomes an Internal without details."""
    if isinstance(error, Problem):
        return error
    log.error("%s failed", what, exc_info=error)
    return Internal("something went wrong here", hint="it is in the server's log")


def clean_answer(answer: Answer) -> Answer:
    """Lone surrogates (names and text that are not Unicode) become U+FFFD: no wire can carry them."""
    for text in answer.blocks:
        if not isinstance(text, Image) and _has_surrogates(text):
            break
    else:
        return answer
    blocks = tuple(block if isinstance(block, Image) else replace_surrogates(block) for block in answer.blocks)
    return Answer(blocks, answer.is_error, answer.meta)


def replace_surrogates(text: str) -> str:
    """The text with U+FFFD in place of lone surrogates."""
    return _SURROGATES.sub("\ufffd", text) if _has_surrogates(text) else text


_SURROGATES = re.compile("[\ud800-\udfff]")


def _has_surrogates(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def check_arguments(schema: Schema, validator: jsonschema_rs.Draft202012Validator, args: Args) -> Args:
    """The arguments, if the schema takes them; else BadArgument with the mistake to mend first."""
    is_plain = True
    for name, value in args.items():
        if name.isascii() and isinstance(value, str) and (value.isascii() or not _has_surrogates(value)):
            continue
        is_plain = False
        flaw = find_json_flaw((name, value))
        if flaw == "surrogate":
            name = replace_surrogates(name)
            raise BadArgument(f"{name} holds a lone surrogate, which is not text", flaw, name)
        if flaw is not None:
            raise BadArgument(TOO_DEEP, flaw, "")
    try:
        if validator.is_valid(args):
            return args if is_plain else _convert_whole_floats(args)
        faults = [_to_bad_argument(schema, error) for error in validator.iter_errors(args)]
    except ValueError:  # nested deeper than the validator goes
        raise BadArgument(TOO_DEEP, "shape", "") from None
    raise min(faults, key=lambda fault: _ORDER.index(fault.fault))


@functools.cache
def _validator(tool: Tool) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(dict(tool.schema))


_ORDER: tuple[ArgumentFault, ...] = get_args(ArgumentFault)
_KINDS: dict[str, tuple[ArgumentFault, str]] = {
    "type": ("type", "must be {}"),
    "enum": ("enum", "must be one of {}"),
    "const": ("enum", "must be {}"),
    "minimum": ("range", "must be at least {}"),
    "maximum": ("range", "must be at most {}"),
    "exclusiveMinimum": ("range", "must be more than {}"),
    "exclusiveMaximum": ("range", "must be less than {}"),
    "minLength": ("length", "must have at least {} characters"),
    "maxLength": ("length", "must have at most {} characters"),
    "minItems": ("length", "must have at least {} items"),
    "maxItems": ("length", "must have at most {} items"),
    "pattern": ("pattern", "must match {}"),
}


def _to_bad_argument(schema: Schema, error: jsonschema_rs.ValidationError) -> BadArgument:
    """One mistake in a short message of ours: the validator's own would quote the whole value."""
    kind, place = error.kind, list(error.instance_path)
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Required):
        place.append(kind.property)
        return BadArgument(f"{_format_place(place)} is required", "missing", str(place[0]), _format_place(place))
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.AdditionalProperties):
        place.append(kind.unexpected[0])
        where, known = _format_place(place), list(schema.get("properties", {})) if len(place) == 1 else None
        return BadArgument(f"{where} is not known", "unknown", str(place[0]), where, known)
    fields = ("types", "options", "limit", "pattern", "expected_value")
    expected: Any = next((getattr(kind, field) for field in fields if hasattr(kind, field)), None)
    if hasattr(kind, "types") and len(expected) == 1:
        expected = expected[0]
    shown = expected
    if isinstance(expected, list):
        shown = ", ".join("null" if item is None else str(item) for item in expected)
    where = _format_place(place)
    fault, words = _KINDS.get(kind.name, ("shape", "does not have an allowed form"))
    message = f"{where or 'the arguments'} {words.format(shown)}"
    return BadArgument(message, fault, str(place[0]) if place else "", where, expected)


def _format_place(place: list[str | int]) -> str:
    """`["edits", 2, "with"]` is `edits[2].with`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{replace_surrogates(step)}" for step in place)
    return "".join(steps).removeprefix(".")


def find_json_flaw(value: Any) -> Literal["surrogate", "shape"] | None:
    """Why a JSON value cannot be taken: a lone surrogate anywhere in it, or more than MAX_ARGUMENT_DEPTH levels."""
    level = [value]
    for _ in range(MAX_ARGUMENT_DEPTH):
        inside: list[Any] = []
        for item in level:
            if isinstance(item, str):
                if _has_surrogates(item):
                    return "surrogate"
            elif isinstance(item, dict):
                inside.extend(item)
                inside.extend(item.values())
            elif isinstance(item, list | tuple):
                inside.extend(item)
        if not inside:
            return None
        level = inside
    return "shape"


def _convert_whole_floats(args: Args) -> Args:
    """JSON knows one kind of number: 3.0 is 3."""
    whole = {name: int(value) for name, value in args.items() if isinstance(value, float) and value.is_integer()}
    return {**args, **whole} if whole else args


_TRUTH_VALUES = {"true": True, "false": False}


def coerce_leniently(schema: Schema, args: Args) -> Args:
    """Convert numbers and truth values that were written as text to what the schema wants."""
    loosened = dict(args)
    for name, value in args.items():
        wanted = schema.get("properties", {}).get(name, {}).get("type")
        if not isinstance(value, str):
            continue
        if wanted == "integer" and value.strip().removeprefix("-").isdecimal() and len(value) < 20:
            loosened[name] = int(value)
        elif wanted == "boolean" and value.strip().lower() in _TRUTH_VALUES:
            loosened[name] = _TRUTH_VALUES[value.strip().lower()]
    return loosened
