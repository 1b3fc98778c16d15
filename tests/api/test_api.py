"""The JSON API: reading notes, what was done and taking it back, and what holds for every request."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import jsonschema_rs
import pytest
from starlette.routing import Route
from tests.api.api_site import NOTES, Served, config_of, served
from tests.waiting import eventually

from notewright import errors
from notewright.api import operation as problems
from notewright.api.routes import OPERATIONS
from notewright.server.auth.authenticate import GuardedRoute
from notewright.surfaces.http_status import STATUS
from notewright.surfaces.perform import to_problem

pytestmark = pytest.mark.slow

HERE = "/api/v1/workspaces/main"
TABLE = OPERATIONS


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("api")
    with served(folder, config_of(folder, "Main", "Other")) as made:
        yield made


@pytest.fixture(scope="module")
def client(site: Served) -> Iterator[httpx2.Client]:
    """Somebody on this machine, where nobody ever made a token."""
    with site.client() as client:
        assert eventually(lambda: client.get(f"{HERE}/search?q=tea").status_code == 200)
        yield client


def told(response: httpx2.Response, status: int = 200) -> Any:
    assert response.status_code == status, response.text
    assert response.headers["cache-control"] == "no-store"
    return response.json()


def refused(response: httpx2.Response, status: int, code: str) -> str:
    error = told(response, status)["error"]
    assert set(error) == {"code", "message", "hint"}
    assert error["code"] == code
    return f"{error['message']}. {error['hint']}"


# ---- reading ------------------------------------------------------------------------------------------


def test_notes_are_listed_page_by_page(client: httpx2.Client) -> None:
    first = told(client.get(f"{HERE}/notes", params={"limit": 3}))
    assert first["total"] == 4
    second = told(client.get(f"{HERE}/notes", params={"limit": 3, "cursor": first["cursor"]}))
    assert [note["path"] for note in (*first["notes"], *second["notes"])] == sorted(NOTES)
    assert second["cursor"] is None
    inside = told(client.get(f"{HERE}/notes", params={"prefix": "Pr"}))
    assert [note["path"] for note in inside["notes"]] == ["Private/Diary.md", "Projects/Plan.md"]
    assert told(client.get(f"{HERE}/notes", params={"prefix": "Projects/Pl"}))["total"] == 1


@pytest.mark.parametrize(
    "cursor", ["0", "1-0-abc", "zz-0-000000000000", "-1-0-000000000000", "1" * 81, "1-0-" + "ü" * 12]
)
def test_a_cursor_that_was_not_given_for_this_question_is_refused(client: httpx2.Client, cursor: str) -> None:
    refused(client.get(f"{HERE}/notes", params={"cursor": cursor}), 400, "invalid")


@pytest.mark.parametrize("cursor", ["abc", "-abc", "12", "1-00000000-xyz"])
def test_a_cursor_of_changes_that_was_not_given_is_refused(client: httpx2.Client, cursor: str) -> None:
    refused(client.get(f"{HERE}/changes", params={"cursor": cursor}), 400, "invalid")


def test_a_cursor_is_good_for_its_own_question_only(client: httpx2.Client) -> None:
    cursor = told(client.get(f"{HERE}/notes?limit=1"))["cursor"]
    assert told(client.get(f"{HERE}/notes?limit=2&cursor={cursor}"))["notes"]
    refused(client.get(f"{HERE}/notes?limit=1&prefix=P&cursor={cursor}"), 400, "invalid")
    refused(client.get(f"/api/v1/workspaces/other/notes?limit=1&cursor={cursor}"), 400, "invalid")
    refused(client.get(f"{HERE}/changes?cursor={cursor}"), 400, "invalid")


def test_a_note_is_read_with_what_is_known_of_it(client: httpx2.Client) -> None:
    note = told(client.get(f"{HERE}/notes/Tea.md"))
    assert note["text"] == NOTES["Tea.md"]
    assert note["properties"] == {"tags": ["drink"], "steeped": 3}
    assert [(one["text"], one["level"], one["line"]) for one in note["headings"]] == [("Tea", 1, 5), ("Water", 2, 9)]
    assert note["tags"] == ["drink"]
    assert len(note["version"]) == 64
    assert [link["path"] for link in note["backlinks"]] == ["Milk.md", "Private/Diary.md"]
    assert note["modified"].endswith("Z")


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("Tee.md", 404, "not_found"),
        ("Projects", 404, "not_found"),
        ("Tea", 404, "not_found"),
        ("%2e%2e/Other/Tea.md", 400, "invalid"),
        ("..%2f..%2fetc%2fpasswd.md", 400, "invalid"),
        (".obsidian/app.md", 404, "not_found"),
        ("a%00b.md", 400, "invalid"),
        ("a%5Cb.md", 400, "invalid"),
        ("", 400, "invalid"),
        ("%ff%fe.md", 404, "not_found"),
        ("x" * 5000 + ".md", 400, "invalid"),
    ],
)
def test_what_is_no_note_is_refused_in_words(client: httpx2.Client, path: str, status: int, code: str) -> None:
    refused(client.get(f"{HERE}/notes/{path}"), status, code)
    refused(client.get(f"{HERE}/links/{path}"), status, code)


def test_a_miss_names_what_is_near(client: httpx2.Client) -> None:
    assert "Tea.md" in refused(client.get(f"{HERE}/notes/Tae.md"), 404, "not_found")


def test_notes_are_found_by_words(client: httpx2.Client) -> None:
    found = told(client.get(f"{HERE}/search", params={"q": "green tea", "limit": 2}))
    assert found["hits"][0]["path"] == "Tea.md"
    assert (found["with_all"], len(found["hits"]), found["cut"]) == (1, 2, True)


def test_links_go_both_ways(client: httpx2.Client) -> None:
    links = told(client.get(f"{HERE}/links/Milk.md"))
    assert [link["source"] for link in links["incoming"]] == ["Tea.md"]
    assert [(link["path"], link["status"]) for link in links["outgoing"]] == [("Tea.md", "ok"), (None, "broken")]


def test_what_is_wrong_is_found(client: httpx2.Client) -> None:
    found = told(client.get(f"{HERE}/check"))
    assert [(one["kind"], one["path"]) for one in found["findings"]] == [("broken_link", "Milk.md")]


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("search", "q is required"),
        ("search?q=", "at least 1 characters"),
        ("search?q=tea&limit=0", "at least 1"),
        ("search?q=tea&limit=101", "at most 100"),
        ("search?q=tea&limit=ten", "must be integer"),
        ("search?q=tea&query=tea", "known are q, limit"),
        ("search?q=tea&q=milk", "more than once"),
        ("search?q=" + "tea" * 2000, "at most 4000"),
        ("changes?since=yesterday", "is not a time"),
        ("changes?since=2026-13-45", "is not a time"),
        ("check?deep=true", "deep is not known"),
    ],
)
def test_a_question_that_is_wrong_is_told_so(client: httpx2.Client, question: str, said: str) -> None:
    assert said in refused(client.get(f"{HERE}/{question}"), 400, "invalid")


@pytest.mark.parametrize(
    "name", ["nope", "Main", "MAIN", "..", "%2e%2e", "main%00", "m\u0430in", "main%2f..", "x" * 3000]
)
def test_a_workspace_that_is_not_there_is_404_whatever_it_is_called(client: httpx2.Client, name: str) -> None:
    assert client.get(f"/api/v1/workspaces/{name}/notes").status_code == 404
    assert client.get(f"/api/v1/workspaces/{name}/check").status_code == 404


def test_what_yaml_knows_and_json_does_not_is_said_in_words(site: Served, client: httpx2.Client) -> None:
    (site.folder / "Other" / "Odd.md").write_text("---\na: .inf\nb: 2026-01-02\nc: {1: [.nan]}\n---\n")
    note = told(client.get("/api/v1/workspaces/other/notes/Odd.md"))
    json.dumps(note["properties"], allow_nan=False)
    assert note["properties"]["b"] == "2026-01-02"


def test_a_note_that_is_not_text_is_shown_as_far_as_it_can_be(site: Served, client: httpx2.Client) -> None:
    (site.folder / "Other" / "Bytes.md").write_bytes(b"caf\xe9")
    note = told(client.get("/api/v1/workspaces/other/notes/Bytes.md"))
    assert (note["text"], note["exact"]) == ("caf\ufffd", False)


# ---- what was done ------------------------------------------------------------------------------------


@pytest.fixture
def changed(tmp_path: Path) -> Iterator[Served]:
    """A site on which three changes were made over MCP."""
    with served(tmp_path, config_of(tmp_path, "Main")) as made, made.surface("notes") as notes:
        notes("write", path="Tea 2.md", content="one\n")
        notes("edit", path="Tea 2.md", edits=[{"append": "two\n"}])
        notes("write", path="Private/New.md", content="secret\n")
        yield made


def test_changes_are_listed_page_by_page_though_more_are_made(changed: Served) -> None:
    with changed.client() as client, changed.surface("notes") as notes:
        first = told(client.get(f"{HERE}/changes?limit=2"))
        notes("write", path="Later.md", content="later")
        second = told(client.get(f"{HERE}/changes?limit=2&cursor={first['cursor']}"))
        files = [change["files"] for change in (*first["changes"], *second["changes"])]
        assert files == [["Private/New.md"], ["Tea 2.md"], ["Tea 2.md"]]
        assert second["cursor"] is None
        of_note = told(client.get(f"{HERE}/changes", params={"path": "Tea 2.md", "since": "2020-01-01"}))["changes"]
        assert [(one["tool"], one["surface"]) for one in of_note] == [("edit", "notes"), ("write", "notes")]
        assert told(client.get(f"{HERE}/changes?client=nobody"))["changes"] == []


def test_an_undo_names_the_notes_in_which_later_changes_stay(changed: Served) -> None:
    place = changed.folder / "Main" / "Tea 2.md"
    with changed.client() as client:
        edit = told(client.get(f"{HERE}/changes", params={"path": "Tea 2.md"}))["changes"][0]["id"]
        assert told(client.post(f"{HERE}/changes/{edit}/undo", json={"dry_run": True}))["kept"] == []
        place.write_text("later\n" + place.read_text())
        assert told(client.post(f"{HERE}/changes/{edit}/undo", json={"dry_run": True}))["kept"] == ["Tea 2.md"]


def test_a_change_is_shown_as_a_diff_and_taken_back(changed: Served) -> None:
    with changed.client() as client:
        edit = told(client.get(f"{HERE}/changes", params={"path": "Tea 2.md"}))["changes"][0]["id"]
        change = told(client.get(f"{HERE}/changes/{edit}"))
        assert change["diff"][0]["lines"][-1] == "+two"
        tried = told(client.post(f"{HERE}/changes/{edit}/undo", json={"dry_run": True}))
        assert (tried["change"], tried["files"], tried["diff"][0]["lines"][-1]) == (None, ["Tea 2.md"], "-two")
        assert (changed.folder / "Main" / "Tea 2.md").read_text() == "one\ntwo\n"
        done = told(client.post(f"{HERE}/changes/{edit}/undo"))
        assert (changed.folder / "Main" / "Tea 2.md").read_text() == "one\n"
        undo = told(client.get(f"{HERE}/changes/{done['change']}"))
        assert (undo["surface"], undo["client"], undo["undoes"]) == ("api", "api", [edit])
        assert "taken back already" in refused(client.post(f"{HERE}/changes/{edit}/undo"), 409, "conflict")
        refused(client.post(f"{HERE}/changes/nosuch/undo"), 404, "not_found")


def test_all_of_one_client_is_taken_back(changed: Served) -> None:
    with changed.client() as client:
        refused(client.post(f"{HERE}/undo", json={"client": "nobody"}), 404, "not_found")
        refused(client.post(f"{HERE}/undo", json={"dry_run": True}), 400, "invalid")
        made_by = told(client.get(f"{HERE}/changes"))["changes"][0]["client"]
        told(client.post(f"{HERE}/undo", json={"client": made_by, "since": "2020-01-01T00:00:00Z"}))
        assert not (changed.folder / "Main" / "Tea 2.md").exists()


def test_what_is_hidden_from_a_token_is_in_no_answer(changed: Served) -> None:
    token = changed.token("narrow", hide=("Private/**",))
    with changed.client(token) as client:
        for question in ("notes", "search?q=tea+nobody+reads", "links/Tea.md", "check", "changes", "notes/Tea.md", ""):
            answer = client.get(f"{HERE}/{question}".rstrip("/"))
            assert answer.status_code == 200, answer.text
            assert "Private" not in answer.text and "secret" not in answer.text, question
        assert b"Private" not in client.get(f"{HERE}/export.zip").content
        for question in ("notes/Private/Diary.md", "links/Private/Diary.md", "notes/Private/None.md"):
            assert "Diary" not in client.get(f"{HERE}/{question}").json()["error"]["hint"]
            refused(client.get(f"{HERE}/{question}"), 404, "not_found")
        assert told(client.get(f"{HERE}/changes?path=Private/New.md"))["changes"] == []
        assert told(client.get(HERE))["notes"] == 4  # three, and one that was made
        assert told(client.get(f"{HERE}/rebuild-index"))["notes_indexed"] is None


def test_a_token_sees_its_own_workspaces_only(tmp_path: Path) -> None:
    with served(tmp_path, config_of(tmp_path, "Main", "Other")) as site:
        token = site.token("narrow", workspaces=("other",))
        with site.client(token) as client:
            assert [one["id"] for one in told(client.get("/api/v1/workspaces"))["workspaces"]] == ["other"]
            assert told(client.get("/api/v1/me"))["workspaces"] == ["other"]
            known = client.get(f"{HERE}/notes")
            unknown = client.get("/api/v1/workspaces/nope/notes")
            assert (known.status_code, known.text) == (unknown.status_code, unknown.text) == (404, known.text)
            assert "location" not in told(client.get("/api/v1/workspaces/other"))


# ---- what holds for every request ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A site where tokens are needed."""
    folder = tmp_path_factory.mktemp("closed")
    with served(folder, config_of(folder, "Main")) as made:
        made.token("owner")
        yield made


