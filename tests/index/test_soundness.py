"""No file crashes who loads it: numbers that cannot be used are found, and those that are not found do no harm."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dotllm import Index, Vocabulary
from dotllm.arrays import Int32
from dotllm.automata.machine import layout as at
from dotllm.index.storage.file import _PARTS, _SAVED
from dotllm.index.storage.verify_arena import WAY_ARRAYS
from tests.index.walk_damaged import HEAD, SCHEMA, indexes, vocabulary, walk

ROOT = Path(__file__).parents[2]
ROUNDS = 1500
Edit = Callable[[list[Int32]], None]


@pytest.fixture(scope="module")
def of() -> Vocabulary:
    return vocabulary()


@pytest.fixture(scope="module")
def saved(of: Vocabulary) -> bytes:
    index = Index.from_json_schema(SCHEMA, of)
    guide = index.guide()
    for token in of.encode(
        b'{"name": "x", "tags": ["a", "bb"], "code": "abc-d", "next": {"name": "y", "code": "ab-"}}'
    ):
        _ = guide.mask_row
        assert guide.advance(token)
    _ = index.guide().tokens_to_finish  # finds the shortest ways
    return index.to_bytes()


def parts_of(data: bytes) -> tuple[dict[str, Any], list[Int32]]:
    """The header, and copies of the parts, of a file."""
    end = HEAD + int.from_bytes(data[8:16], "little")
    header = json.loads(data[HEAD:end])
    numbers = np.frombuffer(data[end:], np.int32).copy()
    return header, np.split(numbers, np.cumsum(header["lengths"])[:-1])


def joined(header: Any, parts: list[Int32]) -> bytes:
    """A file with a checksum that fits."""
    raw, payload = json.dumps(header).encode(), b"".join(part.tobytes() for part in parts)
    lengths = len(raw).to_bytes(8, "little") + len(payload).to_bytes(8, "little")
    return b"dotllmIX" + lengths + zlib.crc32(raw + payload).to_bytes(4, "little") + raw + payload


def region(parts: list[Int32], number: int) -> Int32:
    """The entries of a region, [n, width]."""
    return parts[3 + _SAVED.index(number)].reshape(-1, at.WIDTH[number])


def triples(parts: list[Int32], kind: int) -> Int32:
    """Places of the values remembered under keys of a kind."""
    found: Int32 = np.nonzero(parts[1].reshape(-1, 5)[:, 0] == kind + 1)[0]
    assert len(found), "the text should have led to some"
    return 5 * found + 4


def set_in(number: int, row: int, column: int, value: int) -> Edit:
    def edit(parts: list[Int32]) -> None:
        region(parts, number)[row, column] = value

    return edit


def set_value(kind: int, value: int) -> Edit:
    def edit(parts: list[Int32]) -> None:
        parts[1][triples(parts, kind)[0]] = value

    return edit


def set_way(array: int, value: int) -> Edit:
    def edit(parts: list[Int32]) -> None:
        ways = parts[2].reshape(WAY_ARRAYS, -1)
        ways[array, np.argmax(ways[array] > 0)] = value

    return edit


def set_automaton(place: int, value: int) -> Edit:
    def edit(parts: list[Int32]) -> None:
        block = parts[0]
        block[block[place] if place < 16 else place] = value

    return edit


def take_a_deep_state_to_the_bottom(parts: list[Int32]) -> None:
    configs = region(parts, at.CONFIG)
    deep = int(np.argmax(configs[:, 1]))
    assert configs[deep, 1] > 0
    configs[deep, 1] = 0


def offer_less_than_is_needed(parts: list[Int32]) -> None:
    configs, cells, symbols = (region(parts, r) for r in (at.CONFIG, at.STACK, at.SYMBOL))
    under = {int(symbol) for symbol in cells[configs[:, 1], 0]} - {0}
    symbols[sorted(under), 1] -= 1


def a_frame_set_that_stands_on_itself(parts: list[Int32]) -> None:
    frames, sets, pool = region(parts, at.FRAME), region(parts, at.FRAMESET), region(parts, at.POOL)
    for number, (offset, length) in enumerate(sets):
        for frame in pool[offset : offset + length, 0]:
            if frames[frame, 0] >= 0:
                frames[frame, 2] = number
                return
    raise AssertionError("no frame to return to")


@pytest.mark.parametrize(
    "edit",
    [
        set_automaton(0, 8),  # kind
        set_automaton(4, 1 << 20),  # character set
        set_automaton(6, 1 << 16),  # bytes of an edge
        set_automaton(7, -1),  # its target
        set_automaton(9, 1 << 30),  # closure
        set_automaton(14, 256),  # class of a byte
        set_automaton(17, 1 << 20),  # start
        set_automaton(5, 1 << 20),  # the first edge of a node
        set_way(0, -2),  # cost
        set_way(1, 1 << 24),  # edge
        set_way(2, 256),  # byte
        set_way(3, 1 << 24),  # node that comes next
        set_way(4, 1 << 24),  # the same where a level has just begun
        set_in(at.POOL, 5, 0, 1 << 24),
        set_in(at.STATE, 3, at.S_OFFSET, 1 << 24),
        set_in(at.STATE, 3, at.S_LENGTH, -2),
        set_in(at.STATE, 3, at.S_CORE, 1 << 24),
        set_in(at.STATE, 3, at.S_PUSH, 1 << 24),
        set_in(at.STATE, 3, at.S_MEMO, 1 << 24),
        set_in(at.DELTA, 9, 0, 1 << 24),
        set_in(at.FRAMESET, 2, 0, -1),
        set_in(at.FRAME, 2, 0, 1 << 24),
        set_in(at.FRAME, 2, 2, 1 << 24),
        set_in(at.SYMBOL, 1, 1, 1 << 24),
        set_in(at.STACK, 1, 1, 1),  # a stack below itself
        set_in(at.CONFIG, 1, 0, 1 << 24),
        set_in(at.CONFIG, 1, 2, 1 << 24),
        set_value(at.T_FRAME, 1 << 24),
        set_value(at.T_STACK, 0),
        set_value(at.T_CONFIG, 0),
        set_value(at.T_CANON, 0),
        take_a_deep_state_to_the_bottom,
        offer_less_than_is_needed,
        a_frame_set_that_stands_on_itself,
    ],
)
def test_numbers_that_cannot_be_used_are_refused(edit: Edit, saved: bytes, of: Vocabulary) -> None:
    header, parts = parts_of(saved)
    assert len(parts) == _PARTS
    Index.from_bytes(joined(header, parts), of)
    edit(parts)
    with pytest.raises(ValueError, match="damaged index"):
        Index.from_bytes(joined(header, parts), of)


@pytest.mark.parametrize(
    "changed",
    [
        {"rows": 1 << 40},
        {"rows": None},
        {"lengths": [1 << 62] * 4},
        {"lengths": "x"},
        {"scratch": [1 << 40, 512]},
        {"scratch": [4096, 600]},
        {"scratch": [0, 0]},
        {"charsets": [[[5, 3]]] * 9},
        {"charsets": [[[0xD800, 0xDFFF]]] * 9},
        {"charsets": []},
        {"charsets": 7},
        {"unique_nodes": [1 << 40]},
        {"token_sets": [[["a"], True]]},
        {"token_sets": [3]},
    ],
)
def test_headers_that_make_no_sense_are_refused(changed: dict[str, Any], saved: bytes, of: Vocabulary) -> None:
    header, parts = parts_of(saved)
    with pytest.raises(ValueError, match=r"."):
        Index.from_bytes(joined(header | changed, parts), of)
    with pytest.raises(ValueError, match="damaged index"):
        Index.from_bytes(joined([1], parts), of)


def test_what_is_sound_is_loaded(of: Vocabulary) -> None:
    """Also by who has grown since, and the memos of all of it."""
    for index in indexes(of):
        for seed in range(3):
            walk(index, random.Random(seed))
            again = Index.from_bytes(index.to_bytes(), of)
            assert (again.states, again.configurations) == (index.states, index.configurations)
            walk(again, random.Random(seed + 10))
            index = again


def test_damaged_numbers_crash_nobody() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.index.walk_damaged", "0", str(ROUNDS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    refused, walked = map(int, ran.stdout.split())
    assert refused > ROUNDS // 2
    assert walked > ROUNDS // 20
