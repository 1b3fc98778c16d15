"""One question to each surface that every client can ask, and how its answer can be known."""

from typing import Any

QUESTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "notes": ("read", {"path": "Start here"}),
    "cairn": ("cairn_read", {"path": "Start here.md"}),
    "lens": ("read", {"file_path": "Examples/Start here.md"}),
    "obsidian": ("read_note", {"name": "Start here"}),
    "second_brain": ("read", {"path": "Start here.md"}),
    "octarine": ("octarine_read_note", {"workspace": "Examples", "note_path": "Start here.md"}),
}
TOOLS = {"notes": 14, "cairn": 8, "lens": 3, "obsidian": 22, "second_brain": 5, "octarine": 4}
ANSWER = "# Start here"
