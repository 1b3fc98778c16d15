"""One open document: its text, its listeners, and how another text is merged into it.

A text that a tool or an editor wrote is merged as a change of the text its writer had read, which is known by its
version: the document is forked as it was at that version, the smallest change is made in the fork, and the fork is
merged back, so that what others typed meanwhile stays.
"""

import hashlib
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from pycrdt import Doc, Text, get_update

from notewright.errors import Invalid, Problem, TooLarge, Unavailable
from notewright.notes.path import NotePath
from notewright.stores.base import Stored, Version, version_of
from notewright.stores.live.log import FOLDER_SNAPSHOT, PENDING_OP, LiveLog
from notewright.stores.live.text import apply_changes, diff_texts, distance, file_bytes

TEXT_NAME = "contents"  # of the text in a document, as Lens's clients call it
MAX_TEXT_BYTES = 10_485_760  # of a live text
# How many texts of its file are remembered, as an editor may save an old buffer: as many as fit in so many bytes.
_MIN_TEXTS, _MAX_TEXTS, _MAX_TEXTS_BYTES = 5, 200, 20 << 20
_MAX_SHOWN_TEXTS = 40  # remembered texts that callers read before they were in the file
_MAX_STATE_BYTES = 3 * MAX_TEXT_BYTES  # of a document, deleted text that Yjs keeps included
_EMPTY_UPDATE = b"\x00\x00"
OnUpdate = Callable[[bytes, object], None]  # an update, and who sent it
OnEnd = Callable[[str], None]
Origin = tuple[str, Version | None]  # the change set of ours that made a version of a file, and the version it changed


class Merge(NamedTuple):
    """The result of merging a written text into a document, or a version of it; nothing is applied yet."""

    text: str
    state: bytes  # of a document with exactly that text
    theirs: bytes  # of a document with exactly the text that was written
    update: bytes  # from the document to `state`


