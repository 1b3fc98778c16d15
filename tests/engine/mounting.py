"""File systems for a test: a folder that cannot be written to, a disk that is small."""

import os
import shutil
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


@contextmanager
def ignoring_case(folder: Path) -> Iterator[None]:
    """A disk that takes `Tea.md` and `tea.md` for one name in place of a folder: exFAT, as far as it can be had."""
    for needed in ("mkfs.exfat", "losetup"):
        if shutil.which(needed) is None:
            pytest.skip(f"there is no {needed} here, so no disk that ignores case")
    folder.mkdir(parents=True, exist_ok=True)
    image = folder.with_name(f"{folder.name}.image")
    with image.open("wb") as made:
        made.truncate(16 << 20)
    _run("mkfs.exfat", image)
    found = subprocess.run(["losetup", "-f", "--show", image], capture_output=True, text=True)
    if found.returncode:
        pytest.skip(f"this user may not mount: {found.stderr.strip()}")
    device = found.stdout.strip()
    try:
        mount = ["mount.exfat-fuse", device] if shutil.which("mount.exfat-fuse") else ["mount", "-t", "exfat", device]
        _run(*mount, folder)
        try:
            yield
        finally:
            subprocess.run(["umount", "-l", folder], check=True)
    finally:
        subprocess.run(["losetup", "-d", device], check=True)
