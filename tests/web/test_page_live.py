"""The activity as it happens: streams of server-sent events, over real HTTP."""

import contextlib
import json
import queue
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.server.lines import NOTEWRIGHT, Lines
from tests.web.page_desk import Site, append, config_of, csrf, served

from notewright.engine.changes.history import undo

pytestmark = pytest.mark.slow

NOTES = {"Tea.md": "Steep it.\n", "Recipes/Broth.md": "Salt.\n"}
STREAM = {"accept": "text/event-stream"}


class Events:
    """A stream, read by a thread: what came is waited for, never slept for."""

    def __init__(self, response: httpx2.Response) -> None:
        self._heard: queue.Queue[dict[str, str] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._read, args=(response,), daemon=True)
        self._thread.start()

    def _read(self, response: httpx2.Response) -> None:
        event: dict[str, str] = {}
        with contextlib.suppress(httpx2.HTTPError, RuntimeError):
            for line in response.iter_lines():
                name, _, value = line.partition(": ")
                if line:
                    event[name] = value
                else:
                    self._heard.put(event)
                    event = {}
        self._heard.put(None)

    def next(self, seconds: float = 20) -> dict[str, str] | None:
        """The next event; None when the stream has ended."""
        return self._heard.get(timeout=seconds)

    def change(self) -> dict[str, Any]:
        """What the next change is about, comments left out."""
        until = time.monotonic() + 20
        while (event := self.next()) is not None and time.monotonic() < until:
            if "data" in event:
                return {"id": event.get("id"), "event": event["event"], **json.loads(event["data"])}
        raise AssertionError("nothing was told")

    def ended(self) -> bool:
        while (event := self.next()) is not None:
            assert "data" not in event, event
        return True


@contextlib.contextmanager
def listening(client: httpx2.Client, question: str = "", **headers: str) -> Iterator[Events]:
    with client.stream("GET", f"/events{question}", headers=STREAM | headers) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        events = Events(response)
        try:
            assert events.next() is not None, "it says at once that it is there"
            yield events
        finally:  # closing it would not do while the other thread reads
            with contextlib.suppress(OSError):  # the server has closed it, and the other thread let go of it
                response.extensions["network_stream"].get_extra_info("socket").shutdown(socket.SHUT_RDWR)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with served(config_of(tmp_path, {"Main": NOTES, "Other": {"Else.md": "else\n"}})) as site:
        yield site


def test_a_change_of_another_process_is_told_as_it_happens(site: Site) -> None:
    agent = site.agent("claude")
    with listening(site.client()) as events:
        name = append(agent, "Tea.md", "Pour.\n")
        told = events.change()
    assert told["key"] == f"c-main-{name}" and told["event"] == "change"
    assert f'id="c-main-{name}"' in told["html"] and "claude" in told["said"]


def test_a_change_of_this_process_is_told_too(site: Site) -> None:
    client = site.client()
    first = append(site.agent(), "Tea.md", "Pour.\n")
    with listening(client) as events:
        page = client.get(f"/w/main/changes/{first}/undo")
        token = page.text.partition('name="csrf" value="')[2][:64]
        client.post(f"/w/main/changes/{first}/undo", data={"csrf": token})
        told, updated = events.change(), events.change()
    assert told["event"] == "change" and "browser" in told["html"]
    assert (updated["event"], updated["key"]) == ("update", f"c-main-{first}")
    assert "taken back" in updated["html"]


def test_an_undo_of_an_undo_lets_the_first_stand_again(site: Site) -> None:
    agent = site.agent()
    first = append(agent, "Tea.md", "Pour.\n")
    undone = undo(agent, first).done
    assert undone and undone.id
    with listening(site.client()) as events:
        undo(agent, undone.id)
        events.change()
        updates = {told["key"]: told["html"] for told in (events.change(), events.change())}
    assert "taken back" in updates[f"c-main-{undone.id}"]
    assert "taken back" not in updates[f"c-main-{first}"]


def test_a_stream_goes_on_where_the_last_one_ended(site: Site) -> None:
    agent, client = site.agent(), site.client()
    with listening(client) as events:
        append(agent, "Tea.md", "one\n")
        last = events.change()["id"]
    missed = [append(agent, "Tea.md", f"{number}\n") for number in range(3)]
    seen = set[str]()
    with listening(client, **{"last-event-id": last}) as events:
        while not set(missed) <= {key.removeprefix("c-main-") for key in seen}:
            seen.add(events.change()["key"])


def test_what_happened_between_the_page_and_its_stream_is_told(site: Site) -> None:
    agent, client = site.agent(), site.client()
    first = append(agent, "Tea.md", "one\n")
    after = client.get("/").text.partition('data-after="')[2].partition('"')[0]
    name = append(agent, "Tea.md", "two\n")
    with listening(client, f"?after={after}") as events:
        seen = {events.change()["key"], events.change()["key"]}  # the first may be told again: its page knows it
    assert f"c-main-{name}" in seen and f"c-main-{first}" in seen