def filled(path: str) -> str:
    return path.format(id="main", path="Tea.md", change="abcdef", name="owner")


@pytest.mark.parametrize("one", TABLE, ids=lambda one: f"{one.method} {one.plain_path}")
def test_a_narrowed_token_may_no_more_than_the_table_says(closed: Served, one: Any) -> None:
    name = re.sub(r"\W", "-", f"{one.method}{one.path}")[-55:]
    reads = closed.token(f"r {name}", read_only=True)
    with closed.client(reads) as client:
        answer = client.request(one.method, filled(one.plain_path))
        assert (answer.status_code == 403) == (one.need != "read"), answer.text
    hides = closed.token(f"h {name}", hide=("Private/**",))
    with closed.client(hides) as client:
        answer = client.request(one.method, filled(one.plain_path))
        assert (answer.status_code == 403) == (one.need == "owner"), answer.text
    elsewhere = closed.token(f"s {name}", surfaces=("notes",))
    with closed.client(elsewhere) as client:
        answer = client.request(one.method, filled(one.plain_path))
        assert (answer.status_code == 403) == (one.plain_path != "/api/v1/me"), answer.text


def test_a_token_may_be_for_the_api_alone(closed: Served) -> None:
    with closed.client(closed.token("api only", surfaces=("api",))) as client:
        assert told(client.get(f"{HERE}/notes"))["total"] == 4
        assert client.post("/mcp/notes", json={}).status_code == 403


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/api", 404, None),
        ("GET", "/api/", 404, None),
        ("GET", "/api/v2/me", 404, None),
        ("GET", "/api/v1/me/", 404, None),
        ("POST", "/api/v1/me", 405, "GET"),
        ("PUT", "/api/v1/workspaces/main", 405, "DELETE, GET, PATCH"),
        ("DELETE", f"{HERE}/notes/Tea.md", 405, "GET"),
    ],
)
def test_what_is_not_there_or_not_in_this_way_is_said(
    client: httpx2.Client, method: str, path: str, status: int, allow: str | None
) -> None:
    answer = client.request(method, path)
    refused(answer, status, "not_found" if status == 404 else "invalid")
    assert answer.headers.get("allow") == allow


