"""Where the shared exams are, for the tests that sit them; and what may be skipped."""

import gc
import logging
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from tests import found, quick

from notewright.app.opening import close_workspace, open_workspace
from notewright.config.load import Config, WorkspaceConfig
from notewright.engine.workspace import Workspace

if TYPE_CHECKING:
    from tests.bucket import Bucket, Ceph, Weed

ROOT = Path(__file__).resolve().parent.parent
REAL_VAULTS = (  # among the shared vaults, those that independent tools have read
    "interconnected-1000",
    "iron-vault-docs",
    "kepano-obsidian",
    "knowledge-garden-zh",
    "quartz-docs",
    "tasks-contributing",
    "tasks-docs",
)
Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)
NO_SKIPPING = os.environ.get("NOTEWRIGHT_CI") == "1"

found.load_profiles()
quick.watch()

# No test reads or writes the history and the indexes of whoever runs it.
_HOME = tempfile.TemporaryDirectory(prefix="notewright-tests-")
os.environ |= {"XDG_STATE_HOME": f"{_HOME.name}/state", "XDG_CACHE_HOME": f"{_HOME.name}/cache"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write the golden transcripts anew, as they are now")


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    """What a test that serves logs to, its captured standard error, is closed when it ends."""
    root = logging.getLogger()
    before = root.handlers[:]
    yield
    for handler in [one for one in root.handlers if one not in before]:
        root.removeHandler(handler)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared vaults, truths, cases and questions; without it the test is skipped."""
    place = Path(os.environ.get("NOTEWRIGHT_SHARED", ROOT.parent / "shared"))
    if not (place / "cases").is_dir():
        pytest.skip("the shared folder (../shared or $NOTEWRIGHT_SHARED) is not here")
    return place


MakeWorkspace = Callable[..., Workspace]


@pytest.fixture
def workspace(tmp_path: Path) -> Generator[MakeWorkspace, None, None]:
    """Makes real workspaces: `workspace({"A.md": "text"}, name="Main", hide=("Private/**",))`, closed at the end."""
    opened: list[Workspace] = []

    def make(files: Mapping[str, str | bytes] | None = None, name: str = "Main", **settings: Any) -> Workspace:
        root = tmp_path / name
        write_files(root, files or {})
        opened.append(open_folder(root, tmp_path, **settings))
        return opened[-1]

    yield make
    for ws in opened:
        close_workspace(ws)


@pytest.fixture(scope="session")
def weed(tmp_path_factory: pytest.TempPathFactory) -> Generator["Weed", None, None]:
    """SeaweedFS, started once; without it the test is skipped."""
    pytest.importorskip("obstore", reason="service: obstore is not installed (pip install 'notewright[s3]')")
    from tests.bucket import Weed

    started = Weed(tmp_path_factory.mktemp("weed"))
    yield started
    started.stop()


@pytest.fixture(scope="session")
def ceph(tmp_path_factory: pytest.TempPathFactory) -> Generator["Ceph", None, None]:
    """Ceph's gateway, started once; without it the test is skipped."""
    pytest.importorskip("obstore", reason="service: obstore is not installed (pip install 'notewright[s3]')")
    from tests.bucket import Ceph

    started = Ceph(tmp_path_factory.mktemp("ceph"))
    yield started
    started.stop()


@pytest.fixture
def bucket(weed: "Weed", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator["Bucket", None, None]:
    """A place in a real bucket, with a proxy of its own and the keys in the environment."""
    yield from bucket_of(weed, tmp_path, monkeypatch)


@pytest.fixture
def ceph_bucket(ceph: "Ceph", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator["Bucket", None, None]:
    yield from bucket_of(ceph, tmp_path, monkeypatch)


def bucket_of(
    service: "Weed | Ceph", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Generator["Bucket", None, None]:
    from tests.bucket import KEY, SECRET, Bucket, Proxy

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    proxy = Proxy(service.port)
    made = Bucket(service, proxy, tmp_path / "bucket-state")
    yield made
    made.close()
    proxy.stop()


def open_folder(root: Path, kept: Path, *, watch: bool = True, **settings: Any) -> Workspace:
    """The workspace of a folder, named after it, with its history and index in the folder `kept`."""
    asked = WorkspaceConfig(root.name, root.name.lower().replace(" ", "-"), str(root), **settings)
    return open_workspace(asked, Config((asked,), str(kept / "state"), str(kept / "cache")), watch=watch)


def write_files(root: Path, files: Mapping[str, str | bytes]) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)


def read_files(root: Path) -> dict[str, bytes]:
    """The bytes of every file in a folder, hidden ones too, by path."""
    found = sorted(place for place in root.rglob("*") if place.is_file())
    return {place.relative_to(root).as_posix(): place.read_bytes() for place in found}


def refuse_missing_service(report: Report) -> Report:
    """The same report; a skip for want of a service ("service: …") is a failure where NOTEWRIGHT_CI=1."""
    if NO_SKIPPING and report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if reason.startswith("service:"):
            report.outcome = "failed"
            report.longrepr = f"NOTEWRIGHT_CI=1 forbids this skip: {reason}"
    return report


# A file is run by one process: those that take long begin first, else all wait for the last of them.
LONG = (
    "test_bench.py",
    "test_dist.py",
    "test_workers.py",
    "test_bucket.py",
    "test_hostile.py",
    "test_security_hidden.py",
    "test_page_browser.py",
    "test_edit_browser.py",
)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where slow tests are left out, modules of nothing else are not even imported: that took longer than the tests."""
    if "not slow" not in config.option.markexpr or collection_path.suffix != ".py":
        return None
    return True if re.search(r"^pytestmark = pytest\.mark\.slow\b", collection_path.read_text("utf-8"), re.M) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    found.prepare(items, times=found.times(config))
    items.sort(key=lambda item: item.path.name not in LONG)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end: every garbage collection that looks through it does so in vain."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def left_out(reasons: Iterable[str]) -> list[str]:
    """For each reason to skip, how many tests it left out."""
    counts = Counter(reason.removeprefix("Skipped: ").removeprefix("service: ") for reason in reasons)
    return [f"left out, {count} of the tests: {reason}" for reason, count in sorted(counts.items())]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says at the end what was not tested for want of something: a skip is not a pass."""
    skipped = terminalreporter.stats.get("skipped", ())
    for line in left_out(one.longrepr[2] for one in skipped if isinstance(one.longrepr, tuple)):
        terminalreporter.write_line(line)
    if deselected := terminalreporter.stats.get("deselected"):
        terminalreporter.write_line(f"left out, {len(deselected)} of the tests: not chosen by -m or -k")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    quick.forget()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    result = yield
    if not any(item.iter_markers("slow")) and not any(item.iter_markers("torture")):
        quick.refuse(item.path.name)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    if call.excinfo is not None and found.is_torture(item.config):
        found.keep(item, call.excinfo.value)
    return refuse_missing_service((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return refuse_missing_service((yield))
