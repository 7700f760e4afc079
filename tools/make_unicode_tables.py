"""Write ``src/dotllm/languages/regex/unicode.txt``: the Unicode properties that ``\\p{…}`` and case folding need.

The standard library has no scripts, and its tables change with the Python version, but all replicas must agree on what
a pattern means. The data comes from the `regex` package (whose tables come from the Unicode Character Database).

    python tools/make_unicode_tables.py

Lines: ``kind name,alias,… ranges``. Ranges are pairs of base-36 numbers: the gap since the end of the previous range,
and the length less one, which is left out if 0: ``1t`` or ``1t+p``. The line ``fold`` has the simple case folding as
classes of code points (hexadecimal), each with all its members.
"""

from __future__ import annotations

from importlib.metadata import metadata
from pathlib import Path

import regex
from regex import _regex_core

TARGET = Path(__file__).parents[1] / "src/dotllm/languages/regex/unicode.txt"
ALL = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF)
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
# ECMA-262, "Binary Unicode property aliases": all but Changes_When_NFKC_Casefolded, which the package does not have.
# (Any, ASCII and Assigned need no table.)
BINARY = (
    "ALPHABETIC", "ASCIIHEXDIGIT", "BIDICONTROL", "BIDIMIRRORED", "CASED", "CASEIGNORABLE", "CHANGESWHENCASEFOLDED",
    "CHANGESWHENCASEMAPPED", "CHANGESWHENLOWERCASED", "CHANGESWHENTITLECASED", "CHANGESWHENUPPERCASED", "DASH",
    "DEFAULTIGNORABLECODEPOINT", "DEPRECATED", "DIACRITIC", "EMOJI", "EMOJICOMPONENT", "EMOJIMODIFIER",
    "EMOJIMODIFIERBASE", "EMOJIPRESENTATION", "EXTENDEDPICTOGRAPHIC", "EXTENDER", "GRAPHEMEBASE", "GRAPHEMEEXTEND",
    "HEXDIGIT", "IDCONTINUE", "IDEOGRAPHIC", "IDSBINARYOPERATOR", "IDSTART", "IDSTRINARYOPERATOR", "JOINCONTROL",
    "LOGICALORDEREXCEPTION", "LOWERCASE", "MATH", "NONCHARACTERCODEPOINT", "PATTERNSYNTAX", "PATTERNWHITESPACE",
    "QUOTATIONMARK", "RADICAL", "REGIONALINDICATOR", "SENTENCETERMINAL", "SOFTDOTTED", "TERMINALPUNCTUATION",
    "UNIFIEDIDEOGRAPH", "UPPERCASE", "VARIATIONSELECTOR", "WHITESPACE", "XIDCONTINUE", "XIDSTART",
)  # fmt: skip
# CaseFolding.txt folds these two only in Turkic languages (status T); the package always does.
TURKIC = {0x130, 0x131}


def base36(number: int) -> str:
    """``number`` in base 36."""
    text = ""
    while number or not text:
        number, digit = divmod(number, 36)
        text = DIGITS[digit] + text
    return text


def ranges(expression: str) -> str:
    """The code points that match ``expression``, as ranges in the file's form."""
    parts, after = [], 0
    for match in regex.finditer(f"{expression}+", ALL):
        for low, high in without_surrogates(ord(match[0][0]), ord(match[0][-1])):
            parts.append(base36(low - after) + ("" if high == low else "+" + base36(high - low)))
            after = high + 1
    return " ".join(parts)


def without_surrogates(low: int, high: int) -> list[tuple[int, int]]:
    """Split a range at the surrogates: ALL has U+E000 right after U+D7FF, so a match may span the gap."""
    return [(low, 0xD7FF), (0xE000, high)] if low <= 0xD7FF and high >= 0xE000 else [(low, high)]


def main() -> None:
    """Write the file."""
    text = str(metadata("regex").get_payload() or metadata("regex")["Description"])
    found_version = regex.search(r"supports Unicode ([0-9]+\.[0-9]+\.[0-9]+)", text)
    assert found_version, "the package no longer says which Unicode it has"
    lines = [f"# Unicode {found_version[1]}, by tools/make_unicode_tables.py"]
    for kind, name in (("gc", "GENERALCATEGORY"), ("sc", "SCRIPT"), ("scx", "SCRIPTEXTENSIONS")):
        values: dict[int, list[str]] = {}
        for alias, number in _regex_core.PROPERTIES[name][1].items():
            values.setdefault(number, []).append(alias)
        for aliases in values.values():
            found = ranges(rf"\p{{{name}={aliases[0]}}}")
            if found or kind == "gc":
                lines.append(f"{kind} {','.join(aliases)} {found}".rstrip())
    by_number: dict[int, list[str]] = {}
    for alias, (number, _) in _regex_core.PROPERTIES.items():
        by_number.setdefault(number, []).append(alias)
    for aliases in by_number.values():
        if any(name in BINARY for name in aliases):
            found = ranges(rf"\p{{{aliases[0]}}}")
            lines.append(f"binary {','.join(aliases)} {found}")
    cased = "".join(c for c in ALL if (c.lower() != c or c.upper() != c or c.casefold() != c) and ord(c) not in TURKIC)
    cased += "".join(c for c in ALL if regex.match(r"\p{CWCM}|\p{CWCF}", c) and c not in cased and ord(c) not in TURKIC)
    classes = set()
    for char in cased:
        same = frozenset(ord(c) for c in regex.findall(f"(?i){regex.escape(char)}", cased)) | {ord(char)}
        if len(same) > 1:
            classes.add(tuple(sorted(same)))
    lines.append("fold - " + " ".join("=".join(f"{c:x}" for c in members) for members in sorted(classes)))
    TARGET.write_text("\n".join(lines) + "\n", encoding="ascii")
    print(f"{TARGET}: {TARGET.stat().st_size} bytes, {len(lines)} lines")


if __name__ == "__main__":
    main()
