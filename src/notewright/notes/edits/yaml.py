"""Values as YAML that every reader takes for the same values: plain where that is safe, else quoted."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from notewright.errors import Invalid

ListStyle = Literal["block", "flush", "flow"]  # "  - a" below the key, "- a" below the key, "[a, b]" beside it

_WORD = re.compile(r"true|false|yes|no|on|off|null|none|nan|~|=|<<|[-+]?\.inf|\.nan", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?(?:\.?\d[\d_,.:]*(?:[eE][-+]?\d+)?|0[xXoObB][\da-fA-F_]+)")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?)?")
_FIRST = re.compile(r"[^\s\-?:,\[\]{}#&*!|>'\"%@`]")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def yaml_entry(key: str, value: Any, style: ListStyle = "block", *, quoted: bool = False) -> str:
    """The lines of one property, joined by `\\n`, without a last line end. `quoted`: every text in quotes."""
    name = _text(key, inside=True)
    if value is None:
        return f"{name}:"
    if style == "flow" or not isinstance(value, (list, tuple, Mapping)) or not value:
        return f"{name}: {_flow(value, quoted, inside=isinstance(value, (list, tuple, Mapping)))}"
    if isinstance(value, Mapping):
        return "\n".join([f"{name}:", *("  " + yaml_entry(str(k), v, "flow", quoted=quoted) for k, v in value.items())])
    dash = "- " if style == "flush" else "  - "
    return "\n".join([f"{name}:", *(dash + yaml_item(item, quoted=quoted) for item in value)])


def yaml_item(value: Any, *, inside: bool = False, quoted: bool = False) -> str:
    """One member of a list, on one line. `inside`: between brackets."""
    return _flow(value, quoted, inside=inside or isinstance(value, (list, tuple, Mapping)))


def yaml_block(properties: Mapping[str, Any], style: ListStyle = "block") -> str:
    """A whole frontmatter with its fences, or nothing where there are no properties."""
    if not properties:
        return ""
    return "\n".join(["---", *(yaml_entry(key, value, style) for key, value in properties.items()), "---", ""])


def _flow(value: Any, quoted: bool, *, inside: bool) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float() if math.isfinite(value):
            return repr(value)
        case str():
            return _in_quotes(value) if quoted else _text(value, inside=inside)
        case Mapping():
            pairs = (
                f"{_text(str(key), inside=True)}: {_flow(member, quoted, inside=True)}" for key, member in value.items()
            )
            return "{" + ", ".join(pairs) + "}"
        case Sequence():
            return "[" + ", ".join(_flow(member, quoted, inside=True) for member in value) + "]"
    raise Invalid(f"a property cannot hold {value!r:.80}", hint="use text, numbers, lists or objects", what="value")


def _text(text: str, *, inside: bool) -> str:
    """Plain where no reader can take it for another type, else quoted; between brackets and in keys less is plain."""
    return text if _plain(text) and not (inside and re.search(r"[,\[\]{}:]", text)) else _in_quotes(text)


def _plain(text: str) -> bool:
    if not _FIRST.match(text) or text != text.strip() or _UNSAFE.search(text) or text.startswith("..."):
        return False
    if ": " in text or " #" in text or text.endswith(":") or "\t#" in text or ":\t" in text:
        return False
    if _WORD.fullmatch(text) or _SURROGATE.search(text):
        return False
    return not _NUMBER.fullmatch(text) or _DATE.fullmatch(text) is not None


def _in_quotes(text: str) -> str:
    if _SURROGATE.search(text):
        raise Invalid("a property's text is not valid Unicode", what="value")
    return _UNSAFE.sub(lambda sign: f"\\u{ord(sign[0]):04x}", json.dumps(text, ensure_ascii=False))
