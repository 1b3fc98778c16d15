"""The pure part of the ranking."""

import pytest

from notewright.engine.find.ranking import (
    ScoreList,
    add_shares,
    find_best_sections,
    find_unreachable,
    fuse,
    name_rarity,
    rarity,
    score_mentions,
)
from notewright.index.base import Occurrences


def test_evidence_adds_up() -> None:
    scores = fuse([ScoreList(0.5, {1: 2.0, 2: 4.0}), ScoreList(1.0, {2: 1.0, 3: 7.0})])
    assert scores == {1: 1.0, 2: 3.0, 3: 7.0}


def test_rare_words_tell_more_and_common_ones_next_to_nothing() -> None:
    assert rarity(1000, 1) > rarity(1000, 100) > rarity(1000, 499) > rarity(1000, 500) == rarity(1000, 1000) > 0
    assert name_rarity(1000, 900) > 0


def test_the_section_with_most_of_the_words_is_the_best() -> None:
    found = {7: Occurrences({0: [1, 12, 13], 1: [14]}, {})}
    ((score, which),) = find_best_sections(found, {7: [0, 10, 20, 30]}, 100, [3, 3]).values()
    assert which == 1 and score > 0


def test_a_word_in_the_title_counts_in_every_section() -> None:
    plain = find_best_sections({7: Occurrences({1: [12]}, {})}, {7: [0, 10, 20]}, 100, [3, 3])[7]
    titled = find_best_sections({7: Occurrences({1: [12]}, {0: 1})}, {7: [0, 10, 20]}, 100, [3, 3])[7]
    assert titled[0] > plain[0] and titled[1] == plain[1] == 1


def test_empty_sections_and_places_beyond_the_end_do_no_harm() -> None:
    found = {1: Occurrences({0: [0, 99]}, {}), 2: Occurrences({}, {0: 2}), 3: Occurrences({0: [0]}, {})}
    best = find_best_sections(found, {1: [0, 0, 5], 2: [0, 0], 3: [0, 1]}, 3, [3])
    assert best[1][1] == 1 and best[2] == (0.0, 0) and best[3][1] == 0


def test_what_others_say_adds_most_where_the_note_is_silent() -> None:
    notes = {1: Occurrences({0: [1, 2, 3, 4]}, {0: 1}), 2: Occurrences({1: [1]}, {})}
    gains = score_mentions({1: {0: 1}, 2: {0: 1}}, notes, {1: 50, 2: 50}, [2.0, 2.0])
    assert gains[2] > gains[1] > 0


def test_neighbours_share_by_the_root_of_their_number() -> None:
    after = add_shares({1: 10.0}, {1: 0.0, 2: 10.0}, {1: 4, 2: 4})
    assert after == {1: 10.0, 2: pytest.approx(0.5)}


def test_a_note_is_out_of_reach_only_if_no_degree_could_bring_it_onto_the_page() -> None:
    scores, given = {1: 10.0, 2: 9.0, 3: 8.5, 4: 8.0}, {3: 4.0, 4: 20.0, 5: 80.0, 6: 91.0}
    assert find_unreachable(scores, given, 2) == {3, 5}, "a tenth of what their neighbours have is too little"
    assert find_unreachable(scores, given, 5) == set(), "there is room for all"
    for degree in (1, 2, 50):
        after = add_shares(scores, given, dict.fromkeys(given, degree))
        assert not {3, 5} & set(sorted(after, key=after.__getitem__, reverse=True)[:2])
