"""For whoever runs the server: logs, metrics, health, the audit log."""
