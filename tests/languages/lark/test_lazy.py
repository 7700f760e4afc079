"""Lazy terminals: under operators, against their definition by brute force; where others can start, by llguidance."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import product
from random import Random

import llguidance
import pytest

from dotllm.errors import SpecError, UnsupportedError
from dotllm.languages.cfg import grammar_to_grammar
from dotllm.languages.lark.build import lark_to_grammar
from tests.cases import few
from tests.effort import at_most
from tests.grammar.reference import accepts

TOOLS = r"""
start: ( f_foo | f_bar )* f_end
f_end: TEXT
TEXT: /(.|\n)*/
f_foo_hd[lazy]: TEXT "<function"
f_foo: f_foo_hd "=foo>" %json { "type": "object" } "</function>"
f_bar_hd[lazy]: TEXT "<function"
f_bar: f_bar_hd "=bar>" /[0-9]+/ "</function>"
"""


class _Bytes:
    """A tokenizer of bytes, for llguidance."""

    eos_token_id = 256
    bos_token_id = None
    tokens = (*(bytes([i]) for i in range(256)), b"<eos>")
    special_token_ids = (256,)

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text if isinstance(text, bytes) else text.encode())


BYTES = llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Bytes()))


@lru_cache(maxsize=1)
def compiled_by_peer(grammar: str) -> llguidance.LLMatcher:
    matcher = llguidance.LLMatcher(BYTES, llguidance.LLMatcher.grammar_from_lark(grammar), log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    return matcher


def peer(grammar: str, text: str) -> bool:
    """Whether llguidance accepts ``text``."""
    matcher = compiled_by_peer(grammar).deep_copy()
    return all(matcher.consume_token(byte) for byte in text.encode()) and matcher.is_accepting()


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("x<function=baz>", False),
        ("x<function", False),
        ("x<functio", True),
        ("", True),
        ("x<function=foo>{}</function>", True),
        ("x<function=foo>1</function>", False),
        ("a<function=foo>{}</function> b\n<function=bar>12</function>c<f", True),
        ("a<function=foo>{}</function> b <function=bar>x</function>", False),
    ],
)
def test_documented_tools(text: str, right: bool) -> None:
    """The section "Tool calling" of llguidance's syntax.md."""
    assert peer(TOOLS, text) is right
    assert accepts(lark_to_grammar(TOOLS), text.encode()) is right


def tool_grammar(random: Random) -> str:
    """Tools, each with its own head, called in a loop, a recursion or templates, and then a tail."""
    count = random.randint(1, 3)
    triggers = random.choices(["<", "<<", "<a", "a<", "<1"], k=count)
    free = random.choice([r"/(.|\n)*/", "/[^1]*/", "/[a<]*/"])
    tools = [
        f'f{i}_hd[{random.choice(["lazy", "lazy, capture"])}]: TEXT "{trigger}"\nf{i}: f{i}_hd {random.choice(["/[0-9]/", chr(34) + "1" + chr(34)])} ">"'
        if random.random() < 0.7
        else f'f{i}_hd[suffix="{trigger}"]: TEXT\nf{i}: f{i}_hd "1" ">"'
        for i, trigger in enumerate(triggers)
    ]
    names = " | ".join(f"f{i}" for i in range(count))
    tail = random.choice(["tail", "TEXT", "/[^1]*/", '"a"'])
    start = random.choice(
        [
            f"({names})* {tail}",
            f"{tail} | ({names}) start",
            f"({names})+ {tail}",
            f"({names} | {tail})",
            f"item* {tail}\nitem: {names}",
        ]
    )
    return "\n".join([f"start: {start}", *tools, "tail: TEXT", f"TEXT: {free}"])  # fmt: skip


@pytest.mark.parametrize("seed", range(few(12)))
def test_what_is_left_where_lazy_terminals_start(seed: int) -> None:
    random = Random(seed)
    grammar = tool_grammar(random)
    ours = lark_to_grammar(grammar)
    texts = ["".join(text) for length in range(5) for text in product("a<1>", repeat=length)]
    texts += ["".join(random.choices(["a", "<", "1", ">", "<1>", "<a1>", "a<1>"], k=6)) for _ in range(100)]
    differences = [text for text in texts if accepts(ours, text.encode()) != peer(grammar, text)]
    assert not differences, grammar


@pytest.mark.parametrize(
    ("grammar", "line"),
    [
        # The tail is reached after three calls, and not after fewer.
        ('start: f{0,3} tail\nf: hd "1"\nhd[lazy]: TEXT "<"\ntail: TEXT\nTEXT: /(.|\\n)*/', 4),
        # Two derivations of the same text.
        ('start: b c | e d\nb: /x/\ne: /[a-x]/\nc: h "1"\nh[lazy]: T "<"\nd: T\nT: /(.|\\n)*/', 6),
        # An embedded value is not a regular language.
        ('start: f* e\nf: h "1"\nh[lazy]: T "<"\ne: %json {}\nT: /(.|\\n)*/', 4),
        # The tail is also used at a second place.
        ('start: f* tail | "x" tail\nf: hd "1"\nhd[lazy]: TEXT "<"\ntail: TEXT\nTEXT: /(.|\\n)*/', 4),
    ],
)
def test_two_meanings_are_refused(grammar: str, line: int) -> None:
    with pytest.raises(UnsupportedError, match="lazy") as found:
        lark_to_grammar(grammar)
    assert str(found.value.location).startswith(f"line {line},")


