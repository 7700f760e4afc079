"""Lark: the meaning of each construct, and what is refused, with the place and the keyword."""

from __future__ import annotations

import json
import re
import threading

import pytest

from dotllm.cancellation import Cancelled, cancellable
from dotllm.errors import BudgetExceededError, InvalidSpecError, SpecError, UnsupportedError
from dotllm.grammar.kinds import ExpressionKind
from dotllm.languages.lark.build import lark_to_grammar
from dotllm.languages.token_names import TokenNames
from tests.effort import at_most
from tests.grammar.reference import Recogniser, accepts


def language(grammar: str, *texts: str) -> list[str]:
    """The ``texts`` that are in the language."""
    compiled = lark_to_grammar(grammar)
    return [text for text in texts if accepts(compiled, text.encode())]


@pytest.mark.parametrize(
    ("body", "yes", "no"),
    [
        ('"a" | "b" "c"', ["a", "bc"], ["", "b", "ac"]),
        ('("a" | "b") "c"', ["ac", "bc"], ["a", "c"]),
        ('["a"] "b"?', ["", "a", "b", "ab"], ["ba"]),
        ('"a"~2 "b"~0..1', ["aa", "aab"], ["a", "aabb"]),
        ('"a"{2} "b"{,1} "c"{1,}', ["aac", "aabccc"], ["aa", "ac", "aabb"]),
        ('"a"+ "b"*', ["a", "aabb"], ["", "b"]),
        ('"a" -> first | "b" -> second', ["a", "b"], ["ab"]),
        ('"" | "a"', ["", "a"], ["aa"]),
        ('"a".."c" "\\u03b1".."\\u03b3"', ["aα", "cγ"], ["dα", "a"]),
        ('"\\x41\\U0001F600\\ud83d\\ude00"', ["A😀😀"], ["A"]),
        ('"aB"i', ["ab", "AB", "Ab"], ["a"]),
        ('"é"i', ["é", "É"], ["e"]),
        ("/a+/ /b/i", ["aab", "aB"], ["b", "aA"]),
        ("/a b # c\n/x", ["ab"], ["a b"]),
        ("/a.b/s /c.d/", ["a\nbcxd"], ["a\nbc\nd"]),
        (r"/\d\w/", ["1a", "٣é"], ["a1"]),
        ('("a"\n "b")', ["ab"], ["a"]),
        ('"a" |\n "b"', ["a", "b"], ["ab"]),
        ('"a"\n  | "b"\n\n  // comment\n  | "c"', ["a", "b", "c"], ["ab"]),
        ('"a" |\nb: "b"', ["a", ""], ["b", "ab"]),
        ('%regex {"substring_chars": ""}', [""], ["a"]),
    ],
)
def test_expressions(body: str, yes: list[str], no: list[str]) -> None:
    assert language(f"start: {body}\n", *yes, *no) == yes


@pytest.mark.parametrize(
    ("terminal", "yes", "no"),
    [
        ('"a" & "a"', ["a"], ["b"]),
        ("/[a-z]+/ & ~/.*x.*/", ["ab"], ["ax", "x", ""]),
        ("/a/ & /b/ | /c/", ["c"], ["a", "b"]),
        ('/[ab]{2}/ & ~("aa" | "bb")', ["ab", "ba"], ["aa", "bb"]),
        ("~/a/+ & /a*/", ["", "aa", "aaa"], ["a"]),
        ("~~/a/", ["a"], ["", "b"]),
        ('/[ab]/~2 & ~"ab"~1', ["aa", "ba"], ["ab"]),
        ("A2 & ~B2", ["aaa"], ["aa", "a"]),
        ('"a".."c" & /[b-z]/', ["b", "c"], ["a", "d"]),
        ('"a.b"i & ~/.*B/', ["a.b", "A.b"], ["a.B", "axb"]),
        ("INT & /1../", ["123"], ["12", "1a2", "223"]),
    ],
)
def test_terminal_algebra(terminal: str, yes: list[str], no: list[str]) -> None:
    grammar = f"start: A\nA: {terminal}\n%import common.INT\nA2: /a{{2,3}}/\nB2: C C\nC: /a/\n"
    assert language(grammar, *yes, *no) == yes


