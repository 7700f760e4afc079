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
from typing import NamedTuple

from dotllm.charset import ANY_CHAR, CharSet
from dotllm.errors import BudgetExceededError, InvalidSpecError, Offset
from dotllm.languages.regex import unicode
from dotllm.languages.regex.reading.escapes import named_set
from dotllm.languages.regex.reading.groups import Group, GroupScanner
from dotllm.languages.regex.reading.scanner import Dialect, Flags
from dotllm.languages.regex.syntax import (
    COUNT_LIMIT,
    NEVER,
    NO_CHARS,
    Assertion,
    AssertionKind,
    Atomic,
    Look,
    Node,
    Repeat,
    Text,
    alt,
    chars,
    charset_of,
    repeat,
    seq,
)
from dotllm.languages.surrogates import is_unicode

MAX_LENGTH = 500_000  # some microseconds a character
MAX_NESTING = 100  # every pass over a tree recurses at most three calls per group
MAX_ATOMIC = 200  # each needs a proof of its own

_LINE_ENDS = {"python": CharSet.of("\n"), "ecma": CharSet.of("\n\r\u2028\u2029")}
_DOTS = {dialect: ~ends for dialect, ends in _LINE_ENDS.items()}

# A run of characters that mean themselves under every flag.
_PLAIN = re.compile("[^\\\\.\\[\\](){}*+?|^$#\\s\0\ud800-\udfff]+")
_COUNT = re.compile(r"\{(?=[0-9,])([0-9]*)(?:(,)([0-9]*))?\}")


class Parsed(NamedTuple):
    """A syntax tree, and which constructs stand in it that need another pass."""

    node: Node
    anchors: bool
    """``^`` or ``$`` outside look-around"""
    atomic: bool
    """atomic groups or possessive quantifiers"""


def parse(pattern: str, dialect: Dialect = "python", flags: Flags | None = None) -> Parsed:
    """The syntax tree of ``pattern``.

    Raises:
        InvalidSpecError: ``pattern`` is no regular expression.
        UnsupportedError: ``pattern`` has a construct that is none in the sense of automata; ``keyword`` names it.
        BudgetExceededError: ``pattern`` is longer than `MAX_LENGTH`, or nested deeper than `MAX_NESTING`.
        ValueError: there is no such dialect.
    """
    if not isinstance(pattern, str):
        raise InvalidSpecError(f"a regular expression must be a string, not {type(pattern).__name__}", keyword="regex")
    if dialect not in _DOTS:
        raise ValueError(f"dialect must be one of {tuple(_DOTS)}, not {dialect!r}")
    if len(pattern) > MAX_LENGTH:
        raise BudgetExceededError(f"a regular expression of more than {MAX_LENGTH:,} characters", keyword="length")
    return _Parser(pattern, dialect, flags or Flags()).parse()


class _Parser(GroupScanner):
    def __init__(self, text: str, dialect: Dialect, flags: Flags) -> None:
        super().__init__(text, dialect, flags)
        self.anchors = False
        self.atomic = 0

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
                        raise BudgetExceededError(
                            f"groups nested deeper than {MAX_NESTING}", location=Offset(start), keyword="nesting"
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
                    body = Look(body, ahead, negated)
                elif group.atomic:
                    body = self._atomic(body, group.offset)
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
        return Parsed(group.close(), self.anchors, self.atomic > 0)

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
        else:  # what only means something elsewhere: ] } { # and white space
            node = self._letter(char)
        return self._quantified(node, start)

    def _letter(self, char: str) -> Node:
        """One character by itself."""
        if not is_unicode(char):
            return NEVER
        if self.flags.ignore_case and not char.isdigit():
            return chars(unicode.folded(CharSet(((ord(char), ord(char)),)), self.flags.ascii))
        return Text(char)

    # -- quantifiers -------------------------------------------------------------------------------------------------

    def _quantified(self, node: Node, start: int) -> Node:
        """``node`` with the quantifier that stands here, if any.

        Raises:
            BudgetExceededError: a count is too large.
        """
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
            least, comma, most = found.groups()
            low = _number(least)
            high = low if not comma else _number(most) if most else None
            end = found.end()
            if high is not None and high < low:
                raise self.invalid("the counts of a repetition are out of order")
            if max(low, high or 0) >= COUNT_LIMIT:
                raise BudgetExceededError(
                    f"a repetition of more than {COUNT_LIMIT - 1}", location=Offset(self.at), keyword="repetition"
                )
        else:
            return node
        mode = text[end : end + 1]
        self.at = end + 1 if mode and mode in "?+" else end
        if self._at_quantifier():
            raise self.invalid("multiple repeat")
        repeated = repeat(node, low, high)
        if isinstance(repeated, Repeat) and mode != "?" and charset_of(node) is not None:
            repeated = Repeat(node, low, high, run=True)
        if mode == "+":
            return self._atomic(repeated, start)
        return repeated

    def _atomic(self, body: Node, start: int) -> Node:
        self.atomic += 1
        if self.atomic > MAX_ATOMIC:
            raise BudgetExceededError(
                f"more than {MAX_ATOMIC} atomic groups or possessive quantifiers",
                location=Offset(start),
                keyword="atomic group",
            )
        return Atomic(body, start)

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
        here = Assertion(kind, NO_CHARS)
        if not self.flags.multiline:
            return here
        return alt([here, Look(chars(_LINE_ENDS[self.dialect]), kind is AssertionKind.END, False)])

    def _boundary(self, kind: AssertionKind) -> Node:
        return Assertion(kind, named_set("w", self.dialect, self.flags.unicode, self.flags.ascii))

    # -- escapes -----------------------------------------------------------------------------------------------------

    def _escape(self, start: int) -> Node:
        """What follows a backslash outside a class; ``self.at`` is just past the backslash."""
        char = self.text[self.at : self.at + 1]
        if char == "b":
            self.at += 1
            return self._boundary(AssertionKind.WORD_BOUNDARY)
        if char == "B":
            self.at += 1
            return self._boundary(AssertionKind.NOT_WORD_BOUNDARY)
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
    """A count; what has more than 20 digits is too much anyway, and Python reads at most 4,300."""
    return int((digits.lstrip("0") or "0")[:20])
