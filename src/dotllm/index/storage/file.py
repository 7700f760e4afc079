"""An Index as a file: what it is and all it has found so far, so that another process starts warm.

Layout: MAGIC, lengths of header and payload (uint64, little-endian), the CRC-32 of all the rest (uint32), the header
(JSON), the payload: int32 arrays back to back. What follows is not ours to read (caches keep a trailer there, with a
stronger checksum). Of the arena only what is in use is written (hash tables are rebuilt); mask rows are written as
differences, because most are either nearly empty or nearly equal to another one.

No pickle. The checksum finds accidents (a file cut off, a flipped bit); it proves nothing about who wrote the file. So
all numbers that are used as places in memory are looked at (`verify_nfa`, `verify_arena`), and a made-up file does
not crash the process. It can still allow any text, so load only what comes from somebody you trust. The caches
authenticate their entries if they have a secret (`compilation.cache.envelope`).
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dotllm.arrays import Int32
from dotllm.automata.kinds import HEAD, NfaArray
from dotllm.automata.machine import layout as at
from dotllm.automata.machine.arena import DEFAULT_LIMIT, laid_out
from dotllm.automata.machine.memory import contents
from dotllm.charset import CharSet
from dotllm.index.mask_table import END_ROW
from dotllm.index.storage.restore import SCRATCH, TABLES, UNSAVED, renumber_rows, restore, unpack_rows
from dotllm.index.storage.verify_arena import ALL_VALID, WAY_ARRAYS
from dotllm.index.storage.verify_nfa import verify_nfa
from dotllm.index.token_space import TokenSpace
from dotllm.index.walkable import TokenSets
from dotllm.vocabulary import Vocabulary

_T = TypeVar("_T")
Make = Callable[[Int32, Vocabulary, TokenSets, list[CharSet], frozenset[int]], _T]
"""The constructor of an index."""

MAGIC = b"dotllmIX"
VERSION = 6
_START = len(MAGIC) + 8 + 8 + 4
_SAVED = [r for r in range(at.REGIONS) if r not in UNSAVED]
_PARTS = len(_SAVED) + 4
_END = at.H_CLASS_BYTE + 1  # the slot that says where the automaton ends
_LEAST_SCRATCH = 512  # ints: a region is never smaller (`arena`)


def row_numbers(mem: Int32) -> list[Int32]:
    """Views of all row numbers (or negative marks) in the arena, each int32 [n]."""
    return [
        contents(mem, at.CONFIG)[2::3],
        contents(mem, at.STATE)[at.S_MEMO :: 8],
        contents(mem, at.MEMO),
    ]


def _pack_rows(rows: Int32) -> list[Int32]:
    """Each row as (reference, n, n word positions, n words): differences to the row before it, or to zero (reference
    -1)."""
    out: list[Int32] = []
    previous = np.zeros(rows.shape[1], np.int32)
    for i, row in enumerate(rows):
        reference = -1
        where = np.nonzero(row)[0]
        if i:
            other = np.nonzero(row != previous)[0]
            if len(other) < len(where):
                reference, where = i - 1, other
        out.append(np.array([reference, len(where)], np.int32))
        out.append(where.astype(np.int32))
        out.append(row[where])
        previous = row
    return out


def write(path: Path, data: bytes) -> None:
    """Write to ``path`` over what was there; readers never see half a file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(data)
    temporary.replace(path)


