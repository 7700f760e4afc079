"""Character classes: ``[a-z]``, their negation, and set operations on them."""

from __future__ import annotations

import re
from functools import lru_cache

from dotllm.charset import CharSet
from dotllm.errors import BudgetExceededError, Offset, SpecError
from dotllm.languages.regex import unicode
from dotllm.languages.regex.reading.escapes import EscapeScanner
from dotllm.languages.regex.reading.scanner import Dialect, Flags

MAX_NESTED_CLASSES = 100
# Ranges of all classes of an expression.
_MAX_WORK = 1_000_000

_COMMON_CLASS = re.compile(r"\[\^?(?:[^\]\\\[]|\\.){1,200}\]")
_OPERAND = re.compile(r"\[|\\[dDwWsSpP]")


@lru_cache(maxsize=4096)
def _common_class(text: str, dialect: Dialect, flags: Flags) -> CharSet | None:
    """The set of a `_COMMON_CLASS`; None if it is wrong: the caller knows the place and refuses it."""
    scanner = ClassScanner(text, dialect, flags)
    scanner.at = 1
    try:
        charset = scanner._any_class(0)
    except SpecError:
        return None
    return charset if scanner.at == len(text) else None


class ClassScanner(EscapeScanner):
    """Reads character classes."""

    def __init__(self, text: str, dialect: Dialect, flags: Flags) -> None:
        super().__init__(text, dialect, flags)
        self._work = 0

    def char_class(self, start: int) -> CharSet:
        """A class; ``self.at`` is just past its ``[``. Nested classes stand only after an operator."""
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
            raise BudgetExceededError(
                "character classes of too many ranges", location=Offset(self.at), keyword="character class"
            )

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
                        raise BudgetExceededError(
                            f"classes nested deeper than {MAX_NESTED_CLASSES}",
                            location=Offset(self.at),
                            keyword="nesting",
                        )
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
            self.nul()
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
        if "1" <= following <= "9" and not self.is_octal():
            raise self.invalid(f"unknown escape \\{following} in a class", start)
        return self.character_escape(start)


class _Class:
    """A class being read: a union of members, after the operators so far.

    Under ``(?i)`` its characters are folded, its members are not: nested classes and ``\\p`` have been, and folding
    ``\\W`` would put ``k`` into it, because the Kelvin sign is there.
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
        """A character or a set."""
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
        """``operator`` stands after the operand read so far; operators are applied from left to right.

        Returns the work done, in ranges; an operation is several times the work of reading.
        """
        before = 0 if self.left is None else len(self.left.ranges)
        work = before + len(self.ranges) + sum(len(member.ranges) for member in self.members)
        self.left = self.close()
        self.operator = operator
        return 4 * work

    def close(self) -> CharSet:
        """The set."""
        operand = self._operand()
        if self.left is None:
            return operand
        return self.left & operand if self.operator == "&&" else self.left - operand
