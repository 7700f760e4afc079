"""Tokens at which generation stops: inside an answer, they are spelled with ordinary tokens or refused."""

from __future__ import annotations

from typing import Any

import pytest

from dotllm import Index, InvalidSpecError, Vocabulary
from dotllm.compilation import Kind, Specification
from dotllm.compilation.compiler import build
from dotllm.grammar import Grammar
from dotllm.grammar.end_tokens import keep_last

END, SECOND, TOOL = 256, 257, 258
SPECIAL = {"<|im_end|>": END, "<|endoftext|>": SECOND, "<|tool|>": TOOL}


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.from_bytes([*(bytes([i]) for i in range(256)), None, None, None], [END, SECOND], SPECIAL)


def reads(index: Index, *parts: str | int) -> bool:
    """Whether all ``parts`` are taken: texts byte by byte, tokens by their ids."""
    guide = index.guide()
    for part in parts:
        for token in [part] if isinstance(part, int) else part.encode():
            if not guide.advance(token):
                return False
    return guide.is_finished or guide.can_finish


def text(value: str) -> dict[str, Any]:
    return {"type": "const_string", "value": value}


def tag(begin: Any, content: Any, end: Any) -> dict[str, Any]:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def sequence(*elements: Any) -> dict[str, Any]:
    return {"type": "sequence", "elements": [*elements]}


def triggered(trigger: str, *tags: Any) -> dict[str, Any]:
    return {"type": "triggered_tags", "triggers": [trigger], "tags": [*tags]}


FREE = {"type": "any_text"}
Q = text('"q"')
NAME = "<|im_end|>"


@pytest.mark.parametrize("name", ["<|im_end|>", "<|endoftext|>"])
@pytest.mark.parametrize(
    ("form", "written"),
    [
        (lambda e: text(f"a{e}b"), "a{}b"),
        (lambda e: text(f"{e}{e}b"), "{0}{0}b"),
        (lambda e: tag("<f>", Q, f"{e}></f>"), '<f>"q"{}></f>'),
        (lambda e: tag("<f>", FREE, f"{e}!"), "<f>x{}!"),
        (lambda e: tag(e, Q, "</f>"), '{}"q"</f>'),
        (lambda e: tag(f"<{e}>", Q, "</f>"), '<{}>"q"</f>'),
        (lambda e: sequence(tag("<f>", Q, e), text("b")), '<f>"q"{}b'),
        (lambda e: sequence(tag("<f>", FREE, e), text("b")), "<f>x{}b"),
        (lambda e: sequence(tag("<f>", {"type": "any_text", "max_chars": 3}, e), text("b")), "<f>x{}b"),
        (lambda e: {"type": "repeat", "min": 2, "max": 2, "content": tag("<f>", Q, e)}, '<f>"q"{0}<f>"q"{0}'),
        (lambda e: {"type": "tags_with_separator", "tags": [tag("[", Q, "]")], "separator": e}, '["q"]{}["q"]'),
        (lambda e: triggered(f"<f{e}", tag(f"<f{e}>", Q, "</f>")), 'x<f{}>"q"</f>y'),
        (lambda e: {"type": "dispatch", "rules": [[e, text("b")]]}, "x{}b"),
        (lambda e: tag("<t>", triggered("<f", tag("<f>", Q, e)), "</t>"), '<t><f>"q"{}</t>'),
        (lambda e: {"type": "json_schema", "style": "deepseek_xml", "json_schema": {"type": "object", "properties": {e: {"const": 1}}, "required": [e]}}, '<｜DSML｜parameter name="{}" string="false">1</｜DSML｜parameter>'),
    ],
)  # fmt: skip
def test_a_text_that_is_spelt_like_an_end_token_is_whole(
    vocabulary: Vocabulary, form: Any, written: str, name: str
) -> None:
    index = Index.from_structural_tag({"format": form(name)}, vocabulary)
    assert reads(index, written.format(name))
    guide = index.guide()
    for byte in written.format(name).encode():
        assert guide.can_finish or SPECIAL[name] not in guide.allowed_tokens()
        guide.advance(byte)


def test_free_text_ends_at_the_first_end_however_it_is_spelt(vocabulary: Vocabulary) -> None:
    index = Index.from_structural_tag({"format": sequence(tag("<f>", FREE, NAME), text("b"))}, vocabulary)
    assert not reads(index, f"<f>x{NAME}y{NAME}b")


@pytest.mark.parametrize(
    ("form", "parts"),
    [
        (tag("<f>", Q, NAME), ['<f>"q"', END]),
        (tag("<f>", FREE, NAME), ["<f>x", END]),
        (tag("<f>", Q, [NAME, "</f>"]), ['<f>"q"', END]),
        (text(f"a{NAME}"), ["a", END]),
        (triggered("<f", tag("<f>", Q, NAME)), ['x<f>"q"', END]),
        (sequence(tag("<f>", Q, NAME), FREE), ['<f>"q"', END]),
        (tag("<f>", Q, {"type": "token", "token": NAME}), ['<f>"q"', END]),
        (text("a<|tool|>b"), ["a", TOOL, "b"]),
    ],
)
def test_the_last_thing_of_an_answer_may_be_an_end_token(vocabulary: Vocabulary, form: Any, parts: list[Any]) -> None:
    assert reads(Index.from_structural_tag({"format": form}, vocabulary), *parts)


