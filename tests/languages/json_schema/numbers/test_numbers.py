"""Numbers: the algebra against exact arithmetic, and the texts against the values they stand for."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dotllm.errors import BudgetExceededError, InvalidSpecError, Pointer, SpecError
from dotllm.grammar import Grammar
from dotllm.languages.json_schema import json_schema_to_grammar
from dotllm.languages.json_schema.context import Context
from dotllm.languages.json_schema.numbers.number_expression import number_expression, spellings
from dotllm.languages.json_schema.numbers.number_language import ANY_NUMBER, INTEGERS, NumberLanguage
from dotllm.languages.json_schema.numbers.number_text import NumberConstraint, magnitudes
from dotllm.languages.json_schema.numbers.real_set import RealSet, exact
from tests.cases import few, sample
from tests.languages.json_schema.scalar_texts import acceptor, grammar_of

N = NumberLanguage
ANY, INTEGER = ANY_NUMBER, INTEGERS

CASES = [
    (ANY, "0 -0 1 -1 10 1.5 1.50 0.0 1e5 1E+05 -2.5e-10 12.75e3 0e0 12345678901234567890123", "01 1. .5 +1 1e - 1e+ -"),
    (INTEGER, "0 -0 7 -12 12345678901234567890", "1.0 1e2 01 -01"),
    (N.interval(0), "0 0.0 5 0.001 1e400 0e5 0.5e-3", "-0 -1 -0.0"),
    (N.interval(0, low_open=True), "0.1 5 1e-400 0.0001", "0 0.0 0e5 0.0e5 -1"),
    (N.interval(None, 0), "0 -0 -0.0 -5 -1e9", "1 0.1 1e-9"),
    (N.interval(0, 100), "0 100 100.0 99.999 1e2 1.0E+02 9.9e1 1e-07 0e9 7", "100.01 101 1e3 1.01e2 -0 -1 12e1"),
    (N.interval(0.1, 0.3), "0.1 0.10 0.2 0.3 0.300 1e-1 3.0e-01 2.5e-1", "0 0.09 0.31 0.3001 1e0 1e-2 3.01e-1"),
    (N.interval(1, 2, low_open=True, high_open=True), "1.5 1.0001 1.999 1.5e0", "1 1.0 2 2.0 1e0 2e0"),
    (N.interval(-180, 180), "-180 180.0 -0 0 179.99 -1.8e2", "-180.5 181 -1.81e2 1.9e2"),
    (N.interval(0.5), "0.5 0.50 1 1e5 5e-1 12.5", "0.49 0 4.9e-1 5e-2"),
    (N.multiple_of(0.01), "0 1 1.2 1.25 -0.01 1.250 10.00", "0.001 1.255 1e2"),
    (N.multiple_of(2.5), "0 5 2.5 -7.5 2.500 10.0", "1 2 2.25 7"),
    (N.multiple_of(1e-8), "0 1 0.00000001 0.123456780", "0.000000001"),
    (INTEGER & N.multiple_of(1000), "0 1000 -25000", "100 1001 1000.0"),
    (INTEGER & N.multiple_of(0.5), "0 1 2 7", "0.5 1.0"),
    (INTEGER & N.interval(3, 17), "3 9 10 17", "2 18 1 170 3.0"),
    (INTEGER & N.interval(-5, 5, low_open=True), "-4 0 5 -0", "-5 6"),
    (INTEGER & N.interval(0, 3.6893488147419103e19), "36893488147419103000", "36893488147419103001"),
    (INTEGER & ~N.multiple_of(2), "1 3 -7 11", "0 2 -4"),
    (ANY & ~INTEGER, "1.5 0.5 -2.25 1e-7 1.50", "0 1 1.0 1.00 1e0 -0.0"),
    (N.finite([1, 2.5, -3]), "1 1.0 2.5 -3 -3.0", "2 2.50 3 1e0"),
    (N.finite([1e-7, 1e22]), "1e-07 1e-7 0.0000001 1e+22 1e22 10000000000000000000000", "1e-8 1e+21"),
    (INTEGER & N.finite([1, 2.5, 7]), "1 7", "1.0 2.5 2"),
    (ANY & ~N.finite([5]), "4 6 5.1 4.999 50 6e0 1.5", "5 5.0 5e0"),
    (N.interval(0, 1) | N.interval(10, 11), "0.5 1 10 11 1.05e1", "5 1.5 9.9 12"),
    (INTEGER | N.interval(0, 1), "5 -7 0.5 1 0.25", "5.0 1.5"),
]  # fmt: skip


@pytest.mark.parametrize(("language", "inside", "outside"), CASES)
def test_texts(language: NumberLanguage, inside: str, outside: str) -> None:
    accepts = acceptor(language)
    assert [text for text in inside.split() if not accepts(text)] == []
    assert [text for text in outside.split() if accepts(text)] == []


def test_integer_intervals_by_brute_force() -> None:
    for low, high in [(0, 0), (7, 123), (-30, 205), (99, 100), (-1, 9), (10, 1000)]:
        accepts = acceptor(INTEGER & N.interval(low, high))
        found = [k for k in range(-1100, 1101) if accepts(str(k))]
        assert found == list(range(low, high + 1))


# -- against exact arithmetic ------------------------------------------------------------------------------------------

numbers = st.one_of(
    st.integers(-30, 130),
    st.decimals("-20", "120", places=2),
    st.sampled_from([0, 0.5, Decimal("0.05"), 1e-7, -1e22, 10**20, 100]),
)
steps = st.sampled_from([1, 2, 3, 7, 10, 60, Decimal("0.5"), Decimal("0.01"), Decimal("2.5"), Decimal("0.25")])
atoms = st.one_of(
    st.just(INTEGER),
    st.builds(N.multiple_of, steps),
    st.builds(
        lambda ends, left, right: N.interval(min(ends), max(ends), low_open=left, high_open=right),
        st.tuples(numbers, numbers),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(lambda end, left: N.interval(end, low_open=left), numbers, st.booleans()),
    st.builds(lambda end, right: N.interval(None, end, high_open=right), numbers, st.booleans()),
    st.builds(N.finite, st.lists(numbers, min_size=1, max_size=4)),
)


@st.composite
def combinations(draw: st.DrawFn) -> tuple[NumberLanguage, object]:
    """A language, and the same expression as nested tuples."""
    language = draw(atoms)
    tree: object = language
    for _ in range(draw(st.integers(0, 3))):
        operation = draw(st.sampled_from("&|~"))
        if operation == "~":
            language, tree = ~language, ("~", tree)
        else:
            other = draw(atoms)
            language = language & other if operation == "&" else language | other
            tree = (operation, tree, other)
    return language, tree


def judged(tree: object, value: Fraction) -> bool:
    """Membership according to the expression, without the algebra."""
    if isinstance(tree, NumberLanguage):
        return tree.contains(value)
    assert isinstance(tree, tuple)
    if tree[0] == "~":
        return not judged(tree[1], value)
    left, right = judged(tree[1], value), judged(tree[2], value)
    return left and right if tree[0] == "&" else left or right


@given(combinations(), st.lists(numbers, min_size=1, max_size=8))
@settings(max_examples=few(300))
def test_algebra(combination: tuple[NumberLanguage, object], values: list[int | float | Decimal]) -> None:
    language, tree = combination
    for value in values:
        assert language.contains(value) == judged(tree, Fraction(exact(value)))
    if language.is_empty():
        assert not any(judged(tree, Fraction(k, 100)) for k in range(-3000, 13000, 7))
    listed = language.finite_values(50)
    if listed is not None:
        assert all(judged(tree, Fraction(value)) for value in listed)
        assert sorted(set(listed)) == listed


digits = st.text("0123456789", min_size=1, max_size=4)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A JSON number, decimal or with an exponent."""
    whole = draw(st.one_of(st.integers(0, 130), st.integers(0, 10**21))).__str__()
    fraction = draw(
        st.one_of(st.just(""), digits.map(lambda d: "." + d), st.sampled_from([".0", ".00", ".5", ".50", ".25"]))
    )
    exponent = draw(
        st.one_of(st.just(""), st.builds("e{:+03}".format, st.integers(-9, 23)), st.sampled_from(["E2", "e0", "e-1"]))
    )
    return draw(st.sampled_from(["", "-"])) + whole + fraction + exponent


