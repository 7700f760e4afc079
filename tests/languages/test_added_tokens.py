"""Added tokens that stand for text (``<tool_call>`` of Qwen 3), named as tokens in every language that allows it."""

from __future__ import annotations

from typing import Any

import pytest

from dotllm import Index, InvalidSpecError, Vocabulary
from dotllm.compilation.wire import pack_vocabulary, unpack_vocabulary

EOS, CALL, END, THINK = 256, 257, 258, 259
BYTES: list[bytes | None] = [*(bytes([i]) for i in range(256)), None, b"<tool_call>", b"</tool_call>", None]
NAMES = {"<tool_call>": CALL, "</tool_call>": END}


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.from_bytes(BYTES, [EOS], {"<|think|>": THINK}, added_tokens=NAMES)


def reads(index: Index, *parts: str | int) -> bool:
    """Whether all ``parts`` are taken: texts byte by byte, tokens by their ids."""
    guide = index.guide()
    for part in parts:
        for token in [part] if isinstance(part, int) else part.encode():
            allowed = set(guide.allowed_tokens())
            assert guide.fork().advance(token) == (token in allowed)
            if not guide.advance(token):
                return False
    return guide.can_finish


@pytest.mark.parametrize(
    "grammar",
    [
        "start: <tool_call> /[a-z]+/ </tool_call>",
        "root ::= <tool_call> [a-z]+ </tool_call>",
        "root ::= (<tool_call> | <|think|>) [a-z]+ </tool_call>",
    ],
)
def test_grammars(vocabulary: Vocabulary, grammar: str) -> None:
    index = Index.from_grammar(grammar, vocabulary)
    assert reads(index, CALL, "ab", END)
    assert not reads(index, "<tool_call>ab</tool_call>"), "a token is asked for, not its text"
    assert not reads(index, CALL, "ab</tool_call>")


def test_a_name_that_the_tokenizer_lacks_is_refused(vocabulary: Vocabulary) -> None:
    for grammar in ("start: <tool>", "root ::= <tool>"):
        with pytest.raises(InvalidSpecError, match="no special or added token <tool>"):
            Index.from_grammar(grammar, vocabulary)
    with pytest.raises(InvalidSpecError, match="no special or added token '<tool>'"):
        Index.from_structural_tag({"format": {"type": "token", "token": "<tool>"}}, vocabulary)


def token(name: str) -> dict[str, Any]:
    return {"type": "token", "token": name}


def tag(content: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tag", "begin": token("<tool_call>"), "content": content, "end": token("</tool_call>")}


FORMATS: dict[str, tuple[dict[str, Any], list[tuple[str | int, ...]], list[tuple[str | int, ...]]]] = {
    "token": (token("<tool_call>"), [(CALL,)], [("<tool_call>",), (END,)]),
    "tag": (
        tag({"type": "any_text"}),
        [(CALL, "a < b", END), (CALL, END)],
        [(CALL, "a</tool_call>"), (CALL, "a", END, "b", END), (CALL, "a</tool_call>", END), ("<tool_call>a", END)],
    ),
    "tag of some tokens": (
        tag({"type": "any_text", "max_tokens": 3}),
        [(CALL, "abc", END), (CALL, END)],
        [(CALL, "abcd", END), (CALL, "a", END, END)],
    ),
    "tag of some characters": (
        tag({"type": "any_text", "max_chars": 3}), [(CALL, "abc", END)], [(CALL, "abcd", END), (CALL, END, END)]
    ),
    "tag of JSON": (
        tag({"type": "json_schema", "json_schema": {"type": "string"}}),
        [(CALL, '"</tool_call>"', END)],
        [(CALL, '"', END), (CALL, '"a"</tool_call>')],
    ),
    "exclude_token": (
        {"type": "exclude_token", "exclude_tokens": ["<tool_call>"]}, [("a",), (END,), (THINK,)], [(CALL,), ("ab",)]
    ),
    "any_tokens": (
        {"type": "any_tokens", "exclude_tokens": ["<tool_call>", "<|think|>"]}, [("<tool_call>", END)], [("a", CALL)]
    ),
    "token_triggered_tags": (
        {
            "type": "token_triggered_tags", "trigger_tokens": ["<tool_call>"],
            "tags": [{"begin": token("<tool_call>"), "content": {"type": "regex", "pattern": "[0-9]+"},
                      "end": token("</tool_call>")}],
        },
        [("text <tool_call>x",), ("text", CALL, "12", END, "text")],
        [("text", CALL, "x"), ("text", CALL, "12</tool_call>")],
    ),
    "token_dispatch": (
        {"type": "token_dispatch", "rules": [["<tool_call>", {"type": "regex", "pattern": "[0-9]+"}]]},
        [("a", CALL, "12")], [("a", CALL, "b")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_structural_tags(vocabulary: Vocabulary, name: str) -> None:
    format_, taken, refused = FORMATS[name]
    index = Index.from_structural_tag({"type": "structural_tag", "format": format_}, vocabulary)
    assert [reads(index, *parts) for parts in taken] == [True] * len(taken)
    assert [reads(index, *parts) for parts in refused] == [False] * len(refused)


def test_a_text_that_names_one_may_be_written_in_any_tokens(vocabulary: Vocabulary) -> None:
    """Unlike the name of a special token, which is not text."""
    format_ = {"type": "tag", "begin": "<tool_call>", "content": {"type": "any_text"}, "end": "</tool_call>"}
    index = Index.from_structural_tag({"type": "structural_tag", "format": format_}, vocabulary)
    for begin in (CALL, "<tool_call>"):
        for end in (END, "</tool_call>"):
            assert reads(index, begin, "x", end)


def test_names_are_part_of_what_a_vocabulary_is() -> None:
    made = [
        Vocabulary.from_bytes(BYTES, [EOS], {"<|think|>": THINK}, added_tokens=added)
        for added in (None, NAMES, {"<call>": CALL})
    ]
    assert len({vocabulary.fingerprint for vocabulary in made}) == 3
    for vocabulary in made:  # a vocabulary is sent to a compile process like this
        twin = unpack_vocabulary(pack_vocabulary(vocabulary))
        assert twin.fingerprint == vocabulary.fingerprint and twin.added_tokens == vocabulary.added_tokens
    with pytest.raises(ValueError, match="outside the vocabulary"):
        Vocabulary.from_bytes(BYTES, [EOS], added_tokens={"<tool>": 260})
