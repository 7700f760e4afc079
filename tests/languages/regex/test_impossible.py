"""An expression that no text matches is refused with the assertion that can never hold."""

from __future__ import annotations

import pytest

from dotllm.errors import InvalidSpecError, Offset
from dotllm.languages.regex import regex_to_grammar


@pytest.mark.parametrize(
    ("pattern", "offset", "message"),
    [
        ("(?<=a)b", 0, "the look-behind '(?<=a)' at offset 0 can never hold; the expression matches the whole text"),
        ("a^b", 1, "'^' at offset 1 can never hold; the expression matches the whole text"),
        ("$a", 0, "nothing comes after its end"),
        (r"a\bb", 1, "the word boundary"),
        ("(?!a)a", 0, "the look-ahead '(?!a)'"),
        ("[(?=a](?=(\\)))x(?:y)", 6, "the look-ahead '(?=(\\\\)))'"),
        ("x(?=y)", 1, "nothing comes after its end"),
        (r"(?<=\S)\s+(?=\S)", 0, "nothing comes before its beginning"),
        ("new $NAME($ARGUMENT)", 4, "'$' at offset 4 can never hold; the expression matches the whole text"),
        (r"\bс+(?=\d)", 0, "the word boundary"),  # a Cyrillic letter, which is not a word character in ASCII
        (r"(?<=(?=\b)a)b(?=c\b)", 0, "the look-behind '(?<=(?=\\\\b)a)'"),
        ("(?<=a)^b" + "(?!x)x" * 3, 0, "the look-behind"),
    ],
)
def test_the_assertion_at_fault(pattern: str, offset: int, message: str) -> None:
    with pytest.raises(InvalidSpecError) as refusal:
        regex_to_grammar(pattern)
    error = refusal.value
    assert error.related[0].location == Offset(offset)
    assert message in str(error) and error.code == "unsatisfiable"


@pytest.mark.parametrize("pattern", [r"[^\s\S]", "(?=a)(?=b)(?=c)[abc]", "(?!x)x" * 17])
def test_no_one_assertion_at_fault(pattern: str) -> None:
    with pytest.raises(InvalidSpecError, match="no text matches the regular expression") as refusal:
        regex_to_grammar(pattern)
    assert refusal.value.related == ()


@pytest.mark.parametrize("pattern", [r"[\uD800-\uDBFF][\uDC00-\uDFFF]", r"^[\ud800-\udbff]$", r"[\uDC00-\uDFFF]"])
def test_lone_surrogates(pattern: str) -> None:
    with pytest.raises(InvalidSpecError, match=r"lone surrogates.*\\u\{"):
        regex_to_grammar(pattern)


def test_pairs_of_surrogates_are_not_blamed() -> None:
    with pytest.raises(InvalidSpecError) as refusal:
        regex_to_grammar(r"\ud83d\ude00[^\s\S]")
    assert not refusal.value.help
