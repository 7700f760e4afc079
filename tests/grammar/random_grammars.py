"""Random small grammars over the alphabet ``ab`` with every construct, to fuzz this package."""

from __future__ import annotations

import random

from dotllm.grammar import Expression, Grammar

ALPHABET = b"ab"


def random_grammar(seed: int) -> Grammar:
    """Recursion of every kind, empty loops, cycles, unproductive rules, counted loops, networks, literal sets."""
    rng = random.Random(seed)
    g = Grammar()
    rules = [g.rule(f"r{i}") for i in range(rng.randint(1, 4))]

    def leaf() -> Expression:
        return rng.choice(
            [
                g.literal(bytes(rng.choices(ALPHABET, k=rng.randint(1, 3)))),
                g.bytes_in(rng.sample(list(ALPHABET), rng.randint(1, 2))),
                g.empty(),
                g.literals([b"a", b"ab", b"abb"][: rng.randint(1, 3)] + ([b""] if rng.random() < 0.2 else [])),
                g.never() if rng.random() < 0.2 else g.literal(b"b"),
                g.call(rng.choice(rules)),
                g.call(rng.choice(rules)),
                g.call(rng.choice(rules)),
            ]
        )

    def tree(depth: int) -> Expression:
        if depth == 0:
            return leaf()
        shape = rng.random()
        parts = [tree(depth - 1) for _ in range(rng.randint(1, 3))]
        if shape < 0.35:
            return g.seq(parts)
        if shape < 0.65:
            return g.alt(parts)
        if shape < 0.8:
            low = rng.randint(0, 2)
            return g.repeat(parts[0], low, rng.choice([None, low, low + 1, low + 2]))
        if shape < 0.9:
            states = rng.randint(1, 3)
            edges = [(rng.randrange(states), part, rng.randrange(states)) for part in parts]
            return g.network(states, 0, [rng.randrange(states)], edges)
        return leaf()

    for rule in rules:
        g.define(rule, tree(rng.randint(0, 2)))
    g.start = tree(1)
    return g