def test_rule_prefixes_priorities_and_captures_do_not_change_the_language() -> None:
    grammar = 'start[capture]: a b _c\n?a.2: A\n!b[capture="x"]: "b"\n!?_c: "c"\nA.-1: "a"\n'
    assert language(grammar, "abc", "ab") == ["abc"]


def test_ignored_text_stands_behind_terminals() -> None:
    grammar = 'start: "a" N "b"\nN: /[0-9]/ /[0-9]/\n%ignore " "\n%ignore /#[^\\n]*\\n/\n'
    assert language(grammar, "a12b", "a 12 # b\n  b  ", " a12b", "a1 2b", "a12b #") == ["a12b", "a 12 # b\n  b  "]
    initial = '%llguidance {"allow_initial_skip": true}\n' + grammar
    assert language(initial, " a12b") == [" a12b"]
    once = '%llguidance {"skip_repetition": "once", "no_forcing": true}\nstart: "a" "b"\n%ignore /[ ]{1,2}/\n'
    assert language(once, "ab", "a  b", "a   b") == ["ab", "a  b"]
    once = once.replace('"skip_repetition": "once"', '"ignore_once": true')
    assert language(once, "ab", "a  b", "a   b") == ["ab", "a  b"]
    assert language(once.replace("true", "false", 1), "ab", "a  b", "a   b") == ["ab", "a  b", "a   b"]


def test_imports() -> None:
    grammar = "start: INT | W\n%import common.INT\n%import common (CNAME, HEXDIGIT)\n%import common.WORD -> W\n"
    assert language(grammar, "12", "ab", "a1") == ["12", "ab"]


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        ('start: A{"x"}\nA: "b"', "A is not a rule"),
        ("%import common.INT -> int\nstart: int", "int is not a rule"),
        ('start: a{"x"}\na{P}[lazy]: P', "a terminal cannot use P, a rule or a parameter"),
        ('start: A\nA: b\nb: "x"', "a terminal cannot use b, a rule or a parameter"),
    ],
)
def test_terminals_and_rules_differ(grammar: str, message: str) -> None:
    """``A is not defined; did you mean "A"?`` helped nobody."""
    with pytest.raises(InvalidSpecError, match=message):
        lark_to_grammar(grammar)


def test_templates() -> None:
    grammar = """
        start: list{"x", ","} | pair{item}
        list{what, by}: what (by what)*
        pair{p}: "<" p "," list{p, "|"} ">"
        item: /[a-c]/
        %ignore " "
    """
    assert language(grammar, "x,x, x", "<a,b|c>", "< a , b >", "x|x", "<x,x>") == ["x,x, x", "<a,b|c>", "< a , b >"]


def test_a_template_may_call_itself() -> None:
    assert language('start: nest{"x"}\nnest{e}: e | "(" nest{e} ")"\n', "x", "((x))", "(x") == ["x", "((x))"]


def test_a_template_that_grows_for_ever_is_refused() -> None:
    with at_most(5), pytest.raises(BudgetExceededError, match="grow"):
        lark_to_grammar('start: grow{"x"}\ngrow{e}: e | grow{(e "y")}\n')


def test_lazy_and_suffix() -> None:
    assert language("start: a b\na[lazy]: /.*;/\nb: /.*/\n", ";", "x;y;z", "x") == [";", "x;y;z"]
    assert language("start: a\na[lazy]: /[0-9]+/\n", "1", "12") == ["1"]
    assert language("start: a\na[lazy]: /.*/\n", "", "x") == [""]
    assert language('start: a\na[suffix="<end>"]: /.*/\n', "x<end>", "x<end><end>", "x<en") == ["x<end>"]
    assert language("start: a\na[suffix=END, capture]: T\nT: /[a-z]*/\nEND: /[.!]/\n", "ab!", "ab", "ab!.") == ["ab!"]


def test_json_schema_inside() -> None:
    grammar = 'start: "f(" %json {"enum": [1, "two", 0.10]} ")"\n'
    assert language(grammar, "f(1)", 'f("two")', "f(2)", "f(0.1)") == ["f(1)", 'f("two")', "f(0.1)"]


