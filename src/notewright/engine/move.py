"""Moving and renaming: what moves, and every link to it, in one change set.

The plan is made under the store's lock from what the notes hold at that moment, so that no link another of our
processes wrote in between is missed. Hidden notes are rewritten like all others, and not named.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from notewright.engine.changes.commit import commit_indexed, text_of
from notewright.engine.changes.plan import Drop, Plan, Put
from notewright.engine.dialects.octarine import is_folder
from notewright.engine.find.links import resolver
from notewright.engine.indexing.difference import TOO_COSTLY
from notewright.engine.indexing.ready import wait_for_links
from notewright.engine.read import decode, exists, fetch, missing_note_error
from notewright.engine.workspace import Workspace
from notewright.engine.write import Deleted, FoundFolders, admit, refuse_twin, spell_new_path, trash_place
from notewright.errors import Exists, Forbidden, Invalid, NotFound
from notewright.index.base import Selection
from notewright.notes.edits.splices import Splice, apply_splices
from notewright.notes.links.relabel import rename_heading as plan_heading
from notewright.notes.links.relabel import rename_tag as plan_tag
from notewright.notes.links.rename import RewrittenFile, affected_keys, may_hold_key, plan_moves, plan_rename
from notewright.notes.links.resolve import OBSIDIAN, LinkPolicy, link_key, name_keys
from notewright.notes.model import Note, tag_key
from notewright.notes.parse.parser import parse
from notewright.notes.path import NotePath, name_problem, with_md
from notewright.stores.base import Stored, read_or_none

CANVASES = (".canvas", ".base")


@dataclass(frozen=True, slots=True)
class RenameReport:
    """Which notes changed (those the caller may see), with how many links or tags in each."""

    files: tuple[tuple[NotePath, int], ...]  # as they are called afterwards
    change_id: str | None

    @property
    def count(self) -> int:
        return sum(count for _, count in self.files)


@dataclass(frozen=True, slots=True)
class MoveReport(RenameReport):
    """What moved, and which notes' links followed."""

    old: NotePath
    new: NotePath


class PlanReader:
    """Files read once for a plan."""

    def __init__(self, ws: Workspace) -> None:
        self._ws = ws
        self.stored: dict[NotePath, Stored] = {}

    def read(self, paths: Iterable[NotePath]) -> None:
        """All at once, those that are there."""
        unread = [path for path in dict.fromkeys(paths) if path not in self.stored]
        for path, found in zip(unread, self._ws.store.read_many(unread, hidden=True), strict=True):
            if isinstance(found, Stored):
                self.stored[path] = found
            elif not isinstance(found, NotFound):
                raise found

    def texts(self, paths: Iterable[NotePath]) -> dict[NotePath, str]:
        """Of those that are there and are text: what is not cannot be edited, and its bytes stay."""
        wanted = list(dict.fromkeys(paths))
        self.read(wanted)
        there = ((path, self.stored[path].data) for path in wanted if path in self.stored)
        read = ((path, *decode(data)) for path, data in there)
        return {path: text for path, text, exact in read if exact}

    def notes(self, paths: Iterable[NotePath]) -> list[Note]:
        return [parse(path, text) for path, text in self.texts(path for path in paths if path.is_note).items()]


def move(
    ws: Workspace,
    old: NotePath,
    new: str,
    *,
    dry_run: bool = False,
    policy: LinkPolicy = OBSIDIAN,
    portable: bool = True,
) -> MoveReport:
    """Move a note, an attachment or a folder; `new` ending in `/` is a folder to move into.

    `portable`: the new name must work on every system and have no twin but for case.
    """
    ws.access.may_see(old)
    wait_for_links(ws)

    def make() -> tuple[Plan, tuple[NotePath, tuple[RewrittenFile, ...]]]:
        moves = _plan_paths(ws, old, new, portable)
        target = _new_name(old, moves)
        steps, rewritten = _plan_steps(ws, moves, policy)
        left = () if old in moves else _parent_folders(moves) - _parent_folders(moves.values())
        emptied = tuple(sorted(left, key=len, reverse=True))
        return Plan(steps, f"moved {old} to {target}", emptied=emptied), (target, rewritten)

    done, (target, rewritten) = commit_indexed(ws, make, dry_run=dry_run)
    files = tuple((one.after, one.links) for one in rewritten if ws.access.sees(one.after))
    return MoveReport(files, done.id, old, target)


