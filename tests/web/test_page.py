"""The web page without scripts: every page, over real HTTP."""

import json
import os
import re
import threading
import time
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from tests.waiting import until
from tests.web.page_desk import Site, append, config_of, csrf, served, words

from notewright.engine.check import Finding
from notewright.engine.library import digest_of, find_valid_token
from notewright.engine.move import move
from notewright.engine.workspace import Workspace
from notewright.engine.write import edit_note, put
from notewright.errors import TooLarge
from notewright.ledger.base import Actor
from notewright.notes.edits.edit import Replace
from notewright.notes.path import NotePath
from notewright.web.addresses import safe_local_path
from notewright.web.frame import POLICY, format_size
from notewright.web.pages import activity, health, note
from notewright.web.pages.connect import snippets
from notewright.web.pages.health import Checks, group_findings

pytestmark = pytest.mark.slow

PNG = b"\x89PNG\r\n\x1a\n and more"
NOTES = {
    "Tea.md": "---\nsee: '[[Broth]]'\nodd: {a: 1}\n---\n# Tea\n\nSteep it. See [[Broth]] and [[Nowhere]].\n",
    "Recipes/Broth.md": "Salt. [[Tea]] comes first.\n",
    "Recipes/Latin.md": b"caf\xe9\n",
    "cup.png": PNG,
    "drawing.svg": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    "disguised.png": b"<html><script>alert(1)</script>",
}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with served(config_of(tmp_path, {"Main": NOTES, "Other": {"Else.md": "else\n"}})) as site:
        yield site


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One that nobody changes."""
    with served(config_of(tmp_path_factory.mktemp("still"), {"Main": NOTES, "Other": {}})) as site:
        yield site


@pytest.fixture
def page(still: Site) -> Iterator[httpx2.Client]:
    with still.client() as client:
        yield client


# ---- every page ---------------------------------------------------------------------------------------

PAGES = [
    "/", "/w/", "/w/main/", "/w/main/?folder=Recipes", "/w/main/search", "/w/main/search?q=tea", "/w/main/health",
    "/w/main/notes/Tea.md", "/connect", "/sign-in", "/w/nothing/", "/w/main/notes/Missing.md",
]  # fmt: skip


@pytest.mark.parametrize("address", PAGES)
def test_a_page_may_load_nothing_from_elsewhere_and_is_kept_nowhere(page: httpx2.Client, address: str) -> None:
    answer = page.get(address)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY and "default-src 'none'" in POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert (
        answer.headers["cross-origin-opener-policy"] == answer.headers["cross-origin-resource-policy"] == "same-origin"
    )
    assert answer.headers["cache-control"] == "no-store"
    assert "camera=()" in answer.headers["permissions-policy"]


@pytest.mark.parametrize("address", PAGES)
def test_a_page_can_be_used_by_ear_and_by_keyboard(page: httpx2.Client, address: str) -> None:
    html = page.get(address).text
    assert '<html lang="en">' in html
    assert len(re.findall(r"<h1[ >]", html)) == 1
    assert '<a class="skip" href="#main">' in html and '<main id="main"' in html
    assert re.search(r"<title>[^<]*\S[^<]* · Notewright</title>", html)
    for control in re.findall(r"<(?:input|select|textarea)\b[^>]*>", html):
        if 'type="hidden"' in control or " hidden" in control or 'type="checkbox"' in control:
            continue
        name = re.search(r'id="([\w-]+)"', control)
        assert name and f'<label for="{name[1]}"' in html.replace('class="unseen" ', ""), control


@pytest.mark.parametrize("address", PAGES)
def test_no_page_holds_scripts_or_styles_of_its_own(page: httpx2.Client, address: str) -> None:
    html = page.get(address).text
    assert re.findall(r"<script(?! src=\"/static/)", html) == []
    assert re.findall(r"<style|\sstyle=|\son\w+=|javascript:", html) == []
    assert re.findall(r"(?:src|href)=\"(?!/|#)", html) == []


def test_what_pages_load_is_there_and_kept(page: httpx2.Client) -> None:
    for address in set(re.findall(r'(?:src|href)="(/static/[^"]+)"', page.get("/").text)):
        loaded = page.get(address)
        assert loaded.status_code == 200 and "immutable" in loaded.headers["cache-control"]
        assert page.get(address, headers={"if-none-match": loaded.headers["etag"]}).status_code == 304
    assert page.get("/static/nothing.css").status_code == 404
    assert page.get("/static/..%2Fcookies.py").status_code == 404


# ---- activity -----------------------------------------------------------------------------------------


def test_what_another_process_changed_is_on_the_page(site: Site) -> None:
    append(site.agent("claude"), "Tea.md", "More tea.\n")
    seen = words(site.client().get("/"))
    for word in ("edited Tea.md", "claude for ann", "notes edit", "Main"):
        assert word in seen


def test_the_newest_change_of_all_workspaces_is_first(site: Site) -> None:
    main, other = site.agent(), site.agent(workspace=1)
    names = [append(main, "Tea.md", "a\n"), append(other, "Else.md", "b\n"), append(main, "Tea.md", "c\n")]
    told = re.findall(r'id="c-\w+-(\w+)"', site.client().get("/").text)
    assert told == names[::-1]


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("workspace=other", ["Else.md"]),
        ("workspace=nothing", []),
        ("client=cursor", ["Recipes/Broth.md"]),
        ("client=nobody", []),
        ("note=Tea", ["Tea.md"]),
        ("note=Recipes", ["Recipes/Broth.md"]),
        ("note=Gone/Away.md", []),
        ("since=2020-01-01", ["Else.md", "Recipes/Broth.md", "Tea.md"]),
        ("since=2999-01-01", []),
    ],
)
def test_changes_are_filtered_by_workspace_note_client_and_time(site: Site, question: str, told: list[str]) -> None:
    append(site.agent("claude"), "Tea.md", "a\n")
    append(site.agent("cursor"), "Recipes/Broth.md", "b\n")
    append(site.agent("zed", workspace=1), "Else.md", "c\n")
    html = site.client().get(f"/?{question}").text
    assert re.findall(r'class="did"><a [^>]*>edited ([^<]*)<', html) == told


@pytest.mark.parametrize("question", ["since=yesterday", "since=9e99", "note=../../etc", "note=a%00b"])
def test_a_filter_that_makes_no_sense_is_refused_with_words(page: httpx2.Client, question: str) -> None:
    answer = page.get(f"/?{question}")
    assert answer.status_code == 400 and "Not understood" in answer.text


@pytest.mark.parametrize("place", ["before=x", "before=nan,1", "before=1e400,0", "before=1,-5", "page=1"])
def test_a_place_that_makes_no_sense_breaks_nothing(page: httpx2.Client, place: str) -> None:
    assert page.get(f"/?{place}").status_code == 200


def test_older_changes_are_a_link_away_and_none_is_skipped(site: Site) -> None:
    agent = site.agent()
    names = [append(agent, "Tea.md", f"{number}\n") for number in range(120)]
    client, address, seen = site.client(), "/", list[str]()
    pages = 0
    while address:
        html = client.get(address).text
        seen += re.findall(r'id="c-main-(\w+)"', html)
        older = re.search(r'rel="next" href="([^"]+)"', html)
        address = older[1].replace("&amp;", "&") if older else ""
        pages += 1
    assert seen == names[::-1]
    assert pages == 3


def test_changes_of_the_very_same_moment_are_not_skipped_between_pages(site: Site, monkeypatch: Any) -> None:
    monkeypatch.setattr(activity, "PAGE_ROWS", 2)
    agent = site.agent()
    now = time.time()
    frozen = replace(agent, clock=lambda: now)
    names = [append(frozen, "Tea.md", f"{number}\n") for number in range(5)]
    client, address, seen = site.client(), "/", list[str]()
    while address:
        html = client.get(address).text
        seen += re.findall(r'id="c-main-(\w+)"', html)
        older = re.search(r'rel="next" href="([^"]+)"', html)
        address = older[1].replace("&amp;", "&") if older else ""
    assert sorted(seen) == sorted(names)


# ---- changes and undo ---------------------------------------------------------------------------------


def test_a_change_is_shown_file_by_file(site: Site) -> None:
    agent = site.agent()
    append(agent, "Tea.md", "Pour.\n")
    moved = move(agent, NotePath("Tea.md"), NotePath("Drinks/Tea.md"))
    assert moved.change_id
    seen = words(site.client().get(f"/w/main/changes/{moved.change_id}"))
    assert "moved Tea.md → to Drinks/Tea.md" in seen
    name = append(agent, "Recipes/Broth.md", "Stir.\n")
    html = site.client().get(f"/w/main/changes/{name}").text
    assert '<span class="added">+Stir.\n</span>' in html


def test_an_undo_is_shown_before_it_happens_and_happens_when_confirmed(site: Site) -> None:
    before = (site.place() / "Tea.md").read_bytes()
    name = append(site.agent(), "Tea.md", "Pour.\n")
    client = site.client()
    preview = client.get(f"/w/main/changes/{name}/undo")
    assert '<span class="removed">-Pour.\n</span>' in preview.text
    assert b"Pour." in (site.place() / "Tea.md").read_bytes(), "looking changes nothing"
    answer = client.post(f"/w/main/changes/{name}/undo", data={"csrf": csrf(preview)}, follow_redirects=False)
    assert answer.status_code == 303
    assert (site.place() / "Tea.md").read_bytes() == before
    told = client.get(answer.headers["location"])
    assert "Done: the notes are as they were before." in words(told)
    assert "browser" in words(told) and "page undo" in words(told)
    assert "taken back" in words(client.get("/"))


def test_an_undo_around_later_words_names_the_notes_that_keep_them(site: Site) -> None:
    place = site.place() / "Tea.md"
    place.write_text("one\n" + "more\n" * 9)
    name = edit_note(site.agent(), NotePath("Tea.md"), [Replace("one", "1")]).change_id
    append(site.agent("phone"), "Tea.md", "later\n")
    client = site.client()
    preview = client.get(f"/w/main/changes/{name}/undo")
    assert "Later changes stay in Tea.md." in words(preview)
    told = client.post(f"/w/main/changes/{name}/undo", data={"csrf": csrf(preview)})
    assert "Done: the notes are as they were before, but for later changes, which were kept." in words(told)


def test_what_stands_in_the_way_of_an_undo_is_named(site: Site) -> None:
    agent = site.agent()
    first = edit_note(agent, NotePath("Tea.md"), [Replace("Steep", "Boil")]).change_id
    edit_note(agent.by(Actor("bob", "phone")), NotePath("Tea.md"), [Replace("Boil", "Fry")])
    client = site.client()
    answer = client.get(f"/w/main/changes/{first}/undo")
    assert answer.status_code == 409
    assert "Tea.md was changed since at the same place by phone" in words(answer)
    assert "<button" not in answer.text.partition("<main")[2]
    posted = client.post(f"/w/main/changes/{first}/undo", data={"csrf": csrf(client.get("/connect"))})
    assert posted.status_code == 409
    assert "Fry it." in (site.place() / "Tea.md").read_text()


def test_everything_of_one_client_since_a_time_can_be_taken_back(site: Site) -> None:
    before = {path: (site.place() / path).read_bytes() for path in ("Tea.md", "Recipes/Broth.md")}
    bad, good = site.agent("rogue"), site.agent("claude")
    first = append(bad, "Tea.md", "spam\n")
    kept = append(good, "Recipes/Broth.md", "kept\n")
    append(bad, "Recipes/Broth.md", "spam\n")
    client = site.client()
    link = re.search(r'href="(/w/main/undo[^"]+)"', client.get(f"/w/main/changes/{first}").text)
    assert link
    preview = client.get(link[1].replace("&amp;", "&"))
    assert "2 changes" in words(preview) and kept not in preview.text
    fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', preview.text))
    done = client.post("/w/main/undo", data=fields)
    assert done.status_code == 200 and "Done:" in words(done)
    assert (site.place() / "Tea.md").read_bytes() == before["Tea.md"]
    assert (site.place() / "Recipes/Broth.md").read_bytes() == before["Recipes/Broth.md"] + b"kept\n"


def test_undoing_since_a_time_says_whose_changes_are_meant(page: httpx2.Client) -> None:
    assert page.get("/w/main/undo").status_code == 400
    assert page.get("/w/main/undo?client=x").status_code == 400
    assert page.get("/w/main/undo?client=x&since=2020-01-01").status_code == 404, "x did nothing"


def test_a_very_long_change_is_cut_with_words(site: Site) -> None:
    agent = site.agent()
    done = put(agent, NotePath("Long.md"), ("x\n" * 3000 + "y" * 50_000 + "\n").encode())
    assert done.change_id
    html = site.client().get(f"/w/main/changes/{done.change_id}").text
    assert "More lines of this file are not shown." in html
    assert len(html) < 200_000
    wide = put(agent, NotePath("Wide.md"), b"z" * 50_000)
    assert "48,001 more letters" in site.client().get(f"/w/main/changes/{wide.change_id}").text


@pytest.mark.parametrize("name", ["nothing", "..%2F..", "a b", "%00"])
def test_a_change_that_is_not_there_is_not_found(page: httpx2.Client, name: str) -> None:
    assert page.get(f"/w/main/changes/{name}").status_code == 404
    assert page.get(f"/w/main/changes/{name}/undo").status_code == 404


# ---- notes --------------------------------------------------------------------------------------------


def test_a_folder_lists_folders_first_then_files(page: httpx2.Client) -> None:
    html = page.get("/w/main/").text
    told = re.findall(r'<li class="(folder|note|attachment)"><a href="[^"]*">([^<]*)<', html)
    assert told[0] == ("folder", "Recipes/")
    assert ("note", "Tea") in told and ("attachment", "cup.png") in told
    assert "Broth" in page.get("/w/main/?folder=Recipes").text
    assert page.get("/w/main/?folder=Nowhere").status_code == 404
    assert page.get("/w/main/?folder=../..").status_code == 400


def test_a_large_folder_comes_in_pages(tmp_path: Path) -> None:
    files = {f"n{number:03}.md": "x\n" for number in range(250)} | {f"f{number}/a.md": "x\n" for number in range(190)}
    with served(config_of(tmp_path, {"Main": files})) as site:
        client = site.client()
        pages = [client.get(f"/w/main/?page={number}").text for number in (1, 2, 3, 4)]
    told = [re.findall(r'<li class="(folder|note)"', page) for page in pages]
    assert [len(page) for page in told] == [200, 200, 40, 0]
    assert told[0].count("folder") == 190


def test_one_workspace_is_shown_at_once(tmp_path: Path) -> None:
    with served(config_of(tmp_path, {"Main": NOTES})) as site:
        assert site.client().get("/w/").url.path == "/w/main/"


def test_search_ranks_and_marks(page: httpx2.Client) -> None:
    html = page.get("/w/main/search?q=steep").text
    assert "<mark>Steep</mark> it." in html
    assert 'href="/w/main/notes/Tea.md"' in html
    assert "Nothing was found." in page.get("/w/main/search?q=zzzzqqq").text
    assert page.get("/w/main/search?q=" + "x" * 5000).status_code == 200
    assert page.get("/w/main/search?q=tea&page=99999999999").status_code == 200


def test_a_note_is_shown_with_its_properties_links_and_history(site: Site) -> None:
    append(site.agent("claude"), "Tea.md", "More.\n")
    client = site.client()
    page = client.get("/w/main/notes/Tea.md")
    seen = words(page)
    assert "Steep it. See Broth and Nowhere ." in seen or "Steep it. See Broth and Nowhere." in seen
    assert '<th scope="row">see</th><td><a href="/w/main/notes/Recipes/Broth.md">Broth</a>' in page.text
    assert '<th scope="row">odd</th><td>{&#34;a&#34;: 1}' in page.text
    assert "Linked from 1 Broth Salt. [[Tea]] comes first." in seen
    assert 'class="broken"' in page.text
    assert "edited Tea.md" in seen and "claude for ann" in seen


def test_a_note_is_found_by_name_and_a_folder_by_its_own(page: httpx2.Client) -> None:
    assert page.get("/w/main/notes/broth").url.path == "/w/main/notes/Recipes/Broth.md"
    assert str(page.get("/w/main/notes/Recipes").url).endswith("/w/main/?folder=Recipes")
    assert page.get("/w/main/notes/cup.png").url.path == "/w/main/files/cup.png"


def test_a_note_that_is_not_utf8_is_shown_and_said_to_be_that(page: httpx2.Client) -> None:
    seen = words(page.get("/w/main/notes/Recipes/Latin.md"))
    assert "This note is not UTF-8" in seen and "caf\ufffd" in seen


def test_a_large_note_is_shown_as_plain_text_and_cut_with_words(tmp_path: Path) -> None:
    large = "# Not a heading\n" + "word " * 300_000
    with served(config_of(tmp_path, {"Main": {"Large.md": large}})) as site:
        page = site.client().get("/w/main/notes/Large.md")
    assert "shown as plain text, and only its beginning" in words(page)
    assert "# Not a heading" in page.text
    assert len(page.text) < 1_100_000


@pytest.mark.parametrize(
    ("path", "kind", "way"),
    [
        ("cup.png", "image/png", "inline"),
        ("drawing.svg", "application/octet-stream", "attachment"),
        ("disguised.png", "application/octet-stream", "attachment"),
        ("Tea.md", "application/octet-stream", "attachment"),
    ],
)
def test_a_file_is_a_picture_by_its_bytes_or_can_only_be_taken_away(
    page: httpx2.Client, path: str, kind: str, way: str
) -> None:
    answer = page.get(f"/w/main/files/{path}")
    assert answer.headers["content-type"] == kind
    assert answer.headers["content-disposition"] == f"{way}; filename*=UTF-8''{path}"
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert answer.headers["x-content-type-options"] == "nosniff"
    again = page.get(f"/w/main/files/{path}", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("path", ["missing.png", "..%2f..%2fetc%2fpasswd", "Recipes", ".obsidian/app.json", "a%00b"])
def test_a_file_that_is_not_there_is_not_found(page: httpx2.Client, path: str) -> None:
    assert page.get(f"/w/main/files/{path}").status_code == 404


def test_a_file_that_is_too_large_is_refused_with_its_size(
    site: Site, page: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(note, "MAX_FILE_BYTES", 3)
    answer = page.get("/w/main/files/cup.png")
    assert answer.status_code == 413 and "too many to send" in words(answer)
    request: Any = SimpleNamespace(params={"path": "cup.png"}, ws=site.agent())
    with pytest.raises(TooLarge) as refused:
        note.file(request)
    size = (site.place() / "cup.png").stat().st_size
    assert refused.value.details == {"size": size, "limit": 3, "path": "cup.png"}


def test_odd_names_of_notes_can_be_read(tmp_path: Path) -> None:
    names = ["a b+c%20d.md", "q?x=1&y#z.md", 'say "hi" <b>.md', "日本語 ünï.md", "100%.md", "semi;colon,.md"]
    with served(config_of(tmp_path, {"Main": {name: f"content {at}\n" for at, name in enumerate(names)}})) as site:
        client = site.client()
        addresses = re.findall(r'<li class="note"><a href="([^"]*)"', client.get("/w/main/").text)
        seen = [words(client.get(address.replace("&amp;", "&"))) for address in addresses]
    assert len(addresses) == len(names)
    for at in range(len(names)):
        assert any(f"content {at}" in one for one in seen)


# ---- health -------------------------------------------------------------------------------------------


def test_health_groups_what_check_finds_and_links_to_the_notes(page: httpx2.Client) -> None:
    answer = page.get("/w/main/health")
    assert "The index is up to date." in words(answer)
    assert "Links that lead nowhere 1" in words(answer)
    assert '<a href="/w/main/notes/Tea.md">Tea.md</a>' in answer.text
    assert "[[Nowhere]] leads nowhere" in answer.text


def test_of_very_many_findings_the_first_are_shown_and_all_are_counted() -> None:
    groups = group_findings(Finding("broken_link", f"{number}.md", 1, "x") for number in range(1200))
    ((words, count, first),) = groups
    assert (words, count, len(first)) == ("Links that lead nowhere", 1200, 500)


def test_a_check_that_takes_long_is_not_waited_for_and_not_begun_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "WAIT_SECONDS", 0.05)
    go, begun = threading.Event(), list[str]()

    def slow(ws: Workspace) -> list[Finding]:
        begun.append("x")
        go.wait(10)
        return [Finding("name", "a", None, "b")]

    checks = Checks(slow)
    nobody: Any = None
    assert checks.latest_result(nobody, "k")[0] is None
    result, since = checks.latest_result(nobody, "k")
    assert result is None and since is not None and begun == ["x"]
    go.set()
    until(lambda: checks.latest_result(nobody, "k")[0] is not None, 10)
    result, since = checks.latest_result(nobody, "k")
    assert result is not None and len(result.groups) == 1 and since is None
    assert begun == ["x"], "what was found is kept for a while"
    assert checks.latest_result(nobody, "other")[0] is not None and begun == ["x", "x"]


def test_a_check_that_fails_says_so() -> None:
    def broken(ws: Workspace) -> list[Finding]:
        raise ValueError("closed")

    result, _ = Checks(broken).latest_result(None, "k")  # type: ignore[arg-type]
    assert result is not None and result.problem is not None


# ---- connect ------------------------------------------------------------------------------------------


def test_every_client_is_told_this_servers_own_address(still: Site, page: httpx2.Client) -> None:
    seen = words(page.get("/connect"))
    for client in (
        "Claude Desktop", "Claude Code", "Cursor", "VS Code", "Zed", "Windsurf", "Gemini CLI", "Codex CLI",
        "Any other MCP client",
    ):  # fmt: skip
        assert client in seen
    assert seen.count(f"{still.base}/mcp/notes") == 10
    assert f"{still.base}/w/main/mcp/cairn" in words(page.get("/connect?workspace=main&surface=cairn"))
    assert f"{still.base}/mcp/notes" in words(page.get("/connect?workspace=nothing&surface=nothing"))


def test_snippets_can_be_pasted() -> None:
    for token in (False, True):
        told = {client: text for client, _, text in snippets("https://notes.example/mcp/notes", token=token)}
        for client in ("Claude Desktop", "Cursor", "VS Code", "Zed", "Windsurf", "Gemini CLI"):
            (servers,) = json.loads(told[client]).values()
            assert "https://notes.example/mcp/notes" in json.dumps(servers["notewright"])
            assert ("YOUR_TOKEN" in told[client]) is token
        assert tomllib.loads(told["Codex CLI"])["mcp_servers"]["notewright"]["url"] == "https://notes.example/mcp/notes"
        assert told["Claude Code"].startswith(
            "claude mcp add --transport http notewright https://notes.example/mcp/notes"
        )


def test_a_token_is_made_shown_once_listed_and_revoked(site: Site) -> None:
    owner = site.client(site.token("owner"))
    page = owner.get("/connect")
    form = {"csrf": csrf(page), "name": "phone", "days": "30", "read_only": "yes", "workspaces": "main"}
    made = owner.post("/tokens", data=form | {"hide": "Private/**\n\nOld/**\n"})
    assert made.headers["cache-control"] == "no-store"
    secret = re.search(r"nw_[\w-]{20,}", made.text)
    assert secret
    kept = find_valid_token(site.registry, digest_of(secret[0]), time.time())
    assert kept is not None and kept.grant.workspaces == ("main",) and kept.grant.read_only
    assert kept.grant.hide == ("Private/**", "Old/**") and kept.expires
    listed = owner.get("/connect")
    assert secret[0] not in listed.text
    assert "phone read only, in main, without Private/**, Old/**" in words(listed)
    phone = site.client(secret[0])
    assert phone.get("/").status_code == 200
    assert owner.post("/tokens/revoke", data={"csrf": csrf(listed), "name": "phone"}).status_code == 200
    assert phone.get("/").url.path == "/sign-in", "revoked at once"
    assert "revoked" in words(owner.get("/connect"))


@pytest.mark.parametrize(
    "form",
    [{"name": ""}, {"name": "<b>"}, {"name": "ok", "workspaces": "nothing"}, {"name": "ok", "surfaces": "x"},
     {"name": "owner"}, {"name": "ok", "hide": "\n".join(map(str, range(101)))}],
)  # fmt: skip
def test_a_token_that_makes_no_sense_is_not_made(site: Site, form: dict[str, str]) -> None:
    owner = site.client(site.token("owner"))
    answer = owner.post("/tokens", data={"csrf": csrf(owner.get("/connect")), **form})
    assert answer.status_code in (400, 409)
    assert 'role="alert"' in answer.text
    assert [token.name for token in site.registry.tokens()] == ["owner"]


def test_the_first_token_shuts_the_door_behind_it(site: Site) -> None:
    everybody = site.client()
    page = everybody.get("/connect")
    assert "everybody on this machine is let in" in words(page)
    made = everybody.post("/tokens", data={"csrf": csrf(page), "name": "me"})
    secret = re.search(r"nw_[\w-]{20,}", made.text)
    assert secret and "From now on everybody needs a token" in words(made)
    assert everybody.get("/").url.path == "/sign-in"
    assert site.client(secret[0]).get("/connect").status_code == 200


# ---- signing in ---------------------------------------------------------------------------------------


def test_signing_in_gives_a_cookie_that_scripts_and_other_sites_cannot_use(site: Site) -> None:
    token = site.token()
    client = site.client()
    page = client.get("/w/main/notes/Tea.md")
    assert page.url.path == "/sign-in"
    form = {"csrf": csrf(page), "token": f" {token} ", "next": "/w/main/notes/Tea.md"}
    answer = client.post("/sign-in", data=form, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/w/main/notes/Tea.md")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie and "Path=/" in cookie and "Max-Age=43200" in cookie
    assert token not in cookie and "Secure" not in cookie
    assert "Steep it." in words(client.get("/w/main/notes/Tea.md"))


@pytest.mark.parametrize(
    "token", ["", "nw_wrong", "x" * 400, "nw_\udcff".encode("utf-8", "surrogateescape").decode("latin1")]
)
def test_a_wrong_token_is_refused(site: Site, token: str) -> None:
    site.token()
    client = site.client()
    answer = client.post("/sign-in", data={"csrf": csrf(client.get("/sign-in")), "token": token})
    assert answer.status_code == 403 and "not known" in words(answer)
    assert "set-cookie" not in answer.headers
    assert token == "" or token not in answer.text


def test_signing_in_leads_back_to_where_one_was() -> None:
    for onward in ("/", "/w/main/notes/A%20b.md", "/?client=x&since=2020-01-01", "/connect#tokens"):
        assert safe_local_path(onward) == onward


def test_signing_in_and_tokens_are_in_the_audit_log(site: Site) -> None:
    owner = site.client(site.token("owner"))
    owner.post("/tokens", data={"csrf": csrf(owner.get("/connect")), "name": "phone"})
    stranger = site.client()
    stranger.post("/sign-in", data={"csrf": csrf(stranger.get("/sign-in")), "token": "nw_secretguess"})
    log = (Path(site.config.state) / "audit.jsonl").read_text()
    assert '"sign_in"' in log and '"sign_in_failed"' in log and '"token_added"' in log
    assert "secretguess" not in log


@pytest.mark.parametrize(
    ("count", "told"), [(0, "0 bytes"), (999, "999 bytes"), (1500, "1.5 kB"), (2_300_000, "2.3 MB"), (4e9, "4.0 GB")]
)
def test_sizes_are_said_in_words(count: float, told: str) -> None:
    assert format_size(count) == told


def test_a_file_of_a_time_that_no_calendar_has_is_shown(site: Site) -> None:
    os.utime(site.place() / "Tea.md", (400_000_000_000, 400_000_000_000))
    for address in ("/w/main/notes/Tea.md", "/w/main/"):
        answer = site.client().get(address)
        assert answer.status_code == 200 and re.search(r"\b(2446|2262|9999)\b", answer.text), address
