"""The editor of live notes in a real browser: several windows in one text, and nothing lost on the way."""

import contextlib
import json
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.conftest import write_files
from tests.over_http import client_of
from tests.server.lines import NOTEWRIGHT
from tests.web.page_desk import Site, config_of, served
from tests.web.test_page_browser import Watched, browser, contrasts, pytestmark, tab
from websockets.sync.client import connect

from notewright.engine.library import change
from notewright.server.live import frames
from notewright.server.live.frames import ClientState

__all__ = ["browser", "pytestmark"]

ODD = "Kräuter 茶 👩‍🌾 e\u0301 שלום مرحبا"
NOTES: dict[str, str | bytes] = {"Tea.md": "# Tea\n\nSteep it.\n", "Odd 茶 #1?.md": f"{ODD}\n"}
REFUSED = re.compile("ERR_CONNECTION_REFUSED|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET|WebSocket connection")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with served(config_of(tmp_path, {"Main": NOTES}, live=True)) as site:
        yield site


@dataclass
class Command:
    """`notewright serve live:FOLDER --http`, which can be killed and started again at the same address."""

    root: Path
    port: int = 0
    process: "subprocess.Popen[str] | None" = field(default=None)

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def place(self) -> Path:
        return self.root / "Main"

    def start(self) -> None:
        words = [f"Main=live:{self.place()}", "--http", str(self.port), "--state", str(self.root / "state")]
        self.process = subprocess.Popen([NOTEWRIGHT, "serve", *words], stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        assert any("Stop with Ctrl-C" in line for line in self.process.stderr), "it was not started"

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    write_files(tmp_path / "Main", NOTES)
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    served = Command(tmp_path, port)
    served.start()
    yield served
    served.kill()


def opened(watched: Watched, note: str = "Tea.md") -> Page:
    """The editor of a note, connected."""
    page = watched.go(f"/w/main/edit/{note}")
    expect(page.locator("#edit-state")).to_have_text("Saved", timeout=20_000)
    return page


def text_of(page: Page) -> str:
    """What is drawn; all of it, for a note of a few lines."""
    return "\n".join(page.locator("#editor .cm-line").all_text_contents())


def eventually(look: Callable[[], object], wanted: object, seconds: float = 20) -> None:
    """What is looked at becomes what is wanted, soon."""
    until = time.monotonic() + seconds
    while (seen := look()) != wanted and time.monotonic() < until:
        time.sleep(0.05)
    assert seen == wanted


def test_two_windows_an_editor_and_an_agent_are_in_one_text(browser: Browser, site: Site) -> None:
    file = site.place() / "Tea.md"
    with tab(browser, site) as one, tab(browser, site) as two, client_of(site.base, "notes") as agent:
        page = one.go("/w/main/notes/Tea.md")
        page.get_by_role("link", name="Edit", exact=True).click()
        expect(page.locator("#edit-state")).to_have_text("Saved")
        box = page.get_by_role("textbox", name="Text of Tea")
        expect(box).to_be_focused()
        other = opened(two)
        expect(page.get_by_role("list", name="Others in this note")).to_have_text("you on this machine")
        page.keyboard.press("Control+End")
        page.keyboard.type("From one. 🫖")
        expect(other.locator(".cm-content")).to_contain_text("From one. 🫖")
        expect(other.locator(".cm-caret")).to_have_attribute("data-name", "you on this machine")
        other.get_by_role("textbox").press("Control+Home")
        other.keyboard.type("Above. ")
        expect(page.locator(".cm-content")).to_contain_text("Above. # Tea")
        page.keyboard.type("!")  # where the cursor was, although text came in front of it
        wanted = "Above. # Tea\n\nSteep it.\nFrom one. 🫖!"
        eventually(lambda: text_of(other), wanted)
        eventually(file.read_text, wanted)
        agent("edit", path="Tea", edits=[{"append": "By an agent.\n"}])
        file.write_text(file.read_text() + "From an editor.\n")
        wanted += "\nBy an agent.\nFrom an editor.\n"
        for each in (page, other):
            eventually(lambda each=each: text_of(each), wanted)
        for _ in range(20):  # on a busy machine each letter is a step of its own
            page.keyboard.press("Control+z")  # takes back what this window did, and nobody else's
        wanted = wanted.replace("From one. 🫖!", "")
        eventually(lambda: text_of(other), wanted)
        eventually(file.read_text, wanted)
        expect(page.locator("#edit-state")).to_have_text("Saved")
        page.get_by_role("link", name="Done").click()
        expect(page.locator(".prose")).to_contain_text("Above.")
        expect(page.locator("#main .changes").get_by_role("link", name="edited Tea.md").first).to_be_visible()
        expect(other.locator("#edit-people li")).to_have_count(0)
        one.clean()
        two.clean()


def test_what_is_typed_while_the_server_is_away_is_kept_and_saved_when_it_is_back(
    browser: Browser, command: Command
) -> None:
    with desks(browser, command) as (one, two):
        page, other = opened(one), opened(two)
        page.locator(".cm-content").press("Control+End")
        page.keyboard.type("Saved. ")
        expect(page.locator("#edit-state")).to_have_text("Saved")
        command.kill()  # before it has written the file: what is said to be saved is in the log
        for each in (page, other):
            expect(each.locator("#edit-state")).to_contain_text("Not connected: what you type is kept here")
        expect(page.get_by_role("status")).to_contain_text("Not connected")
        page.keyboard.type("Typed alone. ")
        other.locator(".cm-content").press("Control+Home")
        other.keyboard.type("Here too. ")
        page.close(run_before_unload=True)
        eventually(lambda: (page.title(), len(one.dialogs)), ("Edit Tea · Notewright", 1))  # asked, and it stayed
        command.start()
        wanted = "Here too. # Tea\n\nSteep it.\nSaved. Typed alone. "
        for each in (page, other):
            expect(each.locator("#edit-state")).to_have_text("Saved", timeout=40_000)
            eventually(lambda each=each: text_of(each), wanted)
        eventually((command.place() / "Tea.md").read_text, wanted)
        expect(other.locator(".cm-caret")).to_have_count(1)


def test_a_document_that_was_begun_anew_is_never_mixed_with_what_was_typed(browser: Browser, command: Command) -> None:
    with desks(browser, command) as (one, two):
        page, other = opened(one), opened(two)
        command.kill()
        page.locator(".cm-content").press("Control+End")
        page.keyboard.type("Not yet. ")
        for log in (command.root / "state").rglob("live.db*"):  # the ids are gone with it
            log.unlink()
        command.start()
        expect(page.locator("#edit-state")).to_contain_text("This is another document now", timeout=40_000)
        page.keyboard.type("More. ")
        assert text_of(page) == "# Tea\n\nSteep it.\nNot yet. ", (
            "it can be copied, and nothing is typed into it in vain"
        )
        expect(other.locator("#edit-state")).to_have_text("Saved", timeout=40_000)  # nothing was lost: opened again
        other.locator(".cm-content").press("Control+End")
        other.keyboard.type("Anew.")
        eventually((command.place() / "Tea.md").read_text, "# Tea\n\nSteep it.\nAnew.")


@contextlib.contextmanager
def desks(browser: Browser, command: Command) -> Iterator[tuple[Watched, Watched]]:
    """Two windows, in which nothing is said but that the server could not be reached."""
    with tab(browser, command) as one, tab(browser, command) as two:  # type: ignore[arg-type]
        yield one, two
        for watched in (one, two):
            assert [words for words in watched.said if not REFUSED.search(words)] == []


def test_every_script_of_the_world_is_the_same_in_the_text_and_in_the_file(browser: Browser, site: Site) -> None:
    file = site.place() / "Odd 茶 #1?.md"
    allowed = {"permissions": ["clipboard-read", "clipboard-write"]}
    with tab(browser, site, **allowed) as one, tab(browser, site) as two:
        page, other = opened(one, quote(file.name)), opened(two, quote(file.name))
        assert text_of(page) == f"{ODD}\n"
        page.locator(".cm-content").press("Control+End")
        page.keyboard.insert_text(f"{ODD} 🇩🇪")
        for _ in range(2):  # the flag is one sign for a person, and four units of a string
            page.keyboard.press("Backspace")
        other.locator(".cm-content").press("Control+Home")
        other.keyboard.insert_text("𝒳 ")
        wanted = f"𝒳 {ODD}\n{ODD}"
        for each in (page, other):
            eventually(lambda each=each: text_of(each), wanted)
        page.evaluate("navigator.clipboard.writeText('one\\r\\ntwo\\r\\n')")
        page.keyboard.press("Control+v")
        wanted += "one\ntwo\n"
        eventually(lambda: text_of(other), wanted)
        eventually(lambda: file.read_bytes().decode(), wanted)
        one.clean()
        two.clean()


def test_a_note_that_is_renamed_while_it_is_open_is_followed(browser: Browser, site: Site) -> None:
    with tab(browser, site) as watched, client_of(site.base, "notes") as agent:
        page = opened(watched)
        agent("move", **{"from": "Tea.md", "to": "Drinks/Green.md"})
        page.locator(".cm-content").press("Control+End")
        page.keyboard.type("After.")
        expect(page.locator("#edit-state")).to_have_text("Saved")
        eventually((site.place() / "Drinks/Green.md").read_text, "# Tea\n\nSteep it.\nAfter.")
        page.get_by_role("link", name="Done").click()
        expect(page.locator(".by").first).to_contain_text("Drinks/Green.md")
        assert not (site.place() / "Tea.md").exists()
        watched.clean()


def test_the_name_of_who_is_signed_in_is_shown_and_a_revoked_one_is_told_to_sign_in(
    browser: Browser, site: Site
) -> None:
    tokens = {"ann": site.token("ann"), "bob": site.token("bob")}
    with tab(browser, site) as one, tab(browser, site) as two:
        for watched, name in ((one, "ann"), (two, "bob")):
            page = watched.go("/w/main/edit/Tea.md")
            page.get_by_label("Access token").fill(tokens[name])
            page.keyboard.press("Enter")
            expect(page.locator("#edit-state")).to_have_text("Saved")
        expect(one.page.locator("#edit-people li")).to_have_text("bob")
        one.page.locator(".cm-content").press("Control+End")
        expect(two.page.locator(".cm-caret")).to_have_attribute("data-name", "ann")
        one.clean()
        assert site.registry.revoke("ann", time.time())
        expect(one.page.locator("#edit-state")).to_contain_text("Signed out", timeout=40_000)
        expect(two.page.locator("#edit-people li")).to_have_count(0)
        two.clean()


def test_who_may_write_no_more_is_told_and_may_go_on_when_they_may_again(browser: Browser, site: Site) -> None:
    with tab(browser, site) as watched:
        page = opened(watched)
        change(site.config, site.registry, "main", {"read_only": True})
        state = page.locator("#edit-state")
        expect(state).to_contain_text("You may not write here any more", timeout=40_000)
        page.keyboard.type("No. ")
        change(site.config, site.registry, "main", {"read_only": None})
        expect(state).to_have_text("Saved", timeout=40_000)
        page.locator(".cm-content").press("Control+End")
        page.keyboard.type("Yes.")
        eventually((site.place() / "Tea.md").read_text, "# Tea\n\nSteep it.\nYes.")


def test_what_another_client_says_of_itself_is_text_and_a_place_and_nothing_else(browser: Browser, site: Site) -> None:
    bad = "<img src=x onerror=window.__hit=1>"
    states = [
        {
            "user": {"name": bad, "color": "red;background:url(https://evil.example/x)"},
            "cursor": {"anchor": 1, "head": []},
        },
        {"user": {"name": {"toString": 1}, "color": None}, "cursor": {"anchor": {"tname": "contents"}, "head": None}},
        {"user": "nobody", "cursor": {"anchor": {"tname": "contents", "assoc": 0}, "head": {"tname": "contents"}}},
        {"user": {"name": "n" * 3000}, "cursor": {"anchor": {"item": {"client": 1, "clock": 1e300}}, "head": {}}},
    ]
    with tab(browser, site) as watched:
        page = opened(watched)
        with connect(f"ws{site.base.removeprefix('http')}/w/main/live/Tea.md") as other:
            told = [ClientState(number, 1, json.dumps(state)) for number, state in enumerate(states, 100)]
            other.send(frames.encode_awareness(told))
            people = page.locator("#edit-people li")
            expect(people).to_have_text([bad, "somebody", "somebody", "n" * 40])
            page.keyboard.type("Still here. ")
            expect(page.locator(".cm-content")).to_contain_text("Still here. ")
            watched.clean()
        expect(people).to_have_count(0)


def test_a_note_that_is_hard_to_colour_is_opened_all_the_same(browser: Browser, site: Site) -> None:
    (site.place() / "Hard.md").write_text("[a](" * 250_000)  # a tenth of it takes seconds to parse
    with tab(browser, site) as watched:
        page = opened(watched, "Hard.md")
        page.keyboard.type("Quick. ")
        expect(page.locator("#edit-state")).to_have_text("Saved")
        expect(page.locator(".cm-content")).to_contain_text("Quick. ")
        watched.clean()


def test_the_editor_is_left_by_keyboard_and_labelled(browser: Browser, site: Site) -> None:
    with tab(browser, site) as watched:
        page = opened(watched)
        box = page.get_by_role("textbox", name="Text of Tea")
        expect(box).to_be_focused()
        page.keyboard.press("Control+End")
        page.keyboard.type("- one")
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        page.keyboard.type("two")
        eventually(lambda: text_of(page), "# Tea\n\nSteep it.\n- one\n  - two")
        page.keyboard.press("Escape")
        page.keyboard.press("Tab")
        expect(box).not_to_be_focused()
        page.keyboard.press("Shift+Tab")
        expect(box).to_be_focused()
        page.keyboard.press("Escape")
        page.keyboard.press("Shift+Tab")
        expect(page.get_by_role("link", name="Done")).to_be_focused()
        watched.clean()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_editor_fits_a_phone_and_can_be_read_in_both_schemes(browser: Browser, site: Site, scheme: Any) -> None:
    long = f"---\ntags: [tea]\n---\n# Tea\n\n{'w' * 300} `code` **bold** [a](b)\n\n> said\n"
    (site.place() / "Tea.md").write_text(long)
    small = {"width": 360, "height": 740}
    with tab(browser, site, color_scheme=scheme, viewport=small) as one, tab(browser, site) as two:
        page, other = opened(one), opened(two)
        other.locator(".cm-content").press("Control+A")
        expect(page.locator(".cm-caret")).to_have_count(1)
        expect(page.locator(".cm-marked").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert contrasts(page) == []
        one.clean()


def test_without_scripts_the_editor_says_so_and_leads_to_the_note(browser: Browser, site: Site) -> None:
    with tab(browser, site, java_script_enabled=False) as watched:
        page = watched.go("/w/main/edit/Tea.md")
        expect(page.locator(".said")).to_contain_text("Editing needs scripts")
        expect(page.locator("#edit-state")).to_be_hidden()
        page.get_by_role("link", name="Read the note").click()
        expect(page.locator(".prose")).to_contain_text("Steep it.")