def _plan_paths(ws: Workspace, old: NotePath, new: str, portable: bool) -> dict[NotePath, NotePath]:
    """The new path of every file that moves. Refuses what may not move, or not there."""
    files = _list_files(ws, old)
    place, names = _place(ws, old, _with_extension(ws, old, new.strip()), files, portable)
    moves = plan_moves(old, place, files)
    if all(source == target for source, target in moves.items()):
        raise Invalid(f"{old} is there already", hint="give another name or folder", what="to")
    # folders that move as a whole may change their spelling; others hold what stays
    whole = {folder for folder in _parent_folders(moves) if f"{folder}/".startswith(f"{old}/")}
    moving, found = frozenset(moves) | whole, FoundFolders()
    for source, target in moves.items():
        if portable and (problem := name_problem(target, names)):
            raise Invalid(f"{target!r} cannot be a name: {problem}", hint="choose another name", what="to")
        admit(ws, source, 0)
        admit(ws, target, 0)
        if target not in moves and exists(ws, target):
            raise Exists(f"{target} is there already", hint="choose another name", path=target)
        if portable:
            refuse_twin(ws, target, moving, found)
    return moves


def _list_files(ws: Workspace, old: NotePath) -> list[NotePath]:
    """The file itself, or every file in the folder and its sub-folders. Unlike a listing of the store, this raises
    where a folder cannot be read: nothing of a folder that moves is left behind unseen."""
    try:
        kind = ws.store.stat(old).kind
    except NotFound:
        raise missing_note_error(ws, old) from None
    if kind != "folder":
        return [old]
    folders, files = [old], list[NotePath]()
    while folders:
        for entry in ws.store.children(folders.pop()):
            if entry.kind == "folder":
                folders.append(entry.path)
            elif not is_folder(entry):
                files.append(entry.path)
    if not files:
        raise Invalid(f"the folder {old} holds no files", hint="there is nothing to move", what="from")
    if not all(ws.access.sees(path) for path in files):
        hint = "move the notes you see one by one"
        raise Forbidden(f"moving the folder {old} as a whole is not allowed", hint=hint, path=old, by="rule")
    return files


def _with_extension(ws: Workspace, old: NotePath, new: str) -> str:
    """An attachment keeps its extension when the new name has none; `/` alone is the root."""
    if new.strip("/") == "":
        return old.name
    target = new.lstrip("/")
    if target.endswith("/") or old.is_note or "." not in old.name or "." in target.rpartition("/")[2]:
        return target
    return target if ws.store.stat(old).kind == "folder" else f"{target}.{old.rpartition('.')[2]}"


def _place(
    ws: Workspace, old: NotePath, target: str, files: Sequence[NotePath], portable: bool
) -> tuple[NotePath, str]:
    """Where the file or folder goes, and the names in it that are new: not those of folders that are there, nor one
    that it keeps."""
    target += old.name if target.endswith("/") else ""
    place = NotePath.parse(with_md(target) if old.is_note and old in files else target)
    if not portable:
        return place, ""
    if place.name != old.name:
        return spell_new_path(ws, place)
    folder, names = spell_new_path(ws, place.folder) if place.folder else ("", "")
    return NotePath(f"{folder}/{old.name}".lstrip("/")), names


def _parent_folders(paths: Iterable[NotePath]) -> frozenset[str]:
    """Every folder on the way to these files."""
    found: set[str] = set()
    for path in paths:
        folder = path.folder
        while folder and folder not in found:
            found.add(folder)
            folder = NotePath(folder).folder
    return frozenset(found)


def _new_name(old: NotePath, moves: Mapping[NotePath, NotePath]) -> NotePath:
    """The new name of the file or folder that was to move."""
    if old in moves:
        return moves[old]
    source, target = next(iter(moves.items()))
    return NotePath(target[: len(target) - (len(source) - len(old))])


def _find_linking(ws: Workspace, keys: Iterable[str]) -> list[NotePath]:
    """Notes that may link to files with these keys."""
    keys = list(keys)
    linking = [row.source for row in ws.index.links_toward(keys)]
    costly = [file.path for file in ws.index.with_problem(TOO_COSTLY)]  # the index has none of their links
    return [*linking, *(path for path in costly if may_hold_key(ws.index.text(path) or "", keys))]


def _plan_steps(
    ws: Workspace, moves: Mapping[NotePath, NotePath], policy: LinkPolicy
) -> tuple[tuple[Put | Drop, ...], tuple[RewrittenFile, ...]]:
    texts = PlanReader(ws)
    linking = _find_linking(ws, affected_keys(moves))
    canvases = [filed.path for filed in ws.index.select(Selection(notes_only=False, suffixes=CANVASES))[0]]
    texts.read([*moves, *linking, *canvases])
    rewritten = plan_rename(moves, ws.index, texts.notes([*moves, *linking]), texts.texts(canvases), policy)
    new_texts = {one.before: one.text.encode() for one in rewritten}
    steps: list[Put | Drop] = []
    for path, target in moves.items():
        if path not in texts.stored:
            raise missing_note_error(ws, path)
        steps += [Put(target, new_texts.get(path), None, source=path), Drop(path, texts.stored[path])]
    for one in rewritten:
        if one.before not in moves:
            steps.append(Put(one.before, new_texts[one.before], texts.stored[one.before]))
    return tuple(steps), rewritten


# ---- deleting with marks ------------------------------------------------------------------------------


