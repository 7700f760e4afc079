"""``<|name|>``, ``<[12,20-30]>``, ``<[^12]>``, ``<[*]>``: tokens matched by name or by id."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from dotllm.grammar import Expression, Grammar
from dotllm.languages.source import Source

if TYPE_CHECKING:
    from dotllm.vocabulary import Vocabulary

MAX_IDS = 1 << 20

_NONE: Mapping[str, int] = MappingProxyType({})
_RANGE = re.compile(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?")


class TokenNames(NamedTuple):
    """The tokens of a tokenizer that have names: ids by name."""

    special: Mapping[str, int] = _NONE
    """Tokens that stand for no text. A token's name in the text of a structural tag means the token."""
    added: Mapping[str, int] = _NONE
    """Tokens that stand for their text (``<tool_call>`` of Qwen 3). Their names mean the tokens where a token is
    asked for, but not in a text, which other tokens can also write."""
    ends: frozenset[int] = frozenset()
    """The ids at which generation stops, with or without a name."""

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> TokenNames:
        """The names of a vocabulary's tokens."""
        return cls(vocabulary.special_tokens, vocabulary.added_tokens, frozenset(vocabulary.eos_token_ids))

    @property
    def named_ends(self) -> dict[int, str]:
        """The names of ``ends`` by id; an id without a name is its own name."""
        return {token: str(token) for token in self.ends} | {
            token: name for names in (self.added, self.special) for name, token in names.items() if token in self.ends
        }

    def find(self, name: str) -> int | None:
        """The id of the token of this name."""
        return self.special.get(name, self.added.get(name))


def token_expression(
    text: str, token_names: TokenNames | None, grammar: Grammar, source: Source, at: int
) -> Expression:
    """One token of the set that ``text`` names. ``token_names``: None without a tokenizer."""
    if not (text.startswith("<[") and text.endswith("]>")):
        if token_names is None:
            raise source.unsupported(f"{text} requires a tokenizer that defines it", at, "special token")
        number = token_names.find(text)
        if number is None:
            raise source.invalid(
                f"the tokenizer has no special or added token {text}", at, "special token", "unknown_token"
            )
        return grammar.tokens([number])
    inner = text[2:-2]
    if inner == "*":
        return grammar.tokens([], exclude=True)
    exclude = inner.startswith("^")
    ids: set[int] = set()
    for part in inner[exclude:].split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise source.invalid(f"{part!r} is neither a token id nor a range of ids", at, "special token")
        first = int(match[1])
        last = int(match[2]) if match[2] else first
        if last < first or last - first + len(ids) > MAX_IDS:
            raise source.invalid(f"{part!r} is not a range of token ids", at, "special token")
        ids.update(range(first, last + 1))
    return grammar.tokens(ids, exclude=exclude)
