"""Our values in the shapes of the wire."""

import base64
from collections.abc import Sequence
from typing import Any

import mcp_types as wire

from notewright.surfaces import Answer, Contents, Image, Prompt, Resource, Template, Tool, well_formed

MOST_COMPLETIONS = 100  # the protocol's bound


def tool(given: Tool) -> wire.Tool:
    annotations = wire.ToolAnnotations.model_validate(given.annotations) if given.annotations else None
    schema = dict(given.schema)
    return wire.Tool(name=given.name, description=given.description, input_schema=schema, annotations=annotations)


def result(answer: Answer) -> dict[str, Any]:
    """As a plain dict, which the SDK takes too and which costs it half of what a model does."""
    shaped: dict[str, Any] = {"content": [_block(block) for block in answer.blocks], "isError": answer.is_error}
    if answer.meta is not None:
        shaped["_meta"] = dict(answer.meta)
    return shaped


def _block(block: str | Image) -> dict[str, Any]:
    if isinstance(block, str):
        return {"type": "text", "text": block}
    return {"type": "image", "data": base64.b64encode(block.data).decode(), "mimeType": block.mime}


def prompt(given: Prompt) -> wire.Prompt:
    blanks = [
        wire.PromptArgument(name=blank.name, description=blank.description or None, required=blank.required)
        for blank in given.arguments
    ]
    return wire.Prompt(name=given.name, description=given.description, arguments=blanks)


def prompted(given: Prompt, text: str) -> wire.GetPromptResult:
    said = wire.PromptMessage(role="user", content=wire.TextContent(type="text", text=well_formed(text)))
    return wire.GetPromptResult(description=given.description, messages=[said])


def resource(given: Resource) -> wire.Resource:
    noted = {"audience": list(given.audience) or None, "last_modified": given.modified}
    annotations = wire.Annotations(**{name: value for name, value in noted.items() if value is not None})  # type: ignore[arg-type]
    return wire.Resource(
        uri=given.uri,
        name=well_formed(given.name),
        mime_type=given.mime,
        size=given.size,
        annotations=annotations if annotations.model_fields_set else None,
    )


def template(given: Template) -> wire.ResourceTemplate:
    return wire.ResourceTemplate(
        uri_template=given.uri,
        name=given.name,
        description=given.description or None,
        mime_type=given.mime,
        annotations=wire.Annotations(audience=list(given.audience)) if given.audience else None,
    )


def contents(given: Contents) -> wire.ReadResourceResult:
    held: wire.TextResourceContents | wire.BlobResourceContents
    if isinstance(given.content, str):
        held = wire.TextResourceContents(uri=given.uri, mime_type=given.mime, text=well_formed(given.content))
    else:
        blob = base64.b64encode(given.content).decode()
        held = wire.BlobResourceContents(uri=given.uri, mime_type=given.mime, blob=blob)
    return wire.ReadResourceResult(contents=[held])


def completion(found: Sequence[str]) -> wire.CompleteResult:
    values = [well_formed(value) for value in found[:MOST_COMPLETIONS]]
    more = len(found) > len(values)
    return wire.CompleteResult(completion=wire.Completion(values=values, has_more=more))
