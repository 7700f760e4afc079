"""Random grammars on twenty tokens, against the reference recogniser: every mask on a walk.

The walks of `test_machine` and its neighbours use vocabularies of 320 tokens. These walks are for kernels that run as
Python (`tools.mutants --python-kernels`), a thousand times slower: none takes more than a second or two there.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from dotllm import BudgetExceededError, InvalidSpecError
from dotllm.grammar import Expression, Grammar
from dotllm.vocabulary import Vocabulary
from tests.automata.grammars import random_grammar
from tests.automata.test_counted_network import random_counted
from tests.automata.test_machine import check_walk
from tests.automata.test_unordered import random_grammar as random_unordered
from tests.cases import few

LETTERS = ['a', 'b', 'c', 'z', 'é', ',', ':', '"', '(', ')', 'ab', 'ba', 'aa', 'aab', ',a', 'éb', 'zzzz', 'a' * 20]  # fmt: skip
HALVES = [b"\xc3", b"\xa9", b"a\xc3", b"\xa9b", b"\xe2\x82", b"\xac"]
FEW = Vocabulary.from_bytes([*(text.encode() for text in LETTERS), *HALVES, None], eos_token_ids=len(LETTERS + HALVES))


def left_corners(random: Random) -> Grammar:
    """Rules, loops, unordered sequences and counted networks that begin with each other, each in several ways: one
    closure pushes all of them, and each only after all that begin with it."""
    grammar = Grammar()
    parts: list[Expression] = []
    for _ in range(random.randint(4, 7)):
        ways = [
            grammar.seq([part, grammar.literal(random.choice("abcz"))])
            for part in random.sample(parts, random.randint(0, len(parts)))
        ]
        body = grammar.alt([*ways, grammar.literal(random.choice("abcz"))])
        kind = random.randrange(8)
        if kind >= 4:
            rule = grammar.rule(f"r{len(parts)}")
            grammar.define(rule, body)
            body = grammar.call(rule)
        elif kind == 1:
            body = grammar.repeat(body, random.choice([1, 30]), None)
        elif kind == 2:
            body = grammar.repeat(body, random.randint(1, 2), 60)  # (short repetitions are unrolled)
        elif kind == 0:
            body = grammar.unordered([body], [grammar.literal("c")], [], grammar.literal(","))
        else:
            edges = [(0, grammar.literal("ab"), 1), (1, grammar.literal("b"), 0), (0, body, 1)]
            body = grammar.network(2, 0, [1], edges, 41)
        parts.append(body)
    grammar.start = grammar.alt(random.sample(parts, len(parts)))
    return grammar


@pytest.mark.parametrize("number", range(few(24)))
@pytest.mark.parametrize("draw", [random_grammar, random_counted, random_unordered, left_corners])
def test_masks(draw: Callable[[Random], Grammar], number: int) -> None:
    random = Random(f"small/{number}")
    while True:
        try:
            compared = check_walk(draw(random), FEW, random, 8)
        except (InvalidSpecError, BudgetExceededError):  # unsatisfiable, or too ambiguous
            continue
        if compared >= 3:
            return
