"""Notes as HTML: what is shown, where links lead, and that nothing runs."""

import re
import time

import pytest

from notewright.notes.links.resolve import Resolution
from notewright.notes.parse.parser import parse
from notewright.notes.path import NotePath
from notewright.web.markdown import LinkTargets, TooSlow, render_note

FILES = {
    "tea": "Tea.md", "tea.md": "Tea.md", "deep/tea": "Deep/Tea.md", "cup.png": "img/cup.png", "doc.pdf": "doc.pdf",
    "drawing.svg": "drawing.svg", "two words.md": "Two words.md",
}  # fmt: skip


def resolve(target: str) -> Resolution:
    found = FILES.get(target.lower())
    return Resolution(NotePath(found) if found else None, target == "Tea.md")


def shown(text: str, path: str = "Note.md") -> str:
    targets = LinkTargets(resolve, lambda note: f"/w/main/notes/{note}", lambda file: f"/w/main/files/{file}")
    return str(render_note(parse(NotePath(path), text), targets))


def plain(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", html)).strip()


def test_commonmark_tables_and_struck_text_are_laid_out() -> None:
    html = shown("## Head\n\n*a* **b** ~~c~~ `d`\n\n- e\n\n> f\n\n| g | h |\n|:-:|--:|\n| i | j |\n\n1. k\n\n***\n")
    for piece in ("<em>a</em>", "<strong>b</strong>", "<s>c</s>", "<code>d</code>", "<li>e</li>", "<blockquote>"):
        assert piece in html
    assert '<th class="center">g</th>' in html and '<td class="right">j</td>' in html
    assert "<hr>" in html and "style=" not in html


def test_a_wikilink_leads_where_the_engine_says() -> None:
    html = shown("See [[Tea]], [[deep/tea|the deep one]], [[Tea#How to steep]] and [[Nowhere]].")
    assert '<a href="/w/main/notes/Tea.md" rel="noopener noreferrer">Tea</a>' in html
    assert '<a href="/w/main/notes/Deep/Tea.md" rel="noopener noreferrer">the deep one</a>' in html
    assert 'href="/w/main/notes/Tea.md#h-how-to-steep"' in html and "Tea › How to steep" in html
    assert '<span class="broken" title="leads nowhere">Nowhere</span>' in html
    assert plain(html) == "See Tea, the deep one, Tea › How to steep and Nowhere."


def test_a_wikilink_in_a_table_keeps_its_bar() -> None:
    html = shown("| a | b |\n|---|---|\n| [[Tea\\|cup]] | c |\n")
    assert 'href="/w/main/notes/Tea.md" rel="noopener noreferrer">cup</a></td>' in html
    assert html.count("<td>") == 2


def test_a_wikilink_in_code_is_code() -> None:
    html = shown("`[[Tea]]`\n\n    [[Tea]]\n\n```\n[[Tea]]\n```\n")
    assert html.count("[[Tea]]") == 3
    assert "<a" not in html


def test_a_markdown_link_leads_to_the_note_it_names_or_says_that_it_leads_nowhere() -> None:
    html = shown("[a](Tea.md#Water) [b](<Two words.md>) [c](Two%20words.md) [d](missing.md) [e](#Here)")
    assert '<a href="/w/main/notes/Tea.md#h-water" class="doubtful"' in html  # it could have been another
    assert html.count('href="/w/main/notes/Two words.md"') == 2
    assert '<span class="broken" title="leads nowhere">d</span>' in html
    assert '<a href="#h-here"' in html


def test_pictures_of_the_workspace_are_shown_and_other_embeds_are_links() -> None:
    html = shown("![[cup.png|300]] ![[cup.png|A cup]] ![a cup](cup.png) ![[Tea]] ![[doc.pdf]] ![[drawing.svg]]")
    assert html.count('<img src="/w/main/files/img/cup.png"') == 3
    assert 'alt="cup.png"' in html and 'alt="A cup"' in html and 'alt="a cup"' in html
    for address in ("notes/Tea.md", "files/doc.pdf", "files/drawing.svg"):
        assert f'<a href="/w/main/{address}" class="embed"' in html


def test_nothing_is_fetched_from_elsewhere_unasked() -> None:
    html = shown(
        "![far](https://far.example/x.png) ![in](data:image/png;base64,AAAA) [![b](https://x.example/y.png)](Tea)"
    )
    assert "<img" not in html
    assert '<a href="https://far.example/x.png" class="external" rel="noopener noreferrer">' in html


def test_comments_are_hidden_and_percent_signs_are_not() -> None:
    html = shown(
        "a %%not this [[Tea]]%% b\n\n%%\nnor this\n\n# nor that\n%%\n\nc 50% d `%%` e `%%` f\n\n- g\n- %%h%% i\n"
    )
    assert plain(html) == "a b c 50% d %% e %% f g i"


def test_a_comment_that_nothing_closes_is_text() -> None:
    assert plain(shown("a\n\n%% b\n\nc")) == "a %% b c"


def test_headings_stand_below_the_pages_own_and_can_be_linked_to() -> None:
    html = shown("# Note\n\n# Next [[Tea]]\n\n## Next Tea\n\n###### Low\n\n# Note\n")
    assert '<h2 id="h-next-tea">' in html and '<h3 id="h-next-tea-1">' in html and '<h6 id="h-low">' in html
    assert html.count(">Note</h2>") == 1, "the first is the page's title"


def test_frontmatter_is_not_text() -> None:
    assert plain(shown("---\na: 1\n---\nbody")) == "body"


def test_a_link_in_the_text_of_another_breaks_nothing() -> None:
    html = shown("[a [[Tea]] b](Tea.md) and [x ![[cup.png]] y](Tea.md) end")
    assert plain(html) == "a Tea b and x y end"
    assert html.count("<a ") == html.count("</a>")


HOSTILE = [
    "<script>window.__hit=1</script>",
    "<img src=x onerror=alert(1)>",
    '<a href="javascript:alert(1)">x</a>',
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java&#115;cript:alert(1))",
    "[x](\\javascript:alert(1))",
    "[x](data:text/html,<script>alert(1)</script>)",
    "[x](vbscript:x)",
    "[x](obsidian://open?vault=x)",
    "[x](//evil.example/x)",
    "[x](https:evil.example)",
    "![x](javascript:alert(1))",
    '![x" onerror="alert(1)](cup.png)',
    '![x](cup.png "t\\" onerror=\\"alert(1)")',
    '[x](Tea.md "t\\" onmouseover=\\"alert(1)")',
    "[[Tea|<img src=x onerror=alert(1)>]]",
    '[[Nowhere" onmouseover="alert(1)]]',
    "[[javascript:alert(1)]]",
    "![[javascript:alert(1).png]]",
    '```"><script>alert(1)</script>\ncode\n```',
    "<svg onload=alert(1)>",
    '<iframe src="https://evil.example">',
    "<https://ok.example/\"onmouseover='x'>",
    "| <script>alert(1)</script> |\n|---|\n| <b onclick=x>b</b> |",
    "# <script>alert(1)</script>",
    "[ref]\n\n[ref]: javascript:alert(1)",
    '[ref]\n\n[ref]: Tea.md "\\"><script>alert(1)</script>"',
    "<!-- --><script>alert(1)</script>",
    "%%<script>%% x",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "`<script>alert(1)</script>`",
    "[[Tea#<script>alert(1)</script>]]",
    "<style>@import 'https://evil.example/x.css'</style>",
    "<form action=https://evil.example><input name=x>",
    "<base href=https://evil.example/>",
    '<meta http-equiv="refresh" content="0;url=https://evil.example">',
]
ALLOWED = re.compile(
    r"</?(?:p|em|strong|s|code|pre|ul|ol|li|blockquote|table|thead|tbody|tr|th|td|hr|br|h[2-6])>"
    r"|</(?:a|span)>"
    r'|<h[2-6] id="h-[^"<>]*">|<t[hd] class="(?:center|right)">|<ol start="\d+">'
    r'|<a href="(?:/w/main/(?:notes|files)/|#|https?://|mailto:)[^"<>]*"(?: class="\w+")? rel="noopener noreferrer">'
    r'|<span class="broken" title="leads [^"<>]*">'
    r'|<img src="/w/main/files/[^"<>]*" alt="[^"]*">'
)


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_in_a_note_becomes_more_than_plain_markup(text: str) -> None:
    html = shown(f"before\n\n{text}\n\nafter", 'x"><script>.md')
    assert "<" not in ALLOWED.sub("", html), html
    assert "before" in html and "after" in html


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "[" * 20_000,
        "![" * 10_000,
        "**a*" * 10_000,
        "- " * 10_000,
        "> " * 10_000,
        "|a\n|-\n" * 1_000,
        "%%" * 9_999,
        "[[Tea]] " + "[[" * 50_000 + "]]",
        "[[Tea]] " + "![[Tea " * 20_000,
    ],
)
def test_hostile_structure_is_laid_out_in_time(text: str) -> None:
    begun = time.thread_time()
    shown(text)
    assert time.thread_time() - begun < 5


def test_a_text_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("notewright.web.markdown.RENDER_SECONDS", 0.0)
    with pytest.raises(TooSlow):
        shown("a\n\nb\n" * 100)
