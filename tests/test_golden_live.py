"""The transcripts of `test_golden.py`, replayed where every note that anybody asks for is open as a live document."""

import contextlib
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.over_http import client_of, on_the_web
from tests.test_golden import OVER_HTTP, played
from tests.transcript import Transcript, Wire

from notewright.config.load import CommandLine, load
from notewright.errors import Problem
from notewright.notes.path import NotePath
from notewright.stores.live.document import Document
from notewright.stores.live.documents import LiveDocuments

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def over_the_web(words: list[str], surface: str) -> Iterator[Wire]:
    _, file, _, state = words
    config = load(CommandLine((), file, {"state": state}), environ={"HOME": state, "NOTEWRIGHT_LIVE": "1"})
    with on_the_web(config, live=True) as address, client_of(address, surface) as client:
        yield client


@pytest.fixture
def everything_open(monkeypatch: pytest.MonkeyPatch) -> list[NotePath]:
    """Whoever asks whether a note is open finds that it is, from the first call on: who reads all notes for the index
    before that opens none, or that call would wait for the log of each. Which were."""
    find_open = LiveDocuments.find_open
    found: list[NotePath] = []

    def open_or_find(documents: LiveDocuments, path: NotePath) -> Document | None:
        document = find_open(documents, path)
        is_call = not threading.current_thread().name.startswith("notewright-")
        if document is None and (is_call or found) and path.is_note and not path.is_hidden:
            with contextlib.suppress(Problem):
                document = documents.open(documents.id_of(path))
                found.append(path)
        return document

    monkeypatch.setattr(LiveDocuments, "find_open", open_or_find)
    return found


NO_NOTE = ("octarine/limits", "second_brain/finding")  # ask for no note by its name
MERGES = re.compile(  # what is refused on a folder and merged into a document: left out of the transcripts
    r"""^\$ keep\ saving .*? ^\$ stop\ saving\n  # somebody saves the file all the time
    | ^> [^\n]* \n ! \ conflict: [^\n]* changed\ since\ version .*? \n\n""",  # a version that was shown earlier
    re.M | re.S | re.X,
)


CALLS = [(path, name) for path, name in OVER_HTTP if ">" in MERGES.sub("", path.read_text())]


@pytest.mark.parametrize("path", [path for path, _ in CALLS], ids=[name for _, name in CALLS])
def test_a_transcript_is_the_same_on_live_documents(
    path: Path, tmp_path: Path, everything_open: list[NotePath]
) -> None:
    expected = MERGES.sub("", path.read_text())
    (tmp_path / path.parent.name).mkdir()
    kept = tmp_path / path.parent.name / path.name
    kept.write_text(expected)
    (tmp_path / "served").mkdir()
    assert played(kept, tmp_path / "served", over_the_web).split("\n") == expected.split("\n")
    name = f"{path.parent.name}/{path.stem}"
    assert everything_open or name in NO_NOTE or Transcript.read(path).settings.get("read_only"), "nothing was live"
