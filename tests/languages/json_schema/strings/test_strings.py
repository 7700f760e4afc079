"""Strings: the algebra and its texts against `re` and `len`."""

from __future__ import annotations

import json
import re
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dotllm.automata.dfa import Dfa
from dotllm.automata.kinds import NfaArray
from dotllm.automata.lowering import lower
from dotllm.cancellation import Cancelled, cancellable
from dotllm.errors import BudgetExceededError, InvalidSpecError, SpecError
from dotllm.grammar import Grammar
from dotllm.grammar.transform import prepare
from dotllm.languages.json_schema import json_schema_to_grammar
from dotllm.languages.json_schema.context import Context
from dotllm.languages.json_schema.strings import string_automata, string_network
from dotllm.languages.json_schema.strings.string_language import ANY_STRING, NO_STRING, StringLanguage
from dotllm.languages.json_schema.strings.string_text import key_expression, string_expression
from dotllm.languages.regex import regex_to_dfa
from tests.cases import few
from tests.languages.json_schema.scalar_texts import acceptor, grammar_of, machine_acceptor, spelled

S = StringLanguage

LABELS = ("a" * 63 + ".") * 3
WORDS = ("a" * 19 + " ") * 10

# Read alike by ECMA-262 and `re`.
PATTERNS = ["^a", "b$", "^[ab]{2,3}$", "a.b", "^x-", "[0-9]", "^$", "^(ab)*$", '"', r"^\\", "^[^é]*$", r"\n"]
PATTERNS += ["^(?!ab)", "a{2,}", "^[a-c]{1,40}$"]
TEXTS = st.text('ab c"\\\né😀0x-', max_size=7)

atoms = st.one_of(
    st.builds(lambda low, more: S.length(low, low + more), st.integers(0, 3), st.integers(0, 3)),
    st.builds(S.length, st.integers(0, 4)),
    st.sampled_from(PATTERNS).map(S.pattern),
    st.lists(TEXTS, max_size=4).map(S.finite),
    st.lists(TEXTS, max_size=4).map(S.excluding),
    st.just(ANY_STRING),
)


@st.composite
def combinations(draw: st.DrawFn) -> tuple[StringLanguage, object]:
    language = draw(atoms)
    tree: object = language
    for _ in range(draw(st.integers(0, 3))):
        operation = draw(st.sampled_from("&|~&"))
        if operation == "~":
            language, tree = ~language, ("~", tree)
        else:
            other = draw(atoms)
            language = language & other if operation == "&" else language | other
            tree = (operation, tree, other)
    return language, tree


def judged(tree: object, text: str) -> bool:
    """Membership according to the expression; `re` and `len` judge single conditions."""
    if isinstance(tree, StringLanguage):
        if text in tree.values:
            return True
        for constraint in tree.constraints:
            patterns = [str(atom.content) for atom in constraint.having]
            long_enough = constraint.low <= len(text) and (constraint.high is None or len(text) <= constraint.high)
            # In `re`, $ also matches before a final line feed.
            matches = (re.search(re.sub(r"\$$", r"\\Z", pattern), text) for pattern in patterns)
            if long_enough and text not in constraint.excluded and all(matches):
                return True
        return False
    assert isinstance(tree, tuple)
    if tree[0] == "~":
        return not judged(tree[1], text)
    left, right = judged(tree[1], text), judged(tree[2], text)
    return left and right if tree[0] == "&" else left or right


@given(combinations(), st.lists(TEXTS, min_size=1, max_size=8))
@settings(max_examples=few(250))
def test_algebra_and_texts(combination: tuple[StringLanguage, object], candidates: list[str]) -> None:
    language, tree = combination
    listed = language.finite_values(20)
    as_value, as_key = acceptor(language), acceptor(language, as_key=True)
    for text in [*candidates, *(listed or [])]:
        expected = judged(tree, text)
        assert language.contains(text) == expected, text
        assert as_value(spelled(text)) == expected, text
        assert as_key(spelled(text)) == expected, text
        if expected:
            assert not language.is_empty()
            assert listed is None or text in listed
    assert (listed == []) == language.is_empty()


@given(combinations(), TEXTS)
@settings(max_examples=few(100))
def test_automaton(combination: tuple[StringLanguage, object], text: str) -> None:
    language, tree = combination
    assert language.dfa().accepts(text) == judged(tree, text)


@given(st.lists(st.text('abcé"\n_', max_size=5), max_size=12), st.lists(st.text('abcé"\n_', max_size=6), max_size=12))
@settings(max_examples=few(150))
def test_all_but_some_names(names: list[str], others: list[str]) -> None:
    accepts = acceptor(S.excluding(names), as_key=True)
    for text in [*names, *others]:
        assert accepts(spelled(text)) == (text not in names)


