"""What is written to standard error."""

import json
import logging
import re
import threading
from collections.abc import Callable, Iterator

import pytest

from notewright.errors import Invalid
from notewright.server.ops import logs
from notewright.server.request_context import CURRENT_REQUEST, RequestContext

TOKEN = "nw_" + "aB3-_" * 8 + "xyz"
WEB_TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbm5hIn0.c2lnbmF0dXJl-_x"


Said = Callable[[], str]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Iterator[Said]:
    """What stands on standard error; afterwards everything logs as before."""
    root, hook = logging.getLogger(), threading.excepthook
    handlers, level = root.handlers[:], root.level
    yield lambda: capsys.readouterr().err
    root.handlers[:], threading.excepthook = handlers, hook
    root.setLevel(level)


def test_a_text_line_looks_as_it_always_did_without_a_request(said: Said) -> None:
    logs.configure(logging.INFO)
    logging.getLogger("some.where").warning("it is %s", "late")
    assert said() == "WARNING some.where: it is late\n"


def test_a_line_names_the_request_it_belongs_to(said: Said) -> None:
    logs.configure(logging.INFO)
    before = CURRENT_REQUEST.set(RequestContext("00ff00ff00ff00ff"))
    logging.getLogger("some.where").warning("late")
    CURRENT_REQUEST.reset(before)
    assert said() == "WARNING some.where [00ff00ff00ff00ff]: late\n"


def test_a_json_line_holds_time_level_logger_message_request_and_facts(said: Said) -> None:
    logs.configure(logging.INFO, "json")
    before = CURRENT_REQUEST.set(RequestContext("00ff00ff00ff00ff"))
    logging.getLogger("some.where").info("it is %s", "late", extra={"facts": {"status": 200}})
    CURRENT_REQUEST.reset(before)
    told = json.loads(said())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", told.pop("time"))
    assert told == {
        "level": "info",
        "logger": "some.where",
        "message": "it is late",
        "request": "00ff00ff00ff00ff",
        "status": 200,
    }


def test_a_traceback_stays_within_its_json_line(said: Said) -> None:
    logs.configure(logging.INFO, "json")
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger("some.where").exception("it\nfailed")
    (line,) = said().splitlines()
    told = json.loads(line)
    assert told["message"] == "it\nfailed" and "ValueError: two\nlines" in told["exception"]


def test_nobody_forges_a_line_by_a_line_end_in_a_name(said: Said) -> None:
    logs.configure(logging.INFO)
    logging.getLogger("some.where").warning("%s failed", "x\nERROR some.where: all is lost\x1b[2J")
    assert said() == "WARNING some.where: x\\nERROR some.where: all is lost\\x1b[2J failed\n"


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("secret", [TOKEN, WEB_TOKEN], ids=["ours", "jwt"])
def test_no_token_is_ever_written(said: Said, form: str, secret: str) -> None:
    logs.configure(logging.INFO, form)
    log = logging.getLogger("some.where")
    log.warning("with %s", secret)
    log.warning("headers %r", {"authorization": f"Bearer {secret}"})
    log.warning("a=%s&b", secret, extra={"facts": {"leak": secret}})
    try:
        raise ValueError(f"what is {secret}?")
    except ValueError:
        log.exception("failed")
    written = said()
    assert secret not in written and secret[8:20] not in written
    assert written.count("[secret]") >= 4


def test_whatever_follows_bearer_is_left_out(said: Said) -> None:
    logs.configure(logging.INFO)
    logging.getLogger("some.where").warning("Authorization: bearer c0ffee42, or BEARER  abc.def")
    assert said() == "WARNING some.where: Authorization: bearer [secret], or BEARER  [secret]\n"


def test_plain_words_are_left_alone() -> None:
    text = "forbearer news; own_goals_shown and nw_abc; eyJ.x; Füße"
    assert logs.scrub_secrets(text) == text


def test_a_thread_that_dies_is_logged_like_everything_else(said: Said) -> None:
    logs.configure(logging.INFO, "json")

    def die() -> None:
        raise RuntimeError(f"lost {TOKEN}")

    thread = threading.Thread(target=die, name="walker")
    thread.start()
    thread.join()
    told = json.loads(said())
    assert told["message"] == "walker failed" and "RuntimeError: lost [secret]" in told["exception"]


def test_asked_again_the_new_form_holds_and_nothing_is_said_twice(said: Said) -> None:
    logs.configure(logging.INFO)
    logs.configure(logging.WARNING, "json")
    logging.getLogger("some.where").info("unheard")
    logging.getLogger("some.where").warning("heard")
    assert [json.loads(line)["message"] for line in said().splitlines()] == ["heard"]


def test_a_format_there_is_not_is_refused() -> None:
    with pytest.raises(Invalid, match="no log format 'xml'"):
        logs.configure(logging.INFO, "xml")
