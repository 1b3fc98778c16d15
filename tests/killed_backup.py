"""`python -m tests.killed_backup FOLDER LOCATION ENDPOINT COUNT` backs up day 1 and is killed after so many files."""

import os
import signal
import sys
import tempfile
from pathlib import Path

from tests.engine.keeping import day, folder_desk

from notewright.config.aws import aws_profile
from notewright.engine.transfer.backup import back_up
from notewright.engine.transfer.backup_bucket import BackupBucket
from notewright.stores.s3.settings import BucketSettings
from notewright.stores.s3.store import S3Store

if __name__ == "__main__":
    folder, location, endpoint, count = sys.argv[1:]
    settings = BucketSettings(endpoint, profile=aws_profile())
    place = BackupBucket(S3Store.open(location, settings, state=Path(tempfile.mkdtemp())))

    def kill(done: int, total: int | None) -> None:
        if done == int(count):
            os.kill(os.getpid(), signal.SIGKILL)

    back_up([folder_desk(Path(folder))], place, now=day(1), report=kill)
