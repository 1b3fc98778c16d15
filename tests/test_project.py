"""What is true of the project as a whole: sizes, pins, and words that may not stand in a tracked file."""

import re
import socket
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from tests import quick
from tests.conftest import left_out, read_files

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
PICTURES = {".png", ".pdf", ".ico", ".woff2", ".gz"}


def tracked() -> list[Path]:
    """Every text file that is, or is about to be, under version control."""
    try:
        asked = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listing = subprocess.run(asked, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no git checkout")
    files = [ROOT / name for name in listing.split("\0") if name]
    return [file for file in files if file.is_file() and file.suffix not in PICTURES]


def lines(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines())


def code_of(file: Path) -> str:
    """The source without its docstrings and other long strings."""
    return re.sub(r'""".*?"""', "", file.read_text(encoding="utf-8"), flags=re.S)


def places(pattern: str, files: list[Path]) -> list[str]:
    """Where a pattern stands, as file:line."""
    wanted, found = re.compile(pattern), []
    for file in files:
        for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if wanted.search(line):
                found.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    return found


def test_the_readme_says_how_to_serve_and_how_to_test() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make serve" in readme
    assert "make test" in readme
    assert len(readme.splitlines()) <= 150


def test_constraints_hold_names_and_versions_only() -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert [pin for pin in pins if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.+!]+", pin)] == []
    assert len(pins) > 20


def test_everything_installed_is_pinned() -> None:
    """A library somebody installed by hand and forgot to pin would be missing in the next checkout."""
    asked = [sys.executable, "-m", "pip", "list", "--format", "freeze", "--exclude", "notewright", "--exclude", "pip"]
    done = subprocess.run([*asked, "--disable-pip-version-check"], capture_output=True, text=True, check=True)
    pinned = set((ROOT / "constraints.txt").read_text(encoding="utf-8").split())
    assert set(done.stdout.split()) - pinned == set()


def test_every_library_the_source_imports_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [
        *project["dependencies"],
        *project["optional-dependencies"]["s3"],
        *project["optional-dependencies"]["live"],
    ]
    declared = {re.split(r"[<>=\[]", name)[0].replace("_", "-").lower() for name in asked}
    owners = packages_distributions()
    wrong = {}
    for file in SRC.rglob("*.py"):
        for name in re.findall(r"^\s*(?:import|from) (\w+)", code_of(file), re.M):
            if name in sys.stdlib_module_names or name == "notewright":
                continue
            if not {owner.replace("_", "-").lower() for owner in owners.get(name, ())} & declared:
                wrong[name] = str(file.relative_to(ROOT))
    assert wrong == {}


def test_no_lock_file_records_an_address_to_download_from() -> None:
    locks = [file for file in tracked() if "lock" in file.name]
    assert places(r'"resolved"|registry\.', locks) == []


def test_no_tracked_file_names_a_machine_or_a_package_registry() -> None:
    files = [file for file in tracked() if file != Path(__file__).resolve()]
    assert places(r"(?<![\w.~$}])/(?:work|home/\w+|root|Users/\w+)/\w", files) == []
    assert places(r"pypi\.org|pythonhosted\.org|registry\.npmjs\.org|--(?:extra-)?index-url", files) == []


def test_the_source_leaves_nothing_for_later() -> None:
    assert places(r"\b(?:TODO|FIXME|XXX|HACK)\b|NotImplementedError", sorted(SRC.rglob("*.py"))) == []


def test_no_class_is_named_after_a_job_title() -> None:
    titles = r"^\s*class \w*(?:Manager|Helper|Util|Utils|Service|Handler|Processor)\b"
    assert places(titles, sorted(SRC.rglob("*.py"))) == []


def test_the_licence_is_written_out() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text and "END OF TERMS AND CONDITIONS" in text


def test_the_same_seed_makes_the_same_vault(tmp_path: Path) -> None:
    tool = ROOT / "tools" / "make_vault.py"
    for name, seed in (("one", "7"), ("two", "7"), ("other", "8")):
        subprocess.run([sys.executable, tool, "60", tmp_path / name, "--seed", seed], check=True, capture_output=True)
    one, two, other = (read_files(tmp_path / name) for name in ("one", "two", "other"))
    assert one == two != other
    assert sum(name.endswith(".md") for name in one) == 60


def test_what_was_skipped_is_counted_by_its_reason() -> None:
    reasons = ["Skipped: service: npm is missing", "Skipped: service: npm is missing", "Skipped: no inotify"]
    assert left_out(reasons) == ["left out, 1 of the tests: no inotify", "left out, 2 of the tests: npm is missing"]


def test_make_check_says_what_it_left_out_and_make_test_installs_it_first() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^test: install system clients$", makefile, re.M)
    assert "make check left out the tests marked slow" in makefile


def test_a_test_that_listens_or_starts_a_process_fails_until_it_is_marked_slow() -> None:
    quick.refuse("test_any.py")
    socket.create_server(("127.0.0.1", 0)).close()
    with pytest.raises(AssertionError, match="listens on a port: mark it slow"):
        quick.refuse("test_any.py")
    quick.forget()
    subprocess.run([sys.executable, "--version"], check=True, capture_output=True)
    with pytest.raises(AssertionError, match="starts a process: mark it slow"):
        quick.refuse("test_any.py")
