"""What a pattern means in each dialect, and that no bad one is worse than an answer."""

import re
import time
from typing import Any

import pytest
import regress
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from notewright.engine.find import patterns
from notewright.engine.find._regex_reader import Choice, Dialect, Node, Repeat, Set, inner_nodes, parse_pattern, walk
from notewright.engine.find.patterns import Deadline, OutOfTime, compile_pattern
from notewright.errors import Invalid


def found(pattern: str, text: str, dialect: Dialect = "re2", *, lines: bool = False, **options: bool) -> list[str]:
    matcher = compile_pattern(pattern, dialect, lines=lines, **options)
    return [text[start:end] for start, end in matcher.finditer(text, Deadline.after(10))]


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("tea", "Tea and tea", ["Tea", "tea"]),
        ("(?-i)Tea", "Tea and tea", ["Tea"]),
        ("(?-i:T)ea", "TEA tEA", ["TEA"]),
        (r"\w+", "héllo wörld 日本", ["héllo", "wörld", "日本"]),
        (r"\bnote\b", "énote note notes", ["note"]),
        (r"\bété\b", "l'été étés", ["été"]),
        (r"\Bing", "ring éing ing", ["ing", "ing"]),
        (r"(?-i)(?:.|[^a])\B", "aé", ["a"]),
        (r"(?-i)(?:[^a]|[^b])é", "aé bé", ["aé", "bé"]),
        (r"[é-]\b", "é- é-x", ["é", "é", "-"]),
        (r"ⓐ\w|[\W\d]", "ⓐb", ["ⓐb"]),
        (r"\d+", "12 ٣٤", ["12", "٣٤"]),
        (r"a\sb", "a\u00a0b a b", ["a\u00a0b", "a b"]),
        (r"[\W\d]+", "é-1 x", ["-1 "]),
        (r"[^\S\n]+", "a \n\tb", [" ", "\t"]),
        (r"\p{Greek}+", "abc αβγ", ["αβγ"]),
        (r"\p{Emoji_Presentation}", "x 😀 y", ["😀"]),
        (r"\P{L}", "aé1", ["1"]),
        (r"[[:digit:]x]+", "12x y", ["12x"]),
        (r"[]a]+", "]a[", ["]a"]),
        (r"x{2,3}", "xxxxx", ["xxx", "xx"]),
        (r"x{,3}", "x{,3}", ["x{,3}"]),
        (r"\x41\u0042\x{1F600}", "AB😀", ["AB😀"]),
        (r"(?P<year>\d{4})", "in 2024", ["2024"]),
    ],
)
def test_our_own_dialect_knows_every_script(pattern: str, text: str, matches: list[str]) -> None:
    assert found(pattern, text) == matches


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r"(?<=\$)\d+", "$12 34", ["12"]),
        (r"(?<!\$)\b\d+", "$12 34", ["34"]),
        (r"tea(?! time)", "tea time tea", ["tea"]),
        (r"(\w)\1", "book keeper", ["oo", "ee"]),
        (r"(?P<l>\w)(?P=l)", "book", ["oo"]),
        (r"(?>a+)b", "aab", ["aab"]),
        (r"a++b", "aab", ["aab"]),
        (r"te(?#comment)a", "tea", ["tea"]),
    ],
)
def test_the_python_like_dialect_looks_around(pattern: str, text: str, matches: list[str]) -> None:
    assert found(pattern, text, "python-like") == matches
    with pytest.raises(Invalid):
        compile_pattern(r"(?<=a)b", "re2")


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r"\w+", "héllo", ["h", "llo"]),
        (r"\bte", "éte", ["te"]),
        (r"a$", "a\na", ["a"]),
        (r"^a", "a\na", ["a"]),
        (r"[^]", "a\n", ["a", "\n"]),
        (r"a[]b", "ab", []),
        (r"a.b", "a\u2028b a b", ["a b"]),
        (r"a\/b", "a/b", ["a/b"]),
        (r"\u0061\x62", "ab", ["ab"]),
        (r"(?<n>x)\k<n>", "xx", ["xx"]),
        (r"(?:(a)|b)\1", "ab aa b", ["b", "aa", "b"]),
        (r"\-\e", "-e", ["-e"]),
        (r"\p{L}+", "é1", ["é"]),
        (r"a{,2}", "a{,2}", ["a{,2}"]),
        (r"\cJ", "a\nb", ["\n"]),
    ],
)
def test_the_javascript_dialect_means_what_javascript_means(pattern: str, text: str, matches: list[str]) -> None:
    assert found(pattern, text, "javascript") == matches
    assert [text[start:end] for start, end in _in_javascript(pattern, text, "i")] == matches


