"""`python -m tests.killed_backup FOLDER LOCATION ENDPOINT files|writes COUNT` backs up day 1 and is killed after
so many files, or before it writes, copies or removes an object for that time."""

import itertools
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.engine.transfer.backup_parts import day, folder_workspace

from notewright.config.aws import read_aws_profile
from notewright.engine.transfer.backup import back_up
from notewright.engine.transfer.backup_bucket import BackupBucket
from notewright.stores.s3.settings import BucketSettings
from notewright.stores.s3.store import S3Store

if __name__ == "__main__":
    folder, location, endpoint, what, count = sys.argv[1:]
    settings = BucketSettings(endpoint, profile=read_aws_profile())
    place = BackupBucket(S3Store(location, settings, state=Path(tempfile.mkdtemp())))

    counted = itertools.count(1)

    def kill(done: int, total: int | None = None) -> None:
        if done == int(count):
            os.kill(os.getpid(), signal.SIGKILL)

    def counting(call: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: (kill(next(counted)), call(*given))[1]

    if what == "writes":
        for name in ("put", "copy", "remove"):
            setattr(place.objects, name, counting(getattr(place.objects, name)))
    report = kill if what == "files" else lambda done, total: None
    back_up([folder_workspace(Path(folder))], place, now=day(1), report=report)
