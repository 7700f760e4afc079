"""`Grammar.unordered`, parts in any order, each at most once: the oracle and the machine against the definition."""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest

from dotllm import Index, InvalidSpecError
from dotllm.grammar import Expression, Grammar
from dotllm.grammar.transform import prepare
from dotllm.vocabulary import Vocabulary
from tests.automata.grammars import random_vocabulary
from tests.automata.test_machine import check_walk
from tests.cases import few
from tests.grammar.reference import Recogniser, accepts

BYTES = Vocabulary.from_bytes([*(bytes([byte]) for byte in range(256)), None], eos_token_ids=256)


def machine_accepts(grammar: Grammar, text: bytes) -> bool:
    index = Index.from_grammar_object(grammar, BYTES)
    config = index.advance_bytes(index.guide().config, text)
    return config >= 0 and index.can_finish(config)


def words(required: str, optional: str, repeatable: str, separator: str = ",") -> Grammar:
    grammar = Grammar()
    parts = [[grammar.literal(letter) for letter in letters] for letters in (required, optional, repeatable)]
    between = grammar.literal(separator) if separator else grammar.optional(grammar.literal(" "))
    grammar.start = grammar.unordered(*parts, separator=between)
    return grammar


@pytest.mark.parametrize("separator", [",", ""])
@pytest.mark.parametrize(
    ("required", "optional", "repeatable"),
    [("ab", "c", ""), ("", "abc", ""), ("a", "", "x"), ("abc", "", ""), ("", "", "x"), ("b", "a", "x")],
)
def test_every_sequence_of_up_to_four_parts(required: str, optional: str, repeatable: str, separator: str) -> None:
    grammar = words(required, optional, repeatable, separator)
    letters = [*required, *optional, *repeatable * 4]
    texts = {p for n in range(1, 5) for p in permutations(letters, min(n, len(letters)))}
    texts |= {("a", "a"), ("a", "b", "a"), ("c", "c"), ("a",), ("x", "x"), ("x", "a", "x", "a")}
    for parts in texts:
        text = separator.join(parts).encode()
        once = all(parts.count(letter) <= 1 for letter in required + optional)
        known = set(parts) <= {*required, *optional, *repeatable}
        expected = once and known and set(required) <= set(parts)
        assert accepts(grammar, text) == expected, parts
        assert machine_accepts(grammar, text) == expected, parts
    for text in (b"", b",", b"a,", b",a", b"a,,b", b" a", b"a  b", b"ab" if separator else b"a,b"):
        assert not accepts(grammar, text)
        assert not machine_accepts(grammar, text)


def test_many_parts_cost_little() -> None:
    names = [f"k{i:03}" for i in range(300)]
    grammar = Grammar()
    rules = [grammar.literal(name) for name in names]
    grammar.start = grammar.unordered(rules[::2], rules[1::2], [], grammar.literal(","))
    shuffled = names[:]
    Random(1).shuffle(shuffled)
    index = Index.from_grammar_object(grammar, BYTES)
    assert index.can_finish(index.advance_bytes(index.guide().config, ",".join(shuffled).encode()))
    shuffled.remove("k008")
    assert not index.can_finish(index.advance_bytes(index.guide().config, ",".join(shuffled).encode()))
    assert index.nbytes < 64 << 20


def test_what_nothing_satisfies_is_left_out() -> None:
    grammar = Grammar()
    a, b, comma = grammar.literal("a"), grammar.literal("b"), grammar.literal(",")
    loop = grammar.rule("loop")
    grammar.define(loop, grammar.seq([grammar.literal("c"), grammar.call(loop)]))
    grammar.start = grammar.unordered([a], [grammar.call(loop), b], [], comma)
    guide = Index.from_grammar_object(grammar, BYTES).guide()
    assert set(guide.allowed_tokens()) == {ord("a"), ord("b")}
    assert guide.advance(ord("b"))
    assert guide.advance(ord(","))
    assert guide.advance(ord("a"))
    # nothing is left: a separator would be a dead end
    assert set(guide.allowed_tokens()) == {256}
    impossible = Grammar()
    impossible.start = impossible.unordered(
        [impossible.never()], [impossible.literal("a")], [], impossible.literal(",")
    )
    with pytest.raises(InvalidSpecError):
        Index.from_grammar_object(impossible, BYTES)
    optional = Grammar()
    never = optional.unordered([optional.never()], [], [], optional.literal(","))
    optional.start = optional.seq([optional.literal("x"), optional.optional(never)])
    assert machine_accepts(optional, b"x")
    assert set(Recogniser(optional).allowed_bytes()) == {ord("x")}


