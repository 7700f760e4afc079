"""GBNF and xgrammar EBNF: the meaning of each construct, and what is refused, with the place and the keyword."""

from __future__ import annotations

import pytest

from dotllm.errors import InvalidSpecError, SpecError, UnsupportedError
from dotllm.languages.cfg import detect_dialect, grammar_to_grammar
from dotllm.languages.ebnf import ebnf_to_grammar
from dotllm.languages.token_names import TokenNames
from tests.grammar.reference import Recogniser, accepts


def language(grammar: str, *texts: str) -> list[str]:
    """The ``texts`` that are in the language."""
    compiled = ebnf_to_grammar(grammar)
    return [text for text in texts if accepts(compiled, text.encode())]


@pytest.mark.parametrize(
    ("body", "yes", "no"),
    [
        ('"a" | "b" "c"', ["a", "bc"], ["", "b", "ac"]),
        ('("a" | "b") "c"', ["ac", "bc"], ["a", "c"]),
        ('"a"? "b"* "c"+', ["c", "abbc"], ["a", ""]),
        ('"a"{2} "b"{1,} "c"{0,2} "d"{0}', ["aab", "aabbbcc"], ["aa", "aabccc", "aabd"]),
        ('("a"+)+ "b"{2}{2}', ["abbbb", "aaabbbb"], ["abb", "abbb"]),
        ('( ) "a"', ["a"], [""]),
        ('| "a"', ["", "a"], ["aa"]),
        (". .", ["ab", "\né"], ["a", "abc"]),
        ("[^]", ["a", "\n", "😀"], ["", "ab"]),
        ("[a-c] [^a-c\\n]", ["ad", "b😀"], ["aa", "d\n"]),
        ("[-a] [a-] [\\]\\-\\^]", ["-a]", "a--", "aa^"], ["b-]", "-b^"]),
        (r'"\x41\u00e9\U0001F600\"\\\/\e\0\a"', ['Aé😀"\\/\x1b\0\a'], ["A"]),
        ('"a" # comment | "b"\n | # more\n "c"', ["a", "c"], ["b"]),
        ('a-b a_b a.b\na-b ::= "x"\na_b ::= "y"\na.b ::= "z"', ["xyz"], ["xy"]),
        ('1st{2}2nd\n1st ::= "x"\n2nd ::= "y"', ["xxy"], ["xy"]),
        ('1{2} 22 -b{1}1-\n1 ::= "x"\n22 ::= "y"\n-b ::= "z"\n1- ::= "w"', ["xxyzw"], ["xyzw", "xxyzx"]),
        ('"\\[\\-\\]" [\\[\\]] # c\r | "d"', ["[-][", "d"], ["[-]"]),
        ('Token "(x)"\nToken ::= "t"', ["t(x)"], ["(x)"]),
    ],
)
def test_expressions(body: str, yes: list[str], no: list[str]) -> None:
    assert language(f"root ::= {body}\n", *yes, *no) == yes


def test_tokens() -> None:
    grammar = ebnf_to_grammar(
        'root ::= <think> !<[5]> Token(1, 2) ExcludeToken(3) !<think> "x"', TokenNames({"<think>": 9})
    )
    recogniser = Recogniser(grammar)
    for refused, taken in ((8, 9), (5, 4), (3, 2), (3, 1), (9, 10)):
        assert not recogniser.feed_token(refused)
        assert recogniser.feed_token(taken)
    assert recogniser.feed(ord("x"))
    assert recogniser.can_finish


def test_tag_dispatch_with_overlapping_tags() -> None:
    grammar = 'root ::= TagDispatch(("<a>", x), ("<<b", y), excludes=("no", "<c"))\nx ::= "1"\ny ::= "2"'
    yes = ["", "<<<a>1", "<<b2<a>1", "<<<b2n", "<", "n", "nno"[:2]]
    no = ["<a>", "<a>2", "<<b1", "no", "nno", "<c", "<<c", "x<a>1no"]
    assert language(grammar, *yes, *no) == yes


def test_a_tag_may_become_a_longer_one() -> None:
    grammar = 'root ::= TagDispatch(("<f", x), ("<form", y), ("or", z))\nx ::= "1"\ny ::= "2"\nz ::= "3"'
    yes = ["", "<f1", "<form2", "or3", "<", "f<<f1or3", "form"[:1]]
    no = ["<f", "<fo", "<for", "<form", "<form1", "<fx", "<fo1", "<f2", "or", "<for1", "<for3"]
    assert language(grammar, *yes, *no) == yes


