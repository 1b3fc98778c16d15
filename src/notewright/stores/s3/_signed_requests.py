"""What obstore cannot do: LIST a bucket that holds a key which is no path (`a//b`: it gives up the whole listing), and
copy from another bucket. A signed address (Signature Version 4) and the answer's XML are all there is to it."""

import hashlib
import hmac
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPException
from typing import Any
from urllib.parse import quote, unquote_plus, urlsplit

_ALGORITHM = "AWS4-HMAC-SHA256"
_EXPIRES_SECONDS = 300


@dataclass(frozen=True, slots=True)
class BucketAddress:
    """Where a bucket answers: the address of the bucket itself, and the region that signatures name."""

    url: str
    region: str
    timeout: float


def list_all(bucket: BucketAddress, keys: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Every object under a prefix, as obstore describes it, whatever its key is. OSError where that fails."""
    found: list[dict[str, Any]] = []
    query = {"list-type": "2", "prefix": prefix, "encoding-type": "url"}
    while True:
        try:
            with urllib.request.urlopen(sign(bucket, keys, query, datetime.now(UTC)), timeout=bucket.timeout) as answer:
                page = ElementTree.fromstring(answer.read())
        except (HTTPException, ElementTree.ParseError) as error:
            raise OSError(f"the listing was cut off: {error}") from error
        for element in page.iter():
            element.tag = element.tag.rpartition("}")[2]  # without the namespace
        encoded = page.findtext("EncodingType") == "url"
        for each in page.iter("Contents"):
            key, size = each.findtext("Key") or "", int(each.findtext("Size") or 0)
            if key.endswith("/") and size == 0:
                continue  # the marker that consoles put for a folder
            found.append(
                {
                    "path": unquote_plus(key) if encoded else key,
                    "size": size,
                    "e_tag": each.findtext("ETag") or "",
                    "last_modified": datetime.fromisoformat(each.findtext("LastModified") or ""),
                }
            )
        if page.findtext("IsTruncated") != "true":
            return found
        query["continuation-token"] = page.findtext("NextContinuationToken") or ""


def copy_object(bucket: BucketAddress, keys: Mapping[str, Any], source: str, key: str) -> bool:
    """Copy `bucket/key` of the same service to a key of this bucket. OSError where that fails; False where the service
    says in an answer that began well that it could not."""
    headers = {"x-amz-copy-source": quote(f"/{source}")}
    url = sign(bucket, keys, {}, datetime.now(UTC), method="PUT", key=key, headers=headers)
    request = urllib.request.Request(url, method="PUT", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=bucket.timeout) as answer:
            return b"<Error>" not in answer.read()
    except HTTPException as error:
        raise OSError(f"the answer was cut off: {error}") from error


def sign(
    bucket: BucketAddress,
    keys: Mapping[str, Any],
    query: Mapping[str, str],
    now: datetime,
    *,
    method: str = "GET",
    key: str = "",
    headers: Mapping[str, str] | None = None,
) -> str:
    """The address of a request, signed with these headers, of which the names are in small letters."""
    parts = urlsplit(bucket.url)
    signed_headers = {"host": parts.netloc} | dict(headers or {})
    names = ";".join(sorted(signed_headers))
    day, moment = now.strftime("%Y%m%d"), now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{day}/{bucket.region}/s3/aws4_request"
    fields = dict(query) | {
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": f"{keys['access_key_id']}/{scope}",
        "X-Amz-Date": moment,
        "X-Amz-Expires": str(_EXPIRES_SECONDS),
        "X-Amz-SignedHeaders": names,
    }
    if keys.get("token"):
        fields["X-Amz-Security-Token"] = keys["token"]
    line = "&".join(f"{quote(name, safe='')}={quote(fields[name], safe='')}" for name in sorted(fields))
    path = f"{parts.path}/{quote(key)}" if key else parts.path or "/"
    header_lines = "".join(f"{name}:{signed_headers[name]}\n" for name in sorted(signed_headers))
    request = f"{method}\n{path}\n{line}\n{header_lines}\n{names}\nUNSIGNED-PAYLOAD"
    to_sign = f"{_ALGORITHM}\n{moment}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    secret = f"AWS4{keys['secret_access_key']}".encode()
    for piece in (day, bucket.region, "s3", "aws4_request", to_sign):
        secret = hmac.new(secret, piece.encode(), hashlib.sha256).digest()
    return f"{parts.scheme}://{parts.netloc}{path}?{line}&X-Amz-Signature={secret.hex()}"