def test_structured_regex() -> None:
    chunks = 'start: %regex {"substring_chunks": ["ab", "", "c", "ab"]}\n'
    assert language(chunks, "", "ab", "cab", "abcab", "b", "abab") == ["", "ab", "cab", "abcab"]


def test_special_tokens() -> None:
    names = {"<|tool|>": 300, "<eos>": 2}
    grammar = lark_to_grammar("start: <|tool|> <[7,9-11]> <[^5]> <[*]> /x/\n", TokenNames(names))
    recogniser = Recogniser(grammar)
    assert not recogniser.feed_token(301)
    assert recogniser.feed_token(300)
    assert not recogniser.feed_token(8)
    assert recogniser.feed_token(10)
    assert not recogniser.feed_token(5)
    assert recogniser.feed_token(6)
    assert recogniser.feed_token(5)
    assert recogniser.feed(ord("x"))
    assert recogniser.can_finish


def test_terminals_used_often_are_shared() -> None:
    """A: B B, B: C C, …: 2**40 copies if every use were a copy."""
    lines = [f"T{i}: T{i + 1} T{i + 1}" for i in range(40)]
    grammar = lark_to_grammar("start: T0\n" + "\n".join(lines) + '\nT40: "abc"\n')
    assert grammar.rule_names.count("T0") <= 1
    assert any(grammar.kind[node] == ExpressionKind.CALL for node in range(len(grammar)))
    recogniser = Recogniser(grammar)
    assert all(recogniser.feed(byte) for byte in b"abc" * 50)


