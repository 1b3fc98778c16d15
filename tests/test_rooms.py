"""The rooms and who may see whom, read from the imports of every module."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SRC = Path(__file__).resolve().parent.parent / "src" / "notewright"
SIZES = Path(__file__).with_name("sizes.txt")

BELOW_ENGINE = {"errors", "lazy_dataclass", "locks", "notes", "config", "stores", "index", "ledger", "accounts"}
MAY_USE: dict[str, set[str]] = {
    "errors": set(),
    "lazy_dataclass": set(),
    "disk_sync": set(),
    "locks": set(),
    "sqlite_file": {"errors", "locks"},
    "notes": {"errors", "lazy_dataclass"},
    "config": {"errors", "lazy_dataclass", "notes"},
    "stores": {"errors", "lazy_dataclass", "disk_sync", "locks", "sqlite_file", "notes"},
    "index": {"errors", "lazy_dataclass", "locks", "sqlite_file", "notes"},
    "ledger": {"errors", "lazy_dataclass", "disk_sync", "locks", "sqlite_file", "notes"},
    "accounts": {"errors", "locks", "sqlite_file", "notes"},
    "engine": BELOW_ENGINE,
    "surfaces": {*BELOW_ENGINE, "engine"},
    "mcp": {*BELOW_ENGINE, "engine", "surfaces"},
    "server": {*BELOW_ENGINE, "engine", "surfaces", "mcp"},
    "api": {*BELOW_ENGINE, "engine", "surfaces", "mcp", "server"},
    "web": {*BELOW_ENGINE, "engine", "surfaces", "mcp", "server", "api"},
    "cli": {*BELOW_ENGINE, "engine", "app"},  # main() asks app/ to put the parts together
    "app": {*BELOW_ENGINE, "engine", "surfaces", "mcp", "server", "api", "web", "cli"},
}
CONCRETE = ("stores.folder", "stores.s3", "index.sqlite", "ledger.sqlite", "accounts.sqlite", "accounts.limits_files")
COMPOSERS = {"app"}  # the only room that names one of those
MAX_PUBLIC_MODULES = 10  # of one package
LATE = {"app", "cli"}  # may import inside functions, so that `notewright --help` loads nothing heavy
SPARED = {  # imported inside functions elsewhere too: a search on the command line takes no longer than to load them
    "ctypes",
    "dataclasses",
    "difflib",
    "hashlib",
    "logging",
    "shutil",
    "tomllib",
    "zoneinfo",
    "notewright.disk_sync",
    "notewright.index.sqlite",
    "notewright.index.sqlite.build",
    "notewright.index.sqlite.grep_candidates",
    "notewright.index.sqlite.rows",
    "notewright.notes.excerpts",
    "notewright.notes.links.resolve",
    "notewright.stores.folder",
    "notewright.stores.folder.atomic",
    "notewright.stores.folder.temp_names",
    "notewright.stores.folder.watch",
}
HEAVY = {"mcp", "starlette", "uvicorn", "rich", "watchfiles"}
PARTS_OF_THE_EDGE = {"mcp", "starlette", "uvicorn", "asyncio", "anyio"}


@dataclass(frozen=True)
class Import:
    """One name a module imports, and where."""

    file: Path
    line: int
    module: str
    late: bool  # inside a function

    @property
    def room(self) -> str:
        return room_of(self.file)

    def __str__(self) -> str:
        return f"{self.file.relative_to(SRC)}:{self.line} imports {self.module}"


def room_of(file: Path) -> str:
    return file.relative_to(SRC).parts[0].removesuffix(".py")


def package_of(file: Path) -> str:
    """The dotted name of the package a file lies in."""
    return ".".join(("notewright", *file.relative_to(SRC).parent.parts))


def modules() -> list[Path]:
    return sorted(SRC.rglob("*.py"))


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def named(node: ast.AST, file: Path) -> Iterator[str]:
    """The absolute names of the modules an import statement asks for."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        package = ("notewright", *file.relative_to(SRC).parent.parts)
        base = ".".join(package[: len(package) + 1 - node.level]) if node.level else ""
        module = ".".join(filter(None, (base, node.module)))
        if module == "notewright":
            yield from (f"notewright.{alias.name}" for alias in node.names if alias.name != "__version__")
        else:
            yield module


def imports(file: Path) -> Iterator[Import]:
    def walk(node: ast.AST, late: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            for module in named(child, file):
                yield Import(file, child.lineno, module, late)  # type: ignore[attr-defined]
            yield from walk(child, late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))

    yield from walk(parsed(file), late=False)


@cache
def all_imports() -> list[Import]:
    return [found for file in modules() if file != SRC / "__init__.py" for found in imports(file)]


def ours(found: Import) -> bool:
    return found.module.startswith("notewright.")


def test_every_module_lives_in_a_known_room() -> None:
    rooms = {room_of(file) for file in modules()} - {"__init__", "__main__"}
    assert rooms <= set(MAY_USE)


