"""The DFA algebra against set operations on all short strings over a small alphabet, and against `re`."""

from __future__ import annotations

import itertools
import re
import string
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dotllm.automata.dfa import Budget, Dfa, NfaBuilder, union_of
from dotllm.automata.dfa.kernels import determinise, dominated_states
from dotllm.charset import CharSet
from dotllm.errors import BudgetExceededError
from dotllm.languages.regex import regex_to_dfa, regex_to_grammar
from tests.cases import few
from tests.effort import at_most

LETTERS = "abé\U0001f600"
LONGEST = 4
WORDS = ["".join(letters) for n in range(LONGEST + 1) for letters in itertools.product(LETTERS, repeat=n)]

words = st.text(st.sampled_from(LETTERS), max_size=2)
charsets = st.lists(st.sampled_from([*LETTERS, "\x00", "\ud7ff", "\ue000", "\U0010ffff"])).map(
    lambda chars: CharSet.of("".join(chars))
)
leaves = st.one_of(
    st.lists(words, max_size=3).map(Dfa.literals),
    charsets.map(Dfa.chars),
    charsets.map(lambda charset: Dfa.chars(~charset)),
    st.tuples(st.integers(0, 2), st.integers(0, 3)).map(lambda bounds: Dfa.length(*bounds)),
    st.just(Dfa.length(1)),
)
automata = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
        inner.map(lambda dfa: ~dfa),
        inner.map(lambda dfa: dfa.star()),
    ),
    max_leaves=4,
)


def language(dfa: Dfa) -> set[str]:
    """The words of ``dfa`` among WORDS."""
    return {word for word in WORDS if dfa.accepts(word)}


@settings(max_examples=few(80))
@given(automata, st.integers(0, 2**12))
def test_sets_of_classes_beyond_ascii(dfa: Dfa, bits: int) -> None:
    """The sets that were asked for before do not matter."""
    alphabet = dfa.alphabet
    for classes in (bits & ((1 << alphabet.size) - 1), *(1 << cls for cls in range(alphabet.size))):
        expected = alphabet.charset(classes) - CharSet.of((0, 0x7F))
        assert alphabet.beyond_ascii(classes) == expected


@given(automata, automata)
def test_boolean_operations_are_set_operations(a: Dfa, b: Dfa) -> None:
    assert language(a & b) == language(a) & language(b)
    assert language(a | b) == language(a) | language(b)
    assert language(a - b) == language(a) - language(b)
    assert language(~a) == set(WORDS) - language(a)
    assert a & b == b & a and hash(a & b) == hash(b & a)
    assert ~(a & b) == ~a | ~b
    assert (a - b).is_empty() == ((a | b) == b)


@settings(max_examples=few(80))
@given(automata, automata)
def test_concatenation(a: Dfa, b: Dfa) -> None:
    in_a, in_b = language(a), language(b)
    joined = {word for word in WORDS if any(word[:i] in in_a and word[i:] in in_b for i in range(len(word) + 1))}
    assert language(a + b) == joined


@settings(max_examples=few(80))
@given(automata, st.integers(0, 3), st.one_of(st.none(), st.integers(0, 3)))
def test_repeat_is_repeated_concatenation(a: Dfa, minimum: int, maximum: int | None) -> None:
    short = {word for word in language(a) if len(word) <= 3}
    powers = [{""}]
    for _ in range(3 + minimum if maximum is None else maximum):
        powers.append({w + v for w in powers[-1] for v in short if len(w + v) <= 3})
    expected = set().union(*powers[minimum:])
    assert {word for word in language(a.repeat(minimum, maximum)) if len(word) <= 3} == expected


@settings(max_examples=few(80))
@given(automata)
def test_questions_agree_with_each_other(a: Dfa) -> None:
    count = a.count()
    assert (count is None) == (not a.is_finite())
    assert a.is_empty() == (a.shortest() is None) == (count == 0) == (a == Dfa.never())
    bounds = a.length_bounds()
    assert (bounds is None) == a.is_empty()
    if bounds is not None:
        shortest = a.shortest()
        assert shortest is not None and a.accepts(shortest) and len(shortest) == bounds[0]
        low, high = bounds
        assert (a & Dfa.length(low, high)) == a
        assert (a & Dfa.length(low + 1, high)) != a
        if high:
            assert low == high or (a & Dfa.length(low, high - 1)) != a
    if count is not None and count < 2000:
        listed = list(a.strings())
        assert len(listed) == len(set(listed)) == count
        assert all(a.accepts(word) for word in listed)
        assert listed == sorted(listed)
        assert Dfa.literals(listed) == a


