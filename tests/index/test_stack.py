"""The stack grows with a text's nesting, not with its length: dead parts of a symbol are not kept below later ones."""

from __future__ import annotations

import pytest

from dotllm import Index, Vocabulary
from dotllm.automata.machine import layout

VOCABULARY = Vocabulary.from_bytes([bytes([i]) for i in range(256)] + [None], eos_token_ids=[256])

FLAT = {
    "integers": ({"type": "array", "items": {"type": "integer"}}, b"[", b"12, "),
    "strings": ({"type": "array", "items": {"type": "string"}}, b"[", b'"ab",\n'),
    "objects": ({"type": "array", "items": {"type": "object", "properties": {"a": {}}}}, b"[", b'{"a": [1, 2]}, '),
    "members": ({"type": "object", "additionalProperties": {"type": "number"}}, b"{", b'"k": 1.5 , '),
}


def depth(index: Index, config: int) -> int:
    """The number of symbols on the stack of a configuration."""
    mem = index.mem
    cell = int(mem[mem[layout.R + 3 * layout.CONFIG] + 3 * config + 1])
    found = 0
    while cell > 0:
        found += 1
        cell = int(mem[mem[layout.R + 3 * layout.STACK] + 3 * cell + 1])
    return found


@pytest.mark.parametrize("name", FLAT)
def test_a_flat_list_leaves_nothing_behind(name: str) -> None:
    """After the first rounds, another thousand items add no symbol and no configuration."""
    schema, config_text, item = FLAT[name]
    index = Index.from_json_schema(schema, VOCABULARY)
    config = index.advance_bytes(index.guide().config, config_text + 3 * item)
    before, configurations = depth(index, config), index.configurations
    for _ in range(1000):
        config = index.advance_bytes(config, item)
        assert config > 0
    assert depth(index, config) == before
    assert index.configurations <= configurations + 1


def test_nesting_is_counted_and_given_back() -> None:
    """Opening brackets push and closing brackets pop."""
    index = Index.from_json_schema({"type": "array"}, VOCABULARY)
    start = index.guide().config
    deep = index.advance_bytes(start, b"[" * 50)
    assert depth(index, deep) >= 50
    closed = index.advance_bytes(deep, b"]" * 49 + b", ")
    assert depth(index, closed) == depth(index, index.advance_bytes(start, b"[[], "))


def test_a_byte_may_end_any_number_of_rules() -> None:
    """After n prefixes, a + may belong to any of them. (Masks once looked at no more than 255 symbols of a stack.)"""
    index = Index.from_grammar('start: e\ne: "-" e | e "+" e | "x"\n', VOCABULARY)
    guide = index.guide()
    for _ in range(600):
        assert guide.advance(ord("-"))
        assert guide.mask_row >= 0
    assert index.nbytes < 5_000_000
    assert guide.advance(ord("x"))
    assert set(guide.allowed_tokens()) == {ord("+"), *VOCABULARY.eos_token_ids}


def test_a_token_may_end_any_number_of_rules() -> None:
    index = Index.from_grammar(
        'start: p\np: "(" p ")" | "x"\n', Vocabulary.from_bytes([b"(", b"x", b")" * 400, None], 3)
    )
    guide = index.guide()
    for n in range(400):
        assert list(guide.allowed_tokens()) == [0, 1], n
        assert guide.advance(0)
    assert guide.advance(1)
    assert list(guide.allowed_tokens()) == [2]
    assert guide.advance(2)
    assert guide.can_finish