@given(combinations(), st.lists(texts(), min_size=1, max_size=10))
@settings(max_examples=few(300))
def test_texts_against_values(combination: tuple[NumberLanguage, object], candidates: list[str]) -> None:
    language, tree = combination
    accepts = acceptor(language)
    single = {
        low[0] for _, part in language.parts for low, high in part.intervals() if low and high and low[0] == high[0]
    }
    for text in candidates:
        value = Fraction(Decimal(text))
        belongs = judged(tree, value)
        if accepts(text):
            assert belongs, text
        elif belongs and value not in single:
            # Then only the spelling is not allowed.
            assert "e" in text.lower() or "." in text or text.startswith("-0"), text
            shapes = [part[0] for part in language.parts if NumberLanguage([part]).contains(value)]
            if "e" not in text.lower() and not text.startswith("-0"):
                assert all(shape.integer for shape in shapes), text


@given(combinations(), numbers)
@settings(max_examples=few(200))
def test_what_serialisers_print_is_accepted(combination: tuple[NumberLanguage, object], value: int | Decimal) -> None:
    language, _ = combination
    value = int(value) if value == int(value) else float(value)
    if not language.contains(value):
        return
    shapes = [shape for shape, part in language.parts if exact(value) in part]
    unusual = isinstance(value, float) and (value.is_integer() or "e" in repr(value))
    if unusual and any(shape.step is not None or shape.not_steps for shape in shapes):
        return
    assert acceptor(language)(json.dumps(value)), (language, value)


