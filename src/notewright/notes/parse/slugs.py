"""Anchors that renderers make of headings."""

import re
import unicodedata
from collections.abc import Iterable

_KEPT = frozenset(("Ll", "Lu", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "Pc"))
_RINGED = re.compile(
    "[\u24b6-\u24e9\U0001f130-\U0001f149\U0001f150-\U0001f169\U0001f170-\U0001f189]"
)  # circled, squared


def github_slug(heading: str) -> str:
    """The anchor GitHub makes: lower case, blanks as dashes, letters, marks, digits, `_` and `-` kept."""
    return "".join(_github(char) for char in heading.lower())


def _github(char: str) -> str:
    if char == " ":
        return "-"
    return char if char == "-" or unicodedata.category(char) in _KEPT or _RINGED.match(char) else ""


def obsidian_slug(heading: str) -> str:
    """A heading as Obsidian writes it into a link: what would end or break the link left out."""
    return " ".join(re.sub(r"[#|^:\\]|%%|\[\[|\]\]", " ", heading).split())


STYLES = {"github": github_slug, "obsidian": obsidian_slug}


def heading_slugs(headings: Iterable[str], style: str = "github") -> list[str]:
    """One anchor for each heading; repeats are numbered as GitHub does."""
    make, seen, slugs = STYLES[style], dict[str, int](), list[str]()
    for heading in headings:
        base = slug = make(heading)
        while style == "github" and slug in seen:
            seen[base] += 1
            slug = f"{base}-{seen[base]}"
        seen[slug] = 0
        slugs.append(slug)
    return slugs
