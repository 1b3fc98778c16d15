"""HTTPS by certificate files."""

import os
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.server.listener import GET, Echo, answer, ask, certificate, config, connected, heard, listening_to

from notewright.config.load import Config
from notewright.errors import Invalid
from notewright.server.listen import tls
from notewright.server.listen.bounded_protocol import ConnectionLimits

pytestmark = pytest.mark.slow


def secure(folder: Path, name: str = "localhost") -> Config:
    cert, key = certificate(folder, name)
    return config(tls_cert=cert, tls_key=key)


def shaken(port: int, given: Config, name: str = "localhost") -> ssl.SSLSocket:
    """A client that trusts the certificate which is in the file now."""
    context = ssl.create_default_context(cafile=given["http.tls_cert"])
    return context.wrap_socket(connected(port), server_hostname=name)


@pytest.mark.parametrize("loop", ["auto", "asyncio"])
def test_a_client_that_trusts_the_certificate_is_served_over_https(tmp_path: Path, loop: str) -> None:
    given = secure(tmp_path)
    with listening_to(Echo(), given, loop=loop) as port, shaken(port, given) as client:
        assert client.version() in ("TLSv1.2", "TLSv1.3")
        client.sendall(GET)
        assert b"127.0.0.1 https 0" in answer(client)


def test_an_old_version_of_tls_is_refused(tmp_path: Path) -> None:
    given = secure(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("DEFAULT:@SECLEVEL=0")  # else it is the client that refuses
    with pytest.warns(DeprecationWarning):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with listening_to(Echo(), given) as port:
        with connected(port) as client, pytest.raises(OSError, match=r"EOF|PROTOCOL_VERSION|reset"):
            context.wrap_socket(client)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with context.wrap_socket(connected(port)) as newer:
            assert newer.version() == "TLSv1.2"


def test_who_speaks_no_tls_gets_nothing_and_disturbs_nobody(tmp_path: Path) -> None:
    given = secure(tmp_path)
    with listening_to(Echo(), given) as port:
        with connected(port) as plain:
            plain.sendall(GET)
            assert b"HTTP" not in heard(plain)
        with shaken(port, given) as client:
            client.sendall(GET)
            assert b"200 OK" in answer(client)


def test_who_does_not_shake_hands_takes_a_place_like_everybody(tmp_path: Path) -> None:
    given = secure(tmp_path)
    with listening_to(Echo(), given, limits=ConnectionLimits(connections=2)) as port:
        silent = [connected(port) for _ in range(2)]
        with shaken(port, given) as client:
            assert heard(client).startswith(b"HTTP/1.1 503")
        for one in silent:
            one.close()


def test_a_renewed_certificate_is_shown_to_whoever_comes_next(tmp_path: Path) -> None:
    given = secure(tmp_path)
    opened = tls.load(given)
    assert opened is not None
    with served(opened) as port:
        before = shaken(port, given)
        certificate(tmp_path)  # new files of the same name
        tls.reload(opened, given)
        with shaken(port, given) as after:
            assert after.getpeercert(True) != before.getpeercert(True)
        before.close()


def test_half_of_a_new_pair_leaves_the_old_certificate_in_use(tmp_path: Path) -> None:
    given = secure(tmp_path)
    opened = tls.load(given)
    assert opened is not None
    old = Path(given["http.tls_cert"]).read_bytes()
    certificate(tmp_path, "other")
    os.replace(tmp_path / "other.pem", given["http.tls_cert"])
    with pytest.raises(Invalid, match="does not belong"):
        tls.reload(opened, given)
    Path(given["http.tls_cert"]).write_bytes(old)
    with served(opened) as port, shaken(port, given) as client:
        assert client.version()


@pytest.mark.parametrize("how", ["off", "on"])
def test_https_cannot_be_turned_on_or_off_in_a_running_server(tmp_path: Path, how: str) -> None:
    old, new = (secure(tmp_path), config()) if how == "off" else (config(), secure(tmp_path))
    with pytest.raises(Invalid, match=f"turned {how}"):
        tls.refuse_switch(old, new)
    tls.refuse_switch(old, old)


def served(opened: ssl.SSLContext):  # type: ignore[no-untyped-def]
    return listening_to(Echo(), ssl_context_factory=lambda *_: opened)


def nothing(folder: Path) -> tuple[str | None, str | None]:
    return str(folder / "no.pem"), str(folder / "no.key")


def only_cert(folder: Path) -> tuple[str | None, str | None]:
    return certificate(folder)[0], None


def only_key(folder: Path) -> tuple[str | None, str | None]:
    return None, certificate(folder)[1]


def mismatched(folder: Path) -> tuple[str | None, str | None]:
    return certificate(folder)[0], certificate(folder, "other")[1]


def no_pem(folder: Path) -> tuple[str | None, str | None]:
    (folder / "a").write_text("hello")
    return str(folder / "a"), str(folder / "a")


def a_folder(folder: Path) -> tuple[str | None, str | None]:
    return str(folder), str(folder)


def encrypted(folder: Path) -> tuple[str | None, str | None]:
    cert, _ = certificate(folder)
    key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    (folder / "locked.key").write_bytes(key)
    return cert, str(folder / "locked.key")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (nothing, "no.pem cannot be read: no such file"),
        (only_cert, "http.tls_cert is set and http.tls_key is not"),
        (only_key, "http.tls_key is set and http.tls_cert is not"),
        (mismatched, "other.key does not belong to the certificate"),
        (no_pem, "cannot be used for HTTPS"),
        (a_folder, "cannot be read: is a directory"),
        (encrypted, "protected by a password"),
    ],
)
def test_files_that_cannot_be_used_are_refused_in_words(
    tmp_path: Path, files: Callable[[Path], tuple[str | None, str | None]], words: str
) -> None:
    cert, key = files(tmp_path)
    with pytest.raises(Invalid, match=words) as refused:
        tls.load(config(tls_cert=cert, tls_key=key))
    assert refused.value.hint


def test_without_files_there_is_no_tls() -> None:
    assert tls.load(config()) is None
    with listening_to(Echo()) as port:
        assert b"127.0.0.1 http 0" in ask(port)
        with connected(port) as client, pytest.raises((ssl.SSLError, OSError)):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            client.settimeout(5)
            context.wrap_socket(client)
