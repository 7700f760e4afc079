r"""regex: the Pattern of ECMA-262 §22.2.1 with the u flag, limited to what a context-free grammar can guarantee.

Every string allowed here is a valid pattern. Not every valid pattern is allowed: constructs that depend on distant
text are left out, that is, back-references, more than one named group (names must differ) and ``\0`` (no digit may
follow). Where two numbers must be in order, only forms whose order shows early are allowed: ``{n,m}`` with n below
100, and, in classes, ranges between ASCII characters, from ASCII to beyond it, and between ``\xHH`` or ``\uHHHH``
that differ in an early digit. With any other condition on the same string the format is refused: such sets are not
closed under intersection or complement.
"""

from __future__ import annotations

import re
from functools import partial

from dotllm.charset import ANY_CHAR, MAX_CODE_POINT, CharSet
from dotllm.errors import InvalidSpecError, UnsupportedError
from dotllm.grammar.grammar import Expression, Grammar
from dotllm.languages.json_schema.strings.formats.format import Format
from dotllm.languages.json_schema.strings.spelling import character, text_inside
from dotllm.languages.regex.parser import parse

_SYNTAX = "^$\\.*+?()[]{}|"
_LITERAL = ANY_CHAR - CharSet.of(_SYNTAX)
_DIGITS = "0123456789"
_HEX = CharSet.of((0x30, 0x39), (0x41, 0x46), (0x61, 0x66))
# The values of \p{…}: the general categories of Unicode.
_CATEGORIES = (
    "C Cc Cf Cn Co Cs L LC Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs"
)
_IN_CLASS = ANY_CHAR - CharSet.of("\\]-")
_BEYOND_ASCII = CharSet.of((0x80, MAX_CODE_POINT))


# Constructs of other dialects that our parser reads: unknown escapes, and groups like (?i) or (?P<name>…).
_NOT_ECMA = re.compile(
    r"(?:[^\\]|\\[\s\S])*?(?:\\[^dDsSwWfnrtvcxupPkbB0-9^$\\.*+?()\[\]{}|/-]|\(\?(?![:=!]|<[=!A-Za-z_$]))"
)


def is_pattern(text: str) -> bool:
    """Whether ``text`` is a valid pattern, even one that the grammar leaves out."""
    if _NOT_ECMA.match(text):
        return False
    try:
        parse(text, "ecma")
    except InvalidSpecError:
        return False
    except UnsupportedError:
        return True
    return True


def pattern(grammar: Grammar, least: int = 0) -> Expression:
    """The content of a JSON string that is a pattern; ``least`` 1: without the empty pattern."""
    return _Patterns(grammar).pattern(least)


def _hex_digit(value: int) -> CharSet:
    return CharSet.of(f"{value:x}{value:X}")


def _hex_above(value: int) -> CharSet:
    return CharSet.of("".join(f"{v:x}{v:X}" for v in range(value + 1, 16)))


