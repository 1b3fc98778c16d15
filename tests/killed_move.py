"""`python -m tests.killed_move SOURCE TARGET STATE COUNT` moves, and is killed before its journal is written to for the
n-th time; batches are small, so that there are many such moments."""

import os
import signal
import sys
from typing import Any

from notewright.cli.main import main
from notewright.engine.transfer import move_workspace
from notewright.engine.transfer.move_workspace import MoveJournal

if __name__ == "__main__":
    source, target, state, count = sys.argv[1:]
    left = int(count)
    write = MoveJournal.write
    move_workspace.BATCH_FILES = 2

    def counted(self: MoveJournal, line: list[Any]) -> None:
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        write(self, line)

    MoveJournal.write = counted  # type: ignore[method-assign]
    sys.exit(main(["move-workspace", source, target, "--state", state]))
