"""The page of the editor: who may come there, and what it says to others."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from tests.conftest import write_files
from tests.over_http import client_of
from tests.server.lines import over_http
from tests.web.page_desk import Site, config_of, served, words

pytestmark = pytest.mark.slow

NOTES: dict[str, str | bytes] = {
    "Tea.md": "# Tea\n",
    "Closed/Box.md": "box\n",
    "Hidden/Secret.md": "secret\n",
    "Latin.md": "caf\xe9\n".encode("latin-1"),
    "a & b/ü?.md": "odd\n",
    "cup.png": b"\x89PNG\r\n\x1a\n",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    place = tmp_path_factory.mktemp("edit")
    config = config_of(place, {"Main": NOTES, "Other": {"Else.md": "else\n"}}, hide=("Hidden/**",), live=True)
    with served(config) as site:
        yield site


@pytest.fixture(scope="module")
def owner(site: Site) -> httpx2.Client:
    return site.client(site.token("owner"))


def given(page: httpx2.Response) -> dict[str, str]:
    """What the page tells its script."""
    return dict(re.findall(r'data-(\w+)="([^"]*)"', page.text))


def test_a_live_note_that_may_be_written_has_a_button_and_no_other_does(site: Site, owner: httpx2.Client) -> None:
    assert 'href="/w/main/edit/Tea.md"' in owner.get("/w/main/notes/Tea.md").text
    for address in ("/w/other/notes/Else.md", "/w/main/notes/Latin.md"):
        assert "/edit/" not in owner.get(address).text
    reader, narrow = (
        site.client(site.token("reader", read_only=True)),
        site.client(site.token("narrow", write_under=("Closed/**",))),
    )
    assert "/edit/" not in reader.get("/w/main/notes/Tea.md").text
    assert "/edit/" not in narrow.get("/w/main/notes/Tea.md").text
    assert "/edit/" in narrow.get("/w/main/notes/Closed/Box.md").text


def test_the_editor_is_told_its_document_and_where_to_connect_as_whom(owner: httpx2.Client) -> None:
    page = owner.get("/w/main/edit/a%20%26%20b/%C3%BC%3F.md")
    told = given(page)
    assert page.status_code == 200 and told["live"] == "/d/{0}/ws/{0}".format(told["document"])
    assert (told["name"], told["label"]) == ("owner", "Text of ü?")
    assert given(owner.get("/w/main/edit/a%20%26%20b/%C3%BC%3F.md"))["document"] == told["document"]
    assert given(owner.get("/w/main/edit/Tea.md"))["document"] != told["document"]
    assert owner.get("/w/main/edit/tea").url.path == "/w/main/edit/Tea.md", "found by name, as to read it"


def test_who_may_not_edit_is_told_why(site: Site, owner: httpx2.Client) -> None:
    other = owner.get("/w/other/edit/Else.md")
    assert other.status_code == 404 and "not live" in words(other) and "live:FOLDER" in words(other)
    assert "not UTF-8" in words(owner.get("/w/main/edit/Latin.md"))
    assert owner.get("/w/main/edit/cup.png").status_code == 404
    reader, narrow = (
        site.client(site.token("r", read_only=True)),
        site.client(site.token("n", write_under=("Closed/**",), hide=("Tea.md",))),
    )
    assert reader.get("/w/main/edit/Tea.md").status_code == 403
    assert narrow.get("/w/main/edit/Latin.md").status_code == 403
    tea = given(owner.get("/w/main/edit/Tea.md"))["document"]
    for who, path in ((owner, "Hidden/Secret.md"), (owner, "Nowhere.md"), (narrow, "Tea.md")):
        edit, read = who.get(f"/w/main/edit/{path}"), who.get(f"/w/main/notes/{path}")
        assert (edit.status_code, words(edit)) == (404, words(read))
    assert narrow.get(f"/w/main/edit/Nowhere.md?document={tea}").status_code == 404, "an id opens nothing hidden"


def test_an_editor_that_asks_again_is_sent_after_its_note(site: Site, owner: httpx2.Client) -> None:
    (site.place() / "Cup.md").write_text("cup\n")
    known = given(owner.get("/w/main/edit/Cup.md"))["document"]
    with client_of(site.base, "notes", site.token("agent")) as agent:
        agent("move", **{"from": "Main/Cup.md", "to": "Main/Shelf/Mug.md"})
    again = owner.get(f"/w/main/edit/Cup.md?document={known}")
    assert again.url.path == "/w/main/edit/Shelf/Mug.md" and given(again)["document"] == known
    assert owner.get("/w/main/edit/Cup.md?document=unknown").status_code == 404


def test_connect_says_where_yjs_clients_go_and_the_folder_document_only_to_those_who_see_all(tmp_path: Path) -> None:
    with served(config_of(tmp_path, {"Main": NOTES, "Other": {"Else.md": "else\n"}}, live=True)) as site:
        owner, narrow = site.client(site.token("owner")), site.client(site.token("n", hide=("Tea.md",)))
        address = f"ws{site.base.removeprefix('http')}/w/main/live/"
        shown = words(owner.get("/connect"))
        assert address in shown and "/w/other/live" not in shown
        folder = r"folder document [-0-9a-f]{73}\b"
        assert re.search(folder, shown)
        less = words(narrow.get("/connect"))
        assert address in less and not re.search(folder, less)


def test_what_is_loaded_comes_compressed_to_those_who_take_it(site: Site) -> None:
    address = f"{site.base}/static/editor.js"
    plain = httpx2.get(address, headers={"accept-encoding": "identity"})
    small = httpx2.get(address, headers={"accept-encoding": "gzip"})
    assert small.headers["content-encoding"] == "gzip" and "content-encoding" not in plain.headers
    assert small.content == plain.content and small.headers["etag"] != plain.headers["etag"]
    assert int(small.headers["content-length"]) < 150_000
    known = {"accept-encoding": "gzip", "if-none-match": small.headers["etag"]}
    assert httpx2.get(address, headers=known).status_code == 304


def test_every_worker_shows_the_editor_although_one_has_the_documents(tmp_path: Path) -> None:
    write_files(tmp_path / "Main", {"Tea.md": "# Tea\n"})
    words = [f"Main=live:{tmp_path / 'Main'}", "--state", str(tmp_path / "state"), "--workers", "2"]
    with over_http(*words) as base:
        pages = [httpx2.get(f"{base}/w/main/edit/Tea.md", timeout=30) for _ in range(16)]  # each by its own connection
    assert {page.status_code for page in pages} == {200}
    assert len({given(page)["document"] for page in pages}) == 1


def test_below_the_path_of_a_proxy_the_socket_is_too(tmp_path: Path) -> None:
    config = config_of(tmp_path, {"Main": NOTES}, live=True)
    config.values["http.public_url"] = "https://home.example/notes"
    with served(config) as site:
        token = {"authorization": f"Bearer {site.token('me')}"}
        page = httpx2.get(f"{site.base}/w/main/edit/Tea.md", headers=token)
        assert given(page)["live"].startswith("/notes/d/")
        assert '<script src="/notes/static/editor.js?v=' in page.text
        licences = httpx2.get(f"{site.base}/static/editor.licenses.txt")
        assert licences.headers["content-type"] == "text/plain; charset=utf-8" and "yjs" in licences.text
