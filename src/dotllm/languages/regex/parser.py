"""Reads a pattern in layers, each a subclass of the one before: escapes, character classes, groups, expressions."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

from dotllm.charset import ANY_CHAR, CharSet
from dotllm.errors import BudgetExceededError, InvalidSpecError, Offset, SpecError, UnsupportedError
from dotllm.languages.json_input import is_unicode
from dotllm.languages.regex import unicode
from dotllm.languages.regex.syntax import (
    COUNT_LIMIT,
    NEVER,
    NO_CHARS,
    Assertion,
    AssertionKind,
    Atomic,
    Empty,
    Lazy,
    Look,
    Node,
    Repeat,
    Text,
    alt,
    chars,
    repeat,
    seq,
)
from dotllm.languages.source import OPERATORS

# The base of all readers of a regular expression: the text, the place in it, the flags in force, and the errors.

Dialect = Literal["python", "ecma"]


class Flags(NamedTuple):
    """The flags in force at a place. ``ascii``/``unicode`` are set by ``(?a)``/``(?u)`` only."""

    ignore_case: bool = False
    multiline: bool = False
    dot_all: bool = False
    verbose: bool = False
    ascii: bool = False
    unicode: bool = False


class Scanner:
    """A text, and the offset ``at`` from which the methods of subclasses read on."""

    def __init__(self, text: str, dialect: Dialect, flags: Flags) -> None:
        self.text = text
        self.at = 0
        self.dialect: Dialect = dialect
        self.flags = flags

    def invalid(self, what: str, at: int | None = None) -> InvalidSpecError:
        """The error that the text is not a regular expression."""
        offset = self.at if at is None else at
        return InvalidSpecError(
            f"invalid regular expression: {what}", location=Offset(offset), keyword="regex", code="syntax"
        )

    def unsupported(self, what: str, at: int, why: str = "is not regular", help: str = "") -> UnsupportedError:
        """The refusal of ``what`` at offset ``at``, with the reason ``why``; ``help`` says what to write instead."""
        message = f"unsupported in a regular expression: {what} ({self.text[at : at + 8]!r}) {why}"
        return UnsupportedError(message, location=Offset(at), keyword=what, help=help)

    def exceeded(self, what: str, keyword: str, at: int | None = None) -> BudgetExceededError:
        """The refusal of more than the budget allows."""
        message = f"a regular expression may not have {what}"
        return BudgetExceededError(message, location=Offset(self.at if at is None else at), keyword=keyword)

    def nul(self) -> str:
        """A NUL as an ordinary character; refused in ``python``."""
        if self.dialect == "python":
            raise self.invalid("a NUL character (write \\x00)", self.text.index("\0"))
        return "\0"


# Reads escapes: the meaning of a backslash, inside and outside character classes.

_DIGITS = CharSet(((0x30, 0x39),))
_WORD = CharSet.of((0x30, 0x39), (0x41, 0x5A), "_", (0x61, 0x7A))
_SPACES = CharSet(((0x09, 0x0D), (0x20, 0x20)))
# ECMA-262 §22.2.2.9 CharacterClassEscape :: s: WhiteSpace (category Zs, U+FEFF …) and LineTerminator.
_ECMA_SPACES = CharSet.of(
    (0x09, 0x0D), 0x20, 0xA0, 0x1680, (0x2000, 0x200A), (0x2028, 0x2029), 0x202F, 0x205F, 0x3000, 0xFEFF
)
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "a": 7}
_REFUSED = frozenset("GKXC")
_LINE_BREAK = r"(?:\r\n|[\n\v\f\r\x85\u2028\u2029])"  # Unicode TR18 RL1.6

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
        charset = {"d": unicode.digits, "w": unicode.word, "s": unicode.spaces}[lower]()
    elif lower == "s" and dialect == "ecma" and not in_ascii:
        charset = _ECMA_SPACES
    else:
        charset = {"d": _DIGITS, "w": _WORD, "s": _SPACES}[lower]
    return charset if letter == lower else ~charset


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
        """Whether three octal digits up to 377 follow, a character in `re` even without a leading zero."""
        return _OCTAL.match(self.text, self.at) is not None

    def class_escape(self) -> CharSet | None:
        r"""``\d \w \s \p{…}`` and their complements, with ``self.at`` at their letter; None for other escapes."""
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
        match = _PROPERTY.match(self.text, self.at)
        if match is None:
            raise self.invalid(f"incomplete \\{letter}", start)
        negated = (letter == "P") != bool(match[1])
        folding = None if not self.flags.ignore_case else "ascii" if self.flags.ascii else "simple"
        charset = _property_set(match[2] or match[3] or "", negated, folding)
        if charset is None:
            raise self.unsupported("\\" + match[0], start, "is not a supported Unicode property")
        self.at = match.end()
        return charset

    def character_escape(self, start: int) -> int:
        """The code point that an escape stands for, inside and outside classes alike."""
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
                braced = _BRACED.match(text, self.at)
                point = int((braced[1].lstrip("0") or "0")[:8], 16) if braced else -1
                if braced is None or point > 0x10FFFF:
                    raise self.invalid("an invalid \\u{…}", start)
                self.at = braced.end()
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
                raise self.invalid("an invalid \\c", start)
            self.at += 1
            return ord(letter) % 32
        if char == "N":
            return self._named(start)
        octal = _OCTAL_ESCAPE.match(text, at)
        if octal is not None:
            self.at = octal.end()
            return int(octal[0], 8)
        if char == "R":
            raise self.unsupported("\\R", start, "is not supported", f"write {_LINE_BREAK}")
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
        braces = _BRACES.match(self.text, self.at)
        try:
            name = unicodedata.lookup(braces[1]) if braces else ""
        except KeyError:
            name = ""
        if braces is None or len(name) != 1:
            raise self.invalid("an unknown character name", start)
        self.at = braces.end()
        return ord(name)


# Reads character classes: ``[a-z]``, their negation, and set operations on them.

MAX_NESTED_CLASSES = 100
# The most ranges that all classes of an expression may have together.
_MAX_WORK = 1_000_000

_COMMON_CLASS = re.compile(r"\[\^?(?:[^\]\\\[]|\\.){1,200}\]")
_POSIX = {
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "ascii": r"\x00-\x7f", "blank": r" \t", "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~", "space": r"\s",
    "upper": "A-Z", "word": r"\w", "xdigit": "0-9a-fA-F",
}  # fmt: skip
"""The classes of POSIX (XBD 9.3.5) and of PCRE, and what to write for each in a class."""
_POSIX_CLASS = re.compile(rf"\[:(\^?)({'|'.join(_POSIX)}):\]")
_OCTAL_IN_CLASS = re.compile("[0-7]{1,3}")
_OPERAND = re.compile(r"\[|\\[dDwWsSpP]")


@lru_cache(maxsize=4096)
def _common_class(text: str, dialect: Dialect, flags: Flags) -> CharSet | None:
    """The set of a `_COMMON_CLASS`; None if it is invalid: the caller, which knows the offset, refuses it."""
    scanner = ClassScanner(text, dialect, flags)
    scanner.at = 1
    try:
        charset = scanner._any_class(0)
    except SpecError:
        return None
    return charset if scanner.at == len(text) else None


class ClassScanner(EscapeScanner):
    """Reads character classes."""

    _work = 0  # the ranges of all classes so far

    def char_class(self, start: int) -> CharSet:
        """A class; ``self.at`` is just past its ``[``. Nested classes are read only after an operator."""
        common = _COMMON_CLASS.match(self.text, start)
        if common is not None:
            charset = _common_class(common[0], self.dialect, self.flags)
            if charset is not None:
                self.at = common.end()
                self._count(len(charset.ranges))
                return charset
        return self._any_class(start)

    def _count(self, ranges: int) -> None:
        self._work += ranges + 10
        if self._work > _MAX_WORK:
            raise self.exceeded("character classes with too many ranges", "character class")

    def _any_class(self, start: int) -> CharSet:
        stack = [_Class(start, self.flags)]
        text, size = self.text, len(self.text)
        self._class_head(stack[-1])
        while True:
            if self.at >= size:
                raise self.invalid("missing ']' of the class", stack[-1].offset)
            top = stack[-1]
            char = text[self.at]
            if char == "]" and not (self.dialect == "python" and self.at == top.first):
                self.at += 1
                charset = top.close()
                self._count(len(charset.ranges))
                if top.negated:
                    charset = ~charset
                stack.pop()
                if not stack:
                    return charset
                stack[-1].members.append(charset)
                continue
            operator = text[self.at : self.at + 2]
            if operator in ("&&", "--") and self.at != top.first and self._opens_operand(self.at + 2):
                self._count(top.apply(operator))
                self.at += 2
                if text[self.at] == "[":
                    if len(stack) >= MAX_NESTED_CLASSES:
                        raise self.exceeded(f"classes nested deeper than {MAX_NESTED_CLASSES}", "nesting")
                    self.at += 1
                    stack.append(_Class(self.at - 1, self.flags))
                    self._class_head(stack[-1])
                continue
            self._class_item(char, top)

    def _class_head(self, opened: _Class) -> None:
        if self.text.startswith("^", self.at):
            opened.negated = True
            self.at += 1
        opened.first = self.at

    def _opens_operand(self, at: int) -> bool:
        """Whether an operand of a set operation starts here: ``[`` or a class escape."""
        return _OPERAND.match(self.text, at) is not None

    def _class_item(self, char: str, top: _Class) -> None:
        """One character, class escape or range."""
        start = self.at
        low = self._class_atom(char)
        text = self.text
        if text.startswith("-", self.at) and self.at + 1 < len(text) and text[self.at + 1] != "]":
            if text[self.at + 1] == "-" and self._opens_operand(self.at + 2):
                top.add(low)
                return
            if isinstance(low, CharSet):  # [\w-x]: Annex B of ECMA-262 takes the hyphen literally
                top.add(low)
                return
            hyphen = self.at
            self.at += 1
            high = self._class_atom(text[self.at])
            if isinstance(high, CharSet):
                top.add(low)
                top.add(0x2D)
                top.add(high)
                return
            if high < low:
                raise self.invalid(f"a range out of order ({text[start : self.at]!r})", hyphen)
            top.ranges.append((low, high))
            return
        top.add(low)

    def _class_atom(self, char: str) -> int | CharSet:
        if char == "\0":
            self.nul()
        posix = _POSIX_CLASS.match(self.text, self.at) if char == "[" else None
        if posix is not None:
            ranges = f"a class of its own, [^{_POSIX[posix[2]]}]" if posix[1] else _POSIX[posix[2]]
            why = "is a set of these characters in Python and ECMA-262"
            raise self.unsupported("POSIX class", self.at, why, f"write {ranges}")
        self.at += 1
        if char != "\\":
            return ord(char)
        start = self.at - 1
        following = self.text[self.at : self.at + 1]
        named = self.class_escape()
        if named is not None:
            return named
        if following == "b":
            self.at += 1
            return 8
        octal = _OCTAL_IN_CLASS.match(self.text, self.at) if self.dialect == "python" else None
        if octal is not None:
            self.at = octal.end()
            if int(octal[0], 8) > 0xFF:
                raise self.invalid(f"an octal escape beyond \\377 ({octal[0]})", start)
            return int(octal[0], 8)
        if "1" <= following <= "9" and not self.is_octal():
            raise self.invalid(f"unknown escape \\{following} in a class", start)
        return self.character_escape(start)


class _Class:
    """A class being read: the result of the operators so far, and the union of the members after the last one.

    Under ``(?i)`` its characters are folded, but its member sets are not: nested classes and ``\\p`` are already
    folded, and folding ``\\W`` would add ``k`` to it, because ``\\W`` contains the Kelvin sign.
    """

    def __init__(self, offset: int, flags: Flags) -> None:
        self.offset = offset
        self.flags = flags
        self.negated = False
        self.first = offset
        self.ranges: list[tuple[int, int]] = []
        self.members: list[CharSet] = []
        self.left: CharSet | None = None
        self.operator = ""

    def add(self, member: int | CharSet) -> None:
        """Add a character or a set."""
        if isinstance(member, CharSet):
            self.members.append(member)
        else:
            self.ranges.append((member, member))

    def _operand(self) -> CharSet:
        ranges = self.ranges
        if ranges and self.flags.ignore_case:
            ranges = [*unicode.folded(CharSet.of(*ranges), self.flags.ascii).ranges]
        for member in dict.fromkeys(self.members):
            ranges.extend(member.ranges)
        self.ranges, self.members = [], []
        return CharSet.of(*ranges)

    def apply(self, operator: str) -> int:
        """End the operand before ``operator``; operators are applied from left to right.

        Returns the work done, in ranges; an operation costs several times as much as reading.
        """
        before = 0 if self.left is None else len(self.left.ranges)
        work = before + len(self.ranges) + sum(len(member.ranges) for member in self.members)
        self.left = self.close()
        self.operator = operator
        return 4 * work

    def close(self) -> CharSet:
        """The set, before negation."""
        operand = self._operand()
        if self.left is None:
            return operand
        return self.left & operand if self.operator == "&&" else self.left - operand


# Reads the openings of groups: the text after ``(``, and the flags in force from there on.

_FLAGS = re.compile(r"\?([aiLmsux]*)(?:-([imsx]+))?([:)])")
_NAME = re.compile(r"\?P?<([^\W\d]\w*)>")
_LOOKS = (("?=", (True, False)), ("?!", (True, True)), ("?<=", (False, False)), ("?<!", (False, True)))
_REFUSED_GROUPS = (
    ("?P=", "back-reference"),
    ("?P>", "recursion"),
    ("?&", "recursion"),
    ("?R", "recursion"),
    ("?(", "conditional"),
    ("?|", "branch reset"),
    ("*", "backtracking verb"),
)
_RECURSION = re.compile(r"\?[+-]?[0-9]+\)")
_FIELD = {"i": "ignore_case", "m": "multiline", "s": "dot_all", "x": "verbose", "a": "ascii", "u": "unicode"}


@dataclass
class Group:
    """An open group: how it closes, and the alternatives and parts read so far."""

    offset: int
    flags: Flags  # to restore at its end
    look: tuple[bool, bool] | None = None  # (ahead, negated)
    atomic: bool = False
    choices: list[Node] = field(default_factory=list)
    parts: list[Node] = field(default_factory=list)

    def close(self) -> Node:
        """The body."""
        self.choices.append(seq(self.parts))
        return alt(self.choices)


class GroupScanner(ClassScanner):
    """Reads the openings of groups."""

    inside_look = 0  # the number of open look-arounds

    def open_group(self, start: int) -> Group | None:
        """Read the text after ``(``; None if it opens no group (a comment or flags)."""
        text, flags = self.text, self.flags
        at = self.at = start + 1
        if not text.startswith("?", at) and not text.startswith("*", at):
            return Group(start, flags)
        if text.startswith("?:", at):
            self.at += 2
            return Group(start, flags)
        for opener, look in _LOOKS:
            if text.startswith(opener, at):
                self.at += len(opener)
                self.inside_look += 1
                return Group(start, flags, look)
        if text.startswith("?>", at):
            self.at += 2
            return Group(start, flags, atomic=True)
        named = _NAME.match(text, at)
        if named is not None:
            self.at = named.end()
            return Group(start, flags)
        if text.startswith("?#", at):
            self.comment(start)
            return None
        set_flags = _FLAGS.match(text, at)
        if set_flags is not None:
            return self._set_flags(set_flags, start)
        for opener, what in _REFUSED_GROUPS:
            if text.startswith(opener, at):
                raise self.unsupported(what, start)
        if _RECURSION.match(text, at):
            raise self.unsupported("recursion", start)
        raise self.invalid("unknown extension of a group", start)

    def comment(self, start: int) -> None:
        """Skip ``(?#…)``, which begins at ``start``."""
        end = self.text.find(")", start)
        if end < 0:
            raise self.invalid("missing ')' of the comment", start)
        self.at = end + 1

    def _set_flags(self, flags: re.Match[str], start: int) -> Group | None:
        """``(?i-s:`` opens a group; ``(?i)`` holds to the end of the enclosing group."""
        on, off, closer = flags.groups()
        if "L" in on:
            raise self.unsupported("locale flag", start, "depends on the machine")
        if "a" in on and "u" in on:
            raise self.invalid("flags 'a' and 'u' exclude each other", start)
        if set(on) & set(off or ""):
            raise self.invalid("a flag is turned on and off", start)
        before = self.flags
        changes = {_FIELD[flag]: True for flag in on} | {_FIELD[flag]: False for flag in off or ""}
        if "a" in on:
            changes["unicode"] = False
        if "u" in on:
            changes["ascii"] = False
        self.at = flags.end()
        self.flags = before._replace(**changes)
        return Group(start, before) if closer == ":" else None


# Regular expression text → `syntax` nodes: the syntax that ECMA-262 (with the u flag, leniently) and Python's `re`
# share.
#
# The two dialects differ in what a few signs mean:
#
# ===============  ===================================  ==============================================
# sign             ``python`` (default)                 ``ecma`` (JSON Schema)
# ===============  ===================================  ==============================================
# ``.``            not ``\n``                           not ``\n \r U+2028 U+2029``
# ``(?m) ^ $``     at ``\n``                            at any of these four
# ``\s``           space and ``\t\n\v\f\r``           white space and line ends, also beyond ASCII
# ``[]``, ``[^]``  ``]`` is a member                    the empty set, any character
# NUL itself       refused (``\x00`` is not), as vLLM   an ordinary character
#                  refuses it in a request
# ===============  ===================================  ==============================================
#
# In both, ``\d`` and ``\w`` are ASCII; ``(?u)`` makes ``\d \w \s \b`` Unicode, ``(?a)`` makes them and ``(?i)``
# ASCII. ``$`` and ``\Z`` match only at the very end, never before a final line feed. Flags in the middle hold to the
# end of their group. Set operations are read only where the signs have no older meaning: ``&&`` or ``--`` before
# ``[`` or a class escape.
#
# The parser keeps its own stack, so only `MAX_NESTING` limits nesting. An error carries the offset in the text.

MAX_LENGTH = 500_000  # a few microseconds per character
MAX_NESTING = 100  # every pass over a tree recurses at most three calls per group
MAX_ATOMIC = 200  # each needs its own proof

_LINE_ENDS = {"python": CharSet.of("\n"), "ecma": CharSet.of("\n\r\u2028\u2029")}
_DOTS = {dialect: ~ends for dialect, ends in _LINE_ENDS.items()}

# A run of characters that stand for themselves under every flag.
_PLAIN = re.compile("[^\\\\.\\[\\](){}*+?|^$#\\s\0\ud800-\udfff]+")
_VERBOSE = " \t\n\v\f\r#"  # white space that `re` skips under (?x), and the sign that begins a comment
_BOUNDARIES = {"b": AssertionKind.WORD_BOUNDARY, "B": AssertionKind.NOT_WORD_BOUNDARY}
_COUNT = re.compile(r"\{(?=[0-9,])([0-9]*)(?:(,)([0-9]*))?\}")


class Parsed(NamedTuple):
    """A syntax tree, and whether it has constructs that need another pass."""

    node: Node
    anchors: bool
    """``^`` or ``$`` outside look-around"""
    atomic: bool
    """atomic groups or possessive quantifiers"""


def parse(pattern: str, dialect: Dialect = "python", *, keep_lazy: bool = False) -> Parsed:
    """The syntax tree of ``pattern``. Lazy quantifiers match the same texts as greedy ones, so the tree does not tell
    them apart, unless ``keep_lazy``.

    Raises:
        InvalidSpecError: ``pattern`` is not a regular expression.
        UnsupportedError: ``pattern`` has a construct that is not regular; ``keyword`` names it.
        BudgetExceededError: ``pattern`` is longer than `MAX_LENGTH`, or nested deeper than `MAX_NESTING`.
        ValueError: there is no such dialect.
    """
    if not isinstance(pattern, str):
        raise InvalidSpecError(f"a regular expression must be a string, not {type(pattern).__name__}", keyword="regex")
    if dialect not in _DOTS:
        raise ValueError(f"dialect must be one of {tuple(_DOTS)}, not {dialect!r}")
    if len(pattern) > MAX_LENGTH:
        raise BudgetExceededError(f"a regular expression has at most {MAX_LENGTH:,} characters", keyword="length")
    parser = _Parser(pattern, dialect, Flags())
    parser.keep_lazy = keep_lazy
    return parser.parse()


class _Parser(GroupScanner):
    anchors = False  # outside look-around
    atomic = 0  # the number of atomic groups and possessive quantifiers
    keep_lazy = False
    unordered = -1  # where the last construct begins whose node does not say which match is tried first

    # -- the loop ----------------------------------------------------------------------------------------------------

    def parse(self) -> Parsed:
        text, size = self.text, len(self.text)
        group = Group(0, self.flags)
        stack: list[Group] = []
        plain = _PLAIN.match
        while self.at < size:
            run = plain(text, self.at)
            if run is not None:
                self._run(run[0], run.end(), group.parts)
                continue
            start = self.at
            char = text[start]
            if char == "(":
                opened = self.open_group(start)
                if opened is not None:
                    if len(stack) >= MAX_NESTING:
                        raise self.exceeded(f"groups nested deeper than {MAX_NESTING}", "nesting", start)
                    stack.append(group)
                    group = opened
                continue
            if char == "|":
                self.at += 1
                choice = seq(group.parts)
                if isinstance(choice, Empty):
                    self.unordered = start
                group.choices.append(choice)
                group.parts = []
                continue
            if char == ")":
                if not stack:
                    raise self.invalid("unbalanced ')'")
                self.at += 1
                body = group.close()
                self.flags = group.flags
                if group.look is not None:
                    ahead, negated = group.look
                    self.inside_look -= 1
                    body = Look(body, ahead, negated)
                elif group.atomic:
                    body = self._atomic(body, group.offset)
                opening = group.offset
                group = stack.pop()
                group.parts.append(self._quantified(body, opening))
                continue
            if self.flags.verbose and char in _VERBOSE:
                self._skip_comment(char)
                continue
            group.parts.append(self._atom(char, start))
        if stack:
            raise self.invalid("missing ')' of the group", group.offset)
        return Parsed(group.close(), self.anchors, self.atomic > 0)

    def _run(self, run: str, end: int, parts: list[Node]) -> None:
        """Characters that stand for themselves; a quantifier after them takes only the last one."""
        if self.flags.ignore_case:
            parts.extend(self._letter(char) for char in run[:-1])
            self.at = end
            parts.append(self._quantified(self._letter(run[-1]), end - 1))
            return
        self.at = end
        following = self.text[end : end + 1]
        if following and (following in "*+?{" or self.flags.verbose or self.text.startswith("(?#", end)):
            if len(run) > 1:
                parts.append(Text(run[:-1]))
            parts.append(self._quantified(Text(run[-1]), end - 1))
        else:
            parts.append(Text(run))

    def _skip_comment(self, char: str) -> None:
        """White space, or ``# …`` to the end of the line, under ``(?x)``."""
        if char == "#":
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
        self.at += 1

    def _atom(self, char: str, start: int) -> Node:
        """One atom other than a group, with its quantifier."""
        self.at += 1
        if char == "\\":
            node = self._escape(start)
            if isinstance(node, Assertion):
                return self._unrepeated(node)
        elif char == "[":
            node = chars(self.char_class(start))
        elif char == ".":
            node = chars(ANY_CHAR if self.flags.dot_all else _DOTS[self.dialect])
        elif char == "^":
            return self._unrepeated(self._anchor(AssertionKind.START))
        elif char == "$":
            return self._unrepeated(self._anchor(AssertionKind.END))
        elif char in "*+?":
            raise self.invalid(f"nothing to repeat before {char!r}", start)
        elif char == "{" and _COUNT.match(self.text, start):
            raise self.invalid("nothing to repeat before '{'", start)
        elif char == "\0":
            node = self._letter(self.nul())
        else:  # characters that are special only elsewhere: ] } { # and white space
            node = self._letter(char)
        return self._quantified(node, start)

    def _letter(self, char: str) -> Node:
        """One literal character."""
        if not is_unicode(char):
            return NEVER
        if self.flags.ignore_case and not char.isdigit():
            return chars(unicode.folded(CharSet(((ord(char), ord(char)),)), self.flags.ascii))
        return Text(char)

    # -- quantifiers -------------------------------------------------------------------------------------------------

    def _quantified(self, node: Node, start: int) -> Node:
        """``node`` with the quantifier that stands here, if any. Raises BudgetExceededError if a count is too large."""
        text = self.text
        while self.at < len(text):  # bounded: by the text
            if self.flags.verbose and text[self.at] in _VERBOSE:
                self._skip_comment(text[self.at])
            elif text.startswith("(?#", self.at):
                self.comment(self.at)
            else:
                break
        char = text[self.at : self.at + 1]
        if char in OPERATORS:
            (low, high), end = OPERATORS[char], self.at + 1
        elif char == "{":
            counts = _COUNT.match(text, self.at)
            if counts is None:
                return node
            least, comma, most = counts.groups()
            low = _number(least)
            high = low if not comma else _number(most) if most else None
            end = counts.end()
            if high is not None and high < low:
                raise self.invalid("the counts of a repetition are out of order")
            if max(low, high or 0) >= COUNT_LIMIT:
                raise self.exceeded(f"a repetition of more than {COUNT_LIMIT - 1}", "repetition")
        else:
            return node
        mode = text[end : end + 1]
        self.at = end + 1 if mode and mode in "?+" else end
        if self._at_quantifier():
            raise self.invalid("multiple repeat")
        repeated = repeat(node, low, high)
        if mode == "?" or isinstance(node, Repeat):
            self.unordered = start
        if mode == "+":
            return self._atomic(repeated, start)
        return Lazy(repeated, start, False) if mode == "?" and self.keep_lazy else repeated

    def _atomic(self, body: Node, start: int) -> Node:
        self.atomic += 1
        if self.atomic > MAX_ATOMIC:
            what = f"more than {MAX_ATOMIC} atomic groups or possessive quantifiers"
            raise self.exceeded(what, "atomic group", start)
        return Atomic(body, start, self.unordered < start)

    def _at_quantifier(self) -> bool:
        following = self.text[self.at : self.at + 1]
        return following in tuple("*+?") or (following == "{" and _COUNT.match(self.text, self.at) is not None)

    def _unrepeated(self, node: Node) -> Node:
        """``node``, an assertion that no quantifier may follow (unless it is in a group)."""
        if self._at_quantifier():
            raise self.invalid("a repeated assertion")
        return node

    # -- assertions --------------------------------------------------------------------------------------------------

    def _anchor(self, kind: AssertionKind) -> Node:
        """``^`` or ``$``; under ``(?m)`` also at line ends."""
        if not self.inside_look:
            self.anchors = True
        anchor = Assertion(kind, NO_CHARS)
        if not self.flags.multiline:
            return anchor
        return alt([anchor, Look(chars(_LINE_ENDS[self.dialect]), kind is AssertionKind.END, False)])

    # -- escapes -----------------------------------------------------------------------------------------------------

    def _escape(self, start: int) -> Node:
        """An escape outside a class; ``self.at`` is just past the backslash."""
        char = self.text[self.at : self.at + 1]
        if char in _BOUNDARIES:
            self.at += 1
            return Assertion(_BOUNDARIES[char], named_set("w", self.dialect, self.flags.unicode, self.flags.ascii))
        if char == "A" or char in ("Z", "z"):
            self.at += 1
            if not self.inside_look:
                self.anchors = True
            return Assertion(AssertionKind.START if char == "A" else AssertionKind.END, NO_CHARS)
        if char == "k" or char == "g":
            raise self.unsupported("back-reference" if char == "k" else "recursion", start)
        if "1" <= char <= "9" and not self.is_octal():
            raise self.unsupported("back-reference", start)
        named = self.class_escape()
        if named is not None:
            return chars(named)
        point = self.character_escape(start)
        return NEVER if 0xD800 <= point <= 0xDFFF else self._letter(chr(point))


def _number(digits: str) -> int:
    """A count, from its first 20 digits: a longer one is too large anyway, and Python reads at most 4,300 digits."""
    return int((digits.lstrip("0") or "0")[:20])