@pytest.mark.parametrize(
    ("grammar", "yes", "no"),
    [
        # At different places, or with no common text: as if nothing were lazy.
        ('start: b c | e d\nb: /x/\ne: /[a-w]/\nc: h "1"\nh[lazy]: T "<"\nd: T\nT: /(.|\\n)*/', ["aa<b", "xa<1"], ["xa<b"]),
        ('start: h "1" | /[a-z]+/\nh[lazy]: /[^a-z]*/ "<"\n', ["<1", "abc"], ["1"]),
        # In a nested grammar, with text of the outer grammar around it.
        ('start: "a" %lark {\n  start: f* T\n  f: h "1"\n  h[lazy]: T "<"\n  T: /[^;]*/\n} ";"', ["ax<1y;", "a;"], ["ax<y;"]),
        # As arguments of templates.
        ('start: many{f} T\nmany{x}: x*\nf: h "1"\nh[lazy]: T "<"\nT: /.*/', ["a<1b", ""], ["a<b"]),
        # A special token is not text.
        ('start: (f | <[5]>)* T\nf: h "1"\nh[lazy]: T "<"\nT: /.*/', ["a<1b"], ["a<b"]),
    ],
)  # fmt: skip
def test_what_else_may_start_there(grammar: str, yes: list[str], no: list[str]) -> None:
    compiled = lark_to_grammar(grammar)
    assert [text for text in yes + no if accepts(compiled, text.encode())] == yes


def test_many_tools_are_compiled_in_time() -> None:
    tags = [
        llguidance.StructTag(trigger=f"<t{i % 5}", begin=f"<t{i % 5}={i}>", grammar={"type": "object"}, end="</t>")
        for i in range(60)
    ]
    grammar = lark_to_grammar(llguidance.StructTag.to_grammar(tags))
    assert accepts(grammar, b"hi <t1=1>{}</t> and <t2=2>{}</t>.")
    assert not accepts(grammar, b"hi <t1=2>{}</t>")
    assert accepts(grammar, b"hi <t") and not accepts(grammar, b"hi <t3")


def test_a_head_before_many_tools() -> None:
    """All pairs of texts after the head were compared: 800 tools with schemas took 8 s."""
    tools = "|".join(f'"{i}>"' for i in range(1600))
    grammar = f'start: tool* TEXT\ntool: head ({tools}) "</f>"\nhead[lazy]: TEXT "<f="\nTEXT: /(.|\\n)*/'
    with at_most(1.5):
        compiled = lark_to_grammar(grammar)
    assert accepts(compiled, b"<f=7></f>x") and not accepts(compiled, b"<f=7>x")


# --- lazy and suffix under operators

UNIVERSE = ["".join(text) for length in range(6) for text in product("ab", repeat=length)]


class Terminals:
    """Random terminals, and their texts of at most five characters according to the definition."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.lines: list[str] = []
        self.sets: list[set[str]] = []

    def expression(self, depth: int) -> tuple[str, set[str]]:
        random = self.random
        pick = random.random()
        if self.sets and pick < 0.35:
            i = random.randrange(len(self.sets))
            return f"T{i}", self.sets[i]
        if depth == 0 or pick < 0.55:
            pattern = random.choice(["a", "b", "a*", "[ab]*b", "ab?", "(a|b)*", "b+", "(ab)*", "a.*b", ""])
            if not pattern:
                return '""', {""}
            return f"/{pattern}/", {text for text in UNIVERSE if re.fullmatch(pattern, text)}
        left, mine = self.expression(depth - 1)
        if pick < 0.65:
            return f"~({left})", set(UNIVERSE) - mine
        right, theirs = self.expression(depth - 1)
        if pick < 0.8:
            return f"({left} & {right})", mine & theirs
        if pick < 0.9:
            return f"({left} | {right})", mine | theirs
        return f"({left} {right})", joined(mine, theirs)

    def add(self) -> None:
        body, texts = self.expression(3)
        attributes = []
        if self.random.random() < 0.4:
            suffix = self.random.choice(["a", "b", "ab"])
            attributes.append(f'suffix="{suffix}"')
            texts = joined(texts, {suffix})
        if self.random.random() < 0.4:
            attributes.append("lazy")
        if attributes:
            texts = {text for text in texts if not any(text[:i] in texts for i in range(len(text)))}
        options = f"[{', '.join(attributes)}]" if attributes else ""
        self.lines.append(f"T{len(self.sets)}{options}: {body}")
        self.sets.append(texts)


def joined(left: set[str], right: set[str]) -> set[str]:
    return {x + y for x in left for y in right if len(x + y) <= 5}


@pytest.mark.parametrize("seed", range(few(60)))
def test_attributes_under_operators(seed: int) -> None:
    terminals = Terminals(Random(seed))
    for _ in range(4):
        terminals.add()
    grammar = "\n".join(["start: T3", *terminals.lines])
    try:
        compiled = lark_to_grammar(grammar)
    except SpecError as error:
        pytest.fail(f"{error}\n{grammar}")
    wrong = [text for text in UNIVERSE if accepts(compiled, text.encode()) != (text in terminals.sets[3])]
    assert not wrong, grammar


@pytest.mark.parametrize("text", [r"/(.|\n)*/", r"/(.|\n)+/", "/[^<]+|</"])
@pytest.mark.parametrize("head", ['TEXT "<tool_call>"', '"<tool_call>"'])
def test_repeated_text_could_be_cut_within_a_mark(text: str, head: str) -> None:
    """`<tool_cal` and `l>z` are two texts, but llguidance's lexer reads a mark in them."""
    rules = f'TEXT: {text}\nhd[lazy]: {head}\ntool: hd "x" /[0-9]+/ "</tool_call>"\n'
    with pytest.raises(UnsupportedError, match=r"tool\* TEXT") as refusal:
        grammar_to_grammar(f"start: (tool | TEXT)*\n{rules}", dialect="lark")
    assert refusal.value.keyword == "lazy"
    grammar_to_grammar(f"start: tool* TEXT\n{rules}", dialect="lark")
