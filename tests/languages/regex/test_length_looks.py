"""Look-aheads that bound the length of what follows, judged by `re`: on short texts with every bound treated as large,
and on texts around large bounds."""

from __future__ import annotations

import itertools
import random
import re

import pytest

from dotllm import Index
from dotllm.errors import BudgetExceededError
from dotllm.grammar import Grammar
from dotllm.languages.json_schema import json_schema_to_grammar
from dotllm.languages.json_schema.strings.string_language import StringLanguage
from dotllm.languages.regex import lengths, regex_to_bounded_dfas, regex_to_grammar
from tests.cases import few
from tests.grammar.reference import accepts
from tests.languages.json_schema.verdicts import Acceptor, byte_vocabulary

HOSTNAME = (
    r"^(?=.{1,253}\.?$)[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
    r"(?:\.[a-zA-Z0-9](?:[-0-9a-zA-Z]{0,61}[0-9a-zA-Z])?)*\.?$"
)  # of zod 4
TEXTS = ["".join(letters) for n in range(6) for letters in itertools.product("ab\n", repeat=n)]

BEFORE = ["", "", "a", "[ab]", "(?:a|b)", "(?!b)"]
BODIES = [".{1,3}", ".{2}", "a{1,2}b?", ".{1,2}a?", "[ab]{0,3}", "(?:a|b){2,3}", ".{0,2}\n?", "a.{1,2}", ".{1,2}|b{3,4}", ".*b", ".{3,}", "", "^.{1,3}"]  # fmt: skip
RESTS = ["[ab]+", ".*", "(?:ab?)*", "[ab\n]*", "a*b*", "(?:a|bb)+", "(?=.{2,3}$)[ab]*", "b?", "(?=^.{1,4}$)[ab]*", "(?:(?=^.{2,3}$)[ab]*|b)", "[ab]{1,3}", "(?:(?!ab|.*bbb)[ab\n]){1,4}", "a?(?!.*ab)[ab]{2,}", "(?:a|(?!.*aa).{1,3})"]  # fmt: skip


def test_against_re(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lengths, "_MANY", 1)
    chance = random.Random(2)
    split = judged = 0
    for _ in range(900):
        monkeypatch.setattr(lengths, "_MAX_WAYS", chance.choice([2, 16]))  # 2: short repetitions become bounds, too
        look = f"(?{chance.choice('==!')}{chance.choice(BODIES)}{chance.choice(['$', '$', ''])})"
        pattern = f"^{chance.choice(BEFORE)}{look}{chance.choice(RESTS)}$"
        if chance.random() < 0.2:
            pattern = f"(?:{pattern}|^a{{2}}$)"
        python = re.compile(pattern.replace("$", r"\Z"))
        parts = regex_to_bounded_dfas(pattern, search=False)
        split += parts is not None
        wrong = [
            text
            for text in TEXTS
            if parts is not None
            and bool(python.fullmatch(text))
            != any(low <= len(text) and (high is None or len(text) <= high) and dfa.accepts(text) for dfa, low, high in parts)
        ]  # fmt: skip
        judged += len(TEXTS) * (parts is not None)
        assert not wrong, (pattern, wrong[:3])
    assert split > 150 and judged > 50_000


@pytest.mark.parametrize(
    ("pattern", "valid", "invalid"),
    [
        (
            r"^(?=.*\d)(?=.*[a-z])(?=.*[A-Z])(?=.*[!@#$%^&*])(?!.*\s)(?!.*(?:password|qwerty|12345)).{12,64}$",
            ["Abcdefghij1!", "aA1!" * 16],
            ["Abcdefghi1!", "aA1!" * 16 + "a", "Abcdefgh ij1!", "aA1!password!1"],
        ),
        (r"^(?!.*\n\n\n)[\s\S]{50,5000}$", ["ab\n\n" * 1250, "a" * 50], ["a" * 49, "ab\n\n" * 1250 + "a", "a\n\n\n" * 20]),
        (r"^(?:(?!\b(?:foo|bar)\b)[\s\S]){10,1000}$", ["foobar " * 20, "a" * 1000], ["foo bar foobar", "a" * 1001]),
        (
            r"^(?!.*://)(?=.{1,255}$)((.{1,63}\.){1,127}(?![0-9]*$)[a-z0-9-]+\.?)$",  # a host name; `.` is a dot, too
            ["example.com", "a.b-1.", ("a" * 62 + ".") * 4 + "bcd", "é.." + "a" * 63 + ".c", "a/b:c.d"],
            ["example", "a.123", "a://b.c", ("a" * 62 + ".") * 4 + "bcde", "a" * 64 + ".c", "a..B"],
        ),
        (
            r"^(?=.{1,64}@.{1,255}$)[^\s@]+@[^\s@]+\.[^\s@]{2,}$",
            ["a@b.cd", "a" * 64 + "@" + "b" * 252 + ".cd"],
            ["a@b.c", "a" * 65 + "@b.cd", "a@" + "b" * 253 + ".cd", "a@@b.cd"],
        ),
        (r"^(?=(?:\S+\s+){4,49}\S+$).{20,300}$", ["words " * 49 + "w"], ["words " * 50 + "w", "words " * 3 + "w" * 20]),
    ],
)  # fmt: skip
def test_a_long_repetition_under_look_aheads(pattern: str, valid: list[str], invalid: list[str]) -> None:
    """Once refused: each place in each look-ahead, times each count, was a state."""
    in_json = Acceptor({"type": "string", "pattern": pattern})
    guide = Index.from_regex(pattern, byte_vocabulary()).guide()
    for text in (*valid, *invalid):
        alone = guide.fork()
        assert (alone.accept_string(text) and alone.can_finish) == in_json.value(text) == (text in valid)


