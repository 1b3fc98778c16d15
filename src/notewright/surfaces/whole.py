"""Answers that a dialect does not bound: sent whole up to a mebibyte, cut at an entry beyond it."""

import json
from collections.abc import Sequence
from typing import Any

from notewright.surfaces.base import Answer

MOST_BYTES = 1 << 20


def whole(entries: Sequence[str], narrow: str, *, separator: str = "\n", around: tuple[str, str] = ("", "")) -> Answer:
    """The entries joined; `narrow` names the argument that asks for fewer."""
    room, kept = MOST_BYTES, 0
    for entry in entries:
        room -= len(entry.encode("utf-8", "replace")) + len(separator)
        if room < 0:
            break
        kept += 1
    text = around[0] + separator.join(entries[:kept]) + around[1]
    if kept == len(entries):
        return Answer.of(text)
    said = f"Cut: {kept} of {len(entries)} shown. Narrow the {narrow}."
    return Answer.of(text, said, meta={"truncated": True, "total": len(entries)})


def whole_json(rows: Sequence[Any], narrow: str) -> Answer:
    """A JSON list in Python's default spacing."""
    return whole([json.dumps(row, ensure_ascii=False) for row in rows], narrow, separator=", ", around=("[", "]"))
