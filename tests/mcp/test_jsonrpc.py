"""Judging the form of messages."""

import json

import pytest

from notewright.mcp.jsonrpc import find_flaw, is_plain, parse_json

SURROGATE = {"jsonrpc": "2.0", "id": 1, "method": "a\ud800b", "params": {"text": "日 é \udfff"}}


@pytest.mark.parametrize("encoding", ["ascii", "utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"])
def test_a_line_with_a_surrogate_is_looked_at_however_it_is_written(encoding: str) -> None:
    line = json.dumps(SURROGATE, ensure_ascii=encoding == "ascii").encode(encoding, "surrogatepass")
    assert parse_json(line) == SURROGATE
    assert not is_plain(line)
    assert find_flaw(parse_json(line)) == "The request holds a lone surrogate, which is not text"


def test_a_line_in_any_script_with_escaped_line_ends_is_plain() -> None:
    line = json.dumps({"method": "x", "params": {"text": "“Größe” 日本\n\t"}}, ensure_ascii=False).encode()
    assert is_plain(line)
    assert find_flaw(parse_json(line)) is None


def test_a_line_with_deep_nesting_is_looked_at() -> None:
    line = b'{"method":' + b"[" * 300 + b"]" * 300 + b"}"
    assert not is_plain(line)
    assert find_flaw(parse_json(line)) == "The request is nested too deeply"
