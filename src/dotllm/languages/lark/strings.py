"""Escapes in the string literals of grammars: JSON's and Python's, which Lark's own reader takes."""

from __future__ import annotations

import re

from dotllm.languages.source import Source

_SIMPLE = {c: c for c in "\"\\/'"} | dict(zip("nrtbfav0", "\n\r\t\b\f\a\v\0", strict=True))
_ESCAPE = re.compile(r"\\(?:u([dD][89abAB]..)\\u([dD][c-fC-F]..)|x(..)|u(....)|U(.{8})|(.))", re.DOTALL)


def unescape(text: str, source: Source, at: int) -> str:
    """The string a literal stands for; ``at`` is where the literal begins, for errors."""
    if "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        high, low, *codes, simple = match.groups()
        if simple is not None:
            found = _SIMPLE.get(simple)
            if found is None:
                raise source.invalid(f"unknown escape \\{simple}", at + match.start())
            return found
        try:
            if high is not None:  # a surrogate pair, as JSON writes what is beyond the BMP
                return chr(0x10000 + ((int(high, 16) & 0x3FF) << 10) + (int(low, 16) & 0x3FF))
            code = int(next(code for code in codes if code is not None), 16)
            if 0xD800 <= code <= 0xDFFF or code > 0x10FFFF:
                raise ValueError
            return chr(code)
        except ValueError:
            raise source.invalid(f"{match.group()} is no character", at + match.start()) from None

    return _ESCAPE.sub(replace, text)
