"""Answers as lines for people, or as one JSON document for programs. Totals and hints go to stderr."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, TextIO

from notewright.notes.times import format_utc

if TYPE_CHECKING:  # printing a hit must not load what a rename needs
    from notewright.engine.changes.history import FileDiff, UndoResult
    from notewright.engine.check import Finding
    from notewright.engine.find.grep import Matches
    from notewright.engine.find.links import LinkReport
    from notewright.engine.find.search import Hits
    from notewright.engine.move import RenameReport
    from notewright.engine.workspace import Workspace
    from notewright.errors import Problem
    from notewright.ledger.base import Change

Report = Callable[[int, int | None], None]
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n|\Z)")  # but tabs and line ends


def print_answer(args: argparse.Namespace, document: dict[str, Any], lines: Iterable[str], summary: str = "") -> None:
    """The document with `--json`, else the lines, and the summary beside them."""
    if args.json:
        _print_json(document)
        return
    for line in lines:
        print(for_stream(line, sys.stdout))
    if summary:
        sys.stdout.flush()  # so that the two streams keep their order on a terminal
        print(for_stream(summary, sys.stderr), file=sys.stderr)


def for_stream(text: str, stream: TextIO) -> str:
    """What notes and names hold is data: on a terminal control characters are shown, as `\\x1b`, not obeyed. A change
    could else hide its own lines in a diff."""
    if not _CONTROL.search(text) or not stream.isatty():
        return text
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def print_problem_document(problem: Problem) -> None:
    error = {"code": problem.code, "message": problem.message, "hint": problem.hint}
    _print_json({"error": error})


def _print_json(document: dict[str, Any]) -> None:
    text = json.dumps(document, ensure_ascii=False, indent=2)
    print(_CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text))  # JSON itself escapes only those below a blank


def describe(problem: Problem) -> str:
    """One line: what is wrong, and what to do."""
    text = f"notewright: {problem.message.rstrip('.')}" + (f". {problem.hint}" if problem.hint else "")
    return " ".join(text.split("\n"))


def pluralize(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


# ---- finding ------------------------------------------------------------------------------------------


def print_hits(found: Hits, ws: Workspace, args: argparse.Namespace) -> None:
    from notewright.engine.find.search import describe_counts

    document = {
        "query": " ".join(args.words),
        "total": found.total,
        "with_all": found.with_all,
        "cut": found.cut,
        "hits": [
            {name: getattr(hit, name) for name in ("path", "title", "heading", "line", "snippet")}
            | {"score": round(hit.score, 4), "modified": format_utc(hit.modified_ns / 1e9)}
            for hit in found.items
        ],
        "nearest": list(found.nearest),
    }
    lines = []
    for number, hit in enumerate(found.items, 1):
        day = datetime.fromtimestamp(hit.modified_ns / 1e9, ws.timezone).date()
        section = f" › {hit.heading}" if hit.heading else ""
        lines.append(f"{number}. {hit.path}{section} (L{hit.line}, {day})")
        if hit.snippet:
            lines.append(f"   {hit.snippet}")
    if found.items:
        total, having = describe_counts(found)
        summary = f"{having} note{'' if having == '1' else 's'} with all the words, {total} with any of them"
    else:
        summary = "Nothing found" + (f"; near are {', '.join(found.nearest)}" if found.nearest else "")
    print_answer(args, document, lines, summary)


def print_matches(found: Matches, args: argparse.Namespace) -> None:
    document = {
        "lines": found.total_lines,
        "notes": found.total_notes,
        "cut": found.cut,
        "late": found.late,
        "matches": [
            {
                "path": item.path,
                "line": item.line,
                "text": item.text,
                "spans": [list(span) for span in item.spans],
                **({"before": list(item.before), "after": list(item.after)} if args.context else {}),
            }
            for item in found.items
        ],
    }
    summary = f"{pluralize(found.total_lines, 'line')} in {pluralize(found.total_notes, 'note')}"
    if found.cut:
        summary += f"; {len(found.items):,} shown, --limit shows more"
    if found.late:
        summary += "; stopped, because it took too long"
    lines = []
    for item in found.items:
        lines += [f"{item.path}-{n}- {text}" for n, text in enumerate(item.before, item.line - len(item.before))]
        lines.append(f"{item.path}:{item.line}: {item.text}")
        lines += [f"{item.path}-{n}- {text}" for n, text in enumerate(item.after, item.line + 1)]
    print_answer(args, document, lines, summary)


def print_links(report: LinkReport, args: argparse.Namespace) -> None:
    document = {
        "path": report.path,
        "incoming": [link.record() for link in report.incoming],
        "outgoing": [link.record() for link in report.outgoing],
    }
    lines = [f"{link.source}:{link.line}: {link.sentence.with_ellipses}" for link in report.incoming]
    for link in report.outgoing:
        mark = "" if link.status == "ok" else f" ({link.status})"
        lines.append(f"{link.source}:{link.line}: {link.target}{link.subpath} → {link.path or 'nothing'}{mark}")
    summary = f"{report.path}: {len(report.incoming)} in, {len(report.outgoing)} out"
    broken = sum(link.status == "broken" for link in report.outgoing)
    print_answer(args, document, lines, summary + (f", {broken} broken" if broken else ""))


# ---- changing -----------------------------------------------------------------------------------------


def print_renamed(done: RenameReport, names: tuple[str, str], thing: str, args: argparse.Namespace) -> None:
    """`thing` is what was counted in each file: links follow, tags are renamed themselves."""
    files = [(path, count) for path, count in done.files if count]
    total = sum(count for _, count in files)
    document = {
        "old": names[0],
        "new": names[1],
        "dry_run": args.dry_run,
        f"{thing}s": total,
        "files": [{"path": path, f"{thing}s": count} for path, count in files],
        "change": done.change_id,
    }
    lines = [f"{names[0]} {'would become' if args.dry_run else 'is now'} {names[1]}"]
    lines += [f"{path}: {pluralize(count, thing)}" for path, count in files]
    verbs = {"link": ("followed", "would follow"), "tag": ("renamed", "would be renamed")}[thing]
    summary = f"{pluralize(total, thing)} in {pluralize(len(files), 'note')} {verbs[args.dry_run]}"
    print_answer(args, document, lines, _undo_hint(summary, done.change_id))


def _undo_hint(summary: str, change: str | None) -> str:
    return f"{summary}; take it back: notewright undo {change}" if change else summary


def print_changes(found: list[Change], ws: Workspace, args: argparse.Namespace) -> None:
    shown, more = found[: args.limit], len(found) > args.limit
    document = {"changes": [change.record() for change in shown], "cut": more}
    lines = [_change_line(change, ws) for change in shown]
    summary = (
        "Nothing was changed through Notewright" if not shown else "There are more; --limit shows them" if more else ""
    )
    print_answer(args, document, lines, summary)


def _change_line(change: Change, ws: Workspace) -> str:
    at = datetime.fromtimestamp(change.at, ws.timezone).strftime("%Y-%m-%d %H:%M")
    who = " ".join(filter(None, (change.actor.user, change.actor.client, change.actor.tool))) or "somebody"
    undone = f" (taken back by {change.undone_by})" if change.undone_by else ""
    return f"{change.id}  {at}  {who}: {change.summary}{undone}"


def print_difference(change: Change, files: tuple[FileDiff, ...], ws: Workspace, args: argparse.Namespace) -> None:
    document = change.record() | {"diff": [file._asdict() for file in files]}
    lines = [_change_line(change, ws)]
    for file in files:
        came = f" from {file.source}" if file.source else ""
        lines += [f"{file.kind} {file.path}{came}", *file.lines]
        lines += [f"({file.why})"] if file.why else ["(and more)"] if file.cut else []
    print_answer(args, document, lines)


def print_forgotten(path: str, versions: int, args: argparse.Namespace) -> None:
    line = f"Forgot {pluralize(versions, 'version')} of {path}; what is in the notes and their trash stays"
    print_answer(args, {"path": path, "forgotten": versions}, [line])


def print_undone(undo: UndoResult, ws: Workspace, args: argparse.Namespace) -> None:
    document = undo.record(ws)
    files, kept = document["files"], set(document["kept"])
    verb = "Would take back" if args.dry_run else "Took back"
    lines = [f"{verb} {one.id}: {one.summary}" for one in undo.changes]
    lines += [f"  {path}{' (later changes in it were kept)' if path in kept else ''}" for path in files]
    summary = f"{pluralize(len(files) - len(kept), 'file')} as before"
    summary += f", {pluralize(len(kept), 'file')} but for later changes" if kept else ""
    print_answer(args, document, lines, _undo_hint(summary, document["change"]))


# ---- looking after ------------------------------------------------------------------------------------


def print_findings(found: list[Finding], args: argparse.Namespace) -> None:
    from dataclasses import asdict  # which a search does not load

    document = {"total": len(found), "findings": [asdict(one) for one in found]}
    lines = [f"{one.path}{f':{one.line}' if one.line else ''}: {one.message}" for one in found]
    print_answer(args, document, lines, pluralize(len(found), "finding") if found else "Nothing is wrong")


def print_indexed(notes: int, others: int, seconds: float, args: argparse.Namespace) -> None:
    document = {"notes": notes, "files": others, "rebuilt": args.rebuild, "seconds": round(seconds, 2)}
    done = "rebuilt" if args.rebuild else "up to date"
    line = f"{pluralize(notes, 'note')} and {pluralize(others, 'other file')}: the index is {done} ({seconds:.1f} s)"
    print_answer(args, document, [line])


@contextmanager
def show_progress(what: str = "Indexing") -> Iterator[Report]:
    """A progress bar on stderr during something long; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
