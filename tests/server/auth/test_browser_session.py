"""Cookies of browsers that signed in, and the tokens of forms."""

import base64

import pytest

from notewright.server.auth.browser_session import COOKIE_SECONDS, BrowserSessions

DIGEST = "ab" * 32
NOW = 1_700_000_000.0


def test_a_cookie_tells_the_digest_it_was_issued_for() -> None:
    value = BrowserSessions(b"k" * 32).issue(DIGEST, NOW)
    read = BrowserSessions(b"k" * 32).read(value, NOW + 1)  # in another process, too
    assert read is not None and read.digest == DIGEST


def test_two_cookies_for_one_token_are_two_sessions() -> None:
    cookies = BrowserSessions(b"k" * 32)
    one, other = (cookies.read(cookies.issue(DIGEST, NOW), NOW) for _ in range(2))
    assert one is not None and other is not None and one.session != other.session


def test_a_cookie_ends_after_its_time() -> None:
    cookies = BrowserSessions(b"k" * 32)
    value = cookies.issue(DIGEST, NOW)
    assert cookies.read(value, NOW + COOKIE_SECONDS - 1) is not None
    assert cookies.read(value, NOW + COOKIE_SECONDS) is None
    assert cookies.read(value, NOW - 3600) is None  # issued in the future


def test_every_changed_byte_is_noticed() -> None:
    cookies = BrowserSessions(b"k" * 32)
    raw = base64.urlsafe_b64decode(cookies.issue(DIGEST, NOW) + "=" * 4)
    for place in range(len(raw)):
        changed = raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :]
        assert cookies.read(base64.urlsafe_b64encode(changed).decode().rstrip("="), NOW) is None


@pytest.mark.parametrize("value", ["", "x", "=", "é", "nw_token", "A" * 10_000, "\udcff", "AAAA AAAA"])
def test_what_is_no_cookie_is_nobody(value: str) -> None:
    assert BrowserSessions(b"k" * 32).read(value, NOW) is None


def test_a_cookie_of_another_server_is_nobody() -> None:
    assert BrowserSessions(b"k" * 32).read(BrowserSessions(b"j" * 32).issue(DIGEST, NOW), NOW) is None


def test_a_form_is_bound_to_its_visit() -> None:
    cookies = BrowserSessions(b"k" * 32)
    token = cookies.csrf("mine")
    assert cookies.check("mine", token)
    assert not cookies.check("other", token)
    assert not cookies.check("mine", "")
    assert not cookies.check("mine", "\udcff")
    assert not BrowserSessions(b"j" * 32).check("mine", token)


def test_a_form_tells_nothing_of_a_cookie() -> None:
    cookies = BrowserSessions(b"k" * 32)
    assert cookies.csrf(DIGEST) not in base64.urlsafe_b64decode(cookies.issue(DIGEST, NOW) + "=" * 4).hex()
