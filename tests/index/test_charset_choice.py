"""Tables are made for the sets that pay, and not for so many that a request waits."""

from __future__ import annotations

from dotllm.automata.charset import CharSet
from dotllm.index.charset_choice import counted_charsets, worth_tables
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
        return {places[i][0] for i in worth_tables(new, lambda: counted, lambda charset: tokens[charset])}

    assert made((LOWER, 1), (DIGITS, 1), counted=set()) == {LOWER}  # few tokens are made of digits
    assert made((UPPER, 1), counted=set()) == set()  # very many leave the set
    assert made((UPPER, 1), counted={0}) == {UPPER}
    assert made((UPPER, 2), counted=set()) == {UPPER}


def test_not_all_of_very_many() -> None:
    sets = [(i, CharSet.of((97, 100 + i)), 1) for i in range(20)]
    assert 0 < len(worth_tables(sets, lambda: set(range(20)), lambda charset: (50_000, 6_000))) < 6
    assert len(worth_tables(sets, lambda: {7}, lambda charset: (50_000, 60_000))) == 1
