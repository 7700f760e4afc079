"""fraction (Pydantic's name): the strings that Python's ``fractions.Fraction`` reads, without white space,
underscores, exponents and plus signs; each number has at most 32 digits."""

from __future__ import annotations

from dotllm.languages.json_schema.strings.formats.format import Format

_DIGITS = "[0-9]{1,32}"
_NOT_ZERO = "[1-9][0-9]{0,31}"

FRACTION_FORMATS = (Format("fraction", "Python fractions.Fraction", rf"-?{_DIGITS}(?:/{_NOT_ZERO}|\.{_DIGITS})?"),)
