"""What Octarine's own variables and its `.octarinerc.json` say, in our words."""

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
    rc = _rc(here / ".octarinerc.json")
    search, limit = _table(rc, "search"), _table(_table(rc, "performance"), "rateLimit")
    octarine = Octarine(
        search_limit=_number("OCTARINE_SEARCH_LIMIT", variables.get("OCTARINE_SEARCH_LIMIT"))
        or _number("maxResults", search.get("maxResults"))
        or 100,
        preview_length=_number("previewLength", search.get("previewLength")) or 200,
        case_sensitive=search.get("caseSensitive") is True,
        include_hidden=search.get("includeHidden") is True,
        rate_limits=limit.get("enabled") is not False,
        window_seconds=(_number("windowMs", limit.get("windowMs")) or 0) / 1000 or None,
        max_requests=_number("maxRequests", limit.get("maxRequests")),
        log_level=variables.get("OCTARINE_LOG_LEVEL") or _table(rc, "logging").get("level"),
    )
    size = _number("OCTARINE_MAX_FILE_SIZE", variables.get("OCTARINE_MAX_FILE_SIZE"))
    return octarine, _workspaces(rc, variables, here), {"max_file_size": size} if size else {}


def _workspaces(rc: Table, variables: Mapping[str, str], here: Path) -> dict[str, Table]:
    """Those of the file, and every folder in the root that the variable names."""
    tables = {name: _workspace(name, table, here) for name, table in _table(rc, "workspaces").items()}
    root = variables.get("OCTARINE_WORKSPACE_PATH")
    if root:
        place = resolve_location(root, here)
        for name in sorted(os.listdir(place)):
            if not name.startswith(".") and os.path.isdir(os.path.join(place, name)):
                tables.setdefault(name, {"location": resolve_location(name, Path(place))})
    return tables


def _workspace(name: str, table: Any, here: Path) -> Table:
    if not isinstance(table, dict) or not isinstance(table.get("path"), str):
        raise Invalid(f"workspace {name!r} in .octarinerc.json has no path", what="path")
    known = {"readOnly": "read_only", "maxFileSize": "max_file_size", "excludePatterns": "hide"}
    ours = {word: table[key] for key, word in known.items() if table.get(key) is not None}
    return {"location": resolve_location(table["path"], here), **ours}


def _rc(place: Path) -> Table:
    if not os.path.exists(place):  # nor in a folder that may not be looked into
        return {}
    try:
        if place.stat().st_size > MAX_FILE_BYTES:
            raise Invalid(f"{place} is larger than {MAX_FILE_BYTES} bytes", what="config")
        read = json.loads(place.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise Invalid(f"{place} cannot be read: {error}", what="config") from None
    if not isinstance(read, dict):
        raise Invalid(f"{place} must hold an object", what="config")
    return read


def _table(outer: Table, key: str) -> Table:
    inner = outer.get(key, {})
    if not isinstance(inner, dict):
        raise Invalid(f"{key!r} in .octarinerc.json must be an object", what=key)
    return inner


def _number(name: str, raw: Any) -> int | None:
    if raw is None or raw == "":
        return None
    try:
        number = int(raw)
    except (TypeError, ValueError):
        number = -1
    if number < 0:
        raise Invalid(f"{name} must be a whole number, not {raw!r}", what=name)
    return number