@pytest.mark.parametrize(
    ("grammar", "error", "keyword", "where"),
    [
        ("", InvalidSpecError, "start", "line 1, column 1"),
        ('begin: "a"', InvalidSpecError, "start", "line 1, column 1"),
        ("start: x", InvalidSpecError, "x", "line 1, column 8"),
        ('start: "a"\nother: X', InvalidSpecError, "X", "line 2, column 8"),
        ('start: "a"\nstart: "b"', InvalidSpecError, "start", "line 2, column 1"),
        ("start: A\nA: B\nB: A", InvalidSpecError, "A", "line 3, column 4"),
        ('start: A\nA: b\nb: "x"', InvalidSpecError, "b", "line 2, column 4"),
        ('start: ("a"', InvalidSpecError, "", "line 1, column 8"),
        ('start: "a"\n %ignore', InvalidSpecError, "%ignore", "line 2, column 2"),
        ('%ignore // nothing\n\nstart: "a"', InvalidSpecError, "%ignore", "line 1, column 1"),
        ('start: "a")', InvalidSpecError, "", "line 1, column 11"),
        ("start: 'a'", InvalidSpecError, "", "line 1, column 8"),
        ('start: "a', InvalidSpecError, "", "line 1, column 8"),
        ('start: "\\x"', InvalidSpecError, "", "line 1, column 8"),
        ("start: /a", InvalidSpecError, "", "line 1, column 8"),
        ('start: "a"~3..2', InvalidSpecError, "", "line 1, column 11"),
        ('start: "a"~99999999999', InvalidSpecError, "", "line 1, column 12"),
        ('start: "a"*+', InvalidSpecError, "", "line 1, column 8"),
        ('start: "z".."a"', InvalidSpecError, "", "line 1, column 8"),
        ('start: "ab".."c"', InvalidSpecError, "", "line 1, column 8"),
        ('start: "a" & "b"', InvalidSpecError, "&", "line 1, column 8"),
        ('start: ~"b"', InvalidSpecError, "~", "line 1, column 9"),
        ("start: A\nA: <|x|>", InvalidSpecError, "special token", "line 2, column 4"),
        ("start: %json {", InvalidSpecError, "%json", "line 1, column 15"),
        ("start: %json {x}", InvalidSpecError, "%json", "line 1, column 15"),
        ('start: %json {"const": NaN}', InvalidSpecError, "%json", "line 1, column 14"),
        (f'start: %json {{"const": {"9" * 5000}}}', BudgetExceededError, "%json", "line 1, column 14"),
        (f'start: %json {{"const": 1e{"9" * 30}}}', BudgetExceededError, "%json", "line 1, column 14"),
        ('start: %regex {"pattern": "x"}', InvalidSpecError, "%regex", "line 1, column 8"),
        ('%llguidance {"ignore_once": "yes"}\nstart: "a"', InvalidSpecError, "ignore_once", "line 1, column 1"),
        ('%llguidance {"nonsense": 1}\nstart: "a"', InvalidSpecError, "nonsense", "line 1, column 1"),
        ('start: "a"\n\n %llguidance {"ignore_onse": true}', InvalidSpecError, "ignore_onse", "line 3, column 2"),
        (
            'start: "a"\n%llguidance {"skip_repetition": "typo"}',
            InvalidSpecError,
            "skip_repetition",
            "line 2, column 1",
        ),
        ('start: "a"\n%llguidance {"skip_repetition": true}', InvalidSpecError, "skip_repetition", "line 2, column 1"),
        ('start: "a"\n%llguidance {"skip_repetition": null}', InvalidSpecError, "skip_repetition", "line 2, column 1"),
        ('start: "a"\n%llguidance {"no_forcing": "yes"}', InvalidSpecError, "no_forcing", "line 2, column 1"),
        (
            'start: "a"\n%llguidance {"allow_initial_skip": 1}',
            InvalidSpecError,
            "allow_initial_skip",
            "line 2, column 1",
        ),
        (
            'start: "a"\n%llguidance {"allow_invalid_utf8": 1}',
            InvalidSpecError,
            "allow_invalid_utf8",
            "line 2, column 1",
        ),
        (
            '%llguidance {"allow_invalid_utf8": true}\nstart: "a"',
            UnsupportedError,
            "allow_invalid_utf8",
            "line 1, column 1",
        ),
        ("start: X\n%import common.NONSENSE -> X", InvalidSpecError, "%import", "line 2, column 16"),
        ('start: "a"\n%import python.NAME', UnsupportedError, "%import", "line 2, column 9"),
        ('start: "a"\n%declare X', UnsupportedError, "%declare", "line 2, column 1"),
        ('start: "a"\n%override x: "b"', UnsupportedError, "%override", "line 2, column 1"),
        ("start: @other", UnsupportedError, "@", "line 1, column 8"),
        ("start: <|x|>", UnsupportedError, "special token", "line 1, column 8"),
        ("start: <[x]>", InvalidSpecError, "special token", "line 1, column 8"),
        ("start: <[5-2]>", InvalidSpecError, "special token", "line 1, column 8"),
        ("start: <[0-999999999]>", InvalidSpecError, "special token", "line 1, column 8"),
        ('start: a\na[stop="x"]: /.*/', UnsupportedError, "stop", "line 2, column 3"),
        ("start: a\na[max_tokens=3]: /.*/", UnsupportedError, "max_tokens", "line 2, column 3"),
        ("start: a\na[temperature=0.5]: /.*/", UnsupportedError, "temperature", "line 2, column 3"),
        ("start: a\na[color=1]: /.*/", InvalidSpecError, "color", "line 2, column 3"),
        ("start: a\na[capture=1]: /.*/", InvalidSpecError, "", "line 2, column 11"),
        ("start: a\na[capture=:]: /.*/", InvalidSpecError, "", "line 2, column 11"),
        ('start: a\na[lazy]: b\nb: "x"', InvalidSpecError, "b", "line 2, column 10"),
        ('start: perm::0x0\nperm::_: "x"', UnsupportedError, "::", "line 1, column 12"),
        ("start: A{1}x\nA{x}: x", UnsupportedError, "template", "line 2, column 1"),
        ('start: a\na{x}: "y"', InvalidSpecError, "a", "line 1, column 8"),
        ("start: /a/l", UnsupportedError, "flags", "line 1, column 8"),
        ("start: /b(a/i", InvalidSpecError, "regex", "line 1, column 10"),
        ('start: A\nA: "x" | ~/(a)\\1/', UnsupportedError, "back-reference", "line 2, column 15"),
        ("start: A\nA: /a/ & /(a|b)*a(a|b){20}/", BudgetExceededError, "budget", "line 2, column 10"),
        ('start: "x"\n  | %json {"items": {"type": "x"}}', InvalidSpecError, "type", "line 2, column 5: /items/type"),
        ('start: %json {"const": 1, "type": "string"}', InvalidSpecError, "", "line 1, column 8: /const"),
        ('start: %json "x"', InvalidSpecError, "%json", "line 1, column 8"),
        ('start: "a" 5', InvalidSpecError, "", "line 1, column 12"),
        ('start: "a" %lark {', InvalidSpecError, "", "line 1, column 19"),
        ('start: "a" %lark\nb: "c"', InvalidSpecError, "", "line 2, column 1"),
        ('start: "a" %lark { a: "b" }', InvalidSpecError, "start", "line 1, column 20"),
        ("start: " + "%lark { start: " * 33, InvalidSpecError, "%lark", "line 1, column 488"),
        ('A: %lark { start: "b" }\nstart: A', InvalidSpecError, "%lark", "line 1, column 4"),
        ("start: a{b}\na{t}: t\nb{x}: x", InvalidSpecError, "b", "line 2, column 1"),
        ('start: a{"b"}\na{t}: t{"a"}', InvalidSpecError, "t", "line 2, column 7"),
        ('start: a{b}\na{t}: t{"a", "b"}\nb{x}: x', InvalidSpecError, "b", "line 2, column 7"),
        ('start: "a"\nunused: b{"c"}', InvalidSpecError, "b", "line 2, column 9"),
        ("%nonsense", InvalidSpecError, "%nonsense", "line 1, column 1"),
        ("start: ~", InvalidSpecError, "", "line 1, column 9"),
        ('start: "\\ud800"', InvalidSpecError, "", "line 1, column 8"),
        ('start: "\\U00110000"', InvalidSpecError, "", "line 1, column 8"),
        ('%llguidance [1]\nstart: "a"', InvalidSpecError, "%llguidance", "line 1, column 1"),
        ("%import common.INT\n%import common.INT\nstart: INT", InvalidSpecError, "INT", "line 2, column 16"),
        ('%import common.INT "x"\nstart: INT', InvalidSpecError, "", "line 1, column 20"),
        ('start: "a" -> x "b"', InvalidSpecError, "", "line 1, column 17"),
        ('start: "a"i.."b"', InvalidSpecError, "", "line 1, column 8"),
        ("start: A\nA: %regex []", InvalidSpecError, "%regex", "line 2, column 4"),
        ('start: A\nA: ~%regex {"substring_chars": "ab"}', UnsupportedError, "%regex", "line 2, column 5"),
        ("start: A\nA: %json {} & /1/", InvalidSpecError, "%json", "line 2, column 4"),
        ('start: "a"~-1', InvalidSpecError, "", "line 1, column 12"),
        ('start: %nonsense "a"', UnsupportedError, "%nonsense", "line 1, column 8"),
    ],
)
def test_refusals(grammar: str, error: type[SpecError], keyword: str, where: str) -> None:
    with pytest.raises(error) as found:
        lark_to_grammar(grammar)
    assert type(found.value) is error
    if keyword:
        assert found.value.keyword == keyword
    if where:
        assert found.value.place == where


