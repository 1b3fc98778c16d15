"""One open document: what is typed into it, who listens, and how another text is merged into it.

A text that comes from elsewhere (a tool's, a saved file's) is a change of the text its writer had. That text is known
by its version: the document as it was then is forked, the smallest change is made there, and the fork is merged back,
so that what others typed meanwhile stays.
"""

import hashlib
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

from pycrdt import Doc, Text, get_update

from notewright.errors import Invalid, Problem, TooLarge, Unavailable
from notewright.notes.path import NotePath
from notewright.stores.base import Stored, Version, version_of
from notewright.stores.live.log import SHOWN, TO_BE_WRITTEN, LiveLog
from notewright.stores.live.text import changes, distance, file_bytes, put_changes

NAME = "contents"  # of the text in a document, as Lens's clients call it
MOST_BYTES = 10_485_760  # of a live text
_FEW, _MANY, _MANY_BYTES = 5, 200, 20 << 20  # texts of its file that are remembered: an editor may save an old buffer
_MOST_SHOWN = 40  # texts that were read before they were in the file
_MOST_STATE = 3 * MOST_BYTES  # bytes of a document with all that Yjs knows of it
_NOTHING = b"\x00\x00"  # an update that says nothing
Told = Callable[[bytes, object], None]  # an update, and who sent it
Ended = Callable[[str], None]
_Answer = TypeVar("_Answer")


class Merged(NamedTuple):
    """What a text from elsewhere makes of a document, or of a text it had, before anybody is told."""

    text: str
    state: bytes  # of a document that says exactly that
    theirs: bytes  # and of one that says exactly what came from elsewhere
    update: bytes  # that makes it