@pytest.mark.parametrize(
    "value", [0, 5, -17, 10**30, 1.5, -0.25, 1e-7, 1.6e-05, 0.0001, 1e16, 1.5e22, 1e21, 1.2345678901234567e300, 5e-324]
)
def test_spellings_are_what_python_prints(value: int | float) -> None:
    words = spellings(exact(value))
    assert json.dumps(value).encode() in words
    assert {Fraction(Decimal(word.decode())) for word in words} == {Fraction(exact(value))}


# -- size, budgets, errors ---------------------------------------------------------------------------------------------


def test_bounds_of_any_size() -> None:
    big = 10**400 + 7
    language = INTEGER & N.interval(-big, big)
    accepts = acceptor(language)
    assert accepts(str(big)) and accepts(str(-big)) and accepts("5")
    assert not accepts(str(big + 1)) and not accepts("1" + "0" * 401)
    network = magnitudes(RealSet.interval(0, big), NumberConstraint(True, 1))
    assert network.states < 3 * 401
    half = N.interval(0, Decimal("0." + "3" * 200))
    accepts = acceptor(half)
    assert accepts("0." + "3" * 200) and not accepts("0." + "3" * 199 + "4") and accepts("3.3e-1")


def test_minus_sign_only_where_negative_numbers_are() -> None:
    for language, allowed in [
        (N.interval(0), False),
        (INTEGER & N.interval(0, 9), False),
        (INTEGER, True),
        (N.interval(-1), True),
    ]:
        assert acceptor(language)("-0") == allowed


def test_multiples_of_a_power_of_ten_need_few_states() -> None:
    assert magnitudes(RealSet.interval(0, None), NumberConstraint(True, 1000)).states < 10
    assert magnitudes(RealSet.interval(0, None), NumberConstraint(True, 429)).states < 440


def test_budget() -> None:
    with pytest.raises(BudgetExceededError):
        grammar_of(INTEGER & N.multiple_of(1_000_003))
    with pytest.raises(BudgetExceededError):
        exact(Decimal("1e100000"))


def test_floats_with_another_form() -> None:
    """``repr(np.float64(0.1))`` is not a number; it once ended in `decimal.InvalidOperation`."""
    assert exact(np.float64(0.1)) == Fraction(1, 10)
    assert N.finite([np.float64(1.5)]).contains(1.5)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, True])
