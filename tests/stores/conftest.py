"""What tests of stores share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from notewright.stores.folder.store import FolderStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FolderStore]:
    made = FolderStore(tmp_path)
    yield made
    made.close()
