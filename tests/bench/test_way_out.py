"""The way out is a way out, and the shortest: judged by breadth-first search over bytes and by the engine."""

from __future__ import annotations

import json
from collections import deque

import pytest

from benchmarks.way_out import WayOut
from dotllm import Index, Vocabulary

VOCABULARY = Vocabulary.from_bytes([bytes([i]) for i in range(256)] + [None], eos_token_ids=[256])


def shortest(index: Index, config: int) -> int:
    """Fewest bytes to an end, by trying all of them."""
    seen, queue = {config}, deque([(config, 0)])
    while queue:
        here, length = queue.popleft()
        if index.can_finish(here):
            return length
        for byte in range(256):
            after = index.advance_bytes(here, bytes([byte]))
            if after >= 0 and after not in seen:
                seen.add(after)
                queue.append((after, length + 1))
    raise AssertionError("dead end")


@pytest.mark.parametrize(
    ("pattern", "prefixes"),
    [
        ("abc|a", ["", "a", "ab"]),
        ("a{3,9}b", ["", "a", "aaaa"]),
        ("(x(ab){2,3}y){2,}", ["", "x", "xab", "xabab", "xababa", "xababyx"]),
        ("([a-c]{2,4},){3,5};", ["", "a", "ab,", "ab,ab,ab,"]),
        ("é+ü|zzz", ["", "é"]),
    ],
)
def test_shortest_of_regexes(pattern: str, prefixes: list[str]) -> None:
    """Alternatives, counted loops (nested, half-way through), characters of several bytes."""
    index = Index.from_regex(pattern, VOCABULARY)
    way = WayOut(index)
    for prefix in prefixes:
        config = index.advance_bytes(index.guide().config, prefix.encode())
        text = way.bytes_from(config)
        assert len(text) == shortest(index, config) == way.distance(config)
        assert index.can_finish(index.advance_bytes(config, text))


def test_nested_json_is_closed() -> None:
    """What was opened is closed, and no more is written than must be."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "array", "minItems": 3, "items": {"enum": [12, 345]}}, "b": {"type": "string"}},
        "required": ["a", "b"],
    }
    index = Index.from_json_schema(schema, VOCABULARY, any_whitespace=False)
    config = index.advance_bytes(index.guide().config, b'{"a":[345,')
    assert WayOut(index).bytes_from(config) == b'12,12],"b":""}'


def test_keys_in_any_order() -> None:
    """What is required and has not come is still written."""
    schema = {
        "type": "object",
        "properties": {"a": {"enum": [12, 345]}, "b": {"type": "string"}, "long": {"const": True}, "d": {"const": 1}},
        "required": ["a", "long", "b"],
    }
    index = Index.from_json_schema(schema, VOCABULARY, any_whitespace=False, order="any")
    way = WayOut(index)
    for prefix in ("", "{", '{"lo', '{"d":1', '{"b":""', '{"b":"",', '{"b":"","zz":[', '{"long":true,"a":12,"b":"'):
        config = index.advance_bytes(index.guide().config, prefix.encode())
        text = way.bytes_from(config)
        assert index.can_finish(index.advance_bytes(config, text))
        value = json.loads(prefix.encode() + text)
        assert value.keys() >= {"a", "b", "long"} and len(text) <= len('"a":12,"long":true,"b":""},') + 3, text
