"""Words for finding: how texts and questions are cut."""

import re
from functools import cache

_WORD = re.compile("[^\\W_](?:[^\\W_]|[\u0300-\u036f])*")
QUESTION_FRAME = frozenset(
    """what who when where why how which do does did is are was were can could should my our your me i we you notes note
    vault say says said tell show find know written write about regarding on of the a an in for to and or there
    any""".split()  # noqa: SIM905
)


@cache
def _beyond_latin() -> re.Pattern[str]:
    """One range is looked for sooner than all of them. Compiled for the first text that is not plain ASCII: a pattern
    of so many letters takes 3 ms, a tenth of a search on the command line."""
    return re.compile("[\u2e80-\U0010ffff]")


@cache
def _cjk_runs() -> re.Pattern[str]:
    """Scripts written without blanks between words (and Hangul, whose words carry endings): cut into overlapping
    pairs. Compiled when a text may have such a letter."""
    return re.compile(
        "[\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u303b\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff"
        "\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff"
        "\uff66-\uff9f\U0001b000-\U0001b16f\U00020000-\U000323af]+"
    )


def index_words(text: str) -> str:
    """`text` as it is fed to a full-text index: CJK runs as overlapping pairs, everything else as it is."""
    return text if text.isascii() or not _beyond_latin().search(text) else _cjk_runs().sub(_pairs, text)


def _pairs(run: re.Match[str]) -> str:
    pairs = [run[0][at : at + 2] for at in range(len(run[0]) - 1)] or [run[0]]
    return f" {' '.join(pairs)} "


def query_words(text: str) -> list[str]:
    """The distinct words of a question in lower case, cut as `index_words` cuts."""
    return list(dict.fromkeys(_WORD.findall(index_words(text).lower())))


def drop_question_frame(question: str) -> list[str]:
    """The words of a question without its frame ("what do my notes say about …?"), unless nothing else is left."""
    words = query_words(question)
    if not question.rstrip().endswith(("?", "？")):
        return words
    return [word for word in words if word not in QUESTION_FRAME] or words