def dump(
    mem: Int32,
    vocabulary: Vocabulary,
    token_sets: TokenSets,
    charsets: Sequence[CharSet],
    unique_nodes: frozenset[int],
) -> bytes:
    """What a file of such an index holds. ``mem``: a copy of its arena, which this changes."""
    space = TokenSpace.of(vocabulary)
    numbers = sorted({int(n) for view in row_numbers(mem) for n in np.unique(view[view >= 0])})
    renumber = np.full(max(numbers, default=0) + 1, -1, np.int32)
    renumber[numbers] = np.arange(len(numbers), dtype=np.int32)
    for view in row_numbers(mem):
        known = view >= 0
        view[known] = renumber[view[known]]
    known = np.array([space.known_charset(c) for c in charsets], np.int32)
    of_number = np.full(known.max(initial=-1) + 2, -1, np.int32)  # (the last one is for nodes without a set)
    of_number[known[known >= 0]] = np.nonzero(known >= 0)[0]
    charset = mem[mem[at.H_CHARSET] : mem[at.H_CHARSET] + mem[at.H_NODES]]
    charset[:] = of_number[charset]
    triples = _triples(mem)
    parts: list[Int32] = [_automaton(mem), triples.ravel(), _ways(mem)]
    parts.extend(contents(mem, r) for r in _SAVED)
    packed = _pack_rows(space.rows[numbers])
    rows = np.concatenate(packed) if packed else np.zeros(0, np.int32)
    parts.append(rows)
    payload = b"".join(np.ascontiguousarray(part, np.int32).tobytes() for part in parts)
    header = {
        "version": VERSION,
        "layout": at.MAGIC,
        "vocabulary": vocabulary.fingerprint,
        "scratch": [int(mem[at.R + 3 * r + 1]) for r in SCRATCH],
        "lengths": [len(part) for part in parts],
        "rows": len(numbers),
        "token_sets": [[sorted(ids), exclude] for ids, exclude in token_sets],
        "unique_nodes": sorted(unique_nodes),
        "charsets": [list(map(list, c.ranges)) for c in charsets],
    }
    raw = json.dumps(header, separators=(",", ":")).encode()
    lengths = len(raw).to_bytes(8, "little") + len(payload).to_bytes(8, "little")
    # (an index that comes from a compile process is summed up twice while a request waits; BLAKE2 took 0.2 ms for that)
    return b"".join((MAGIC, lengths, _checksum(raw, payload), raw, payload))


def _checksum(*parts: bytes | memoryview) -> bytes:
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return checksum.to_bytes(4, "little")


def _automaton(mem: Int32) -> Int32:
    """The block of the `Nfa` that an arena was made of (`arena.lay_out`)."""
    first, end = int(mem[at.H_KIND]), int(mem[_END])
    head = [*(mem[at.H_KIND : _END + 1] - first + HEAD).tolist(), int(mem[at.H_START])]
    return np.concatenate((np.array(head, np.int32), mem[first:end]))


def _ways(mem: Int32) -> Int32:
    """The shortest ways (see `plans.ways`), if they have been found."""
    first = int(mem[at.H_WAY_COST])
    return mem[first : first + (WAY_ARRAYS * int(mem[at.H_NODES]) if mem[at.H_HAS_WAYS] else 0)]


def _triples(mem: Int32) -> Int32:
    """The occupied entries of the hash table of triples, int32 [n, 5], without those about regions that are not
    saved."""
    entries = contents(mem, at.TRIPLES).reshape(-1, at.WIDTH[at.TRIPLES])
    return entries[(entries[:, 0] != 0) & (entries[:, 0] <= at.T_CELL)]


def load(raw: bytes, vocabulary: Vocabulary, make: Make[_T]) -> _T:
    """What ``make`` makes of the index in the bytes of a file.

    ``make`` is called with the lock of the rows held, so that none is freed before the index that knows it is
    registered.

    Raises:
        ValueError: the file is damaged, of another version or of another vocabulary.
    """
    if len(raw) < _START or raw[: len(MAGIC)] != MAGIC:
        raise ValueError("not an index file")
    header_length, payload_length = (int.from_bytes(raw[at_ : at_ + 8], "little") for at_ in (8, 16))
    body = memoryview(raw)[_START : _START + header_length + payload_length]
    if len(body) != header_length + payload_length or _checksum(body) != raw[24:_START]:
        raise ValueError("damaged index: checksum")
    try:
        header: dict[str, Any] = json.loads(bytes(body[:header_length]))
        version = (header["version"], header["layout"])
        if version != (VERSION, at.MAGIC):
            raise ValueError(f"index of another version: {version}")
        if header["vocabulary"] != vocabulary.fingerprint:
            raise ValueError("index of another vocabulary")
        return _load(header, np.frombuffer(bytearray(body[header_length:]), np.int32), vocabulary, make)
    except (LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"damaged index: header ({type(error).__name__}: {error})") from error


