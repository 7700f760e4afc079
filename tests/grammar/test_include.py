"""`Grammar.include`: a grammar as part of another grammar."""

from __future__ import annotations

from dotllm.grammar import Expression, Grammar
from tests.grammar.reference import accepts


def included(other: Grammar) -> Grammar:
    """``<`` other ``>``, in a grammar that has nodes, rules, children and texts of its own."""
    grammar = Grammar()
    grammar.define(grammar.rule("own"), grammar.seq([grammar.literal("q"), grammar.bytes_in(b"rs")]))
    inside: Expression = grammar.include(other)
    grammar.start = grammar.seq([grammar.literal("<"), inside, grammar.literal(">")])
    return grammar


def test_unordered_parts() -> None:
    other = Grammar()
    x, y, z = (other.literal(text) for text in "xyz")
    other.start = other.unordered([x], [y], [z], other.literal(","))
    grammar = included(other)
    assert all(accepts(grammar, text) for text in (b"<x>", b"<y,x>", b"<z,x,z>"))
    assert not any(accepts(grammar, text) for text in (b"<y>", b"<x,x>", b"<>"))


def test_rules_networks_and_words() -> None:
    other = Grammar()
    rule = other.rule("list")
    words = other.literals([b"a", b"bc"])
    more = other.network(2, 0, (0,), [(0, other.literal(","), 1), (1, other.call(rule), 0)])
    other.define(rule, other.seq([words, other.repeat(other.byteset(1 << ord("!")), 0, 2), more]))
    other.start = other.call(rule)
    grammar = included(other)
    assert all(accepts(grammar, text) for text in (b"<a>", b"<bc!!,a>", b"<a,bc!,a>"))
    assert not any(accepts(grammar, text) for text in (b"<b>", b"<a!!!>", b"<a,>"))