def test_a_stream_tells_what_its_page_shows(site: Site) -> None:
    with listening(site.client(), "?workspace=main&client=claude&note=Tea.md") as events:
        append(site.agent("claude", workspace=1), "Else.md", "no\n")
        append(site.agent("cursor"), "Tea.md", "no\n")
        append(site.agent("claude"), "Recipes/Broth.md", "no\n")
        name = append(site.agent("claude"), "Tea.md", "yes\n")
        assert events.change()["key"] == f"c-main-{name}"


def test_a_burst_of_changes_is_told_whole_and_once(site: Site) -> None:
    agent = site.agent()
    for number in range(15):
        append(agent, "Tea.md", f"before {number}\n")
    with listening(site.client()) as events:
        names = [append(agent, "Recipes/Broth.md", f"{number}\n") for number in range(25)]
        told = [events.change()["key"] for _ in names]
        assert told == [f"c-main-{name}" for name in names]
        last = append(agent, "Tea.md", "last\n")
        assert events.change()["key"] == f"c-main-{last}"


def test_a_filter_that_makes_no_sense_is_refused_and_a_place_that_makes_none_is_now(site: Site) -> None:
    assert site.client().get("/events?since=never", headers=STREAM).status_code == 400
    with listening(site.client(), "?after=never") as events:
        name = append(site.agent(), "Tea.md", "yes\n")
        assert events.change()["key"] == f"c-main-{name}"


def test_very_many_changes_at_once_are_only_counted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("notewright.web.event_stream.MAX_NEWS", 3)
    agent = site.agent()
    for number in range(6):
        append(agent, "Tea.md", f"{number}\n")
    with listening(site.client(), "?after=0") as events:
        assert events.change()["event"] == "many"


def test_a_quiet_stream_says_that_it_is_still_there(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("notewright.web.event_stream.HEARTBEAT_SECONDS", 0.05)
    with served(site.config) as other, listening(other.client()) as events:
        assert {"": "still here"} in [events.next(), events.next(), events.next()]


def test_a_revoked_token_loses_its_stream(site: Site) -> None:
    guest = site.client(site.token("guest"))
    with listening(guest) as events:
        site.registry.revoke("guest", time.time())
        assert events.ended()
    assert guest.get("/events", headers=STREAM, follow_redirects=False).status_code == 401


def test_only_so_many_streams_are_open_and_a_closed_one_makes_room(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("notewright.web.event_stream.MAX_STREAMS", 5)
    with served(site.config) as small, contextlib.ExitStack() as stack:
        client = small.client()
        for _ in range(5):
            stack.enter_context(listening(client))
        refused = client.get("/events", headers=STREAM)
        assert refused.status_code == 503 and refused.headers["retry-after"]
        assert client.get("/").status_code == 200
        stack.close()
        until, status = time.monotonic() + 20, 503
        while status == 503 and time.monotonic() < until:
            with client.stream("GET", "/events", headers=STREAM) as again:
                status = again.status_code
        assert status == 200


def test_a_server_that_stops_ends_its_streams_at_once(tmp_path: Path) -> None:
    config = config_of(tmp_path, {"Main": NOTES})
    place = config.workspaces[0].location
    process = subprocess.Popen(
        [NOTEWRIGHT, "serve", f"Main={place}", "--state", str(tmp_path / "s"), "--http", "0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        base = next(line for line in process.stderr if "/mcp/notes" in line).split()[-1].removesuffix("/mcp/notes")
        with httpx2.Client(base_url=base, timeout=20) as client, listening(client) as events:
            stdio = Lines([NOTEWRIGHT, "serve", f"Main={place}", "--state", str(tmp_path / "s")]).greet()
            stdio.text("edit", path="Tea", edits=[{"append": "Pour.\n"}])
            assert "tester" in events.change()["said"], "a stdio server is another process"
            stdio.leave()
            begun = time.monotonic()
            process.send_signal(signal.SIGINT)
            assert events.ended()
            process.wait(10)
            assert time.monotonic() - begun < 4, "nobody waited for the stream"
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


def test_the_first_use_of_a_token_ends_nobodys_stream(site: Site) -> None:
    token, other = site.token("me"), site.token("agent")
    with listening(site.client(token)) as events:
        assert site.registry.tokens()[1].used is None
        asked = httpx2.get(f"{site.base}/api/v1/me", headers={"authorization": f"Bearer {other}"}, timeout=20)
        assert asked.status_code == 200 and site.registry.tokens()[1].used is not None
        name = append(site.agent(), "Tea.md", "Pour.\n")
        assert events.change()["key"].endswith(name)


def test_signing_out_ends_the_streams_of_the_cookie_and_of_its_copy(site: Site) -> None:
    client = site.client(site.token("me"))
    copied = dict(client.cookies)
    with listening(client) as events, httpx2.Client(base_url=site.base, cookies=copied, timeout=20) as copy:
        assert copy.get("/api/v1/me").status_code == 200
        form = {"csrf": csrf(client.get("/"))}
        assert client.post("/sign-out", data=form).status_code == 200
        assert events.ended()
        assert copy.get("/api/v1/me").status_code == 401
        assert copy.get("/events", headers=STREAM).status_code == 401
