"""Configuration from outside: flags over NOTEWRIGHT_… variables over a file over the defaults.

One table (`settings.py`) knows every setting; the environment is read here and nowhere else. The result is one frozen
Config.
"""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from notewright.config.locations import (
    is_bucket,
    parse_bucket_location,
    refuse_inside,
    refuse_not_yet,
    refuse_overlap,
    resolve_location,
    split_live,
    split_location,
    workspace_id,
)
from notewright.config.octarine import Octarine, Table, read_octarine
from notewright.config.settings import (
    BUCKET_SETTINGS,
    FOLDER_SETTINGS,
    NOT_YET,
    SETTINGS,
    SURFACES,
    WORKSPACE_SETTINGS,
    Setting,
    normalize_surface,
    refuse_unknown,
    suggest,
)
from notewright.errors import Invalid, NotFound
from notewright.lazy_dataclass import NamedTuple, dataclass, field, replace
from notewright.notes.times import load_timezone

CHANGEABLE_SETTINGS = tuple(
    one.name
    for one in WORKSPACE_SETTINGS
    if one.name not in ("location", "bootstrap", *FOLDER_SETTINGS, *BUCKET_SETTINGS)
)
_NOT_SETTINGS = {"NOTEWRIGHT_CONFIG", "NOTEWRIGHT_SHARED", "NOTEWRIGHT_SEEDS", "NOTEWRIGHT_CI"}


@dataclass(frozen=True, slots=True)
class WorkspaceConfig:
    """One workspace: where it is and what holds there."""

    name: str
    id: str
    location: str  # an absolute folder or s3://bucket/prefix
    timezone: str = "UTC"
    read_only: bool = False
    hide: tuple[str, ...] = ()
    write_under: tuple[str, ...] = ("**",)
    max_file_size: int = 10_485_760
    quota_files: int | None = None
    quota_bytes: int | None = None
    bootstrap: str | None = None
    live: bool = False
    endpoint: str | None = None
    region: str | None = None
    path_style: bool | None = None
    poll_seconds: int = 60


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration. `config["http.port"]` is a setting of the table."""

    workspaces: tuple[WorkspaceConfig, ...]
    state: str  # the folder of the ledger
    cache: str  # the folder of the index
    values: Mapping[str, Any] = field(default_factory=lambda: {setting.name: setting.default for setting in SETTINGS})
    octarine: Octarine = field(default_factory=Octarine)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


class CommandLine(NamedTuple):
    """What was given on the command line. `flags` are settings of the table by name; None means not given."""

    locations: tuple[str, ...] = ()  # [NAME=]LOCATION
    file: str | None = None
    flags: Mapping[str, Any] = MappingProxyType({})


def load(asked: CommandLine, *, environ: Mapping[str, str] = os.environ, folder: str | None = None) -> Config:
    """The Config of this process, or Invalid that names the setting. `folder` is the working directory."""
    return prepare_config(asked, environ=environ, folder=folder)(asked.locations)


def prepare_config(
    asked: CommandLine, *, environ: Mapping[str, str] = os.environ, folder: str | None = None
) -> Callable[[tuple[str, ...]], Config]:
    """Read everything but the locations, once. The function that is returned makes a Config for any locations."""
    here = Path(folder or os.getcwd())
    variables = {setting.variable for setting in (*SETTINGS, *WORKSPACE_SETTINGS)} | _NOT_SETTINGS
    for name in environ:
        if name.startswith("NOTEWRIGHT_") and name not in variables:
            import logging

            hint = suggest(name, sorted(variables))
            logging.getLogger(__name__).warning("the variable %s is no setting: %s", name, hint)
    place = asked.file or environ.get("NOTEWRIGHT_CONFIG")
    written = _read_file(here / Path(place).expanduser()) if place else {}
    beside = (here / Path(place).expanduser()).parent if place else here
    values = _read_values(asked.flags, environ, written, here, beside)
    for name in values["surface"]:
        if normalize_surface(name) not in SURFACES:
            raise Invalid(f"there is no surface {name!r}", hint=suggest(name, SURFACES), what="surface")
    values["surface"] = tuple(map(normalize_surface, values["surface"]))
    octarine, octarine_tables, common = Octarine(), dict[str, Table](), Table()
    if "octarine" in values["surface"] or values["http.port"] is not None:
        octarine, octarine_tables, common = read_octarine(environ, here)
    state, cache = _state_folders(values["state"], environ, here)

    def configure(locations: tuple[str, ...]) -> Config:
        tables = _workspace_tables(locations, written, octarine_tables, here, beside)
        workspaces: list[WorkspaceConfig] = []
        for name, table in tables.items():
            id = workspace_id(name, {workspace.id for workspace in workspaces})
            workspaces.append(_configure_workspace(name, id, common | table, environ, values["read_only"]))
        refuse_overlap((workspace.location, workspace.name) for workspace in workspaces)
        for setting in SETTINGS:  # refused rather than ignored: a user may rely on it
            if setting.name in NOT_YET and values[setting.name] != setting.default:
                raise Invalid(f"{setting.name} is not in this version", hint="leave it out", what=setting.name)
        for workspace in workspaces:
            for ours in (state, cache):
                refuse_inside(ours, workspace.location, chosen=values["state"] is not None)
        return Config(tuple(workspaces), state, cache, values, octarine)

    return configure


def obsidian_vault() -> str | None:
    """The folder that the obsidian surface's own variable names."""
    return os.environ.get("OBSIDIAN_VAULT_PATH") or None


