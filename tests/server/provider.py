"""A real authorization server to get tokens from: npm's oidc-provider, in a process of its own."""

import contextlib
import hashlib
import json
import re
import secrets
import shutil
import subprocess
import threading
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

HERE = Path(__file__).resolve().parent
MODULES = HERE.parent / "clients" / "node_modules"
SECRET = "a/secret+with:odd%letters"  # so that who forgets to encode it is found out
CALLBACK = "http://127.0.0.1:9/callback"
AGENTS = ("agent", "PS256-agent", "ES256-agent", "EdDSA-agent", "opaque-agent")
CLIENTS = [
    *(
        {"client_id": name, "client_secret": SECRET, "grant_types": ["client_credentials"], "redirect_uris": []}
        | {"response_types": []}
        for name in AGENTS
    ),
    *(
        {"client_id": name, "client_secret": SECRET, "redirect_uris": [CALLBACK], "response_types": ["code"]}
        | {"grant_types": ["authorization_code", "refresh_token"]}
        for name in ("app", "opaque-app")
    ),
    {"client_id": "plain-agent", "client_secret": "plain", "grant_types": ["client_credentials"], "redirect_uris": []}
    | {"response_types": []},  # for who does not encode it
    {"client_id": "notewright", "client_secret": SECRET, "grant_types": [], "redirect_uris": [], "response_types": []},
]


def keys(generation: int = 1) -> list[dict[str, Any]]:
    """Private keys of every kind the issuer may sign with, as JWKs."""
    made = [
        RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 2048), as_dict=True),
        ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()), as_dict=True),
        OKPAlgorithm.to_jwk(ed25519.Ed25519PrivateKey.generate(), as_dict=True),
    ]
    kept = [{name: value for name, value in key.items() if name != "key_ops"} for key in made]
    return [key | {"kid": f"{key['kty']}-{generation}", "use": "sig"} for key in kept]


class Provider:
    """An authorization server that runs: it issues tokens by the grants that MCP clients use."""

    def __init__(self, node: str, *, path: str = "", port: int = 0) -> None:
        self.keys = keys()
        told = {"path": path, "port": port, "keys": self.keys, "clients": CLIENTS}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [node, str(HERE / "provider.mjs"), json.dumps(told)],
            stdin=pipe,
            stdout=pipe,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.issuer: str = self._hear()["issuer"]
        self._http = httpx2.Client(timeout=20)

    def rotate(self) -> None:
        """From now on other keys sign, and only they are told of."""
        self.keys = keys(generation=2)
        self._tell({"keys": self.keys})

    def count(self, path: str) -> int:
        """How often it was asked for a path."""
        return int(self._tell({"count": path})["count"])

    def close(self) -> None:
        self._http.close()
        try:
            self._process.communicate(timeout=10)  # closes its input, and with that it ends
        finally:
            self._process.kill()
            self._process.wait()

    def token(self, resource: str, scope: str = "notes:read", client: str = "agent") -> str:
        """An access token for a program that acts for itself."""
        form = {"grant_type": "client_credentials", "resource": resource, "scope": scope}
        return str(self._tokens(form, client)["access_token"])

    def signed_in(self, user: str, resource: str, scope: str, client: str = "app") -> Mapping[str, str]:
        """What a client has after somebody signed in in a browser and agreed: access, ID and refresh token."""
        verifier = secrets.token_urlsafe(48)
        challenge = urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        asked = {
            "client_id": client,
            "response_type": "code",
            "redirect_uri": CALLBACK,
            "scope": scope,
            "resource": resource,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "prompt": "consent",
            "nonce": "n-once",
        }
        form = {"grant_type": "authorization_code", "redirect_uri": CALLBACK, "code_verifier": verifier}
        return self._tokens(form | {"code": self._code(asked, user), "resource": resource}, client)

    def revoke(self, token: str, client: str) -> None:
        self._post("/token/revocation", {"token": token}, client)

    def _code(self, asked: Mapping[str, str], user: str) -> str:
        return self.agreed(f"{self.issuer}/auth?{urlencode(asked)}", user)["code"]

    def agreed(self, url: str, user: str) -> dict[str, str]:
        """Go the browser's way: sign in, agree, and be sent back with a code."""
        with httpx2.Client(timeout=20) as browser:
            came = browser.get(url)
            for _ in range(12):
                if came.is_redirect and came.headers["location"].startswith(CALLBACK):
                    return dict(parse_qsl(urlsplit(came.headers["location"]).query))
                if came.is_redirect:
                    came = browser.get(urljoin(str(came.url), came.headers["location"]))
                    continue
                prompt = re.search(r'name="prompt" value="(\w+)"', came.text)
                action = re.search(r'action="([^"]+)"', came.text)
                assert prompt and action, came.text
                came = browser.post(action[1], data={"prompt": prompt[1], "login": user, "password": "any"})
        raise AssertionError("the sign-in does not end")

    def _tokens(self, form: Mapping[str, str], client: str) -> Mapping[str, str]:
        answer: Mapping[str, str] = self._post("/token", form, client).json()
        return answer

    def _post(self, path: str, form: Mapping[str, str], client: str) -> httpx2.Response:
        from_form = "a%2Fsecret%2Bwith%3Aodd%25letters"
        answer = self._http.post(f"{self.issuer}{path}", data=form, auth=(client, from_form))
        assert answer.status_code == 200, answer.text
        return answer

    def _tell(self, message: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        return self._hear()

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        watchdog = threading.Timer(30, self._process.kill)
        watchdog.start()
        try:
            line = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        assert line, "the provider has gone"
        heard: dict[str, Any] = json.loads(line)
        return heard


def node() -> str:
    """The Node that npm's packages want, or a skipped test."""
    own = MODULES / ".bin" / "node"
    found = str(own) if own.exists() else shutil.which("node")
    if found is None or not (MODULES / "oidc-provider").is_dir():
        pytest.skip("service: the OpenID provider is not installed (make clients)")
    return found


@contextlib.contextmanager
def provider(*, path: str = "", port: int = 0) -> Iterator[Provider]:
    running = Provider(node(), path=path, port=port)
    try:
        yield running
    finally:
        running.close()


def forged(key: Mapping[str, Any], claims: Mapping[str, Any], **header: Any) -> str:
    """A token that this private key signs, whatever it says."""
    algorithm = {"RSA": "RS256", "EC": "ES256", "OKP": "EdDSA"}[key["kty"]]
    named = {"kid": key["kid"], "typ": "at+jwt"} | header
    made = jwt.PyJWK(dict(key), algorithm).key
    return jwt.encode(
        dict(claims), made, algorithm, {name: value for name, value in named.items() if value is not None}
    )


def public(keys: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What an issuer tells of its keys."""
    secret = {"d", "p", "q", "dp", "dq", "qi"}
    return [{name: value for name, value in key.items() if name not in secret} for key in keys]