def test_every_room_uses_only_the_rooms_below_it() -> None:
    wrong = [
        str(found)
        for found in filter(ours, all_imports())
        if (room := found.module.split(".")[1]) != found.room and room not in MAY_USE[found.room]
    ]
    assert wrong == []


def test_the_own_modules_of_a_package_are_imported_by_nobody_else() -> None:
    wrong = [
        str(found)
        for found in filter(ours, all_imports())
        if "._" in found.module and found.module.rpartition("._")[0] != package_of(found.file)
    ]
    assert wrong == []


def test_only_the_composer_names_a_concrete_store_index_or_ledger() -> None:
    wrong = [
        str(found)
        for found in filter(ours, all_imports())
        if found.module.removeprefix("notewright.").startswith(CONCRETE)
        and found.room != found.module.split(".")[1]
        and found.room not in COMPOSERS
    ]
    assert wrong == []


def test_a_package_holds_a_docstring_and_a_handful_of_public_modules() -> None:
    for init in SRC.rglob("__init__.py"):
        body = parsed(init).body
        assert all(isinstance(node, ast.Expr) for node in body) or init.parent == SRC, f"{init}: more than a docstring"
        public = [file.stem for file in init.parent.glob("*.py") if not file.stem.startswith("_")]
        assert len(public) <= MAX_PUBLIC_MODULES, f"{init.parent}: {sorted(public)}"


def test_a_class_name_means_one_thing() -> None:
    named: dict[str, list[str]] = {}
    for file in modules():
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.ClassDef):
                named.setdefault(node.name, []).append(str(file.relative_to(SRC)))
    assert {name: files for name, files in named.items() if len(files) > 1} == {}


def test_a_module_that_a_docstring_names_is_there() -> None:
    wrong = [
        f"{file.relative_to(SRC)} names {named}"
        for file in modules()
        for named in re.findall(r"`([\w/]+\.py)`", file.read_text(encoding="utf-8"))
        if not any((place / named).is_file() for place in (SRC, file.parent, SRC.parent.parent))
    ]
    assert wrong == []


def identifiers() -> set[str]:
    """Every name in the code, but not in docstrings and comments."""
    nodes = [node for file in modules() for node in ast.walk(parsed(file))]
    return {getattr(node, kind) for node in nodes for kind in ("name", "id", "attr", "arg") if hasattr(node, kind)}


def test_a_method_or_field_that_a_docstring_names_is_there() -> None:
    known = identifiers()
    wrong = [
        f"{file.relative_to(SRC)} names {owner}.{member}"
        for file in modules()
        for owner, member in re.findall(r"`([A-Z]\w+)\.(\w+)[`(]", file.read_text(encoding="utf-8"))
        if member != "md" and not {owner, member} <= known
    ]
    assert wrong == []


def test_a_room_grows_only_in_the_commit_that_says_why() -> None:
    """`tests/sizes.txt` says how many lines and modules each room has at most. Shrinking is free: write it down."""
    most = {room: (int(lines), int(count)) for room, lines, count in map(str.split, SIZES.read_text().splitlines())}
    now: dict[str, tuple[int, int]] = {}
    for file in modules():
        lines, count = now.get(room_of(file), (0, 0))
        now[room_of(file)] = lines + len(file.read_text(encoding="utf-8").splitlines()), count + 1
    assert set(now) == set(most)
    assert {room: size for room, size in now.items() if size[0] > most[room][0] or size[1] > most[room][1]} == {}


def test_imports_stand_at_the_top_of_the_file() -> None:
    late = [found for found in all_imports() if found.late and found.room not in LATE]
    assert [str(found) for found in late if found.module not in SPARED] == []


def test_the_engine_and_what_lies_below_it_know_no_event_loop_and_no_web() -> None:
    below = {*BELOW_ENGINE, "engine"}
    wrong = [
        str(found) for found in all_imports() if found.room in below and found.module.split(".")[0] in PARTS_OF_THE_EDGE
    ]
    assert wrong == []


def test_the_command_line_loads_heavy_libraries_late() -> None:
    wrong = [
        str(found)
        for found in all_imports()
        if found.room in LATE
        and not found.late
        and found.module.split(".")[0] in HEAVY
        and found.file.name != "compose_http.py"  # itself loaded late, when HTTP is served
    ]
    assert wrong == []


def test_notes_do_no_input_and_output() -> None:
    doors = {
        "os",
        "io",
        "pathlib",
        "subprocess",
        "socket",
        "sqlite3",
        "apsw",
        "time",
        "threading",
        "tempfile",
        "shutil",
    }
    assert [str(found) for found in all_imports() if found.room == "notes" and found.module in doors] == []


def test_only_config_reads_the_environment() -> None:
    wrong = []
    for file in modules():
        for node in ast.walk(parsed(file)):
            name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
            if name in {"environ", "getenv", "environb"} and room_of(file) != "config":
                wrong.append(f"{file.relative_to(SRC)}:{node.lineno}")  # type: ignore[attr-defined]
    assert wrong == []
