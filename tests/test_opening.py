"""Opening workspaces, and following what their owner changes while they are open."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from notewright.accounts.base import Accounts, WorkspaceRecord
from notewright.app.open_workspaces import OpenWorkspaces
from notewright.app.opening import open_registry
from notewright.config.load import Config, WorkspaceConfig
from notewright.engine import library
from notewright.engine.read import read
from notewright.engine.write import create
from notewright.errors import Exists, Invalid, NotFound, Problem, ReadOnly
from notewright.notes.path import NotePath


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """One workspace, Main, with two notes; beside it two folders of notes that are not served."""
    for name in ("main", "second", "third"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "Tea.md").write_text(name)
    (tmp_path / "main" / "Secret.md").write_text("ssh")
    main = WorkspaceConfig("Main", "main", str(tmp_path / "main"))
    return Config((main,), str(tmp_path / "state"), str(tmp_path / "cache"))


@pytest.fixture
def registry(config: Config) -> Iterator[Accounts]:
    made = open_registry(config)
    yield made
    made.close()


@pytest.fixture
def opened(config: Config, registry: Accounts) -> Iterator[OpenWorkspaces]:
    made = OpenWorkspaces(config, registry)
    yield made
    made.close()


def names(opened: OpenWorkspaces) -> list[tuple[str, str]]:
    return [(ws.id, ws.name) for ws in opened.workspaces()]


def test_a_workspace_that_is_added_renamed_and_removed_is_there_at_once(
    config: Config, registry: Accounts, opened: OpenWorkspaces, tmp_path: Path
) -> None:
    library.add_folder(config, registry, "Second", str(tmp_path / "second"))
    assert names(opened) == [("main", "Main"), ("second", "Second")]
    assert read(opened.find_workspace("second"), NotePath("Tea.md")).text == "second"
    library.change(config, registry, "second", {"name": "Zweite"})
    assert names(opened) == [("main", "Main"), ("second", "Zweite")]
    library.drop(config, registry, "second")
    assert names(opened) == [("main", "Main")]


def test_a_call_under_way_goes_on_when_its_workspace_is_removed(
    config: Config, registry: Accounts, opened: OpenWorkspaces, tmp_path: Path
) -> None:
    library.add_folder(config, registry, "Second", str(tmp_path / "second"))
    under_way = opened.find_workspace("second")
    library.drop(config, registry, "second")
    assert names(opened) == [("main", "Main")]
    assert read(under_way, NotePath("Tea.md")).text == "second"


def test_rules_hold_from_the_next_question_on(config: Config, registry: Accounts, opened: OpenWorkspaces) -> None:
    secret = NotePath("Secret.md")
    assert read(opened.default, secret).text == "ssh"
    library.change(config, registry, "main", {"hide": ["Secret.md"], "read_only": True, "timezone": "Asia/Tokyo"})
    with pytest.raises(NotFound):
        read(opened.default, secret)
    with pytest.raises(ReadOnly):
        create(opened.default, NotePath("New.md"), b"text")
    assert opened.default.timezone.key == "Asia/Tokyo"
    library.change(config, registry, "main", {"hide": None, "read_only": None, "timezone": None})
    assert read(opened.default, secret).text == "ssh"
    assert registry.records() == []


def test_an_owner_cannot_lift_what_was_said_at_the_start_for_all(tmp_path: Path, config: Config) -> None:
    closed = Config(config.workspaces, config.state, config.cache, {**config.values, "read_only": True})
    registry = open_registry(closed)
    opened = OpenWorkspaces(closed, registry)
    library.change(closed, registry, "main", {"read_only": False})
    assert opened.default.access.read_only
    opened.close()
    registry.close()


def test_whoever_has_no_registry_follows_the_one_that_comes_without_what_was_added(
    config: Config, tmp_path: Path
) -> None:
    opened = OpenWorkspaces(config)
    assert names(opened) == [("main", "Main")]
    assert not (Path(config.state) / "registry.db").exists()
    registry = open_registry(config)  # as another process does
    library.add_folder(config, registry, "Second", str(tmp_path / "second"))
    library.change(config, registry, "main", {"hide": ["Secret.md"], "name": "Haupt"})
    assert names(opened) == [("main", "Haupt")]
    assert opened.default.access.hide == ("Secret.md",)
    opened.close()
    registry.close()


def test_nobody_is_told_the_old_while_somebody_is_opening(
    config: Config, registry: Accounts, opened: OpenWorkspaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread is slow to open what is new; another that asks meanwhile must see what was changed before."""
    opening, go_on = threading.Event(), threading.Event()

    def slow(*args: object, **more: object) -> None:
        opening.set()
        go_on.wait(20)
        raise Invalid("too slow")

    monkeypatch.setattr("notewright.app.open_workspaces.open_workspace", slow)
    library.add_folder(config, registry, "Second", str(tmp_path / "second"))
    library.change(config, registry, "main", {"read_only": True})
    first = threading.Thread(target=opened.workspaces)
    first.start()
    assert opening.wait(20)
    seen: list[bool] = []
    second = threading.Thread(target=lambda: seen.append(opened.default.access.read_only))
    second.start()
    go_on.set()
    second.join(20)
    first.join(20)
    assert seen == [True]