@pytest.mark.parametrize(
    ("body", "headers", "said"),
    [
        (b"{}", {"content-type": "text/plain"}, "must be JSON"),
        (b"{}", {"content-type": "application/x-www-form-urlencoded"}, "must be JSON"),
        (b"{}", {}, "must be JSON"),
        (b"{", {"content-type": "application/json"}, "is not JSON"),
        (b"[1]", {"content-type": "application/json"}, "must be a JSON object"),
        (b"[" * 100_000, {"content-type": "application/json"}, "is not JSON"),
        (b'{"dry_run": "yes"}', {"content-type": "application/json"}, "must be boolean"),
        (b'{"dry": true}', {"content-type": "application/json"}, "known are since, client, user, dry_run"),
        (b'{"client": "\\ud800"}', {"content-type": "application/json"}, "surrogate"),
    ],
)
def test_a_body_that_is_wrong_is_refused(
    client: httpx2.Client, body: bytes, headers: dict[str, str], said: str
) -> None:
    assert said in refused(client.post(f"{HERE}/undo", content=body, headers=headers), 400, "invalid")


def test_a_body_that_is_too_large_is_refused(client: httpx2.Client) -> None:
    headers = {"content-type": "application/json"}
    refused(client.post(f"{HERE}/undo", content=b" " * 2_000_000, headers=headers), 413, "too_large")
    pieces = (b" " * 65_536 for _ in range(32))
    refused(client.post(f"{HERE}/undo", content=pieces, headers=headers), 413, "too_large")


