"""The oracle against brute force: every string up to a length, judged by a definition simpler than the oracle."""

from __future__ import annotations

import itertools
import random

import pytest

from dotllm.charset import CharSet
from dotllm.grammar import Grammar
from dotllm.grammar.kinds import UNDEFINED, ExpressionKind
from tests.cases import few
from tests.effort import at_most
from tests.grammar.random_grammars import ALPHABET, random_grammar
from tests.grammar.reference import Recogniser, accepts

LONGEST = 5


def language(grammar: Grammar, longest: int) -> set[bytes]:
    """All texts of a grammar up to a length: sets of strings, iterated to a fixpoint."""
    texts: list[set[bytes]] = [set() for _ in range(len(grammar))]

    def join(left: set[bytes], right: set[bytes]) -> set[bytes]:
        return {x + y for x in left for y in right if len(x) + len(y) <= longest}

    def once(node: int) -> set[bytes]:
        kind, a, b, c = grammar.kind[node], grammar.a[node], grammar.b[node], grammar.c[node]
        if kind == ExpressionKind.EMPTY:
            return {b""}
        if kind == ExpressionKind.LITERAL:
            return {bytes(grammar.data[a : a + b])}
        if kind == ExpressionKind.BYTES:
            return {bytes((x,)) for x in ALPHABET if grammar.byteset_mask(a) >> x & 1}
        if kind == ExpressionKind.LITERALS:
            return set(grammar.literal_sets[a])
        if kind == ExpressionKind.ALT:
            return set().union(*(texts[x] for x in grammar.children[a : a + b]))
        if kind == ExpressionKind.SEQ:
            out = {b""}
            for child in grammar.children[a : a + b]:
                out = join(out, texts[child])
            return out
        if kind == ExpressionKind.CALL:
            body = grammar.rule_body[a]
            return texts[body] if body != UNDEFINED else set()
        if kind == ExpressionKind.REPEAT:
            out, power = (texts[a] if b == 1 else {b""} if b == 0 else set()), {b""}
            out = set(out)
            for count in range(1, (c if c >= 0 else b + longest) + 1):
                power = join(power, texts[a])
                if count >= b:
                    out |= power
            return out
        if kind == ExpressionKind.NETWORK:
            children = grammar.children
            states, start, finals = children[a], children[a + 1], children[a + 2]
            reached: list[set[bytes]] = [set() for _ in range(states)]
            reached[start].add(b"")
            edges = [tuple(children[e : e + 3]) for e in range(a + 3 + finals, a + b, 3)]
            while True:
                before = sum(map(len, reached))
                for source, expression, target in edges:
                    reached[target] |= join(reached[source], texts[expression])
                if sum(map(len, reached)) == before:
                    break
            return set().union(*(reached[f] for f in children[a + 3 : a + 3 + finals]))
        return set()

    while True:
        before = sum(map(len, texts))
        for node in range(len(grammar)):
            texts[node] |= {t for t in once(node) if len(t) <= longest}
        if sum(map(len, texts)) == before:
            return texts[grammar.start]


@pytest.mark.parametrize("block", range(few(10)))
def test_agrees_with_the_definition(block: int) -> None:
    for seed in range(block * 40, block * 40 + 40):
        grammar = random_grammar(seed)
        texts = language(grammar, LONGEST + 3)
        prefixes = {text[:n] for text in texts for n in range(len(text) + 1)}
        for length in range(LONGEST + 1):
            for letters in itertools.product(ALPHABET, repeat=length):
                word = bytes(letters)
                assert accepts(grammar, word) == (word in texts), (seed, word)
                recogniser = Recogniser(grammar)
                alive = all(recogniser.feed(byte) for byte in word)
                # A prefix of an enumerated text must be alive; the reverse would need longer texts than are enumerated.
                assert alive or word not in prefixes, (seed, word)
                if alive:
                    assert {b for b in b"abc" if recogniser.copy().feed(b)} == recogniser.allowed_bytes(), seed


