"""Is the bucket there, and may it be listed with these keys? One request, before anybody is welcomed."""

from dataclasses import replace

import obstore

from notewright.stores.s3.requests import OddKey, Requests
from notewright.stores.s3.settings import BucketSettings, connect, split_location

TIMEOUT_SECONDS, PATIENCE_SECONDS = 5.0, 8.0  # of the request, and with its repetitions


def refuse_unreachable(location: str, settings: BucketSettings) -> None:
    """A Problem that says what to set where the bucket cannot be served."""
    bucket, prefix = split_location(location)
    client = connect(bucket, replace(settings, timeout_seconds=TIMEOUT_SECONDS)).read
    requests = Requests(bucket, TIMEOUT_SECONDS, PATIENCE_SECONDS, lambda: False)
    try:
        requests.send(lambda: next(iter(obstore.list(client, prefix or None, chunk_size=1)), ()))
    except OddKey:
        pass  # it is there
