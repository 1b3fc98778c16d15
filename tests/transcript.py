"""Transcripts: what an agent says to a surface and hears from it, as text that people read.

    # A line that explains.
    @ workspaces Main=tea, Home=home    which folders of tests/workspaces are served (default: Main=tea)
    @ hide = ["Private/**"]             a setting of every workspace
    @ stdio only                        the wire matters: this one is not replayed over HTTP
    $ save Projects/Tea.md "text"       somebody saves a file outside; `remove PATH`, `keep saving PATH`, `stop saving`
    * 100 read {"path": "Tea"}          the same call so many times, answers not shown
    > read {"path": "Tea"}              a call: a tool and its arguments
      the lines of the answer
    ! the lines of a refusal (isError)
    !! -32602 a JSON-RPC error

What differs from run to run is replaced by a word in angle brackets, all of it in `Words`; a word that was given to an
id in an answer may be used in later calls.
"""

import itertools
import json
import os
import re
import threading
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from tests.stores.parts import JUST_NOW, put

NOTED = 1748764800  # when the files of a workspace were last saved: 2025-06-01T08:00:00Z


class Wire(Protocol):
    """A way to a server."""

    def call(self, tool: str, args: dict[str, Any]) -> dict[str, Any]:
        """The JSON-RPC answer to `tools/call`: it has a `result` or an `error`."""
        ...


@dataclass(frozen=True)
class Transcript:
    """A file of lines: those that are given, and those that are answers."""

    given: tuple[str, ...]
    text: str

    @classmethod
    def read(cls, path: Path) -> "Transcript":
        lines = path.read_text().split("\n")[:-1]
        return cls(tuple(line for line in lines if not _is_answer(line)), path.read_text())

    @property
    def workspaces(self) -> dict[str, str]:
        """Names, and the sample folder each begins with."""
        asked = [line.removeprefix("@ workspaces ") for line in self.given if line.startswith("@ workspaces ")]
        return dict(pair.split("=") for pair in (asked or ["Main=tea"])[0].split(", "))

    @property
    def settings(self) -> dict[str, Any]:
        lines = (line[2:] for line in self.given if line.startswith("@ ") and "=" in line and "workspaces" not in line)
        return tomllib.loads("\n".join(lines))

    @property
    def before(self) -> tuple[str, ...]:
        """What is done outside before the first call, and so before anything is served."""
        lines = itertools.takewhile(lambda line: not line.startswith(("> ", "* ")), self.given)
        return tuple(line[2:] for line in lines if line.startswith("$ save "))

    @property
    def stdio_only(self) -> bool:
        return "@ stdio only" in self.given


def _is_answer(line: str) -> bool:
    return line.startswith(("  ", "! ", "!! ")) or line in ("!", "")


# ---- playing ------------------------------------------------------------------------------------------


@dataclass
class Player:
    """Plays the given lines against a server and writes down what comes back."""

    wire: Wire
    root: Path  # of the first workspace
    words: "Words"
    outside: "Outside"

    def play(self, transcript: Transcript) -> str:
        lines: list[str] = []
        done = len(transcript.before)
        for line in transcript.given:
            if line.startswith(("#", "> ", "* ")) and lines and not lines[-1].startswith(("#", "$", "*")):
                lines.append("")
            lines.append(line)
            if done and line.startswith("$ save "):
                done -= 1
            else:
                lines += self._done(line)
        return "\n".join(lines) + "\n"

    def _done(self, line: str) -> list[str]:
        sign, _, rest = line.partition(" ")
        if sign == ">":
            return self._call(rest)
        if sign == "*":
            times, _, rest = rest.partition(" ")
            for _ in range(int(times)):
                self._call(rest)
        if sign == "$":
            self.outside.act(rest)
        return []

    def _call(self, said: str) -> list[str]:
        tool, _, args = said.partition(" ")
        answer = self.wire.call(tool, _grown(json.loads(self.words.meant(args or "{}"))))
        return list(self._told(answer))

    def _told(self, answer: dict[str, Any]) -> Iterator[str]:
        if "error" in answer:
            error = answer["error"]
            data = f" {json.dumps(error['data'], ensure_ascii=False)}" if "data" in error else ""
            yield self.words.shown(f"!! {error['code']} {error['message']}{data}")
            return
        result = answer["result"]
        sign = "! " if result.get("isError") else "  "
        for block in result["content"]:
            text = (
                block["text"] if block["type"] == "text" else f"[{block['mimeType']}, {len(block['data'])} characters]"
            )
            yield from (sign + line if line else sign.rstrip() for line in self.words.shown(text).split("\n"))
        if "_meta" in result:
            yield self.words.shown(f"{sign}_meta {json.dumps(result['_meta'], ensure_ascii=False)}")


