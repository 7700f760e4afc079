"""Syntax that readers of regular expressions interpret differently: white space under (?x), comments, octal escapes,
POSIX classes. Judged by `re`."""

from __future__ import annotations

import random
import re
import warnings

import pytest

from dotllm.errors import InvalidSpecError, SpecError, UnsupportedError
from dotllm.languages.regex import regex_to_dfa
from dotllm.languages.regex.parser import _POSIX

PARTS = [
    "a", "b", r"\ ", "[ab]", "[^a]", r"[\1]", r"[\12]", r"[\012a]", r"[\0]", r"[\07-\11]", r"[\377]", r"[\400]", r"[\8]",
    "(?#c)", "(?#)", "+", "*", "?", "{2}", " ", "\t", "\x0b", "\x0c", "\x1c", "\x85", "\xa0", "\u2002", "#c\n", "#", "(",
    "(?:", ")", "|", "(?x)", "(?-x:", "(?x:", "[ #]", r"\#", "[[:x:]]", "\n", "\r",
]  # fmt: skip
LETTERS = "ab \x01\n\x07\x08\t#:[]\x1c\x85\xa0c\r\xff\x0b"


def test_against_re() -> None:
    chance = random.Random(11)
    judged = 0
    for _ in range(1500):
        pattern = "".join(chance.choice(PARTS) for _ in range(chance.randint(1, 7)))
        pattern = chance.choice(["", "(?x)"]) + pattern
        if "(?x)" in pattern[1:]:  # `re` allows flags only at the beginning
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                judge = re.compile(pattern, re.ASCII)
            except re.error:
                judge = None
        try:
            dfa = regex_to_dfa(pattern, search=False)
        except UnsupportedError:
            continue
        except InvalidSpecError:
            dfa = None
        assert (judge is None) == (dfa is None), repr(pattern)
        if judge is None or dfa is None:
            continue
        for _ in range(20):
            text = "".join(chance.choice(LETTERS) for _ in range(chance.randint(0, 4)))
            assert bool(judge.fullmatch(text)) == dfa.accepts(text), (pattern, text)
            judged += 1
    assert judged > 5_000


@pytest.mark.parametrize("blank", ["\x1c", "\x1d", "\x1e", "\x1f", "\x85", "\xa0", "\u2002", "\u2028", "\u3000"])
def test_other_blanks_stand_for_themselves(blank: str) -> None:
    assert regex_to_dfa(f"(?x){blank}", search=False).accepts(blank)
    assert not regex_to_dfa(f"(?x)a{blank}*", search=False).is_empty()


@pytest.mark.parametrize("dialect", ["python", "ecma"])
@pytest.mark.parametrize("name", [*_POSIX, "^alpha"])
def test_classes_of_posix_are_refused_by_name(name: str, dialect: str) -> None:
    for pattern in (f"[[:{name}:]]+", f"x[_[:{name}:]-]", f"[^[:{name}:]]"):
        with pytest.raises(UnsupportedError, match=r"POSIX class.*write ") as refusal:
            regex_to_dfa(pattern, search=False, dialect=dialect)  # type: ignore[arg-type]
        assert refusal.value.keyword == "POSIX class"


def test_what_to_write_for_a_class_of_posix_is_that_class() -> None:
    """According to the C locale on ASCII."""
    for name, has in {
        "alnum": str.isalnum, "alpha": str.isalpha, "digit": str.isdigit, "lower": str.islower, "upper": str.isupper,
        "space": lambda c: c in " \t\n\v\f\r", "blank": lambda c: c in " \t", "word": lambda c: c.isalnum() or c == "_",
        "cntrl": lambda c: not c.isprintable(), "print": str.isprintable, "graph": lambda c: c.isprintable() and c != " ",
        "punct": lambda c: c.isprintable() and not c.isalnum() and c != " ",
        "xdigit": lambda c: c in "0123456789abcdefABCDEF", "ascii": lambda _: True,
    }.items():  # fmt: skip
        dfa = regex_to_dfa(f"[{_POSIX[name]}]", search=False)
        assert [c for c in map(chr, range(128)) if dfa.accepts(c) != has(c)] == [], name


def test_a_class_of_classes_signs_is_one() -> None:
    assert regex_to_dfa("[:alpha:]", search=False).accepts(":")  # not inside another pair of brackets
    assert regex_to_dfa("[[:alfa:]]", search=False).accepts("a]")


def test_line_breaks_say_what_to_write() -> None:
    with pytest.raises(UnsupportedError) as refusal:
        regex_to_dfa(r"a\Rb", search=False)
    written = refusal.value.help.removeprefix("write ")
    dfa = regex_to_dfa(f"a{written}b", search=False)
    breaks = ["\r\n", "\n", "\v", "\f", "\r", "\x85", "\u2028", "\u2029"]
    assert all(dfa.accepts(f"a{one}b") for one in breaks) and not dfa.accepts("a b")


def test_octal_escapes_in_classes() -> None:
    assert regex_to_dfa(r"[\1-\12]", search=False).accepts("\n")
    for pattern in (r"[\400]", r"[\777]", r"[\8]"):
        with pytest.raises(SpecError):
            regex_to_dfa(pattern, search=False)
