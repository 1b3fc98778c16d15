"""Our own surface: the engine's strengths in fourteen plain tools, written for a model to read."""

from typing import ClassVar

from notewright.errors import codes
from notewright.surfaces.base import Answer, BadArgument, FailedCall, Style, Surface
from notewright.surfaces.notes import render as words
from notewright.surfaces.notes import schema
from notewright.surfaces.notes.change import TOOLS as CHANGING
from notewright.surfaces.notes.find import context, grep, links, list_, search
from notewright.surfaces.notes.read import history, read
from notewright.surfaces.resources import NoteResources
from notewright.surfaces.schema import LOOKS, tool

LONGEST_MESSAGE = 4_000  # characters of an error: it may quote what was given


class NotesStyle(Style):
    """`code: what is wrong. What to do.`, and below it lines that say more where there are any."""

    table: ClassVar[dict[str, str]] = {code: code for code in codes()} | {
        "not_text": "invalid",
        "quota": "too_large",
        "no_space": "too_large",
        "indexing": "busy",
        "limited": "busy",
        "unavailable": "busy",
    }

    def render_problem(self, failed: FailedCall) -> Answer:
        problem = failed.problem
        message, hint = (words.to_one_line(text, LONGEST_MESSAGE) for text in (problem.message, problem.hint))
        message_line = f"{self.table[problem.code]}: {message.rstrip('.')}."
        lines = problem.details.get("lines", ()) if problem.code == "conflict" else ()
        if hint:
            message_line += f" {words.to_sentence(hint)}{':' if lines else '.'}"
        return Answer.error("\n".join([message_line, *lines]))

    def render_bad_arguments(self, failed: FailedCall, fault: BadArgument) -> Answer:
        message = words.to_one_line(fault.message, LONGEST_MESSAGE)
        if fault.fault == "unknown" and fault.expected:
            return Answer.error(f"invalid: {message}. {failed.tool} takes {', '.join(fault.expected)}.")
        if fault.where.startswith("edits["):
            return Answer.error(f"invalid: {message}. {words.to_sentence(schema.EDIT_FORMS)}.")
        return Answer.error(f"invalid: {message}. Call {failed.tool} again with that corrected.")


SURFACE = Surface(
    "notes",
    schema.INSTRUCTIONS,
    (
        tool("search", search, schema.SEARCH, LOOKS),
        tool("grep", grep, schema.GREP, LOOKS),
        tool("read", read, schema.READ, LOOKS, by_index=False),
        tool("list", list_, schema.LIST, LOOKS),
        tool("links", links, schema.LINKS, LOOKS),
        tool("context", context, schema.CONTEXT, LOOKS),
        *CHANGING,
        tool("history", history, schema.HISTORY, LOOKS, by_index=False),
    ),
    NotesStyle(),
    resources=NoteResources("note:///"),
)
