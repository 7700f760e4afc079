"""What a backslash means, inside and outside character classes."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from dotllm.charset import CharSet
from dotllm.languages.regex import unicode
from dotllm.languages.regex.reading.scanner import Dialect, Scanner

_DIGITS = CharSet(((0x30, 0x39),))
_WORD = CharSet.of((0x30, 0x39), (0x41, 0x5A), "_", (0x61, 0x7A))
_SPACES = CharSet(((0x09, 0x0D), (0x20, 0x20)))
# ECMA-262 §22.2.2.9 CharacterClassEscape :: s: WhiteSpace (category Zs, U+FEFF …) and LineTerminator.
_ECMA_SPACES = CharSet.of(
    (0x09, 0x0D), 0x20, 0xA0, 0x1680, (0x2000, 0x200A), (0x2028, 0x2029), 0x202F, 0x205F, 0x3000, 0xFEFF
)
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "a": 7}
_REFUSED = frozenset("GKRXC")

_PROPERTY = re.compile(r"[pP](?:\{(\^?)([^{}]*)\}|([A-Z]))")
_OCTAL = re.compile("[0-3][0-7][0-7]")
_OCTAL_ESCAPE = re.compile("0[0-7]{0,2}|[1-3][0-7]{2}")
_SURROGATE_PAIR = re.compile(r"\\u([dD][c-fC-F][0-9A-Fa-f]{2})")
_BRACED = re.compile(r"\{([0-9A-Fa-f]+)\}")
_BRACES = re.compile(r"\{([^{}]+)\}")


@lru_cache(maxsize=256)
def named_set(letter: str, dialect: Dialect, in_unicode: bool, in_ascii: bool) -> CharSet:
    r"""``\d``, ``\w``, ``\s``, or with a capital their complements."""
    lower = letter.lower()
    if in_unicode:
        found = {"d": unicode.digits, "w": unicode.word, "s": unicode.spaces}[lower]()
    elif lower == "s" and dialect == "ecma" and not in_ascii:
        found = _ECMA_SPACES
    else:
        found = {"d": _DIGITS, "w": _WORD, "s": _SPACES}[lower]
    return found if letter == lower else ~found


@lru_cache(maxsize=1024)
def _property_set(name: str, negated: bool, folding: str | None) -> CharSet | None:
    r"""``\p{name}`` or, negated, ``\P{name}``; None: unknown."""
    charset = unicode.unicode_property(name)
    if charset is None:
        return None
    if folding is not None:
        charset = unicode.folded(charset, folding == "ascii")
    return ~charset if negated else charset


class EscapeScanner(Scanner):
    """Reads escapes; ``self.at`` is just past the backslash, whose offset is ``start``."""

    def is_octal(self) -> bool:
        """`re`: three octal digits up to 377 are a character even without a leading zero."""
        return _OCTAL.match(self.text, self.at) is not None

    def class_escape(self) -> CharSet | None:
        r"""``\d \w \s \p{…}`` and their complements, with ``self.at`` on their letter; None for other escapes."""
        char = self.text[self.at : self.at + 1]
        if not char or char not in "dwsDWSpP":
            return None
        if char in "pP":
            return self._property(char)
        self.at += 1
        return named_set(char, self.dialect, self.flags.unicode, self.flags.ascii)

    def _property(self, letter: str) -> CharSet:
        r"""``\p{Name}`` or ``\pL``."""
        start = self.at - 1
        found = _PROPERTY.match(self.text, self.at)
        if found is None:
            raise self.invalid(f"incomplete \\{letter}", start)
        negated = (letter == "P") != bool(found[1])
        folding = None if not self.flags.ignore_case else "ascii" if self.flags.ascii else "simple"
        charset = _property_set(found[2] or found[3] or "", negated, folding)
        if charset is None:
            raise self.unsupported("\\" + found[0], start, "is a Unicode property we have no table of")
        self.at = found.end()
        return charset

    def character_escape(self, start: int) -> int:
        """The code point an escape stands for; the same inside and outside classes."""
        text, at = self.text, self.at
        char = text[at : at + 1]
        if not char:
            raise self.invalid("a backslash at the end", start)
        self.at += 1
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "x":
            return self._hex(2, start)
        if char == "u":
            if text.startswith("{", self.at):
                found = _BRACED.match(text, self.at)
                point = int((found[1].lstrip("0") or "0")[:8], 16) if found else -1
                if found is None or point > 0x10FFFF:
                    raise self.invalid("a wrong \\u{…}", start)
                self.at = found.end()
                return point
            point = self._hex(4, start)
            # \uD83D\uDE00 is one character (ECMA-262: a surrogate pair under the u flag).
            pair = _SURROGATE_PAIR.match(text, self.at)
            if 0xD800 <= point <= 0xDBFF and pair is not None:
                self.at = pair.end()
                return 0x10000 + ((point - 0xD800) << 10) + (int(pair[1], 16) - 0xDC00)
            return point
        if char == "U":
            point = self._hex(8, start)
            if point > 0x10FFFF:
                raise self.invalid("a code point beyond U+10FFFF", start)
            return point
        if char == "c":
            letter = text[self.at : self.at + 1]
            if not (letter.isascii() and letter.isalpha()):
                raise self.invalid("a wrong \\c", start)
            self.at += 1
            return ord(letter) % 32
        if char == "N":
            return self._named(start)
        octal = _OCTAL_ESCAPE.match(text, at)
        if octal is not None:
            self.at = octal.end()
            return int(octal[0], 8)
        if char in _REFUSED:
            raise self.unsupported(f"\\{char}", start)
        if char == "\0":
            self.nul()
        if char.isascii() and char.isalnum():
            raise self.invalid(f"unknown escape \\{char}", start)
        return ord(char)

    def _hex(self, digits: int, start: int) -> int:
        word = self.text[self.at : self.at + digits]
        if not re.fullmatch(f"[0-9A-Fa-f]{{{digits}}}", word):
            raise self.invalid(f"an escape that needs {digits} hexadecimal digits", start)
        self.at += digits
        return int(word, 16)

    def _named(self, start: int) -> int:
        r"""``\N{LATIN SMALL LETTER A}``."""
        found = _BRACES.match(self.text, self.at)
        try:
            name = unicodedata.lookup(found[1]) if found else ""
        except KeyError:
            name = ""
        if found is None or len(name) != 1:
            raise self.invalid("an unknown character name", start)
        self.at = found.end()
        return ord(name)
