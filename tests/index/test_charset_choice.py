"""Tables are made for the sets that are worth it, and not for so many that a request waits."""

from __future__ import annotations

from dotllm import Index, Vocabulary
from dotllm.charset import CharSet
from dotllm.index.token_space import PassedOver, TokenSpace, counted_charsets, worth_tables
from dotllm.languages.regex import regex_to_grammar

LOWER, DIGITS, UPPER = CharSet.of((97, 122)), CharSet.of((48, 57)), CharSet.of((65, 90))


def test_counted_repetitions_are_found_wherever_the_set_stands_in_them() -> None:
    grammar = regex_to_grammar("[a-z]{2,70}[0-9]*([A-Z]+-){3,90}")
    found = {grammar.charsets[i] for i in counted_charsets(grammar)}
    assert LOWER in found
    assert UPPER in found
    assert DIGITS not in found


def test_what_pays() -> None:
    tokens = {LOWER: (40_000, 1_000), DIGITS: (500, 1_000), UPPER: (90_000, 30_000)}

    def made(*places: tuple[CharSet, int], counted: set[int]) -> set[CharSet]:
        new = [(i, charset, n) for i, (charset, n) in enumerate(places)]
        return {places[i][0] for i in worth_tables(new, lambda: counted, lambda charset: tokens[charset], {})}

    assert made((LOWER, 1), (DIGITS, 1), counted=set()) == {LOWER}  # few tokens are made of digits
    assert made((UPPER, 1), counted=set()) == set()  # very many tokens leave the set
    assert made((UPPER, 1), counted={0}) == {UPPER}
    assert made((UPPER, 2), counted=set()) == {UPPER}


def test_not_all_of_very_many() -> None:
    sets = [(i, CharSet.of((97, 100 + i)), 1) for i in range(20)]
    assert 0 < len(worth_tables(sets, lambda: set(range(20)), lambda charset: (50_000, 6_000), {})) < 6
    assert len(worth_tables(sets, lambda: {7}, lambda charset: (50_000, 60_000), {})) == 1


def test_a_set_that_was_often_passed_over_gets_its_table() -> None:
    """The set gets it once the masks of enough automata have cost as much as the table would."""
    passed_over: PassedOver = {}

    def made() -> set[int]:
        return worth_tables([(5, DIGITS, 1)], set, lambda charset: (12_500, 1_200), passed_over)  # 1.2 ms to save 0.5

    assert [made(), made(), made()] == [set(), set(), {5}]
    assert made() == set()  # its debt is paid


def test_sets_left_out_for_time_come_next() -> None:
    passed_over: PassedOver = {}
    left = [(i, CharSet.of((97, 100 + i)), 1) for i in range(10)]
    for _ in range(3):
        made = worth_tables(left, lambda: range(10), lambda charset: (50_000, 6_000), passed_over)
        left = [some for some in left if some[0] not in made]
    assert not left


def test_what_is_kept_of_sets_is_bounded() -> None:
    passed_over: PassedOver = {}
    for i in range(10_000):
        worth_tables([(0, CharSet.of((i, i + 3)), 1)], set, lambda charset: (100, 60_000), passed_over)
    assert 0 < len(passed_over) < 5_000


def test_a_regex_seen_again_gets_the_table_it_was_refused(tekken: Vocabulary) -> None:
    """Its masks with the table are the same as before."""
    charset = CharSet.of((97, 122), (65, 90), (48, 57), "._%+~-")  # as in e-mail addresses
    space, pattern = TokenSpace.of(tekken), "[a-zA-Z0-9._%+~-]+@"
    before = Index.from_regex(pattern, tekken)
    assert space.known_charset(charset) < 0
    for _ in range(5):
        after = Index.from_regex(pattern, tekken)
    assert space.known_charset(charset) >= 0
    assert before.guide().mask_row == after.guide().mask_row
