"""No rename changes what a link means, over small vaults with namesakes, case twins, relative links and attachments."""

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from notewright.errors import Invalid
from notewright.notes.links.rename import affected_keys, plan_rename
from notewright.notes.links.resolve import InMemoryNames, link_key, resolve
from notewright.notes.links.syntax import is_reference
from notewright.notes.model import Note
from notewright.notes.parse.parser import parse
from notewright.notes.path import NotePath

Case = tuple[dict[NotePath, str], dict[NotePath, NotePath]]
FOLDERS = ["", "a", "b", "a/b", "long folder", "A"]
STEMS = [
    "Tea",
    "tea",
    "Milk",
    "It's",
    "v1.0",
    "Tea (green)",
    "né",
    "Tea.md",
    "C# x",
    "100%41",
    "a&amp;b",
    "x [1]",
    'q"r',
]
NAMES = [*(stem + ".md" for stem in STEMS), "pic.png", "Tea.png"]


def paths() -> st.SearchStrategy[NotePath]:
    return st.builds(
        lambda folder, name: NotePath(f"{folder}/{name}" if folder else name),
        st.sampled_from(FOLDERS),
        st.sampled_from(NAMES),
    )


@st.composite
def targets(draw: st.DrawFn, known: list[NotePath]) -> str:
    """A target: a bare name, a part of a path, a path, a relative one, or nonsense; `.md` or not."""
    path = draw(st.sampled_from(known))
    form = draw(st.sampled_from(["bare", "path", "part", "dot", "up", "root", "self", "wild"]))
    pieces = {
        "bare": path.name,
        "path": str(path),
        "part": "/".join(path.split("/")[-2:]),
        "dot": "./" + path.name,
        "up": "../" + path,
        "root": "/" + path,
        "self": "",
        "wild": draw(st.sampled_from(["nowhere", "TEA", "b/tea", "Milk.md"])),
    }
    target = pieces[form]
    return target if draw(st.booleans()) or not target.lower().endswith(".md") else target[:-3]


@st.composite
def links(draw: st.DrawFn, known: list[NotePath]) -> str:
    target = draw(targets(known))
    sub = draw(st.sampled_from(["", "#H", "#^x"]))
    shown = draw(st.sampled_from(["", "|Tea", "| shown ", "|né"]))
    forms = ["[[{t}{s}{d}]]", "![[ {t}{s}{d}]]", "[Tea]({m}{s})", "![x](<{t}{s}>)", "`[[{t}]]`"]
    forms += ["[Tea][{n}]\n\n[{n}]: {m}{s}\n", "[{n}]\n\n[{n}]: <{t}{s}> 't'\n"]
    form, number = draw(st.sampled_from(forms)), draw(st.integers(0, 2))
    if not target and not sub:
        return "x"
    return form.format(
        t=target, s=sub, d=shown, n=number, m=target.replace(" ", "%20").replace("(", "\\(").replace(")", "\\)")
    )


@st.composite
def vaults(draw: st.DrawFn) -> dict[NotePath, str]:
    known = draw(st.lists(paths(), min_size=2, max_size=7, unique=True))
    ending = draw(st.sampled_from(["\n", "\r\n"]))
    texts: dict[NotePath, str] = {}
    for path in known:
        lines = draw(st.lists(links(known), max_size=4)) if path.is_note else []
        front = ""
        if path.is_note and draw(st.booleans()):
            quote = draw(st.sampled_from(["'", '"']))
            inner = draw(targets(known)).replace("'", "''") if quote == "'" else draw(targets(known))
            front = f"---{ending}up: {quote}[[{inner or 'x'}]]{quote}{ending}---{ending}"
        texts[path] = front + ending.join(lines)
    return texts


@st.composite
def renames(draw: st.DrawFn) -> Case:
    vault = draw(vaults())
    if draw(st.integers(0, 3)):
        moves = {draw(st.sampled_from(list(vault))): draw(paths())}
    else:
        folder = draw(st.sampled_from(["a/", "b/", "a/b/"]))
        place = draw(st.sampled_from(["c/", "a/c/", "long folder/x/"]))
        moves = {path: NotePath(place + path[len(folder) :]) for path in vault if path.startswith(folder)}
    assume(moves and all(old != new for old, new in moves.items()))
    staying = {path for path in vault if path not in moves}
    assume(not staying & set(moves.values()))
    assume(all(old.is_note == new.is_note for old, new in moves.items()))
    return vault, moves


def meanings(note: Note, known: list[NotePath]) -> list[NotePath | None]:
    names = InMemoryNames(known)
    return [resolve(link.target, note.path, names) for link in note.links]


