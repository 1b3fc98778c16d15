"""Every setting there is: its name, what it is without being set, and what it is for."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from notewright.errors import Invalid
from notewright.lazy_dataclass import NamedTuple


class Setting(NamedTuple):
    """A name as in the file, with its section before a dot."""

    name: str
    default: Any
    help: str
    kind: str = "text"  # text, flag, number, list, path (relative to where it was said)

    @property
    def variable(self) -> str:
        return "NOTEWRIGHT_" + self.name.replace(".", "_").upper()

    def read(self, raw: Any, where: str) -> Any:
        """The value of this setting's kind that a flag, the file or a variable (which is text) gives, or Invalid."""
        read, kind = _KINDS[self.kind]
        value = read(raw)
        if value is None:
            raise Invalid(f"{where} must be {kind}, not {raw!r}", hint=self.help, what=self.name)
        return value


SURFACES = ("notes", "cairn", "lens", "obsidian", "second_brain", "octarine")
TOKEN_USES = (*SURFACES, "api", "page", "metrics")  # what a token can be narrowed to


def normalize_surface(given: str) -> str:
    """A surface's name as we write it: `second-brain` is `second_brain`, in URLs, flags, scopes and configuration."""
    return given.replace("-", "_")


def parse_token_use(given: str) -> str:
    """One of `TOKEN_USES`, as we write it."""
    known = normalize_surface(given.strip())
    if known not in TOKEN_USES:
        raise Invalid(f"there is no surface {given!r}", hint=f"there is {', '.join(TOKEN_USES)}", what="surfaces")
    return known


SETTINGS = (
    Setting("surface", ("notes",), f"Tool surfaces: {', '.join(SURFACES)}", "list"),
    Setting("state", None, "Folder for the ledger (state/) and the index (cache/)"),
    Setting("read_only", False, "Take no writes in any workspace", "flag"),
    Setting("rate_limits", True, "Hold callers to the call limits of Second Brain and Octarine", "flag"),
    Setting("user_quota_files", None, "Files that all workspaces one user may write to may have together", "number"),
    Setting("user_quota_bytes", None, "Bytes that all workspaces one user may write to may have together", "number"),
    Setting("log_level", "warning", "How much to log on stderr: debug, info, warning, error"),
    Setting("log_format", "text", "How the log is written: text or json"),
    Setting("audit_log", None, "File for the audit log, or off; without it audit.jsonl beside the ledger", "path"),
    Setting(
        "workspaces_root",
        None,
        "Folder or s3://bucket/prefix in which the JSON API may make workspaces; without it, nowhere",
        "path",
    ),
    Setting("http.host", "127.0.0.1", "Address to listen on"),
    Setting("http.port", None, "Port to listen on; without one MCP is spoken on stdio", "number"),
    Setting("http.hosts", (), "Host names clients may use, beside those of this machine", "list"),
    Setting("http.origins", (), "Web origins that may call", "list"),
    Setting("http.public_url", None, "Address clients use, as in https://notes.example.com; else what they asked for"),
    Setting("http.tls_cert", None, "Certificate file for HTTPS", "path"),
    Setting("http.tls_key", None, "Key file for HTTPS", "path"),
    Setting("http.trusted_proxies", (), "Addresses whose X-Forwarded-… headers are believed", "list"),
    Setting("http.workers", 1, "Processes that answer", "number"),
    Setting("http.max_request_bytes", 67_108_864, "Bytes one request may have", "number"),
    Setting("http.max_connections", 1000, "Connections at once, in each process", "number"),
    Setting("http.calls_per_minute", 6000, "Calls a user may make where the surface has no limit; 0: any", "number"),
    Setting("http.calls_at_once", 32, "Calls of one user that run at once; more wait their turn", "number"),
    Setting("auth.issuer", None, "OAuth: who issues access tokens"),
    Setting("auth.audience", None, "OAuth: for whom they must be issued; without it, the address that was called"),
    Setting("auth.scopes", (), "OAuth: the issuer's scopes in our words, as in team=notes:read workspace:work", "list"),
    Setting("auth.user_claim", "sub", "OAuth: the claim that names the user in the history"),
    Setting("auth.introspection_url", None, "OAuth: where opaque tokens are asked about; else as the issuer says"),
    Setting("auth.client_id", None, "OAuth: as whom we ask about opaque tokens"),
    Setting("auth.client_secret_file", None, "OAuth: file with the secret for that", "path"),
    Setting("database.url", None, "PostgreSQL for ledger and accounts of many replicas; not yet"),
    Setting("backup.to", None, "Folder or s3://bucket/prefix for backups", "path"),
    Setting("backup.endpoint", None, "Of a bucket for backups: the service's address; without it AWS_ENDPOINT_URL"),
    Setting("backup.region", None, "Of a bucket for backups: without it AWS_REGION or the profile's"),
    Setting("backup.at", "02:00", "When, in UTC"),
    Setting("backup.keep_days", 30, "For how many days they are kept", "number"),
    Setting("history.keep_days", 90, "For how many days changes can be undone", "number"),
    Setting("history.keep_bytes", 1_000_000_000, "How many bytes of replaced notes are kept", "number"),
)
# Known by name, so that a file written for a later version is refused in words and not taken for a mistake.
NOT_YET = frozenset({"database.url"})
WORKSPACE_SETTINGS = (
    Setting("location", None, "The folder of the notes, relative to the file, live:FOLDER, or s3://bucket/prefix"),
    Setting("timezone", "UTC", "What a day is, for daily notes and dates"),
    Setting("read_only", False, "Take no writes", "flag"),
    Setting("hide", (), "Globs of what is absent from every answer", "list"),
    Setting("write_under", ("**",), "Globs of where agents may write", "list"),
    Setting("max_file_size", 10_485_760, "Bytes one note may have", "number"),
    Setting("quota_files", None, "Files the workspace may have", "number"),
    Setting("quota_bytes", None, "Bytes the workspace may have", "number"),
    Setting("bootstrap", None, "para: Second Brain's folders, once, in an empty workspace"),
    Setting("live", False, "Of a folder: open notes are shared documents (Yjs); as live:FOLDER says", "flag"),
    Setting("endpoint", None, "Of a bucket: the service's address; without it AWS_ENDPOINT_URL, else AWS itself"),
    Setting("region", None, "Of a bucket: without it AWS_REGION or the profile's"),
    Setting("path_style", None, "Of a bucket: its name in the path and not in the host's; so with an endpoint", "flag"),
    Setting("poll_seconds", 60, "Of a bucket: seconds between two listings that look for changes by others", "number"),
)
FOLDER_SETTINGS = ("live",)  # said once, where the workspace is named
BUCKET_SETTINGS = ("endpoint", "region", "path_style", "poll_seconds")  # the same
_SECTIONS = tuple(dict.fromkeys(setting.name.split(".")[0] for setting in SETTINGS if "." in setting.name))