class _Patterns:
    """The grammar, from small to large; all characters are spelled as in a JSON string."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.one = partial(character, grammar)
        self.text = partial(text_inside, grammar)
        self.hex = self.one(_HEX)

    def rule(self, name: str, body: Expression) -> Expression:
        """A call of a new rule, for a ``body`` used in several places that cannot end before its last character."""
        rule = self.grammar.rule(name)
        self.grammar.define(rule, body)
        return self.grammar.call(rule)

    def any_of(self, characters: str) -> Expression:
        return self.one(CharSet.of(characters))

    def seq(self, *parts: Expression) -> Expression:
        return self.grammar.seq(parts)

    def pattern(self, least: int) -> Expression:
        """Disjunction, written inline: it may end anywhere, so a rule for it would return at every character."""
        grammar = self.grammar
        # The text after an opening parenthesis: without a named group, and with exactly one.
        plain, named = grammar.rule("group"), grammar.rule("group with a name")
        quantifier = grammar.optional(self.quantifier())
        escape = self.seq(self.text("\\"), self.rule("escape", self.escape()))
        one_class = self.seq(self.text("["), self.rule("class", self.character_class()))
        atom = grammar.alt([self.text("."), escape, one_class])
        boundary = grammar.alt([self.any_of("^$"), self.seq(self.text("\\"), self.any_of("bB"))])

        def group(inside: Expression) -> Expression:
            """Groups are quantified; look-around is not (with the u flag)."""
            captured = self.seq(self.text("("), grammar.optional(self.text("?:")), inside, quantifier)
            looked = self.seq(self.text("(?"), grammar.optional(self.text("<")), self.any_of("=!"), inside)
            return grammar.alt([captured, looked])

        literal = self.one(_LITERAL)
        term = grammar.alt(
            [
                literal,
                self.seq(grammar.alt([literal, atom]), quantifier),
                boundary,
                self.text("|"),
                group(grammar.call(plain)),
            ]
        )
        anything = grammar.repeat(term)
        grammar.define(plain, self.seq(anything, self.text(")")))
        name = self.seq(
            self.one(CharSet.of("_$", (0x41, 0x5A), (0x61, 0x7A))),
            grammar.repeat(self.one(CharSet.of("_$", (0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A)))),
        )
        with_name = self.seq(self.text("(?<"), name, self.text(">"), grammar.call(plain), quantifier)
        one_name = self.seq(anything, grammar.alt([with_name, group(grammar.call(named))]), anything)
        grammar.define(named, self.seq(one_name, self.text(")")))
        return grammar.alt([grammar.repeat(term, least), one_name])

    def quantifier(self) -> Expression:
        """``*``, ``+``, ``?``, ``{n}``, ``{n,}``, ``{n,m}``, each optionally lazy."""
        grammar = self.grammar
        digit = self.any_of(_DIGITS)
        positive = self.any_of(_DIGITS[1:])
        edges: list[tuple[int, Expression, int]] = []
        # 0: n · 1: after {n} · 2 + n: after n of one or two digits and the comma
        end = 2 + 100
        for n in range(100):
            more = [self.text(f"{n},")]
            longer = self.seq(positive, grammar.repeat(digit, 2 if n >= 10 else 1))
            if n >= 10:
                tens, ones = divmod(n, 10)
                same = [self.seq(self.text(str(tens)), self.any_of(_DIGITS[ones:]))]
                if tens < 9:
                    same.append(self.seq(self.any_of(_DIGITS[tens + 1 :]), digit))
            else:
                same = [self.any_of(_DIGITS[n:])]
            edges.append((0, grammar.seq(more), 2 + n))
            edges.append((2 + n, grammar.alt([grammar.empty(), longer, *same]), end))
        edges.append((0, grammar.repeat(digit, 1), end))  # {n}
        edges.append((0, self.seq(grammar.repeat(digit, 1), self.text(",")), end))  # {n,}
        counts = self.rule("counts", self.seq(grammar.network(end + 1, 0, [end], edges), self.text("}")))
        counted = self.seq(self.text("{"), counts)
        return self.seq(grammar.alt([self.any_of("*+?"), counted]), grammar.optional(self.text("?")))

    def escape(self) -> Expression:
        """AtomEscape except back-references and ``\\0``, after the backslash."""
        return self.grammar.alt([*self.shared_escapes(), self.any_of(_SYNTAX + "/")])

    def shared_escapes(self) -> list[Expression]:
        """The escapes allowed both inside and outside classes, after the backslash."""
        grammar = self.grammar
        code_point = grammar.alt([grammar.repeat(self.hex, 1, 5), self.seq(self.text("10"), *[self.hex] * 4)])
        categories = grammar.literals(name.encode() for name in _CATEGORIES.split())
        return [
            self.any_of("dDsSwWfnrtv"),
            self.seq(self.text("c"), self.one(CharSet.of((0x41, 0x5A), (0x61, 0x7A)))),
            self.seq(self.text("x"), self.hex, self.hex),
            self.seq(self.text("u"), *[self.hex] * 4),
            self.seq(self.text("u{"), code_point, self.text("}")),
            self.seq(self.any_of("pP"), self.text("{"), categories, self.text("}")),
        ]

    def character_class(self) -> Expression:
        """``[…]`` after the bracket; a hyphen stands first, last, or between the ends of a range."""
        grammar = self.grammar
        dash, backslash = self.text("-"), self.text("\\")
        escape = grammar.alt([*self.shared_escapes(), self.any_of(_SYNTAX + "/-b"), self.escaped_ranges()])
        escape = self.seq(backslash, self.rule("escape in a class", escape))
        ranges = self.rule("range", self.ascii_ranges())
        items = grammar.repeat(grammar.alt([self.one(_IN_CLASS), escape, ranges]))
        first = grammar.alt([self.one(_IN_CLASS - CharSet.of("^")), escape, ranges])
        negated = self.seq(self.text("^"), grammar.optional(dash), items)
        plain = grammar.alt([self.seq(dash, items), grammar.optional(self.seq(first, items))])
        return self.seq(grammar.alt([negated, plain]), grammar.optional(dash), self.text("]"))

    def ascii_ranges(self) -> Expression:
        """``a-z``: from an ASCII character to one that is not below it."""
        grammar = self.grammar
        escaped = [
            self.seq(self.text("\\x"), self.any_of("89abcdefABCDEF"), self.hex),
            self.seq(self.text("\\u0"), self.any_of("123456789abcdefABCDEF"), self.hex, self.hex),
            self.seq(self.text("\\u"), self.any_of("123456789abcdefABCDEF"), self.hex, self.hex, self.hex),
        ]
        beyond = grammar.alt([self.one(_BEYOND_ASCII), *escaped])
        edges = [(2, beyond, 1)]
        points = [point for point in range(0x20, 0x7F) if chr(point) not in "\\]-^"]
        for state, low in enumerate(points, 3):
            above = CharSet.of((low, 0x7F)) - CharSet.of("\\]-")
            edges.append((0, self.text(f"{chr(low)}-"), state))
            edges.append((state, self.one(above), 1))
            edges.append((state, grammar.empty(), 2))
        return grammar.network(3 + len(points), 0, [1], edges)

    def escaped_ranges(self) -> Expression:
        r"""``xHH-\xHH`` and ``uHHHH-\uHHHH`` whose order shows at their first differing digit."""
        grammar = self.grammar
        choices = []
        for a in range(15):
            low, above = self.one(_hex_digit(a)), self.one(_hex_above(a))
            choices.append(self.seq(self.text("x"), low, self.hex, self.text("-\\x"), above, self.hex))
            choices.append(self.seq(self.text("u"), low, *[self.hex] * 3, self.text("-\\u"), above, *[self.hex] * 3))
            for same in range(16):
                # The first digit is the same and the second differs, or (after 0) the second is the same and the
                # third differs.
                equal = self.one(_hex_digit(same))
                parts = [self.text("u"), equal, low, *[self.hex] * 2, self.text("-\\u"), equal, above, *[self.hex] * 2]
                choices.append(grammar.seq(parts))
                zero = self.text("0")
                parts = [self.text("u"), zero, equal, low, self.hex, self.text("-\\u"), zero, equal, above, self.hex]
                choices.append(grammar.seq(parts))
        return grammar.alt(choices)


# Nothing that could be used wrongly: no escape, no quantifier, no bracket.
_PLAIN = r"[^\\*+?()\[\]{}]*"

REGEX_FORMATS = (Format("regex", "ECMA-262 §22.2.1 Pattern", _PLAIN, build=pattern, decide=is_pattern),)