def _in_javascript(pattern: str, text: str, flags: str) -> list[tuple[int, int]]:
    """What a JavaScript engine finds, with its Unicode rules where it takes the pattern with them."""
    try:
        engine = regress.Regex(pattern, flags + "u")
    except regress.RegressError:
        engine = regress.Regex(pattern, flags)
    data = text.encode()
    ranges = [match.range() for match in engine.find_iter(text)]
    return [(len(data[: r.start].decode()), len(data[: r.stop].decode())) for r in ranges if r.stop > r.start]


@pytest.mark.parametrize("pattern", ["(?P<n>a)", "(?#x)a", "(?i)a", "(", "[a", "a**", "(?>a)", "*a", "[z-a]"])
def test_what_javascript_would_refuse_is_refused(pattern: str) -> None:
    with pytest.raises(Invalid):
        compile_pattern(pattern, "javascript")


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("a(b", "this ( is never closed, at character 2"),
        ("a)b", "this ) closes nothing, at character 2"),
        ("x[a-", "this [ is never closed, at character 2"),
        ("*a", "* has nothing to repeat, at character 1"),
        ("a**", "* repeats a repetition, at character 3"),
        ("a{3,1}", "{3,1} runs backwards, at character 2"),
        ("[z-a]", "this range runs backwards, at character 2"),
        ("\\", "nothing follows the last backslash, at character 1"),
        (r"\q", r"\q is not known, at character 1"),
        (r"\xg1", "hexadecimal digits, at character 1"),
        (r"\p{Nonsense}", "names no property"),
        (r"(a)\1", "a back reference cannot be searched for in linear time, at character 4"),
        ("(?=a)", "look-around cannot be searched for in linear time, at character 1"),
        ("(?x)a", "this kind of group is not known, at character 1"),
        ("a" * 1001, "longer than 1000 characters"),
        ("(" * 200 + ")" * 200, "deep in each other"),
        ("((a{100}){100}){100}", "too large"),
        ("a{2000}", "too large"),
        (r"\w{500}", "too large"),
        (r"\d[^\x{1269}-\x{48c3}]{1000}[^\x{1269}-\x{48c3}]{1000}[^\x{1269}-\x{48c3}]{900}", "too large"),
    ],
)
def test_a_bad_pattern_is_refused_with_what_is_wrong_and_where(pattern: str, words: str) -> None:
    with pytest.raises(Invalid) as refused:
        compile_pattern(pattern)
    assert words in str(refused.value)


def test_a_whole_word_has_no_letter_of_any_script_beside_it() -> None:
    assert found("tea", "tea téa teas éteaé tea", "literal", whole_word=True) == ["tea", "tea"]
    assert found("#tag", "x#tag #tag #tags", "literal", whole_word=True) == ["#tag"]
    assert found("чай", "чай чайник", "javascript", whole_word=True) == ["чай"]


def test_a_literal_is_no_pattern() -> None:
    assert found("[[a|b]]", "see [[A|b]].", "literal") == ["[[A|b]]"]
    assert found("a\nb", "A\nB", "literal", ignore_case=False) == []


def test_offsets_are_characters_whatever_the_bytes_are() -> None:
    text = "日本 😀 é tea 日 tea"
    matcher = compile_pattern("tea", lines=False)
    assert list(matcher.finditer(text, Deadline.after(5))) == [(m.start(), m.end()) for m in re.finditer("tea", text)]


def test_in_lines_nothing_matches_across_a_line_feed() -> None:
    assert found(r"a\s*b", "a\nb", lines=True) == []
    assert found(r"a[^x]b", "a\nb", lines=True) == []
    assert found(r"(?s)a.b", "a\nb", lines=False) == ["a\nb"]


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(a|a)*b", r"(?:a?){50}a{50}c"])
def test_a_pattern_that_explodes_elsewhere_is_linear_here(pattern: str) -> None:
    began = time.monotonic()
    assert found(pattern, "a" * 5000 + "!") == []
    assert time.monotonic() - began < 2