def _load(header: dict[str, Any], numbers: Int32, vocabulary: Vocabulary, make: Make[_T]) -> _T:
    lengths = [int(length) for length in header["lengths"]]
    if len(lengths) != _PARTS or min(lengths) < 0 or sum(lengths) != len(numbers):
        raise ValueError("damaged index: parts")
    block_end, rows_at = lengths[0], len(numbers) - lengths[-1]
    space = TokenSpace.of(vocabulary)
    charsets = [CharSet(tuple((int(low), int(high)) for low, high in ranges)) for ranges in header["charsets"]]
    token_sets = [(frozenset(ids), bool(exclude)) for ids, exclude in header["token_sets"]]
    row_count = int(header["rows"])
    if not 0 <= row_count <= len(space.rows):
        raise ValueError("damaged index: more masks than there is room for")
    block = numbers[:block_end]
    if not verify_nfa(block, len(charsets), len(token_sets)):
        raise ValueError("damaged index: automaton")
    unique_nodes = frozenset(map(int, header["unique_nodes"]))
    if any(not 0 <= node < block[1] - block[0] for node in unique_nodes):
        raise ValueError("damaged index: automaton")
    used = set(block[block[NfaArray.CHARSET] : block[NfaArray.CHARSET + 1]].tolist())
    of_charset = np.array([_number(c, space) if i in used else -1 for i, c in enumerate(charsets)], np.int32)
    mem = _arena(block, of_charset, lengths, header["scratch"], space.max_token_bytes)
    region = int(restore(mem, numbers[block_end:rows_at], np.array(lengths[1:-1], np.int64), row_count))
    if region != ALL_VALID:
        raise ValueError(f"damaged index: numbers of region {region}")
    rows = np.zeros((row_count, space.words), np.int32)
    if not unpack_rows(numbers[rows_at:], rows):
        raise ValueError("damaged index: mask rows")
    with space.lock:
        renumber_rows(mem, space.intern_all(rows), END_ROW)
        return make(mem, vocabulary, token_sets, charsets, unique_nodes)


def _number(charset: CharSet, space: TokenSpace) -> int:
    """`TokenSpace.charset_number` of a set that a file has: only those that `CharSet.of` makes have a UTF-8 form."""
    known = space.known_charset(charset)
    if known >= 0:
        return known
    if not charset or CharSet.of(*charset.ranges) != charset:
        raise ValueError("damaged index: character sets")
    return space.charset_number(charset)


def _arena(block: Int32, of_charset: Int32, lengths: list[int], scratch: list[int], max_token_bytes: int) -> Int32:
    """An arena with this automaton and empty regions of one and a half times the size of those of a file.

    lengths: of all parts of the file; scratch: capacities of SCRATCH, as they were.

    Raises:
        ValueError: the file's parts have lengths that no arena has.
    """
    used = [0] * at.REGIONS
    for r, length in zip(_SAVED, lengths[3:-1], strict=True):
        used[r] = length // at.WIDTH[r]
    classes = int(block[NfaArray.CLASS_BYTE + 1] - block[NfaArray.CLASS_BYTE])
    triples, more = divmod(lengths[1], at.WIDTH[at.TRIPLES])
    fits = not more and used[at.DELTA] == used[at.STATE] * classes
    capacity = [count + count // 2 + 64 for count in used]
    capacity[at.DELTA] = capacity[at.STATE] * classes
    for r, entries in zip(TABLES, (used[at.STATE] + used[at.FRAMESET] + used[at.SYMBOL], triples), strict=True):
        capacity[r] = 1 << max(9, (4 * entries).bit_length())
    for r, size in zip(SCRATCH, map(int, scratch), strict=True):
        capacity[r] = size
        fits = fits and _LEAST_SCRATCH <= size <= DEFAULT_LIMIT // at.WIDTH[r]
    if not fits or capacity[at.LOCAL].bit_count() != 1:  # (a walk's cells are found by their hash)
        raise ValueError("damaged index: parts")
    return laid_out(block, of_charset, capacity, max_token_bytes)
