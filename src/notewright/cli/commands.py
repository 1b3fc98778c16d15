"""One function for each command that calls the engine: open the workspace, call, print, close.

Each imports its part of the engine when it runs: a search on a warm index loads no regular expressions and no undo."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from notewright.app import opening
from notewright.cli import printing
from notewright.cli.arguments import choose_workspace, parse_moment
from notewright.engine.indexing.difference import IdleFollower
from notewright.errors import Indexing, NotFound, Unavailable
from notewright.ledger.base import Actor, ChangeQuery
from notewright.notes.path import NotePath

if TYPE_CHECKING:
    from notewright.engine.workspace import Workspace

MAX_WAIT_SECONDS = 3600.0  # that a command waits for a first index, showing its progress


def search(args: argparse.Namespace) -> None:
    from notewright.engine.find.search import parse_query
    from notewright.engine.find.search import search as search_notes

    with open_chosen_workspace(args, reads=True) as ws:
        since, folder = _since(ws, args), ""
        if args.folder:
            from notewright.engine.read import find_folder  # which a search without one does not load

            folder = find_folder(ws, strip_root(ws, args.folder))
        query = parse_query(" ".join(args.words), folder=folder, tags=args.tag, since=since, limit=args.limit)
        printing.print_hits(search_notes(ws, query), ws, args)


def grep(args: argparse.Namespace) -> None:
    from notewright.engine.find.grep import Grep
    from notewright.engine.find.grep import grep as grep_notes

    asked = Grep(
        args.pattern,
        dialect="literal" if args.fixed else "re2",
        ignore_case=not args.case_sensitive,
        whole_word=args.word,
        folder=args.folder,
        glob=args.glob,
        files=args.all_files,
        context=args.context,
        limit=args.limit,
    )
    with open_chosen_workspace(args, reads=True) as ws:
        printing.print_matches(grep_notes(ws, asked), args)


def links(args: argparse.Namespace) -> None:
    from notewright.engine.find.links import links as links_of
    from notewright.engine.read import locate

    with open_chosen_workspace(args, reads=True) as ws:
        report = links_of(ws, locate(ws, strip_root(ws, args.path)), args.direction, args.depth)
        printing.print_links(report, args)


def rename(args: argparse.Namespace) -> None:
    from notewright.engine.move import move, rename_heading, rename_tag
    from notewright.engine.read import find_folder, locate

    with open_chosen_workspace(args) as ws:
        if args.tag:
            done = rename_tag(ws, args.old, args.new, dry_run=args.dry_run)
            old, new = (f"#{tag.strip().removeprefix('#')}" for tag in (args.old, args.new))
            return printing.print_renamed(done, (old, new), "tag", args)
        if args.heading is not None:
            path = locate(ws, strip_root(ws, args.heading))
            done = rename_heading(ws, path, args.old, args.new, dry_run=args.dry_run)
            return printing.print_renamed(done, (f"{path}#{args.old}", f"{path}#{args.new}"), "link", args)
        raw = strip_root(ws, args.old)
        try:
            old_path = locate(ws, raw)
        except NotFound as missing:
            try:
                old_path = NotePath(find_folder(ws, raw))
            except NotFound:
                raise missing from None
        # a bare name stays in the folder; what has a slash is a path from the top
        beside = old_path.folder and "/" not in args.new
        new_path = f"{old_path.folder}/{args.new}" if beside else strip_root(ws, args.new)
        moved = move(ws, old_path, new_path, dry_run=args.dry_run)
        printing.print_renamed(moved, (moved.old, moved.new), "link", args)


def check(args: argparse.Namespace) -> int:
    from notewright.engine.check import check as check_workspace

    with open_chosen_workspace(args, reads=True) as ws:
        found = check_workspace(ws)
        printing.print_findings(found, args)
    return 1 if found else 0


def log(args: argparse.Namespace) -> None:
    from notewright.engine.changes.history import diff_change, find_change, list_changes

    with open_chosen_workspace(args, indexed=False, follow=args.path is not None, reads=True) as ws:
        if args.change:
            change = find_change(ws, _complete_id(ws, args.change))
            printing.print_difference(change, diff_change(ws, change.id), ws, args)
            return
        path = None if args.path is None else strip_root(ws, args.path)
        if path is not None:
            from notewright.engine.read import locate  # which a log of all notes does not load

            with suppress(NotFound):  # a note that is gone is known by its path alone
                path = locate(ws, path)
        if args.forget and path is not None:
            printing.print_forgotten(path, ws.ledger.purge(path), args)
            return
        asked = ChangeQuery(path=path, since=_since(ws, args), client=args.client, limit=args.limit + 1)
        printing.print_changes(list_changes(ws, asked), ws, args)


def undo(args: argparse.Namespace) -> None:
    from notewright.engine.changes.history import undo as undo_change
    from notewright.engine.changes.history import undo_since

    with open_chosen_workspace(args) as ws:
        if args.change:
            undone = undo_change(ws, _complete_id(ws, args.change), dry_run=args.dry_run)
        else:
            undone = undo_since(ws, _since(ws, args) or 0.0, client=args.client, dry_run=args.dry_run)
        printing.print_undone(undone, ws, args)


def index(args: argparse.Namespace) -> None:
    began = time.monotonic()
    with open_chosen_workspace(args, indexed=not args.rebuild) as ws:
        if args.rebuild:
            with suppress(Unavailable):  # an index that waits for notes that vanished: the folder is taken as it is
                _wait_until_ready(ws)
            with printing.show_progress() as report:
                ws.follower.rebuild(report)
        notes, files = ws.index.total("notes"), ws.index.total("files")
        printing.print_indexed(notes, files - notes, time.monotonic() - began, args)


# ---- what they share ----------------------------------------------------------------------------------


@contextmanager
def open_chosen_workspace(
    args: argparse.Namespace, *, indexed: bool = True, follow: bool = True, reads: bool = False
) -> Iterator[Workspace]:
    """Open the workspace that was named, for this person, and wait for its index. `follow`: the index is brought up to
    date. `reads`: the command writes nothing, so the history needs no name."""
    workspace, config = choose_workspace(args)
    around = None if args.workspace else opening.find_enclosing_workspace(workspace.location, config)
    if around is not None:
        import shlex

        what = f"this folder is inside the workspace {around}; --workspace {shlex.quote(around)} acts on all of it"
        print(f"notewright: {what}", file=sys.stderr, flush=True)
    ws = opening.open_workspace(workspace, config, watch=False, follow=follow, reads=reads)
    try:
        if indexed and not isinstance(ws.follower, IdleFollower):
            _wait_until_ready(ws)
        yield ws if reads else ws.by(Actor(opening.process_user(), "notewright", "cli", args.command))
    finally:
        opening.close_workspace(ws)


def _wait_until_ready(ws: Workspace) -> None:
    """Wait for the index, with a progress bar if it takes long, as the first one of many notes does."""
    from notewright.engine.indexing.ready import wait_for_texts

    try:
        return wait_for_texts(ws, 0.5)
    except Indexing:
        pass
    until, is_told = time.monotonic() + MAX_WAIT_SECONDS, False
    with printing.show_progress() as report:
        while True:
            try:
                return wait_for_texts(ws, 0.2)
            except Indexing as still:
                ws.follower.refuse_if_lost()  # Unavailable where the notes are gone
                stale = ws.follower.progress().stale
                if stale and not is_told:
                    print(f"notewright: {stale}", file=sys.stderr, flush=True)
                    is_told = True
                if time.monotonic() > until:
                    raise
                report(still.details.get("done") or 0, still.details.get("total"))


def _since(ws: Workspace, args: argparse.Namespace) -> float | None:
    return None if args.since is None else parse_moment(args.since, ws.timezone, ws.clock())


def _complete_id(ws: Workspace, raw: str) -> str:
    """A change by its id or the beginning of one."""
    from notewright.engine.changes.history import list_changes

    begins = [change.id for change in list_changes(ws, ChangeQuery(limit=1000)) if change.id.startswith(raw)]
    return begins[0] if len(begins) == 1 else raw


def strip_root(ws: Workspace, raw: str) -> str:
    """A path as people type or complete it in a shell, without `./` and without the path of the workspace before it."""
    objects = ws.store.objects
    root = (objects.location if objects is not None else ws.store.full_path(NotePath("")).rstrip("/")) + "/"
    inside = raw[len(root) :] if raw.startswith(root) else raw
    while inside.startswith("./"):
        inside = inside[2:].lstrip("/")
    return inside
