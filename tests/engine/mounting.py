"""File systems for a test: a folder that cannot be written to, a disk that is small."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def _run(*words: str | Path) -> None:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"this user may not mount: {done.stderr.strip()}")


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """As on a disk that takes no writes. For root, whom permissions do not stop, by a mount."""
    if os.geteuid() != 0:
        folder.chmod(0o555)
        yield
        folder.chmod(0o755)
        return
    _run("mount", "--bind", folder, folder)
    try:
        _run("mount", "-o", "remount,ro,bind", folder)
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[None]:
    """A disk of that size in place of a folder."""
    folder.mkdir(exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", folder)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