def completes(recogniser: Recogniser, limit: int) -> bool:
    """Whether at most ``limit`` more bytes can end the text, by breadth-first search."""
    level = [recogniser]
    for _ in range(limit + 1):
        if any(r.can_finish for r in level):
            return True
        following = []
        for r in level:
            for byte in sorted(r.allowed_bytes()):
                other = r.copy()
                assert other.feed(byte)
                following.append(other)
        level = following[:64]
    return False


def test_whatever_is_alive_can_be_completed() -> None:
    for seed in range(300):
        grammar = random_grammar(seed)
        recogniser = Recogniser(grammar)
        rng = random.Random(seed)
        for _ in range(4):
            allowed = sorted(recogniser.allowed_bytes())
            if not allowed:
                break
            assert recogniser.feed(rng.choice(allowed))
            assert completes(recogniser, 12), seed


def test_code_points_are_utf8() -> None:
    g = Grammar()
    g.start = g.repeat(g.chars(CharSet.of("a€😀", (0xE0, 0xFF))), 1, 3)
    assert accepts(g, "a€😀".encode())
    assert not accepts(g, "a€😀é".encode())
    assert not accepts(g, b"b")
    assert not accepts(g, "€".encode()[:2])
    recogniser = Recogniser(g)
    assert recogniser.allowed_bytes() == {ord("a"), 0xC3, 0xE2, 0xF0}
    assert recogniser.feed(0xC3)
    assert recogniser.allowed_bytes() == set(range(0xA0, 0xC0))
    assert not recogniser.can_finish


def test_tokens_are_read_by_id_only() -> None:
    g = Grammar()
    g.start = g.seq([g.tokens([7, 9]), g.literal("x"), g.repeat(g.tokens([7], exclude=True))])
    recogniser = Recogniser(g)
    assert not recogniser.feed(7)
    assert not recogniser.feed_token(8)
    assert recogniser.allowed_bytes() == set()
    assert recogniser.feed_token(9)
    assert recogniser.feed(ord("x"))
    assert recogniser.can_finish
    assert recogniser.allows_token(8)
    assert not recogniser.allows_token(7)


def test_a_refused_byte_changes_nothing() -> None:
    g = Grammar()
    g.start = g.literal("ab")
    recogniser = Recogniser(g)
    assert recogniser.feed(ord("a"))
    assert not recogniser.feed(ord("a"))
    assert recogniser.feed(ord("b"))
    assert recogniser.can_finish


def test_undefined_and_baseless_rules_are_unproductive() -> None:
    g = Grammar()
    undefined, loop = g.rule("undefined"), g.rule("loop")
    g.define(loop, g.seq([g.literal("x"), g.call(loop)]))
    g.start = g.alt([g.literal("y"), g.seq([g.literal("z"), g.call(undefined)]), g.call(loop)])
    assert Recogniser(g).allowed_bytes() == {ord("y")}


def test_long_texts_take_linear_time() -> None:
    """Ten thousand bytes of right and left recursion; 20,000 nested parentheses."""
    g = Grammar()
    right, left, nested = g.rule("right"), g.rule("left"), g.rule("nested")
    item = g.alt([g.bytes_in(b"0123456789"), g.call(nested)])
    g.define(right, g.seq([item, g.optional(g.seq([g.literal(","), g.call(right)]))]))
    g.define(left, g.alt([item, g.seq([g.call(left), g.literal(";"), item])]))
    g.define(nested, g.seq([g.literal("("), g.optional(g.call(nested)), g.literal(")")]))
    g.start = g.alt([g.call(right), g.call(left)])
    with at_most(20):
        assert accepts(g, b"1," * 5_000 + b"2")
        assert accepts(g, b"1;" * 5_000 + b"2")
        assert accepts(g, b"(" * 20_000 + b")" * 20_000)
        assert not accepts(g, b"(" * 20_000 + b")" * 20_001)


def test_counts_are_not_unrolled() -> None:
    g = Grammar()
    g.start = g.repeat(g.optional(g.literal("a")), 2, 1_000_000_000)
    assert accepts(g, b"")
    assert accepts(g, b"a" * 2_000)
    h = Grammar()
    h.start = h.repeat(h.literal("a"), 3, 1_000_000_000)
    assert not accepts(h, b"aa")
    assert accepts(h, b"aaaa")
