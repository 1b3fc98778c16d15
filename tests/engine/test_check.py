"""Broken links, orphans, and mentions that are not linked."""

from notewright.engine.check import broken_links, mentions
from notewright.notes.path import NotePath


def test_broken_and_ambiguous_links_and_orphans_are_told_by_folder(workspace) -> None:
    ws = workspace(
        {
            "Hub.md": "[[A]] [[Nowhere]] [[x/Twin]]\n",
            "x/A.md": "[[Hub]] [[Gone#part]]\n",
            "x/Twin.md": "[[Twin]]",
            "y/Alone.md": "`[[Nothing]]`",
        }
    )
    whole = broken_links(ws, "")
    assert [(link.source, link.target, link.status) for link in whole.links] == [
        ("Hub.md", "Nowhere", "broken"),
        ("x/A.md", "Gone", "broken"),
    ]
    assert whole.orphans == ("y/Alone.md",)
    assert not whole.late
    inside = broken_links(ws, "x")
    assert [link.target for link in inside.links] == ["Gone"]
    assert inside.orphans == ()


def test_hidden_notes_neither_show_nor_link(workspace) -> None:
    ws = workspace({"Private/P.md": "[[A]] [[Nowhere]]", "A.md": "[[P]]"}, hide=("Private/**",))
    ends = broken_links(ws, "")
    assert [(link.source, link.target) for link in ends.links] == [("A.md", "P")]
    assert ends.orphans == ("A.md",)


def test_a_mention_is_shown_with_its_line_whatever_ends_the_lines(workspace) -> None:
    ws = workspace({"Tea.md": "hot\n", "Mac.md": b"one\rhot Tea\rtwo\r", "Win.md": b"one\r\nhot Tea\r\ntwo\r\n"})
    found = [(each.path, each.line, each.context.with_marks) for each in mentions(ws, NotePath("Tea.md"))]
    assert found == [("Mac.md", 2, "hot Tea"), ("Win.md", 2, "hot Tea")]
