"""Which bucket, how it is reached and with whose keys: what the usual AWS variables, profiles and roles say.

obstore reads the variables `AWS_*`, web identity tokens and the roles of containers and machines itself. Of a profile
(`config/aws.py`) fixed keys and `credential_process` are used; one that assumes a role or signs in by SSO needs boto3.
"""

import json
import shlex
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import S3Store as Client

from notewright.errors import Unavailable
from notewright.notes.path import path_problem
from notewright.stores.s3._signed_requests import BucketAddress

if TYPE_CHECKING:
    from obstore.store import ClientConfig

CONNECT_SECONDS = 3.0
LARGE_BYTES = 1 << 20  # an upload above this has LARGE_SECONDS
LARGE_SECONDS = 60.0
R2_HOST = ".r2.cloudflarestorage.com"


@dataclass(frozen=True)
class BucketSettings:
    """A workspace's configuration of its bucket. None: as the AWS variables and the profile have it."""

    endpoint: str | None = None
    region: str | None = None
    path_style: bool | None = None
    poll_seconds: float = 60.0  # between two LISTs that look for changes made by others
    one_write_per_second: bool | None = None  # of one key, as R2 has it; None: by the endpoint
    timeout_seconds: float = 10.0  # of one request
    retry_seconds: float = 30.0  # of a request with all its repetitions
    profile: Mapping[str, str] = field(default_factory=dict, repr=False)  # what `config.aws.read_aws_profile` says


@dataclass(frozen=True)
class Clients:
    """One bucket's clients, which differ in the deadline of a request."""

    read: Client  # its deadline counts from the last bytes that came
    write: Client
    write_large: Client
    service: str  # the endpoint, or "aws": part of the bucket's identity
    one_write_per_second: bool  # of one key
    address: BucketAddress
    keys: Callable[[], Mapping[str, Any]] | None  # None: obstore finds them by itself


def split_location(location: str) -> tuple[str, str]:
    """Bucket and prefix of `s3://bucket/prefix`; the prefix without a slash at its end, perhaps empty."""
    parts = urlsplit(location)
    bucket, prefix = parts.netloc, location.partition("://")[2].partition("/")[2].strip("/")
    problem = path_problem(prefix) if prefix else None
    if parts.scheme != "s3" or not bucket or "@" in bucket or problem:
        reason = f": {problem}" if problem else ""
        raise Unavailable(f"{location!r} names no bucket{reason}", hint="write it as s3://bucket/prefix")
    return bucket, prefix


def make_clients(bucket: str, settings: BucketSettings) -> Clients:
    """Clients of the bucket. No request is sent yet."""
    config: dict[str, Any] = {"disable_bulk_delete": True}  # a POST, which not every service has
    endpoint = (settings.endpoint or settings.profile.get("endpoint_url") or "").rstrip("/")
    region = settings.region or settings.profile.get("region")
    host = urlsplit(endpoint or f"https://s3.{region or 'us-east-1'}.amazonaws.com")
    if host.scheme not in ("http", "https") or not host.hostname:
        raise Unavailable(f"the endpoint {endpoint!r} is no address", hint="write it as https://host")
    is_r2 = host.hostname.endswith(R2_HOST)
    config["region"] = region or ("auto" if is_r2 else "us-east-1")
    by_host = settings.path_style is False or (settings.path_style is None and not endpoint)
    config["virtual_hosted_style_request"] = by_host
    address = host._replace(netloc=f"{bucket}.{host.netloc}").geturl() if by_host else f"{host.geturl()}/{bucket}"
    if endpoint:  # obstore wants the bucket's name in it where it is part of the host
        config["endpoint"] = address if by_host else endpoint
    provider = _credential_provider(settings.profile)
    if provider is not None:
        config["credential_provider"] = provider
    seconds = settings.timeout_seconds
    return Clients(
        read=_make_client(bucket, config, LARGE_SECONDS, seconds),
        write=_make_client(bucket, config, seconds),
        write_large=_make_client(bucket, config, LARGE_SECONDS),
        service=endpoint or "aws",
        one_write_per_second=is_r2 if settings.one_write_per_second is None else settings.one_write_per_second,
        address=BucketAddress(address, config["region"], seconds),
        keys=provider,
    )


def _make_client(bucket: str, config: dict[str, Any], timeout: float, read_timeout: float | None = None) -> Client:
    options: ClientConfig = {"timeout": timedelta(seconds=timeout), "allow_http": True}
    options["connect_timeout"] = timedelta(seconds=min(CONNECT_SECONDS, timeout))
    if read_timeout is not None:
        options["read_timeout"] = timedelta(seconds=read_timeout)
    try:
        return Client(bucket, client_options=options, retry_config={"max_retries": 0}, **config)
    except (ValueError, TypeError, OSError, BaseError) as error:
        reason = str(error).partition("\n")[0]
        raise Unavailable(f"the bucket {bucket} cannot be reached: {reason}", hint="look at its settings") from error


def _credential_provider(profile: Mapping[str, str]) -> Any:
    """A function that gives obstore the keys, or None where the profile says nothing of keys."""
    if "aws_access_key_id" in profile and "role_arn" not in profile:
        fixed = {
            "access_key_id": profile["aws_access_key_id"],
            "secret_access_key": profile.get("aws_secret_access_key", ""),
            "token": profile.get("aws_session_token"),
            "expires_at": None,
        }
        return lambda: fixed
    if "credential_process" in profile:
        return lambda: _run_credential_process(profile["credential_process"])
    if not any(key == "role_arn" or key.startswith("sso_") for key in profile):
        return None
    try:
        return import_module("obstore.auth.boto3").Boto3CredentialProvider()
    except ImportError:
        hint = "pip install boto3, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        raise Unavailable("this AWS profile assumes a role or signs in by SSO", hint=hint) from None


def _run_credential_process(command: str) -> dict[str, Any]:
    """The keys that a profile's `credential_process` prints."""
    try:
        ran = subprocess.run(shlex.split(command), capture_output=True, check=True, timeout=60)
        printed = json.loads(ran.stdout)
        expires = printed.get("Expiration")
        return {
            "access_key_id": printed["AccessKeyId"],
            "secret_access_key": printed["SecretAccessKey"],
            "token": printed.get("SessionToken"),
            "expires_at": datetime.fromisoformat(expires).astimezone(UTC) if expires else None,
        }
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
        raise Unavailable(f"credential_process gave no keys: {type(error).__name__}", hint="try it by hand") from error