class Document:
    """Any thread may call; `lock` is held by whoever changes several things at once."""

    def __init__(self, doc_id: str, log: LiveLog, path: NotePath | None, *, is_folder: bool = False) -> None:
        self.id = doc_id
        self.path = path
        self.is_folder = is_folder
        self.lock = threading.RLock()
        self.one_save = threading.Lock()  # at a time; held before `lock`, and before the lock of the store
        self.doc: Doc[Any] = Doc()
        self.file: Stored | None = None  # as it was when we last read or wrote it
        self.held: Version | None = None  # and what it held then, also where that was before we were open
        self.missing_since: float | None = None  # when it was first not there
        self.is_ours = False  # we wrote it: nobody else can be in the middle of writing it
        self.users = 0
        self.left_at = 0.0  # when the last of them went
        self.unsaved = False
        self.is_owed = False  # clients changed a folder document, and not all of it is carried out
        self.saving: Version | None = None  # what is on its way to the file: the document says it already
        self.save_again_at = 0.0  # after a save that failed
        self.typists: dict[Any, None] = {}  # who typed since the last save
        self.typed_at = self.first_typed_at = 0.0
        self.end_reason = ""
        self._log = log
        self._text = self.doc.get(NAME, type=Text) if not is_folder else None
        self._texts: OrderedDict[Version, bytes] = OrderedDict()  # the document as its file had it, by version
        self._shown: OrderedDict[Version, bytes] = OrderedDict()  # and as it was read
        self._rebased: OrderedDict[tuple[Version | None, str], Merged] = OrderedDict()  # what the file is about to have
        self._listeners: list[tuple[Told, Ended]] = []
        self._size = 0  # bytes of the state, at most
        self.ops: deque[str] = deque(maxlen=_MOST_SHOWN)  # change sets that were merged into it

    # For those who are connected

    def vector(self) -> bytes:
        with self.lock:
            return self.doc.get_state()

    def update_since(self, vector: bytes | None = None) -> bytes:
        with self.lock:
            return _checked(lambda: self.doc.get_update(vector), "state vector")

    def is_related(self, vector: bytes) -> bool:
        """False for a state vector of another document, which would put its whole text beside ours."""
        with self.lock:
            ours, theirs = _clients(self.doc.get_state()), _clients(vector)
        return not ours or not theirs or bool(ours & theirs)

    def apply(self, update: bytes, *, by: Any = None, source: object = None) -> None:
        """Take in an update of a client. Told at once; `when_durable` says when it is on the disk."""
        with self.lock:
            self._refuse_ended()
            new = _checked(lambda: get_update(update, self.doc.get_state()), "update")
            if new == _NOTHING:
                return
            self._refuse_growth(new)
            if self.is_folder and not self.unsaved:  # what clients want is the difference, also after a crash
                self._log.put_together(self.id, SHOWN, self.doc.get_update(), b"", None)
            _checked(lambda: self.doc.apply_update(new), "update")
            self.is_owed = self.is_folder
            self.typed_at = time.time()
            self.typists[by] = None
            self.must_save()
            self._log.append(self.id, new)
            self._tell(new, source)

    def listen(self, told: Told, ended: Ended) -> Callable[[], None]:
        """Be told of every update, and by `ended` that it is live no more; call what is returned to stop."""
        listener = told, ended
        with self.lock:
            self._refuse_ended()
            self._listeners.append(listener)

        def stop() -> None:
            with self.lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return stop

    def when_durable(self, then: Callable[[], None]) -> None:
        self._log.when_durable(then)

    def sync(self) -> None:
        """What was typed is on the disk when this returns. A file is written only after that."""
        self._log.sync()

    def must_save(self) -> None:
        if not self.unsaved:
            self.unsaved, self.first_typed_at = True, time.time()

    def saved(self) -> bool:
        return not self.unsaved and self.saving is None

    # For the store and whoever saves; under the lock

    def text(self) -> str:
        return str(self._text)

    def load(self, state: bytes, texts: Sequence[tuple[Version, bytes, str | None]] = ()) -> None:
        self.doc.apply_update(state)
        self._size = len(state)
        for version, then, op in texts:
            self.remember(version, then)
            if op != TO_BE_WRITTEN:
                self.held = version
                self.ops.extend([op] if op else [])

    def seed(self, stored: Stored, text: str) -> None:
        """Come to life with the text of a file. The same text makes the same document, should the log be lost: a client
        that comes back with what it had does not put a second copy beside it."""
        digest = hashlib.sha256(text.encode()).digest()
        first: Doc[Any] = Doc(client_id=int.from_bytes(digest[:6]))
        first[NAME] = Text(text)
        state = first.get_update()
        self._log.begin(self.id, state, stored.version)
        self.load(state, [(stored.version, state, None)])
        self.file = stored

    def now(self) -> Stored:
        """The document as a file would hold it, remembered for whoever will name this version."""
        assert self.file is not None
        data = file_bytes(self.text(), self.file.data)
        version = version_of(data)
        self.show(version, self.doc.get_update())
        stamp = f"{self.file.entry.stamp}+{version[:12]}"
        entry = self.file.entry._replace(stamp=stamp, size=len(data), modified_ns=int(self.typed_at * 1e9))
        return Stored(data, version, entry)

    def show(self, version: Version, state: bytes) -> None:
        """Somebody was shown, or has written, what a document in this state says."""
        self._shown[version] = state
        self._shown.move_to_end(version)
        _bound(self._shown, len(state), _MOST_SHOWN)

    def last_text(self) -> Version | None:
        return next(reversed(self._texts), None)

    def remember(self, version: Version, state: bytes) -> None:
        """The file has, or is about to have, what a document in this state says."""
        self._texts[version] = state
        self._texts.move_to_end(version)
        _bound(self._texts, len(state), _MANY)

    def known(self, version: str | None) -> Version | None:
        """The whole name of a version whose text is remembered, by its first digits."""
        if version is None or version in self._texts or version in self._shown:
            return version
        known = (*self._texts, *self._shown)
        found = [one for one in known if len(version) >= 6 and one.startswith(version.lower())]
        return found[-1] if found else None

    def text_at(self, version: Version) -> str:
        return _said(self.state_at(version))

    def state_at(self, version: Version) -> bytes:
        state = self._texts.get(version)
        return self._shown[version] if state is None else state

    def merged(self, base: Version | None, text: str) -> Merged:
        """What becomes of the document if its text at `base` (None: now) changed to `text`. Nothing is done yet."""
        current = self.doc.get_update()
        if (known := self._rebased.get((base, text))) is not None:
            both = _forked(current)
            both.apply_update(known.update)
            return Merged(str(both.get(NAME, type=Text)), both.get_update(), known.state, known.update)
        if base is None or self.state_at(base) == current:
            fork = _forked(current, self.doc.client_id)  # nobody comes between, so that no new client is needed
            update = _change(fork, text)
            return Merged(text, fork.get_update(), fork.get_update(), update)
        return _merged(self.state_at(base), current, text)

    def rebase(self, data: bytes, text: str, *, base: Version, onto: Version) -> str:
        """What the change from the text at `base` to `text` makes of the text at `onto`. The writer of `data` knows no
        more than `text`; when the file has what is returned, it is by this very change."""
        made = _merged(self.state_at(base), self.state_at(onto), text)
        self._rebased[onto, made.text] = made
        _bound(self._rebased, len(made.state), _MOST_SHOWN)
        self.show(version_of(data), made.theirs)
        return made.text

    def nearest(self, text: str) -> Version | None:
        """The version of which `text` is the smallest change, the latest of equals; None: the text of now."""
        best, least = None, distance(self.text(), text)
        for version in (*reversed(self._texts), *reversed(self._shown)):
            if least == 0:
                break
            if (far := distance(self.text_at(version), text)) < least:
                best, least = version, far
        return best

    def holds(
        self, stored: Stored, state: bytes, *, ours: bool, merged: Merged | None = None, op: str | None = None
    ) -> None:
        """The file has these bytes, which a document in this state says. `merged`: what the document says from now on,
        and everybody is told. Logged together, or the file would be merged once more after a crash, and before anybody
        is told, or a client would bring the first merge along to stand beside the second. A log that cannot be written
        now is written later: the file has the text, and whoever wrote it is told so."""
        update = b"" if merged is None or merged.update == _NOTHING else merged.update
        self._log.put_together(self.id, stored.version, state, update, op)
        if update:
            self.doc.apply_update(update)
        for key in [key for key, one in self._rebased.items() if merged is not None and one.update is merged.update]:
            del self._rebased[key]  # done: the same text again is another change
        self.file, self.held, self.is_ours = stored, stored.version, ours
        self.remember(stored.version, state)
        if op is not None and op not in self.ops:
            self.ops.append(op)
        if update:
            with suppress(Problem):
                self._log.sync()
            self._tell(update, None)

    def end(self, reason: str) -> None:
        """It is live no more: whoever is connected is told."""
        with self.lock:
            self.end_reason = self.end_reason or reason
            listeners, self._listeners = self._listeners, []
        for _, ended in listeners:
            ended(reason)

    @contextmanager
    def written(self, origin: str) -> Any:
        """A change by us to a document that is no text: logged as one update, and told when that is on the disk."""
        with self.lock:
            before = self.doc.get_state()
            with self.doc.transaction(origin=origin):
                yield
            update = self.doc.get_update(before)
            if update != _NOTHING:
                self._log.append(self.id, update)
                try:
                    self._log.sync()
                finally:  # what cannot be written yet is still to come, and those who are here go on
                    self._tell(update, None)

    def before_change(self) -> bytes | None:
        """The state of a folder document before changes of clients that its last host did not carry out."""
        state = self._texts.pop(SHOWN, None)
        self.is_owed = self.unsaved = state is not None
        return state

    def carried_out(self) -> None:
        """Nothing is left of what clients changed in a folder document."""
        self.is_owed = False
        self._log.forget_texts(self.id)

    def _tell(self, update: bytes, source: object) -> None:
        for told, _ in self._listeners:
            told(update, source)

    def _refuse_ended(self) -> None:
        if self.end_reason:
            raise Unavailable(f"this document is live no more: {self.end_reason}", hint="open it again")

    def _refuse_growth(self, update: bytes) -> None:
        self._size += len(update)
        if self._size > _MOST_STATE:
            self._size = len(self.doc.get_update()) + len(update)
            if self._size > _MOST_STATE:
                raise TooLarge("this document is full", hint="begin another", size=self._size, limit=_MOST_STATE)
        size = 0 if self._text is None else len(self._text)
        if size + len(update) <= MOST_BYTES:
            return
        fork = _forked(self.doc.get_update())
        _checked(lambda: fork.apply_update(update), "update")
        size = len(fork.get(NAME, type=Text)) if self._text is not None else size + len(update)
        if size > MOST_BYTES:
            words = f"a live document may have {MOST_BYTES:,} bytes"
            raise TooLarge(words, hint="split it into several notes", size=size, limit=MOST_BYTES)


