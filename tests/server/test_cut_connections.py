"""What the real command tells of those who never get as far as a request, and the form in which it tells."""

import contextlib
import json
import re
import signal
import subprocess
from pathlib import Path

import httpx2
import pytest
from tests.conftest import write_files
from tests.server.lines import NOTEWRIGHT
from tests.server.listener import connected, heard
from tests.waiting import until


@pytest.mark.slow
def test_who_sends_nonsense_is_counted_and_every_line_of_the_log_is_json(tmp_path: Path) -> None:
    write_files(tmp_path / "notes", {"Tea.md": "# Tea\n"})
    (tmp_path / "c.toml").write_text('log_format = "json"\n[workspaces.Main]\nlocation = "notes"\n')
    command = [NOTEWRIGHT, "serve", "--config", "c.toml", "--state", "state", "--http", "0"]
    log = tmp_path / "log"
    with log.open("w") as file:
        process = subprocess.Popen(command, stderr=file, cwd=tmp_path)
    try:
        until(lambda: "Notewright serves Main" in log.read_text(), 30)
        found = re.search(r" port (\d+)", log.read_text())
        assert found is not None
        port = int(found[1])
        for sent in (b"no HTTP at all\r\n\r\n", b"GET / HTTP/1.1\r\nx: " + b"a" * 100_000):
            with connected(port) as client, contextlib.suppress(OSError):
                client.sendall(sent)
                heard(client)
        numbers = httpx2.get(f"http://127.0.0.1:{port}/metrics", timeout=30).text
        assert 'notewright_http_refused_total{reason="malformed"} 1.0' in numbers
        assert 'notewright_http_refused_total{reason="too_large"} 1.0' in numbers
        process.send_signal(signal.SIGTERM)
        assert process.wait(40) == 0
    finally:
        process.kill()
        process.wait()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert re.fullmatch(
        r"Notewright serves Main \(.+\) on 127\.0\.0\.1 port (\d+): http://127\.0\.0\.1:\1/mcp", lines[0]["message"]
    )
