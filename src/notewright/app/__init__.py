"""Puts the parts together. The only room that names a concrete store, index, ledger or accounts."""
