"""The web page in a real browser: changes as they happen, undo by clicks, and notes that try to run something."""

import contextlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from tests.server.lines import NOTEWRIGHT, Lines
from tests.web.page_desk import Site, append, config_of, served

from notewright.engine.changes.history import undo
from notewright.engine.library import digest_of, find_valid_token
from notewright.engine.write import create, put
from notewright.ledger.base import Actor
from notewright.notes.path import NotePath

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox", "--headless=new", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
]  # fmt: skip
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.path.exists(CHROMIUM), reason="service: chromium is missing"),
]
NOTES: dict[str, str | bytes] = {
    "Tea.md": "# Tea\n\nSteep it. See [[Broth]] and [[Nowhere]].\n\n## How long\n\nFour minutes.\n",
    "Recipes/Broth.md": "Salt. [[Tea#How long]] comes first.\n",
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@dataclass
class Watched:
    """A tab, and everything it should not have done."""

    page: Page
    base: str
    said: list[str] = field(default_factory=list)  # errors and warnings in the console
    asked: list[str] = field(default_factory=list)  # addresses
    dialogs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", lambda m: self.said.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("dialog", self._dialog)

    def _dialog(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def go(self, address: str) -> Page:
        self.page.goto(self.base + address)
        return self.page

    def clean(self) -> None:
        """Nothing ran, nothing was refused, nothing left this server."""
        assert self.said == [] and self.dialogs == []
        assert [address for address in self.asked if not address.startswith(self.base + "/")] == []
        assert self.page.evaluate("window.__hit") is None


@contextlib.contextmanager
def tab(browser: Browser, site: Site, **settings: Any) -> Iterator[Watched]:
    context: BrowserContext = browser.new_context(**settings)
    context.set_default_timeout(20_000)
    try:
        yield Watched(context.new_page(), site.base)
    finally:
        context.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with served(config_of(tmp_path, {"Main": NOTES, "Other": {"Else.md": "else\n"}})) as site:
        yield site


def test_the_activity_goes_on_by_itself_when_a_stdio_server_writes(browser: Browser, site: Site) -> None:
    command = [NOTEWRIGHT, "serve", f"Main={site.place()}", "--state", str(Path(site.config.state).parent)]
    with tab(browser, site) as watched:
        page = watched.go("/")
        expect(page.locator("#live-state")).to_have_text("Live")
        expect(page.locator("#nothing")).to_be_visible()
        # the same state directory: <place>/state
        agent = Lines(command).greet()
        agent.text("edit", path="Tea", edits=[{"append": "Pour.\n"}])
        agent.leave()
        row = page.locator("#changes > li")
        expect(row).to_have_count(1)
        expect(row).to_contain_text("tester")
        expect(page.locator("#live-said")).to_contain_text("tester: ")
        expect(page.locator("#nothing")).to_have_count(0)
        name = append(site.agent("cursor"), "Tea.md", "More.\n")
        expect(row).to_have_count(2)
        expect(row.first).to_have_attribute("id", f"c-main-{name}")
        undo(site.agent("cursor"), name)
        expect(page.locator(f"#c-main-{name}")).to_contain_text("taken back")
        expect(row).to_have_count(3)
        watched.clean()


def test_a_tab_nobody_looks_at_lets_go_of_its_stream_and_catches_up(browser: Browser, site: Site) -> None:
    with tab(browser, site) as watched:
        page = watched.go("/")
        expect(page.locator("#live-state")).to_have_text("Live")
        page.evaluate(
            "Object.defineProperty(document, 'hidden', {value: true, configurable: true});"
            "document.dispatchEvent(new Event('visibilitychange'))"
        )
        append(site.agent(), "Tea.md", "Pour.\n")
        page.wait_for_timeout(1200)
        assert page.locator("#changes > li").count() == 0
        page.evaluate(
            "Object.defineProperty(document, 'hidden', {value: false, configurable: true});"
            "document.dispatchEvent(new Event('visibilitychange'))"
        )
        expect(page.locator("#changes > li")).to_have_count(1)
        watched.clean()


def test_a_change_is_taken_back_by_clicks_after_a_look_at_what_will_happen(browser: Browser, site: Site) -> None:
    before = (site.place() / "Tea.md").read_bytes()
    append(site.agent("claude"), "Tea.md", "Spam.\n")
    with tab(browser, site) as watched:
        page = watched.go("/")
        page.get_by_role("link", name="edited Tea.md").click()
        expect(page.locator(".diff .added")).to_have_text("+Spam.\n")
        page.get_by_role("link", name="Undo…").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Take this back?")
        expect(page.locator(".diff .removed")).to_have_text("-Spam.\n")
        assert b"Spam." in (site.place() / "Tea.md").read_bytes()
        page.get_by_role("button", name="Take it back").click()
        expect(page.get_by_role("status")).to_contain_text("Done")
        assert (site.place() / "Tea.md").read_bytes() == before
        watched.clean()


def test_a_note_is_found_by_words_and_read_and_its_links_lead_on(browser: Browser, site: Site) -> None:
    with tab(browser, site) as watched:
        page = watched.go("/")
        page.get_by_role("link", name="Notes", exact=True).click()
        page.get_by_role("link", name="Main", exact=True).click()
        page.get_by_role("searchbox").fill("steep")
        page.keyboard.press("Enter")
        expect(page.locator("mark")).to_have_text("Steep")
        page.get_by_role("link", name="Tea", exact=True).first.click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Tea")
        expect(page.locator(".prose .broken")).to_have_text("Nowhere")
        page.locator(".prose").get_by_role("link", name="Broth").click()
        page.locator(".prose").get_by_role("link", name="Tea › How long").click()
        assert page.url.endswith("/w/main/notes/Tea.md#h-how-long")
        expect(page.locator("#h-how-long")).to_be_in_viewport()
        watched.clean()


def test_signing_in_by_token_leads_back_and_out_again(browser: Browser, site: Site) -> None:
    token = site.token("me")
    with tab(browser, site) as watched:
        page = watched.go("/w/main/notes/Tea.md")
        page.get_by_label("Access token").fill("nw_wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("not known")
        watched.said.clear()  # Chromium reports the 403
        page.get_by_label("Access token").fill(token)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("Tea")
        assert page.evaluate("document.cookie") == "", "scripts cannot read it"
        assert token not in page.content()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
        watched.clean()


def test_a_token_is_made_copied_and_revoked_on_the_page(browser: Browser, site: Site) -> None:
    owner = site.token("owner")
    with tab(browser, site, permissions=["clipboard-read", "clipboard-write"]) as watched:
        page = watched.go("/connect")
        page.get_by_label("Access token").fill(owner)
        page.keyboard.press("Enter")
        page.get_by_label("Name").fill("phone")
        page.get_by_label("May read, not write").check()
        page.get_by_role("button", name="Make the token").click()
        made = page.get_by_label("The token", exact=True).inner_text()
        assert re.fullmatch(r"nw_[\w-]{43}", made)
        page.locator("section.said").get_by_role("button", name="Copy").click()
        assert page.evaluate("navigator.clipboard.readText()") == made
        kept = find_valid_token(site.registry, digest_of(made), time.time())
        assert kept is not None and kept.grant.read_only
        page.get_by_role("button", name="Revoke phone").click()
        expect(page.get_by_role("row", name="phone")).to_contain_text("revoked")
        assert find_valid_token(site.registry, digest_of(made), time.time()) is None
        watched.clean()


def test_everything_can_be_reached_by_keyboard_alone(browser: Browser, site: Site) -> None:
    append(site.agent(), "Tea.md", "Pour.\n")
    with tab(browser, site) as watched:
        page = watched.go("/")
        page.keyboard.press("Tab")
        skip = page.get_by_role("link", name="Skip to the content")
        expect(skip).to_be_focused()
        expect(skip).to_be_in_viewport()
        page.keyboard.press("Enter")
        seen = set[str]()
        for _ in range(30):
            page.keyboard.press("Tab")
            seen.add(page.evaluate("document.activeElement.innerText || document.activeElement.name"))
        assert {"edited Tea.md", "client", "Show"} <= seen
        watched.clean()


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_their_window_and_can_be_read_in_both_schemes(
    browser: Browser, site: Site, width: int, scheme: Any
) -> None:
    long = "Projects/" + "a-very-long-name-without-any-blank-" * 4 + ".md"
    create(site.agent("a-client-with-quite-a-long-name-" * 3), NotePath(long), b"# x\n\n" + b"w" * 500 + b"\n")
    name = append(site.agent(), "Tea.md", "v" * 400 + "\n")
    pages = ["/", f"/w/main/changes/{name}", f"/w/main/changes/{name}/undo", f"/w/main/notes/{long}", "/w/main/",
             "/w/main/?folder=Projects", "/w/main/health", "/connect", "/sign-in", "/w/main/search?q=very"]  # fmt: skip
    with tab(browser, site, color_scheme=scheme, viewport={"width": width, "height": 800}) as watched:
        for address in pages:
            page = watched.go(address)
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{address} is {wide} pixels too wide"
            assert contrasts(page) == [], address
        watched.clean()


def contrasts(page: Page) -> list[str]:
    """Texts that differ too little from what is behind them (WCAG 2.2 AA: 4.5 to 1)."""
    found: list[str] = page.evaluate(
        """() => {
        const parse = (color) => color.match(/[\\d.]+/g).map(Number);
        const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
            .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
            .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
        const behind = (element) => {
            for (let at = element; at; at = at.parentElement) {
                const color = parse(getComputedStyle(at).backgroundColor);
                if (color.length < 4 || color[3] > 0.99) return color;
            }
            return [255, 255, 255];
        };
        const bad = [];
        const within = (root) => [...root.querySelectorAll("*")]
            .flatMap((each) => [each, ...(each.shadowRoot ? within(each.shadowRoot) : [])]);
        for (const element of within(document.body)) {
            const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
            if (!own || !element.checkVisibility() || element.closest(".unseen, .skip")) continue;
            const [a, b] = [light(parse(getComputedStyle(element).color)), light(behind(element))];
            const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            if (ratio < 4.5) bad.push(`${element.tagName} ${element.className} ${ratio.toFixed(2)}`);
        }
        return bad;
    }"""
    )
    return found


def test_the_scheme_follows_the_readers_wish(browser: Browser, site: Site) -> None:
    shades = {}
    for scheme in ("light", "dark"):
        with tab(browser, site, color_scheme=scheme) as watched:
            shades[scheme] = watched.go("/").evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert shades["light"] != shades["dark"]


def test_without_scripts_everything_works_but_by_itself(browser: Browser, site: Site) -> None:
    name = append(site.agent("claude"), "Tea.md", "Spam.\n")
    with tab(browser, site, java_script_enabled=False) as watched:
        page = watched.go("/")
        expect(page.locator("#changes > li")).to_have_count(1)
        expect(page.locator("#live-state")).to_be_hidden()
        append(site.agent("claude"), "Tea.md", "More.\n")
        page.reload()
        expect(page.locator("#changes > li")).to_have_count(2)
        page.get_by_label("Client", exact=True).fill("nobody")
        page.get_by_role("button", name="Show").click()
        expect(page.locator(".empty")).to_have_text("No such changes.")
        watched.go(f"/w/main/changes/{name}/undo").get_by_role("button", name="Take it back").click()
        expect(page.get_by_role("status")).to_contain_text("Done")
        assert "Spam." not in (site.place() / "Tea.md").read_text()


# ---- hostile notes ------------------------------------------------------------------------------------

HIT = "window.__hit=1;alert(1)"
NAME = '"><img src=x onerror=alert(1)>'
HOSTILE: dict[str, str | bytes] = {
    f"{NAME}.md": f"# <script>{HIT}</script>\n\n[[Hostile]] [[{NAME}]]\n",
    "Hostile.md": (
        f"---\ntitle: '<script>{HIT}</script>'\n'<img src=x onerror={HIT}>': '<img src=x onerror={HIT}>'\n"
        f"aliases: ['<svg onload={HIT}>']\nlink: '[[{NAME}]]'\n---\n"
        f'<script>{HIT}</script>\n\n<img src=x onerror="{HIT}">\n\n<svg onload="{HIT}"></svg>\n\n'
        f"[click](javascript:{HIT}) [data](data:text/html,<script>{HIT}</script>) [vb](vbscript:x)\n\n"
        f"![p](javascript:{HIT}) ![far](https://evil.example/pixel.png) ![[evil.svg]] ![s](evil.svg) ![[fake.png]]\n\n"
        f'<a href="javascript:{HIT}">x</a> <iframe src="javascript:{HIT}"></iframe> <object data=evil.svg></object>\n\n'
        f"<style>@import 'https://evil.example/x.css';</style> <link rel=stylesheet href=https://evil.example/x.css>\n\n"
        f"<meta http-equiv=refresh content='0;url=https://evil.example'> <base href=https://evil.example>\n\n"
        f'[[x|<img src=x onerror={HIT}>]] [a](Hostile.md "t\' onmouseover={HIT} x")\n\n'
        f"```html\n<script>{HIT}</script>\n```\n\n| <script>{HIT}</script> |\n|---|\n| <b onclick={HIT}>b</b> |\n"
    ),
    "evil.svg": f"<svg xmlns='http://www.w3.org/2000/svg' onload='{HIT}'><script>{HIT}</script></svg>",
    "fake.png": f"<html><script>{HIT}</script></html>",
    "page.html": f"<script>{HIT}</script>",
}


@pytest.fixture
def trap(tmp_path: Path) -> Iterator[Site]:
    with served(config_of(tmp_path, {"Main": HOSTILE, "Other": {"Else.md": "else\n"}})) as site:
        yield site


def test_hostile_notes_names_changes_and_searches_run_nothing(browser: Browser, trap: Site) -> None:
    attack = f"<script>{HIT}</script><img src=x onerror={HIT}>"
    agent = trap.agent().by(Actor(attack, attack, attack, attack))
    done = put(agent, NotePath(f"{NAME}.md"), f"{attack}\n".encode(), summary=attack)
    client = re.sub(r".", lambda found: f"%{ord(found[0]):02x}", attack)
    name = re.sub(r"[^/]", lambda found: f"%{ord(found[0]):02x}", f"{NAME}.md")
    pages = [
        "/", f"/?client={client}&note={name}&since=2020-01-01", f"/w/main/changes/{done.change_id}",
        f"/w/main/changes/{done.change_id}/undo", f"/w/main/undo?client={client}&since=0", "/w/main/",
        "/w/main/notes/Hostile.md", f"/w/main/notes/{name}", f"/w/main/search?q={client}", "/w/main/search?q=script",
        "/w/main/search?q=Hostile", "/w/main/health", f"/connect?surface={client}&workspace={client}",
        f"/sign-in?next=javascript:{client}",
    ]  # fmt: skip
    missing = [f"/w/{client}/", f"/w/main/notes/{client}", f"/w/main/changes/{client}", f"/?since={client}"]
    with tab(browser, trap) as watched:
        for address in pages:
            page = watched.go(address)
            page.wait_for_load_state()
            for shown in page.locator("main a").all()[:40]:
                shown.hover(timeout=2000)
            watched.clean()
        for address in missing:
            watched.go(address)
            assert all("404" in said or "400" in said for said in watched.said), watched.said
            watched.said.clear()
            watched.clean()


def test_what_would_run_is_noticed(browser: Browser, trap: Site) -> None:
    """The tests above would see it: even markup that got onto a page is refused and reported by the browser."""
    for attack in (f"<img src=x onerror={HIT}>", "<img src=https://evil.example/x.png>", "<p style=color:red>x</p>"):
        with tab(browser, trap) as watched:
            page = watched.go("/sign-in")
            page.evaluate("html => { document.querySelector('main').innerHTML = html }", attack)
            page.wait_for_timeout(200)
            assert any("Content Security Policy" in said for said in watched.said)
            assert page.evaluate("window.__hit") is None and watched.dialogs == []
            with pytest.raises(AssertionError):
                watched.clean()


def test_hostile_changes_run_nothing_as_they_arrive(browser: Browser, trap: Site) -> None:
    attack = f"<script>{HIT}</script><img src=x onerror={HIT}>"
    with tab(browser, trap) as watched:
        page = watched.go("/")
        expect(page.locator("#live-state")).to_have_text("Live")
        agent = trap.agent().by(Actor(attack, attack, attack, attack))
        put(agent, NotePath(f"{NAME}.md"), b"new\n", summary=attack)
        expect(page.locator("#changes > li")).to_have_count(1)
        expect(page.locator("#changes .did")).to_contain_text("<script>")
        watched.clean()


@pytest.mark.parametrize("file", ["evil.svg", "fake.png", "page.html", "Hostile.md"])
def test_a_file_is_never_a_page_of_ours(browser: Browser, trap: Site, file: str) -> None:
    with tab(browser, trap, accept_downloads=True) as watched:
        watched.go("/sign-in")
        with watched.page.expect_download() as download:
            watched.page.evaluate("address => { location.href = address }", f"/w/main/files/{file}")
        assert download.value.suggested_filename == file
        watched.clean()