class Document:
    """One document. Any thread may call; hold `lock` to change several things at once."""

    def __init__(self, doc_id: str, log: LiveLog, path: NotePath | None, *, is_folder: bool = False) -> None:
        self.id = doc_id
        self.path = path
        self.is_folder = is_folder
        self.lock = threading.RLock()
        self.save_lock = threading.Lock()  # one save at a time; taken before `lock`, and before the lock of the store
        self.doc: Doc[Any] = Doc()
        self.file: Stored | None = None  # as we last read or wrote it
        self.file_version: Version | None = None  # what it held then, also before the document was opened
        self.missing_since: float | None = None  # when the file was first found missing
        self.we_wrote_file = False  # then no editor can be in the middle of writing it
        self.users = 0
        self.released_at = 0.0  # by its last user
        self.unsaved = False
        self.has_pending_changes = False  # some changes of clients in a folder document are not applied yet
        self.saving: Version | None = None  # what is being written to the file
        self.retry_save_at = 0.0  # after a save that failed
        self.typists: dict[Any, None] = {}  # the actors who typed since the last save
        self.typed_at = self.first_typed_at = 0.0
        self.end_reason = ""
        self.ops: deque[str] = deque(maxlen=_MAX_SHOWN_TEXTS)  # change sets that were merged into it
        self.log = log
        self._text = self.doc.get(TEXT_NAME, type=Text) if not is_folder else None
        self._file_states: OrderedDict[Version, bytes] = OrderedDict()  # states with the texts its file had, by version
        self._shown_states: OrderedDict[Version, bytes] = OrderedDict()  # and with the texts that callers read
        self._rebased: OrderedDict[tuple[Version | None, str], Merge] = OrderedDict()  # about to be written
        self._listeners: list[tuple[OnUpdate, OnEnd]] = []
        self._size = 0  # bytes of the state, at most

    # For clients

    def state_vector(self) -> bytes:
        with self.lock:
            return self.doc.get_state()

    def encode_update(self, vector: bytes | None = None) -> bytes:
        """The update that a client with this state vector lacks; everything without one."""
        with self.lock, _invalid_unless_yjs("state vector"):
            return self.doc.get_update(vector)

    def is_related(self, vector: bytes) -> bool:
        """Whether a state vector is of this document: one of another would add its whole text to ours."""
        with self.lock:
            ours, theirs = _client_ids(self.doc.get_state()), _client_ids(vector)
        return not ours or not theirs or bool(ours & theirs)

    def apply(self, update: bytes, *, by: Any = None, source: object = None) -> None:
        """Apply an update of a client and pass it on at once; `log.call_when_durable` tells when it is on the disk."""
        with self.lock:
            self._refuse_if_ended()
            with _invalid_unless_yjs("update"):
                new = get_update(update, self.doc.get_state())
            if new == _EMPTY_UPDATE:
                return
            self._refuse_growth(new)
            if self.is_folder and not self.unsaved:  # the difference to it is what clients changed, also after a crash
                self.log.append_text(self.id, FOLDER_SNAPSHOT, self.doc.get_update(), b"", None)
            with _invalid_unless_yjs("update"):
                self.doc.apply_update(new)
            self.has_pending_changes = self.is_folder
            self.typed_at = time.time()
            self.typists[by] = None
            self.mark_unsaved()
            self.log.append_update(self.id, new)
            self._notify_listeners(new, source)

    def listen(self, on_update: OnUpdate, on_end: OnEnd) -> Callable[[], None]:
        """Call `on_update` for every update, and `on_end` at the end; returns a function that stops that."""
        listener = on_update, on_end
        with self.lock:
            self._refuse_if_ended()
            self._listeners.append(listener)

        def stop() -> None:
            with self.lock, suppress(ValueError):  # it has ended
                self._listeners.remove(listener)

        return stop

    def mark_unsaved(self) -> None:
        if not self.unsaved:
            self.unsaved, self.first_typed_at = True, time.time()

    def is_saved(self) -> bool:
        return not self.unsaved and self.saving is None

    # For the store and for saving; under the lock

    def text(self) -> str:
        return str(self._text)

    def load(self, state: bytes, texts: Sequence[tuple[Version, bytes, str | None]] = ()) -> None:
        self.doc.apply_update(state)
        self._size = len(state)
        for version, then, op in texts:
            self.remember_file(version, then)
            if op != PENDING_OP:
                self.file_version = version
                self.ops.extend([op] if op else [])

    def seed(self, stored: Stored, text: str) -> None:
        """Begin with the text of a file. The same text always makes the same document: a client that reconnects with
        its copy, after the log was lost, does not add the text a second time."""
        digest = hashlib.sha256(text.encode()).digest()
        first: Doc[Any] = Doc(client_id=int.from_bytes(digest[:6]))
        first[TEXT_NAME] = Text(text)
        state = first.get_update()
        self.log.save_first_state(self.id, state, stored.version)
        self.load(state, [(stored.version, state, None)])
        self.file = stored

    def snapshot(self) -> Stored:
        """The document as its file would hold it; its version is remembered, as a writer may name it."""
        assert self.file is not None
        data = file_bytes(self.text(), self.file.data)
        version = version_of(data)
        self.remember_shown(version, self.doc.get_update())
        stamp = f"{self.file.entry.stamp}+{version[:12]}"
        entry = self.file.entry._replace(stamp=stamp, size=len(data), modified_ns=int(self.typed_at * 1e9))
        return Stored(data, version, entry)

    def remember_shown(self, version: Version, state: bytes) -> None:
        """Remember a state whose text a caller was shown, or has written."""
        self._shown_states[version] = state
        self._shown_states.move_to_end(version)
        _drop_oldest(self._shown_states, len(state), _MAX_SHOWN_TEXTS)

    def remember_file(self, version: Version, state: bytes) -> None:
        """Remember a state whose text the file has, or is about to have."""
        self._file_states[version] = state
        self._file_states.move_to_end(version)
        _drop_oldest(self._file_states, len(state), _MAX_TEXTS)

    def find_version(self, version: str | None) -> Version | None:
        """The remembered version that begins with these digits."""
        if version is None or version in self._file_states or version in self._shown_states:
            return version
        versions = (*self._file_states, *self._shown_states)
        found = [known for known in versions if len(version) >= 6 and known.startswith(version.lower())]
        return found[-1] if found else None

    def state_at(self, version: Version) -> bytes:
        return self._file_states.get(version) or self._shown_states[version]

    def text_at(self, version: Version) -> str:
        return str(_fork(self.state_at(version)).get(TEXT_NAME, type=Text))

    def find_base(self, version: Version, text: str, origin: Origin | None) -> Version | None:
        """The version that the file's new text is a change of. `origin` is our change set that wrote it, if one did."""
        if next(reversed(self._file_states), None) == version:  # a save of ours
            return version
        is_ours = origin is not None and origin[0] not in self.ops
        base = self.find_version(origin[1]) if origin is not None and is_ours else None
        if base is None and (known := self.find_version(version)) is not None:
            # No old buffer: our change set read the file, or the text was restored while the document was closed.
            base = self.find_version(self.file_version) if is_ours or self.file is None else known
        return base or self.find_nearest_version(text)

    def find_nearest_version(self, text: str) -> Version | None:
        """The version that `text` differs least from, the latest of equals; None for the current text."""
        best, least = None, distance(self.text(), text)
        for version in (*reversed(self._file_states), *reversed(self._shown_states)):
            if least == 0:
                break
            if (far := distance(self.text_at(version), text)) < least:
                best, least = version, far
        return best

    def prepare_merge(self, base: Version | None, text: str) -> Merge:
        """Merge the change from its text at `base` (None: now) to `text`, without applying it."""
        current = self.doc.get_update()
        if (rebased := self._rebased.get((base, text))) is not None:
            return _merge_update(current, rebased.update, theirs=rebased.state)
        if base is None or self.state_at(base) == current:
            fork = _fork(current, self.doc.client_id)  # the lock is held, so no new client id is needed
            update = _change_text(fork, text)
            return Merge(text, fork.get_update(), fork.get_update(), update)
        return _merge_states(self.state_at(base), current, text)

    def rebase(self, data: bytes, text: str, *, base: Version, onto: Version) -> str:
        """The text at `onto` with the change from the text at `base` to `text`. The merge is remembered: when the file
        has that text, this very change is applied to the document. The writer of `data` was shown only `text`."""
        merge = _merge_states(self.state_at(base), self.state_at(onto), text)
        self._rebased[onto, merge.text] = merge
        _drop_oldest(self._rebased, len(merge.state), _MAX_SHOWN_TEXTS)
        self.remember_shown(version_of(data), merge.theirs)
        return merge.text

    def record_file(
        self, stored: Stored, state: bytes, *, ours: bool, merge: Merge | None = None, op: str | None = None
    ) -> None:
        """Record that the file has these bytes, the text of this state, and apply `merge`, if given. Both are logged in
        one transaction, or the file would be merged again after a crash; and before listeners are notified, or a client
        would send back the first merge beside the second. If the log cannot be written now it is written later: the
        file has the text, and its writer is answered accordingly."""
        update = b"" if merge is None or merge.update == _EMPTY_UPDATE else merge.update
        self.log.append_text(self.id, stored.version, state, update, op)
        if update:
            self.doc.apply_update(update)
        for key in [key for key, one in self._rebased.items() if merge is not None and one.update is merge.update]:
            del self._rebased[key]  # applied: the same text written again is another change
        self.file, self.file_version, self.we_wrote_file = stored, stored.version, ours
        self.remember_file(stored.version, state)
        if op is not None and op not in self.ops:
            self.ops.append(op)
        if update:
            with suppress(Problem):
                self.log.flush()
            self._notify_listeners(update, None)

    def end(self, reason: str) -> None:
        """End it, and notify listeners."""
        with self.lock:
            self.end_reason = self.end_reason or reason
            listeners, self._listeners = self._listeners, []
        for _, on_end in listeners:
            on_end(reason)

    @contextmanager
    def transaction(self, origin: str) -> Iterator[None]:
        """Change the folder document in this block: one update, logged, and sent to listeners once it is on disk."""
        with self.lock:
            before = self.doc.get_state()
            with self.doc.transaction(origin=origin):
                yield
            update = self.doc.get_update(before)
            if update != _EMPTY_UPDATE:
                self.log.append_update(self.id, update)
                try:
                    self.log.flush()
                finally:  # if the log cannot be written now it is later; clients get the update anyway
                    self._notify_listeners(update, None)

    def take_pending_snapshot(self) -> bytes | None:
        """The state of a folder document before those changes of clients that its last host did not apply."""
        state = self._file_states.pop(FOLDER_SNAPSHOT, None)
        self.has_pending_changes = self.unsaved = state is not None
        return state

    def clear_pending_changes(self) -> None:
        """Record that all changes of clients in a folder document are applied."""
        self.has_pending_changes = False
        self.log.forget_texts(self.id)

    def _notify_listeners(self, update: bytes, source: object) -> None:
        for on_update, _ in self._listeners:
            on_update(update, source)

    def _refuse_if_ended(self) -> None:
        if self.end_reason:
            raise Unavailable(f"this document is live no more: {self.end_reason}", hint="open it again")

    def _refuse_growth(self, update: bytes) -> None:
        self._size += len(update)
        if self._size > _MAX_STATE_BYTES:
            self._size = len(self.doc.get_update()) + len(update)
            if self._size > _MAX_STATE_BYTES:
                raise TooLarge("this document is full", hint="begin another", size=self._size, limit=_MAX_STATE_BYTES)
        size = (0 if self._text is None else len(self._text)) + len(update)
        if size > MAX_TEXT_BYTES and self._text is not None:  # the update may be larger than what it adds
            fork = _fork(self.doc.get_update())
            with _invalid_unless_yjs("update"):
                fork.apply_update(update)
            size = len(fork.get(TEXT_NAME, type=Text))
        if size > MAX_TEXT_BYTES:
            words = f"a live document may have {MAX_TEXT_BYTES:,} bytes"
            raise TooLarge(words, hint="split it into several notes", size=size, limit=MAX_TEXT_BYTES)


