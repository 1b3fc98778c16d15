"""What can be typed: the commands, their options and their help."""

import argparse
import re
import sys
from collections.abc import Mapping, Sequence

from notewright import __version__

_BACKUP = """\
One folder for each day in PLACE, whole by itself: what did not change is a hard link to the day before, in a bucket a
copy made by the service. Days older than --keep-days are removed after a backup without errors. With a configuration
file all its workspaces are backed up.

  notewright backup --to ~/Backups/notes
  notewright backup --to s3://my-backups/notes
  notewright backup --config server.toml              where its [backup] says
  notewright backup --to ~/Backups/notes --list       the backups there are
"""
_RESTORE = """\
Into the workspace it is a change like any other: notewright undo takes it back. Notes that are not in the backup stay,
unless it is to be --exact. DATE is the day of a backup, the newest without one; PATH is a note or a folder.

  notewright restore --from ~/Backups/notes --dry-run
  notewright restore --from ~/Backups/notes 2026-05-04 Projects 'Recipes/Tea'
  notewright restore --from ~/Backups/notes --into ~/Notes-as-they-were
  notewright restore --from ~/Backups/notes --into s3://my-notes/as-they-were
"""
_EXPORT = """\
Every note and attachment that is not hidden. With - the zip file goes to standard output; in a bucket each note is an
object, as it would be in a workspace there.

  notewright export ~/notes.zip
  notewright export s3://my-notes/copy
  notewright export - | ssh home 'cat > notes.zip'
"""
_IMPORT = """\
Folders stay as they are. Notes that are there already stay too, unless you say --overwrite.
Names beginning with a dot and symlinks are left out; the report says what else and why. notewright undo takes it back.

  notewright import ~/notes.zip --dry-run
  notewright import ~/old-notes --under Archive
  notewright import s3://my-notes/old --under Archive
"""
CLIENTS = ("claude-desktop", "claude-code", "cursor", "vscode", "zed", "windsurf", "gemini-cli", "codex-cli")

