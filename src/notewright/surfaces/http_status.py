"""Which HTTP status each error code has, for the API, the page and the dialects that number their errors."""

STATUS = {
    "not_found": 404,
    "ambiguous": 409,
    "exists": 409,
    "conflict": 409,
    "invalid": 400,
    "not_text": 422,
    "too_large": 413,
    "read_only": 403,
    "forbidden": 403,
    "quota": 507,
    "no_space": 507,
    "busy": 503,
    "indexing": 503,
    "limited": 429,
    "unavailable": 503,
    "internal": 500,
}
