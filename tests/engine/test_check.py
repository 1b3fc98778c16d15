"""Loose ends of a workspace."""

from notewright.engine.check import broken_links


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