def test_a_refusal_says_how_many_arguments_there_are() -> None:
    with pytest.raises(InvalidSpecError, match="a gets 2 arguments instead of 1"):
        lark_to_grammar('start: a{"x", "y"}\na{t}: t')


def test_nesting_is_not_limited_by_the_stack() -> None:
    depth = 30_000
    grammar = "start: " + '("a" ' * depth + ")" * depth + "\n"
    recogniser = Recogniser(lark_to_grammar(grammar))
    assert recogniser.feed(ord("a"))
    assert accepts(lark_to_grammar("start: A\nA: " + "(" * depth + '"a"' + ")" * depth + "\n"), b"a")
    with pytest.raises(InvalidSpecError, match="never closed"):
        lark_to_grammar("start: " + "(" * depth)
    with pytest.raises(InvalidSpecError, match="nested too deeply"):
        lark_to_grammar("start: %json " + "[" * 100_000)


def test_long_literals() -> None:
    text = "x" * 100_000
    assert accepts(lark_to_grammar(f'start: "{text}"'), text.encode())


@pytest.mark.parametrize(
    ("grammar", "yes", "no"),
    [
        # Lark's own tests: test_templates_templates, test_line_breaks, test_unicode2.
        ('start: a{b}\na{t}: t{"a"}\nb{x}: x', ["a"], ["", "b"]),
        ('start: "a" \\\n "b"', ["ab"], ["a"]),
        ('start: "a" \\ \r\n "b" \\\n | "c"', ["ab", "c"], ["a", "abc"]),
        ('start: "b\\ "', ["b\\ "], ["b "]),
        ('start: "\\q\\d"', ["\\q\\d"], ["qd"]),
        # Templates passed as arguments, and templates with several parameters.
        ('start: a{b, c}\na{t, u}: t{u}\nb{x}: x{"q"} "!"\nc{y}: "<" y ">"', ["<q>!"], ["q!", "<q>"]),
        ('start: sep{pair, ","}\nsep{t, s}: t{"a"} (s t{"b"})*\npair{x}: x "=" x', ["a=a", "a=a,b=b"], ["a=b", "a=a,a=a"]),
        ('start: twice{list}\ntwice{t}: t{"a"} t{"b"}\nlist{x}: "[" x ("," x)* "]"', ["[a,a][b]"], ["[a][a]"]),
    ],
)  # fmt: skip
def test_templates_as_arguments_and_ends_of_lines(grammar: str, yes: list[str], no: list[str]) -> None:
    assert language(grammar, *yes, *no) == yes


