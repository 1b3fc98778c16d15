"""The examples in docs/deploy do what they say: tried with the real systemd-analyze, Caddy and nginx."""

import itertools
import json
import re
import shlex
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml12
from tests.deploying import CALL, DEPLOY, NAME, PATIENCE, Site, behind, call, program, replaced, sni, wait_until
from tests.server.lines import HELLO, NOTEWRIGHT
from websockets.sync.client import connect

from notewright.cli.parser import parse
from notewright.config.load import CommandLine, Config, load
from notewright.config.settings import SETTINGS
from notewright.server.listen.uvicorn_server import DRAIN_SECONDS

UNIT = DEPLOY / "notewright.service"
BOUND = next(setting.default for setting in SETTINGS if setting.name == "http.max_request_bytes")


@pytest.fixture(scope="module", params=["caddy", "nginx"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Notewright behind a proxy, both set up by the examples."""
    with behind(request.param, tmp_path_factory.mktemp(request.param)) as served:
        yield served


# ---- the examples by themselves -----------------------------------------------------------------------


def unit() -> dict[str, list[str]]:
    """The settings of the unit; those that may be repeated, in order."""
    pairs = re.findall(r"^(\w+)=(.*)$", UNIT.read_text(encoding="utf-8"), re.M)
    return {name: [value for other, value in pairs if other == name] for name, _ in pairs}


def instructions() -> list[tuple[str, str]]:
    """The container file, comments left out and continued lines joined."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Containerfile").read_text(encoding="utf-8"), flags=re.M)
    lines = re.sub(r"\\\n", " ", text).splitlines()
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines if line)]


def said(instruction: str) -> str:
    """What an instruction of the last stage says."""
    return [rest for word, rest in instructions() if word == instruction][-1]


def settings_in(folder: Path, text: str) -> Config:
    (folder / "notes").mkdir()
    (folder / "notewright.toml").write_text(replaced(text, {"/srv/notes": str(folder / "notes")}), encoding="utf-8")
    return load(CommandLine(file=str(folder / "notewright.toml")), environ={"HOME": "/nowhere"})


def test_the_settings_file_can_be_read(tmp_path: Path) -> None:
    config = settings_in(tmp_path, (DEPLOY / "notewright.toml").read_text(encoding="utf-8"))
    assert (config["http.host"], config["http.port"]) == ("127.0.0.1", 8484)
    assert config["http.public_url"] == f"https://{NAME}"


def test_what_is_commented_out_in_the_settings_file_can_be_switched_on(tmp_path: Path) -> None:
    text = (DEPLOY / "notewright.toml").read_text(encoding="utf-8")
    config = settings_in(tmp_path, re.sub(r"^# (?=\w+ = )", "", text, flags=re.M))
    assert config["http.hosts"] and config["http.workers"] == 2
    assert config.workspaces[0].hide and config.workspaces[0].write_under != ("**",)


def test_the_unit_starts_a_command_that_exists_with_the_settings_file() -> None:
    program_file, *words = shlex.split(unit()["ExecStart"][0])
    args = parse(words)
    assert (args.command, args.config) == ("serve", "/etc/notewright/notewright.toml")
    assert program_file == "/opt/notewright/bin/notewright"
    assert unit()["ReadWritePaths"] == ["/srv/notes"]


def test_the_command_beside_the_service_uses_its_user_settings_and_state() -> None:
    text, settings = (DEPLOY / "notewright.sh").read_text(encoding="utf-8"), unit()
    program_file, *words = shlex.split(settings["ExecStart"][0])
    assert f"NOTEWRIGHT_CONFIG={parse(words).config} {program_file}" in text
    assert f"runuser -u {settings['User'][0]} " in text and f"umask {settings['UMask'][0].lstrip('0').zfill(3)}" in text
    assert "XDG_STATE_HOME=/var/lib " in text and "XDG_STATE_HOME=%S " in settings["Environment"][0]
    assert "XDG_CACHE_HOME=/var/cache " in text and "XDG_CACHE_HOME=%C " in settings["Environment"][0]


def test_the_unit_gives_us_longer_to_stop_than_we_take() -> None:
    assert int(unit()["TimeoutStopSec"][0]) >= DRAIN_SECONDS + 10
    # Told twice, a worker ends at once: systemd tells the first process only, and that one tells its workers.
    assert unit()["KillMode"] == ["mixed"]