def _drop_oldest(states: OrderedDict[Any, Any], size: int, most: int) -> None:
    """Drop the oldest beyond `most`, or beyond fewer if each is large."""
    while len(states) > max(_MIN_TEXTS, min(most, _MAX_TEXTS_BYTES // (size + 1))):
        states.popitem(last=False)


def _fork(state: bytes, client: int | None = None) -> "Doc[Any]":
    fork: Doc[Any] = Doc(client_id=client)
    fork.apply_update(state)
    return fork


def _merge_states(base: bytes, onto: bytes, text: str) -> Merge:
    """Merge the change from the text of one state to `text` into another state."""
    fork = _fork(base)
    update = _change_text(fork, text)
    return _merge_update(onto, update, theirs=fork.get_update())


def _merge_update(onto: bytes, update: bytes, *, theirs: bytes) -> Merge:
    both = _fork(onto)
    both.apply_update(update)
    return Merge(str(both.get(TEXT_NAME, type=Text)), both.get_update(), theirs, update)


def _change_text(fork: "Doc[Any]", wanted: str) -> bytes:
    """Change the text of a fork to `wanted`, and return the update."""
    text = fork.get(TEXT_NAME, type=Text)
    before, old = fork.get_state(), str(text)
    if old == wanted:
        return _EMPTY_UPDATE
    with fork.transaction():
        apply_changes(text, old, diff_texts(old, wanted))
    return fork.get_update(before)


@contextmanager
def _invalid_unless_yjs(what: str) -> Iterator[None]:
    """Raise Invalid for bytes that pycrdt cannot read: it raises ValueError, or a panic of its Rust part."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise Invalid(f"these bytes are no {what} of Yjs", what=what) from error


def _client_ids(vector: bytes) -> set[int]:
    """The client ids in a state vector; Invalid if it is not one."""
    numbers, value, shift = list[int](), 0, 0
    for byte in vector:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(value)
            value = shift = 0
        elif shift > 63:
            raise Invalid("these bytes are no state vector of Yjs", what="state vector")
    if shift or not numbers or len(numbers) != 1 + 2 * numbers[0]:
        raise Invalid("these bytes are no state vector of Yjs", what="state vector")
    return set(numbers[1::2])