def test_a_pattern_that_must_backtrack_is_stopped_by_the_clock() -> None:
    matcher = compile_pattern(r"(?:a|a|aa)+(?<=b)c", "python-like", lines=False)
    began = time.process_time()
    with pytest.raises(OutOfTime):
        list(matcher.finditer("a" * 60, Deadline.after(0.3)))
    assert time.process_time() - began < 3


@pytest.mark.parametrize("dialect", ["re2", "python-like", "javascript"])
@pytest.mark.parametrize("pattern", ["(((a{9}){9}){9}){9}b{9999}", "(?:(?:){999}){999}", "(?:a|b){999999}"])
def test_what_grows_too_large_is_refused_before_any_engine_has_it(dialect: Dialect, pattern: str) -> None:
    with pytest.raises(Invalid, match="too large: make its repetitions"):
        compile_pattern(pattern, dialect)


def test_a_text_that_would_need_too_much_memory_is_left_out_and_that_is_said() -> None:
    matcher = compile_pattern(r"(?:(a)(b)?\1|b.)*(?<=c)d", "python-like", lines=False)
    deadline = Deadline.after(10)
    assert list(matcher.finditer("cd", deadline)) == [(1, 2)] and not deadline.left_out
    assert list(matcher.finditer("ab" * 1_000_000 + "cd", deadline)) == [] and deadline.left_out


def test_a_search_that_could_take_re2_too_long_is_not_begun() -> None:
    matcher = compile_pattern("(?:a|b)*a(?:a|b){900}q", lines=False)
    deadline = Deadline.after(3)
    assert list(matcher.finditer("ab" * 4_000_000, deadline)) == [] and deadline.left_out


@pytest.mark.parametrize(
    ("pattern", "groups"),
    [
        ("foo bar", (("foo bar",),)),
        (r"\bfoo\b.*bar", (("foo",), ("bar",))),
        ("(foo|bar|task)s?", (("foo", "bar", "task"),)),
        ("[tT]ea+", (("tea"[:2],), ("a",))),
        ("(tea)?", ()),
        (r"tea|\d", ()),
        ("(?=tea)x", (("x",),)),
        (r"https?://", (("http",), ("://",))),
        (r"(?:tea ){2}pot", (("tea ",), ("pot",))),
    ],
)
def test_the_needles_are_what_every_match_must_hold(pattern: str, groups: tuple[tuple[str, ...], ...]) -> None:
    needles = compile_pattern(pattern, "python-like").needles.groups
    assert tuple(tuple(member.lower() for member in group) for group in needles) == groups


# ---- laws ---------------------------------------------------------------------------------------------

_LETTERS = st.sampled_from(["a", "b", "é", " ", "1", "k", "\n", "ſ", "K", "日", "_", "😀"])
_ATOMS = st.sampled_from(
    ["a", "b", "é", "日", ".", r"\w", r"\W", r"\s", r"\d", "[ab]", "[^a]", "[é日]", r"[^\w]", "k", "1"]
)
_EDGES = st.sampled_from(["", "", "", r"\b", r"\B", "^", "$"])
_INNER_EDGES = st.sampled_from(["", "", r"\b", r"\B"])


def _joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        several.map("".join),
        several.map(lambda nodes: "(?:" + "|".join(nodes) + ")"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "+?", "*?"])).map(
            lambda p: f"(?:{p[0]}){p[1]}"
        ),
    )


_PATTERNS = st.tuples(_EDGES, st.recursive(_ATOMS, _joined, max_leaves=6), _EDGES).map("".join)
_EDGED_ATOMS = st.tuples(_INNER_EDGES, _ATOMS, _INNER_EDGES).map("".join)
_EDGED = st.recursive(_EDGED_ATOMS, _joined, max_leaves=5)  # word boundaries in every place


def _turns_with_nothing(node: Node) -> bool:
    """Does it repeat what may be empty? JavaScript alone refuses to go round with nothing."""
    return any(isinstance(one, Repeat) and _empty(one.node) for one in walk(node))


def _empty(node: Node) -> bool:
    match node:
        case Set():
            return False
        case Repeat(inner, low):
            return low == 0 or _empty(inner)
        case Choice(nodes):
            return any(map(_empty, nodes))
    return all(map(_empty, inner_nodes(node)))