def test_of_tags_that_end_together_the_longest_counts() -> None:
    assert language('root ::= TagDispatch(("ab", x), ("b", y))\nx ::= "1"\ny ::= "2"', "ab1", "ab2", "b2", "b1") == [
        "ab1",
        "b2",
    ]


@pytest.mark.parametrize(
    ("tags", "options", "yes", "no"),
    [
        (["ab", "xab1", "ab2"], "", ["xab0.", "xab11.", "xab22."], ["xab2.", "xab12.", "xabx", "xab"]),
        (["ab", "abc", "xabcd"], "", ["xab0.", "xabc1.", "xabcd2."], ["xabc.", "xabc0.", "xab"]),
        (["b", "abc", "bcde", "cd"], "", ["ab0.", "abc1.", "abcde2.", "cd3."], ["abcd3.", "abcd"]),
        (["<f", "<form"], ', excludes=("x<fa",)', ["x<f0.", "x<form1."], ["x<fa", "x<f", "x<form0."]),
        (["aa", "aaa"], ', excludes=("baa",)', ["baa0.", "aaa1.", "baaa1."], ["baa", "baa1.", "baaa0."]),
    ],
)
def test_after_a_tag_every_tag_that_contains_it_may_go_on(
    tags: list[str], options: str, yes: list[str], no: list[str]
) -> None:
    """Not only the longest text that ends with the tag and begins another: that may be an excluded text."""
    pairs = ", ".join(f'("{tag}", r{i})' for i, tag in enumerate(tags))
    rules = "".join(f'\nr{i} ::= "{i}."' for i in range(len(tags)))
    assert language(f"root ::= TagDispatch({pairs}{options}){rules}", *yes, *no) == yes


def test_token_tag_dispatch() -> None:
    grammar = ebnf_to_grammar('root ::= TokenTagDispatch((7, x), (8, y), excludes=(9,))\nx ::= "1"\ny ::= "2"')
    recogniser = Recogniser(grammar)
    assert recogniser.can_finish
    assert recogniser.feed_token(1)
    assert not recogniser.feed_token(9)
    assert recogniser.feed_token(8)
    assert not recogniser.can_finish
    assert recogniser.allowed_bytes() == {ord("2")}
    assert recogniser.feed(ord("2"))
    assert recogniser.can_finish
    assert recogniser.feed_token(7)


def test_captures_have_no_effect() -> None:
    grammar = 'root[capture] ::= a\na [capture="name"] ::= "x"\nb[capture, capture_name="y"] ::= "z"'
    assert language(grammar, "x", "z") == ["x"]


def test_regex_and_substring_macros() -> None:
    assert language('root ::= Regex("[a-c]+(x|y)") Substring("a", "b")', "ax", "cby", "axab", "a", "axba") == [
        "ax",
        "cby",
        "axab",
    ]


