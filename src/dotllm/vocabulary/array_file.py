"""Named NumPy arrays in one file: checksummed, mapped into memory, written atomically, no pickle.

    magic (8 bytes) · SHA-256 of the rest (32) · length of the header (8, little endian)
    header: JSON {"kind": …, "arrays": {name: [dtype, shape, offset]}}
    the arrays, little endian, at multiples of 64 bytes

The mapping is copy-on-write, so that the arrays have the type that kernels are compiled for (writable), while
processes share the pages. Files are replaced, never changed, so a mapping stays valid.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAGIC = b"dotllmA1"
_ALIGNMENT = 64
_START = len(MAGIC) + 32 + 8
_DTYPES = frozenset({"|u1", "<i4", "<i8"})


class DamagedFile(Exception):
    """The file is not one that ``write_arrays`` has written completely, or is of another kind."""


def write_arrays(path: Path, kind: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write ``arrays`` (uint8, int32 or int64) under ``path``, whose directory is made.

    Raises:
        TypeError: an array has another dtype.
        OSError: the file cannot be written.
    """
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
    """Map the arrays of a file of this kind into memory.

    Raises:
        DamagedFile: the file is damaged, or of another kind.
        OSError: the file is not there, or cannot be read.
    """
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size < _START:
            raise DamagedFile(f"{path} is too short")
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    view = memoryview(mapped)
    if view[: len(MAGIC)] != MAGIC:
        raise DamagedFile(f"{path} is not a file of arrays")
    if hashlib.sha256(view[len(MAGIC) + 32 :]).digest() != view[len(MAGIC) : len(MAGIC) + 32]:
        raise DamagedFile(f"{path} fails its checksum")
    # The checksum holds, so the header is what was written; what remains to check is that it is of this kind.
    start = _START + int.from_bytes(view[_START - 8 : _START], "little")
    header = json.loads(bytes(view[_START:start]))
    if header["kind"] != kind:
        raise DamagedFile(f"{path} is of kind {header['kind']!r}, not {kind!r}")
    return {
        name: np.frombuffer(mapped, dtype, math.prod(shape), start + offset).reshape(shape)
        for name, (dtype, shape, offset) in header["arrays"].items()
    }
