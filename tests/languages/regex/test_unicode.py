"""The Unicode tables against the standard library's, which are older: both agree on all characters that it knows."""

from __future__ import annotations

import unicodedata
from collections import defaultdict

import pytest

from dotllm.charset import ANY_CHAR, CharSet
from dotllm.languages.regex.unicode import digits, folded, spaces, unicode_property, word
from tests.cases import sample

CATEGORIES = [
    *("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe"),
    *("Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cn"),
]
SCALARS = [*range(0xD800), *range(0xE000, 0x110000)]


def prop(name: str) -> CharSet:
    found = unicode_property(name)
    assert found is not None, name
    return found


def test_general_categories_are_a_partition() -> None:
    union = CharSet(())
    for name in CATEGORIES:
        assert not union & prop(name), name
        union = union | prop(name)
    assert union == ANY_CHAR
    assert prop("L") == prop("Lu") | prop("Ll") | prop("Lt") | prop("Lm") | prop("Lo")
    assert prop("Letter") == prop("L") == prop("general_category=letter") == prop("gc=L")


def test_general_categories_of_the_standard_library() -> None:
    ours = {}
    for name in CATEGORIES:
        for low, high in prop(name).ranges:
            ours.update(dict.fromkeys(range(low, high + 1), name))
    known = [point for point in SCALARS if unicodedata.category(chr(point)) != "Cn"]
    changed = [point for point in known if ours[point] != unicodedata.category(chr(point))]
    assert len(changed) < 20  # the Consortium sometimes changes one
    assert not any(point < 0x250 for point in changed)


def test_named_classes_of_the_standard_library() -> None:
    for point in SCALARS:
        char = chr(point)
        if unicodedata.category(char) == "Cn":
            continue
        if char.isdecimal():
            assert point in digits()
        if char.isspace():
            assert point in spaces()
    letters = word()
    for point in range(0x3000):
        if unicodedata.category(chr(point)) != "Cn":
            assert (point in letters) == (chr(point).isalnum() or point == 0x5F), hex(point)


def simple_folding(char: str) -> str:
    """CaseFolding.txt, status C and S, from what `str` offers: full folding, and the simple lower case."""
    for mapped in (char.casefold(), char.lower()):
        if len(mapped) == 1:
            return mapped
    return char


def test_case_folding_of_the_standard_library() -> None:
    classes = defaultdict(set)
    for point in SCALARS:
        classes[simple_folding(chr(point))].add(point)
    for members in sample([members for members in classes.values() if len(members) > 1]):
        assert CharSet.of(*members).ranges == (CharSet.of(*members) & folded(CharSet.of(min(members)))).ranges


@pytest.mark.parametrize(
    ("text", "others"),
    [("k", "kK\u212a"), ("s", "sS\u017f"), ("\u00df", "\u00df\u1e9e"), ("i", "iI"), ("\u0130", "\u0130"), ("1", "1")],
)
def test_what_matches_beside_itself(text: str, others: str) -> None:
    found = folded(CharSet.of(text))
    assert all(ord(char) in found for char in others)
    assert found & CharSet.of((0, 0x2FFF)) == CharSet.of(others)


def test_ascii_folding() -> None:
    assert folded(CharSet.of("a-Z\u00e9k"), ascii_only=True) == CharSet.of("aA-zZ\u00e9kK")


def test_scripts_and_binary_properties() -> None:
    assert prop("Script=Greek") == prop("sc=Grek") == prop("Greek") == prop("IsGreek")
    assert ord("α") in prop("Greek") and ord("a") not in prop("Greek")
    assert prop("scx=Hira") - prop("sc=Hira")
    assert prop("Any") == ANY_CHAR and prop("ASCII") == CharSet.of((0, 0x7F))
    assert prop("Assigned") == ~prop("Cn")
    assert prop("ASCII_Hex_Digit") == CharSet.of("0123456789abcdefABCDEF")
    assert prop("Cs") == CharSet(())
    assert prop("Regional_Indicator") == prop("RI") == CharSet.of((0x1F1E6, 0x1F1FF))
    assert prop("Emoji_Modifier") == CharSet.of((0x1F3FB, 0x1F3FF))
    assert not (prop("RI") | prop("Emoji_Modifier") | CharSet.of("#*0123456789\u200d\ufe0f")) - prop("Emoji_Component")
    ends = [(plane + 0xFFFE, plane + 0xFFFF) for plane in range(0, 0x110000, 0x10000)]
    assert prop("Noncharacter_Code_Point") == CharSet.of((0xFDD0, 0xFDEF), *ends)
    assert not prop("XID_Start") - prop("ID_Start") and not prop("ID_Start") - prop("ID_Continue")
    assert unicode_property("Klingon") is None and unicode_property("Block=Basic_Latin") is None