def test_a_body_where_none_is_taken_is_refused(client: httpx2.Client) -> None:
    assert "takes no body" in refused(client.post(f"{HERE}/rebuild-index", json={"now": True}), 400, "invalid")


@pytest.mark.parametrize("site_of", ["cross-site", "same-site"])
def test_a_page_of_somebody_else_can_change_nothing_here(client: httpx2.Client, site_of: str) -> None:
    """A browser sends such a header with everything; a page cannot leave it out."""
    answer = client.post(f"{HERE}/rebuild-index", headers={"sec-fetch-site": site_of})
    assert "x-notewright" in refused(answer, 403, "forbidden")
    assert client.post(f"{HERE}/rebuild-index", headers={"origin": "https://evil.example"}).status_code == 403
    assert client.post(f"{HERE}/rebuild-index", headers={"host": "evil.example"}).status_code == 421


def test_a_browser_that_signed_in_must_mean_it(closed: Served) -> None:
    token = closed.token("browser")
    with httpx2.Client(base_url=closed.address, timeout=30) as browser:
        form = browser.get("/sign-in", headers={"accept": "text/html"})
        assert form.status_code == 200
        signed = browser.post("/sign-in", data={"token": token, "csrf": _csrf(form.text)}, follow_redirects=False)
        assert signed.status_code == 303, signed.text
        assert told(browser.get("/api/v1/me"))["user"] == "browser"
        asked = {"name": "made"}
        assert "x-notewright" in refused(browser.post("/api/v1/tokens", json=asked), 403, "forbidden")
        told(browser.post("/api/v1/tokens", json=asked, headers={"x-notewright": "1"}), 201)
        ours = _csrf(browser.get("/connect", headers={"accept": "text/html"}).text)
        told(browser.post("/api/v1/tokens", json={"name": "too"}, headers={"x-csrf-token": ours}), 201)
        for wrong in ("", "0" * 64, ours[:-1]):
            answer = browser.post("/api/v1/tokens", json={"name": "three"}, headers={"x-csrf-token": wrong})
            refused(answer, 403, "forbidden")


