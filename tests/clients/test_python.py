"""The Python SDK's client, on both wires and in both eras, for every surface."""

import anyio
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from tests.clients.questions import ANSWER, QUESTIONS, TOOLS

from notewright.config.settings import SURFACES

pytestmark = pytest.mark.slow

ERAS = ["legacy", "2026-07-28"]


async def talk(client: Client, surface: str) -> None:
    """Everything is listed, a note is read, and a tool that is not there is refused without harm."""
    tool, args = QUESTIONS[surface]
    async with client:
        tools = (await client.list_tools()).tools
        assert len({one.name for one in tools}) == TOOLS[surface]
        assert ANSWER in str((await client.call_tool(tool, args)).content)
        assert await refused(client)
        assert ANSWER in str((await client.call_tool(tool, args)).content)


async def refused(client: Client) -> bool:
    """A dialect may refuse by an error of the protocol or by an answer that is one."""
    try:
        return bool((await client.call_tool("no_such_tool", {})).is_error)
    except MCPError as error:
        return error.error.code in (-32602, -32601)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("surface", SURFACES)
def test_the_python_client_is_served_on_stdio(stdio: list[str], surface: str, era: str) -> None:
    started = StdioServerParameters(command=stdio[0], args=[*stdio[1:], "--surface", surface])
    anyio.run(talk, Client(stdio_client(started), mode=era), surface)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("surface", SURFACES)
def test_the_python_client_is_served_over_http(base: str, surface: str, era: str) -> None:
    for path in (f"/mcp/{surface}", f"/w/examples/mcp/{surface}"):
        anyio.run(talk, Client(streamable_http_client(base + path), mode=era), surface)


def test_the_python_client_finds_out_the_era_by_itself(stdio: list[str], base: str) -> None:
    started = StdioServerParameters(command=stdio[0], args=stdio[1:])
    anyio.run(talk, Client(stdio_client(started), mode="auto"), "notes")
    anyio.run(talk, Client(streamable_http_client(f"{base}/mcp"), mode="auto"), "notes")


def test_the_python_client_reads_resources_and_completes_their_paths(base: str) -> None:
    async def read() -> tuple[str, list[str]]:
        async with Client(streamable_http_client(f"{base}/mcp/notes"), mode="2026-07-28") as client:
            template = (await client.list_resource_templates()).resource_templates[0].uri_template
            reference = {"type": "ref/resource", "uri": template}
            text = (await client.read_resource("note:///Start%20here.md")).contents[0].text  # type: ignore[union-attr]
            done = await client.complete(reference, {"name": "path", "value": "Recipes/Ch"})  # type: ignore[arg-type]
            return text, done.completion.values

    text, completed = anyio.run(read)
    assert ANSWER in text and completed == ["Recipes/Chałka.md"]