def _by_re(pattern: str, text: str, flags: int) -> list[tuple[int, int]]:
    other, expected, at = re.compile(pattern.replace("$", r"\Z"), flags), [], 0
    while at <= len(text) and (match := other.search(text, at)):
        expected += [match.span()] if match[0] else []
        at = match.end() + (not match[0])
    return expected


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(_PATTERNS, st.text(_LETTERS, max_size=12), st.booleans())
def test_our_dialect_finds_what_a_backtracking_engine_finds(pattern: str, text: str, ignore_case: bool) -> None:
    matcher = compile_pattern(pattern, "re2", ignore_case=ignore_case, lines=False)
    expected = _by_re(pattern, text, re.IGNORECASE if ignore_case else 0)
    assert list(matcher.finditer(text, Deadline.after(5))) == expected


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(_EDGED, st.text(_LETTERS, max_size=12), st.booleans(), st.sampled_from(["re2", "python-like"]))
def test_word_boundaries_are_those_of_every_script_wherever_they_stand(
    pattern: str, text: str, ignore_case: bool, dialect: Dialect
) -> None:
    matcher = compile_pattern(pattern, dialect, ignore_case=ignore_case, lines=False)
    expected = _by_re(pattern, text, re.IGNORECASE if ignore_case else 0)
    assert list(matcher.finditer(text, Deadline.after(5))) == expected
    assert matcher.is_found_in(text.encode(), Deadline.after(5)) == bool(re.search(pattern, text, re.I * ignore_case))


_CLASSES = [r"\w", r"\W", r"\d", r"\S", r"[^\w-]", r"[^\W\d]", r"[\s日é]", r"[^\d日]", r"\W\w|日\d"]


