"""Masks of places where white space may go on or end, against steps of every token (see `automata.machine.walk.part`)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from dotllm import Index, Vocabulary
from tests.index.test_limits import ids

PIECES = [" ", "  ", "    ", "\n", "\t", "\r\n", '"', "a", '"a"', ":", ",", "{", "}", "[", "]", "1", "x"]
RUNS = 36
"""Spaces in the longest token, more than an indentation may have."""


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    """All bytes, runs of each kind of white space, and texts that enter and leave white space."""
    random = Random(5)
    tokens = {bytes([byte]) for byte in range(256)}
    for n in range(2, RUNS + 1):
        tokens |= {b" " * n, b"\n" + b" " * n, b"\t" * n, b"\n" + b"\t" * n, b"\n" * n}
    while len(tokens) < 6000:
        tokens.add("".join(random.choice(PIECES) for _ in range(random.randint(2, 7))).encode())
    return Vocabulary.from_bytes([*sorted(tokens), None], eos_token_ids=len(tokens))


SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "x": {"type": "array", "items": {"type": ["integer", "object"]}}, "1": {}},
}
GRAMMARS = {
    "what follows may begin with a blank": 'root ::= "{" ws (" a" | "\\tx" | "1") ws "}"\nws ::= " "? " "? " "? | "\\n"*',
    "white space after white space": 'root ::= "{" ws ws "a" ws "}"\nws ::= (" " | "\\n" | "\\t")*',
    "many callers": 'root ::= "{" item ("," ws (item | root))* "}" ws\nitem ::= "a" ws | "x" ws ("a" ws)*\n'
    'ws ::= " " " "? | "\\n" " "* | ""',
    "other items in the rule": 'root ::= ("a" ws)* "}"\nws ::= (" " | "x" | "\\n" "1"?)*',
}
SPECS: dict[str, Callable[[Vocabulary], Index]] = {
    "formatted": lambda v: Index.from_json_schema(SCHEMA, v),
    "any": lambda v: Index.from_json_schema(SCHEMA, v, whitespace="any"),
    "pattern": lambda v: Index.from_json_schema(SCHEMA, v, whitespace_pattern=r"(\n {0,4}| )?"),
    "endless": lambda v: Index.from_json_schema(SCHEMA, v, whitespace_pattern=r"\s*"),
    **{name: lambda v, g=grammar: Index.from_grammar(g, v) for name, grammar in GRAMMARS.items()},  # type: ignore[misc]
}


@pytest.mark.parametrize("name", SPECS)
def test_masks_hold_the_tokens_that_can_be_taken(name: str, vocabulary: Vocabulary) -> None:
    random, index, judge = Random(name), SPECS[name](vocabulary), SPECS[name](vocabulary)
    looked_at = 0
    for _ in range(5):
        guide, other = index.guide(), judge.guide()
        for _ in range(6):
            mask = np.array(index.masks[guide.mask_row])
            expected = [token for token in range(vocabulary.size) if other.accepts([token])]
            assert ids(mask) == expected
            looked_at += 1
            blank = [token for token in expected if not (vocabulary.token_bytes(token) or b"x").strip()]
            token = random.choice(blank if blank and random.random() < 0.5 else expected)
            assert guide.advance(token)
            assert other.advance(token)
            if guide.is_finished:
                break
    assert looked_at > 8


def test_places_share_the_states_of_white_space(vocabulary: Vocabulary) -> None:
    """A mask does not make a state for each count of spaces at its place."""
    names = [f"a{i}" for i in range(20)]
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names}
    index = Index.from_json_schema(schema, vocabulary)
    guide = index.guide()
    before = 0
    for i, name in enumerate(names):
        assert guide.accept_string(("{" if i == 0 else ",") + f'"{name}"')
        assert guide.mask_row >= 0
        assert guide.accept_string(":")
        assert guide.mask_row >= 0
        if i == 0:
            before = index.states
        assert guide.accept_string('""')
        assert guide.mask_row >= 0
    assert index.states - before < 60 * len(names)
