"""The trailer that makes a saved index an entry of a cache: whose it is, how long, and unharmed.

    payload (what Index.save wrote) | magic 8 | version u32 | reserved u32 | length u64 | key 32 | checksum 32

It stands at the end so that the payload starts at offset 0 and stays mmap-able by its own loader. The checksum is
SHA-256 over payload and trailer, or HMAC-SHA-256 with a secret. SHA-256 finds damage, but anybody can compute it, and
who writes an entry decides what masks allow. So a store that others can write to must have a secret
(``DOTLLM_STORE_SECRET``). An entry with another key, length, checksum, magic or version is `Damaged`. Nothing is ever
unpickled.
"""

from __future__ import annotations

import hashlib
import hmac
import mmap
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

MAGIC = b"dotllmEN"
VERSION = 1
_FIELDS = struct.Struct("<8sIIQ32s")
_CHECKSUM = 32
TRAILER = _FIELDS.size + _CHECKSUM


class Damaged(ValueError):
    """Not an entry that may be used under this key: damaged, foreign, or from a newer version."""


def _checksum(secret: bytes, *parts: bytes | memoryview | mmap.mmap) -> bytes:
    digest = hmac.new(secret, digestmod=hashlib.sha256) if secret else hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()


def seal(path: Path, key: str, secret: bytes = b"") -> int:
    """Append the trailer to a payload file; returns the file's size."""
    with path.open("r+b") as file:
        file.seek(0, 2)
        length = file.tell()
        head = _FIELDS.pack(MAGIC, VERSION, 0, length, bytes.fromhex(key))
        if length:
            with mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ) as payload:
                checksum = _checksum(secret, payload, head)
        else:
            checksum = _checksum(secret, head)
        file.write(head + checksum)
    return length + TRAILER


def sealed(write: Callable[[Path], None], key: str, secret: bytes = b"") -> bytes:
    """An entry with the payload that ``write(path)`` writes, where there is no file of it."""
    with tempfile.TemporaryDirectory(prefix="dotllm-entry-") as directory:
        path = Path(directory, key)
        write(path)
        seal(path, key, secret)
        return path.read_bytes()


def verify_bytes(data: bytes, key: str, secret: bytes = b"") -> None:
    """Raise `Damaged` unless ``data`` is a whole, unharmed entry of ``key``."""
    if len(data) < TRAILER:
        raise Damaged("shorter than its trailer")
    view = memoryview(data)
    _verify(view[:-TRAILER], bytes(view[-TRAILER:]), key, secret)


def verify_file(path: Path, key: str, secret: bytes = b"") -> None:
    """Raise `Damaged` unless the file is a whole, unharmed entry of ``key``; OSError if it cannot be read."""
    with path.open("rb") as file:
        data = file.read()
    verify_bytes(data, key, secret)


def _verify(payload: memoryview, trailer: bytes, key: str, secret: bytes) -> None:
    head, checksum = trailer[: _FIELDS.size], trailer[_FIELDS.size :]
    magic, version, _, length, found_key = _FIELDS.unpack(head)
    if magic != MAGIC:
        raise Damaged("no trailer: cut off, or not ours")
    if version != VERSION:
        raise Damaged(f"trailer version {version}, this is version {VERSION}")
    if length != len(payload):
        raise Damaged(f"{len(payload)} bytes of payload, {length} were written")
    if found_key != bytes.fromhex(key):
        raise Damaged("entry of another specification, vocabulary or engine")
    if not hmac.compare_digest(_checksum(secret, payload, head), checksum):
        raise Damaged("checksum differs")
