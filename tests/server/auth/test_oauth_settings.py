"""What may stand in [auth], and what the words of scopes come to."""

from pathlib import Path

import pytest

from notewright.accounts.base import Grant
from notewright.errors import Invalid
from notewright.server.auth.claims import canonical
from notewright.server.auth.oauth import IssuerSettings
from notewright.server.auth.scopes import granted, scope_names


@pytest.mark.parametrize(
    "issuer",
    ["http://id.example", "id.example", "ftp://id.example", "https://id.example?x", "https://id.example#x", "https://"],
)
def test_an_issuer_must_be_an_https_address(issuer: str) -> None:
    with pytest.raises(Invalid) as told:
        IssuerSettings(issuer)
    assert told.value.hint and told.value.details["what"] == "auth.issuer"


def test_asking_about_tokens_takes_all_three_settings(tmp_path: Path) -> None:
    secret, empty = tmp_path / "secret", tmp_path / "empty"
    secret.write_text("  s3cret \n")
    empty.write_text("\n")
    good = IssuerSettings("https://id.example", client_id="us", client_secret_file=str(secret))
    assert good.client == ("us", "s3cret") and "s3cret" not in repr(good)
    for wrong in (
        {"client_id": "us"},
        {"client_secret_file": str(secret)},
        {"introspection_url": "https://id.example/introspect"},
        {"client_id": "us", "client_secret_file": str(tmp_path / "missing")},
        {"client_id": "us", "client_secret_file": str(empty)},
        {"client_id": "us", "client_secret_file": str(secret), "introspection_url": "http://id.example/introspect"},
    ):
        with pytest.raises(Invalid):
            IssuerSettings("https://id.example", **wrong)


def test_names_of_scopes_are_read_and_what_is_none_of_ours_is_refused() -> None:
    names = scope_names(
        ["https://x.example/a?b=c=notes:read", "Editors = notes:write surface:lens", "Editors=notes:read"]
    )
    assert names.to_ours(["https://x.example/a?b=c", "other"]) == {"notes:read", "other"}
    assert names.to_ours(["Editors"]) == {"notes:write", "surface:lens", "notes:read"}
    assert names.to_theirs("notes:read", "notes:write") == ("https://x.example/a?b=c", "Editors")
    assert scope_names([]).to_theirs("notes:read", "notes:write") == ("notes:read", "notes:write")
    for wrong in (
        "notes:read",
        "=notes:read",
        "a=",
        "a=notes:reed",
        "a=workspace:",
        "a=surface:nope",
        "a b=notes:read",
    ):
        with pytest.raises(Invalid, match=r"auth\.scopes"):
            scope_names([wrong])


def test_a_narrowing_that_fits_nobody_leaves_nothing() -> None:
    narrowed = granted(frozenset({"notes:read", "workspace:", "surface:"}))
    assert narrowed is not None and narrowed == Grant(("",), ("",), read_only=True)
    assert granted(frozenset({"workspace:a", "notes:", "notes:readwrite", "NOTES:READ"})) is None


@pytest.mark.parametrize(
    ("written", "compared"),
    [
        ("HTTPS://Notes.Example.com:443/MCP/", "https://notes.example.com/MCP"),
        ("http://[::1]:8484/mcp", "http://[::1]:8484/mcp"),
        ("http://localhost:80", "http://localhost"),
        ("https://notes.example.com?x=1", "https://notes.example.com?x=1"),
        ("https://a@notes.example.com", "https://a@notes.example.com"),
        ("https://notes.example.com#x", "https://notes.example.com#x"),
        ("https://notes.example.com:port/", "https://notes.example.com:port/"),
        ("notes-api/", "notes-api/"),
        ("", ""),
    ],
)
def test_addresses_are_compared_without_what_does_not_matter(written: str, compared: str) -> None:
    assert canonical(written) == compared == canonical(compared)


def test_a_scope_may_name_a_surface_with_a_dash() -> None:
    narrowed = granted(frozenset({"notes:read", "surface:second-brain"}))
    assert narrowed is not None and narrowed.surfaces == ("second_brain",)