@pytest.mark.parametrize(
    ("words", "others"),
    [
        ([], ["", "a"]),
        ([""], ["a"]),
        (["a", "ab", "abc"], ["", "b", "abcd"]),
        (["\x00", "\U0010ffff"], ["", "\x01"]),
        (["é", "e"], ["e\u0301"]),
    ],
)
def test_literals(words: list[str], others: list[str]) -> None:
    dfa = Dfa.literals(words)
    assert all(dfa.accepts(word) for word in words)
    assert not any(dfa.accepts(word) for word in others)
    assert list(dfa.strings()) == sorted(words)


def test_like_suffixes_are_shared() -> None:
    assert len(Dfa.literals([f"{i:03}-tail" for i in range(1000)])) == 4 + 5


EDGES = [0, 1, 0x7F, 0x80, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFE, 0x10FFFF]


@pytest.mark.parametrize(("low", "high"), list(itertools.combinations_with_replacement(EDGES, 2)))
def test_the_ends_of_a_set(low: int, high: int) -> None:
    dfa = Dfa.chars(CharSet.of((low, high)))
    for code in EDGES:
        assert dfa.accepts(chr(code)) == (low <= code <= high) == (not (~dfa).accepts(chr(code)))


def test_surrogates_are_in_no_language() -> None:
    assert not Dfa.anything().accepts("\ud800")
    assert not Dfa.literal("a\udfff")
    below, above = Dfa.chars(CharSet.of((0, 0xD7FF))), Dfa.chars(CharSet.of((0xE000, 0x10FFFF)))
    assert below | above == Dfa.length(1, 1)
    assert not below & above
    assert Dfa.length(1, 1).count() == 0x110000 - 0x800


def test_an_automaton_that_explodes_hits_its_budget_quickly() -> None:
    a, letter = CharSet.of("a"), CharSet.of("ab")
    nfa = NfaBuilder(Budget())
    state = nfa.state()
    nfa.starts.append(state)
    nfa.edge(state, letter, state)
    for charset in [a, *[letter] * 20]:
        following = nfa.state()
        nfa.edge(state, charset, following)
        state = following
    nfa.finals.append(state)
    with at_most(0.05), pytest.raises(BudgetExceededError):
        Dfa.of_nfa(nfa.arrays(), nfa.budget)


@settings(max_examples=few(400))
@given(st.randoms(use_true_random=False))
def test_states_that_others_dominate_change_no_language(random: Random) -> None:
    """Sets accept the same texts without them."""
    nfa = NfaBuilder(Budget())
    states = [nfa.state() for _ in range(random.randint(1, 9))]
    nfa.starts.extend(random.sample(states, random.randint(1, len(states))))
    nfa.finals.extend(random.sample(states, random.randint(0, len(states))))
    for _ in range(random.randint(0, 20)):
        source, target = random.choice(states), random.choice(states)
        nfa.edge(source, CharSet.of("".join(random.sample("abc", random.randint(1, 3)))), target)
    for _ in range(random.randint(0, 3)):
        nfa.epsilon(random.choice(states), random.choice(states))
    arrays = nfa.arrays()
    size = arrays.alphabet.size
    final = np.isin(np.arange(arrays.states), arrays.finals)
    moves = arrays.edges, arrays.epsilons, arrays.labels
    dominated, steps = dominated_states(*moves, final, size, 1 << 30)
    table, accepting, _ = determinise(*moves, arrays.starts, final, dominated, size, 1 << 12, 1 << 30, 1 << 20)
    assert steps < 1 << 30
    fewer = Dfa.of_table(arrays.alphabet, table, accepting, min(1, len(table) - 1), nfa.budget, "the pattern")
    assert fewer == Dfa.of_nfa(arrays, nfa.budget)


