"""No file crashes the process that loads it: unusable numbers are found, and those that are not found do no harm."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dotllm import Index, Vocabulary
from dotllm.arrays import Int32
from dotllm.automata.kinds import HEAD as NFA_HEAD
from dotllm.automata.kinds import N_ACCEPT, N_CALL, N_END, N_ENTER, N_PLAIN, N_TOKENS, NfaArray
from dotllm.automata.machine import layout as at
from dotllm.index.storage import _PARTS, _SAVED, unpack_rows, verify_nfa
from tests.cases import few
from tests.index.walk_damaged import HEAD, SCHEMA, indexes, vocabulary, walk

ROOT = Path(__file__).parents[2]
ROUNDS = few(1500)
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
    """The header of a file, and copies of its parts."""
    end = HEAD + int.from_bytes(data[8:16], "little")
    header = json.loads(data[HEAD:end])
    numbers = np.frombuffer(data[end:], np.int32).copy()
    return header, np.split(numbers, np.cumsum(header["lengths"])[:-1])


def joined(header: Any, parts: list[Int32]) -> bytes:
    """A file with a correct checksum."""
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
        ways = parts[2].reshape(at.WAY_ARRAYS, -1)
        ways[array, np.argmax(ways[array] > 0)] = value

    return edit


def set_automaton(place: int, value: int) -> Edit:
    def edit(parts: list[Int32]) -> None:
        block = parts[0]
        block[block[place] if place < 16 else place] = value

    return edit


def a_mask_too_many(number: int, row: int, column: int) -> Edit:
    """An edit that sets the first mask number that the file does not have."""

    def edit(parts: list[Int32]) -> None:
        known = (region(parts, at.CONFIG)[:, 2], region(parts, at.STATE)[:, at.S_MEMO], region(parts, at.MEMO))
        region(parts, number)[row, column] = 1 + max(int(numbers.max()) for numbers in known)

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
        set_way(3, 1 << 24),  # the next node
        set_way(4, 1 << 24),  # the next node where a level has just begun
        set_in(at.POOL, 5, 0, 1 << 24),
        set_in(at.STATE, 3, at.S_OFFSET, 1 << 24),
        set_in(at.STATE, 3, at.S_LENGTH, -2),
        set_in(at.STATE, 3, at.S_CORE, 1 << 24),
        set_in(at.STATE, 3, at.S_PUSH, 1 << 24),
        set_in(at.STATE, 3, at.S_MEMO, 1 << 24),
        a_mask_too_many(at.STATE, 3, at.S_MEMO),
        a_mask_too_many(at.CONFIG, 1, 2),
        a_mask_too_many(at.MEMO, 0, 0),
        set_in(at.DELTA, 9, 0, 1 << 24),
        set_in(at.FRAMESET, 2, 0, -1),
        set_in(at.FRAME, 2, 0, 1 << 24),
        set_in(at.FRAME, 2, 2, 1 << 24),
        set_in(at.SYMBOL, 1, 1, 1 << 24),
        set_in(at.STACK, 1, 0, 1 << 24),
        set_in(at.STACK, 1, 0, -1),
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
    """So is an index that has grown since it was loaded, with all its memos."""
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


def automata(of: Vocabulary) -> Iterator[tuple[Int32, int, int]]:
    """Small automata with all kinds of nodes: the block, and how many character sets and token sets it refers to."""
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}, "b": {"maxLength": 70, "type": "string"}}}
    for index in (
        Index.from_json_schema(schema | {"required": ["a"]}, of, property_order="any"),
        Index.from_regex(r"((ab|c){3,90}x)*[a-z]{2}", of),
        Index.from_grammar('start: <tool> | "(" start start ")"', of),
    ):
        header, parts = parts_of(index.to_bytes())
        yield parts[0], len(header["charsets"]), len(header["token_sets"])


def test_the_bounds_of_all_numbers_of_an_automaton(of: Vocabulary) -> None:
    """The first and the last number of each array are refused one below and one above their range: nothing outside an
    array is read."""
    for block, charsets, token_sets in automata(of):
        assert verify_nfa(block, charsets, token_sets)
        nodes, edges = (int(block[part + 1] - block[part]) for part in (NfaArray.KIND, NfaArray.EDGE_BYTES))
        closures = int(block[NfaArray.CLOSURE + 1] - block[NfaArray.CLOSURE])
        bounds = {
            NfaArray.KIND: (N_PLAIN, N_ACCEPT + 1), NfaArray.CHARSET: (-1, charsets), NfaArray.EDGE_START: (0, edges + 1),
            NfaArray.EDGE_BYTES: (0, 1 << 16), NfaArray.EDGE_TARGET: (0, nodes), NfaArray.CLOSURE_START: (0, closures + 1),
            NfaArray.CLOSURE: (0, nodes), NfaArray.LOOP_BODY: (0, nodes), NfaArray.LOOP_AFTER: (0, nodes),
            NfaArray.CLASS_OF: (0, int(block[NFA_HEAD - 2] - block[NfaArray.CLASS_BYTE])), NfaArray.CLASS_BYTE: (0, 256),
        }  # fmt: skip
        for part, (low, high) in bounds.items():
            for place in {block[part], block[part + 1] - 1} if block[part] < block[part + 1] else ():
                for number in (low - 1, high):
                    assert not verify_nfa(changed(block, place, number), charsets, token_sets), (part, number)
        for number in (-1, nodes):
            assert not verify_nfa(changed(block, NFA_HEAD - 1, number), charsets, token_sets)  # the start
        for part in range(NFA_HEAD - 1):
            for number in (block[part] - 1, block[part] + 1):
                assert not verify_nfa(changed(block, part, number), charsets, token_sets), part


def test_the_bounds_of_what_nodes_refer_to(of: Vocabulary) -> None:
    tried = dict.fromkeys((N_CALL, N_TOKENS, N_ENTER, N_END), 0)
    for block, charsets, token_sets in automata(of):
        loops = int(block[NfaArray.LOOP_BODY + 1] - block[NfaArray.LOOP_BODY])
        nodes = int(block[NfaArray.A] - block[NfaArray.KIND])
        for node, kind in enumerate(block[block[NfaArray.KIND] : block[NfaArray.A]].tolist()):
            if kind not in tried:
                continue
            tried[kind] += 1
            first = {N_CALL: nodes, N_TOKENS: token_sets}.get(kind, loops)
            wrong = [(NfaArray.A, -1), (NfaArray.A, first)]
            loop = block[block[NfaArray.A] + node]
            if kind in (N_CALL, N_TOKENS):
                wrong += [(NfaArray.B, -1), (NfaArray.B, nodes)]
            elif block[block[NfaArray.LOOP_MIN] + loop] < 0 or block[block[NfaArray.LOOP_MAX] + loop] < -1:
                wrong += [(NfaArray.B, nodes), (NfaArray.B, -nodes)]
            for part, number in wrong:
                assert not verify_nfa(changed(block, block[part] + node, number), charsets, token_sets), (kind, number)
    assert min(tried.values()) > 0


def changed(numbers: Int32, place: int, number: int) -> Int32:
    out = numbers.copy()
    out[place] = number
    return out


def test_rows_of_masks_are_unpacked_or_refused() -> None:
    """Each row consists of the differences from an earlier row, or from an empty one."""
    packed = [[-1, 2, 0, 2, 5, -7], [0, 1, 1, 9], [1, 2, 0, 2, 0, 0], [1, 3, 0, 1, 2, 1, 2, 3], [0, 0]]
    expected = [[5, 0, -7], [5, 9, -7], [0, 9, 0], [1, 2, 3], [5, 0, -7]]
    rows = np.zeros((5, 3), np.int32)
    assert unpack_rows(np.array([*chain(*packed)], np.int32), rows)
    assert rows.tolist() == expected
    for damaged in (
        [[-2, 1, 0, 1]],  # no such row
        [[-1, 1, 0, 1], [1, 0]],  # the row itself
        [[-1, -1]],
        [[-1, 4, 0, 1, 2, 0, 1, 1, 1, 1]],  # more words than a row has
        [[-1, 1, -1, 1]],
        [[-1, 1, 3, 1]],  # no such word
        [[-1, 1, 0, 0]],  # allows nothing
        [[-1, 1, 0, 1], [0, 1, 0, 0]],
    ):
        numbers = np.array([*chain(*damaged)], np.int32)
        assert not unpack_rows(numbers, np.zeros((len(damaged), 3), np.int32)), damaged
    whole = np.array([*chain(*packed)], np.int32)
    for end in range(len(whole)):
        assert not unpack_rows(whole[:end], np.zeros((5, 3), np.int32)), end
