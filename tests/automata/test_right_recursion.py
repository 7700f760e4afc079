"""Calls that may all end together: every mask is right, and one more level costs the same at any depth."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from dotllm import Index
from dotllm.languages.lark.build import lark_to_grammar
from dotllm.vocabulary import Vocabulary
from tests.effort import at_most
from tests.grammar.reference import Recogniser

TOKENS = [
    *(bytes([byte]) for byte in range(256)),
    b"x,",
    b",x",
    b"  ",
    b"ee",
    b"iii",
    b"x" * 40,
    b"e" * 300,
    b")" * 300,
]
VOCABULARY = Vocabulary.from_bytes([*TOKENS, None], eos_token_ids=len(TOKENS))

# A grammar, the beginning of a level, and what ends n levels.
RECURSIONS = {
    "optional white space": ('start: l\nl: "x" | "x" "," l WS?\nWS: " "', "x,", "x", " "),
    "optional list and mark": ('start: l ";"?\nl: "x" ("," l)? ";"?', "x,", "x", ";"),
    "optional mark": ('start: b\nb: "x" ("," b)? ";"?', "x,", "x", ";"),
    "one token an item": ('start: l\nl: "x" l? "y"?', "x", "x", "y"),
    "dangling else": ('start: s\ns: "i" s "e" s | "i" s | "x"', "i", "x", "ex"),
    "two ways to end": ('start: s\ns: "i" s "e" s | "i" s | "x" e?\ne: "-" e | "x"', "i", "x", "exx"),
    "two rules": ('start: l\nl: "x" | "x," m WS?\nm: "y" | "y;" l END?\nWS: " "\nEND: "."', "x,y;", "x", " ."),
    "ends at once, late": ('start: l ";"\nl: "x!" | "x," l WS?\nWS: " "', "x,", "x!", ""),
    "in brackets": ('start: "[" l "]"\nl: "x" | "x" "," l WS?\nWS: " "', "x,", "x", " "),
    "with a closing bracket": ('start: p\np: "(" p ")" | "x"', "(", "x", ")"),
    "with brackets of its own": ('start: l\nl: "x" | "(" l ")" WS? | "x," l WS?\nWS: " "', "(x,", "x", ")"),
    "of ignored text": ('start: l\nl: "x" | "x" "," l END?\nEND: "."\n%ignore " "', "x, ", "x", " ."),
}


def allowed(recogniser: Recogniser) -> set[int]:
    found = {len(TOKENS)} if recogniser.can_finish else set()
    for number, token in enumerate(TOKENS):
        copy = recogniser.copy()
        if all(copy.feed(byte) for byte in token):
            found.add(number)
    return found


@pytest.mark.parametrize("name", RECURSIONS)
def test_masks_are_those_of_the_recogniser(name: str, tmp_path: Path) -> None:
    grammar, begin, middle, end = RECURSIONS[name]
    opening = "[" if "brackets" in name and "own" not in name else ""
    index = Index.from_grammar(grammar, VOCABULARY)
    guide, recogniser = index.guide(), Recogniser(lark_to_grammar(grammar))
    text = (opening + begin * 7 + middle + end * 5).encode()
    for position, byte in enumerate(text):
        expected = allowed(recogniser)
        assert set(guide.allowed_tokens()) == expected, text[:position]
        assert guide.advance(byte)
        assert recogniser.feed(byte)
    assert set(guide.allowed_tokens()) == allowed(recogniser)
    index.save(tmp_path / "saved")
    again = Index.load(tmp_path / "saved", VOCABULARY).guide()
    recogniser = Recogniser(lark_to_grammar(grammar))
    for byte in text:
        assert again.advance(byte)
        assert recogniser.feed(byte)
    assert set(again.allowed_tokens()) == allowed(recogniser)


@pytest.mark.parametrize("name", RECURSIONS)
def test_a_level_costs_the_same_at_any_depth(name: str) -> None:
    grammar, begin, middle, end = RECURSIONS[name]
    index = Index.from_grammar(grammar, VOCABULARY)
    guide = index.guide()
    sizes = []
    text = ("[" if "brackets" in name and "own" not in name else "") + begin * 1000 + middle + end * 999
    with at_most(5):
        for position, byte in enumerate(text.encode()):
            guide.allowed_tokens()
            assert guide.advance(byte)
            if position % 500 == 499:
                sizes.append(index.nbytes)
    # An arena grows by doubling its regions; quadratic growth would take 30 MB or more.
    assert sizes[-1] < 12_000_000, sizes


@pytest.mark.parametrize("name", RECURSIONS)
@pytest.mark.parametrize("limit", [8, 12, 40])
def test_a_limit_is_kept(name: str, limit: int) -> None:
    """A guide that goes deeper wherever the limit allows still ends within the limit."""
    grammar, begin, _, _ = RECURSIONS[name]
    index = Index.from_grammar(grammar, VOCABULARY)
    guide, random = index.guide(), Random(name)
    mask = np.zeros((1, VOCABULARY.words), np.int32)
    assert guide.tokens_to_finish <= limit
    for left in range(limit, 0, -1):
        guide.write_mask(mask, tokens_left=left)
        choices = [token for token in range(VOCABULARY.size) if mask[0, token >> 5] >> (token & 31) & 1]
        deeper = [token for token in choices if token < 256 and chr(token) in begin]
        assert guide.advance(random.choice(deeper or choices))
        if guide.is_finished:
            return
    pytest.fail("the limit is over")
