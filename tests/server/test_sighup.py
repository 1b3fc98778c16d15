"""SIGHUP: the configuration is read again, as often as it was asked for, and a mistake in it changes nothing."""

import asyncio
import logging
from pathlib import Path

import pytest
import uvicorn

from notewright.app import compose
from notewright.config.load import CommandLine, Config, load
from notewright.errors import Invalid
from notewright.server.listen import supervisor
from notewright.server.listen.uvicorn_server import Server


def test_who_asks_while_the_configuration_is_read_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "is_terminal_gone", lambda: False)
    written, read = ["first"], []

    async def scenario() -> None:
        begun, go = asyncio.Event(), asyncio.Event()

        async def again() -> None:
            read.append(written[-1])
            begun.set()
            await go.wait()

        async def nobody(scope: object, receive: object, send: object) -> None: ...

        server = Server(uvicorn.Config(nobody), reload=again)
        server.hang_up()
        await asyncio.wait_for(begun.wait(), 30)
        written.append("second")
        server.hang_up()
        server.hang_up()
        go.set()
        assert server._reloading is not None
        await server._reloading

    asyncio.run(scenario())
    assert read == ["first", "second"]


def config(folder: Path, written: str = "") -> Config:
    (folder / "notes").mkdir(exist_ok=True)
    (folder / "c.toml").write_text(f'{written}\n[workspaces.Main]\nlocation = "notes"\n')
    return load(CommandLine((), str(folder / "c.toml")), environ={"HOME": str(folder)}, folder=str(folder))


def test_a_server_that_listens_to_others_goes_on_asking_for_tokens_whatever_host_is_written_now(tmp_path: Path) -> None:
    open_to_others = '[http]\nhost = "127.0.0.2"\n'
    issuer = '[auth]\nissuer = "https://id.example.com"\naudience = "notes"\n'
    served, written = config(tmp_path, open_to_others + issuer), config(tmp_path, '[http]\nhost = "127.0.0.1"\n')
    with pytest.raises(Invalid, match="make an access token first"):
        compose.read_config_again(served, lambda: written)


def test_what_needs_a_restart_stays_and_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    served = config(tmp_path, 'state = "here"\n[http]\nport = 8484')
    new = config(tmp_path, 'state = "there"\nread_only = true\n[http]\nport = 8585\nhost = "::1"\nworkers = 4')
    again = compose.read_config_again(served, lambda: new)
    assert (again.state, again.cache, again["state"]) == (served.state, served.cache, served["state"])
    assert (again["http.host"], again["http.port"], again["http.workers"]) == ("127.0.0.1", 8484, 1)
    assert again.workspaces[0].read_only
    named = {message.partition(" ")[0] for message in caplog.messages}
    assert named == {"http.host", "http.port", "http.workers", "state"}


@pytest.mark.parametrize(
    "mistake",
    [
        '[backup]\nto = "backups"\nat = "25:00"',
        'log_level = "loud"',
        'log_format = "xml"',
        '[http]\ntls_cert = "a.pem"\ntls_key = "a.key"',
    ],
)
def test_a_mistake_is_found_before_anything_is_changed(tmp_path: Path, mistake: str) -> None:
    served, root = config(tmp_path, 'log_level = "info"'), logging.getLogger().level
    before = logging.getLogger("notewright").level
    with pytest.raises(Invalid):
        compose.read_config_again(served, lambda: config(tmp_path, mistake))
    assert (logging.getLogger("notewright").level, logging.getLogger().level) == (before, root)


def test_proxies_that_are_no_addresses_are_refused_before_workers_are_started(tmp_path: Path) -> None:
    issuer = '[auth]\nissuer = "https://id.example.com"\naudience = "notes"\n'
    with pytest.raises(Invalid, match=r"http\.trusted_proxies: 'proxy'"):
        compose.check_http_config(config(tmp_path, '[http]\ntrusted_proxies = ["proxy"]\n' + issuer))
