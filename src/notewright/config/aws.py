"""The settings of the AWS profile in use, for stores in a bucket. obstore itself reads the variables `AWS_*`."""

import configparser
import os
from pathlib import Path

from notewright.errors import Unavailable

_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")


def read_aws_profile() -> dict[str, str]:
    """The settings of the profile in use, from both AWS files. Keys, endpoint and region that are given by variables
    come before its own."""
    name = _get_variable("AWS_PROFILE", "AWS_DEFAULT_PROFILE") or "default"
    found: dict[str, str] = {}
    for variable, file, section in (
        ("AWS_CONFIG_FILE", "config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", name),
    ):
        place = Path(_get_variable(variable) or f"~/.aws/{file}").expanduser()
        parsed = configparser.RawConfigParser()
        try:
            parsed.read(place, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError) as error:
            reason = str(error).partition("\n")[0]
            raise Unavailable(f"{place} cannot be read: {reason}", hint="look at the file") from error
        if parsed.has_section(section):
            found |= dict(parsed.items(section))
    given = {"endpoint_url": aws_endpoint(), "region": aws_region()}
    where = {name: value for name, value in given.items() if value}
    if _get_variable("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        keys = {name: _get_variable(name.upper()) for name in _KEYS}
        found = {name: value for name, value in found.items() if name in ("region", "endpoint_url")}
        return found | where | {name: value for name, value in keys.items() if value}
    if not found and _get_variable("AWS_PROFILE"):
        raise Unavailable(f"there is no AWS profile {name}", hint="name one of ~/.aws/credentials in AWS_PROFILE")
    return found | where


def aws_endpoint() -> str | None:
    """The service's address in the variables: obstore takes it from them, and we must know that it does."""
    return _get_variable("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


def aws_region() -> str | None:
    return _get_variable("AWS_REGION", "AWS_DEFAULT_REGION")


def _get_variable(*names: str) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)
