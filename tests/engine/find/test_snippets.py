"""Snippets show why a section was found."""

import unicodedata

from notewright.engine.find.snippets import MAX_SNIPPET_CHARS, cut_snippet, fold_text, to_words


def shown(section: str, *words: str) -> tuple[str, list[str]]:
    text, marks = cut_snippet(section, to_words(words))
    return text, [text[start:end] for start, end in marks]


def test_the_line_with_most_of_the_words_is_shown() -> None:
    text, marked = shown("Nothing here.\nTea and water, tea again.\nTea alone.\n", "tea", "water")
    assert text == "Tea and water, tea again. … Tea alone." and marked == ["Tea", "water", "tea", "Tea"]


def test_words_are_marked_whole_and_whatever_their_accents_and_case() -> None:
    assert shown("Steam, TEA and thé_tea, cafés.", "tea", "cafes")[1] == ["TEA", "tea", "cafés"]


def test_pairs_that_overlap_are_one_mark() -> None:
    assert shown("今天学习笔记很多", "学习", "习笔", "笔记")[1] == ["学习笔记"]


def test_a_long_line_is_cut_around_the_words() -> None:
    text, marked = shown("lorem " * 500 + "tea water" + " ipsum" * 500, "tea", "water")
    assert (
        marked == ["tea", "water"]
        and text.startswith("…")
        and text.endswith("…")
        and len(text) <= MAX_SNIPPET_CHARS + 2
    )


def test_without_words_the_beginning_is_shown() -> None:
    assert shown("\n\n  First   line\twith blanks \n\nSecond")[0] == "First line with blanks … Second"
    assert shown("   \n") == ("", [])


def test_folding_keeps_every_character_in_its_place() -> None:
    for text in ("Çà ñ", "İstanbul ŒUVRE ß", "e\u0301", "学习", "ﬁne", "𝔘"):
        assert len(fold_text(text)) == len(text)


def test_letters_are_folded_one_by_one_whatever_stands_beside_them() -> None:
    def one_by_one(text: str) -> str:
        return "".join(unicodedata.normalize("NFD", letter)[0].lower() for letter in text)

    letters = [chr(code) for code in range(0x20, 0x3000)]
    assert [letter for letter in letters if fold_text(letter) != one_by_one(letter)] == []
    beside = ("a", "é", "й", "Ж", "…", "茶", "한", "😀", "\u0301", "\u05b4")
    for text in ("ΣΑΣ", "ΟΔΟΣ Σ", "İstanbul", "straße ẞ", "Ångström", "\u212b\u2126", "Ǆ Ǆ", "e\u0323\u0301"):
        for other in beside:
            assert fold_text(text + other) == one_by_one(text + other)
            assert fold_text(other + text) == one_by_one(other + text)
