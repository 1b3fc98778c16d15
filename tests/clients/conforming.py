"""The surface that the MCP conformance suite asks for by name, made of the same parts as ours."""

import base64
import json
import time
from collections.abc import Sequence
from typing import Any

from tests.mcp.echo import Plain

from notewright.engine.library import Library
from notewright.engine.workspace import Workspace
from notewright.errors import NotFound
from notewright.surfaces.base import (
    Answer,
    Args,
    Argument,
    Call,
    Image,
    Prompt,
    RpcError,
    Surface,
    Tool,
)
from notewright.surfaces.resources import NoteResources

PIXEL = bytes.fromhex(  # a whole PNG
    "89504e470d0a1a0a0000000d4948445200000001000000010804000000b51c0c020000000b4944415478da6364f80f00010501012718e366"
    "0000000049454e44ae426082"
)
NOTHING = {"type": "object", "properties": {}}
HEADERS = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}, "query": {"type": "string"}},
    "required": ["region"],
}
SCHEMA_2020 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def simple_text(call: Call, args: Args) -> str:
    return "This is a simple text response for testing."


def image(call: Call, args: Args) -> Answer:
    return Answer.of(Image(PIXEL, "image/png"))


def failing(call: Call, args: Args) -> Answer:
    return Answer.error("This tool intentionally returns an error for testing")


def progressing(call: Call, args: Args) -> str:
    for done in (0, 50, 100):
        call.report(done, 100, f"Completed step {done} of 100")
        time.sleep(0.12)  # reports that come quicker are left out
    return "done"


def wanting(call: Call, args: Args) -> str:
    """For a client that could be asked for a completion, which nobody's can."""
    needed = {"requiredCapabilities": {"sampling": {}}}
    raise RpcError(-32021, "Missing required client capability: sampling", needed, status=400)


class Things(NoteResources):
    """A text, some bytes, something that is watched, and a template."""

    @property
    def template(self) -> dict[str, Any]:
        return {"uriTemplate": "test://template/{id}/data", "name": "Template", "mimeType": "application/json"}

    def list(self, call: Call, cursor: str | None) -> tuple[Sequence[dict[str, Any]], str | None]:
        there = (("static-text", "text/plain"), ("static-binary", "image/png"), ("watched-resource", "text/markdown"))
        return [{"uri": f"test://{name}", "name": name, "mimeType": mime} for name, mime in there], None

    def read(self, call: Call, uri: str) -> dict[str, Any]:
        if uri == "test://static-text":
            return {"uri": uri, "mimeType": "text/plain", "text": "This is the content of the static text resource."}
        if uri == "test://static-binary":
            return {"uri": uri, "mimeType": "image/png", "blob": base64.b64encode(PIXEL).decode()}
        if uri.startswith("test://template/") and uri.endswith("/data"):
            number = uri.removeprefix("test://template/").removesuffix("/data")
            data = {"id": number, "templateTest": True, "data": f"Data for ID: {number}"}
            return {"uri": uri, "mimeType": "application/json", "text": json.dumps(data)}
        raise NotFound(f"there is no {uri}", what="file")

    def complete(self, call: Call, argument: str, begun: str) -> Sequence[str]:
        return [number for number in ("1", "12", "123") if number.startswith(begun)]

    def uri(self, library: Library, workspace: Workspace, path: str) -> str:
        return f"test://{path}"


def with_arguments(call: Call, args: Any) -> str:
    return f"Prompt with arguments: arg1='{args['arg1']}', arg2='{args['arg2']}'"


TOOLS = (
    Tool("test_simple_text", "Gives text.", NOTHING, simple_text),
    Tool("test_image_content", "Gives a picture.", NOTHING, image),
    Tool("test_error_handling", "Fails.", NOTHING, failing),
    Tool("test_tool_with_progress", "Tells how far it is.", NOTHING, progressing),
    Tool("test_missing_capability", "Wants what no client has.", NOTHING, wanting),
    Tool("test_streaming_elicitation", "Asks nothing back.", NOTHING, simple_text),
    Tool("test_logging_tool", "Logs nothing to the client.", NOTHING, simple_text),
    Tool("test_custom_headers", "Has arguments that are headers too.", HEADERS, simple_text),
    Tool("json_schema_2020_12_tool", "Has a schema of 2020-12.", SCHEMA_2020, simple_text),
)
PROMPTS = (
    Prompt("test_simple_prompt", "A simple one.", (), lambda call, args: "This is a simple prompt for testing."),
    Prompt(
        "test_prompt_with_arguments",
        "One with blanks.",
        (Argument("arg1", "the first", True), Argument("arg2", "the second", True)),
        with_arguments,
    ),
)
CONFORMING = Surface("conforming", "What the suite asks for.", TOOLS, Plain(), PROMPTS, Things())