@pytest.mark.parametrize(
    ("grammar", "error", "keyword", "where"),
    [
        ("", InvalidSpecError, "root", "line 1, column 1"),
        ('start ::= "a"', InvalidSpecError, "root", "line 1, column 1"),
        ("root ::= x", InvalidSpecError, "x", "line 1, column 10"),
        ('root ::= "a"\nroot ::= "b"', InvalidSpecError, "root", "line 2, column 1"),
        ('root ::= ("a"', InvalidSpecError, "", "line 1, column 10"),
        ('root ::= "a")', InvalidSpecError, "", "line 1, column 13"),
        ("root ::= 'a'", InvalidSpecError, "", "line 1, column 10"),
        ('root ::= "a', InvalidSpecError, "", "line 1, column 10"),
        ('root ::= "\\q"', InvalidSpecError, "", "line 1, column 11"),
        ("root ::= [\\d]", InvalidSpecError, "", "line 1, column 11"),
        ('root ::= "a" []', InvalidSpecError, "[]", "line 1, column 14"),
        ("root ::= [a\nb]", InvalidSpecError, "", "line 1, column 10"),
        ('root ::= "a\nb"', InvalidSpecError, "", "line 1, column 10"),
        ("root ::= 12 1.2", InvalidSpecError, "12", "line 1, column 10"),
        ("root ::= [z-a]", InvalidSpecError, "", "line 1, column 11"),
        ('root ::= "\\x41B"', InvalidSpecError, "\\x", "line 1, column 11"),
        ('root ::= "\\ud800"', InvalidSpecError, "", "line 1, column 11"),
        ('root ::= "a"{3,2}', InvalidSpecError, "", "line 1, column 13"),
        ('root ::= "a"{99999999999}', InvalidSpecError, "", "line 1, column 14"),
        ('root ::= "a" (= "b")', UnsupportedError, "(=", "line 1, column 14"),
        ('root[temperature=0.5] ::= "a"', UnsupportedError, "temperature", "line 1, column 5"),
        ('root ::= "a" // b', InvalidSpecError, "", "line 1, column 14"),
        ("root ::= *", InvalidSpecError, "", "line 1, column 10"),
        ('"a"', InvalidSpecError, "root", "line 1, column 1"),
        ("root ::= <tool>", UnsupportedError, "special token", "line 1, column 10"),
        ("root ::= Token()", InvalidSpecError, "Token", "line 1, column 10"),
        ('root ::= Token("a")', InvalidSpecError, "Token", "line 1, column 10"),
        ("root ::= TagDispatch((1, root))", InvalidSpecError, "TagDispatch", "line 1, column 10"),
        ('root ::= TagDispatch(("", root))', InvalidSpecError, "TagDispatch", "line 1, column 10"),
        ('root ::= TagDispatch(("a", x))', InvalidSpecError, "x", "line 1, column 28"),
        ('root ::= TagDispatch(("ab", root), excludes=("a",))', InvalidSpecError, "excludes", "line 1, column 10"),
        ('root ::= TagDispatch(("ab", root), excludes=("b",))', InvalidSpecError, "excludes", "line 1, column 10"),
        ('root ::= TagDispatch(("ab", root), other=true)', InvalidSpecError, "other", "line 1, column 36"),
        ('root ::= Regex("a", "b")', InvalidSpecError, "Regex", "line 1, column 10"),
        ('root ::= Regex("a", flags="i")', UnsupportedError, "flags", "line 1, column 21"),
        ('root ::= Regex("a", other="i")', InvalidSpecError, "other", "line 1, column 21"),
        ('root[capture, stop="x"] ::= "a"', UnsupportedError, "stop", "line 1, column 5"),
        ('root ::= "x"\n  Regex("b(a")', InvalidSpecError, "regex", "line 2, column 3: offset 1"),
        ('"a"\nroot ::= "b"', InvalidSpecError, "", "line 1, column 1"),
        ('root ::= TagDispatch(("a", root), stop_eos=)', InvalidSpecError, "", "line 1, column 44"),
    ],
)
def test_refusals(grammar: str, error: type[SpecError], keyword: str, where: str) -> None:
    with pytest.raises(error) as found:
        ebnf_to_grammar(grammar)
    assert type(found.value) is error
    assert found.value.place == where
    if keyword:
        assert found.value.keyword == keyword


@pytest.mark.parametrize(
    ("grammar", "dialect"),
    [
        ('root ::= "a"', "ebnf"),
        ('# start: x\nroot\n  ::= "a"', "ebnf"),
        ('root[temperature=1] ::= "a"', "ebnf"),
        ('start: "a"', "lark"),
        ('start: "::=" "b"', "lark"),
        ('// root ::= x\nstart: "a"', "lark"),
        ("", "lark"),
    ],
)
def test_notations_are_told_apart(grammar: str, dialect: str) -> None:
    assert detect_dialect(grammar) == dialect


def test_an_unknown_dialect_is_an_error_of_the_caller() -> None:
    with pytest.raises(ValueError, match="dialect"):
        grammar_to_grammar('root ::= "a"', dialect="bnf")  # type: ignore[arg-type]  # that is the point


def test_nesting_is_not_limited_by_the_stack() -> None:
    depth = 30_000
    assert accepts(ebnf_to_grammar("root ::= " + "(" * depth + '"a"' + ")" * depth), b"a")
    recogniser = Recogniser(ebnf_to_grammar("root ::= " + '("a" ' * depth + ")?" * depth))
    assert recogniser.feed(ord("a"))
    with pytest.raises(InvalidSpecError, match="never closed"):
        ebnf_to_grammar("root ::= " + "(" * depth)


def test_long_literals() -> None:
    text = "x" * 100_000
    assert accepts(ebnf_to_grammar(f'root ::= "{text}"'), text.encode())