def test_all_but_many_names_is_linear() -> None:
    names = [f"property_{i}_{i * 7919 % 1000}" for i in range(1000)]
    grammar = grammar_of(S.excluding(names), as_key=True)
    assert len(grammar.children) < 8 * sum(map(len, names))
    accepts = acceptor(S.excluding(names[:50]), as_key=True)
    assert not accepts(spelled(names[7])) and accepts(spelled(names[7] + "x")) and accepts(spelled(names[60]))


def test_declared_names_cannot_hide_behind_escapes() -> None:
    accepts = acceptor(S.excluding(["foo"]), as_key=True)
    assert not accepts('"foo"') and not accepts('"f\\u006fo"') and accepts('"fo"')


@pytest.mark.parametrize(
    ("pattern", "low", "high", "inside", "outside"),
    [
        ("^[a-z]+$", 0, 5000, ["a", "a" * 5000], ["", "a" * 5001, "A"]),
        ("^[a-z]+$", 10, None, ["a" * 10], ["a" * 9]),
        (r"\.ya?ml$", 0, 300, ["x.yml", "é" * 295 + ".yaml"], ["x.ymll", "é" * 296 + ".yaml"]),
        ("^data:image/(jpg|jpeg|svg);base64,[A-Za-z0-9+/=]*$", 0, 32767, ["data:image/svg;base64,"], ["data:;base64,"]),
        ("^data:[a-z]+;base64,[A-Za-z0-9+/=]*$", 0, 2000, ["data:a;base64,"], ["data:;base64,"]),
        (r"^(?:\S+\s+){0,29}\S+$", 1, 300, ["a b", "ab " * 29 + "c"], ["a " * 30 + "b", "a" * 301, " a"]),
        (
            r"^[a-z]{1,63}(\.[a-z]{1,63}){1,8}$",
            0,
            253,
            ["a.b", LABELS + "b" * 61],
            ["a", LABELS + "b" * 62, "a" * 64 + ".b"],
        ),
        (
            r"^(\w{1,30}[ ,]){1,20}$",
            30,
            200,
            ["abcd," * 20, "a" * 30 + " "],
            ["abcd," * 21, "a" * 31 + " ", WORDS[1:] + "aa,"],
        ),
        ("^(ab)*$", 3, 5, ["abab"], ["ab", "ababab", "aba"]),
        ('"', 2, 3, ['"a', 'ab"', '""'], ['"', "ab", 'abc"']),
    ],
)
def test_pattern_with_length(pattern: str, low: int, high: int | None, inside: list[str], outside: list[str]) -> None:
    accepts = acceptor(S.pattern(pattern) & S.length(low, high))
    assert [text for text in inside if not accepts(spelled(text))] == []
    assert [text for text in outside if accepts(spelled(text))] == []


@settings(max_examples=few(60))
@given(
    pattern=st.sampled_from(
        [
            r"^(?:a+b)*$",
            r"^(?:[ab]+ )*[ab]+$",
            r"^(?:ab|ba)*$",
            r"^a*(?:\"b*\")*$",
            r"^(?:(?:aab)+é|b)*$",
            r"^(?:[^b]|b[^a])*$",
            r"a.b.*a",
        ]
    ),
    low=st.integers(0, 9),
    more=st.integers(0, 90),
    data=st.data(),
)
def test_automata_with_lengths(pattern: str, low: int, more: int, data: st.DataObject) -> None:
    """`re` judges; some limits are small enough to be built into the automaton, and the machine counts the others."""
    high = low + more
    language = S.pattern(pattern) & S.length(low, high)
    accepts = machine_acceptor(language) if not language.is_empty() else lambda text: False
    for _ in range(8):
        exact = data.draw(st.from_regex(pattern, alphabet=st.sampled_from('ab é"')))
        text = data.draw(st.sampled_from([exact, exact * 3, (exact * 120)[: high + data.draw(st.integers(-2, 2))]]))
        expected = low <= len(text) <= high and re.search(pattern.replace("$", r"\Z"), text) is not None
        assert accepts(spelled(text)) == expected, text


@pytest.mark.parametrize("name", ["uri", "iri-reference", "email", "uri-template"])
def test_formats_of_many_characters(name: str) -> None:
    """With a limit to which no automaton can count; near the limit, nothing may begin that does not fit."""
    texts = {"uri": "a://b/%20", "iri-reference": "é?%20", "email": "a@b.cc", "uri-template": "{a}b{c}"}
    language = S.format(name)
    assert language is not None
    grammar = grammar_of(language & S.length(0, 60_000))
    assert len(grammar) + len(grammar.children) < 20_000
    short = machine_acceptor(language & S.length(0, len(texts[name])))
    assert short(spelled(texts[name]))
    assert not short(spelled(texts[name] + "b"))
    assert not short(spelled(texts[name][:-1] + "bb"))


