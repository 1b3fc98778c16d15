"""For operators: logs, metrics, health, the audit log."""