TOKEN = {"type": "token", "token": NAME}


@pytest.mark.parametrize(
    "form",
    [
        sequence(TOKEN, text("b")),
        tag(TOKEN, Q, "</f>"),
        sequence(tag("<f>", Q, TOKEN), text("b")),
        {"type": "token_triggered_tags", "trigger_tokens": [NAME], "tags": [tag(TOKEN, Q, "</f>")]},
        {"type": "token_dispatch", "rules": [[NAME, text("b")]]},
        {"type": "repeat", "min": 2, "max": 3, "content": TOKEN},
        sequence({"type": "grammar", "grammar": f"start: {NAME}"}, text("b")),
    ],
)
def test_a_format_that_asks_for_an_end_token_inside_is_refused(vocabulary: Vocabulary, form: Any) -> None:
    with pytest.raises(InvalidSpecError, match=r"an end token cannot appear inside an answer.*<\|im_end\|>"):
        Index.from_structural_tag({"format": form}, vocabulary)


@pytest.mark.parametrize(
    "grammar",
    [
        'start: "a" <|im_end|> "b"',
        'start: "a" <|endoftext|> "b"',
        "start: x x\nx: <|im_end|>",
        'start: <|im_end|>+ "b" | "c"',
        'start: x "b"?\nx: "a" x | <|im_end|> x "c" | "d"',
        'start: "a" <[256-257]> "b"',
        'root ::= "a" <|im_end|> "b"',
        'root ::= "a" Token(256, 257) "b"',
    ],
)
def test_a_grammar_that_asks_for_an_end_token_inside_is_refused(vocabulary: Vocabulary, grammar: str) -> None:
    with pytest.raises(
        InvalidSpecError, match="an end token cannot appear inside an answer, because the server stops there"
    ):
        Index.from_grammar(grammar, vocabulary)


@pytest.mark.parametrize(
    ("grammar", "parts"),
    [
        ('start: "a" <|im_end|>', ["a", END]),
        ('start: "a" <|im_end|> "b"?', ["a", END]),
        ('start: ("a" <|im_end|>)+', ["a", END]),
        ('start: "a" x\nx: <|endoftext|> y | "b"\ny: "c"*', ["a", SECOND]),
        ('start: "a<|im_end|>b"', ["a<|im_end|>b"]),
        ('start: "a" <[254-300]> "b"', ["a", TOOL, "b"]),
        ('start: "a" <[*]> "b"', ["a", TOOL, "b"]),
        ('root ::= "a" <|im_end|> | "b"', ["a", END]),
    ],
)
def test_grammars_that_an_end_token_does_not_cut(vocabulary: Vocabulary, grammar: str, parts: list[Any]) -> None:
    assert reads(Index.from_grammar(grammar, vocabulary), *parts)


def test_a_set_with_other_tokens_loses_its_end_tokens_inside(vocabulary: Vocabulary) -> None:
    guide = Index.from_grammar('start: "a" <[256-300]> "b"', vocabulary).guide()
    assert guide.advance(ord("a")) and set(guide.allowed_tokens()) == {TOOL}


def test_a_server_compiles_them_so(vocabulary: Vocabulary) -> None:
    tag = {"format": text(f"a{NAME}b")}
    assert reads(build(Specification.from_value(Kind.STRUCTURAL_TAG, tag), vocabulary), f"a{NAME}b")
    with pytest.raises(InvalidSpecError, match="an end token cannot appear inside an answer"):
        build(Specification.from_value(Kind.GRAMMAR, f'start: "a" {NAME} "b"'), vocabulary)


@pytest.mark.parametrize("last", ["x", ""])
def test_an_end_token_before_an_edge_of_a_network_that_may_be_empty(vocabulary: Vocabulary, last: str) -> None:
    """The edge after the token is either one that may be empty or one that may not."""
    for must in (False, True):
        grammar = Grammar()
        token, tail = grammar.tokens([END, TOOL]), grammar.literal("t")
        edges = [(0, grammar.literal("a"), 1), (1, token, 2), (2, tail if must else grammar.optional(tail), 3)]
        finals, states = [3], 4
        if last:
            edges.append((3, grammar.optional(grammar.literal(last)), 4))
            finals, states = [4], 5
        grammar.start = grammar.network(states, 0, finals, edges)
        keep_last(grammar, {END: "<|im_end|>", SECOND: "<|endoftext|>"})
        index = Index.from_grammar_object(grammar, vocabulary)
        assert reads(index, "a", TOOL, "t") and reads(index, "a", TOOL) != must
        guide = index.guide()
        assert guide.advance(ord("a")) and (END in guide.allowed_tokens()) != must
