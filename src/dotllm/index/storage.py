"""An Index as a file: what it is and all it has found so far, so that another process starts warm.

Layout: MAGIC, lengths of header and payload (uint64, little-endian), a checksum over all the rest, the header (JSON),
the payload: int32 arrays back to back. What follows is not ours to read (caches keep a trailer there). No pickle, and
nothing is trusted before the checksum holds. Of the arena only what is in use is written (hash tables are rebuilt);
mask rows are written as differences, because most are either nearly empty or nearly equal to another one.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dotllm.arrays import Int32
from dotllm.automata.charset import CharSet
from dotllm.automata.machine import layout as at
from dotllm.automata.machine.arena import DEFAULT_LIMIT
from dotllm.automata.machine.intern import rehash_lists
from dotllm.automata.machine.memory import allocate, constant_part, contents, fill_triples, used
from dotllm.index.token_space import END_ROW, TokenSpace
from dotllm.vocabulary import Vocabulary

if TYPE_CHECKING:
    from dotllm.index.index import Index

MAGIC = b"dotllmIX"
VERSION = 3
_START = len(MAGIC) + 8 + 8 + 16
_TABLES = (at.LISTS, at.TRIPLES)
_SCRATCH = (at.BUFFER, at.LOCAL)


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


def _unpack_rows(packed: Int32, count: int, words: int) -> Int32:
    rows = np.zeros((count, words), np.int32)
    position = 0
    for i in range(count):
        reference, n = packed[position : position + 2].tolist()
        if not -1 <= reference < i or not 0 <= n <= words:
            raise ValueError("damaged index: mask rows")
        if reference >= 0:
            rows[i] = rows[reference]
        where = packed[position + 2 : position + 2 + n]
        if n and (where.min() < 0 or where.max() >= words):
            raise ValueError("damaged index: mask rows")
        rows[i, where] = packed[position + 2 + n : position + 2 + 2 * n]
        position += 2 + 2 * n
    return rows


def save(index: Index, path: Path) -> None:
    """Write ``index`` to ``path`` (over what was there; readers never see half a file)."""
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
    of_number = {space.known_charset(c): i for i, c in enumerate(index.charsets)}
    charset = mem[mem[at.H_CHARSET] : mem[at.H_CHARSET] + n]
    charset[:] = [of_number[c] if c >= 0 else -1 for c in charset.tolist()]
    triples = _triples(mem)
    parts: list[Int32] = [constant_part(mem), triples.ravel()]
    regions = [r for r in range(at.REGIONS) if r not in _TABLES and r not in _SCRATCH]
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
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(MAGIC + lengths + _checksum(raw + payload) + raw + payload)
    temporary.replace(path)


def _checksum(data: bytes | memoryview) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _triples(mem: Int32) -> Int32:
    """The occupied entries of the hash table of triples, int32 [n, 5]."""
    entries = contents(mem, at.TRIPLES).reshape(-1, at.WIDTH[at.TRIPLES])
    return entries[entries[:, 0] != 0]


def load(path: Path, vocabulary: Vocabulary) -> Index:
    """Read an index. Raises ValueError for a file that is damaged, of another version or of another vocabulary."""
    from dotllm.index.index import Index

    raw = path.read_bytes()
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
    parts = np.split(numbers, np.cumsum(header["lengths"])[:-1])
    space = TokenSpace.of(vocabulary)
    charsets = [CharSet(tuple((int(a), int(b)) for a, b in ranges)) for ranges in header["charsets"]]
    mem = _restore(parts, header["slots"])
    n = int(mem[at.H_NODES])
    charset = mem[mem[at.H_CHARSET] : mem[at.H_CHARSET] + n]
    used = {int(i) for i in np.unique(charset) if i >= 0}
    of_charset = [space.charset_number(c) if i in used else -1 for i, c in enumerate(charsets)]
    charset[:] = np.append(np.array(of_charset, np.int32), np.int32(-1))[charset]
    rows = _unpack_rows(parts[-1], int(header["rows"]), space.words)
    token_sets = [(frozenset(ids), bool(exclude)) for ids, exclude in header["token_sets"]]
    with space.lock:  # rows must not be freed before the index that knows them is registered
        renumber = np.array([space.intern(row) for row in rows], np.int32)
        for place in row_places(mem):
            known = place >= 0
            place[known] = renumber[place[known]]
        mem[mem[at.R + 3 * at.CONFIG] + 2] = END_ROW
        return Index(mem, vocabulary, token_sets, charsets, frozenset(header["unique_nodes"]))


def _restore(parts: list[Int32], slots: list[int]) -> Int32:
    """The arena again, with room to grow and its hash tables rebuilt."""
    constant, triples = parts[0], parts[1].reshape(-1, 5)
    regions = [r for r in range(at.REGIONS) if r not in _TABLES and r not in _SCRATCH]
    saved = dict(zip(regions, parts[2:-1], strict=True))
    old = np.array(slots, np.int32)
    capacity = [0] * at.REGIONS
    for r in range(at.REGIONS):
        used = int(old[at.R + 3 * r + 2])
        capacity[r] = used + used // 2 + 64
    states = capacity[at.STATE]
    capacity[at.DELTA] = states * int(old[at.H_CLASSES])
    for r, entries in ((at.LISTS, int(old[at.R + 3 * at.LISTS + 2])), (at.TRIPLES, len(triples))):
        capacity[r] = 1 << max(9, (4 * entries).bit_length())
    for r in _SCRATCH:
        capacity[r] = int(old[at.R + 3 * r + 1])
    mem = allocate(old[: at.HEADER], constant, capacity)
    for r, part in saved.items():
        start = int(mem[at.R + 3 * r])
        mem[start : start + len(part)] = part
    fill_triples(mem, triples.copy())
    rehash_lists(mem)
    mem[at.H_LIMIT] = DEFAULT_LIMIT
    return mem
