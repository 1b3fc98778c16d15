"""An index kept up to date equals one built from nothing: same rows, same answers."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.index.parts import asked, facts, filing

from notewright.engine.find.search import Hits, find
from notewright.index.sqlite.index import SqliteIndex

PATHS = st.sampled_from(("Tea.md", "Kettle.md", "x/Tea.md", "x/y/Garden plan.md", "pic.png", "学习.md"))
WORDS = (
    "tea", "Teas", "water", "boiling", "boils", "naïve", "学习笔记", "[[Tea]]", "[[x/Tea|cup]]", "![[pic.png]]",
    "#drink", "# Head\n", "\n\n", "[g](<x/y/Garden plan.md>)", "garden.", "---\ntags: [hot]\naliases: [Brew]\n---\n",
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join)
STEPS = st.lists(st.tuples(PATHS, st.none() | TEXTS), max_size=12)
QUESTIONS = ("tea", "boil water", "学习", "what do my notes say about the garden plan?", "brew", "naive cup")


def kept_up(index: SqliteIndex, steps: list[tuple[str, str | None]]) -> dict[str, str]:
    """Steps one by one; what is there in the end."""
    there: dict[str, str] = {}
    for number, (path, text) in enumerate(steps):
        if text is None:
            there.pop(path, None)
            index.file((), drop=[path])
        else:
            there[path] = text
            index.file([filing(path, text if path.endswith(".md") else None, modified=number, stamp=str(number))])
    return there


def told(hits: Hits) -> tuple[object, ...]:
    items = sorted((round(hit.score, 9), hit.path, hit.heading, hit.line, hit.snippet) for hit in hits.items)
    return items, hits.total, hits.with_all, hits.cut


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_an_index_kept_up_to_date_equals_one_built_from_nothing(steps: list[tuple[str, str | None]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        kept, fresh = SqliteIndex(Path(folder, "kept")), SqliteIndex(Path(folder, "fresh"))
        there = kept_up(kept, steps)
        last = {path: number for number, (path, _) in enumerate(steps)}
        for path, text in sorted(there.items()):
            text_or_none = text if path.endswith(".md") else None
            fresh.file([filing(path, text_or_none, modified=last[path], stamp=str(last[path]))])
        assert facts(kept) == facts(fresh)
        sizes = [len(text.encode()) if path.endswith(".md") else 3 for path, text in there.items()]
        assert (
            (kept.total("files"), kept.total("bytes"))
            == (fresh.total("files"), fresh.total("bytes"))
            == (len(sizes), sum(sizes))
        )
        for question in QUESTIONS:
            assert told(find(kept, asked(question))) == told(find(fresh, asked(question)))
        kept.close()
        fresh.close()