_START = """\
Notewright lets AI agents work in your Markdown notes over MCP, and lets you take back anything they did.

  notewright client claude-desktop --write     give an agent your notes: its configuration, for the current folder
  notewright search water temperature          find notes, the best sections first
  notewright log                               what agents changed, newest first
  notewright undo CHANGE                       take one of those changes back

Commands act on the current folder, or on --workspace NAME|LOCATION.
"""
_PLACES = """\
LOCATION is a folder or s3://bucket/prefix. Without --http MCP is spoken on standard input and output, as clients
expect that start the server themselves.

  notewright serve ~/Notes
  notewright serve Work=~/work/notes Home=~/notes --read-only
  notewright serve ~/Notes --surface octarine
  notewright serve ~/Notes --http 8484         every surface at once, on http://127.0.0.1:8484
"""
_SEARCH = """\
Ranked by any of the words; "phrases", -word, tag:x, path:x and [key:value] are conditions. Quote what begins with -.

  notewright search how hot for green tea
  notewright search '"deck oven" tag:recipe -draft'
  notewright search invoices --folder Projects --since 2026-01-01
"""
_GREP = """\
Regular expressions that take linear time, case ignored, line by line.

  notewright grep '^- \\[ \\] ' --folder Projects
  notewright grep Budget --case-sensitive --context 2
  notewright grep -F '[[Old name]]'
"""
_LINKS = """\
PATH is a path, a name or an alias. Links to the note come first, then its own with where they lead.

  notewright links Tea
  notewright links 'Drinks/Green tea' --direction in --depth 2
"""
_RENAME = """\
Every link to it follows, and a note's own relative links too. A NEW name without / stays in its folder; with one it is
a path from the top, and ending in / a folder to move into.

  notewright rename Drinks/Tea 'Green tea'            now Drinks/Green tea
  notewright rename Drinks/Tea '/Green tea'           now Green tea, in the top folder
  notewright rename 'Drafts/Plan' Projects/ --dry-run
  notewright rename --tag recipe cooking              #recipe/soup becomes #cooking/soup
  notewright rename --heading Tea 'Water' 'Hot water'
"""
_LOG = """\
  notewright log --since 2h                           everything of the last two hours
  notewright log Projects/Plan --client cursor        what one client did to one note, under its former names too
  notewright log --change k7m2qd                      one change, as a diff
  notewright log Passwords --forget                   forget what was kept of a note: a secret got into it
"""
_UNDO = """\
  notewright undo k7m2qd                              one change; a beginning of its id is enough
  notewright undo --client claude-code --since 2h     everything that client did in the last two hours
  notewright undo --since 2026-05-04 --dry-run        what would happen
"""
_CHECK = """\
Nothing is changed. The exit code is 1 where something was found.

  notewright check
  notewright check --workspace ~/Notes --json
"""
_INDEX = """\
The index is kept up to date by every command and server; it may be deleted at any time and is then built again.

  notewright index
  notewright index --rebuild                          anew, while servers go on answering
"""
_CLIENT = """\
Prints what to put into the client's configuration, or puts it there with --write; what is in the file stays, and a
copy of the file as it was is kept beside it.

  notewright client cursor ~/Notes
  notewright client claude-code ~/Notes --write --read-only
"""
_TOKEN = """\
Tokens are for HTTP: a server beyond this machine wants one with every request, and so does one on this machine as soon
as a token was ever added. They are shown once, kept as hashes, and hold at once in running servers. One that nothing
narrows may also change workspaces and tokens.

  notewright token add phone --workspace Work --read-only --expires 90d
  notewright token add inbox-bot --surface notes --write-under 'Inbox/**' --hide 'Private/**'
  notewright token list
  notewright token revoke phone
"""
_WORKSPACE = """\
What is changed here holds at once in every server that runs with the same state, and for commands and clients that
start later. NAME is a workspace's name or id, or its folder. Settings are timezone, read_only, hide, write_under,
max_file_size, quota_files and quota_bytes; lists are written with commas.

  notewright workspace add Work=~/work/notes read_only=true
  notewright workspace set Work read_only= hide='Private/**,Drafts/**'
  notewright workspace rename Work Office               its id, and so every address, stays
  notewright workspace list
  notewright workspace remove Office                    served no longer; the notes stay where they are
"""
_MOVE = """\
Between folders and buckets, either way. Every file is read back from the new place and compared; inside one service the
service copies them. The old place stays as it is. What was killed goes on when it is run again, and what has changed
since is carried over. The history comes along, so undo works there. A workspace that was added is served from the
new place at once. KEY=VALUE says how a bucket is reached: endpoint, region, path_style, poll_seconds.

  notewright move-workspace ~/Notes s3://my-notes/work --dry-run
  notewright move-workspace Work s3://my-notes/work endpoint=https://ACCOUNT.r2.cloudflarestorage.com
  notewright move-workspace s3://my-notes/work ~/Notes
"""
_SINCE = "2026-05-04, 2026-05-04T10:00:00Z, or so long ago: 30m, 2h, 3d"


_PATH_ARGUMENTS = ("location", "target", "workspace", "state", "config", "to", "source", "into", "file")


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """As wide as the terminal, whose width is read when help is shown: argparse makes a formatter for every option, and
    each would load `shutil` with all its archive formats to ask for the width."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=80)

    def format_help(self) -> str:
        import shutil

        self._width = shutil.get_terminal_size().columns - 2
        self._max_help_position = min(self._max_help_position, max(self._width - 20, 4))
        return super().format_help()


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command and its options; exits with 2 and words when they are wrong."""
    words = sys.argv[1:] if argv is None else argv
    parser, _ = _build_parser(words[0] if words else "--help")
    args = parser.parse_args(words)
    _refuse_other_than_text(parser, args)
    _refuse_contradictions(parser, args)
    return args


