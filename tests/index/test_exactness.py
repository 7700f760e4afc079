"""Masks on the real vocabulary, against brute force: every one of 131,072 tokens, stepped byte by byte.

The steps are the machine's own (`tests/automata/test_machine.py` compares them with an independent recogniser). These
tests judge everything that makes masks fast: the trie walk, character sets, canonical symbols, memoised and shared
rows. The machine has no dead ends by construction, so "the bytes can be read" means "it can still finish"; this is
tested, too.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numba as nb
import numpy as np
import pytest

from dotllm import Index, Vocabulary
from dotllm.automata.machine import layout
from dotllm.automata.machine.layout import FINISHED
from dotllm.automata.machine.run import advance
from tests.cases import few

STATES_PER_SPEC = few(12)

REGEXES = [
    r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}",
    r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T\d{2}:\d{2}:\d{2}Z",
    r"\(\d{3}\) \d{3}-\d{4}",
    r"(a|b|c)*a(a|b|c){20}",
    r".*a.{20}",
    r"[a-z]*abc",
    r"([a-z]{1,200},){1,200}",
    r"(?:[A-Z][a-z]{2,9} ){1,5}[A-Z][a-z]+\.",
    r"\w+( \w+){0,30}",
    r"[^\n]{0,300}\n",
    r"[é-ü]{2,8}|[а-я ]{3,40}",
    r"(?i)(yes|no|maybe)( please)?",
    r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?",
    r"[\s\S]{5,70}",
    r"(?=.*\d)(?=.*[a-z])[a-z0-9]{6,12}",
    r"([^a]*a){3}([^b]*b[^cd]*[cd])*[^e]*e[^f]*f",  # more large sets than one automaton gets tables for
]

STRING = {"type": "string"}
SCHEMAS: list[dict[str, object]] = [
    {"type": "object", "properties": {f"field_{i}": STRING for i in range(10)}, "required": ["field_0", "field_9"]},
    {"$ref": "#/$defs/t", "$defs": {"t": {"type": "object", "properties": {"v": STRING, "l": {"$ref": "#/$defs/t"}, "r": {"$ref": "#/$defs/t"}}, "required": ["v"], "additionalProperties": False}}},
    {"enum": [f"value number {i}" for i in range(1000)]},
    {"type": "string", "maxLength": 5000},
    {"type": "string", "maxLength": 30},
    {"type": "string", "minLength": 20, "maxLength": 90},
    {"type": "string", "pattern": "^[a-z0-9-]{3,40}$"},
    {"type": "string", "pattern": r"^(?:\S+\s+){0,9}\S+$", "maxLength": 90},
    {"type": "string", "format": "uri-reference", "maxLength": 80},
    {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 7},
    {"type": "array", "items": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 3}, "maxItems": 1000},
    {"type": "object", "additionalProperties": {"type": "number"}},
    {"type": "object", "properties": {"abc": {"type": "boolean"}, "abd": STRING}, "additionalProperties": STRING},
    {"anyOf": [{"type": "object", "properties": {"kind": {"const": f"k{i}"}, f"v{i}": {"type": "integer"}}, "required": ["kind"]} for i in range(20)]},
    {"type": "integer", "minimum": -17, "maximum": 123456},
    {"type": "number", "minimum": 0, "maximum": 1},
    {"type": "string", "format": "date-time"},
    {"type": ["string", "null", "array"], "items": {}},
    {},
]  # fmt: skip

GRAMMARS = [
    'root ::= expr\nexpr ::= term (("+" | "-") term)*\nterm ::= factor (("*" | "/") factor)*\nfactor ::= [0-9]+ | "(" expr ")"\n',
    'root ::= "<" tag ">" body "</" tag ">"\ntag ::= [a-z]+\nbody ::= ([^<] | root)*\n',
    # identifiers and key words overlap; every byte of a name pops and pushes its caller
    'root ::= "SELECT " name (", " name)* " FROM " name (" WHERE " cond)? ";"\ncond ::= cmp ((" AND " | " OR ") cmp)*\n'
    'cmp ::= name (" = " | " < ") (name | [0-9]+ | "\'" [^\'\\n]* "\'") | "(" cond ")"\nname ::= [a-z] [a-z_0-9]*\n',
]

SPECS: list[tuple[str, Callable[[Vocabulary], Index]]] = [
    *[(p, lambda v, p=p: Index.from_regex(p, v)) for p in REGEXES],
    *[(str(s)[:60], lambda v, s=s: Index.from_json_schema(s, v)) for s in SCHEMAS],
    *[(g[:40], lambda v, g=g: Index.from_grammar(g, v)) for g in GRAMMARS],
]


@nb.njit(cache=False)
def brute_force(mem, config, token_data, token_offset, ends, token_rows, out):
    """out[t] = 1 if token t is allowed, 0 if not; returns a code below -1 if the arena must grow."""
    for token in range(ends.shape[0]):
        after = advance(mem, config, token, token_data, token_offset, ends, token_rows)
        if after < -1:
            return after
        out[token] = after >= 0
    return 0


def allowed_by_brute_force(index: Index, config: int) -> np.ndarray:
    """The tokens allowed after ``config``, bool [vocabulary]."""
    space = index.space
    out = np.zeros(space.size, np.uint8)

    def kernel(mem: np.ndarray) -> int:
        mem[layout.H_FUEL] = 1 << 30
        return int(brute_force(mem, config, space.token_data, space.token_offset, space.ends, index.token_rows, out))

    index.run(kernel)
    return out.astype(bool)


def bits(row: np.ndarray, size: int) -> np.ndarray:
    """A mask row as bool [size]."""
    return np.unpackbits(row.view(np.uint8), bitorder="little")[:size].astype(bool)


@pytest.mark.parametrize(("name", "make"), SPECS, ids=[name for name, _ in SPECS])
def test_mask_equals_brute_force(name: str, make: Callable[[Vocabulary], Index], tekken: Vocabulary) -> None:
    """Every mask on random walks, token by token."""
    index = make(tekken)
    judge = make(tekken)  # brute force visits thousands of configurations: keep them out of the index under test
    random = Random(name)
    seen = 0
    while seen < STATES_PER_SPEC:
        guide = index.guide()
        text = b""
        for _ in range(STATES_PER_SPEC):
            config = judge.advance_bytes(judge.guide().config, text)
            expected = allowed_by_brute_force(judge, config)
            assert np.array_equal(bits(index.masks[guide.mask_row], tekken.size), expected), text
            assert expected.any()  # no dead end
            seen += 1
            choices = np.nonzero(expected)[0]
            token = int(random.choice(choices))
            if random.random() < 0.5:  # prefer short tokens half of the time, or walks end too soon
                token = int(
                    min(
                        (random.choice(choices) for _ in range(8)), key=lambda t: len(tekken.token_bytes(int(t)) or b"")
                    )
                )
            assert guide.advance(token)
            if guide.config == FINISHED:
                break
            text += tekken.token_bytes(token) or b""
        if seen >= STATES_PER_SPEC:
            break
