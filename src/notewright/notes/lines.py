"""Line endings: one reading for `\\n`, `\\r\\n` and `\\r`, each character where it was."""

import re
from bisect import bisect_right


def flat_lines(text: str) -> str:
    """`text` with every line ending as `\\n` and every offset as before."""
    if "\r" not in text:
        return text
    return text.replace("\r\n", " \n").replace("\r", "\n")


class Lines:
    """Line numbers of offsets. The text has `\\n` line endings."""

    __slots__ = ("ends",)

    def __init__(self, text: str):
        self.ends = [found.end() for found in re.finditer("\n", text)]

    def at(self, offset: int) -> int:
        return bisect_right(self.ends, offset) + 1
