"""The command line: what is typed becomes a question to the engine, its answer becomes lines or one JSON document.

Exit codes: 0 done, 1 refused or findings, 2 wrong usage. Every heavy part is loaded by the command that needs it.
"""

import argparse
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from notewright.cli.parser import parse

GC_THRESHOLD = 20_000  # objects; Python's 700 would have them looked through a hundred times while modules are loaded
_MODULES = {  # of the commands that are not in `commands`
    **{
        "client": "clients",
        "serve": "serve",
        "token": "tokens",
        "workspace": "workspaces",
        "move-workspace": "workspaces",
    },
    **dict.fromkeys(("backup", "restore", "export", "import"), "backup"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Without `argv`, as the program, all but `serve` end the process."""
    args = parse(argv)  # which prints help and ends, and needs nothing more for it
    if argv is not None:
        return _run(args)
    gc.set_threshold(GC_THRESHOLD)
    code = _run(args)
    if args.command == "serve":
        return code
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # the reader has gone, or it was closed or never open
            stream.flush()
    os._exit(code)  # everything is closed: Python would take its modules apart for as long as a search takes


def _run(args: argparse.Namespace) -> int:
    from notewright.errors import Problem

    try:
        module = importlib.import_module(f"notewright.cli.{_MODULES.get(args.command, 'commands')}")
        run_command = getattr(module, "import_" if args.command == "import" else args.command.replace("-", "_"))
        code: int = run_command(args) or 0
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except Problem as problem:
        from notewright.cli import printing

        if getattr(args, "json", False):
            printing.print_problem_document(problem)
        print(printing.for_stream(printing.describe(problem), sys.stderr), file=sys.stderr)
        return 2 if getattr(args, "usage", False) else 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of the pipe has gone
        sys.stderr.close()
        return 1


def obs_mcp() -> None:
    """The obsidian surface on stdio, for the vault that OBSIDIAN_VAULT_PATH names."""
    from notewright.cli import printing
    from notewright.config.load import CommandLine, load, obsidian_vault
    from notewright.errors import Problem

    vault = obsidian_vault()
    if vault is None:
        sys.exit("OBSIDIAN_VAULT_PATH not set")
    try:
        config = load(CommandLine((vault,), flags={"surface": ("obsidian",)}))
        from notewright.app import compose

        sys.exit(compose.serve(config))
    except Problem as problem:
        sys.exit(printing.describe(problem))
