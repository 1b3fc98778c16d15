"""Where the shared exams are, for the tests that sit them."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared vaults, truths, cases and questions; without it the test is skipped."""
    place = Path(os.environ.get("NOTEWRIGHT_SHARED", ROOT.parent / "shared"))
    if not (place / "cases").is_dir():
        pytest.skip("the shared folder (../shared or $NOTEWRIGHT_SHARED) is not here")
    return place
