"""Writes a language of numbers as an expression. The sets are in `number_language`.

A text belongs if its exact decimal value does (see `number_text` for the spellings). A single allowed value (const,
enum, minimum = maximum) is spelled in its shortest form, or as Python or JavaScript prints it. Unless the value must
be an integer, ``.0`` may follow an integral value, because 1 and 1.0 are the same JSON number.
"""

from __future__ import annotations

from dotllm.grammar.grammar import Expression, Grammar
from dotllm.languages.json_schema.context import Context
from dotllm.languages.json_schema.numbers.bounded_numbers import as_read, is_finite, most_characters
from dotllm.languages.json_schema.numbers.number_digits import decimal_places
from dotllm.languages.json_schema.numbers.number_language import NumberLanguage, satisfies
from dotllm.languages.json_schema.numbers.number_text import NumberConstraint, magnitudes
from dotllm.languages.json_schema.numbers.real_set import Exact, Interval, RealSet

_NEGATIVE = RealSet(True, ((0, 0),))
_NOT_NEGATIVE = ~_NEGATIVE


def number_expression(language: NumberLanguage, context: Context) -> Expression:
    """The texts of a language, as one rule of the grammar shared by all uses. Raises `BudgetExceededError` for a huge
    multipleOf."""
    result = context.memo.get(language)
    if result is None:
        grammar = context.grammar
        rule = grammar.rule("integer" if all(constraint.integer for constraint, _ in language.parts) else "number")
        context.memo[language] = result = grammar.call(rule)
        grammar.define(rule, _alternatives(language, grammar, bounded=context.bounded_numbers))
    return result


def _alternatives(language: NumberLanguage, grammar: Grammar, *, bounded: bool) -> Expression:
    words: set[bytes] = set()
    choices: list[Expression] = []
    # Sorted, so that equal schemas give equal grammars.
    for constraint, numbers in sorted(language.parts, key=repr) if len(language.parts) > 1 else language.parts:
        single, rest = _without_points(numbers)
        for value in single:
            if satisfies(value, constraint):
                spelled = spellings(value, integer=constraint.integer)
                words.update(filter(is_finite, spelled) if bounded else spelled)
        if bounded:
            rest = as_read(rest, constraint)
        if rest:
            choices.extend(_signed(grammar, rest, constraint, bounded=bounded))
    if words:
        choices.append(grammar.literals(words))
    return grammar.alt(choices)


def spellings(value: Exact, *, integer: bool = False) -> set[bytes]:
    """The spellings of a single value: plain, and as Python and JavaScript print it."""
    places = decimal_places(value)
    sign = "-" if value < 0 else ""
    digits = str(abs(int(value * 10**places)))
    if places:
        padded = digits.rjust(places + 1, "0")
        texts = [f"{sign}{padded[:-places]}.{padded[-places:]}"]
    elif integer:
        return {f"{sign}{digits}".encode()}
    else:
        texts = [f"{sign}{digits}", f"{sign}{digits}.0"]
    # Both print the shortest decimal form, with an exponent if it is small or large enough.
    power = len(digits) - 1 - places
    if value and (power >= 16 or power < -3):
        digits = digits.rstrip("0")
        mantissa = sign + digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
        texts += [f"{mantissa}e{power:+}", f"{mantissa}e{power:+03}"]
        if power > 0:
            texts.append(f"{mantissa}e{power}")
    return {text.encode() for text in texts}


def _without_points(numbers: RealSet) -> tuple[list[Exact], RealSet]:
    """The single values of ``numbers``, and the rest."""
    single: list[Exact] = []
    rest: list[Interval] = []
    for low, high in numbers.intervals():
        if low is not None and high is not None and low[0] == high[0]:
            single.append(low[0])
        else:
            rest.append((low, high))
    return single, (RealSet.from_intervals(rest) if single else numbers)


def _signed(grammar: Grammar, numbers: RealSet, constraint: NumberConstraint, *, bounded: bool) -> list[Expression]:
    """The texts of a set; its part below 0 is written as a minus sign and the mirrored part."""

    def texts_of(part: RealSet) -> Expression:
        most = most_characters(part, constraint) if bounded else 0
        return magnitudes(part, constraint, bounded).copy_into(grammar, most)

    if not numbers.below and numbers.cuts[0] >= (0, 0):
        return [texts_of(numbers)]
    not_negative = numbers & _NOT_NEGATIVE
    negative = (numbers & _NEGATIVE).mirrored()
    if negative and 0 in numbers:
        negative = negative | RealSet.points([0])
    if negative == not_negative:
        return [grammar.seq([grammar.optional(grammar.literal(b"-")), texts_of(not_negative)])]
    out = [texts_of(not_negative)] if not_negative else []
    if negative:
        out.append(grammar.seq([grammar.literal(b"-"), texts_of(negative)]))
    return out
