"""Our values as JSON objects of the protocol. Nothing here needs the SDK, so that stdio starts without it."""

import base64
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from notewright import __version__
from notewright.surfaces.base import Answer, Image, Prompt, Surface, Tool
from notewright.surfaces.perform import replace_surrogates

Shape = dict[str, Any]
MOST_COMPLETIONS = 100  # the protocol's bound
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")  # those that begin with `initialize`
NOT_INITIALIZED = "Session not initialized: send notifications/initialized first"
SERVER = {"name": "notewright", "version": __version__}


def capabilities(surfaces: Sequence[Surface]) -> Shape:
    """The capabilities of a server of these surfaces."""
    resources = any(surface.resources is not None for surface in surfaces)
    prompts = any(surface.prompts for surface in surfaces)
    return {
        **({"completions": {}} if resources else {}),
        **({"prompts": {"listChanged": False}} if prompts else {}),
        **({"resources": {"listChanged": False, "subscribe": True}} if resources else {}),
        "tools": {"listChanged": False},
    }


def instructions(surfaces: Sequence[Surface]) -> str:
    return "\n\n".join(surface.instructions for surface in surfaces if surface.instructions)


def handshake(surfaces: Sequence[Surface], wanted: str) -> Shape:
    """The answer to `initialize`."""
    version, said = wanted if wanted in VERSIONS else VERSIONS[-1], instructions(surfaces)
    shaped: Shape = {"capabilities": capabilities(surfaces), "protocolVersion": version, "serverInfo": SERVER}
    return shaped | ({"instructions": said} if said else {})


def tools(given: Sequence[Tool]) -> Shape:
    shaped: list[Shape] = []
    for tool in given:
        shape: Shape = {"name": tool.name, "description": tool.description, "inputSchema": tool.schema}
        shaped.append(shape | ({"annotations": dict(tool.annotations)} if tool.annotations else {}))
    return {"tools": shaped}


def result(answer: Answer) -> Shape:
    content: list[Shape] = []
    for block in answer.blocks:
        if isinstance(block, Image):
            data = base64.b64encode(block.data).decode()
            content.append({"type": "image", "data": data, "mimeType": block.mime})
        else:
            content.append({"type": "text", "text": block})
    shaped: Shape = {"content": content, "isError": answer.is_error}
    return shaped if answer.meta is None else shaped | {"_meta": dict(answer.meta)}


def error(code: int, message: str, data: Any = None) -> Shape:
    return {"code": code, "message": message} | ({} if data is None else {"data": data})


def prompts(given: Sequence[Prompt]) -> Shape:
    return {
        "prompts": [
            {"name": prompt.name, "description": prompt.description, "arguments": [*map(asdict, prompt.arguments)]}
            for prompt in given
        ]
    }


def prompted(prompt: Prompt, text: str) -> Shape:
    said = {"role": "user", "content": {"type": "text", "text": replace_surrogates(text)}}
    return {"description": prompt.description, "messages": [said]}


def completion(found: Sequence[str]) -> Shape:
    values = [replace_surrogates(value) for value in found[:MOST_COMPLETIONS]]
    return {"completion": {"values": values, "hasMore": len(found) > len(values)}}


def progress(token: Any, done: float, total: float | None, message: str | None) -> Shape:
    shaped: Shape = {"progressToken": token, "progress": done}
    if total is not None:
        shaped["total"] = total
    return shaped if message is None else shaped | {"message": replace_surrogates(message)}