@pytest.mark.parametrize(
    ("grammar", "yes", "no"),
    [
        ('start: "a" %lark { start: X\n X: /[0-9]+/ } "b"', ["a1b", "a12b"], ["ab", "a1 b"]),
        # It has its own names and its own %ignore.
        (
            'start: x "," %lark {\n  start: x x\n  x: "y"\n  %ignore " "\n}\nx: "x"\n%ignore "_"',
            ["x,yy", "x_,_y y", "x,yy_"],
            ["x,xx", "x ,yy", "x,y_y", "y,yy"],
        ),
        ('start: %lark { start: %lark { start: ("a" | "b")+ } "c" } | "d"', ["abc", "d"], ["ab", "c"]),
        ('start: (%lark\n{\nstart: a{"b"}\na{x}: x\n| "c"\n})*', ["", "bc"], ["a"]),
    ],
)
def test_grammars_within(grammar: str, yes: list[str], no: list[str]) -> None:
    """https://github.com/guidance-ai/llguidance/blob/main/parser/src/lark/README.md: ``%lark {}``."""
    assert language(grammar, *yes, *no) == yes


@pytest.mark.parametrize(
    ("option", "advice"),
    [("max_tokens=10", "maxLength"), ("temperature=0.5", "temperature of the request"), ('stop="."', "suffix=")],
)
def test_what_guidance_writes_is_refused_with_advice(option: str, advice: str) -> None:
    with pytest.raises(UnsupportedError, match=re.escape(advice)):
        lark_to_grammar(f"%llguidance {{}}\n\nstart: x\nx[capture, {option}]: X\nX: /(?s:.*)/\n")


def test_terminals_grow_linearly() -> None:
    def chain(n: int) -> str:
        return f'start: T{n}\nT0: "a"\n' + "".join(f'T{i}: T{i - 1} "b"\n' for i in range(1, n + 1))

    def words(n: int) -> str:
        return f"start: T\nT: ({' | '.join(f'W{i}' for i in range(n))}) & /[a-z0-9]+/\n" + "".join(
            f'W{i}: "w{i * 7919 % 99991}"\n' for i in range(n)
        )

    with at_most(1.5):
        lark_to_grammar(chain(4000))
    with at_most(1.5):
        lark_to_grammar(words(3000))
    with at_most(1.5):
        lark_to_grammar(words(3000).replace('"\n', '"i\n'))
    assert language(words(3000), "w0", "w7919", "w1") == ["w0", "w7919"]
    done = threading.Event()
    done.set()
    with cancellable(done), pytest.raises(Cancelled):
        lark_to_grammar(chain(100))


def test_many_schemas() -> None:
    """800 once took 4 s: each asked anew about everything before it."""
    schemas = [json.dumps({"type": "object", "properties": {f"p{i}": {"type": "integer"}}}) for i in range(800)]
    text = "\n".join(f't{i}: "{i}" %json {schema}' for i, schema in enumerate(schemas))
    with at_most(2):
        lark_to_grammar(f"start: {'|'.join(f't{i}' for i in range(800))}\n{text}")
