"""The editor of live notes in a real browser: several windows in one text, and nothing lost on the way."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

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


def eventually(look: Callable[[], object], wanted: object, seconds: float = 20) -> None:
    """What is looked at becomes what is wanted, soon."""
    until = time.monotonic() + seconds
    while (seen := look()) != wanted and time.monotonic() < until:
        time.sleep(0.05)
    assert seen == wanted


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


def test_what_is_typed_while_the_server_is_away_is_kept_and_saved_when_it_is_back(
    browser: Browser, site: LiveSite
) -> None:
    with tab(browser, site) as one, tab(browser, site) as two:
        page, other = opened(one), opened(two)
        site.go_away()
        for each in (page, other):
            expect(each.locator("#edit-state")).to_contain_text("Not connected: what you type is kept here")
        expect(page.get_by_role("status")).to_contain_text("Not connected")
        page.locator(".cm-content").press("Control+End")
        page.keyboard.type("Typed alone. ")
        other.locator(".cm-content").press("Control+Home")
        other.keyboard.type("Here too. ")
        assert "Typed alone" not in (site.place() / "Tea.md").read_text()
        page.close(run_before_unload=True)
        eventually(lambda: (page.title(), len(one.dialogs)), ("Edit Tea · Notewright", 1))  # asked, and it stayed
        site.come_back()
        for each in (page, other):
            expect(each.locator("#edit-state")).to_have_text("Saved", timeout=30_000)
            expect(each.locator(".cm-content")).to_contain_text("Typed alone.")
            expect(each.locator(".cm-content")).to_contain_text("Here too.")
        eventually(lambda: (site.place() / "Tea.md").read_text(), "Here too. # Tea\n\nSteep it.\nTyped alone. ")
        expect(other.locator(".cm-caret")).to_have_count(1)


def test_every_script_of_the_world_is_the_same_in_the_text_and_in_the_file(browser: Browser, site: LiveSite) -> None:
    clipboard = {"permissions": ["clipboard-read", "clipboard-write"]}
    with tab(browser, site, **clipboard) as one, tab(browser, site) as two:
        page, other = opened(one, quote("Odd 茶 #1?.md")), opened(two, quote("Odd 茶 #1?.md"))
        assert text_of(page) == f"{ODD}\n"
        page.locator(".cm-content").press("Control+End")
        page.keyboard.insert_text(f"{ODD} 🇩🇪")
        for _ in range(2):  # the flag is one sign for a person, and four units of a string
            page.keyboard.press("Backspace")
        other.locator(".cm-content").press("Control+Home")
        other.keyboard.insert_text("𝒳 ")
        wanted = f"𝒳 {ODD}\n{ODD}"
        for each in (page, other):
            expect(each.locator(".cm-line").first).to_contain_text("𝒳")
            eventually(lambda each=each: text_of(each), wanted)
        eventually(lambda: (site.place() / "Odd 茶 #1?.md").read_text(), wanted)
        page.evaluate("navigator.clipboard.writeText('one\\r\\ntwo\\r\\n')")
        page.keyboard.press("Control+v")
        eventually(lambda: (site.place() / "Odd 茶 #1?.md").read_bytes().decode(), f"{wanted}one\ntwo\n")
        one.clean()
        two.clean()


def test_the_editor_is_left_by_keyboard_and_labelled(browser: Browser, site: LiveSite) -> None:
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
def test_the_editor_fits_a_phone_and_can_be_read_in_both_schemes(browser: Browser, site: LiveSite, scheme: Any) -> None:
    text = f"# Tea\n\n{'w' * 300} `code` **bold** [a](b)\n\n> said\n"
    (site.place() / "Tea.md").write_text(text)
    small = {"width": 360, "height": 740}
    with tab(browser, site, color_scheme=scheme, viewport=small) as one, tab(browser, site) as two:
        page, other = opened(one), opened(two)
        other.locator(".cm-content").press("Control+A")
        expect(page.locator(".cm-caret")).to_have_count(1)
        expect(page.locator(".cm-marked").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert contrasts(page) == []
        label = page.locator(".cm-caret").evaluate(
            "caret => { const s = getComputedStyle(caret, '::after'); return [s.content, s.color, s.backgroundColor] }"
        )
        assert label[0] == '"you on this machine"' and label[1] != label[2]
        one.clean()


def test_without_scripts_the_editor_says_so_and_leads_to_the_note(browser: Browser, site: LiveSite) -> None:
    with tab(browser, site, java_script_enabled=False) as watched:
        page = watched.go("/w/main/edit/Tea.md")
        expect(page.locator(".said")).to_contain_text("Editing needs scripts")
        expect(page.locator("#edit-state")).to_be_hidden()
        page.get_by_role("link", name="Read the note").click()
        expect(page.locator(".prose")).to_contain_text("Steep it.")


def test_a_note_that_is_renamed_while_it_is_open_is_followed_and_another_one_is_never_mixed_in(
    browser: Browser, site: LiveSite
) -> None:
    with tab(browser, site) as watched:
        page = opened(watched)
        site.rename("Tea.md", "Drinks/Tea 2.md")
        page.locator(".cm-content").press("Control+End")
        page.keyboard.type("After. ")
        expect(page.locator("#edit-state")).to_have_text("Saved", timeout=30_000)
        expect(page.get_by_role("heading", level=1)).to_have_text("Tea 2")
        assert page.url.endswith("/w/main/edit/Drinks/Tea%202.md")
        eventually(lambda: (site.place() / "Drinks/Tea 2.md").read_text(), "# Tea\n\nSteep it.\nAfter. ")
        site.go_away()
        page.keyboard.type("Not yet. ")
        site.replace("Drinks/Tea 2.md", "another\n")
        site.come_back()
        expect(page.locator("#edit-state")).to_contain_text("This is another note now", timeout=30_000)
        assert text_of(page).endswith("Not yet. ")
        page.keyboard.type("More. ")
        assert not text_of(page).endswith("More. "), "nobody types into what cannot be saved"
        assert (site.place() / "Drinks/Tea 2.md").read_text() == "another\n"


def test_who_is_not_asked_for_changes_any_more_is_told(browser: Browser, site: LiveSite) -> None:
    token = site.token("ann")
    with tab(browser, site) as one, tab(browser, site) as two:
        for watched in (one, two):
            page = watched.go("/w/main/edit/Tea.md")
            page.get_by_label("Access token").fill(token)
            page.keyboard.press("Enter")
            expect(page.locator("#edit-state")).to_have_text("Saved")
        expect(one.page.locator("#edit-people li")).to_have_text("ann")
        one.page.locator(".cm-content").press("Control+End")
        expect(two.page.locator(".cm-caret")).to_have_attribute("data-name", "ann")
        one.clean()
        assert site.registry.revoke("ann", time.time())
        site.go_away()
        site.come_back()
        expect(one.page.locator("#edit-state")).to_contain_text("Signed out", timeout=30_000)