def test_an_empty_part_is_refused() -> None:
    grammar = Grammar()
    grammar.start = grammar.unordered([], [grammar.optional(grammar.literal("a"))], [], grammar.literal(","))
    with pytest.raises(InvalidSpecError, match="may be empty"):
        prepare(grammar)


def random_grammar(random: Random) -> Grammar:
    """Unordered sequences in rules, loops, alternatives and each other; parts may share beginnings or be the same."""
    grammar = Grammar()
    rules = [grammar.rule(f"r{i}") for i in range(3)]

    def letter() -> Expression:
        return grammar.literal(random.choice(["a", "b", "é", "ab", ","]))

    def expression(depth: int) -> Expression:
        pick = random.random()
        if depth <= 0 or pick < 0.2:
            return letter()
        if pick < 0.65:
            parts = [grammar.seq([letter(), optional(depth - 1)]) for _ in range(random.randint(1, 4))]
            first = random.randint(0, len(parts))
            second = random.randint(first, len(parts))
            separator = random.choice([grammar.literal(random.choice([",", "a", "::"])), optional(depth - 1)])
            return grammar.unordered(parts[:first], parts[first:second], parts[second:], separator)
        if pick < 0.75:
            return grammar.repeat(grammar.seq([letter(), expression(depth - 1)]), 1, random.choice([None, 2, 70]))
        if pick < 0.85:
            return grammar.alt([expression(depth - 1), expression(depth - 1)])
        return grammar.seq([letter(), grammar.call(random.choice(rules))])

    def optional(depth: int) -> Expression:
        return random.choice([grammar.empty(), grammar.optional(expression(depth)), expression(depth)])

    for rule in rules:
        grammar.define(rule, grammar.alt([letter(), expression(2)]))
    grammar.start = expression(3)
    return grammar


@pytest.mark.parametrize("seed", range(few(6)))
def test_the_shortest_way_to_the_end(seed: int) -> None:
    """`tokens_to_finish` tokens suffice, and no fewer, also between parts without a separator."""
    for number in range(20):
        random = Random(f"ways/{seed}/{number}")
        letters = random.sample("abcdefgh", random.randint(1, 6))
        first = random.randint(0, len(letters))
        required, optional = letters[:first], letters[first:]
        grammar = words("".join(required), "".join(optional), "", random.choice(["", "::"]))
        guide = Index.from_grammar_object(grammar, BYTES).guide()
        used = list[str]()
        while not guide.is_finished:
            left = guide.tokens_to_finish
            mask = guide.mask_within(left)
            allowed = [
                token for token in guide.allowed_tokens() if mask is None or mask[token >> 5] >> (token & 31) & 1
            ]
            assert allowed
            token = random.choice(allowed)
            used.append(chr(token) if token < 256 else "")
            assert guide.advance(token)
            assert guide.is_finished or guide.tokens_to_finish == left - 1
        assert set(required) <= set(used)


@pytest.mark.parametrize("seed", range(few(8)))
def test_masks_of_random_grammars(seed: int) -> None:
    vocabulary = random_vocabulary(Random(seed))
    compared = 0
    for number in range(8):
        random = Random(f"unordered/{seed}/{number}")
        compared += check_walk(random_grammar(random), vocabulary, random, 10)
    assert compared > 20


def test_a_part_takes_no_memory_for_each_that_may_come_instead() -> None:
    """Once every part that might come next had its own set of used parts: 818 KiB for each of 800 parts."""
    grammar = Grammar()
    members = [grammar.literal(f'"p{i:03}":1') for i in range(800)]
    grammar.start = grammar.unordered([], members, [], separator=grammar.literal(","))
    index = Index.from_grammar_object(grammar, BYTES)
    guide = index.guide()
    sizes = []
    for first in (600, 700):
        for i in range(first, first + 100):
            assert guide.accept_string(f'"p{i:03}":1,')
        sizes.append(index.nbytes)
    assert not guide.accept_string('"p650')
    assert sizes[1] - sizes[0] < 100 * 200 * 1024
