"""Files as they lie in their folders."""

import pytest
from tests.engine.parts import desk

from notewright.engine import walk
from notewright.stores.memory import MemoryStore


@pytest.mark.slow
def test_folders_deeper_than_python_recurses_are_walked() -> None:
    store = MemoryStore()
    store.put("d/" * 1100 + "a.md", b"")
    walked = list(walk(desk(store), "", recursive=True))
    assert len(walked) == 1101 and walked[-1].path.endswith("/d/a.md")
