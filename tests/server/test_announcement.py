"""What is said when serving begins: a person gets lines to paste, a log of JSON stays one."""

from pathlib import Path

import pytest

from notewright.app import compose
from notewright.cli.main import main
from notewright.cli.parser import parse
from notewright.cli.serve import serving_config
from notewright.config.load import Config
from notewright.errors import Invalid

HEADER = '--header "Authorization: Bearer nw_…"'


def config(place: Path, *words: str) -> Config:
    (place / "notes").mkdir(exist_ok=True)
    return serving_config(
        parse(["serve", str(place / "notes"), "--http", "8484", "--state", str(place / "state"), *words])
    )


def test_the_line_to_paste_has_a_place_for_a_token_where_one_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compose._announce(config(tmp_path), "127.0.0.1", 8484)
    assert "http://127.0.0.1:8484/mcp\n" in capsys.readouterr().err
    assert main(["token", "add", "phone", "--state", str(tmp_path / "state")]) == 0
    capsys.readouterr()
    compose._announce(config(tmp_path), "127.0.0.1", 8484)
    assert f"http://127.0.0.1:8484/mcp {HEADER}\n" in capsys.readouterr().err
    (tmp_path / "c.toml").write_text('[auth]\nissuer = "https://id.example.com"\n')
    compose._announce(config(tmp_path, "--config", str(tmp_path / "c.toml")), "127.0.0.1", 8484)
    assert HEADER not in capsys.readouterr().err


def test_beside_lines_of_json_the_welcome_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "c.toml").write_text('log_format = "json"\n')
    compose._announce(config(tmp_path, "--config", str(tmp_path / "c.toml")), "127.0.0.1", 8484)
    assert capsys.readouterr().err == ""
    assert caplog.messages[0].endswith("on 127.0.0.1 port 8484: http://127.0.0.1:8484/mcp")


@pytest.mark.parametrize(
    "address", ["notes.example.com", "https://", "ftp://notes.example.com", "https://x.example/?a"]
)
def test_an_address_that_is_none_is_refused_before_anybody_is_sent_there(tmp_path: Path, address: str) -> None:
    (tmp_path / "c.toml").write_text(f'[http]\npublic_url = "{address}"\n')
    with pytest.raises(Invalid, match=r"http\.public_url is no address"):
        compose.check_http_config(config(tmp_path, "--config", str(tmp_path / "c.toml")))
