"""``<|name|>``, ``<[12,20-30]>``, ``<[^12]>``, ``<[*]>``: tokens that stand for no text, matched by their ids."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dotllm.grammar import Expression, Grammar
from dotllm.languages.source import Source

MAX_IDS = 1 << 20

_RANGE = re.compile(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?")


def token_expression(
    text: str, special_tokens: Mapping[str, int] | None, grammar: Grammar, source: Source, at: int
) -> Expression:
    """One token of the set that ``text`` names. ``special_tokens``: ids by name, None without a tokenizer."""
    if not (text.startswith("<[") and text.endswith("]>")):
        if special_tokens is None:
            raise source.unsupported(f"{text} needs a tokenizer that knows it", at, "special token")
        if text not in special_tokens:
            raise source.invalid(f"the tokenizer has no special token {text}", at, "special token")
        return grammar.tokens([special_tokens[text]])
    inner = text[2:-2]
    if inner == "*":
        return grammar.tokens([], exclude=True)
    exclude = inner.startswith("^")
    ids: set[int] = set()
    for part in inner[exclude:].split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise source.invalid(f"{part!r} is no token id and no range of them", at, "special token")
        first = int(match[1])
        last = int(match[2]) if match[2] else first
        if last < first or last - first + len(ids) > MAX_IDS:
            raise source.invalid(f"{part!r} is no range of token ids", at, "special token")
        ids.update(range(first, last + 1))
    return grammar.tokens(ids, exclude=exclude)