def test_long_lengths_stay_counted() -> None:
    for language in (
        S.pattern(r"^(a+b+)*$") & S.length(0, 50_000),
        S.length(3, 100_000),
        S.pattern("^[a-z]+$") & S.length(0, 100_000),
        S.pattern("^https://.+$") & S.length(0, 100_000),
        S.pattern("^x-.*$") & ~S.finite(["x-a"]) & S.length(0, 100_000),
    ):
        grammar = grammar_of(language)
        assert len(grammar) + len(grammar.children) < 400


def test_lengths_beyond_all_texts() -> None:
    accepts = acceptor(S.length(0, 2**31 - 1))
    assert accepts('"abc"')
    with pytest.raises(BudgetExceededError):
        grammar_of(S.length(2**31))


def test_budget_names_the_keyword() -> None:
    language = S.pattern(r"^(a+b+)*$") & S.length(50_000)
    with pytest.raises(SpecError) as caught:
        grammar_of(language)
    assert isinstance(caught.value, BudgetExceededError)


def test_the_pattern_that_zod_writes_for_emoji() -> None:
    properties = (
        r"[\p{Extended_Pictographic}\p{Regional_Indicator}\u20E3]",
        r"[\p{Extended_Pictographic}\p{Emoji_Component}]",
    )
    accepts = acceptor(S.pattern(rf"^(?=[\s\S]*{properties[0]}){properties[1]}+$"))
    assert all(accepts(json.dumps(text, ensure_ascii=False)) for text in ("😀", "👩‍👩‍👧", "🇫🇷", "1️⃣"))
    assert not any(accepts(json.dumps(text, ensure_ascii=False)) for text in ("", "1", "a", "😀a"))


def test_wrong_pattern_is_refused() -> None:
    with pytest.raises(InvalidSpecError):
        grammar_of(S.pattern("(a"))


def test_emptiness() -> None:
    assert NO_STRING.is_empty() and S.finite([]).is_empty() and S.length(3, 2).is_empty()
    assert (S.pattern("^a$") & S.length(2)).is_empty()
    assert (S.pattern("^a") & S.pattern("^b")).is_empty()
    assert S.pattern("a^b").is_empty() and not S.pattern("^a$").is_empty()
    assert (S.length(0, 0) & ~S.finite([""])).is_empty()
    assert (S.pattern("^[ab]$") & ~S.finite(["a", "b"])).is_empty()
    assert not (~S.finite(["a"])).is_empty()
    date = S.format("date")
    assert date is not None and (date & S.length(0, 9)).is_empty() and not (date & S.length(10, 10)).is_empty()


def test_equal_languages_are_equal_keys() -> None:
    assert S.length(0, 3) | S.length(4) == ANY_STRING
    assert ~~S.length(2, 3) == S.length(2, 3)
    assert S.finite(["a"]) | ~S.finite(["a"]) == ANY_STRING
    assert S.pattern("a") & S.pattern("b") == S.pattern("b") & S.pattern("a")
    assert hash(S.pattern("a") & S.length(1)) == hash(S.length(1) & S.pattern("a"))
    assert ANY_STRING & S.pattern("a") == S.pattern("a")


def test_one_rule_for_all_uses() -> None:
    grammar = Grammar()
    context = Context(grammar, grammar.empty())
    first = string_expression(S.length(1, 5), context)
    size = len(grammar)
    assert string_expression(S.length(1, 5), context) == first
    assert len(grammar) == size
    # A condition is spelled the same in keys and values, but a length is not.
    assert string_expression(S.pattern("^a$"), context) == key_expression(S.pattern("^a$"), context)
    assert key_expression(S.length(1, 5), context) != first


def test_many_alternatives_become_one_automaton() -> None:
    language = NO_STRING
    for i in range(30):
        language = language | (S.pattern(f"^{i}x") & S.length(2, 5 + i))
    assert len(language.constraints) <= 16
    accepts = acceptor(language)
    assert (
        accepts('"7xabc"')
        and not accepts('"7yabc"')
        and language.contains("29x")
        and not language.contains("29x" + "a" * 40)
    )


def test_content_of_an_automaton_that_reads_only_escapes() -> None:
    grammar = Grammar()
    grammar.start = string_network.content(grammar, (S.pattern('^["\\\\\n]{2}$')).dfa())
    from tests.grammar.reference import accepts

    assert accepts(grammar, b'\\"\\n') and accepts(grammar, b"\\\\\\u000A") and not accepts(grammar, b'"\\n')


