"""HTTPS by certificate files, which may be renewed while we serve. Nothing of the web stack is needed to read them."""

import ssl

from notewright.config.load import Config
from notewright.errors import Invalid


class Tls:
    """A certificate and its key in a context that lives as long as the server does."""

    def __init__(self, cert: str, key: str) -> None:
        self.context = _loaded(cert, key)

    def reload(self, config: Config) -> None:
        """Whoever comes from now on sees the certificate that is in the files now.

        Invalid, and the old one stays, if it cannot be used: half of a new pair in a living context would refuse
        everybody, so it is tried in another context first.
        """
        cert, key = _files(config) or (None, None)
        if cert is None or key is None:
            hint = "restart to serve without HTTPS"
            raise Invalid("HTTPS cannot be turned off while it is served", hint=hint, what="http.tls_cert")
        _loaded(cert, key)
        self.context.load_cert_chain(cert, key)


def opened(config: Config) -> Tls | None:
    """What the configuration names, None where it names nothing, or Invalid in words."""
    files = _files(config)
    return None if files is None else Tls(*files)


def _files(config: Config) -> tuple[str, str] | None:
    cert, key = config["http.tls_cert"], config["http.tls_key"]
    if not cert and not key:
        return None
    if not cert or not key:
        there, missing = ("http.tls_cert", "http.tls_key") if cert else ("http.tls_key", "http.tls_cert")
        raise Invalid(f"{there} is set and {missing} is not", hint="HTTPS needs both", what=missing)
    return str(cert), str(key)


def _loaded(cert: str, key: str) -> ssl.SSLContext:
    _readable(cert, "http.tls_cert")
    _readable(key, "http.tls_key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(cert, key, _no_password)
    except _Encrypted:
        hint = "write it without one, readable by this server only"
        raise Invalid(f"the key {key} is protected by a password", hint=hint, what="http.tls_key") from None
    except ssl.SSLError as error:
        raise _unusable(cert, key, error) from None
    return context


def _unusable(cert: str, key: str, error: ssl.SSLError) -> Invalid:
    if error.reason == "KEY_VALUES_MISMATCH":
        hint = "name the key it was made with"
        return Invalid(f"the key {key} does not belong to the certificate {cert}", hint=hint, what="http.tls_key")
    hint = "both must be PEM files; the certificate comes first in its file, then those that signed it"
    return Invalid(
        f"{cert} and {key} cannot be used for HTTPS: {error.reason or error}", hint=hint, what="http.tls_cert"
    )


def _readable(file: str, setting: str) -> None:
    try:
        with open(file, "rb") as opened:
            opened.read(1)
    except OSError as error:
        words = f"{file} cannot be read: {(error.strerror or str(error)).lower()}"
        raise Invalid(words, hint=f"look at {setting}", what=setting) from None


class _Encrypted(Exception):
    """Somebody would have to type a password, and nobody is there."""


def _no_password() -> str:
    raise _Encrypted
