r"""How a string of code points is written as a JSON string.

RFC 8259 §7 lets most characters be written raw or escaped, in several ways. We allow:

* unconstrained strings (no condition but their length): every spelling. A surrogate pair ``\uD83D\uDE00`` is one code
  point; unpaired surrogates stand for no Unicode text and are not allowed.
* strings with a condition (pattern, format, enum, const) and all keys: raw, unless JSON requires an escape. The
  escapes are ``\"`` and ``\\`` and, for control characters, the short form if there is one, or ``\u00XX`` in upper or
  lower case. So a model writes such a string as serialisers do, and a key has one spelling (control characters
  apart).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from json.encoder import encode_basestring
from typing import NamedTuple

from dotllm.charset import ANY_CHAR, MAX_CODE_POINT, CharSet
from dotllm.errors import InvalidSpecError
from dotllm.grammar.grammar import Expression, Grammar
from dotllm.memo import memoised

MUST_ESCAPE = CharSet.of((0, 0x1F), '"', "\\")
RAW = ANY_CHAR - MUST_ESCAPE
_BEYOND_ASCII = CharSet.of((0x80, MAX_CODE_POINT))
_FEW = 24  # ranges, or characters
_MUST_ESCAPE = (1 << 0x20) - 1 | 1 << 0x22 | 1 << 0x5C

_SHORT = {ord('"'): b'"', ord("\\"): b"\\", 8: b"b", 12: b"f", 10: b"n", 13: b"r", 9: b"t"}
_HEX = b"0123456789abcdef"
_ANY_HEX = b"0123456789abcdefABCDEF"


class Spelling(NamedTuple):
    """A set of characters by how they are written: raw (ASCII characters as bits), and after a backslash."""

    ascii: int
    beyond: CharSet
    short: tuple[int, ...]  # the byte after the backslash
    hex_0: tuple[int, ...]  # the last byte of \u000X
    hex_1: tuple[int, ...]  # the last byte of \u001X

    @property
    def escaped(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """What may follow a backslash; all empty if nothing needs one."""
        return self.short, self.hex_0, self.hex_1

    @property
    def raw(self) -> CharSet:
        """The characters written raw."""
        return _joined(self.ascii, self.beyond)

    @property
    def ranges(self) -> int:
        """How many ranges `raw` has."""
        touch = self.ascii >> 0x7F and self.beyond and self.beyond.ranges[0][0] == 0x80
        return _runs(self.ascii) + len(self.beyond.ranges) - bool(touch)


@memoised(lambda spelling, characters: characters.nbytes + spelling.beyond.nbytes, limit=8 << 20)
def spelling(characters: CharSet) -> Spelling:
    """The canonical spelling of one of ``characters``."""
    ascii_members = _mask((low, min(high, 0x7F)) for low, high in characters.ranges if low < 0x80)
    return spelled(ascii_members, characters & _BEYOND_ASCII)


def spelled(ascii_members: int, beyond: CharSet) -> Spelling:
    """`spelling` for a set whose ASCII members are given as bits."""
    return Spelling(ascii_members & ~_MUST_ESCAPE, beyond, *_escapes(ascii_members & _MUST_ESCAPE))


@lru_cache(maxsize=256)
def _escapes(needing: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    points = [point for point in range(0x80) if needing >> point & 1]
    return (
        tuple(sorted(_SHORT[point][0] for point in points if point in _SHORT)),
        _hex_digits(point for point in points if point < 0x10),
        _hex_digits(point for point in points if 0x10 <= point < 0x20),
    )


@memoised(lambda union, ascii_members, beyond: union.nbytes + beyond.nbytes, limit=8 << 20)
def _joined(ascii_members: int, beyond: CharSet) -> CharSet:
    """The union of both as a CharSet."""
    ranges = []
    while ascii_members:  # bounded: by the 128 characters of ASCII
        low = (ascii_members & -ascii_members).bit_length() - 1
        length = (~(ascii_members >> low) & ((ascii_members >> low) + 1)).bit_length() - 1
        ranges.append((low, low + length - 1))
        ascii_members &= -1 << (low + length)
    return CharSet(tuple(ranges)) | beyond


def _hex_digits(points: Iterable[int]) -> tuple[int, ...]:
    """The last hexadecimal digit of each point, in upper and lower case."""
    digits = bytes(_HEX[point & 15] for point in points)
    return tuple(sorted({*digits, *digits.upper()}))


def character(grammar: Grammar, characters: CharSet, *, once: bool = False) -> Expression:
    """One character of a set in its canonical spelling; a single node if no member needs an escape. ``once``: the
    place is not a loop (see `one_of`)."""
    written = spelling(characters)
    raw = one_of(grammar, written) if once else grammar.chars(written.raw)
    if not any(written.escaped):
        return raw
    escape = grammar.seq([grammar.literal(b"\\"), after_backslash(grammar, written)])
    return grammar.alt([raw, escape]) if written.ascii or written.beyond else escape


def one_of(grammar: Grammar, written: Spelling) -> Expression:
    """The characters written raw, for a place where only one character is read. For each set in a `Grammar.chars`
    node, the machine keeps tables of the vocabulary, which pay off where many characters are read; byte sets have
    none."""
    beyond = written.beyond
    if not beyond:
        return grammar.byteset(written.ascii)
    if written.ascii.bit_count() + beyond.size < _FEW or _runs(written.ascii) + len(beyond.utf8()) > _FEW:
        return grammar.chars(written.raw)
    several = in_bytes(grammar, beyond)
    return grammar.alt([grammar.byteset(written.ascii), several]) if written.ascii else several


def ranges_beside(beyond: CharSet) -> int:
    """The most ASCII ranges with which `one_of` writes a set with ``beyond`` as bytes, whatever the ranges are."""
    return _FEW - len(beyond.utf8()) if beyond.size >= _FEW else -1


def in_bytes(grammar: Grammar, beyond: CharSet) -> Expression:
    """Characters beyond ASCII as alternatives of bytes, for `one_of`. Many sets have the same ones, namely all."""

    def make() -> Expression:
        return grammar.alt(
            [grammar.seq([grammar.byteset(_mask((part,))) for part in sequence]) for sequence in beyond.utf8()]
        )

    return grammar.once(("one of", beyond), make)


def _runs(members: int) -> int:
    return (members & ~(members << 1)).bit_count()


def _mask(ranges: Iterable[tuple[int, int]]) -> int:
    mask = 0
    for low, high in ranges:
        mask |= (2 << high) - (1 << low)
    return mask


def after_backslash(grammar: Grammar, written: Spelling) -> Expression:
    """The rest of an escape."""
    choices = [grammar.bytes_in(written.short)] if written.short else []
    if written.hex_0:
        choices.append(grammar.seq([grammar.literal(b"u000"), grammar.bytes_in(written.hex_0)]))
    if written.hex_1:
        choices.append(grammar.seq([grammar.literal(b"u001"), grammar.bytes_in(written.hex_1)]))
    return grammar.alt(choices)


def any_canonical_character(grammar: Grammar) -> Expression:
    """Any one character in its canonical spelling."""
    return character(grammar, ANY_CHAR)


def any_character(grammar: Grammar) -> Expression:
    """Any one character in any of its spellings. The raw ones come first and as one node: the masks of loops over a
    large character set are precomputed."""
    hexadecimal = grammar.bytes_in(_ANY_HEX)
    below_d = grammar.bytes_in(b"0123456789abcefABCEF")
    u, d = grammar.literal(b"u"), grammar.bytes_in(b"dD")
    last_two = [hexadecimal, hexadecimal]
    plain = grammar.seq([u, below_d, hexadecimal, *last_two])
    before_surrogates = grammar.seq([u, d, grammar.bytes_in(b"01234567"), *last_two])
    high = [u, d, grammar.bytes_in(b"89abAB"), *last_two]
    low = [grammar.literal(b"\\u"), d, grammar.bytes_in(b"cdefCDEF"), *last_two]
    simple = grammar.bytes_in(b'"\\/bfnrt')
    rest = grammar.alt([simple, plain, before_surrogates, grammar.seq(high + low)])
    return grammar.alt([grammar.chars(RAW), grammar.seq([grammar.literal(b"\\"), rest])])


def quoted(text: str) -> bytes:
    """The canonical spelling of a whole string, quotes included (control characters: short or lower-case hexadecimal).

    Raises:
        InvalidSpecError: ``text`` holds a lone surrogate, which is not a character (RFC 8259 §8.2).
    """
    try:
        return encode_basestring(text).encode()
    except UnicodeEncodeError:
        raise InvalidSpecError(f"{text!r} contains a lone surrogate, which is not Unicode text") from None


def has_one_spelling(text: str) -> bool:
    """Whether `quoted` is the only canonical spelling, that is, ``text`` has no control characters."""
    return text.isprintable() or not any(char < " " for char in text)


def spellings_of_escaped(point: int) -> list[str]:
    """The canonical spellings of a character that needs an escape."""
    short = [f"\\{chr(_SHORT[point][0])}"] if point in _SHORT else []
    if point >= 0x20:
        return short
    return [*short, *sorted({f"\\u{point:04x}", f"\\u{point:04X}"})]


def text_inside(grammar: Grammar, text: str) -> Expression:
    """A text in all its canonical spellings, without quotes."""
    if has_one_spelling(text):
        return grammar.literal(quoted(text)[1:-1])
    return grammar.seq(
        [character(grammar, CharSet.of(char)) if char < " " else grammar.literal(quoted(char)[1:-1]) for char in text]
    )


def literal(grammar: Grammar, text: str) -> Expression:
    """A whole string in all its canonical spellings, quotes included."""
    quote = grammar.literal(b'"')
    return grammar.seq([quote, text_inside(grammar, text), quote])