@pytest.mark.parametrize("ignore_case", [True, False])
@pytest.mark.parametrize("dialect", ["re2", "python-like", "javascript"])
@pytest.mark.parametrize("pattern", _CLASSES)
def test_a_form_for_the_characters_of_a_text_finds_in_it_what_the_whole_pattern_finds(
    pattern: str, dialect: Dialect, ignore_case: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in ("ſ", "\u212ak", "sſ—S", "aé日É", "1٣ 日é_", "日—٣ıİ\u00a0😀\u212akſsS1a_-"):  # 212a: the Kelvin sign
        spans = []
        for forms in (1, 0):
            monkeypatch.setattr(patterns, "_MAX_NARROW_FORMS", forms)
            matcher = compile_pattern.__wrapped__(pattern, dialect, ignore_case=ignore_case)
            spans.append(list(matcher.finditer(text, Deadline.after(5))))
            assert (matcher.exact._narrow is not None) == bool(forms)
        assert spans[0] == spans[1]


@settings(max_examples=200, deadline=None)
@given(_EDGED, st.text(_LETTERS, max_size=12))
def test_word_boundaries_of_javascript_are_those_of_ascii(pattern: str, text: str) -> None:
    assume(not _turns_with_nothing(parse_pattern(pattern, "javascript", ignore_case=False, multiline=False)))
    matcher = compile_pattern(pattern, "javascript", ignore_case=False, lines=False)
    assert list(matcher.finditer(text, Deadline.after(5))) == _in_javascript(pattern, text, "")


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(_PATTERNS, st.text(_LETTERS, max_size=12))
def test_the_javascript_dialect_finds_what_a_javascript_engine_finds(pattern: str, text: str) -> None:
    assume(not _turns_with_nothing(parse_pattern(pattern, "javascript", ignore_case=False, multiline=False)))
    matcher = compile_pattern(pattern, "javascript", ignore_case=False, lines=False)
    assert list(matcher.finditer(text, Deadline.after(5))) == _in_javascript(pattern, text, "")


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(_PATTERNS, st.text(_LETTERS, max_size=12), st.booleans())
def test_every_text_that_matches_holds_the_needles(pattern: str, text: str, whole_word: bool) -> None:
    matcher = compile_pattern(pattern, "re2", whole_word=whole_word, lines=False)
    if matcher.is_found_in(text.encode(), Deadline.after(5)):
        folded = text.casefold()
        for group in matcher.needles.groups:
            assert any(member.casefold() in folded for member in group)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(_PATTERNS, st.lists(st.text(_LETTERS, max_size=10), max_size=4))
def test_lines_of_joined_texts_are_those_that_match_alone(pattern: str, lines: list[str]) -> None:
    single = [line.replace("\n", "") for line in lines]
    matcher = compile_pattern(pattern)
    data = "".join(line + "\n" for line in single).encode()
    got = [data[start:end].decode() for start, end in matcher.find_lines(data, Deadline.after(5))]
    assert got == [line for line in single if matcher.is_found_in(line.encode(), Deadline.after(5))]


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(
    _PATTERNS.flatmap(
        lambda pattern: st.sampled_from([pattern, rf"\A{pattern}", rf"{pattern}\z", rf"(?-m)^{pattern}"])
    ),
    st.lists(st.text(_LETTERS, max_size=14), max_size=4),
    st.booleans(),
)
def test_classes_of_ascii_alone_find_the_same(pattern: str, lines: list[str], ignore_case: bool) -> None:
    """A first look by a pattern that is compiled quickly says nothing that the whole pattern does not say."""
    matcher, deadline = compile_pattern(pattern, ignore_case=ignore_case), Deadline.after(5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patterns, "_compile_quick_form", lambda node: None)
        whole = compile_pattern.__wrapped__(pattern, ignore_case=ignore_case)
    data = "".join(line.replace("\n", "") + "\n" for line in lines).encode()
    assert list(matcher.find_lines(data, deadline)) == list(whole.find_lines(data, deadline))
    for line in data.decode().splitlines():
        assert list(matcher.finditer(line, deadline)) == list(whole.finditer(line, deadline))


@pytest.mark.parametrize("pattern", [r"\A\w+", r"\w+\z", r"(?-m)^\w+$", r"\A\d?"])
def test_the_ends_of_a_text_are_those_of_each_line_of_joined_texts(pattern: str) -> None:
    data = b"abc\ndef\nghi\n"
    assert list(compile_pattern(pattern).find_lines(data, Deadline.after(5))) == [(0, 3), (4, 7), (8, 11)]


def test_in_a_script_beyond_ascii_the_whole_pattern_takes_over() -> None:
    """Every line of such a text may hold what a class means, as far as its ASCII part tells."""
    matcher = compile_pattern(r"\d{4}")
    tried: list[bytes] = []
    lines = ["десять чашек чая"] * 2_000 + ["в 2024 году", "plain 2025", "٢٠٢٤"]
    data = "".join(f"{line}\n" for line in lines).encode()
    with pytest.MonkeyPatch.context() as patch:
        is_found_in = patterns.Matcher.is_found_in
        patch.setattr(
            patterns.Matcher, "is_found_in", lambda self, *args: (tried.append(args[0]), is_found_in(self, *args))[1]
        )
        got = [data[start:end].decode() for start, end in matcher.find_lines(data, Deadline.after(5))]
    assert got == lines[2_000:]
    assert len(tried) < 50


def test_case_ignored_what_is_no_ascii_letter_is_not_s_and_k() -> None:
    """re2 takes ſ and the Kelvin sign for letters of ASCII; JavaScript does not, alone or in any company."""
    for text in ("sk", "sk é"):
        assert found(r"[\W-]", text.replace(" ", ""), "javascript", lines=True) == list(text.removeprefix("sk").strip())
        assert found(r"[^\W-]+", text, "javascript", lines=True) == ["sk"]


def test_a_class_of_unicode_is_compiled_for_a_text_that_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    compiled = patterns.compile_re2

    def noted(source: str, **options: Any) -> Any:
        made.append(source)
        return compiled(source, **options)

    monkeypatch.setattr(patterns, "compile_re2", noted)
    matcher = compile_pattern(r"needed\W+\w+")
    assert len(made) == 1  # it takes longer than to look through a thousand notes
    assert list(matcher.find_lines(b"needed here\nnot\n", Deadline.after(5))) == [(0, 11)]
    assert not any("{L}" in source for source in made)
    assert list(matcher.find_lines("needed “überall”\n".encode(), Deadline.after(5))) == [(0, 21)]
    assert not any("{L}" in source for source in made)  # nor for a text with few characters beyond ASCII
    assert list(matcher.find_lines("needed где-то ещё, быть может, в широком поле\n".encode(), Deadline.after(5)))
    assert sum("{L}" in source for source in made) == 1