@pytest.mark.parametrize(
    "pattern", ["a*b", "(ab)*", "a{2,7}|b*", "(?:a|bb)*c?", "x", "[^a]*a.{3}", "(?:aa|bbb)*", "a(b|c{4})*"]
)
def test_characters_are_counted_as_by_an_intersection(pattern: str) -> None:
    dfa = regex_to_dfa(pattern, search=False, dialect="ecma")
    for low in (0, 1, 3, 6):
        for high in (0, 1, 4, 7, None):
            expected = dfa & Dfa.length(low, high)
            assert string_network.limited(dfa, low, high) == expected, (low, high)


def test_a_long_limit_beside_a_format() -> None:
    email = S.format("email")
    assert email is not None
    accepted = acceptor(email & S.length(0, 1024))
    domain = "b" * 1017 + ".bbb"
    assert accepted(f'"a@{domain}b"') and not accepted(f'"a@{domain}bb"')
    assert accepted('"a@[IPv6:::1]"')


def test_a_key_that_must_not_match_ends_in_one_loop() -> None:
    """The machine has tables for a loop over one set; a state shared by several sources would hide the loop."""
    nfa = lower(prepare(grammar_of(~S.pattern("^/") & S.excluding(["name", "status"]), as_key=True)))
    (looping,) = np.flatnonzero(nfa.part(NfaArray.CHARSET) >= 0)
    first, last = nfa.part(NfaArray.EDGE_START)[looping : looping + 2]
    closure, starts = nfa.part(NfaArray.CLOSURE), nfa.part(NfaArray.CLOSURE_START)
    assert any(looping in closure[starts[to] : starts[to + 1]] for to in nfa.part(NfaArray.EDGE_TARGET)[first:last])


def test_automata_of_users_patterns_are_bounded_by_bytes() -> None:
    """Once only their number was bounded: 120 schemas of 291 characters retained 114 MB in each process."""
    patterns = string_automata._automaton_of_pattern
    others = "|".join(f"{chr(0x5000 + i)}{chr(0x5001 + i)}" for i in range(80))
    for first in range(0x4E00, 0x4E00 + 24):
        assert not StringLanguage.pattern(f"[a{chr(first)}].{{4}}z|{others}").dfa().is_empty()
    tables = sum(dfa.table.nbytes for dfa, _ in {**patterns._old, **patterns._young}.values())
    assert 4 << 20 < tables <= patterns.nbytes <= string_automata._AUTOMATA_MEMO
    assert string_automata._unlimited.nbytes <= string_automata._AUTOMATA_MEMO


LENGTHS_OF = {
    "(ab)*": lambda n: n % 2 == 0,
    "(aaa)*b?": lambda n: n % 3 < 2,
    "x(aa)*|y(aaa)*|z(a{5})*": lambda n: n > 0 and 0 in ((n - 1) % 2, (n - 1) % 3, (n - 1) % 5),
    "(a{97})*|b{12}": lambda n: n % 97 == 0 or n == 12,
    "a{3}(bc)*": lambda n: n >= 3 and n % 2 == 1,
    "a{2,5}|a{9}": lambda n: 2 <= n <= 5 or n == 9,
}


@pytest.mark.parametrize("pattern", LENGTHS_OF)
def test_lengths_of_strings(pattern: str) -> None:
    """All windows of small lengths and of lengths of ten digits, against a formula."""
    dfa, is_length = regex_to_dfa(pattern, search=False), LENGTHS_OF[pattern]
    for base in (0, 1_000_000_000):
        for low in range(base, base + 30):
            for width in (0, 1, 4, 20):
                expected = any(is_length(n) for n in range(low, low + width + 1))
                assert string_network.has_length(dfa, low, low + width) == expected, (low, width)
    assert string_network.has_length(dfa, 1_000_000_000, None) == any(
        is_length(n) for n in range(1_000_000_000, 1_000_000_200)
    )


def test_a_length_of_ten_digits_takes_no_time_and_can_be_given_up() -> None:
    """A pattern whose lengths repeat after millions of characters is refused by name, and can be cancelled."""
    primes = (2, 3, 5, 7, 11, 13, 17, 19, 23)
    dfa = regex_to_dfa("|".join(f"{chr(97 + i)}(x{{{p}}})*y" for i, p in enumerate(primes)), search=False)
    with pytest.raises(BudgetExceededError, match="lengths"):
        string_network.has_length(dfa, 1_000_000_000, 1_000_000_000)
    event = threading.Event()
    event.set()
    with cancellable(event), pytest.raises(Cancelled):
        string_network.has_length(dfa, 1_000_000_000, 1_000_000_000)


def test_more_names_than_can_stand_in_any_order_are_refused_by_name() -> None:
    names = [f"k{i}" for i in range(32_768)]
    for schema, order in (
        ({"type": "object", "required": names}, "declared"),
        ({"type": "object", "properties": {name: {"const": 1} for name in names}}, "any"),
    ):
        with pytest.raises(BudgetExceededError, match="any order"):
            json_schema_to_grammar(schema, order=order)  # type: ignore[arg-type]
