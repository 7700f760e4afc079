"""The vocabulary of the fuzzing targets; random texts of an index, and whether it accepts a text."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from random import Random

from dotllm import Index, Vocabulary


@cache
def vocabulary() -> Vocabulary:
    """Every byte, some words and special tokens."""
    words = [b'{"', b'":', b'",', b"true", b"ab", b"aaa", b"12", b"\xc3\xa9", b"\xa9a", b"]}", b"0.", b"<tool>", b"\n\n"]  # fmt: skip
    tokens: list[bytes | None] = [bytes([i]) for i in range(256)] + list(words)
    n = len(tokens)
    return Vocabulary.from_bytes([*tokens, None, None], eos_token_ids=[n], special_tokens={"<tool_call>": n + 1})


def walk(index: Index, random: Random, longest: int = 80) -> bytes | None:
    """A random text of the index, or None if the walk did not end within ``longest`` tokens."""
    guide, text, end = index.guide(), b"", index.vocabulary.eos_token_ids[0]
    for step in range(longest):
        allowed = list(guide.allowed_tokens())
        assert allowed, f"a dead end after {text!r}"
        assert (end in allowed) == guide.can_finish
        if guide.can_finish and (step > 25 or random.random() < 0.3):
            return text
        token = random.choice([one for one in allowed if one != end] or allowed)
        assert guide.accepts([token]) == 1 and guide.advance(token), (text, token)
        if token == end:
            return text
        text += index.vocabulary.token_bytes(token) or b""
    return None


def reads(index: Index, tokens: Iterable[int]) -> bool:
    """Whether the index accepts a text, given as tokens; a single byte's token has the byte's value as its id."""
    guide = index.guide()
    return all(map(guide.advance, tokens)) and guide.can_finish
