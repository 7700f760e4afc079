"""`prepare` keeps the language (judged by the oracle) and leaves nothing that the machine cannot run."""

from __future__ import annotations

import itertools
import random

import pytest

from dotllm.errors import BudgetExceededError, InvalidSpecError
from dotllm.grammar import Expression, Grammar
from dotllm.grammar.analysis import analyse
from dotllm.grammar.kinds import ExpressionKind
from dotllm.grammar.transform import children_of, prepare
from tests.cases import few
from tests.effort import at_most
from tests.grammar.random_grammars import ALPHABET, random_grammar
from tests.grammar.reference import Recogniser, accepts


def assert_same_language(grammar: Grammar, prepared: Grammar, longest: int, label: object = None) -> None:
    """Check that verdicts and continuations agree on every string of the alphabet; dead strings are cut short."""
    assert analyse(prepared).reasons == 0, label
    agenda = [(b"", Recogniser(grammar), Recogniser(prepared))]
    while agenda:
        word, before, after = agenda.pop()
        assert before.can_finish == after.can_finish, (label, word)
        assert before.allowed_bytes() == after.allowed_bytes(), (label, word)
        if len(word) == longest:
            continue
        for byte in before.allowed_bytes():
            one, other = before.copy(), after.copy()
            assert one.feed(byte), (label, word)
            assert other.feed(byte), (label, word)
            agenda.append((word + bytes((byte,)), one, other))


@pytest.mark.parametrize("block", range(few(8)))
def test_random_grammars(block: int) -> None:
    rewritten = 0
    for seed in range(block * 150, block * 150 + 150):
        grammar = random_grammar(seed)
        try:
            prepared = prepare(grammar)
        except InvalidSpecError:
            assert not Recogniser(grammar).allowed_bytes()
            assert not Recogniser(grammar).can_finish
            continue
        rewritten += prepared is not grammar
        assert_same_language(grammar, prepared, 5, seed)
    assert rewritten > 25


def test_a_grammar_with_nothing_to_do_is_returned_as_it_is() -> None:
    g = Grammar()
    value = g.rule("value")
    g.define(value, g.alt([g.literal("x"), g.seq([g.literal("["), g.repeat(g.call(value)), g.literal("]")])]))
    g.start = g.call(value)
    nodes = len(g)
    assert prepare(g) is g
    assert len(g) == nodes


def arithmetic() -> Grammar:
    g = Grammar()
    e, t, f = g.rule("e"), g.rule("t"), g.rule("f")
    g.define(e, g.alt([g.seq([g.call(e), g.literal("+"), g.call(t)]), g.call(t)]))
    g.define(t, g.alt([g.seq([g.call(t), g.literal("*"), g.call(f)]), g.call(f)]))
    g.define(f, g.alt([g.literal("n"), g.seq([g.literal("("), g.call(e), g.literal(")")])]))
    g.start = g.call(e)
    return g


def test_arithmetic() -> None:
    g = arithmetic()
    assert_same_language(g, prepare(g), 7)
    assert accepts(prepare(g), b"n+n*(n+n*n)*n")


def test_parts_in_any_order() -> None:
    """In a rewritten grammar, parts stay what they are: required, at most once, or any number of times."""
    g = Grammar()
    rule = g.rule("rule")
    parts = [[g.literal(letter) for letter in letters] for letters in ("ab", "cd", "x")]
    members = g.unordered(*parts, separator=g.literal(","))
    g.define(rule, g.alt([g.seq([g.call(rule), g.literal(";"), members]), members]))
    g.start = g.call(rule)
    prepared = prepare(g)
    assert prepared is not g
    assert_same_language(g, prepared, 8)


def test_indirect() -> None:
    """Paull's classic: S → A a | b, A → A c | S d | ε."""
    g = Grammar()
    s, a = g.rule("s"), g.rule("a")
    g.define(s, g.alt([g.seq([g.call(a), g.literal("a")]), g.literal("b")]))
    g.define(a, g.alt([g.seq([g.call(a), g.literal("c")]), g.seq([g.call(s), g.literal("d")]), g.empty()]))
    g.start = g.call(s)
    assert_same_language(g, prepare(g), 7)


