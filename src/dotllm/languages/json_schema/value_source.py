"""Restricts a schema's strings and numbers to those of one source, a text that the answer is about.

A model that extracts facts invents some of them. With a source, a value must come from the source wherever the schema
allows one that does. Elsewhere nothing changes, so no schema loses all its answers.

*Strings* are parts of the text, copied verbatim. A copy begins and ends where a word or a sign does (``C#``, ``$12``).
In scripts without spaces each character counts as a word. White space may be copied as it is, or as one space: a name
broken over two lines is still a name. The automaton reads the text as a chain that may be entered before any word and
left after any word; determinised, it is the suffix automaton of the text, with at most two states per character
(A. Blumer et al., "The smallest automaton recognizing the subwords of a text", Theoretical Computer Science 40, 1985).
A date may be written as in ISO 8601 if the text contains its year, its month (an English name, or a number in a date)
and its day. Of an ``enum``, the members whose words the text contains, in upper or lower case, remain.

*Numbers* are those of the text, in digits or in English words; a percentage may be a fraction (8 % is 8 or 0.08).

Values from the schema's annotations may be written, too: its defaults and examples, and the numbers and quoted texts in
its descriptions (``default is 'miles'``).
"""

from __future__ import annotations

import contextlib
import datetime
import re
import unicodedata
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

from dotllm.automata.dfa import Budget, Dfa
from dotllm.automata.dfa.nfa import NfaBuilder
from dotllm.charset import CharSet
from dotllm.errors import BudgetExceededError, InvalidSpecError
from dotllm.languages.json_input import is_unicode
from dotllm.languages.json_schema.numbers.number_language import NumberLanguage
from dotllm.languages.json_schema.reading.subschemas import values_in
from dotllm.languages.json_schema.strings.string_language import StringLanguage

OPTION = "source"
MAX_CHARACTERS = 10_000
_STEPS = 1_000_000_000  # steps of the kernel: less than two seconds
_SPACES = re.compile(r"(\s+)")
# Thai, Lao, Tibetan, Burmese, Khmer, kana, Chinese characters.
_WITHOUT_SPACES = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_NUMBER = re.compile(
    r"(?P<sign>(?<!\w)-)?(?P<digits>\d{1,3}(?:,\d{3})+|\d+)(?:\.(?P<point>\d+)|,(?P<comma>\d{1,2})(?!\d))?"
    r"(?:[eE](?P<exponent>[+-]?\d{1,3}))?(?:\s*(?P<unit>%|percent\b|k\b|thousand\b|million\b|billion\b))?",
    re.ASCII | re.IGNORECASE,
)
_UNITS = {"k": 1000, "thousand": 1000, "million": 10**6, "billion": 10**9}
_WORDS = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6,
    "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13,
    "fourteen": 14, "fifteen": 15, "sixteen": 16, "seventeen": 17, "eighteen": 18, "nineteen": 19, "twenty": 20,
    "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
    "hundred": 100, "thousand": 1000,
}  # fmt: skip
_ANNOTATIONS = ("description", "default", "examples", "example")
_QUOTED = re.compile(r"(?<!\w)'([^'\n]{1,60})'(?!\w)|\"([^\"\n]{1,60})\"|`([^`\n]{1,60})`")
_MONTHS = "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"
_MONTH = re.compile(
    r"\b(jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)\b",
    re.IGNORECASE,
)
_NUMERIC_DATE = re.compile(r"(?<!\d)(\d{1,4})([-/.])(\d{1,2})\2(\d{1,4})(?!\d)")
_MOST_DATES = 2_000


class ValueSource:
    """A source text, and the schema of the answer about it."""

    def __init__(self, text: str, schema: Any) -> None:
        """Raises `InvalidSpecError` (``text`` is empty or not a text) or `BudgetExceededError` (it is too long)."""
        if not isinstance(text, str) or not text.strip() or not is_unicode(text):
            raise InvalidSpecError(f"{OPTION} must be non-blank text", keyword=OPTION)
        if len(text) > MAX_CHARACTERS:
            raise _too_long(f"{OPTION} has {len(text):,} characters, more than {MAX_CHARACTERS:,}")
        notes = [*_notes(schema)]
        self._parts = parts_of(text) | StringLanguage.finite(dates_in(text))
        self._with_quoted = self._parts | StringLanguage.finite(_quoted(notes))
        self._words = f" {' '.join(_words(text))} "
        self._numbers = NumberLanguage.finite(numbers_in(text))
        self._with_noted = NumberLanguage.finite(
            {*numbers_in(text), *numbers_in(" ; ".join(str(note) for _, note in notes))}
        )

    def strings(self, language: StringLanguage) -> StringLanguage:
        """The strings of ``language`` that the text contains; all of ``language`` if there are none."""
        values = [v for v in language.values if (words := _words(v)) and f" {' '.join(words)} " in self._words]
        result = StringLanguage((), values)
        free = StringLanguage(language.constraints)
        if language.constraints and not (free & self._parts).is_empty():
            result = result | (free & self._with_quoted)
        return language if result.is_empty() else result

    def numbers(self, language: NumberLanguage) -> NumberLanguage:
        """The same for numbers."""
        return language if (language & self._numbers).is_empty() else language & self._with_noted