def delete_marked(
    ws: Workspace, path: NotePath, mark: Callable[[str], str], *, policy: LinkPolicy, dry_run: bool = False
) -> Deleted:
    """Into the trash, and every link to it gets the target that `mark` makes of the one written."""
    admit(ws, path, 0)
    wait_for_links(ws)

    def make() -> tuple[Plan, tuple[NotePath, list[NotePath]]]:
        place = trash_place(ws, path)
        texts, keys = PlanReader(ws), name_keys(path)
        linking = texts.notes(source for source in _find_linking(ws, keys) if source != path)
        targets = {link.target for note in linking for link in note.links if link_key(link.target) in keys}
        means = resolver(ws, policy, targets)
        steps: list[Put | Drop] = []
        for note in linking:
            splices = [
                Splice(link.target_start, link.target_end, mark(note.text[link.target_start : link.target_end]))
                for link in note.links
                if not link.kind.startswith("markdown")
                and link.target in targets
                and means(link.target, note.path).path == path
            ]
            if splices:
                data = apply_splices(note.text, splices).encode()
                steps.append(Put(note.path, data, texts.stored[note.path]))
        changed = [step.path for step in steps]
        old = read_or_none(ws.store, path)
        if old is None:
            raise missing_note_error(ws, path)
        steps += [Put(place, None, None, source=path), Drop(path, old)]
        return Plan(tuple(steps), f"deleted {path}"), (place, changed)

    done, (place, changed) = commit_indexed(ws, make, dry_run=dry_run)
    files = tuple(sorted(one for one in changed if ws.access.sees(one)))
    return Deleted(place, files, files, done.id)


# ---- inside notes -------------------------------------------------------------------------------------


def rename_heading(ws: Workspace, path: NotePath, old: str, new: str, *, dry_run: bool = False) -> RenameReport:
    """A heading, and every link to it in all notes."""
    ws.access.may_see(path)
    admit(ws, path, 0)
    text_of(path, fetch(ws, path).data)
    wait_for_links(ws)

    def plan(notes: list[Note]) -> Iterable[RewrittenFile]:
        if not notes or notes[0].path != path:
            raise missing_note_error(ws, path)
        return plan_heading(notes[0], old, new, ws.index, notes)

    summary = f"renamed the heading {old!r} of {path} to {new!r}"
    return _rewrite_notes(ws, summary, lambda: [path, *_find_linking(ws, name_keys(path))], plan, dry_run)


def rename_tag(ws: Workspace, old: str, new: str, *, dry_run: bool = False) -> RenameReport:
    """A tag with its children, in text and properties of every note the caller sees; all of them must be writable."""
    old, new = old.strip().removeprefix("#"), new.strip().removeprefix("#")
    wait_for_links(ws)

    def find_paths() -> list[NotePath]:
        found = _find_tagged(ws, old)
        if not found:
            near = find_nearest_tags(ws, old)
            hint = f"nearest: {', '.join('#' + tag for tag in near)}" if near else "there are no tags"
            raise NotFound(f"no note has the tag #{old}", hint=hint, what="tag", tag=old, nearest=near)
        for path in found:
            admit(ws, path, 0)
        return found

    return _rewrite_notes(ws, f"renamed #{old} to #{new}", find_paths, lambda notes: plan_tag(notes, old, new), dry_run)


def find_tagged(ws: Workspace, tag: str) -> list[NotePath]:
    """The notes the caller sees with this tag or one below it."""
    wait_for_links(ws)
    return _find_tagged(ws, tag)


def _find_tagged(ws: Workspace, tag: str) -> list[NotePath]:
    notes = Selection(tag_tree=tag, visible=ws.access.visibility)
    return [filed.path for filed in ws.index.select(notes)[0]] if tag.strip("#") else []


def find_nearest_tags(ws: Workspace, tag: str, count: int = 3) -> list[str]:
    """The tags most like this one, else the first there are."""
    there = {tag_key(name): name for name in ws.index.tags(visible=ws.access.visibility)}
    near = get_close_matches(tag_key(tag), there, count, 0.5) or list(there)
    return [there[key] for key in near[:count]]


def _rewrite_notes(
    ws: Workspace,
    summary: str,
    paths: Callable[[], Iterable[NotePath]],
    plan: Callable[[list[Note]], Iterable[RewrittenFile]],
    dry_run: bool,
) -> RenameReport:
    def make() -> tuple[Plan, list[RewrittenFile]]:
        texts = PlanReader(ws)
        notes = texts.notes(paths())
        rewritten = list(plan(notes))
        steps = (Put(one.before, one.text.encode(), texts.stored[one.before]) for one in rewritten)
        return Plan(tuple(steps), summary), rewritten

    done, rewritten = commit_indexed(ws, make, dry_run=dry_run)
    return RenameReport(tuple((one.before, one.links) for one in rewritten if ws.access.sees(one.before)), done.id)