def _bound(texts: OrderedDict[Any, Any], size: int, most: int) -> None:
    """So many, fewer where each is large; the oldest go."""
    while len(texts) > max(_FEW, min(most, _MANY_BYTES // (size + 1))):
        texts.popitem(last=False)


def _forked(state: bytes, client: int | None = None) -> "Doc[Any]":
    fork: Doc[Any] = Doc(client_id=client)
    fork.apply_update(state)
    return fork


def _said(state: bytes) -> str:
    return str(_forked(state).get(NAME, type=Text))


def _merged(base: bytes, onto: bytes, text: str) -> Merged:
    """What the change of a document in one state to `text` makes of one in another."""
    fork, both = _forked(base), _forked(onto)
    update = _change(fork, text)
    both.apply_update(update)
    return Merged(str(both.get(NAME, type=Text)), both.get_update(), fork.get_update(), update)


def _change(fork: "Doc[Any]", wanted: str) -> bytes:
    """Make the fork say `wanted`; the update that did."""
    text = fork.get(NAME, type=Text)
    before, old = fork.get_state(), str(text)
    if old == wanted:
        return _NOTHING
    with fork.transaction():
        put_changes(text, old, changes(old, wanted))
    return fork.get_update(before)


def _checked(work: Callable[[], _Answer], what: str) -> _Answer:
    """What a stranger sent may be anything: pycrdt answers with ValueError, or with a panic of its Rust part."""
    try:
        return work()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise Invalid(f"these bytes are no {what} of Yjs", what=what) from error


def _clients(vector: bytes) -> set[int]:
    """The clients named in a state vector; Invalid for what is none."""
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
