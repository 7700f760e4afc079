"""Grammars that begin with a copy of another grammar, and many nodes made in one call."""

from __future__ import annotations

from array import array

import numpy as np
import pytest

from dotllm.charset import CharSet
from dotllm.grammar import Grammar
from dotllm.grammar.analysis import EMPTY, LEFT_RECURSION, NULLABLE_LOOP, OTHER, analyse
from dotllm.grammar.grammar import Expression, Rule
from tests.grammar.reference import accepts


def beginning() -> tuple[Grammar, Expression]:
    """Words in brackets, with a leaf of each kind."""
    grammar = Grammar()
    rule = grammar.rule("words")
    word = grammar.alt(
        [grammar.chars(CharSet.of("xé")), grammar.byteset(1 << ord("y")), grammar.literals([b"no", b"nothing"])]
    )
    grammar.define(rule, grammar.seq([grammar.literal("["), grammar.repeat(word, 0, 2), grammar.literal("]")]))
    return grammar, grammar.call(rule)


def test_a_copy_has_the_same_expressions_and_grows_alone() -> None:
    first, words = beginning()
    size = len(first)
    analyse(first)
    copies = []
    for sign in "+-":
        grammar = Grammar()
        grammar.begin_with(first)
        assert grammar.literal("[") == first.literal("[")
        grammar.define(grammar.rule("more"), grammar.bytes_in(b"z"))
        grammar.start = grammar.seq([words, grammar.literal(sign), words])
        copies.append(grammar)
    assert len(first) == size and len(first.rule_names) == 1
    for grammar, sign in zip(copies, "+-", strict=True):
        other = "-" if sign == "+" else "+"
        assert accepts(grammar, f"[xé]{sign}[nothingy]".encode())
        assert not accepts(grammar, f"[xé]{other}[nothingy]".encode())
        assert not accepts(grammar, f"[xéy]{sign}[]".encode())


def test_only_a_new_grammar_begins_with_another() -> None:
    grammar = Grammar()
    grammar.literal("x")
    with pytest.raises(AssertionError):
        grammar.begin_with(beginning()[0])


def test_what_is_known_of_the_beginning_is_not_looked_at_again() -> None:
    def grown(*, known: bool) -> Grammar:
        first, words = beginning()
        if known:
            analyse(first)
        grammar = Grammar()
        grammar.begin_with(first)
        rule = grammar.rule("list")
        empty = grammar.repeat(words)
        network = grammar.network(3, 0, (2,), [(0, empty, 1), (1, grammar.literal(","), 2), (1, words, 0)])
        grammar.define(rule, grammar.alt([grammar.seq([empty, grammar.call(rule)]), grammar.repeat(empty), network]))
        grammar.seq([grammar.never(), words])
        return grammar

    incremental, whole = analyse(grown(known=True)), analyse(grown(known=False))
    assert incremental.reasons == whole.reasons == LEFT_RECURSION | NULLABLE_LOOP
    assert np.array_equal(incremental.derives, whole.derives)
    assert np.array_equal(incremental.left, whole.left)


def test_a_rule_that_was_undefined_is_looked_at_again() -> None:
    grammar = Grammar()
    rule = grammar.rule("later")
    call = grammar.call(rule)
    assert not analyse(grammar).derives[call]
    grammar.define(rule, grammar.literal("x"))
    assert analyse(grammar).derives[call]


def test_an_expression_that_calls_no_undefined_rule_can_be_asked_about() -> None:
    """What is not asked about may be out of date, and is looked at again when everything is asked about."""
    grammar = Grammar()
    rule, other = grammar.rule("later"), grammar.rule("never")
    call, waiting = grammar.call(rule), grammar.call(other)
    assert not analyse(grammar).derives[call]
    for number in (0, 1):
        begin = len(grammar)
        own = grammar.rule("own")
        grammar.define(own, grammar.repeat(grammar.literal(f"y{number}")))
        asked = grammar.call(own)
        assert analyse(grammar, begin).derives[asked] == EMPTY | OTHER
        if number == 0:
            grammar.define(rule, grammar.seq([grammar.literal("x"), waiting]))
    grammar.define(other, grammar.literal("x"))
    assert analyse(grammar).derives[[call, waiting, asked]].tolist() == [OTHER, OTHER, EMPTY | OTHER]


def test_many_at_a_time_are_as_one_by_one() -> None:
    grammar = Grammar()
    grammar.literal("first")
    texts = [b"a", b"long", b"b"]
    comma = grammar.literal(",")
    literals = grammar.each_literal(b"".join(texts), [len(text) for text in texts])
    pairs = grammar.each_seq(2, [part for literal in literals for part in (literal, comma)])
    for text, literal, pair in zip(texts, literals, pairs, strict=True):
        for expression, expected in ((literal, text), (pair, text + b",")):
            grammar.start = expression
            assert accepts(grammar, expected) and not accepts(grammar, expected + b",")


def test_alternatives_bytes_rules_and_networks_too() -> None:
    grammar = Grammar()
    grammar.byteset(1 << ord("x"))
    digits = grammar.each_byteset([1 << ord(digit) for digit in "123"])
    comma, empty = grammar.literal(","), grammar.empty()
    either = grammar.each_alt(2, [part for digit in digits for part in (digit, comma)])
    calls = grammar.each_rule("one", either)
    layouts = [(2, 0, 1, 1, 0, call, 1) for call in calls] + [(2, 0, 1, 1, 0, empty, 0, 0, calls[0], 1)]
    flat = array("i", [number for layout in layouts for number in layout])
    networks = grammar.flat_networks(flat.tobytes(), [0, 7, 14, 21, 31])
    for digit, *expressions in zip("1231", [*digits, digits[0]], [*calls, calls[0]], networks, strict=True):
        for expression in expressions:
            grammar.start = expression
            assert accepts(grammar, digit.encode())
            assert accepts(grammar, b",") == (expression not in digits)
            assert not accepts(grammar, b"x") and not accepts(grammar, b"")
    assert [grammar.call(Rule(grammar.a[call])) for call in calls] == list(calls)