def _grown(value: Any) -> Any:
    """`{"times": ["x", 1000]}` for a text that is too long to be written down."""
    if isinstance(value, dict) and list(value) == ["times"]:
        return value["times"][0] * value["times"][1]
    if isinstance(value, dict):
        return {key: _grown(item) for key, item in value.items()}
    return [_grown(item) for item in value] if isinstance(value, list) else value


class Outside:
    """Somebody else at the files of the first workspace, with an editor."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._stop = threading.Event()
        self._saved = threading.Event()
        self._saving: threading.Thread | None = None

    def act(self, said: str) -> None:
        """`save PATH "text"`, `remove PATH`, `keep saving PATH`, `stop saving`."""
        verb, _, rest = said.partition(" ")
        if verb == "save":
            path, _, text = rest.partition(' "')
            place = self.root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(json.loads('"' + text))
            os.utime(place, (NOTED, NOTED))
        elif verb == "remove":
            (self.root / rest).unlink()
        elif verb == "keep":
            self._saving = threading.Thread(target=self._save, args=(self.root / rest.removeprefix("saving "),))
            self._saving.start()
            self._saved.wait(30)
        elif verb == "stop":
            self.close()

    def _save(self, place: Path) -> None:
        number = 0
        while not self._stop.wait(0.02):
            number += 1
            put(place, b"save %d\n" % number * 20, age=JUST_NOW)
            self._saved.set()

    def close(self) -> None:
        self._stop.set()
        if self._saving is not None:
            self._saving.join(30)


# ---- what differs from run to run ---------------------------------------------------------------------

_CHANGE = re.compile(r'undo\(change="(\w+)"\)|^(\w{8})  \d{4}-\d\d-\d\dT|\bby (\w{8})\b', re.MULTILINE)
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d[:-]\d\d[:-]\d\dZ?")
_VARYING = (
    (re.compile(r'("executionTime": ?)\d+(\.\d+)?'), r"\1<ms>"),
    (re.compile(r'("accessed": ?)"[^"]+"'), r'\1"<time>"'),
    (re.compile(r'("retryAfter": ?)\d+'), r"\1<seconds>"),
    (re.compile(r"(<today>[^\n]* version )[0-9a-f]{12}"), r"\1<version>"),
    (re.compile(r"(Retry after )\d+( seconds)"), r"\1<seconds>\2"),
)


@dataclass
class Words:
    """Words in angle brackets for paths, times and ids."""

    root: Path
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    ids: dict[str, str] = field(default_factory=dict)

    def shown(self, text: str) -> str:
        """What stands in a transcript for a text that a server said."""
        for found in _CHANGE.finditer(text):
            change = found[1] or found[2] or found[3]
            self.ids.setdefault(change, f"<change {len(self.ids) + 1}>")
        for change, word in self.ids.items():
            text = re.sub(rf"\b{change}\b", word, text)
        text = text.replace(str(self.root.parent), "<folder>")
        text = _STAMP.sub(lambda found: "<now>" if self._is_now(found[0]) else found[0], text)
        for day, word in self._days().items():
            text = text.replace(day, word)
        for pattern, word in _VARYING:
            text = pattern.sub(word, text)
        return text

    def meant(self, text: str) -> str:
        """What a server is told for the words of a transcript."""
        for change, word in self.ids.items():
            text = text.replace(word, change)
        return text.replace("<today>", f"{self.began:%Y-%m-%d}")

    def _is_now(self, stamp: str) -> bool:
        plain = stamp.rstrip("Z").replace(":", "-")
        moment = datetime.strptime(plain, "%Y-%m-%dT%H-%M-%S").replace(tzinfo=UTC)
        return abs(moment - self.began) < timedelta(days=1)

    def _days(self) -> dict[str, str]:
        """Today and, should midnight pass meanwhile, tomorrow."""
        return {f"{self.began + timedelta(days=more):%Y-%m-%d}": "<today>" for more in (0, 1)}