def refuse_unknown(written: Mapping[str, Any], place: str) -> None:
    """Invalid unless every key of the file is in the table; the nearest one is named."""
    for key, value in written.items():
        if key == "workspaces":
            if not isinstance(value, dict) or not all(isinstance(table, dict) for table in value.values()):
                what = f"workspaces in {place} must be tables"
                raise Invalid(what, hint='write [workspaces.Name] and location = "…"')
            for name, table in value.items():
                _refuse_unknown_keys(table, [one.name for one in WORKSPACE_SETTINGS], f"[workspaces.{name}] of {place}")
                if "location" not in table:
                    raise Invalid(f"[workspaces.{name}] of {place} has no location", hint='add location = "folder"')
        elif key in _SECTIONS and isinstance(value, dict):
            inside = [setting.name.split(".")[1] for setting in SETTINGS if setting.name.startswith(f"{key}.")]
            _refuse_unknown_keys(value, inside, f"[{key}] of {place}")
        else:
            plain = [setting.name for setting in SETTINGS if "." not in setting.name]
            _refuse_unknown_keys([key], [*plain, *_SECTIONS, "workspaces"], place)


def _refuse_unknown_keys(keys: Iterable[str], known: list[str], where: str) -> None:
    for key in keys:
        if key not in known:
            raise Invalid(f"{where} has an unknown setting {key!r}", hint=suggest(key, known), what=key)


def suggest(name: str, known: Iterable[str]) -> str:
    """A hint with the name that was probably meant, else with all names there are."""
    import difflib

    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]}?" if close else f"there is {', '.join(names)}" if names else "there is none"


def _read_flag(raw: Any) -> bool | None:
    if isinstance(raw, str):
        word = raw.strip().lower()
        return True if word in ("1", "true", "yes", "on") else False if word in ("0", "false", "no", "off") else None
    return raw if isinstance(raw, bool) else None


def _read_number(raw: Any) -> int | None:
    if isinstance(raw, str) and re.fullmatch(r"\d+(_\d+)*", raw.strip(), re.ASCII):
        return int(raw)
    return raw if isinstance(raw, int) and not isinstance(raw, bool) and raw >= 0 else None


def _read_list(raw: Any) -> tuple[str, ...] | None:
    if isinstance(raw, str):
        return tuple(part.strip() for part in raw.split(",") if part.strip())
    return tuple(raw) if isinstance(raw, list | tuple) and all(isinstance(part, str) for part in raw) else None


def _read_text(raw: Any) -> str | None:
    return raw if isinstance(raw, str) and raw else None


_KINDS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "flag": (_read_flag, "true or false"),
    "number": (_read_number, "a whole number"),
    "list": (_read_list, "a list of texts"),
    "text": (_read_text, "a text"),
    "path": (_read_text, "a path"),
}
