"""HTTPS with certificate files, which may be renewed while we serve. The web stack is not needed to read them."""

import ssl

from notewright.config.load import Config
from notewright.errors import Invalid


def load(config: Config) -> ssl.SSLContext | None:
    """A context with the certificate that the configuration names, None where it names none, or Invalid in words."""
    files = _files(config)
    return None if files is None else _load_context(*files)


def reload(context: ssl.SSLContext, config: Config) -> None:
    """Use the certificate that is in the files now, from the next connection on.

    Invalid, and the old one stays, if it cannot be used: half of a new pair in a live context would refuse every
    client, so it is tried in another context first.
    """
    files = _files(config)
    assert files is not None, "refuse_switch was called before"
    _load_context(*files)
    context.load_cert_chain(*files)


def refuse_switch(old: Config, new: Config) -> None:
    """Invalid where HTTPS would begin or end: of several processes behind one socket only those to come would do so."""
    if (_files(old) is None) != (_files(new) is None):
        how = "on" if _files(old) is None else "off"
        raise Invalid(f"HTTPS cannot be turned {how} in a running server", hint="restart it", what="http.tls_cert")


def _files(config: Config) -> tuple[str, str] | None:
    cert, key = config["http.tls_cert"], config["http.tls_key"]
    if not cert and not key:
        return None
    if not cert or not key:
        present, missing = ("http.tls_cert", "http.tls_key") if cert else ("http.tls_key", "http.tls_cert")
        raise Invalid(f"{present} is set and {missing} is not", hint="HTTPS needs both", what=missing)
    return str(cert), str(key)


def _load_context(cert: str, key: str) -> ssl.SSLContext:
    for file, setting in ((cert, "http.tls_cert"), (key, "http.tls_key")):
        try:
            with open(file, "rb") as readable:
                readable.read(1)
        except OSError as error:
            words = f"{file} cannot be read: {(error.strerror or str(error)).lower()}"
            raise Invalid(words, hint=f"look at {setting}", what=setting) from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(cert, key, _refuse_password)
    except _Encrypted:
        hint = "write it without one, readable by this server only"
        raise Invalid(f"the key {key} is protected by a password", hint=hint, what="http.tls_key") from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            words, hint = f"the key {key} does not belong to the certificate {cert}", "name the key it was made with"
            raise Invalid(words, hint=hint, what="http.tls_key") from None
        hint = "both must be PEM files; the certificate comes first in its file, then those that signed it"
        words = f"{cert} and {key} cannot be used for HTTPS: {error.reason or error}"
        raise Invalid(words, hint=hint, what="http.tls_cert") from None
    return context


class _Encrypted(Exception):
    """The key needs a password, which nobody is there to type."""


def _refuse_password() -> str:
    raise _Encrypted
