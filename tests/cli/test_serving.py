"""From the flags of `serve` to a configuration, and what is refused before anything starts."""

import subprocess
import sys
from pathlib import Path

import pytest

from notewright.cli.parser import parse
from notewright.cli.serve import serving_config
from notewright.errors import Invalid, Problem


def test_flags_become_settings(tmp_path: Path) -> None:
    words = ["serve", f"Work={tmp_path}", "--surface", "cairn", "--surface", "lens", "--http", "0.0.0.0:8484"]
    config = serving_config(parse([*words, "--read-only", "--no-rate-limits"]))
    assert [(w.name, w.location, w.read_only) for w in config.workspaces] == [("Work", str(tmp_path), True)]
    assert config["surface"] == ("cairn", "lens")
    assert (config["http.host"], config["http.port"]) == ("0.0.0.0", 8484)
    assert config["rate_limits"] is False


def test_what_would_be_ignored_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('[database]\nurl = "postgresql://db"\n')
    with pytest.raises(Invalid, match=r"database\.url is not in this version"):
        serving_config(parse(["serve", str(tmp_path), "--http", "8484", "--config", str(tmp_path / "c.toml")]))


def test_without_flags_the_defaults_hold(tmp_path: Path) -> None:
    config = serving_config(parse(["serve", str(tmp_path)]))
    assert (config["surface"], config["http.port"], config["rate_limits"]) == (("notes",), None, True)


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [("8484", "127.0.0.1", 8484), (":80", "127.0.0.1", 80), ("[::1]:1", "::1", 1), ("localhost:9", "localhost", 9)],
)
def test_an_address_is_a_port_with_or_without_a_host(tmp_path: Path, address: str, host: str, port: int) -> None:
    config = serving_config(parse(["serve", str(tmp_path), "--http", address]))
    assert (config["http.host"], config["http.port"]) == (host, port)


@pytest.mark.parametrize(
    "words",
    [[], ["{}", "--http", "x"], ["{}", "--http", "99999"], ["{}", "--surface", "x"], ["no"], ["s3://b/x"], ["live:no"]],
)
def test_what_cannot_be_served_is_wrong_usage(tmp_path: Path, words: list[str]) -> None:
    args = parse(["serve", *(word.format(tmp_path) for word in words)])
    with pytest.raises(Problem):
        serving_config(args)
    assert args.usage


@pytest.mark.slow
def test_the_obsidian_server_wants_a_vault_that_is_there() -> None:
    program = Path(sys.executable).parent / "obs-mcp"
    env = {"PATH": "/usr/bin:/bin", "OBSIDIAN_VAULT_PATH": "/nowhere/at/all", "HOME": "/tmp"}
    done = subprocess.run([program], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "is not there" in done.stderr
