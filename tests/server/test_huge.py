"""A vault with huge notes, over a real pipe: nobody waits for them, and in the end they are found."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
from tests.server.lines import NOTEWRIGHT, Lines
from tests.waiting import until

HUGE = {
    "links": "[[Small 1]] " * 60_000,
    "brackets": "[[x]]" * 60_000,
    "embeds": "![[Small 2]]\n" * 40_000,
    "stops": "!" * 1_000_000 + "[[Target]]",
    "words": "lorem ipsum dolor " * 150_000,
    "headings": "# a heading\n" * 40_000,
}
SECONDS = 2.0  # within which a call is answered
BUSY = 4  # times as long on a machine where others work too
NOT_YET = "not indexed yet"


class Timed(Lines):
    """Knows how long the slowest call took, in seconds of a machine that does nothing else."""

    slowest = 0.0

    def timed(self, tool: str, **args: Any) -> str:
        began = time.monotonic()
        result = self.call(tool, **args)["result"]
        self.slowest = max(self.slowest, time.monotonic() - began)
        return "\n".join(block["text"] for block in result["content"])


@pytest.mark.slow
def test_small_notes_are_found_at_once_while_huge_ones_are_being_indexed(tmp_path: Path, monkeypatch) -> None:
    vault = tmp_path / "vault"
    vault.mkdir()
    for number in range(50):
        (vault / f"Small {number}.md").write_text(f"zebra{number} about tea [[Small {number + 1}]]\n")
    for name, text in HUGE.items():
        (vault / f"Huge {name}.md").write_text(f"{text}\n\nmark{name}\n")
    for place in ("CACHE", "STATE", "DATA", "CONFIG"):
        monkeypatch.setenv(f"XDG_{place}_HOME", str(tmp_path / place))
    server = Timed([NOTEWRIGHT, "serve", str(vault)]).greet()
    try:
        until(lambda: "Small 7.md" in server.timed("search", query="zebra7"), 60)
        number, waited = 0, 0
        while NOT_YET in server.timed("search", query=f"zebra{number % 50}"):
            assert f"Small {number % 50}.md" in server.timed("search", query=f"zebra{number % 50}")
            assert "Created" in server.timed("write", path=f"New {number}", content=f"fresh{number}\n")
            assert f"New {number}.md" in server.timed("search", query=f"fresh{number}")
            number, waited = number + 1, waited + 1
            assert waited < 1_000
        assert server.slowest < SECONDS * (BUSY if os.getloadavg()[0] > (os.cpu_count() or 1) else 1)
        assert all(f"Huge {name}.md" in server.timed("search", query=f"mark{name}") for name in HUGE)
        assert "Moved" in server.timed("move", **{"from": "Small 9", "to": "Renamed 9"})
    finally:
        server.leave()
