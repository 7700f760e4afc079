"""Regular expression text → `syntax` nodes: what ECMA-262 (with the u flag, leniently) and Python's `re` both can say.

The two dialects differ in what a few signs mean:

===============  ===================================  ==============================================
sign             ``python`` (default)                 ``ecma`` (JSON Schema)
===============  ===================================  ==============================================
``.``            not ``\\n``                           not ``\\n \\r U+2028 U+2029``
``(?m) ^ $``     at ``\\n``                            at any of these four
``\\s``           space and ``\\t\\n\\v\\f\\r``           white space and line ends, also beyond ASCII
``[]``, ``[^]``  ``]`` is a member                    the empty set, any character
NUL itself       refused (``\\x00`` is not), as vLLM   an ordinary character
                 refuses it in a request
===============  ===================================  ==============================================

In both, ``\\d`` and ``\\w`` are ASCII; ``(?u)`` makes ``\\d \\w \\s \\b`` Unicode, ``(?a)`` makes them and ``(?i)``
ASCII. ``$`` and ``\\Z`` are the very end, never before a final line feed. Flags in the middle hold to the end of
their group. Set operations are read where they cannot mean anything older: ``&&`` or ``--`` before ``[`` or a class
escape.

The parser keeps its own stack, so only `MAX_NESTING` limits nesting. An error carries the offset in the text.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from dotllm.automata.charset import ANY_CHAR, CharSet
from dotllm.errors import BudgetExceeded, InvalidSpec, SpecError, Unsupported
from dotllm.languages.regex import unicode
from dotllm.languages.regex.syntax import (
    COUNT_LIMIT,
    NEVER,
    At,
    Atomic,
    Look,
    Node,
    Place,
    Text,
    alt,
    chars,
    repeat,
    seq,
)

Dialect = Literal["python", "ecma"]

MAX_LENGTH = 500_000  # some microseconds a character
MAX_NESTING = 100  # every pass over a tree recurses at most three calls per group

_DIGITS = CharSet(((0x30, 0x39),))
_WORD = CharSet.of((0x30, 0x39), (0x41, 0x5A), "_", (0x61, 0x7A))
_SPACES = CharSet(((0x09, 0x0D), (0x20, 0x20)))
# ECMA-262 §22.2.2.9 CharacterClassEscape :: s: WhiteSpace (category Zs, U+FEFF …) and LineTerminator.
_ECMA_SPACES = CharSet.of(
    (0x09, 0x0D), 0x20, 0xA0, 0x1680, (0x2000, 0x200A), (0x2028, 0x2029), 0x202F, 0x205F, 0x3000, 0xFEFF
)
_LINE_ENDS = {"python": CharSet.of("\n"), "ecma": CharSet.of("\n\r\u2028\u2029")}
_DOTS = {dialect: ~ends for dialect, ends in _LINE_ENDS.items()}
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "a": 7}

_PLAIN = re.compile(r"[^\\.\[\](){}*+?|^$#\s\0]+")  # a run of characters that mean themselves under every flag
_COMMON_CLASS = re.compile(r"\[\^?(?:[^\]\\\[]|\\.)+\]")
_COUNT = re.compile(r"\{(?:([0-9]+)(?:(,)([0-9]*))?|,([0-9]+))\}")
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
_OPERAND = re.compile(r"\[|\\[dDwWsSpP]")
_PROPERTY = re.compile(r"[pP](?:\{(\^?)([^{}]*)\}|([A-Z]))")
_OCTAL = re.compile("[0-3][0-7][0-7]")
_SURROGATE_PAIR = re.compile(r"\\u([dD][c-fC-F][0-9A-Fa-f]{2})")
_RECURSION = re.compile(r"\?[+-]?[0-9]+\)")
_REFUSED_ESCAPES = {"G": r"\G", "K": r"\K", "R": r"\R", "X": r"\X", "C": r"\C"}


@lru_cache(maxsize=4096)
def _common_class(text: str, dialect: Dialect, flags: Flags) -> CharSet | None:
    """The set of a `_COMMON_CLASS`; None if it is wrong, which is better said by whoever knows where it stands."""
    parser = _Parser(text, dialect, flags)
    parser.at = 1
    try:
        charset = parser._any_class(0)
    except SpecError:
        return None
    return charset if parser.at == len(text) else None


@lru_cache(maxsize=256)
def _named_set(letter: str, dialect: Dialect, in_unicode: bool, in_ascii: bool) -> CharSet:
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


class Flags(NamedTuple):
    """The flags in force at a place. ``ascii``/``unicode`` are set by ``(?a)``/``(?u)`` only."""

    ignore_case: bool = False
    multiline: bool = False
    dot_all: bool = False
    verbose: bool = False
    ascii: bool = False
    unicode: bool = False


_FIELD = {"i": "ignore_case", "m": "multiline", "s": "dot_all", "x": "verbose", "a": "ascii", "u": "unicode"}


class Parsed(NamedTuple):
    """A syntax tree, and which of the costlier constructs stand in it."""

    node: Node
    anchors: bool
    """``^`` or ``$`` outside look-around"""
    looks: bool
    """look-around, word boundaries, or line anchors of ``(?m)``"""
    atomic: bool
    """atomic groups or possessive quantifiers"""


@dataclass
class _Group:
    """An open group: what closes it, and the alternatives and parts read so far."""

    offset: int
    flags: Flags  # to go back to
    look: tuple[bool, bool] | None = None  # (ahead, negated)
    atomic: bool = False

    def __post_init__(self) -> None:
        self.choices: list[Node] = []
        self.parts: list[Node] = []

    def close(self) -> Node:
        """The body."""
        self.choices.append(seq(self.parts))
        return alt(self.choices)


def parse(pattern: str, dialect: Dialect = "python", flags: Flags | None = None) -> Parsed:
    """The syntax tree of ``pattern``.

    Raises InvalidSpec for what is not a regular expression, Unsupported for what is none in the sense of automata
    (``keyword`` says which construct), BudgetExceeded for more than `MAX_LENGTH` or `MAX_NESTING`.
    """
    if not isinstance(pattern, str):
        raise InvalidSpec(f"a regular expression must be a string, not {type(pattern).__name__}", keyword="regex")
    if len(pattern) > MAX_LENGTH:
        raise BudgetExceeded(f"a regular expression of more than {MAX_LENGTH:,} characters", keyword="length")
    return _Parser(pattern, dialect, flags or Flags()).parse()


class _Parser:
    def __init__(self, text: str, dialect: Dialect, flags: Flags) -> None:
        self.text = text
        self.at = 0
        self.dialect: Dialect = dialect
        self.flags = flags
        self.groups = 0  # capturing groups opened
        self.anchors = self.looks = False
        self.inside_look = 0
        self.atomic = False

    # -- errors ------------------------------------------------------------------------------------------------------

    def invalid(self, what: str, at: int | None = None) -> InvalidSpec:
        offset = self.at if at is None else at
        return InvalidSpec(f"invalid regular expression: {what}", pointer=f"offset {offset}", keyword="regex")

    def unsupported(self, what: str, at: int, why: str = "is not regular") -> Unsupported:
        message = f"unsupported in a regular expression: {what} ({self.text[at : at + 8]!r}) {why}"
        return Unsupported(message, pointer=f"offset {at}", keyword=what)

    def _nul(self) -> str:
        if self.dialect == "python":
            raise self.invalid("a NUL character (write \\x00)", self.text.index("\0"))
        return "\0"

    # -- the loop ----------------------------------------------------------------------------------------------------

    def parse(self) -> Parsed:
        text, size = self.text, len(self.text)
        group = _Group(0, self.flags)
        stack: list[_Group] = []
        plain = _PLAIN.match
        while self.at < size:
            run = plain(text, self.at)
            if run is not None:
                self._run(run[0], run.end(), group.parts)
                continue
            start = self.at
            char = text[start]
            if char == "(":
                opened = self._open(start)
                if opened is not None:
                    if len(stack) >= MAX_NESTING:
                        raise BudgetExceeded(
                            f"groups nested deeper than {MAX_NESTING}", pointer=f"offset {start}", keyword="nesting"
                        )
                    stack.append(group)
                    group = opened
                continue
            if char == "|":
                self.at += 1
                group.choices.append(seq(group.parts))
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
                    self.looks = True
                    body = Look(body, ahead, negated)
                elif group.atomic:
                    self.atomic = True
                    body = Atomic(body, group.offset)
                opening = group.offset
                group = stack.pop()
                group.parts.append(self._quantified(body, opening))
                continue
            if self.flags.verbose and (char.isspace() or char == "#"):
                self._skip_comment(char)
                continue
            group.parts.append(self._atom(char, start))
        if stack:
            raise self.invalid("missing ')' of the group", group.offset)
        return Parsed(group.close(), self.anchors, self.looks, self.atomic)

    def _run(self, run: str, end: int, parts: list[Node]) -> None:
        """Characters that mean themselves; a quantifier after them takes only the last one."""
        if self.flags.ignore_case:
            parts.extend(self._letter(char) for char in run[:-1])
            self.at = end
            parts.append(self._quantified(self._letter(run[-1]), end - 1))
            return
        self.at = end
        following = self.text[end : end + 1]
        if following and (following in "*+?{" or self.flags.verbose):
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
        """One atom that is no group, with its quantifier."""
        self.at += 1
        if char == "\\":
            node = self._escape(start)
            if isinstance(node, Place):
                return self._unrepeated(node)
        elif char == "[":
            node = chars(self._class(start))
        elif char == ".":
            node = chars(ANY_CHAR if self.flags.dot_all else _DOTS[self.dialect])
        elif char == "^":
            return self._unrepeated(self._anchor(At.START))
        elif char == "$":
            return self._unrepeated(self._anchor(At.END))
        elif char in "*+?":
            raise self.invalid(f"nothing to repeat before {char!r}", start)
        elif char == "{" and _COUNT.match(self.text, start):
            raise self.invalid("nothing to repeat before '{'", start)
        elif char == "\0":
            node = self._letter(self._nul())
        else:  # what only means something elsewhere: ] } { # and white space
            node = self._letter(char)
        return self._quantified(node, start)

    def _letter(self, char: str) -> Node:
        """One character by itself."""
        if "\ud800" <= char <= "\udfff":
            return NEVER
        if self.flags.ignore_case and not char.isdigit():
            return chars(unicode.folded(CharSet(((ord(char), ord(char)),)), self.flags.ascii))
        return Text(char)

    # -- quantifiers -------------------------------------------------------------------------------------------------

    def _quantified(self, node: Node, start: int) -> Node:
        """``node`` with the quantifier that stands here, if any."""
        text = self.text
        while self.flags.verbose and self.at < len(text) and (text[self.at].isspace() or text[self.at] == "#"):
            self._skip_comment(text[self.at])
        char = text[self.at : self.at + 1]
        if char == "*":
            low, high, end = 0, None, self.at + 1
        elif char == "+":
            low, high, end = 1, None, self.at + 1
        elif char == "?":
            low, high, end = 0, 1, self.at + 1
        elif char == "{":
            found = _COUNT.match(text, self.at)
            if found is None:
                return node
            least, comma, most, only_most = found.groups()
            low = int(least[:20]) if least else 0
            high = int((most or only_most)[:20]) if most or only_most else (None if comma else low)
            end = found.end()
            if high is not None and high < low:
                raise self.invalid("the counts of a repetition are out of order")
            if max(low, high or 0) >= COUNT_LIMIT:
                raise BudgetExceeded(
                    f"a repetition of more than {COUNT_LIMIT - 1}", pointer=f"offset {self.at}", keyword="repetition"
                )
        else:
            return node
        mode = text[end : end + 1]
        self.at = end + 1 if mode and mode in "?+" else end
        if self._at_quantifier():
            raise self.invalid("multiple repeat")
        repeated = repeat(node, low, high)
        if mode == "+":
            self.atomic = True
            return Atomic(repeated, start)
        return repeated

    def _at_quantifier(self) -> bool:
        following = self.text[self.at : self.at + 1]
        return following in tuple("*+?") or (following == "{" and _COUNT.match(self.text, self.at) is not None)

    def _unrepeated(self, node: Node) -> Node:
        """``node``, an assertion that no quantifier may follow (unless it is in a group)."""
        if self._at_quantifier():
            raise self.invalid("a repeated assertion")
        return node

    # -- assertions --------------------------------------------------------------------------------------------------

    def _anchor(self, at: At) -> Node:
        """``^`` or ``$``; under ``(?m)`` also at line ends."""
        if not self.inside_look:
            self.anchors = True
        here = Place(at, _WORD)
        if not self.flags.multiline:
            return here
        self.looks = True
        return alt([here, Look(chars(_LINE_ENDS[self.dialect]), at is At.END, False)])

    def _boundary(self, at: At) -> Node:
        self.looks = True
        return Place(at, _named_set("w", self.dialect, self.flags.unicode, self.flags.ascii))

    # -- groups ------------------------------------------------------------------------------------------------------

    def _open(self, start: int) -> _Group | None:
        """Read what follows ``(``; None where no group was opened (comments, flags)."""
        text, flags = self.text, self.flags
        at = self.at = start + 1
        if not text.startswith("?", at) and not text.startswith("*", at):
            self.groups += 1
            return _Group(start, flags)
        if text.startswith("?:", at):
            self.at += 2
            return _Group(start, flags)
        for opener, look in _LOOKS:
            if text.startswith(opener, at):
                self.at += len(opener)
                self.inside_look += 1
                return _Group(start, flags, look)
        if text.startswith("?>", at):
            self.at += 2
            return _Group(start, flags, atomic=True)
        named = _NAME.match(text, at)
        if named is not None:
            self.at = named.end()
            self.groups += 1
            return _Group(start, flags)
        if text.startswith("?#", at):
            end = text.find(")", at)
            if end < 0:
                raise self.invalid("missing ')' of the comment", start)
            self.at = end + 1
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

    def _set_flags(self, found: re.Match[str], start: int) -> _Group | None:
        """``(?i-s:`` opens a group, ``(?i)`` holds to the end of the group it stands in."""
        on, off, closer = found.groups()
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
        self.at = found.end()
        self.flags = before._replace(**changes)
        return _Group(start, before) if closer == ":" else None

    # -- escapes -----------------------------------------------------------------------------------------------------

    def _escape(self, start: int) -> Node:
        """What follows a backslash outside a class; ``self.at`` is just past the backslash."""
        char = self.text[self.at : self.at + 1]
        if char == "b":
            self.at += 1
            return self._boundary(At.WORD_BOUNDARY)
        if char == "B":
            self.at += 1
            return self._boundary(At.NOT_WORD_BOUNDARY)
        if char == "A" or char in ("Z", "z"):
            self.at += 1
            if not self.inside_look:
                self.anchors = True
            return Place(At.START if char == "A" else At.END, _WORD)
        if char == "k" or char == "g":
            raise self.unsupported("back-reference" if char == "k" else "recursion", start)
        if "1" <= char <= "9" and not self._is_octal():
            raise self.unsupported("back-reference", start)
        named = self._class_escape()
        if named is not None:
            return chars(named)
        point = self._character_escape(start)
        return NEVER if 0xD800 <= point <= 0xDFFF else self._letter(chr(point))

    def _is_octal(self) -> bool:
        """`re`: three octal digits up to 377 are a character even without a leading zero."""
        return _OCTAL.match(self.text, self.at) is not None

    def _class_escape(self) -> CharSet | None:
        r"""``\d \w \s \p{…}`` and their complements, with ``self.at`` on their letter; None for other escapes."""
        char = self.text[self.at : self.at + 1]
        if not char or char not in "dwsDWSpP":
            return None
        if char in "pP":
            return self._property(char)
        self.at += 1
        return _named_set(char, self.dialect, self.flags.unicode, self.flags.ascii)

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

    def _character_escape(self, start: int) -> int:
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
                found = re.compile(r"\{([0-9A-Fa-f]+)\}").match(text, self.at)
                if found is None or int(found[1][-20:], 16) > 0x10FFFF:
                    raise self.invalid("a wrong \\u{…}", start)
                self.at = found.end()
                return int(found[1], 16)
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
        octal = re.compile("0[0-7]{0,2}|[1-3][0-7]{2}").match(text, at)
        if octal is not None:
            self.at = octal.end()
            return int(octal[0], 8)
        if char in _REFUSED_ESCAPES:
            raise self.unsupported(_REFUSED_ESCAPES[char], start)
        if char == "\0":
            self._nul()
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
        found = re.compile(r"\{([^{}]+)\}").match(self.text, self.at)
        try:
            name = unicodedata.lookup(found[1]) if found else ""
        except KeyError:
            name = ""
        if found is None or len(name) != 1:
            raise self.invalid("an unknown character name", start)
        self.at = found.end()
        return ord(name)

    # -- classes -----------------------------------------------------------------------------------------------------

    def _class(self, start: int) -> CharSet:
        """A class; ``self.at`` is just past its ``[``. Nested classes stand only after an operator."""
        common = _COMMON_CLASS.match(self.text, start)
        if common is not None:
            charset = _common_class(common[0], self.dialect, self.flags)
            if charset is not None:
                self.at = common.end()
                return charset
        return self._any_class(start)

    def _any_class(self, start: int) -> CharSet:
        stack = [_Class(start)]
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
                if self.flags.ignore_case:
                    charset = unicode.folded(charset, self.flags.ascii)
                if top.negated:
                    charset = ~charset
                stack.pop()
                if not stack:
                    return charset
                stack[-1].members.append(charset)
                continue
            operator = text[self.at : self.at + 2]
            if operator in ("&&", "--") and self.at != top.first and self._opens_operand(self.at + 2):
                top.apply(operator)
                self.at += 2
                if text[self.at] == "[":
                    if len(stack) >= MAX_NESTING:
                        raise BudgetExceeded(
                            f"classes nested deeper than {MAX_NESTING}", pointer=f"offset {self.at}", keyword="nesting"
                        )
                    self.at += 1
                    stack.append(_Class(self.at - 1))
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
            if isinstance(low, CharSet):  # [\w-x]: Annex B of ECMA-262 reads the hyphen as itself
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
            self._nul()
        self.at += 1
        if char != "\\":
            return ord(char)
        start = self.at - 1
        following = self.text[self.at : self.at + 1]
        named = self._class_escape()
        if named is not None:
            return named
        if following == "b":
            self.at += 1
            return 8
        if "1" <= following <= "9" and not self._is_octal():
            raise self.invalid(f"unknown escape \\{following} in a class", start)
        return self._character_escape(start)


class _Class:
    """A class being read: a union of members, after the operators so far."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.negated = False
        self.first = offset
        self.ranges: list[tuple[int, int]] = []
        self.members: list[CharSet] = []
        self.left: CharSet | None = None
        self.operator = ""

    def add(self, member: int | CharSet) -> None:
        """A character or a set."""
        if isinstance(member, CharSet):
            self.members.append(member)
        else:
            self.ranges.append((member, member))

    def _operand(self) -> CharSet:
        union = CharSet.of(*self.ranges)
        for member in self.members:
            union = union | member
        self.ranges, self.members = [], []
        return union

    def apply(self, operator: str) -> None:
        """``operator`` stands after the operand read so far; operators are applied from left to right."""
        self.left = self.close()
        self.operator = operator

    def close(self) -> CharSet:
        """The set."""
        operand = self._operand()
        if self.left is None:
            return operand
        return self.left & operand if self.operator == "&&" else self.left - operand