def _refuse_other_than_text(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Folders and files of the system may have names of any bytes; everything else is compared with text. What a
    workspace may be called is said elsewhere."""
    for name, value in vars(args).items() if args.command != "workspace" else ():
        if name == "locations" or (name in _PATH_ARGUMENTS and not isinstance(value, list)):
            continue
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str) and any("\ud800" <= letter <= "\udfff" for letter in one):
                parser.error(f"{name.replace('_', '-')}: {one!r} is not text in UTF-8")


def all_parsers() -> dict[str, argparse.ArgumentParser]:
    """Every command with its help, for the reference."""
    return dict(_build_parser("")[1].choices)


class _CommandWithoutOptions(argparse.ArgumentParser):
    """A command without its options, for the list that `--help` shows."""

    def __init__(self, prog: str) -> None:
        pass


def _build_parser(first: str) -> "tuple[argparse.ArgumentParser, argparse._SubParsersAction[argparse.ArgumentParser]]":
    """The parser with as much as is needed after this first word: argparse takes longer for the options of all commands
    than a search does."""
    parser = argparse.ArgumentParser(
        "notewright", description=_START, formatter_class=_HelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"notewright {__version__}")
    kind = _CommandWithoutOptions if first in ("-h", "--help", "--version") else argparse.ArgumentParser
    commands = parser.add_subparsers(
        prog="notewright", dest="command", metavar="COMMAND", required=True, parser_class=kind
    )
    for name in [first] if first in _COMMANDS else _COMMANDS:
        line, examples = _COMMANDS[name]
        if kind is _CommandWithoutOptions:
            commands.add_parser(name, help=line)
            continue
        description = f"{line[0].upper()}{line[1:]}.\n\n{examples}".strip()
        made = commands.add_parser(
            name, help=line, description=description, formatter_class=_HelpFormatter, allow_abbrev=False
        )
        if name not in _WITHOUT_COMMON_OPTIONS:
            made.add_argument("--workspace", metavar="NAME|LOCATION", help=_CHOSEN)
            made.add_argument("--json", action="store_true", help="answer with one JSON document")
        made.add_argument("--state", metavar="DIR", help="keep the ledger in DIR/state and the index in DIR/cache")
        made.add_argument("--config", metavar="FILE", help="a configuration file (TOML)")
        _add_options(name, made)
    return parser, commands


def _add_options(name: str, command: argparse.ArgumentParser) -> None:
    """The options of one command."""
    add = command.add_argument
    match name:
        case "serve":
            add("locations", nargs="*", metavar="[NAME=]LOCATION", help="the notes to serve")
            add("--surface", action="append", metavar="NAME", help="the tools to offer (default: notes)")
            add("--http", metavar="[HOST:]PORT", help="serve over HTTP (default host: 127.0.0.1)")
            add("--read-only", action="store_true", default=None, help="take no writes")
            add("--no-rate-limits", action="store_true", help="lift the call limits of the dialects")
            add("--workers", type=_positive, metavar="N", help="processes that answer over HTTP")
        case "client":
            add("client", choices=CLIENTS, metavar="CLIENT", help=", ".join(CLIENTS))
            add("locations", nargs="*", metavar="[NAME=]LOCATION", help="the notes to offer")
            add("--write", action="store_true", help="put it into the client's file")
            add("--surface", metavar="NAME", help="the tools to offer (default: notes)")
            add("--read-only", action="store_true", default=None, help="take no writes")
            add("--name", default="notewright", help="what the client calls the server")
        case "search":
            add("words", nargs="+", metavar="WORDS")
            add("--folder", default="", help="only in this folder")
            add("--tag", action="append", default=[], metavar="TAG", help="only with this tag; may be repeated")
            add("--since", metavar="TIME", help=f"only notes changed since then: {_SINCE}")
            add("--limit", type=_positive, default=10, metavar="N", help="at most so many (default: 10)")
        case "grep":
            add("pattern", metavar="PATTERN")
            add("--folder", default="", help="only in this folder")
            add("--glob", metavar="GLOB", help="only notes whose name or path matches")
            add("-s", "--case-sensitive", action="store_true", help="tell capitals from small letters")
            add("-F", "--fixed", action="store_true", help="PATTERN is plain text")
            add("-w", "--word", action="store_true", help="whole words only")
            add("-C", "--context", type=_count, default=0, metavar="N", help="show so many lines around each")
            add("--all-files", action="store_true", help="look into every text file, not only notes")
            add("--limit", type=_positive, default=200, metavar="N", help="at most so many lines (default: 200)")
        case "links":
            add("path", metavar="PATH", help="a path, a name or an alias")
            add("--direction", choices=("in", "out", "both"), default="both")
            add("--depth", type=_positive, default=1, metavar="N", help="follow links so many steps (default: 1)")
        case "rename":
            add("old", metavar="OLD")
            add("new", metavar="NEW")
            inside = command.add_mutually_exclusive_group()
            inside.add_argument("--tag", action="store_true", help="OLD is a tag; those below it follow, in all notes")
            inside.add_argument("--heading", metavar="NOTE", help="OLD is a heading of this note; links to it follow")
            add("--dry-run", action="store_true", help="only say what would change")
        case "log":
            add("path", nargs="?", metavar="PATH", help="only changes of this note")
            add("--change", metavar="ID", help="one change, as a diff")
            add("--forget", action="store_true", help="forget the kept bytes of PATH; they cannot be undone then")
            add("--since", metavar="TIME", help=f"only since then: {_SINCE}")
            add("--client", metavar="NAME", help="only by this client")
            add("--limit", type=_positive, default=20, metavar="N", help="at most so many (default: 20)")
        case "undo":
            add("change", nargs="?", metavar="ID", help="one change, as log shows it")
            add("--since", metavar="TIME", help=f"everything since then: {_SINCE}")
            add("--client", metavar="NAME", help="everything by this client")
            add("--dry-run", action="store_true", help="only say what would change")
        case "index":
            add("--rebuild", action="store_true", help="rebuild it beside the one in use")
        case "backup":
            add(
                "--to",
                metavar="PLACE",
                help="a folder or s3://bucket/prefix (default: backup.to of the configuration)",
            )
            add("--keep-days", type=_positive, metavar="N", help="for how many days they are kept (default: 30)")
            add("--list", action="store_true", help="only show the backups there are")
        case "restore":
            add("date", nargs="?", metavar="DATE", help="the day of the backup (default: the newest)")
            add("paths", nargs="*", metavar="PATH", help="only these notes and folders")
            add("--from", dest="source", metavar="PLACE", help="where the backups are (default: backup.to)")
            add("--into", metavar="PLACE", help="copy plain files into an empty folder or bucket instead")
            add("--exact", action="store_true", help="delete what is not in the backup")
            add("--dry-run", action="store_true", help="only say what would change")
        case "export":
            add("file", metavar="FILE.zip|-|s3://…")
        case "import":
            add("source", metavar="ZIP|LOCATION")
            add("--under", default="", metavar="FOLDER", help="put them into this folder")
            add("--overwrite", action="store_true", help="replace notes that are there")
            add("--dry-run", action="store_true", help="only say what would come")
        case "move-workspace":
            add("workspace", metavar="NAME|LOCATION", help="the notes to move")
            add("target", metavar="LOCATION", help="the new place: an empty folder, or s3://bucket/prefix")
            add("settings", nargs="*", metavar="KEY=VALUE", help="how a bucket is reached")
            add("--dry-run", action="store_true", help="only say what would be copied")
            add("--json", action="store_true", help="answer with one JSON document")
        case "token":
            _add_token_commands(command)
        case "workspace":
            _add_workspace_commands(command)


def _add_token_commands(token: argparse.ArgumentParser) -> None:
    add, _, revoke = verbs = _add_verbs(token, _TOKEN_VERBS)
    add.add_argument("name", metavar="NAME", help="whom it is for; shown in the history")
    several = "only for this; may be repeated, or several with commas"
    add.add_argument("--workspace", action="append", default=[], metavar="NAME", help=several)
    add.add_argument("--surface", action="append", default=[], metavar="NAME", help=several)
    add.add_argument("--read-only", action="store_true", help="may not write")
    add.add_argument("--hide", action="append", default=[], metavar="GLOB", help="does not see this; may be repeated")
    add.add_argument(
        "--write-under", action="append", default=[], metavar="GLOB", help="may write only here; may be repeated"
    )
    add.add_argument("--expires", metavar="TIME", help="is good until then: 90d, 12h, 2027-01-31")
    revoke.add_argument("name", metavar="NAME")
    _add_shared_options(verbs)


def _add_workspace_commands(workspace: argparse.ArgumentParser) -> None:
    add, _, rename, change, remove = verbs = _add_verbs(workspace, _WORKSPACE_VERBS)
    add.add_argument("location", metavar="[NAME=]LOCATION", help="the folder or bucket, and what it is called")
    for one in (rename, change, remove):
        one.add_argument("name", metavar="NAME")
    rename.add_argument("new", metavar="NEW")
    add.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    change.add_argument("settings", nargs="+", metavar="KEY=VALUE", help="KEY= takes a setting back")
    _add_shared_options(verbs)


_TOKEN_VERBS = {"add": "make a token", "list": "show all tokens", "revoke": "end a token, at once"}
_WORKSPACE_VERBS = {
    "add": "serve another folder",
    "list": "show the workspaces and what is set for them",
    "rename": "call a workspace something else",
    "set": "change what holds in a workspace",
    "remove": "serve one no longer that was added",
}


def _add_verbs(command: argparse.ArgumentParser, lines: Mapping[str, str]) -> list[argparse.ArgumentParser]:
    verbs = command.add_subparsers(dest="what", metavar="|".join(lines), required=True)
    return [verbs.add_parser(verb, help=line, allow_abbrev=False) for verb, line in lines.items()]


def _add_shared_options(verbs: Sequence[argparse.ArgumentParser]) -> None:
    for one in verbs:
        one.add_argument("--json", action="store_true", help="answer with one JSON document")
        one.add_argument("--state", metavar="DIR", default=argparse.SUPPRESS, help="as given to the server")
        one.add_argument("--config", metavar="FILE", default=argparse.SUPPRESS, help="as given to the server")


# What each does in a line, and examples.
_COMMANDS = {
    "serve": ("serve notes to MCP clients", _PLACES),
    "client": ("print or write the configuration of an MCP client", _CLIENT),
    "search": ("find notes by words", _SEARCH),
    "grep": ("find lines by a regular expression", _GREP),
    "links": ("show the links to and from a note", _LINKS),
    "rename": (
        "rename or move a note, an attachment or a folder with its links, or rename a tag or a heading",
        _RENAME,
    ),
    "log": ("show what was changed through Notewright, newest first", _LOG),
    "undo": ("take changes back", _UNDO),
    "check": (
        "report broken links, ambiguous and unportable names, bad frontmatter, and what the index has wrong",
        _CHECK,
    ),
    "index": ("bring the index up to date", _INDEX),
    "backup": ("copy the notes to a folder or bucket, day by day", _BACKUP),
    "restore": ("restore notes from a backup", _RESTORE),
    "export": ("put all notes into a zip file or a bucket", _EXPORT),
    "import": ("import notes from a zip file, a folder or a bucket", _IMPORT),
    "token": ("make, list and revoke access tokens for HTTP", _TOKEN),
    "workspace": (
        "add, list, rename, change and remove the workspaces that are served",
        _WORKSPACE,
    ),
    "move-workspace": ("move the notes to another folder or bucket", _MOVE),
}
_WITHOUT_COMMON_OPTIONS = ("serve", "token", "workspace", "move-workspace")
_CHOSEN = "the notes to use (default: the current folder)"


def _count(raw: str) -> int:
    if not raw.isdecimal():
        raise argparse.ArgumentTypeError(f"{raw!r} is not a number")
    # no vault holds more, and neither SQLite nor islice takes more than 64 bits
    return min(int(raw), 1_000_000_000)


def _positive(raw: str) -> int:
    if (count := _count(raw)) == 0:
        raise argparse.ArgumentTypeError("it must be at least 1")
    return count


def _refuse_contradictions(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Refuse arguments that contradict each other, and tell apart what argparse cannot."""
    if args.command == "restore":
        is_date = re.compile(r"newest|\d{4}-\d{1,2}-\d{1,2}", re.ASCII).fullmatch
        if args.date is not None and not is_date(args.date):
            args.date, args.paths = None, [args.date, *args.paths]
        if args.date == "newest":
            args.date = None
        if args.into and args.exact:
            parser.error("restore --into makes a new folder: there is nothing for --exact to delete")
    if args.command == "export" and args.file == "-" and args.json:
        parser.error("export - writes the zip file to standard output: --json cannot go there too")
    if args.command == "undo" and bool(args.change) == bool(args.since or args.client):
        parser.error("undo takes either a change's ID or --since and --client; log shows the changes")
    if args.command == "log" and args.change and (args.path or args.since or args.client or args.forget):
        parser.error("log --change shows one change and takes no other condition")
    if args.command == "log" and args.forget and (not args.path or args.since or args.client):
        parser.error("log --forget takes the PATH of one note and no other condition")