def _csrf(html: str) -> str:
    """The token of the form, if it has one."""
    _, _, rest = html.partition('name="csrf"')
    return rest.partition('value="')[2].partition('"')[0]


def test_every_code_there_is_has_a_status() -> None:
    assert set(STATUS) == errors.codes()


@pytest.mark.parametrize(
    ("problem", "status", "wait"),
    [
        (errors.Limited("too many", retry_after=17.4, limit=1, window=60), 429, "17"),
        (errors.Busy("somebody is there"), 503, "1"),
        (errors.Indexing("not yet", done=1, total=2), 503, "2"),
        (errors.Unavailable("gone"), 503, "5"),
        (errors.Quota("full"), 507, None),
        (errors.NoSpace("full"), 507, None),
        (errors.TooLarge("large"), 413, None),
        (errors.Internal("ours"), 500, None),
    ],
)
def test_a_problem_that_passes_says_when_to_come_again(problem: errors.Problem, status: int, wait: str | None) -> None:
    answer = problems.problem_response(problem)
    assert (answer.status_code, answer.headers.get("retry-after")) == (status, wait)
    assert json.loads(bytes(answer.body))["error"] == {"code": problem.code, "message": problem.message, "hint": ""}


def test_what_nobody_expected_is_told_as_our_fault_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    answer = problems.problem_response(to_problem(RuntimeError("the password is tea"), "read_note"))
    assert answer.status_code == 500
    assert b"password" not in bytes(answer.body)
    assert "the password is tea" in caplog.text


