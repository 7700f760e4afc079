"""An Index as a file: what it is and all it has found so far, so that another process starts warm.

Layout: MAGIC, lengths of header and payload (uint64, little-endian), the CRC-32 of all the rest (uint32), the header
(JSON), the payload: int32 arrays back to back. What follows is not ours to read (caches keep a trailer there, with a
stronger checksum). Of the arena only what is in use is written (hash tables are rebuilt); mask rows are written as
differences, because most are either nearly empty or nearly equal to another one.

No pickle. The checksum finds accidents (a file cut off, a flipped bit), and nothing is read before it holds; it proves
nothing about who wrote the file, and the numbers in the arrays are used as they are, unchecked, as places in memory.
So load only what comes from somebody you trust: a made-up file can allow any text, and crash the process. The caches
authenticate their entries if they have a secret (`compilation.envelope`).
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dotllm.arrays import Int32
from dotllm.automata.charset import CharSet
from dotllm.automata.machine import layout as at
from dotllm.automata.machine.arena import DEFAULT_LIMIT
from dotllm.automata.machine.memory import allocate, constant_part, contents, used
from dotllm.index.thaw import SCRATCH, TABLES, UNSAVED, renumber_rows, thaw, unpack_rows
from dotllm.index.token_space import END_ROW, TokenSpace
from dotllm.vocabulary import Vocabulary

if TYPE_CHECKING:
    from dotllm.index.index import Index

MAGIC = b"dotllmIX"
VERSION = 4
_START = len(MAGIC) + 8 + 8 + 4


def row_places(mem: Int32) -> list[Int32]:
    """Views of all places in the arena that hold row numbers (or a negative mark)."""
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


def save(index: Index, path: Path) -> None:
    """Write ``index`` to ``path`` (over what was there; readers never see half a file)."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(dump(index))
    temporary.replace(path)


def dump(index: Index) -> bytes:
    """What such a file holds."""
    with index.lock:
        mem = index.mem[: used(index.mem)].copy()
    space = index.space
    numbers = sorted({int(n) for place in row_places(mem) for n in np.unique(place[place >= 0])})
    renumber = np.full(max(numbers, default=0) + 1, -1, np.int32)
    renumber[numbers] = np.arange(len(numbers), dtype=np.int32)
    for place in row_places(mem):
        known = place >= 0
        place[known] = renumber[place[known]]
    n = int(mem[at.H_NODES])
    known = np.array([space.known_charset(c) for c in index.charsets], np.int32)
    of_number = np.full(known.max(initial=-1) + 2, -1, np.int32)  # (the last one is for nodes without a set)
    of_number[known[known >= 0]] = np.nonzero(known >= 0)[0]
    charset = mem[mem[at.H_CHARSET] : mem[at.H_CHARSET] + n]
    charset[:] = of_number[charset]
    triples = _triples(mem)
    parts: list[Int32] = [constant_part(mem), triples.ravel()]
    regions = [r for r in range(at.REGIONS) if r not in UNSAVED]
    parts.extend(contents(mem, r) for r in regions)
    packed = _pack_rows(space.rows[numbers])
    rows = np.concatenate(packed) if packed else np.zeros(0, np.int32)
    parts.append(rows)
    payload = b"".join(np.ascontiguousarray(part, np.int32).tobytes() for part in parts)
    header = {
        "version": VERSION,
        "layout": at.MAGIC,
        "vocabulary": index.vocabulary.fingerprint,
        "slots": mem[: at.HEADER].tolist(),
        "lengths": [len(part) for part in parts],
        "rows": len(numbers),
        "token_sets": [[sorted(ids), exclude] for ids, exclude in index.token_sets],
        "unique_nodes": sorted(index.unique_nodes),
        "charsets": [list(map(list, c.ranges)) for c in index.charsets],
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


def _triples(mem: Int32) -> Int32:
    """The occupied entries of the hash table of triples, int32 [n, 5]."""
    entries = contents(mem, at.TRIPLES).reshape(-1, at.WIDTH[at.TRIPLES])
    return entries[entries[:, 0] != 0]


def load(source: Path | bytes, vocabulary: Vocabulary) -> Index:
    """Read an index, from a file or what one holds. Raises ValueError for what is damaged, of another version or of
    another vocabulary."""
    from dotllm.index.index import Index

    raw = source if isinstance(source, bytes) else source.read_bytes()
    if len(raw) < _START or raw[: len(MAGIC)] != MAGIC:
        raise ValueError("not an index file")
    header_length, payload_length = (int.from_bytes(raw[at_ : at_ + 8], "little") for at_ in (8, 16))
    body = memoryview(raw)[_START : _START + header_length + payload_length]
    if len(body) != header_length + payload_length or _checksum(body) != raw[24:_START]:
        raise ValueError("damaged index: checksum")
    header: dict[str, Any] = json.loads(bytes(body[:header_length]))
    version = (header["version"], header["layout"])
    if version != (VERSION, at.MAGIC):
        raise ValueError(f"index of another version: {version}")
    if header["vocabulary"] != vocabulary.fingerprint:
        raise ValueError("index of another vocabulary")
    payload = bytes(body[header_length:])  # aligned
    numbers = np.frombuffer(payload, np.int32)
    lengths = np.array(header["lengths"], np.int64)
    slots = np.array(header["slots"], np.int32)
    constant_end, rows_at = int(lengths[0]), len(numbers) - int(lengths[-1])
    space = TokenSpace.of(vocabulary)
    charsets = [CharSet(tuple((int(a), int(b)) for a, b in ranges)) for ranges in header["charsets"]]
    mem = allocate(slots, numbers[:constant_end], _capacities(slots, int(lengths[1]) // 5))
    mem[at.H_LIMIT] = DEFAULT_LIMIT
    if not thaw(mem, numbers[constant_end:rows_at], lengths[1:-1]):
        raise ValueError("damaged index: parts")
    charset = mem[mem[at.H_CHARSET] : mem[at.H_CHARSET] + mem[at.H_NODES]]
    if charsets:
        used = set(charset.tolist())
        of_charset = [space.charset_number(c) if i in used else -1 for i, c in enumerate(charsets)]
        charset[:] = np.array([*of_charset, -1], np.int32)[charset]
    rows = np.zeros((int(header["rows"]), space.words), np.int32)
    if not unpack_rows(numbers[rows_at:], rows):
        raise ValueError("damaged index: mask rows")
    token_sets = [(frozenset(ids), bool(exclude)) for ids, exclude in header["token_sets"]]
    with space.lock:  # rows must not be freed before the index that knows them is registered
        renumber = np.array([space.intern(row) for row in rows], np.int32)
        renumber_rows(mem, renumber, END_ROW)
        return Index(mem, vocabulary, token_sets, charsets, frozenset(header["unique_nodes"]))


def _capacities(slots: Int32, triples: int) -> list[int]:
    """Of the regions of a loaded arena: room for half as much again. ``slots``: its header; triples: entries."""
    places = slots[at.R : at.R + 3 * at.REGIONS].reshape(at.REGIONS, 3)
    used: list[int] = places[:, 2].tolist()
    capacity = [count + count // 2 + 64 for count in used]
    capacity[at.DELTA] = capacity[at.STATE] * int(slots[at.H_CLASSES])
    for r, entries in zip(TABLES, (used[at.LISTS], triples), strict=True):
        capacity[r] = 1 << max(9, (4 * entries).bit_length())
    for r in SCRATCH:
        capacity[r] = int(places[r, 1])
    return capacity