def test_hidden() -> None:
    """A → B A x | y with B → b? : the recursion is on the left only if B is empty."""
    g = Grammar()
    a, b = g.rule("a"), g.rule("b")
    g.define(a, g.alt([g.seq([g.call(b), g.call(a), g.literal("x")]), g.literal("y")]))
    g.define(b, g.optional(g.literal("b")))
    g.start = g.call(a)
    assert_same_language(g, prepare(g), 7)


def test_hidden_behind_a_nullable_rule_of_the_same_component() -> None:
    """A → A A | a | ε: every part is nullable and left-recursive."""
    g = Grammar()
    a = g.rule("a")
    g.define(a, g.alt([g.seq([g.call(a), g.call(a)]), g.literal("a"), g.empty()]))
    g.start = g.seq([g.call(a), g.literal("b")])
    assert_same_language(g, prepare(g), 6)


def test_cycle_with_a_base() -> None:
    g = Grammar()
    a, b = g.rule("a"), g.rule("b")
    g.define(a, g.alt([g.call(a), g.call(b), g.literal("x")]))
    g.define(b, g.alt([g.call(a), g.literal("y")]))
    g.start = g.call(a)
    assert_same_language(g, prepare(g), 3)


def test_left_recursion_inside_a_counted_loop() -> None:
    g = Grammar()
    a = g.rule("a")
    g.define(a, g.alt([g.repeat(g.seq([g.optional(g.call(a)), g.literal("x")]), 2, 5), g.literal("y")]))
    g.start = g.call(a)
    assert_same_language(g, prepare(g), 7)


@pytest.mark.parametrize(
    ("low", "high"), [(0, None), (1, None), (3, None), (0, 1), (0, 2), (2, 5), (2, 2), (5, 1_000_000)]
)
@pytest.mark.parametrize("body", ["star", "optional", "option in a sequence", "nested", "network", "words"])
def test_nullable_loop_bodies(low: int, high: int | None, body: str) -> None:
    g = Grammar()
    x, y = g.literal("x"), g.literal("y")
    bodies: dict[str, Expression] = {
        "star": g.repeat(x),
        "optional": g.optional(x),
        "option in a sequence": g.seq([g.optional(x), g.optional(y)]),
        "nested": g.repeat(g.repeat(g.optional(x), 2, 3), 2, 3),
        "network": g.network(3, 0, [2], [(0, g.optional(x), 1), (1, g.optional(y), 2), (1, g.empty(), 0)]),
        "words": g.literals([b"", b"x", b"xy"]),
    }
    g.start = g.repeat(bodies[body], low, high)
    assert_same_language(g, prepare(g), 5)


@pytest.mark.parametrize("text", ["itself", "each other", "with input", "in the end"])
def test_recursion_without_a_base_is_named(text: str) -> None:
    g = Grammar()
    a, b = g.rule("alpha"), g.rule("beta")
    bodies = {
        "itself": (g.call(a), g.call(a)),
        "each other": (g.call(b), g.call(a)),
        "with input": (g.seq([g.literal("x"), g.call(b)]), g.seq([g.literal("y"), g.call(a)])),
        "in the end": (g.seq([g.literal("x"), g.call(a)]), g.literal("y")),
    }
    g.define(a, bodies[text][0])
    g.define(b, bodies[text][1])
    g.start = g.seq([g.call(b), g.call(a)])
    with pytest.raises(InvalidSpecError, match="alpha"):
        prepare(g)


def test_an_undefined_rule_is_named() -> None:
    g = Grammar()
    there = [g.rule(f"there{i}") for i in range(9)]
    for rule in there:
        g.define(rule, g.literal("y"))
    g.start = g.alt([g.literal("x"), *map(g.call, there), g.call(g.rule("missing"))])
    with pytest.raises(InvalidSpecError, match="missing"):
        prepare(g)


def test_a_rule_that_is_defined_and_never_ends_is_named_as_that() -> None:
    g = Grammar()
    fine, endless = g.rule("fine"), g.rule("endless")
    g.define(fine, g.literal("x"))
    g.define(endless, g.seq([g.literal("y"), g.call(endless)]))
    g.start = g.seq([g.call(fine), g.call(endless)])
    with pytest.raises(InvalidSpecError, match="'endless' can never be completed") as refusal:
        prepare(g)
    assert refusal.value.code != "unknown_rule"


