"""`Grammar.network` with ``most_edges``, a limit on the edges of a path: oracle and machine against the definition."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from dotllm import Index, InvalidSpecError, UnsupportedError
from dotllm.charset import CharSet
from dotllm.grammar import Expression, Grammar
from dotllm.grammar.transform import prepare
from dotllm.vocabulary import Vocabulary
from tests.automata.grammars import random_vocabulary
from tests.automata.test_machine import check_walk
from tests.cases import few
from tests.grammar.reference import accepts

BYTES = Vocabulary.from_bytes([*(bytes([byte]) for byte in range(256)), None], eos_token_ids=256)

Edges = list[tuple[int, str, int]]


def network(states: int, finals: list[int], edges: Edges, rounds: int) -> Grammar:
    grammar = Grammar()
    spelled = [(source, grammar.literal(text), target) for source, text, target in edges]
    grammar.start = grammar.network(states, 0, finals, spelled, rounds)
    return grammar


def texts(states: int, finals: list[int], edges: Edges, rounds: int) -> set[str]:
    """The texts of all paths, by definition."""
    found, latest = {""} if 0 in finals else set(), {(0, "")}
    for _ in range(rounds):
        latest = {(to, text + more) for state, text in latest for source, more, to in edges if source == state}
        found |= {text for state, text in latest if state in finals}
    return found


@pytest.mark.parametrize("rounds", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(
    ("states", "finals", "edges"),
    [
        (1, [0], [(0, "a", 0), (0, "bb", 0)]),
        (2, [0], [(0, "a", 1), (1, "b", 0), (1, "a", 1)]),
        (3, [2], [(0, "a", 1), (0, "b", 2), (1, "a", 2), (2, "b", 0), (2, "ab", 2)]),
        (3, [1, 2], [(0, "a", 1), (0, "a", 2), (1, "b", 1), (2, "b", 0)]),  # ambiguous
    ],
)
def test_every_short_text(states: int, finals: list[int], edges: Edges, rounds: int) -> None:
    expected = texts(states, finals, edges, rounds)
    if not expected:
        with pytest.raises(InvalidSpecError):
            Index.from_grammar_object(network(states, finals, edges, rounds), BYTES)
        return
    index = Index.from_grammar_object(network(states, finals, edges, rounds), BYTES)
    for length in range(8):
        for letters in product("ab", repeat=length):
            text = "".join(letters)
            config = index.advance_bytes(index.guide().config, text.encode())
            assert (config >= 0 and index.can_finish(config)) == (text in expected), text
            assert accepts(network(states, finals, edges, rounds), text.encode()) == (text in expected), text


def test_a_high_limit_costs_nothing_and_leaves_no_dead_ends() -> None:
    """Groups of three: after 998 of 1,000 characters, no group can begin any more."""
    edges: Edges = [(0, "x", 0), (0, "(", 1), (1, "y", 2), (2, ")", 0)]
    index = Index.from_grammar_object(network(3, [0], edges, 1000), BYTES)
    config = index.advance_bytes(index.guide().config, b"x" * 997)
    assert index.can_finish(config)
    assert index.advance_bytes(config, b"(y)") >= 0
    near = index.advance_bytes(config, b"x")
    assert index.advance_bytes(near, b"(") < 0
    assert index.advance_bytes(near, b"xx") >= 0
    assert index.advance_bytes(near, b"xxx") < 0
    assert index.nbytes < 8 << 20


def test_what_a_vocabulary_lacks_makes_ways_longer() -> None:
    """Without "c", the way from state 1 to the end takes two edges; with the first one, three are too many."""
    letters = Vocabulary.from_bytes([b"a", b"b", None], eos_token_ids=2)
    edges: Edges = [(0, "b", 2), (0, "a", 1), (1, "c", 2), (1, "b", 0)]
    two = Index.from_grammar_object(network(3, [2], edges, 2), letters).guide()
    assert set(two.allowed_tokens()) == {1}
    three = Index.from_grammar_object(network(3, [2], edges, 3), letters).guide()
    assert set(three.allowed_tokens()) == {0, 1}
    with pytest.raises(UnsupportedError, match=r"0x63 \('c'\)"):
        Index.from_grammar_object(network(3, [2], [(0, "a", 1), (1, "c", 2), (1, "b", 0)], 2), letters)


def test_an_edge_that_may_be_empty_is_refused() -> None:
    grammar = Grammar()
    edge = grammar.optional(grammar.literal("a"))
    grammar.start = grammar.network(2, 0, [1], [(0, edge, 1), (1, edge, 1)], 3)
    with pytest.raises(InvalidSpecError):
        prepare(grammar)


def test_in_a_loop_whose_rounds_may_be_empty() -> None:
    """`prepare` needs the same network without the empty text."""
    grammar = Grammar()
    inner = grammar.network(1, 0, [0], [(0, grammar.literal("a"), 0)], 2)
    grammar.start = grammar.seq([grammar.repeat(inner, 0, 3), grammar.literal("b")])
    index = Index.from_grammar_object(grammar, BYTES)
    for count in range(9):
        config = index.advance_bytes(index.guide().config, b"a" * count + b"b")
        assert (config >= 0) == (count <= 6)
        assert accepts(grammar, b"a" * count + b"b") == (count <= 6)


def random_counted(random: Random) -> Grammar:
    """Counted networks inside rules, repetitions and other counted networks."""
    grammar = Grammar()
    rule = grammar.rule("r")

    def expression(depth: int) -> Expression:
        shape = random.random() if depth else 1.0
        if shape < 0.2:
            return grammar.seq([expression(depth - 1) for _ in range(random.randint(1, 3))])
        if shape < 0.35:
            return grammar.alt([expression(depth - 1) for _ in range(random.randint(1, 3))])
        if shape < 0.45:
            low = random.randint(1, 2)
            return grammar.repeat(expression(depth - 1), low, random.choice([None, low + 1, low + 60]))
        if shape < 0.95:
            states = random.randint(1, 4)
            finals = random.sample(range(1, states + 1), random.randint(1, states))
            edges = [
                (random.randint(0, states), expression(depth - 1), random.randint(0, states))
                for _ in range(random.randint(2, 7))
            ]
            edges.append((0, grammar.literal("a"), finals[0]))
            loop = random.choice(finals)
            edges.append((loop, expression(0), loop))
            return grammar.network(states + 1, 0, finals, edges, random.choice([1, 2, 3, 5, 9, 40]))
        if random.random() < 0.15:
            return grammar.seq([grammar.literal("("), grammar.call(rule), grammar.literal(")")])
        if random.random() < 0.3:  # a large set, for which the machine has tables if it is in a loop
            return grammar.chars(random.choice([CharSet.of((0x61, 0x7A)), CharSet.of((0x20, 0x10FFFF))]))
        return grammar.literal("".join(random.choices("ab", k=random.randint(1, 2))))

    grammar.define(rule, expression(2))
    grammar.start = expression(2)
    return grammar


@pytest.mark.parametrize("seed", range(few(6)))
def test_masks_of_random_grammars(seed: int) -> None:
    vocabulary = random_vocabulary(Random(seed))
    compared = 0
    for number in range(10):
        random = Random(f"counted/{seed}/{number}")
        compared += check_walk(random_counted(random), vocabulary, random, 10)
    assert compared > 30