def test_one_that_cannot_be_opened_is_left_out_and_tried_again(
    config: Config,
    registry: Accounts,
    opened: OpenWorkspaces,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    library.add_folder(config, registry, "Second", str(tmp_path / "second"))
    (tmp_path / "second").rename(tmp_path / "away")
    with caplog.at_level(logging.WARNING):
        assert names(opened) == [("main", "Main")]
    assert "the workspace Second cannot be opened" in caplog.text
    (tmp_path / "away").rename(tmp_path / "second")
    monkeypatch.setattr(opened, "_retry_at", 0.0)  # some time later
    assert names(opened) == [("main", "Main"), ("second", "Second")]


def test_what_was_added_stands_back_where_the_configuration_says_otherwise(
    config: Config, registry: Accounts, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    library.add_folder(config, registry, "Second", str(tmp_path / "second"))
    taken = WorkspaceConfig("Second", "second", str(tmp_path / "third"))
    later = Config((*config.workspaces, taken), config.state, config.cache)
    with caplog.at_level(logging.WARNING):
        served = library.effective_workspaces(later, registry)
    assert [one.location for one in served] == [str(tmp_path / "main"), str(tmp_path / "third")]
    assert "is not served" in caplog.text


def test_of_many_who_want_one_name_one_gets_it(config: Config, registry: Accounts, tmp_path: Path) -> None:
    folders = [tmp_path / f"many-{number}" for number in range(8)]
    refused: list[str] = []

    def ask(folder: Path) -> None:
        own = open_registry(config)
        try:
            library.add_folder(config, own, "Wanted", str(folder))
        except Exists as problem:
            refused.append(problem.code)
        finally:
            own.close()

    threads = [threading.Thread(target=ask, args=(folder,)) for folder in folders]
    for folder in folders:
        folder.mkdir()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert refused == ["exists"] * 7
    assert [one.name for one in library.effective_workspaces(config, registry)] == ["Main", "Wanted"]


def test_settings_of_a_folder_are_kept_when_it_is_added(config: Config, registry: Accounts, tmp_path: Path) -> None:
    registry.put_record(WorkspaceRecord(str(tmp_path / "second"), {"hide": ["Secret.md"]}))
    assert library.add_folder(config, registry, "Second", str(tmp_path / "second")).hide == ("Secret.md",)


# ---- beneath a root -----------------------------------------------------------------------------------


@pytest.fixture
def rooted(config: Config, tmp_path: Path) -> Config:
    (tmp_path / "root").mkdir()
    values = {**config.values, "workspaces_root": str(tmp_path / "root")}
    return Config(config.workspaces, config.state, config.cache, values)


def test_a_folder_is_made_beneath_the_root(rooted: Config, registry: Accounts, tmp_path: Path) -> None:
    made = library.add_beneath(rooted, registry, "My Team", None, {"read_only": True})
    assert (made.id, made.location, made.read_only) == ("my-team", str(tmp_path / "root" / "my-team"), True)
    inner = library.add_beneath(rooted, registry, "Inner", "teams/inner")
    assert Path(inner.location).is_dir()
    told = library.add_beneath(rooted, registry, "Whole", str(tmp_path / "root" / "whole"))
    assert Path(told.location).is_dir()


def test_without_a_root_nothing_is_made(config: Config, registry: Accounts) -> None:
    with pytest.raises(Invalid, match="makes no workspaces") as refused:
        library.add_beneath(config, registry, "Team", None)
    assert "notewright workspace add" in refused.value.hint


@pytest.mark.parametrize(
    "location",
    [
        "..",
        "../out",
        "a/../../out",
        "/etc",
        "/etc/passwd",
        ".",
        "",
        "/",
        "a//b",
        "a/./b",
        ".hidden",
        "a/.git",
        "a\0b",
        "a\\b",
        "x" * 300,
        "/".join(["a"] * 9),
        "link",
        "link/inner",
        "inside",
        "file",
        "file/inner",
        "con",
        "a\nb",
        "\udc80",
        "／etc",
        "a:b",
    ],
)
def test_nothing_is_made_or_served_outside_of_the_root(
    rooted: Config, registry: Accounts, tmp_path: Path, location: str
) -> None:
    root = tmp_path / "root"
    (root / "link").symlink_to(tmp_path / "third")
    (root / "inside").symlink_to(root)
    (root / "file").write_text("no folder")
    before = sorted(tmp_path.rglob("*"))
    if location == "／etc":  # a letter that only looks like a slash is a letter
        assert library.add_beneath(rooted, registry, "Team", location).location == f"{root}/{location}"
        return
    with pytest.raises(Problem):
        library.add_beneath(rooted, registry, "Team", location)
    assert sorted(tmp_path.rglob("*")) == before
    assert registry.records() == []


def test_what_was_made_goes_again_when_the_workspace_is_refused(
    rooted: Config, registry: Accounts, tmp_path: Path
) -> None:
    for name, settings in (("Main", {}), ("Team", {"timezone": "Mars"}), ("Team", {"nothing": 1})):
        with pytest.raises(Problem):
            library.add_beneath(rooted, registry, name, "deep/er", settings)
    assert list((tmp_path / "root").iterdir()) == []


def test_a_folder_that_is_there_may_be_named_and_stays_when_it_is_refused(
    rooted: Config, registry: Accounts, tmp_path: Path
) -> None:
    (tmp_path / "root" / "old").mkdir()
    with pytest.raises(Exists):
        library.add_beneath(rooted, registry, "Main", "old")
    assert (tmp_path / "root" / "old").is_dir()
    assert library.add_beneath(rooted, registry, "Old", "old").location == str(tmp_path / "root" / "old")
    with pytest.raises(Invalid, match="overlap"):
        library.add_beneath(rooted, registry, "Inner", "old/inner")
    assert not (tmp_path / "root" / "old" / "inner").exists()
