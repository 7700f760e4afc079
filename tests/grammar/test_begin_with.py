"""Grammars that begin with a copy of another, and nodes made many at a time."""

from __future__ import annotations

import numpy as np
import pytest

from dotllm.automata.charset import CharSet
from dotllm.grammar import Grammar
from dotllm.grammar.analysis import LEFT_RECURSION, NULLABLE_LOOP, analyse
from dotllm.grammar.grammar import Expression
from dotllm.grammar.reference import accepts


def beginning() -> tuple[Grammar, Expression]:
    """Words in brackets, of one kind of each leaf."""
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


def test_many_at_a_time_are_as_one_by_one() -> None:
    grammar = Grammar()
    grammar.literal("first")
    texts = [b"a", b"long", b"b"]
    comma = grammar.literal(",")
    literals = grammar.each_literal(texts)
    pairs = grammar.each_seq(2, [part for literal in literals for part in (literal, comma)])
    for text, literal, pair in zip(texts, literals, pairs, strict=True):
        for expression, expected in ((literal, text), (pair, text + b",")):
            grammar.start = expression
            assert accepts(grammar, expected) and not accepts(grammar, expected + b",")
