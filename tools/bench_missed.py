"""Why a row of docs/bench.md is over its budget, and what a profile of it shows: printed below the tables it is missed in."""

REASONS: dict[str, str] = {}
