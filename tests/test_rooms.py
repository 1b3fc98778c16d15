"""The rooms and who may see whom, read from the imports of every module."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SRC = Path(__file__).resolve().parent.parent / "src" / "notewright"

MAY_USE = {
    "errors": set(),
    "doors": set(),
    "locks": set(),
    "notes": {"errors", "doors"},
    "stores": {"errors", "locks", "notes"},
    "index": {"errors", "locks", "notes"},
    "ledger": {"errors", "locks", "notes"},
    "engine": {"errors", "doors", "locks", "notes", "stores", "index", "ledger"},
    "config": {"errors", "notes", "engine"},
    "surfaces": {"errors", "notes", "engine", "config"},
    "server": {"errors", "locks", "notes", "engine", "config", "surfaces"},
    "opening": {"errors", "notes", "stores", "index", "ledger", "engine", "config"},
    "cli": {"errors", "notes", "engine", "config", "opening", "app"},  # main() asks app.py to put the parts together
    "web": {
        "errors",
        "ledger",
        "engine",
        "config",
        "opening",
        "surfaces",
        "server",
        "app",
    },  # what app.py serves over HTTP
    "app": {
        "web",
        "errors",
        "notes",
        "stores",
        "index",
        "ledger",
        "engine",
        "config",
        "opening",
        "surfaces",
        "server",
        "cli",
    },
}
LATE = {"app", "cli"}  # may import inside functions, so that `notewright --help` loads nothing heavy
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


def modules() -> list[Path]:
    return sorted(SRC.rglob("*.py"))


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

    yield from walk(ast.parse(file.read_text(encoding="utf-8")), late=False)


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


def test_another_room_is_entered_by_its_front_door() -> None:
    wrong = [
        str(found)
        for found in filter(ours, all_imports())
        if found.room not in ("app", "web", "opening")
        and found.module.split(".")[1] != found.room
        and found.module.count(".") > 1
    ]
    assert wrong == []


def test_imports_stand_at_the_top_of_the_file() -> None:
    assert [str(found) for found in all_imports() if found.late and found.room not in LATE] == []


def test_the_engine_and_what_lies_below_it_know_no_event_loop_and_no_web() -> None:
    below = {"errors", "notes", "stores", "index", "ledger", "engine"}
    wrong = [
        str(found) for found in all_imports() if found.room in below and found.module.split(".")[0] in PARTS_OF_THE_EDGE
    ]
    assert wrong == []


def test_the_command_line_loads_heavy_libraries_late() -> None:
    wrong = [
        str(found)
        for found in all_imports()
        if found.room in LATE and not found.late and found.module.split(".")[0] in HEAVY
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
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
            if name in {"environ", "getenv", "environb"} and room_of(file) != "config":
                wrong.append(f"{file.relative_to(SRC)}:{node.lineno}")  # type: ignore[attr-defined]
    assert wrong == []
