"""Finds a format by its name, and builds the content of its strings."""

from __future__ import annotations

from functools import cache, lru_cache

from dotllm.errors import UnsupportedError
from dotllm.grammar.fragment import Fragment
from dotllm.grammar.grammar import Grammar
from dotllm.languages.json_schema.strings import string_network
from dotllm.languages.json_schema.strings.formats.format import Format
from dotllm.languages.json_schema.strings.formats.regex import REGEX_FORMATS
from dotllm.languages.json_schema.strings.formats.regular import FORMATS as REGULAR_FORMATS

FORMATS: dict[str, Format] = {known.name: known for known in (*REGULAR_FORMATS, *REGEX_FORMATS)}

_OF_OTHERS = frozenset(
    {"base64", "base64url", "fraction", "name-email", *(f"uuid{version}" for version in range(1, 9))}
    | {f"ip{which}{what}" for which in ("v4", "v6", "vany") for what in ("address", "interface", "network")}
)
"""Names that JSON Schema does not list."""

# Standard formats that no automaton can decide, and why.
_UNDECIDABLE = {"idn-hostname": "Punycode and normal form C are not regular"}


def find(name: str) -> Format | None:
    """The format of this name (case-sensitive); None: an annotation. Raises UnsupportedError if it is undecidable."""
    reason = _UNDECIDABLE.get(name)
    if reason is not None:
        raise UnsupportedError(f"format {name!r} cannot be enforced: {reason}", keyword="format")
    return FORMATS.get(name)


@cache  # one entry for each format
def fragment(name: str) -> Fragment:
    """The content of the strings of a known format, built once per process."""
    grammar = Grammar()
    known = FORMATS[name]
    if known.build is not None:
        grammar.start = known.build(grammar)
    else:
        grammar.start = string_network.content(grammar, known.dfa(), 0, known.longest)
    return Fragment(grammar)


def build_ahead() -> None:
    """Build the formats of JSON Schema: 0.1 s, a third of which the first schema with ``format: email`` would pay."""
    for name in FORMATS.keys() - _OF_OTHERS:
        fragment(name)


@lru_cache(maxsize=32)  # the largest take a few hundred kilobytes
def fragment_of_length(name: str, low: int, high: int | None) -> Fragment:
    """`fragment` for strings of ``low`` to ``high`` characters. Raises `BudgetExceededError` or
    `UnsupportedError`."""
    grammar = Grammar()
    known = FORMATS[name]
    if known.build is not None and (low, high) == (1, None):
        grammar.start = known.build(grammar, least=1)
        return Fragment(grammar)
    if known.longest is not None:
        high = known.longest if high is None else min(high, known.longest)
    grammar.start = string_network.content(grammar, known.dfa(), low, high)
    return Fragment(grammar)
