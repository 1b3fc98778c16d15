"""Why rows of docs/bench.md are over their budgets, and what their profiles show: told below the tables."""

REASONS: dict[str, str] = {}