def test_a_search_for_dominated_states_ends_when_its_fuel_is_spent() -> None:
    """Each of 150 optional characters leads to all later ones; one look at all pairs of moves takes 60 million steps."""
    nfa = NfaBuilder(Budget())
    states = [nfa.state() for _ in range(151)]
    nfa.starts.append(states[0])
    nfa.finals.append(states[-1])
    for source, target in itertools.pairwise(states):
        nfa.edge(source, CharSet.of("a"), target)
        nfa.epsilon(source, target)
    arrays = nfa.arrays()
    final = np.isin(np.arange(arrays.states), arrays.finals)
    _, steps = dominated_states(arrays.edges, arrays.epsilons, arrays.labels, final, arrays.alphabet.size, 1 << 20)
    assert 1 << 20 < steps < 1 << 21


def test_bounded_gaps_take_one_count_each() -> None:
    """The sets of all places where a gap may have begun are 2**60; the latest place dominates the others."""
    near = regex_to_dfa(r"(?=.*foo.{0,60}bar).*", search=False)
    assert len(near) < 1000
    for gap in (0, 1, 59, 60, 61):
        assert near.accepts("foofo" + "x" * 60 + "foo" + "o" * gap + "bar") == (gap <= 60)


def test_only_so_many_explosions_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each first attempt takes 15 ms that no budget counts: a union of 200 such look-aheads took two seconds."""
    searches: list[int] = []
    monkeypatch.setattr(
        "dotllm.automata.dfa.dfa.dominated_states",
        lambda *arguments: (searches.append(1), dominated_states(*arguments))[1],
    )
    gaps = [rf"(?:(?=.*{first}o.{{0,30}}br)[a-z]*)" for first in string.ascii_lowercase]
    regex_to_grammar("|".join(gaps[:8]))
    assert len(searches) == 8
    with pytest.raises(BudgetExceededError):
        regex_to_grammar("|".join(gaps))
    assert len(searches) == 8 + 16


def test_budgets_bound_every_operation() -> None:
    long = Dfa.length(100, 200)
    digits = Dfa.chars(CharSet.of((0x30, 0x39)))
    for operation in (
        lambda budget: long.intersection(digits.star(), budget),
        lambda budget: long.union(digits, budget),
        lambda budget: long.concat(digits, budget),
        lambda budget: digits.repeat(3, 100, budget),
        lambda budget: Dfa.length(1, 100, budget),
        lambda budget: Dfa.literals([f"{i:05}" for i in range(100)], budget),
    ):
        with pytest.raises(BudgetExceededError):
            operation(Budget(states=50))
    for operation in (
        lambda budget: long.intersection(digits.star(), budget),
        lambda budget: digits.repeat(3, 100, budget),
    ):
        budget = Budget(steps=20)
        with pytest.raises(BudgetExceededError):
            operation(budget)
        assert budget.steps == 0


def test_one_budget_serves_many_operations() -> None:
    budget = Budget(steps=20_000)
    digits = Dfa.chars(CharSet.of((0x30, 0x39)))
    with pytest.raises(BudgetExceededError):
        for n in range(1000):
            digits.repeat(n, n + 5, budget)


def test_union_of_many() -> None:
    numbers = [str(i) for i in range(300)]
    assert union_of([Dfa.literal(n) for n in numbers]) == Dfa.literals(numbers)
    assert union_of([]) == Dfa.never()


@pytest.mark.parametrize("n", [2, 3, 7, 12])
def test_counting_modulo(n: int) -> None:
    """Strings whose length is a multiple of n: however they are expressed, the minimal automaton has n states."""
    dfa = Dfa.length(n, n).star()
    assert len(dfa) == n
    assert dfa == Dfa.length(n, n).repeat(2, None) | Dfa.literal("") | Dfa.length(n, n)
    assert [k for k in range(40) if dfa.accepts("x" * k)] == list(range(0, 40, n))
    assert re.fullmatch(f"(.{{{n}}})*", "x" * n)


def test_large_tables_are_not_kept_as_lists() -> None:
    """Lists take ten times as much memory."""
    large = regex_to_dfa("".join(f"[{chr(i)}{chr(i + 1)}]" for i in range(0x4E00, 0x4E60)) + "*", search=False)
    assert large.table.size > 4096 and large.shortest() is not None
    text = "".join(map(chr, range(0x4E00, 0x4E60)))
    assert large.accepts(text) and large.accepts(text[:-1]) and not large.accepts(text[:-2]) and not large.accepts("")
    assert large.count() is None and large._rows is None and large.nbytes < 2 * large.table.nbytes
