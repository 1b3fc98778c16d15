"""Somebody who types commands."""

import json
from typing import Any

import pytest

from notewright.cli.main import main


class CommandLine:
    """Every command has the `usual` options at its end."""

    def __init__(self, capture: pytest.CaptureFixture[str], *usual: str) -> None:
        self.capture, self.usual = capture, usual

    def run(self, *words: str, code: int = 0) -> tuple[str, str]:
        """What a command prints and says beside."""
        try:
            ended: Any = main([*words, *self.usual])
        except SystemExit as left:
            ended = left.code
        read = self.capture.readouterr()
        assert ended == code, read.err
        assert "Traceback" not in read.err
        return read.out, read.err

    def json(self, *words: str, code: int = 0) -> Any:
        return json.loads(self.run(*words, "--json", code=code)[0])
