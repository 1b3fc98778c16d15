"""Many clients of one server whose notes are in a bucket: nobody waits for somebody else's request."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.api.api_site import Served, served
from tests.bucket import Bucket

from notewright.app import compose
from notewright.config.load import CommandLine, load
from notewright.config.settings import SURFACES
from notewright.server.fast_path import STORE_READING_TOOLS

pytestmark = pytest.mark.slow

READERS = 64
LOOKING: dict[str, dict[str, dict[str, Any]]] = {  # every tool that changes nothing and asks the index alone
    "notes": {
        "search": {"query": "tea"}, "grep": {"pattern": "green"}, "list": {}, "links": {"path": "n1"}, "history": {},
    },
    "cairn": {"cairn_search": {"query": "tea"}, "cairn_list": {}},
    "lens": {"glob": {"pattern": "**/*.md"}},
    "obsidian": {
        "search_notes": {"query": "tea"}, "list_notes": {}, "find_broken_links": {},
        "get_help": {},
    },
    "second_brain": {"glob": {"pattern": "*.md"}, "grep": {"pattern": "green"}},
    "octarine": {"octarine_search_notes": {"query": "tea", "workspace": "Notes"}},
}  # fmt: skip


@pytest.fixture
def site(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    for number in range(READERS):
        bucket.put(f"n{number}.md", f"green tea {number} for [[n{number + 1}]]\n".encode())
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.proxy.endpoint)
    flags = {"state": str(tmp_path), "http.calls_at_once": READERS, "http.port": 0}
    config = load(CommandLine((f"Notes={bucket.location}",), flags=flags), environ={}, folder=str(tmp_path))
    with served(tmp_path, config) as made:
        made.site.library.default.follower.wait(20)
        yield made


async def read_all(site: Served) -> list[str]:
    """As many clients as there are notes, each reads one."""
    head = {"accept": "application/json"}
    limits = httpx2.Limits(max_connections=READERS)
    async with httpx2.AsyncClient(base_url=site.address, headers=head, timeout=60, limits=limits) as client:

        async def one(number: int) -> str:
            call = {"name": "read", "arguments": {"path": f"n{number}.md"}}
            asked = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call}
            result = (await client.post("/mcp/notes", json=asked)).json()["result"]
            return str(result["content"][0]["text"])

        return await asyncio.gather(*(one(number) for number in range(READERS)))


def test_sixty_four_readers_are_not_queued_behind_a_few_threads(site: Served, bucket: Bucket) -> None:
    with site.surface("notes") as first:
        assert "green tea 0" in first("read", path="n0.md")
    bucket.proxy.reset()
    bucket.proxy.latency, bucket.proxy.gate = 0.02, READERS - 1  # one thread is kept for calls that are brief
    answers = asyncio.run(read_all(site))
    assert all(f"green tea {number} " in text for number, text in enumerate(answers))
    assert bucket.proxy.most_at_once >= READERS - 1


@pytest.mark.parametrize("surface", SURFACES)
def test_what_asks_the_index_alone_sends_no_request(site: Served, bucket: Bucket, surface: str) -> None:
    tools = compose.load_surface(surface, site.site.config).tools
    looking = {tool.name for tool in tools if tool.annotations.get("readOnlyHint")}
    assert looking - STORE_READING_TOOLS == set(LOOKING[surface])
    with site.surface(surface) as client:
        bucket.proxy.reset()
        for tool, args in LOOKING[surface].items():
            assert client(tool, **args)
            assert not bucket.proxy.counts, tool
