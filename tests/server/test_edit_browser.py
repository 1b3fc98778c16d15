"""The editor of live notes in a real browser: several windows in one text, and nothing lost on the way."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.server.live_stand_in import LiveSite, served_live
from tests.server.page_desk import config_of
from tests.server.test_page_browser import Watched, browser, contrasts, pytestmark, tab

__all__ = ["browser", "pytestmark"]

ODD = "Kräuter 茶 👩‍🌾 e\u0301 שלום مرحبا"
NOTES: dict[str, str | bytes] = {
    "Tea.md": "# Tea\n\nSteep it.\n",
    "Odd 茶 #1?.md": f"{ODD}\n",
    "Latin.md": "caf\xe9\n".encode("latin-1"),
}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[LiveSite]:
    with served_live(config_of(tmp_path, {"Main": NOTES, "Other": {"Else.md": "else\n"}})) as site:
        yield site


def opened(watched: Watched, note: str = "Tea.md") -> Page:
    """The editor of a note, connected."""
    page = watched.go(f"/w/main/edit/{note}")
    expect(page.locator("#edit-state")).to_have_text("Saved")
    return page


def text_of(page: Page) -> str:
    """What is drawn; all of it, for a note of a few lines."""
    return "\n".join(page.locator("#editor .cm-line").all_text_contents())


def test_two_windows_see_each_others_text_and_cursors(browser: Browser, site: LiveSite) -> None:
    with tab(browser, site) as one, tab(browser, site) as two:
        page = one.go("/w/main/notes/Tea.md")
        page.get_by_role("link", name="Edit", exact=True).click()
        expect(page.locator("#edit-state")).to_have_text("Saved")
        box = page.get_by_role("textbox", name="Text of Tea")
        expect(box).to_be_focused()
        expect(box).to_contain_text("Steep it.")
        other = opened(two)
        expect(page.get_by_role("list", name="Others in this note")).to_have_text("you on this machine")
        page.keyboard.press("Control+End")
        page.keyboard.type("From one. 🫖")
        expect(other.locator(".cm-content")).to_contain_text("From one. 🫖")
        caret = other.locator(".cm-caret")
        expect(caret).to_have_attribute("data-name", "you on this machine")
        other.get_by_role("textbox").press("Control+Home")
        other.keyboard.type("Above. ")
        expect(page.locator(".cm-content")).to_contain_text("Above. # Tea")
        page.keyboard.type("!")
        expect(page.locator("#edit-state")).to_have_text("Saved")
        expect(other.locator(".cm-content")).to_contain_text("🫖!")
        assert (site.place() / "Tea.md").read_text() == "Above. # Tea\n\nSteep it.\nFrom one. 🫖!"
        one.page.keyboard.press("Control+z")
        expect(other.locator(".cm-content")).not_to_contain_text("From one")
        expect(other.locator(".cm-content")).to_contain_text("Above. # Tea")
        one.clean()
        two.clean()
        page.get_by_role("link", name="Done").click()
        expect(page.locator(".prose")).to_contain_text("Above.")
        expect(other.locator("#edit-people li")).to_have_count(0)
        two.clean()