def test_as_many_parts_as_can_be_counted() -> None:
    for more, fits in ((-1, True), (0, False)):
        g = Grammar()
        part, comma = g.literal("x"), g.literal(",")
        parts = [part] * ((1 << 15) + more)
        if fits:
            g.unordered(parts[:3], parts[3:10], parts[10:], comma)
        else:
            with pytest.raises(BudgetExceededError, match="any order"):
                g.unordered(parts[:3], parts[3:10], parts[10:], comma)


def test_a_chain_of_left_recursive_rules_is_fast() -> None:
    """1,000 levels of precedence, each left-recursive: linear, since every component has one rule."""
    g = Grammar()
    levels = 1_000
    rules = [g.rule(f"level{i}") for i in range(levels)]
    for i, rule in enumerate(rules):
        below = g.call(rules[i + 1]) if i + 1 < levels else g.literal("n")
        g.define(rule, g.alt([g.seq([g.call(rule), g.literal(f"<{i}>"), below]), below]))
    g.start = g.call(rules[0])
    with at_most(2):
        prepared = prepare(g)
    assert accepts(prepared, b"n<3>n<999>n<0>n")
    assert not accepts(prepared, b"n<3>n<1000>n")


def ring(rules: int) -> Grammar:
    """Rules that are all left-recursive through each other; each is also called inside brackets."""
    g = Grammar()
    names = [g.rule(f"r{i}") for i in range(rules)]
    for i, rule in enumerate(names):
        inner = g.seq([g.literal(f"({i}"), g.call(names[(i * 7 + 3) % rules]), g.literal(")")])
        g.define(rule, g.alt([g.seq([g.call(names[(i + 1) % rules]), g.literal(f"<{i}>")]), inner, g.literal("n")]))
    g.start = g.call(names[0])
    return g


def test_a_component_of_forty_rules() -> None:
    g = ring(40)
    prepared = prepare(g)
    assert analyse(prepared).reasons == 0
    rng = random.Random(1)
    for _ in range(40):  # random walks: both must allow the same bytes
        one, other = Recogniser(g), Recogniser(prepared)
        for _ in range(30):
            allowed = one.allowed_bytes()
            assert allowed == other.allowed_bytes()
            if not allowed:
                break
            byte = rng.choice(sorted(allowed))
            assert one.feed(byte)
            assert other.feed(byte)
            assert one.can_finish == other.can_finish


def test_a_component_too_large_is_refused_by_name() -> None:
    with at_most(5), pytest.raises(BudgetExceededError, match="'r0', 'r1'"):
        prepare(ring(1_000))


def test_deep_nesting_is_iterative() -> None:
    g = Grammar()
    a = g.rule("a")
    body = g.alt([g.call(a), g.literal("x")])
    for _ in range(30_000):
        body = g.seq([body, g.literal("y")])
    g.define(a, body)
    g.start = g.repeat(g.repeat(g.call(a)))
    prepared = prepare(g)
    assert analyse(prepared).reasons == 0


def test_every_short_word_of_every_tiny_grammar() -> None:
    """All grammars a → p q | r with parts from {a, x, y?, ε}, since random grammars might miss some."""
    for p, q, r in itertools.product(range(4), repeat=3):
        g = Grammar()
        a = g.rule("a")
        parts = [g.call(a), g.literal(ALPHABET[:1]), g.optional(g.literal(ALPHABET[1:])), g.empty()]
        g.define(a, g.alt([g.seq([parts[p], parts[q]]), parts[r]]))
        g.start = g.seq([g.call(a), g.repeat(g.call(a), 0, 2)])
        try:
            prepared = prepare(g)
        except InvalidSpecError:
            assert (p == 0 or q == 0) and r == 0
            continue
        assert_same_language(g, prepared, 5, (p, q, r))


def test_a_rule_that_calls_itself_at_both_ends_needs_no_call_at_the_right() -> None:
    """E → E + E | ( E ) | n: no part of the rule is a call; only the part with the parentheses contains one."""
    g = Grammar()
    e = g.rule("e")
    call = g.call(e)
    sums = [g.seq([call, g.literal(sign), call]) for sign in ("+", "*")]
    g.define(e, g.alt([*sums, g.seq([g.literal("("), call, g.literal(")")]), g.literal("n")]))
    g.start = call
    prepared = prepare(g)
    assert_same_language(g, prepared, 6)
    body = prepared.rule_body[0]
    kinds = [prepared.kind[part] for part in children_of(prepared, body)]
    assert ExpressionKind.CALL not in kinds
    assert kinds.count(ExpressionKind.SEQ) == 1
