"""What can be done: read, find, write, sync, access. The only room that decides."""

from notewright.engine.access import Access
from notewright.engine.workspace import Limits, Workspace
from notewright.ledger import Actor

__all__ = ["Access", "Actor", "Limits", "Workspace"]
