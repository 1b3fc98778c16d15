"""What can be typed to keep notes safe and to carry them: backup, restore, export, import."""

import argparse
import re
from collections.abc import Callable

_BACKUP = """\
One folder for each day in DIR, whole by itself: what did not change is a hard link to the day before. Days older than
--keep-days are removed after a backup without errors. With a configuration file all its workspaces are backed up.

  notewright backup --to ~/Backups/notes
  notewright backup --config server.toml              where its [backup] says
  notewright backup --to ~/Backups/notes --list       the backups there are
"""
_RESTORE = """\
Into the workspace it is a change like any other: notewright undo takes it back. Notes that are not in the backup stay,
unless it is to be --exact. DATE is the day of a backup, the newest without one; PATH is a note or a folder.

  notewright restore --from ~/Backups/notes --dry-run
  notewright restore --from ~/Backups/notes 2026-05-04 Projects 'Recipes/Tea'
  notewright restore --from ~/Backups/notes --into ~/Notes-as-they-were
"""
_EXPORT = """\
Every note and attachment that is not hidden. With - the zip file goes to standard output.

  notewright export ~/notes.zip
  notewright export - | ssh home 'cat > notes.zip'
"""
_IMPORT = """\
Folders stay as they are in the zip file or folder. Notes that are there already stay too, unless you say --overwrite.
Names beginning with a dot and symlinks are left out; the report says what else and why. notewright undo takes it back.

  notewright import ~/notes.zip --dry-run
  notewright import ~/old-notes --under Archive
"""
_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}", re.ASCII)
Command = Callable[[str, str, str], argparse.ArgumentParser]


def add(command: Command) -> None:
    """The four commands. `command` makes one of a name, a line and examples, with the options all have."""
    backup = command("backup", "copy the notes to a folder, one for each day", _BACKUP)
    backup.add_argument("--to", metavar="DIR", help="the folder for backups (default: backup.to of the configuration)")
    backup.add_argument("--keep-days", type=_days, metavar="N", help="for how many days they are kept (default: 30)")
    backup.add_argument("--list", action="store_true", help="only show the backups there are")
    restore = command("restore", "restore notes from a backup", _RESTORE)
    restore.add_argument("date", nargs="?", metavar="DATE", help="the day of the backup (default: the newest)")
    restore.add_argument("paths", nargs="*", metavar="PATH", help="only these notes and folders")
    restore.add_argument("--from", dest="source", metavar="DIR", help="the folder of the backups (default: backup.to)")
    restore.add_argument("--into", metavar="FOLDER", help="copy plain files into a new or empty folder instead")
    restore.add_argument("--exact", action="store_true", help="delete what is not in the backup")
    restore.add_argument("--dry-run", action="store_true", help="only say what would change")
    export = command("export", "put all notes into a zip file", _EXPORT)
    export.add_argument("file", metavar="FILE.zip|-")
    bring = command("import", "import notes from a zip file or a folder", _IMPORT)
    bring.add_argument("source", metavar="ZIP|FOLDER")
    bring.add_argument("--under", default="", metavar="FOLDER", help="put them into this folder")
    bring.add_argument("--overwrite", action="store_true", help="replace notes that are there")
    bring.add_argument("--dry-run", action="store_true", help="only say what would come")


def settle(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """What argparse cannot tell apart, and what contradicts itself."""
    if args.command == "restore":
        if args.date is not None and args.date != "newest" and not _DATE.fullmatch(args.date):
            args.date, args.paths = None, [args.date, *args.paths]
        if args.date == "newest":
            args.date = None
        if args.into and args.exact:
            parser.error("restore --into makes a new folder: there is nothing for --exact to delete")
    if args.command == "export" and args.file == "-" and args.json:
        parser.error("export - writes the zip file to standard output: --json cannot go there too")


def _days(raw: str) -> int:
    if not raw.isdecimal() or int(raw) < 1:
        raise argparse.ArgumentTypeError(f"{raw!r} is not a number of days")
    return int(raw)
