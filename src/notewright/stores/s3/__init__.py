"""Notes as objects in a bucket of S3, R2 or any service that honours conditional writes."""
