"""The transcripts of `test_golden.py`, replayed on notes in a bucket: the same words, but for what a bucket lacks."""

import json
from functools import partial
from pathlib import Path

import obstore
import pytest
from tests.bucket import Bucket
from tests.test_golden import FILES, NAMES, SAMPLES, over_stdio
from tests.transcript import NOTED, Outside, Player, Transcript, Words

pytestmark = pytest.mark.slow  # a process for each

SAVING = "is being changed by another program"
DIFFERENCES: dict[
    str, list[tuple[str, str]]
] = {  # the only ones: words in a transcript, and what a bucket says instead
    # An object has no permissions: they are left out.
    "octarine/notes": [(',"permissions":"rw-r--r--"', "")],
    # A file that somebody keeps saving may be half written, so it is waited for. An object is always whole: whoever
    # changes it has every attempt refused, and is told that it changed.
    "cairn/busy": [(f"Start.md {SAVING}. try again in a moment", "Note 'Start' changed, read it again")],
    "obsidian/busy": [(f"Start.md {SAVING}. try again in a moment", "Note 'Start' changed, read it again")],
    "notes/writing": [
        (
            f"busy: Journal/2025-05-31.md {SAVING}. Try again in a moment.",
            "conflict: Journal/2025-05-31.md changed since it was read. Read it again.",
        )
    ],
    "octarine/rules": [("EBUSY", "ECONFLICT")],
    "second_brain/busy": [
        (f"503: Start.md {SAVING}. Try again in a moment", "409: Start.md changed since it was read. Read it again"),
        ('_meta {"code": 503}', '_meta {"code": 409}'),
    ],
}


class OutsideBucket(Outside):
    """Somebody else at the objects of the first workspace."""

    def __init__(self, bucket: Bucket, name: str) -> None:
        super().__init__(Path(bucket.prefix) / name)
        self._bucket, self._name = bucket, name

    def act(self, said: str) -> None:
        verb, _, rest = said.partition(" ")
        if verb == "save":
            path, _, text = rest.partition(' "')
            put_noted(self._bucket, f"{self._name}/{path}", json.loads('"' + text).encode())
        elif verb == "remove":
            obstore.delete(self._bucket.outside, f"{self.root}/{rest}")
        elif verb == "keep":
            self._bucket.proxy.breaks = partial(self._save_before, f"{self._name}/{rest.removeprefix('saving ')}")
        elif verb == "stop":
            self._bucket.proxy.breaks = None

    def _save_before(self, path: str, kind: str, key: str, number: int) -> None:
        """Whoever writes is always a moment later than somebody else."""
        if kind == "PUT" and key == f"{self._bucket.prefix}/{path}":
            self._bucket.put(path, f"save {number}\n".encode() * 20)


def put_noted(bucket: Bucket, path: str, data: bytes) -> None:
    bucket.put(path, data)
    bucket.proxy.last_modified[f"{bucket.prefix}/{path}"] = NOTED


def served(transcript: Transcript, bucket: Bucket, place: Path) -> list[str]:
    """The words for `notewright serve`; the samples are in the bucket."""
    lines: list[str] = []
    for name, sample in transcript.workspaces.items():
        for path in sorted((SAMPLES / sample).rglob("*")):
            if path.is_file():
                put_noted(bucket, f"{name}/{path.relative_to(SAMPLES / sample)}", path.read_bytes())
        lines += [f"[workspaces.{json.dumps(name)}]", f"location = {json.dumps(f'{bucket.location}/{name}')}"]
        lines += [f"endpoint = {json.dumps(bucket.proxy.endpoint)}", "poll_seconds = 1"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in transcript.settings.items()]
    (place / "config.toml").write_text("\n".join(lines) + "\n")
    return ["--config", str(place / "config.toml"), "--state", str(place / "kept")]


@pytest.mark.parametrize(("path", "name"), list(zip(FILES, NAMES, strict=True)), ids=NAMES)
def test_a_transcript_is_the_same_on_a_bucket(path: Path, name: str, bucket: Bucket, tmp_path: Path) -> None:
    transcript = Transcript.read(path)
    outside = OutsideBucket(bucket, next(iter(transcript.workspaces)))
    words = served(transcript, bucket, tmp_path)
    for said in transcript.before:
        outside.act(said)
    with over_stdio(words, path.parent.name) as wire:
        found = Player(wire, outside.root, Words(outside.root), outside).play(transcript)
    expected = path.read_text()
    for on_a_folder, on_a_bucket in DIFFERENCES.get(name, []):
        assert on_a_folder in expected
        expected = expected.replace(on_a_folder, on_a_bucket)
    assert found.split("\n") == expected.split("\n")