def test_a_head_request_is_answered_without_a_body(client: httpx2.Client) -> None:
    for path in ("/api/v1/me", f"{HERE}/export.zip"):
        answer = client.head(path)
        assert (answer.status_code, answer.content) == (200, b"")


# ---- the description ----------------------------------------------------------------------------------


def test_the_description_has_every_route_and_no_other(site: Served, client: httpx2.Client) -> None:
    described = told(client.get("/api/v1/openapi.json"))
    said = {(path, method.upper()) for path, methods in described["paths"].items() for method in methods}
    assert said == {(one.plain_path, one.method) for one in TABLE}
    routes = [route for route in site.site.build_app().routes if isinstance(route, Route)]
    ours = [route for route in routes if route.path.startswith(("/api/v1", "/admin"))]
    for route in ours:
        assert isinstance(route, GuardedRoute)
        plain = route.path.replace(":path", "")
        methods = {method for path, method in said if path == plain}
        assert set(route.methods or ()) - {"HEAD"} <= methods, route.path
    assert len(ours) == len(TABLE)


def test_the_description_is_sane(client: httpx2.Client) -> None:
    described = told(client.get("/api/v1/openapi.json"))
    assert described["openapi"] == "3.1.0"
    ids = [one["operationId"] for methods in described["paths"].values() for one in methods.values()]
    assert len(ids) == len(set(ids))
    for path, methods in described["paths"].items():
        for one in methods.values():
            named = {part["name"] for part in one["parameters"] if part["in"] == "path"}
            assert named == {piece[1:-1] for piece in path.split("/") if piece.startswith("{")}
            assert one["summary"] and one["responses"]["default"]
    for shape in shapes(described):
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **shape})


def shapes(described: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from described["components"]["schemas"].values()
    for methods in described["paths"].values():
        for one in methods.values():
            for holder in (*one["responses"].values(), one.get("requestBody", {"content": {}})):
                yield from (content["schema"] for content in holder["content"].values())
            yield from (parameter["schema"] for parameter in one["parameters"])


@pytest.mark.parametrize(
    "path",
    ["/api/v1/me", "/api/v1/workspaces", HERE, f"{HERE}/notes", f"{HERE}/notes/Tea.md", f"{HERE}/search?q=tea",
     f"{HERE}/links/Milk.md", f"{HERE}/check", f"{HERE}/changes", f"{HERE}/rebuild-index", "/api/v1/tokens"],
)  # fmt: skip
def test_what_is_answered_is_what_the_description_says(client: httpx2.Client, path: str) -> None:
    described = told(client.get("/api/v1/openapi.json"))
    plain = path.partition("?")[0].replace("/main", "/{id}")
    plain = plain.replace("Tea.md", "{path}").replace("Milk.md", "{path}")
    shape = described["paths"][plain]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    whole = {**shape, "components": described["components"]}
    jsonschema_rs.Draft202012Validator(whole).validate(told(client.get(path)))