def parts_of(text: str) -> StringLanguage:
    """The parts of ``text`` that may be copied. Raises `BudgetExceededError`."""
    budget = Budget(states=3 * MAX_CHARACTERS, steps=_STEPS)  # enough for every text and its joined white space
    builder = NfaBuilder(budget)
    state = builder.state()
    for part in filter(None, _SPACES.split(text.strip())):
        first, divisions = state, set() if part.isspace() else _divisions(part)
        for place, character in enumerate(part):
            if place in divisions:
                builder.starts.append(state)
            target = builder.state()
            builder.edge(state, CharSet.of(character), target)
            state = target
            if place + 1 in divisions:
                builder.finals.append(state)
        if part.isspace() and part != " ":
            builder.edge(first, CharSet.of(" "), state)
    try:
        result = Dfa.of_nfa(builder.arrays(OPTION), budget, OPTION)
    except BudgetExceededError:
        raise _too_long(f"{OPTION} has too many different characters for its length ({len(text):,})") from None
    return StringLanguage.automaton(result.difference(Dfa.epsilon(), budget))


def _too_long(message: str) -> BudgetExceededError:
    return BudgetExceededError(message, keyword=OPTION, help="pass the part of the text that the answer is about")


def _divisions(part: str) -> set[int]:
    """The places in a text without white space where a copy may begin or end."""
    result, before = {0, len(part)}, ""
    for place, character in enumerate(part):
        if not unicodedata.category(character).startswith("M"):  # an accent stays with its letter
            letters = before.isalnum() and character.isalnum()
            if not letters or _WITHOUT_SPACES.match(before) or _WITHOUT_SPACES.match(character):
                result.add(place)
            before = character
    return result


def _words(text: str) -> list[str]:
    """The words of a text in lower case, without signs."""
    result = []
    for part in text.casefold().split():
        places = sorted(_divisions(part))
        result += [part[a:b] for a, b in pairwise(places) if part[a:b][0].isalnum()]
    return result


def numbers_in(text: str) -> set[Fraction]:
    """The values that the numbers of a text may mean."""
    result = {Fraction(_WORDS[word]) for word in re.findall("[a-z]+", text.lower()) if word in _WORDS}
    for match in _NUMBER.finditer(text):
        digits, exponent = match["digits"].replace(",", ""), int(match["exponent"] or 0)
        if len(digits) > 40 or abs(exponent) > 308:
            continue
        number = Fraction(f"{digits}.{match['point'] or match['comma'] or 0}") * Fraction(10) ** exponent
        unit = (match["unit"] or "").lower()
        values = [number, number * _UNITS.get(unit, 1)]
        if unit in ("%", "percent"):
            values.append(number / 100)
        if match["comma"]:
            values += [Fraction(digits), Fraction(match["comma"])]
        result.update(-value if match["sign"] else value for value in values)
    return result


def dates_in(text: str) -> set[str]:
    """The dates that a text may mean, as in ISO 8601; empty if the text has too many numbers."""
    numbers = [int(digits) for digits in re.findall(r"(?<![\d.])\d{1,4}(?!\d)", text, re.ASCII)]
    years = {number for number in numbers if 1000 <= number < 3000}
    days = {number for number in numbers if 1 <= number <= 31}
    months = {_MONTHS.index(name[:3].lower()) + 1 for name in _MONTH.findall(text)}
    for first, _, middle, last in _NUMERIC_DATE.findall(text):
        months |= {number for number in map(int, (first, middle, last)) if 1 <= number <= 12}
    if len(years) * len(months) * len(days) > _MOST_DATES:
        return set()
    result = set()
    for year, month, day in product(years, months, days):
        with contextlib.suppress(ValueError):  # the 31st of April
            result.add(datetime.date(year, month, day).isoformat())
    return result


def _notes(schema: Any) -> Iterator[tuple[str, Any]]:
    """The annotations of a schema: keywords and their values."""
    for part in values_in(schema):
        if isinstance(part, dict):
            yield from ((key, part[key]) for key in _ANNOTATIONS if key in part and not isinstance(part[key], dict))


def _quoted(notes: Iterable[tuple[str, Any]]) -> set[str]:
    result: set[str] = set()
    for key, note in notes:
        if key == "description":
            result.update(next(filter(None, match)) for match in _QUOTED.findall(str(note)))
        else:
            result.update(text for text in (note if isinstance(note, list) else [note]) if isinstance(text, str))
    return {text for text in result if text and is_unicode(text)}
