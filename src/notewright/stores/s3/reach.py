"""Is the bucket there, and may it be listed with these keys? One request, before anybody is welcomed."""

from dataclasses import replace

from notewright.stores.s3.listing import BucketListing
from notewright.stores.s3.requests import Requests
from notewright.stores.s3.settings import BucketSettings, split_location

TIMEOUT_SECONDS, PATIENCE_SECONDS = 5.0, 8.0  # of the request, and with its repetitions


def refuse_unreachable(location: str, settings: BucketSettings) -> None:
    """A Problem that says what to set where the bucket cannot be served."""
    bucket, prefix = split_location(location)
    impatient = replace(settings, timeout_seconds=TIMEOUT_SECONDS, retry_seconds=PATIENCE_SECONDS)
    BucketListing(Requests(bucket, impatient, lambda: False), "").holds(prefix)
