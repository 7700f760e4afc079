"""Tries and tables kept on disk, by the fingerprint of their vocabulary.

Nothing depends on these files: a file that is missing, damaged or of another version is made again, and if the disk
cannot be written to (read-only, full), the next process builds the data anew.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import mmap
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dotllm.charset import CharSet
from dotllm.system import user_cache_directory
from dotllm.vocabulary.charset_table import CharsetTable
from dotllm.vocabulary.trie import Trie

# Named NumPy arrays in one file: checksummed, mapped into memory, written atomically, no pickle.
#
#     magic (8 bytes) · SHA-256 of the rest (32) · length of the header (8, little endian)
#     header: JSON {"kind": …, "arrays": {name: [dtype, shape, offset]}}
#     the arrays, little endian, at multiples of 64 bytes
#
# The mapping is copy-on-write, so that the arrays have the type that kernels are compiled for (writable), while
# processes share the pages. Files are replaced, never changed, so a mapping stays valid.

MAGIC = b"dotllmA1"
_ALIGNMENT = 64
_START = len(MAGIC) + 32 + 8
_DTYPES = frozenset({"|u1", "<i4", "<i8"})


class DamagedFile(Exception):
    """The file was not written completely by ``write_arrays``, or is of another kind."""


def write_arrays(path: Path, kind: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write ``arrays`` (uint8, int32 or int64) to ``path``, and make its directory. Raises TypeError or OSError."""
    entries: dict[str, list[Any]] = {}
    parts: list[bytes] = []
    at = 0
    for name, array in arrays.items():
        at += -at % _ALIGNMENT
        stored = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
        if stored.dtype.str not in _DTYPES:
            raise TypeError(f"array {name} is of dtype {array.dtype}")
        entries[name] = [stored.dtype.str, list(array.shape), at]
        parts.append(bytes(at - sum(map(len, parts))))
        parts.append(stored.tobytes())
        at += stored.nbytes
    header = json.dumps({"kind": kind, "arrays": entries}).encode()
    header += b" " * (-(_START + len(header)) % _ALIGNMENT)
    body = b"".join([len(header).to_bytes(8, "little"), header, *parts])
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(MAGIC + hashlib.sha256(body).digest())
            file.write(body)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_arrays(path: Path, kind: str) -> dict[str, NDArray[Any]]:
    """Map the arrays of a file of this kind into memory. Raises DamagedFile if it is not one, or OSError."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size < _START:
            raise DamagedFile(f"{path} is too short")
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    view = memoryview(mapped)
    if view[: len(MAGIC)] != MAGIC:
        raise DamagedFile(f"{path} is not a file of arrays")
    if hashlib.sha256(view[len(MAGIC) + 32 :]).digest() != view[len(MAGIC) : len(MAGIC) + 32]:
        raise DamagedFile(f"{path} fails its checksum")
    # The checksum holds, so the header is as it was written; only its kind remains to be checked.
    start = _START + int.from_bytes(view[_START - 8 : _START], "little")
    header = json.loads(bytes(view[_START:start]))
    if header["kind"] != kind:
        raise DamagedFile(f"{path} is of kind {header['kind']!r}, not {kind!r}")
    return {
        name: np.frombuffer(mapped, dtype, math.prod(shape), start + offset).reshape(shape)
        for name, (dtype, shape, offset) in header["arrays"].items()
    }


LAYOUT = 1
"""Increased whenever the meaning of the arrays changes."""
logger = logging.getLogger(__name__)
_Arrays = Mapping[str, NDArray[Any]]


class VocabularyFiles:
    """The files of one vocabulary."""

    def __init__(self, fingerprint: str) -> None:
        self._fingerprint = fingerprint
        self._directory = user_cache_directory() / "vocabulary" / fingerprint[:32]

    def trie(self, build: Callable[[], Trie]) -> Trie:
        """The trie of all tokens: from its file, or else built, and kept in the file."""
        return _trie("", self._kept("trie", "", lambda: _trie_arrays("", build())))

    def table(self, charset: CharSet, build: Callable[[], CharsetTable]) -> CharsetTable:
        """The table of a character set, in the same way."""
        key = hashlib.sha256(np.array(charset.ranges, "<i4").tobytes()).hexdigest()
        return _table(self._kept("charset", key, lambda: _table_arrays(build())))

    def _kept(self, what: str, key: str, build: Callable[[], _Arrays]) -> _Arrays:
        name = f"{what}-{key[:32]}" if key else what
        path, kind = self._directory / f"{name}.{LAYOUT}", f"{what} {LAYOUT} {self._fingerprint} {key}"
        try:
            return read_arrays(path, kind)
        except FileNotFoundError:
            pass
        except (OSError, DamagedFile) as error:
            logger.warning("Ignoring a file of the vocabulary cache; it will be rebuilt: %s", error)
        arrays = build()
        try:
            write_arrays(path, kind, arrays)
        except OSError as error:
            logger.info("Cannot store the vocabulary on disk; the next start will rebuild it: %s", error)
        return arrays


def _trie_arrays(prefix: str, trie: Trie) -> dict[str, NDArray[Any]]:
    return {prefix + name: array for name, array in trie._asdict().items()}


def _trie(prefix: str, arrays: _Arrays) -> Trie:
    return Trie(*(arrays[prefix + name] for name in Trie._fields))


_TRIES = ("exits", "exits_by_count")
_PLAIN = ("rows", "long_tokens", "long_chars", "exits_by_count_start")


def _table_arrays(table: CharsetTable) -> dict[str, NDArray[Any]]:
    arrays = {name: getattr(table, name) for name in _PLAIN}
    arrays["max_chars"] = np.array([table.max_chars], np.int64)
    for name in _TRIES:
        arrays.update(_trie_arrays(f"{name}.", getattr(table, name)))
    return arrays


def _table(arrays: _Arrays) -> CharsetTable:
    fields: dict[str, Any] = {name: arrays[name] for name in _PLAIN}
    fields.update({name: _trie(f"{name}.", arrays) for name in _TRIES})
    return CharsetTable(**fields, max_chars=int(arrays["max_chars"][0]))