def test_no_number(value: float) -> None:
    with pytest.raises(InvalidSpecError):
        N.finite([value])


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "9" * 5000, "-1e" + "9" * 30])
@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ("%s", ""),
        ('{"default": %s}', "/default"),
        ('{"properties": {"a/b": {"minimum": 1, "maximum": %s}}, "x": 1}', "/properties/a~1b/maximum"),
        ('{"enum": [0, 1.5, {"x": [2, %s]}], "const": 3}', "/enum/2/x/1"),
        ('{"allOf": [{}, {"const": %s}, {"const": %s}]}', "/allOf/1/const"),
        ('{"minimum": %s, "minimum": 1}', None),  # only the last member of a name counts
    ],
)
def test_a_number_that_no_reader_reads_is_refused_with_its_place(number: str, schema: str, pointer: str | None) -> None:
    with pytest.raises(SpecError, match=r"is not a number|too many digits") as refusal:
        json_schema_to_grammar(schema.replace("%s", number))
    place = refusal.value.location
    assert (place.path if isinstance(place, Pointer) else place) == pointer


@pytest.mark.parametrize("step", [0, -1, -0.5])
def test_multiple_of_must_be_positive(step: float) -> None:
    with pytest.raises(InvalidSpecError):
        N.multiple_of(step)


def test_emptiness() -> None:
    assert (N.interval(3, 2)).is_empty()
    assert (INTEGER & N.interval(0.1, 0.9)).is_empty()
    assert (N.multiple_of(7) & N.interval(1, 6)).is_empty()
    assert (INTEGER & ~N.multiple_of(1)).is_empty()
    assert (INTEGER & ~N.multiple_of(2) & N.interval(4, 4)).is_empty()
    assert (INTEGER & N.interval(0, 1) & ~N.finite([0, 1])).is_empty()
    assert not (N.interval(0, 1) & ~INTEGER).is_empty()


def test_values_of_many_digits_are_spelled_exactly() -> None:
    value = Decimal("1.2345678901234567890123456789012345678901234567890")
    accepts = acceptor(N.finite([value, 10**40 + 1]))
    assert accepts("1.234567890123456789012345678901234567890123456789") and accepts(str(10**40 + 1))
    assert not accepts("1.234567890123456789012345679") and not accepts(str(10**40))


def test_equal_sets_are_equal_keys() -> None:
    assert INTEGER & N.interval(0.5, 3.5) == INTEGER & N.interval(0, 4, low_open=True, high_open=True)
    assert INTEGER & N.finite([1, 2, 3]) == INTEGER & N.interval(1, 3)
    assert ~~N.interval(0, 5) == N.interval(0, 5)
    assert INTEGER | ANY == ANY
    assert N.multiple_of(2) & N.multiple_of(3) == N.multiple_of(6)
    assert hash(N.multiple_of(2) & N.multiple_of(3)) == hash(N.multiple_of(6))


def test_one_rule_for_all_uses() -> None:
    grammar = Grammar()
    context = Context(grammar, grammar.empty(), bounded_numbers=False)
    first = number_expression(N.interval(0, 5), context)
    size = len(grammar)
    assert number_expression(N.interval(0, 5), context) == first
    assert len(grammar) == size


@pytest.mark.parametrize(
    ("step", "inside", "outside"),
    sample([(8721, "0 8721 17442 8721.0 87210", "8720 1 8721.5 0.1"), (4003, "4003 40030.00", "4003.003 4004")]),
)
def test_large_steps(step: int, inside: str, outside: str) -> None:
    """After the point, only zeros can follow in a multiple of an integer, so no residue needs states there."""
    accepts = acceptor(N.multiple_of(step))
    assert [text for text in inside.split() if not accepts(text)] == []
    assert [text for text in outside.split() if accepts(text)] == []


@pytest.mark.parametrize("divisor", sample([10**1999, 3 * 10**1500, Decimal("7e900")]))
def test_the_work_for_a_long_divisor_is_bounded(divisor: int | Decimal) -> None:
    """A power of ten needs few states, but once took 40 s: each residue of 2,000 digits was compared digit by digit."""
    with pytest.raises(BudgetExceededError, match="multiples") as caught:
        grammar_of(N.multiple_of(divisor))
    assert caught.value.keyword == "multipleOf"


def test_a_divisor_as_long_as_the_largest_double_is_not_refused() -> None:
    accepts = acceptor(INTEGER & N.multiple_of(10**308))
    assert accepts("7" + "0" * 308) and not accepts("7" + "0" * 307)
