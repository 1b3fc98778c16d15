"""Line endings: one reading for `\\n`, `\\r\\n` and `\\r`, each character where it was."""


def flat_lines(text: str) -> str:
    """`text` with every line ending as `\\n` and every offset as before."""
    if "\r" not in text:
        return text
    return text.replace("\r\n", " \n").replace("\r", "\n")
