"""Verbs that only one of the published surfaces needs."""