class UserFolders(NamedTuple):
    """Where programs of this user keep their settings."""

    home: Path
    settings: Path

    @property
    def obsidian_lists(self) -> tuple[Path, ...]:
        """Where the Obsidian app keeps its list of vaults, however it was installed."""
        flatpak = self.home / ".var/app/md.obsidian.Obsidian/config"
        snap = self.home / "snap/obsidian/current/.config"
        return tuple(place / "obsidian" / "obsidian.json" for place in (self.settings, flatpak, snap))


def user_folders() -> UserFolders:
    home = Path(os.environ.get("HOME") or Path.home())
    if sys.platform == "darwin":
        return UserFolders(home, home / "Library" / "Application Support")
    return UserFolders(home, Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config"))


def set_metrics_folder(folder: str | Path) -> None:
    """Make this process and its children keep their metrics in files of this folder, so that any of them can report the
    sum: prometheus_client reads the folder from a variable."""
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)


def _read_file(place: Path) -> dict[str, Any]:
    import tomllib

    try:
        with place.open("rb") as file:
            written = tomllib.load(file)
    except FileNotFoundError:
        raise NotFound(f"there is no configuration file {place}", what="file") from None
    except (OSError, ValueError) as error:
        raise Invalid(f"{place} cannot be read: {error}", what="config") from None
    refuse_unknown(written, place.name)
    return written


def _read_values(
    flags: Mapping[str, Any], variables: Mapping[str, str], written: Mapping[str, Any], here: Path, beside: Path
) -> dict[str, Any]:
    """Every setting. Paths in the file are relative to it, others to the working directory."""
    values: dict[str, Any] = {}
    for setting in SETTINGS:
        section, _, key = setting.name.rpartition(".")
        raw, where, folder = flags.get(setting.name), "--" + key.replace("_", "-"), here
        if raw is None and variables.get(setting.variable):
            raw, where = variables[setting.variable], setting.variable
        if raw is None:
            raw, where, folder = (written.get(section, {}) if section else written).get(key), setting.name, beside
        value = setting.default if raw is None else setting.read(raw, where)
        if setting.kind == "path" and value not in (None, "off"):
            if setting.name in ("workspaces_root", "backup.to") and is_bucket(value):
                value = parse_bucket_location(value)
            else:
                refuse_not_yet(value)
                value = str(folder / Path(value).expanduser())
        values[setting.name] = value
    return values


def _workspace_tables(
    locations: tuple[str, ...], written: Mapping[str, Any], octarine: Mapping[str, Table], here: Path, beside: Path
) -> dict[str, Table]:
    """The settings of each workspace by name: those of the command line, else of the file, else Octarine's own."""
    in_file: Mapping[str, Table] = written.get("workspaces", {})
    tables: dict[str, Table] = {}
    for raw in locations:
        name, location = split_location(raw, here)
        if name in tables:
            raise Invalid(f"two workspaces are named {name!r}", hint="name one, as in Work=FOLDER", what="location")
        tables[name] = octarine.get(name, {}) | in_file.get(name, {}) | {"location": location}
    if not tables:
        for name, table in in_file.items():
            location = Setting("location", None, "a folder").read(table["location"], f"location of {name!r}")
            tables[name] = octarine.get(name, {}) | table | {"location": resolve_location(location, beside)}
    return tables or dict(octarine)


def _configure_workspace(
    name: str, id: str, table: Table, variables: Mapping[str, str], read_only: bool
) -> WorkspaceConfig:
    location, live = split_live(table["location"])
    workspace = WorkspaceConfig(name, id, location, live=live)
    for setting in WORKSPACE_SETTINGS[1:]:
        raw, where = table.get(setting.name), f"{setting.name} of workspace {name!r}"
        if variables.get(setting.variable):
            raw, where = variables[setting.variable], setting.variable
        if raw is not None:
            workspace = replace(workspace, **{setting.name: setting.read(raw, where)})
    _refuse_unknown_timezone(workspace)
    if workspace.bootstrap not in (None, "para"):
        raise Invalid(f"bootstrap of workspace {name!r} must be para, not {workspace.bootstrap!r}", what="bootstrap")
    return replace(workspace, read_only=workspace.read_only or read_only)


def apply_settings(workspace: WorkspaceConfig, settings: Mapping[str, Any]) -> WorkspaceConfig:
    """The same workspace with other settings, `name` and `id` among them; Invalid for one that does not exist."""
    known = {setting.name: setting for setting in WORKSPACE_SETTINGS}
    for key, raw in settings.items():
        if key in ("name", "id"):
            value: Any = str(raw)
        elif key not in known or key in ("location", "bootstrap"):
            raise Invalid(f"{key} cannot be set", hint=suggest(key, CHANGEABLE_SETTINGS), what=key)
        else:
            value = (
                known[key].default if raw is None else known[key].read(raw, f"{key} of workspace {workspace.name!r}")
            )
        workspace = replace(workspace, **{key: value})
    _refuse_unknown_timezone(workspace)
    return workspace


def _refuse_unknown_timezone(workspace: WorkspaceConfig) -> None:
    try:
        load_timezone(workspace.timezone)
    except (KeyError, ValueError, OSError):
        hint = "use a name like Australia/Melbourne"
        raise Invalid(
            f"workspace {workspace.name!r}: {workspace.timezone!r} is no timezone", hint=hint, what="timezone"
        ) from None


def _state_folders(chosen: str | None, variables: Mapping[str, str], here: Path) -> tuple[str, str]:
    """Where the ledger and the index are kept."""
    if chosen is not None:
        root = here / Path(chosen).expanduser()
        return str(root / "state"), str(root / "cache")
    home = Path(variables.get("HOME") or Path.home())
    state = variables.get("XDG_STATE_HOME") or home / ".local" / "state"
    cache = variables.get("XDG_CACHE_HOME") or home / ".cache"
    return str(Path(state) / "notewright"), str(Path(cache) / "notewright")
