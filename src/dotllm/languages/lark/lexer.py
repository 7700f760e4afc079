"""Text of a Lark grammar → tokens.

One regular expression does the work. ``%json``, ``%regex`` and ``%llguidance`` are followed by a JSON value, which is
read here and becomes the token's value. Comments vanish; newlines are tokens, because they end definitions.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, NamedTuple

from dotllm.languages.source import Source

JSON_DIRECTIVES = frozenset({"%json", "%regex", "%llguidance", "%grammar_options"})

_TOKEN = re.compile(
    r"""
      (?P<SPACE>[ \t\r\f]+|(?:\#|//)[^\n]*)
    | (?P<NEWLINE>\n)
    | (?P<STRING>"(?:[^"\\\n]|\\.)*"(?:i(?![\w-]))?)
    | (?P<REGEX>/(?!/)(?:[^/\\\n]|\\.)+/[a-z]*|/(?!/)(?:[^/\\]|\\(?:.|\n))+/[a-wyz]*x[a-z]*)
    | (?P<TOKEN><[^<>\s]+>)
    | (?P<REFERENCE>@[\w-]+)
    | (?P<DIRECTIVE>%[a-z_]+)
    | (?P<NAME>_*[A-Za-z](?:\w|-(?!>))*)
    | (?P<NUMBER>[+-]?\d+(?:\.\d+)?)
    | (?P<SIGN>->|\.\.|::|[:|()\[\]{}*+?!~&,.=])
    """,
    re.VERBOSE | re.ASCII,
)


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


# Numbers exactly as they are written: a schema's bounds are exact.
_JSON = json.JSONDecoder(parse_float=Decimal, parse_constant=_refuse_constant)
_JSON_SPACE = re.compile(r"[ \t\r\n]*")


class LarkToken(NamedTuple):
    """``kind`` is a group of the expression above, or the sign itself, or "END"."""

    kind: str
    text: str
    at: int
    value: Any = None  # of a DIRECTIVE that has one, its JSON


def tokenise(source: Source) -> list[LarkToken]:
    """The tokens of a grammar, ending in END. Raises InvalidSpecError for what is no token."""
    text, at, tokens = source.text, 0, []
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _lost(source, at)
        kind, begin, at = match.lastgroup, at, match.end()
        assert kind is not None  # every alternative is a group
        if kind == "SPACE":
            continue
        if match.group() == "::":
            raise source.unsupported("'::', a rule with a parameter, is not supported", begin, "::")
        if kind == "DIRECTIVE" and match.group() in JSON_DIRECTIVES:
            space = _JSON_SPACE.match(text, at)
            value, at = _json(source, space.end() if space else at, match.group())
            tokens.append(LarkToken(kind, match.group(), begin, value))
        else:
            tokens.append(LarkToken(match.group() if kind == "SIGN" else kind, match.group(), begin))
    tokens.append(LarkToken("END", "", len(text)))
    return tokens


def _json(source: Source, at: int, directive: str) -> tuple[Any, int]:
    try:
        return _JSON.raw_decode(source.text, at)
    except json.JSONDecodeError as error:
        raise source.invalid(f"{directive} needs a JSON value: {error.msg}", error.pos, directive) from None
    except ValueError as error:
        raise source.invalid(f"{directive} needs a JSON value: {error}", at, directive) from None
    except RecursionError:
        raise source.invalid(f"the JSON value of {directive} is nested too deeply", at, directive, "too_deep") from None


def _lost(source: Source, at: int) -> Exception:
    character = source.text[at]
    hints = {
        "'": "strings are written in double quotes",
        '"': "this string does not end on its line",
        "/": "this regular expression does not end on its line",
    }
    return source.invalid(f"unexpected {character!r}" + (f": {hints[character]}" if character in hints else ""), at)
