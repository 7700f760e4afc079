"""Random grammars and vocabularies that reach every part of the machine; the seed determines them."""

from __future__ import annotations

from random import Random

from dotllm.charset import ANY_CHAR, CharSet
from dotllm.grammar import Expression, Grammar
from dotllm.vocabulary import Vocabulary

_LETTERS = "abé"
_SETS = [
    CharSet.of("a"),
    CharSet.of("ab"),
    CharSet.of("é"),
    CharSet.of((0x61, 0x7A)),  # this set and the following are large enough for tables
    CharSet.of((0xE0, 0xFF)),
    CharSet.of((0x20, 0x10FFFF)) - CharSet.of('"\\'),
    ANY_CHAR,
]


def random_grammar(random: Random) -> Grammar:
    """Literals, classes, counted and nested repetitions, automata, recursion, ambiguity, empty loop bodies; no left
    recursion."""
    grammar = Grammar()
    rules = [grammar.rule(f"r{i}") for i in range(random.randint(0, 3))]

    def leaf() -> Expression:
        pick = random.random()
        if pick < 0.5:
            return grammar.literal("".join(random.choice(_LETTERS) for _ in range(random.randint(1, 3))))
        if pick < 0.6:
            return grammar.empty()
        if pick < 0.9:
            return grammar.chars(random.choice(_SETS))
        words = [bytes(random.choice(b"ab") for _ in range(random.randint(0, 4))) for _ in range(random.randint(1, 5))]
        return grammar.literals(words)

    def expression(depth: int, first: bool) -> Expression:
        """``first``: a call here could be left-recursive, so a character is put before it."""
        pick = random.random()
        if depth <= 0 or pick < 0.3:
            return leaf()
        pick = random.random()
        if pick < 0.3:
            return grammar.seq([expression(depth - 1, first and i == 0) for i in range(random.randint(2, 3))])
        if pick < 0.55:
            return grammar.alt([expression(depth - 1, first) for _ in range(random.randint(2, 3))])
        if pick < 0.8:
            low = random.choice([0, 0, 1, 2, 3])
            high = random.choice([None, low, low + 1, low + 3, 30, max(1, low), 200])
            return grammar.repeat(expression(depth - 1, first), low, high)
        if pick < 0.9 and rules:
            call = grammar.call(random.choice(rules))
            return grammar.seq([grammar.literal(random.choice(_LETTERS)), call]) if first else call
        states = random.randint(2, 4)
        edges = [
            (random.randrange(states), expression(depth - 2, True), random.randrange(states))
            for _ in range(random.randint(2, 5))
        ]
        return grammar.network(states, 0, [random.randrange(states)], edges)

    for rule in rules:
        grammar.define(rule, expression(3, True))
    grammar.start = expression(4, False)
    return grammar


def random_vocabulary(random: Random) -> Vocabulary:
    """All bytes, words, halves of code points, tokens longer than any precomputed row; the last token is the end."""
    tokens: list[bytes | None] = [bytes([i]) for i in range(256)]
    tokens += ["".join(random.choice('abé"z') for _ in range(random.randint(2, 5))).encode() for _ in range(60)]
    tokens += [b"a\xc3", b"\xa9b", b"\xa9", b"a" * 20, b"b" * 18 + b"a", b"z" * 17, b"\xe2\x82", None]
    return Vocabulary.from_bytes(tokens, eos_token_ids=[len(tokens) - 1])
