"""The SDKs' clients find the issuer by themselves, get a token from it, and are let in."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp.client import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from tests.clients.conftest import EXAMPLES, Npm
from tests.clients.questions import ANSWER, QUESTIONS
from tests.server.lines import over_http
from tests.server.provider import CALLBACK, SECRET, Provider, provider

pytestmark = pytest.mark.slow

ERAS = ["legacy", "2026-07-28"]
GENERATIONS = [(1, ""), (2, "2026-07-28")]
PATHS = ["/mcp/notes", "/mcp", "/w/examples/mcp/lens"]


@pytest.fixture(scope="module")
def issuing() -> Iterator[Provider]:
    with provider() as running:
        yield running


@pytest.fixture(scope="module")
def guarded(issuing: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that takes the issuer's tokens and nothing else."""
    place: Path = tmp_path_factory.mktemp("guarded")
    shutil.copytree(EXAMPLES, place / "notes")
    (place / "config.toml").write_text(f'[auth]\nissuer = "{issuing.issuer}"\n')
    words = [f"Examples={place / 'notes'}", "--state", str(place / "state"), "--config", str(place / "config.toml")]
    with over_http(*words) as address:
        yield address


class Pocket:
    """Where a client keeps what it was given."""

    def __init__(self, client: OAuthClientInformationFull | None = None) -> None:
        self.client = client
        self.tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


async def talk(url: str, auth: httpx2.Auth, era: str) -> str:
    tool, args = QUESTIONS[url.rpartition("/")[2].replace("mcp", "notes")]
    async with (
        httpx2.AsyncClient(auth=auth, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http), mode=era) as client,
    ):
        return str((await client.call_tool(tool, args)).content)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("path", PATHS)
def test_a_python_program_gets_its_own_token(issuing: Provider, guarded: str, path: str, era: str) -> None:
    pocket = Pocket()
    auth = ClientCredentialsOAuthProvider(guarded + path, pocket, "agent", SECRET, issuer=issuing.issuer)
    assert ANSWER in anyio.run(talk, guarded + path, auth, era)
    assert pocket.tokens is not None and pocket.tokens.scope == "notes:read notes:write"


@pytest.mark.parametrize("era", ERAS)
def test_a_person_signs_in_through_the_python_client(issuing: Provider, guarded: str, era: str) -> None:
    sent: list[str] = []

    async def to_browser(url: str) -> None:
        sent.append(url)

    async def come_back() -> AuthorizationCodeResult:
        came = await anyio.to_thread.run_sync(issuing.agreed, sent[-1], "alice")
        return AuthorizationCodeResult(code=came["code"], state=came["state"], iss=came["iss"])

    said = {"redirect_uris": [CALLBACK], "token_endpoint_auth_method": "client_secret_basic"}
    registered = said | {"client_id": "app", "client_secret": SECRET, "issuer": issuing.issuer}
    about, known = OAuthClientMetadata.model_validate(said), OAuthClientInformationFull.model_validate(registered)
    auth = OAuthClientProvider(f"{guarded}/mcp/notes", about, Pocket(known), to_browser, come_back)
    assert ANSWER in anyio.run(talk, f"{guarded}/mcp/notes", auth, era)
    assert len(sent) == 1


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_typescript_program_gets_its_own_token(
    npm: Npm, issuing: Provider, guarded: str, path: str, generation: tuple[int, str]
) -> None:
    tool, args = QUESTIONS[path.rpartition("/")[2].replace("mcp", "notes")]
    auth = {"clientId": "plain-agent", "clientSecret": "plain", "expectedIssuer": issuing.issuer}
    sdk, era = generation
    auth |= {"scope": "notes:read"} if sdk == 1 else {}  # which does not ask for what it was told to ask for
    asked = {"sdk": sdk, "era": era, "tool": tool, "args": args, "url": guarded + path, "auth": auth}
    done = npm.run("talk.mjs", json.dumps(asked))
    assert done.returncode == 0, done.stderr
    assert ANSWER in json.loads(done.stdout)["content"][-1]["text"]
