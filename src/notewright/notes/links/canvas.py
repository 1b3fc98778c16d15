"""References in files that are no notes: paths and cards in `.canvas`, plain paths in `.base`."""

import json
import re
from collections.abc import Callable, Mapping

from notewright.notes.edits.splices import Splice, spliced
from notewright.notes.edits.yaml import yaml_item
from notewright.notes.path import NotePath

_JSON_STRING = re.compile(r'(?P<key>"text"\s*:\s*)?(?P<string>"(?:[^"\\]|\\.)*")(?P<colon>\s*:)?')
_YAML_VALUE = re.compile(
    r"""(?:[:,\[-][ \t]+|\[)"""
    r"""(?P<value>"[^"\n]*"|'[^'\n]*'|[^\s"'#\[\]{},](?:[^\n#,\]}:]|:(?!\s))*?)"""
    r"""[ \t]*(?=[\r\n,\]#}]|$)"""
)

Follow = Callable[[str], tuple[str, int]]


def rewritten_references(
    path: NotePath, text: str, moves: Mapping[NotePath, NotePath], follow: Follow
) -> tuple[str, int]:
    """The text with every reference to what moved, and how many there were. `follow` rewrites Markdown in cards."""
    kind = path.lower().rpartition(".")[2]
    if kind == "canvas":
        splices = _in_canvas(text, moves, follow)
    elif kind == "base":
        splices = _in_base(text, moves)
    else:
        return text, 0
    return spliced(text, [splice for splice, _ in splices]), sum(count for _, count in splices)


def _in_canvas(text: str, moves: Mapping[NotePath, NotePath], follow: Follow) -> list[tuple[Splice, int]]:
    found = []
    for match in _JSON_STRING.finditer(text):
        try:
            value = json.loads(match["string"])
        except ValueError:
            continue
        if match["colon"] or not value:
            continue
        new, count = follow(value) if match["key"] else (moves.get(value, value), 1)
        if new != value:
            written = json.dumps(new, ensure_ascii=match["string"].isascii() and not value.isascii())
            found.append((Splice(*match.span("string"), written), count))
    return found


def _in_base(text: str, moves: Mapping[NotePath, NotePath]) -> list[tuple[Splice, int]]:
    found = []
    for match in _YAML_VALUE.finditer(text):
        value = match["value"]
        quote = value[0] if value[0] in "\"'" else ""
        new = moves.get(NotePath(value.strip(quote) if quote else value))
        if new is not None:
            simple = quote and quote not in new and "\\" not in new
            found.append(
                (Splice(*match.span("value"), quote + new + quote if simple else yaml_item(new, inside=True)), 1)
            )
    return found