@pytest.mark.slow
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    text = replaced(UNIT.read_text(encoding="utf-8"), {"/opt/notewright/bin/notewright": NOTEWRIGHT})
    (tmp_path / "notewright.service").write_text(text, encoding="utf-8")
    checked = [program("systemd-analyze"), "verify", "--man=no", str(tmp_path / "notewright.service")]
    done = subprocess.run(checked, capture_output=True, text=True)
    ours = [line for line in done.stderr.splitlines() if "notewright" in line]
    assert (done.returncode, ours) == (0, []), done.stderr


@pytest.mark.slow
def test_systemd_finds_little_that_the_unit_lays_open() -> None:
    asked = ["security", "--offline=yes", "--threshold=20", "--no-pager", str(UNIT)]  # 20 is 2.0 of 10
    done = subprocess.run([program("systemd-analyze"), *asked], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr


def test_everything_the_container_is_built_from_is_there() -> None:
    copied = [rest.split()[:-1] for word, rest in instructions() if word == "COPY" and "--from" not in rest]
    named = {name for names in copied for name in names}
    assert named and all((DEPLOY.parent.parent / name).exists() for name in named)
    kept = (DEPLOY / "Containerfile.dockerignore").read_text(encoding="utf-8").split()
    assert {f"!{name}" for name in named} <= set(kept)


def test_the_container_starts_a_command_that_exists_and_asks_for_its_health_where_it_serves() -> None:
    assert json.loads(said("ENTRYPOINT")) == ["notewright"]
    args = parse(json.loads(said("CMD")))
    port = args.http.rpartition(":")[2]
    health = json.loads(said("HEALTHCHECK").partition("CMD ")[2])
    assert health[:2] == ["python3", "-c"] and f"http://127.0.0.1:{port}/healthz" in health[2]
    assert said("EXPOSE") == port
    compile(health[2], "health", "exec")


def test_the_container_is_nobody_special_and_writes_nowhere_else() -> None:
    service = yaml12.read_yaml(str(DEPLOY / "compose.yaml"))["services"]["notewright"]
    assert said("USER") == service["user"] == "1000:1000"
    assert service["read_only"] and service["cap_drop"] == ["ALL"]
    assert sorted(volume.rpartition(":")[2] for volume in service["volumes"]) == sorted(json.loads(said("VOLUME")))
    assert int(service["stop_grace_period"].rstrip("s")) >= DRAIN_SECONDS + 10


def test_what_compose_sets_are_settings(tmp_path: Path) -> None:
    service = yaml12.read_yaml(str(DEPLOY / "compose.yaml"))["services"]["notewright"]
    assert set(service["environment"]) <= {setting.variable for setting in SETTINGS}
    config = load(CommandLine((f"Notes={tmp_path}",)), environ={"HOME": "/nowhere", **service["environment"]})
    assert config["http.public_url"] == f"https://{NAME}"
    network = yaml12.read_yaml(str(DEPLOY / "compose.yaml"))["networks"]["front"]["ipam"]["config"][0]
    assert config["http.trusted_proxies"] == (network["gateway"],)


def test_a_proxy_lets_through_as_much_as_we_take() -> None:
    caddy = re.search(r"max_size (\d+)MiB", (DEPLOY / "Caddyfile").read_text(encoding="utf-8"))
    nginx = re.search(r"client_max_body_size (\d+)m;", (DEPLOY / "nginx.conf").read_text(encoding="utf-8"))
    assert caddy and nginx
    assert int(caddy[1]) << 20 == int(nginx[1]) << 20 == BOUND


def test_every_example_speaks_of_one_port_and_one_name() -> None:
    texts = {file.name: file.read_text(encoding="utf-8") for file in DEPLOY.iterdir()}
    assert {name for name, text in texts.items() if re.search(r"\b8484\b", text)} == {
        *("notewright.toml", "Caddyfile", "nginx.conf", "Containerfile", "compose.yaml")
    }
    names = {found for text in texts.values() for found in re.findall(r"[\w.]*\bexample\.\w+", text)}
    assert names == {NAME}


# ---- behind Caddy and nginx ---------------------------------------------------------------------------


@pytest.mark.slow
def test_an_agent_reads_and_writes_through_the_proxy(site: Site) -> None:
    with site.client(site.token) as client:
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
        assert client.post("/mcp", json=hello, extensions=sni()).status_code == 200
        assert "Steep it." in call(client, "read", path="Tea")["content"][0]["text"]
        call(client, "write", path="From outside.md", content="Came over HTTPS.\n")
    assert (site.folder / "notes" / "From outside.md").read_text() == "Came over HTTPS.\n"


@pytest.mark.slow
def test_it_speaks_http_2_and_no_tls_older_than_1_2(site: Site) -> None:
    context = site.trusting()
    context.set_alpn_protocols(["h2", "http/1.1"])
    plain = socket.create_connection(("127.0.0.1", site.port), 30)
    with context.wrap_socket(plain, server_hostname=NAME) as wire:
        assert wire.selected_alpn_protocol() == "h2"
    old = site.trusting()
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    plain = socket.create_connection(("127.0.0.1", site.port), 30)
    with pytest.raises((ssl.SSLError, OSError)):
        old.wrap_socket(plain, server_hostname=NAME)
    plain.close()


@pytest.mark.slow
def test_a_call_over_http_2_is_answered(site: Site, tmp_path: Path) -> None:
    (tmp_path / "call.json").write_text(json.dumps(CALL | {"params": {"name": "read", "arguments": {"path": "Tea"}}}))
    command = [program("curl"), "--silent", "--http2", "--cacert", str(site.folder / "cert.pem")]
    command += ["--resolve", f"{NAME}:{site.port}:127.0.0.1", "--header", f"Authorization: Bearer {site.token}"]
    command += ["--header", "Content-Type: application/json", "--header", "Accept: application/json"]
    command += ["--data-binary", f"@{tmp_path / 'call.json'}", "--write-out", "\n%{http_version}"]
    done = subprocess.run([*command, f"https://{NAME}:{site.port}/mcp"], capture_output=True, text=True, check=True)
    answer, _, version = done.stdout.rpartition("\n")
    assert version == "2" and "Steep it." in json.loads(answer)["result"]["content"][0]["text"]


@pytest.mark.slow
def test_a_stranger_is_told_where_to_ask_by_our_public_name(site: Site) -> None:
    with site.client() as client:
        refused = client.post("/mcp", json=CALL, extensions=sni())
        found = re.search(r'resource_metadata="([^"]+)"', refused.headers["www-authenticate"])
        assert refused.status_code == 401 and found is not None
        assert found[1].startswith(f"https://{NAME}/.well-known/oauth-protected-resource")
        document = client.get(found[1].removeprefix(f"https://{NAME}"), extensions=sni())
        assert document.status_code == 200 and document.json()["resource"] == f"https://{NAME}/mcp"


@pytest.mark.slow
def test_a_client_cannot_say_that_it_is_somebody_else(site: Site) -> None:
    """Refusals are told by address: of the client, not of the proxy, nor of whom the client says it is."""
    forged = {"x-forwarded-for": "203.0.113.9", "forwarded": "for=203.0.113.9", "x-real-ip": "203.0.113.9"}
    with site.client("nw_wrong", source="127.0.0.7") as client:
        assert client.post("/mcp", json=CALL, headers=forged, extensions=sni()).status_code == 401
    wait_until(lambda: site.audited(event="refused", address="127.0.0.7"), "the refusal in the audit log")
    assert site.audited(address="203.0.113.9") == []


@pytest.mark.slow
def test_who_comes_past_the_proxy_is_not_believed_either(site: Site) -> None:
    wire = httpx2.HTTPTransport(local_address="127.0.0.8")
    forged = {"x-forwarded-for": "203.0.113.10", "x-forwarded-proto": "https", "host": NAME}
    with httpx2.Client(base_url=f"http://127.0.0.1:{site.server_port}", transport=wire, headers=forged) as client:
        assert client.post("/mcp", json=CALL).status_code == 401
    wait_until(lambda: site.audited(event="refused", address="127.0.0.8"), "the refusal in the audit log")
    assert site.audited(address="203.0.113.10") == []


@pytest.mark.slow
def test_a_request_has_one_name_in_both_logs_and_it_is_not_the_client_s(site: Site) -> None:
    with site.client("nw_wrong", source="127.0.0.9") as client:
        refused = client.post("/mcp", json=CALL, headers={"x-request-id": "chosen-by-me"}, extensions=sni())
    name = refused.headers["x-request-id"]
    assert name != "chosen-by-me"
    wait_until(lambda: site.audited(request=name), "the request in the audit log")
    if "nginx" in site.folder.name:  # Caddy's log has no room for it
        wait_until(lambda: name in site.proxy_log.read_text(), "the request in the access log")


@pytest.mark.slow
def test_a_large_note_comes_through_and_too_large_a_request_is_refused(site: Site) -> None:
    with site.client(site.token) as client:
        text = "A long line of a long note.\n" * (9_000_000 // 28)
        call(client, "write", path="Large.md", content=text)
        assert (site.folder / "notes" / "Large.md").read_text() == text
        assert client.post("/mcp", content=b" " * (BOUND + 1024), extensions=sni()).status_code == 413


@pytest.mark.slow
def test_a_name_that_is_not_ours_reaches_nothing_of_ours(site: Site) -> None:
    """DNS rebinding: a page binds its own name to our address."""
    asked: dict[str, Any] = {"json": CALL, "extensions": sni()}
    with site.client(site.token, host="evil.example.net") as client:
        answer = client.post("/mcp", **asked)
        assert "jsonrpc" not in answer.text and "notewright" not in answer.text.lower()
    wire = httpx2.HTTPTransport(local_address="127.0.0.1")
    with httpx2.Client(base_url=f"http://127.0.0.1:{site.server_port}", transport=wire) as client:
        allowed = {"authorization": f"Bearer {site.token}", "host": "evil.example.net"}
        assert client.post("/mcp", json=CALL, headers=allowed).status_code == 421


@pytest.mark.slow
def test_an_event_comes_while_the_stream_is_open(site: Site) -> None:
    """The page's stream of what happens: a proxy that keeps answers back would show it when the stream ends."""
    asked: dict[str, Any] = {"headers": {"accept": "text/event-stream"}, "extensions": sni()}
    with (
        site.client(site.token) as client,
        site.client(site.token) as agent,
        client.stream("GET", "/events", **asked) as stream,
    ):
        assert stream.status_code == 200 and stream.headers["content-type"].startswith("text/event-stream")
        call(agent, "write", path=f"Seen {site.port}.md", content="Somebody watches.\n")
        end = time.monotonic() + PATIENCE
        heard = list(itertools.takewhile(lambda line: time.monotonic() < end, until_data(stream.iter_lines())))
        assert heard[-1].startswith("data:"), heard


def until_data(lines: Iterator[str]) -> Iterator[str]:
    """Up to the first event; what comes before keeps the stream alive."""
    for line in lines:
        yield line
        if line.startswith("data:"):
            return


@pytest.mark.slow
def test_a_stream_ends_here_when_its_reader_has_left(site: Site) -> None:
    """Else every page that was closed would hold a connection until its stream ends by itself."""
    asked: dict[str, Any] = {"headers": {"accept": "text/event-stream"}, "extensions": sni()}
    before = streams_ended(site)
    with site.client(site.token) as client, client.stream("GET", "/events", **asked) as stream:
        assert stream.status_code == 200
    wait_until(lambda: streams_ended(site) > before, "the end of the stream")


def streams_ended(site: Site) -> float:
    with site.client(site.token) as client:
        told = client.get("/metrics", headers={"accept": "text/plain"}, extensions=sni()).text
    return sum(float(line.split()[-1]) for line in told.splitlines() if 'route="/events"' in line and "_total" in line)


@pytest.mark.slow
def test_no_log_holds_a_token(site: Site) -> None:
    with site.client(site.token) as client:
        call(client, "read", path="Tea")
        client.get("/", headers={"cookie": f"notewright={site.token}"}, extensions=sni())
    wait_until(lambda: site.proxy_log.exists() and "/mcp" in site.proxy_log.read_text(), "the access log")
    logs = [file for file in site.folder.glob("*.log")] + [site.folder / "state" / "state" / "audit.jsonl"]
    secret = site.token.removeprefix("nw_")
    assert [file.name for file in logs if file.exists() and secret in file.read_text(errors="replace")] == []


@pytest.mark.slow
@pytest.mark.parametrize("proxy", ["caddy", "nginx"])
def test_live_notes_come_through_the_proxy_and_the_token_in_their_address_is_in_no_log(
    proxy: str, tmp_path: Path
) -> None:
    with behind(proxy, tmp_path, "live:") as site, site.client(site.token) as client:
        page = client.get("/w/notes/edit/Tea.md", extensions=sni())
        found = re.search(r'data-document="([-0-9a-f]+)"', page.text)
        assert page.status_code == 200 and found, page.text
        auth = client.post(f"/doc/{found[1]}/auth", json={}, extensions=sni()).json()
        address = f"wss://{NAME}:{site.port}/d/{found[1]}/ws/{found[1]}?token={auth['token']}"
        wire = socket.create_connection(("127.0.0.1", site.port), PATIENCE)
        with connect(address, sock=wire, ssl=site.trusting(), open_timeout=PATIENCE) as socket_open:
            assert socket_open.recv(PATIENCE)[:2] == b"\0\0", "it asks what we have"
        wait_until(lambda: site.proxy_log.exists() and "/ws/" in site.proxy_log.read_text(), "the access log")
        secret = auth["token"].removeprefix("nwd_")
        assert [file.name for file in tmp_path.glob("*.log") if secret in file.read_text(errors="replace")] == []
