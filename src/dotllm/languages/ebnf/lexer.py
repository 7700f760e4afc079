"""Text of a GBNF or xgrammar EBNF grammar → tokens. Neither white space nor the ends of lines mean anything."""

from __future__ import annotations

import re
from typing import NamedTuple

from dotllm.languages.source import Source

_TOKEN = re.compile(
    r"""
      (?P<SPACE>(?:[ \t\r\n\f]|\#[^\r\n]*)+)
    | (?P<STRING>"(?:[^"\\\n]|\\.)*")
    | (?P<CLASS>\[(?:[^\]\\\n]|\\.)*\])
    | (?P<TOKEN>!?<(?:\[\d+\]|[^<>\s]+)>)
    | (?P<NUMBER>\d++(?![A-Za-z_-]|\.[\w-]))
    | (?P<NAME>[\w-](?:[\w-]|\.(?=[\w-]))*)
    | (?P<SIGN>::=|[|()*+?{},.=])
    """,
    re.VERBOSE | re.ASCII,
)
_HINTS = {
    "'": ": strings are written in double quotes",
    '"': ": this string does not end on its line",
    "[": ": this character class does not end on its line",
    "/": ": comments begin with '#'",
}


class EbnfToken(NamedTuple):
    """``kind`` is a group of the expression above, or the sign itself, or "END". (In GBNF a NUMBER may name a rule.)"""

    kind: str
    text: str
    at: int


def tokenise(source: Source) -> list[EbnfToken]:
    """The tokens of a grammar, ending in END. Raises InvalidSpecError for what is no token."""
    text, at, tokens = source.text, 0, []
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise source.invalid(f"unexpected {text[at]!r}{_HINTS.get(text[at], '')}", at)
        kind = match.lastgroup
        assert kind is not None  # every alternative is a group
        if kind != "SPACE":
            tokens.append(EbnfToken(match.group() if kind == "SIGN" else kind, match.group(), at))
        at = match.end()
    tokens.append(EbnfToken("END", "", len(text)))
    return tokens
