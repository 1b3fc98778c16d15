"""Octarine's own variables and its `.octarinerc.json`, as settings of ours."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from notewright.config.locations import resolve_location
from notewright.errors import Invalid
from notewright.lazy_dataclass import NamedTuple

MAX_FILE_BYTES = 1_000_000
Table = dict[str, Any]


class Octarine(NamedTuple):
    """Settings of that surface alone."""

    search_limit: int = 100
    preview_length: int = 200
    case_sensitive: bool = False
    include_hidden: bool = False
    rate_limits: bool = True
    window_seconds: float | None = None  # with max_requests: in place of its four limits
    max_requests: int | None = None
    log_level: str | None = None


def read_octarine(variables: Mapping[str, str], here: Path) -> tuple[Octarine, dict[str, Table], Table]:
    """Its settings, its workspaces by name, and what holds for every workspace. The file is that of the working
    directory, never of a workspace: nothing in a note configures the server."""
    rc, place = Table(), here / ".octarinerc.json"
    if os.path.exists(place):  # False also in a folder that may not be looked into
        try:
            if place.stat().st_size > MAX_FILE_BYTES:
                raise Invalid(f"{place} is larger than {MAX_FILE_BYTES} bytes", what="config")
            rc = json.loads(place.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise Invalid(f"{place} cannot be read: {error}", what="config") from None
        if not isinstance(rc, dict):
            raise Invalid(f"{place} must hold an object", what="config")
    search, limit = _get_table(rc, "search"), _get_table(_get_table(rc, "performance"), "rateLimit")
    octarine = Octarine(
        search_limit=_read_number("OCTARINE_SEARCH_LIMIT", variables.get("OCTARINE_SEARCH_LIMIT"))
        or _read_number("maxResults", search.get("maxResults"))
        or 100,
        preview_length=_read_number("previewLength", search.get("previewLength")) or 200,
        case_sensitive=search.get("caseSensitive") is True,
        include_hidden=search.get("includeHidden") is True,
        rate_limits=limit.get("enabled") is not False,
        window_seconds=(_read_number("windowMs", limit.get("windowMs")) or 0) / 1000 or None,
        max_requests=_read_number("maxRequests", limit.get("maxRequests")),
        log_level=variables.get("OCTARINE_LOG_LEVEL") or _get_table(rc, "logging").get("level"),
    )
    size = _read_number("OCTARINE_MAX_FILE_SIZE", variables.get("OCTARINE_MAX_FILE_SIZE"))
    return octarine, _find_workspaces(rc, variables, here), {"max_file_size": size} if size else {}


def _find_workspaces(rc: Table, variables: Mapping[str, str], here: Path) -> dict[str, Table]:
    """The workspaces of the file, and every folder in the root that the variable names."""
    words = {"readOnly": "read_only", "maxFileSize": "max_file_size", "excludePatterns": "hide"}
    tables: dict[str, Table] = {}
    for name, table in _get_table(rc, "workspaces").items():
        if not isinstance(table, dict) or not isinstance(table.get("path"), str):
            raise Invalid(f"workspace {name!r} in .octarinerc.json has no path", what="path")
        ours = {word: table[key] for key, word in words.items() if table.get(key) is not None}
        tables[name] = {"location": resolve_location(table["path"], here), **ours}
    root = variables.get("OCTARINE_WORKSPACE_PATH")
    if root:
        place = resolve_location(root, here)
        for name in sorted(os.listdir(place)):
            if not name.startswith(".") and os.path.isdir(os.path.join(place, name)):
                tables.setdefault(name, {"location": resolve_location(name, Path(place))})
    return tables


def _get_table(outer: Table, key: str) -> Table:
    inner = outer.get(key, {})
    if not isinstance(inner, dict):
        raise Invalid(f"{key!r} in .octarinerc.json must be an object", what=key)
    return inner


def _read_number(name: str, raw: Any) -> int | None:
    if raw is None or raw == "":
        return None
    try:
        number = int(raw)
    except (TypeError, ValueError):
        number = -1
    if number < 0:
        raise Invalid(f"{name} must be a whole number, not {raw!r}", what=name)
    return number