def after(vault: dict[NotePath, str], moves: dict[NotePath, NotePath]) -> dict[NotePath, str]:
    keys = affected_keys(moves)
    notes = [parse(path, text) for path, text in vault.items() if path.is_note]
    near = [n for n in notes if n.path in moves or any(link_key(link.target) in keys for link in n.links)]
    planned = plan_rename(moves, InMemoryNames(vault), near)
    return {moves.get(path, path): text for path, text in vault.items()} | {each.after: each.text for each in planned}


@settings(max_examples=100, deadline=None)
@given(renames())
def test_no_link_changes_its_meaning_by_a_rename(case: Case) -> None:
    every_link_means_what_it_meant(*case)


@pytest.mark.slow
@settings(max_examples=800, deadline=None)
@given(renames())
def test_no_link_changes_its_meaning_by_any_of_many_renames(case: Case) -> None:
    every_link_means_what_it_meant(*case)


def every_link_means_what_it_meant(vault: dict[NotePath, str], moves: dict[NotePath, NotePath]) -> None:
    try:
        done = after(vault, moves)
    except Invalid:  # a name with # or | cannot be linked to: refused is right, wrong is not
        event("refused")
        assert any(set("#|]") & set(path) for path in moves.values())
        return
    for path, text in vault.items():
        if not path.is_note:
            continue
        old, new = parse(path, text), parse(moves.get(path, path), done[moves.get(path, path)])
        before, now = meanings(old, list(vault)), meanings(new, list(done))
        assert len(before) == len(now)
        for link, meant, leads in zip(old.links, before, now, strict=True):
            if meant is not None:
                assert leads == moves.get(meant, meant), (path, link)


@settings(max_examples=60, deadline=None)
@given(renames())
def test_a_rename_leaves_everything_but_links_alone(
    case: Case,
) -> None:
    vault, moves = case
    try:
        done = after(vault, moves)
    except Invalid:
        assume(False)
    for path, text in vault.items():
        if path.is_note:
            new = done[moves.get(path, path)]
            assert around(parse(path, text)) == around(parse(moves.get(path, path), new))


def around(note: Note) -> str:
    """The text without targets and without display texts."""
    pieces, place = [], 0
    spans = {(link.start, link.end, link.kind + link.subpath) for link in note.links}
    spans |= {(one.target_start, one.target_end, "") for one in note.links if is_reference(one)}
    for start, end, kind in sorted(spans):
        pieces += [note.text[place:start], "<", kind, ">"]
        place = end
    return "".join([*pieces, note.text[place:]])


@st.composite
def plain_renames(draw: st.DrawFn) -> tuple[dict[NotePath, str], NotePath, NotePath]:
    """Every name once, every link a bare name or a whole path, and a new name that nobody has."""
    stems = draw(st.lists(st.sampled_from(["Tea", "Milk", "It's", "v1.0", "né", "x (y)"]), min_size=2, unique=True))
    folders = draw(st.lists(st.sampled_from(["", "a/", "a/b/", "long folder/"]), min_size=7, max_size=7))
    known = [NotePath(f"{folder}{stem}.md") for folder, stem in zip(folders, stems, strict=False)]
    form = st.sampled_from(["[[{p}]]", "[[{s}|x]]", "![[{s}.md#H]]", "[y]({m}.md)", "[y](<{p}.md>)", "[[#H]]", "x"])
    vault = {}
    for path in known:
        chosen = draw(st.lists(st.tuples(form, st.sampled_from(known)), max_size=5))
        vault[path] = "\n".join(
            form.format(p=other[:-3], s=other.stem, m=other[:-3].replace(" ", "%20")) for form, other in chosen
        )
    old = draw(st.sampled_from(known))
    folder = draw(st.sampled_from(["a/", "c/", "long folder/"])) if old.folder else ""  # at the root a path is a name
    return vault, old, NotePath(folder + draw(st.sampled_from(["New", "Ne w"])) + ".md")


@settings(max_examples=60, deadline=None)
@given(plain_renames())
def test_there_and_back_is_identity_where_nothing_was_pinned(
    case: tuple[dict[NotePath, str], NotePath, NotePath],
) -> None:
    vault, old, new = case
    assert after(after(vault, {old: new}), {new: old}) == vault


@settings(max_examples=60, deadline=None)
@given(renames())
def test_planning_again_after_the_move_changes_nothing(
    case: Case,
) -> None:
    vault, moves = case
    try:
        done = after(vault, moves)
    except Invalid:
        assume(False)
    assert plan_rename({}, InMemoryNames(done), [parse(p, t) for p, t in done.items() if p.is_note]) == ()