@pytest.mark.parametrize("least", [5000, 20_000])
def test_a_refusal_speaks_of_the_pattern(least: int) -> None:
    """And not of the operations that combine its automaton with a length."""
    with pytest.raises(BudgetExceededError, match=f"a pattern with assertions and at least {least:,} characters"):
        regex_to_grammar(rf"^(?=.*\d)(?=.*[a-z])(?=.*[A-Z]).{{{least},30000}}$")


def test_a_thousand_look_aheads() -> None:
    """They once exceeded Python's recursion limit."""
    grammar = regex_to_grammar("".join(f"(?=.{{0,{most}}}$)" for most in range(1040, 40, -1)) + "a*")
    assert accepts(grammar, b"a" * 41) and not accepts(grammar, b"a" * 42)


def _names(chance: random.Random) -> str:
    labels = ["".join(chance.choice("ab-9") for _ in range(chance.randint(1, 66))) for _ in range(chance.randint(1, 9))]
    text = ".".join(labels) + chance.choice(["", "."])
    return text[: chance.choice([252, 253, 254, 255, len(text)])]


@pytest.mark.parametrize("kind", ["pattern", "regex", "with a length", "with a format"])
def test_large_bounds(kind: str) -> None:
    limit = 200
    if kind == "regex":
        grammar = regex_to_grammar(HOSTNAME)
    else:
        more = {"with a length": {"maxLength": limit}, "with a format": {"format": "hostname"}}.get(kind, {})
        grammar = json_schema_to_grammar({"type": "string", "pattern": HOSTNAME, **more}, any_whitespace=False)
    chance = random.Random(4)
    exact = [".".join(["a" * 62] * 4)[:n] for n in (200, 201, 250, 251)]
    texts = [*exact, "a" * 63 + "." + ".".join(["b" * 62] * 3), *(_names(chance) for _ in range(few(60)))]
    texts += ["a." * 126 + "b", "a." * 126 + "b.", "a." * 126 + "bb", "a." * 127, "a." * 126, "a", "a.", ""]
    judge = re.compile(HOSTNAME.replace("$", r"\Z"))
    verdicts = []
    for text in texts:
        valid = judge.match(text) is not None
        if kind == "with a length":
            valid = valid and len(text) <= limit
        if kind == "with a format":
            valid = valid and len(text) <= 253 and not text.endswith(".")
        written = text if kind == "regex" else f'"{text}"'
        assert accepts(grammar, written.encode()) is valid, (len(text), text)
        verdicts.append(valid)
    assert any(verdicts) and not all(verdicts)


@pytest.mark.parametrize(
    "pattern",
    [
        HOSTNAME, r"^(?=.{1,253}$)(?:[a-z]{1,63}\.)+[a-z]{2,63}$", r"(?=^.{1,253}$)^(?:[a-z]{1,63}\.)+[a-z]{2,63}$",
        r"^(?!.{254})(?:[a-z]{1,63}\.)+[a-z]{2,63}$", r"^(?!.{254,}$)(?:[a-z]{1,63}\.)+[a-z]{2,63}$",
        r"^x(?=.{1,400}$)(?:[a-z]{1,63}\.)+[a-z]{2,63}$", r"^(?=.{64,254}$)(?!-)(?:[a-z-]{1,63}\.)+[a-z]{2,63}$",
        r"^(?=.{1,64}@)(?=.{6,254}$)[a-z0-9.]+@(?:[a-z0-9-]{1,63}\.)+[a-z]{2,63}$",
        r"^(?=[a-z.]{1,253}$)(?:(?:[a-z]{1,63}\.)+[a-z]{2,63})$",
    ],
)  # fmt: skip
def test_what_is_in_use_compiles(pattern: str) -> None:
    regex_to_grammar(pattern)
    json_schema_to_grammar({"type": "string", "pattern": pattern})
    json_schema_to_grammar({"type": "object", "patternProperties": {pattern: {"type": "integer"}}})


def test_a_split_pattern_is_in_the_algebra() -> None:
    language = StringLanguage.pattern(HOSTNAME)
    assert language.contains("a." * 126 + "b") and not language.contains("a." * 126 + "bb")
    assert not (~language).contains("a.b") and (~language).contains("a." * 126 + "bb")
    assert (language & ~language).is_empty() and not language.is_empty()


def test_a_grammar_has_few_nodes() -> None:
    """The machine counts, so bounds are not unrolled."""
    grammar = Grammar()
    grammar = regex_to_grammar(HOSTNAME)
    assert len(grammar.kind) < 5_000


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        (r"(?:\b\w{1,99}\b\W?){1,99}", r"a pattern with \b"),
        (r"(?:\B.{1,99}\b\W?){1,99}", r"a pattern with \B, \b"),
        (r"(?:(?=.{3,90}x)\w{1,99}(?!ab)\W?){1,99}", "a pattern with look-around"),
    ],
)
def test_a_budget_is_exceeded_in_the_words_of_the_pattern(pattern: str, named: str) -> None:
    """The message once said "a difference", which is how assertions are solved."""
    with pytest.raises(BudgetExceededError) as refused:
        regex_to_grammar(pattern)
    assert f"the automaton of {named} exceeds its budget" in str(refused.value)
