"""Flags over variables over the file over the defaults, and words for every mistake."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from notewright.config.load import CommandLine, Config, load
from notewright.config.locations import workspace_id
from notewright.config.settings import SETTINGS, WORKSPACE_SETTINGS
from notewright.engine.library import name_key
from notewright.errors import Invalid, NotFound, Problem


def loaded(here: Path, *locations: str, file: str | None = None, environ: Any = None, **flags: Any) -> Config:
    variables = {"HOME": str(here / ".home")} | (environ or {})
    settings = {name.replace("__", "."): value for name, value in flags.items()}
    return load(CommandLine(locations, file, settings), environ=variables, folder=str(here))


def written(here: Path, text: str) -> str:
    (here / "conf").mkdir(exist_ok=True)
    (here / "conf" / "notewright.toml").write_text(text)
    return "conf/notewright.toml"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    for name in ("Work", "Home Notes", "Work/Deep", "conf/inside"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def test_without_anything_said_the_defaults_hold(here: Path) -> None:
    config = loaded(here)
    assert config.workspaces == ()
    assert {setting.name: config[setting.name] for setting in SETTINGS} == {s.name: s.default for s in SETTINGS}
    assert config.state == f"{here}/.home/.local/state/notewright"
    assert config.cache == f"{here}/.home/.cache/notewright"


def test_a_location_has_a_name_or_gets_that_of_its_folder(here: Path) -> None:
    config = loaded(here, "Home Notes", "Job=Work")
    assert [(w.name, w.id, w.location) for w in config.workspaces] == [
        ("Home Notes", "home-notes", f"{here}/Home Notes"),
        ("Job", "job", f"{here}/Work"),
    ]
    assert loaded(here / "Work", ".").workspaces[0].name == "Work"


def test_a_folder_with_an_equals_sign_is_a_folder(here: Path) -> None:
    (here / "a=b").mkdir()
    assert loaded(here, "a=b").workspaces[0].name == "a=b"


@pytest.mark.parametrize(
    ("location", "name"), [("live:Work", "Work"), ("Job=live:Work", "Job"), ("LIVE:Work/", "Work")]
)
def test_a_folder_is_live_where_it_is_written_so(here: Path, location: str, name: str) -> None:
    (one,) = loaded(here, location).workspaces
    assert (one.name, one.location, one.live) == (name, f"{here}/Work", True)
    in_file = written(here, '[workspaces.Work]\nlocation = "live:../Work"\n')
    assert loaded(here, file=in_file).workspaces[0].live
    assert loaded(here, file=written(here, '[workspaces.Work]\nlocation = "../Work"\nlive = true\n')).workspaces[0].live
    assert not loaded(here, "Work").workspaces[0].live


def test_a_workspace_named_after_its_folder_keeps_the_blanks_of_that_name(here: Path) -> None:
    (here / "Tea ").mkdir()
    assert [w.name for w in loaded(here, "Tea ").workspaces] == ["Tea "]
    assert [w.name for w in loaded(here, " Cups =Tea ").workspaces] == ["Cups"]


def test_a_live_bucket_is_refused_in_words(here: Path) -> None:
    with pytest.raises(Invalid, match="live documents are files in a folder"):
        loaded(here, "live:s3://bucket/notes")
    with pytest.raises(NotFound, match="is not there"):
        loaded(here, "live:nowhere")


def test_a_backup_may_go_to_a_bucket(here: Path) -> None:
    in_file = written(here, '[backup]\nto = "S3://bucket/backups/"\nendpoint = "https://s3.example"\n')
    told = loaded(here, "Work", file=in_file)
    assert (told["backup.to"], told["backup.endpoint"]) == ("s3://bucket/backups", "https://s3.example")
    with pytest.raises(Invalid, match="no bucket's name"):
        loaded(here, "Work", environ={"NOTEWRIGHT_BACKUP_TO": "s3://b/backups"})


@pytest.mark.parametrize("name", ["second_brain", "second-brain"])
def test_a_surface_may_be_written_with_a_dash(here: Path, name: str) -> None:
    assert loaded(here, "Work", file=written(here, f'surface = "{name}"\n'))["surface"] == ("second_brain",)
    assert loaded(here, "Work", surface=(name,))["surface"] == ("second_brain",)


def test_flags_win_over_variables_over_the_file(here: Path) -> None:
    file = written(here, "[history]\nkeep_days = 1\nkeep_bytes = 1\n[http]\nport = 1\n")
    environ = {"NOTEWRIGHT_HISTORY_KEEP_BYTES": "2", "NOTEWRIGHT_HTTP_PORT": "2"}
    config = loaded(here, file=file, environ=environ, http__port=3)
    assert (config["history.keep_days"], config["history.keep_bytes"], config["http.port"]) == (1, 2, 3)


def test_the_file_may_be_named_by_a_variable(here: Path) -> None:
    file = written(here, 'surface = "cairn"\n')
    assert loaded(here, environ={"NOTEWRIGHT_CONFIG": file})["surface"] == ("cairn",)


def test_workspaces_of_the_file_lie_beside_it_and_keep_their_settings(here: Path) -> None:
    file = written(
        here,
        """
        [workspaces.Inner]
        location = "inside"
        timezone = "Australia/Melbourne"
        hide = ["Private/**"]
        write_under = ["Inbox/**"]
        max_file_size = 5
        quota_files = 10_000
        bootstrap = "para"
        """,
    )
    (inner,) = loaded(here, file=file).workspaces
    assert inner.location == f"{here}/conf/inside"
    assert (inner.timezone, inner.hide, inner.write_under) == ("Australia/Melbourne", ("Private/**",), ("Inbox/**",))
    assert (inner.max_file_size, inner.quota_files, inner.quota_bytes, inner.bootstrap) == (5, 10_000, None, "para")


def test_a_location_named_on_the_command_line_takes_the_settings_of_its_name(here: Path) -> None:
    file = written(here, '[workspaces.Work]\nlocation = "inside"\nread_only = true\n')
    (work,) = loaded(here, "Work", file=file).workspaces
    assert (work.location, work.read_only) == (f"{here}/Work", True)


def test_read_only_may_be_said_for_all(here: Path) -> None:
    assert all(w.read_only for w in loaded(here, "Work", "Home Notes", read_only=True).workspaces)
    assert loaded(here, "Work", environ={"NOTEWRIGHT_READ_ONLY": "yes"}).workspaces[0].read_only


def test_variables_hold_for_every_workspace(here: Path) -> None:
    config = loaded(
        here, "Work", environ={"NOTEWRIGHT_HIDE": "Private/**, *.secret", "NOTEWRIGHT_TIMEZONE": "Asia/Tokyo"}
    )
    assert config.workspaces[0].hide == ("Private/**", "*.secret")
    assert config.workspaces[0].timezone == "Asia/Tokyo"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("serface = 'notes'\n", "unknown setting 'serface'. did you mean surface?"),
        (
            "[http]\nhost_names = []\n",
            "[http] of notewright.toml has an unknown setting 'host_names'. did you mean hosts?",
        ),
        ("[workspaces.A]\nlocation='inside'\nhiden=[]\n", "unknown setting 'hiden'. did you mean hide?"),
        ("[workspaces.A]\nhide=[]\n", "[workspaces.A] of notewright.toml has no location"),
        ("[workspaces]\nA='inside'\n", "must be tables"),
        ("[workspaces.A]\nlocation='nowhere'\n", "'nowhere' is not there"),
        ("[workspaces.A]\nlocation='inside'\nread_only='maybe'\n", "must be true or false, not 'maybe'"),
        ("[workspaces.A]\nlocation='inside'\ntimezone='Mars/Olympus'\n", "'Mars/Olympus' is no timezone"),
        ("[workspaces.A]\nlocation='inside'\nbootstrap='zettel'\n", "must be para, not 'zettel'"),
        ("[history]\nkeep_days = -1\n", "history.keep_days must be a whole number, not -1"),
        ("surface = [\n", "cannot be read"),
    ],
)
def test_a_mistake_in_the_file_is_named(here: Path, text: str, words: str) -> None:
    with pytest.raises(Problem) as refused:
        loaded(here, file=written(here, text))
    assert words in str(refused.value)


def test_what_is_not_there_is_not_found(here: Path) -> None:
    (here / "file.md").write_text("x")
    for location, words in (("Nowhere", "is not there"), ("file.md", "is not a folder"), ("", "is not there")):
        with pytest.raises(NotFound) as refused:
            loaded(here, location)
        assert words in str(refused.value)
    with pytest.raises(NotFound):
        loaded(here, file="none.toml")


@pytest.mark.parametrize("locations", [("Work", "Work/Deep"), ("A=Work", "B=Work")])
def test_workspaces_that_overlap_are_refused(here: Path, locations: tuple[str, ...]) -> None:
    with pytest.raises(Invalid, match="overlap"):
        loaded(here, *locations)


def test_a_symlink_to_a_workspace_is_that_workspace(here: Path) -> None:
    (here / "Link").symlink_to(here / "Work")
    with pytest.raises(Invalid, match="overlap"):
        loaded(here, "Work", "Link")


def test_two_workspaces_of_one_name_are_refused(here: Path) -> None:
    (here / "Home Notes" / "Work").mkdir()
    with pytest.raises(Invalid, match="two workspaces are named 'Work'"):
        loaded(here, "Work", "Home Notes/Work")


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("Lens Edu", "lens-edu"),
        ("Café Ünder", "cafe-under"),
        ("mcp", "mcp-notes"),
        ("Default", "default-notes"),
        ("x", "x-notes"),
        ("a" * 60, "a" * 33),
        ("a_b", "a_b"),
        (".hidden", "hidden"),
    ],
)
def test_an_id_is_the_name_as_a_url_can_have_it(name: str, id: str) -> None:
    assert workspace_id(name) == id


def test_ids_are_never_empty_or_shared() -> None:
    assert workspace_id("日本語").startswith("notes-") and workspace_id("日本語") != workspace_id("中文")
    assert workspace_id("Tea!", {"tea", "tea-2"}) == "tea-3"


def test_the_state_folder_holds_ledger_and_index_and_no_notes(here: Path) -> None:
    config = loaded(here, "Work", state="kept")
    assert (config.state, config.cache) == (f"{here}/kept/state", f"{here}/kept/cache")
    for inside in ("Work", "Work/kept", "Work/.kept"):
        with pytest.raises(Invalid, match="is inside the workspace"):
            loaded(here, "Work", state=inside)
    environ = {"XDG_STATE_HOME": "/somewhere/state", "XDG_CACHE_HOME": "/somewhere/cache"}
    config = loaded(here, environ=environ)
    assert (config.state, config.cache) == ("/somewhere/state/notewright", "/somewhere/cache/notewright")


def test_a_home_folder_may_be_a_workspace_as_its_dot_folders_are_outside(here: Path) -> None:
    assert loaded(here, ".").workspaces[0].location == str(here)


def test_octarine_is_told_of_its_workspaces_by_its_own_variables(here: Path) -> None:
    environ = {
        "OCTARINE_WORKSPACE_PATH": str(here),
        "OCTARINE_MAX_FILE_SIZE": "77",
        "OCTARINE_SEARCH_LIMIT": "5",
        "OCTARINE_LOG_LEVEL": "debug",
    }
    config = loaded(here, environ=environ, surface="octarine")
    assert [w.name for w in config.workspaces] == ["Home Notes", "Work", "conf"]
    assert {w.max_file_size for w in config.workspaces} == {77}
    assert (config.octarine.search_limit, config.octarine.log_level) == (5, "debug")
    assert loaded(here, environ=environ).workspaces == ()


def test_octarines_file_is_that_of_the_working_directory(here: Path) -> None:
    rc = {
        "workspaces": {"Mine": {"path": "Work", "readOnly": True, "maxFileSize": 9, "excludePatterns": ["x/**"]}},
        "search": {"maxResults": 7, "previewLength": 50},
        "performance": {"rateLimit": {"enabled": False}},
    }
    (here / ".octarinerc.json").write_text(json.dumps(rc))
    (here / "Work" / ".octarinerc.json").write_text("broken")
    config = loaded(here, surface="octarine")
    (mine,) = config.workspaces
    assert (mine.name, mine.location, mine.read_only) == ("Mine", f"{here}/Work", True)
    assert (mine.max_file_size, mine.hide) == (9, ("x/**",))
    assert (config.octarine.search_limit, config.octarine.preview_length) == (7, 50)
    assert not config.octarine.rate_limits


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"workspaces": {"A": {}}}', '{"search": 1}', '{"search": {"maxResults": "x"}}']
)
def test_a_mistake_in_octarines_file_is_invalid(here: Path, text: str) -> None:
    (here / ".octarinerc.json").write_text(text)
    with pytest.raises(Invalid):
        loaded(here, surface="octarine")


def test_a_variable_that_is_nearly_a_setting_is_warned_of(here: Path, caplog: pytest.LogCaptureFixture) -> None:
    loaded(here, environ={"NOTEWRIGHT_READONLY": "1"})
    assert "did you mean NOTEWRIGHT_READ_ONLY?" in caplog.text


def test_a_surface_is_one_of_six(here: Path) -> None:
    assert loaded(here, surface="second-brain, cairn")["surface"] == ("second_brain", "cairn")
    with pytest.raises(Invalid, match="did you mean obsidian"):
        loaded(here, surface="obsidan")


def test_every_setting_says_what_it_is_for() -> None:
    for setting in (*SETTINGS, *WORKSPACE_SETTINGS):
        assert setting.help and setting.kind in ("text", "flag", "number", "list", "path")
        assert setting.variable == "NOTEWRIGHT_" + setting.name.replace(".", "_").upper()


def test_the_environment_of_this_process_is_the_one_that_counts(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTEWRIGHT_LOG_LEVEL", "error")
    monkeypatch.chdir(here)
    assert load(CommandLine(("Work",)))["log_level"] == "error"
    assert os.getcwd() == str(here)


def test_paths_are_relative_to_where_they_were_said(tmp_path: Path) -> None:
    home, here = tmp_path / "etc", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    (home / "c.toml").write_text('audit_log = "off"\n[backup]\nto = "backups"\n[http]\ntls_key = "/key.pem"\n')
    config = load(
        CommandLine(file=str(home / "c.toml")), environ={"NOTEWRIGHT_HTTP_TLS_CERT": "cert.pem"}, folder=str(here)
    )
    assert config["backup.to"] == str(home / "backups")
    assert config["http.tls_cert"] == str(here / "cert.pem")
    assert (config["http.tls_key"], config["audit_log"], config["workspaces_root"]) == ("/key.pem", "off", None)


@pytest.mark.parametrize(
    ("one", "other"), [("Work", "WORK"), ("Work", "Ｗork"), ("W\u00f6rk", "Wo\u0308rk"), ("Work", "Wo\u200drk")]
)
def test_names_that_differ_in_case_width_composition_or_what_is_unseen_count_as_the_same(one: str, other: str) -> None:
    assert name_key(one) == name_key(other)


def test_letters_of_two_scripts_that_look_alike_are_two_letters() -> None:
    assert name_key("W\u043erk") != name_key("Work")
