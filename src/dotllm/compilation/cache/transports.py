"""Where the shared store is: reading and writing one object by name, through fsspec or Redis.

A transport may block, and raises whatever its library raises; `store` gives it threads of its own, time limits and a
circuit breaker. ``read`` returns None for an object that is not there.
"""

from __future__ import annotations

import os
import threading
import zlib
from importlib import import_module
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit, urlunsplit

from dotllm.compilation.cache.envelope import Damaged

# The first part of every object's name; a change of the entry format (`envelope.VERSION`) is a new one.
PREFIX = "dotllm-index-v1"


def pack(entry: bytes) -> bytes:
    """An entry as an object: deflated, which makes it about a quarter in a millisecond or two."""
    return zlib.compress(entry, 1)


def unpack(data: bytes, limit: int) -> bytes:
    """The inverse of `pack`. Raises `Damaged` for another object, or one larger than ``limit`` when unpacked."""
    inflate = zlib.decompressobj()
    try:
        entry = inflate.decompress(data, limit)
    except zlib.error as error:
        raise Damaged(f"not a packed entry: {error}") from None
    if not inflate.eof or inflate.unused_data:
        raise Damaged("cut off, too large, or followed by other bytes")
    return entry


class Transport(Protocol):
    """One object store."""

    def read(self, name: str) -> bytes | None:
        """The object, or None if there is none."""

    def write(self, name: str, data: bytes) -> None:
        """Create or replace the object, whole or not at all."""


class FsspecTransport:
    """Any fsspec filesystem: s3://, gs://, abfs://, http:// (read only), file://, memory://, …"""

    def __init__(self, url: str, timeout: float) -> None:
        import fsspec
        from fsspec.asyn import AsyncFileSystem

        self._fs, root = fsspec.core.url_to_fs(url)
        # Listings of a shared place are stale at once.
        self._fs.use_listings_cache = False
        self._root = root.rstrip("/")
        self._local = "file" in (self._fs.protocol if isinstance(self._fs.protocol, tuple) else (self._fs.protocol,))
        # Remote filesystems of fsspec are asynchronous inside and take the limit of one operation here.
        self._limits: dict[str, Any] = {"timeout": timeout} if isinstance(self._fs, AsyncFileSystem) else {}

    def _path(self, name: str) -> str:
        return f"{self._root}/{PREFIX}/{name[:2]}/{name}"

    def read(self, name: str) -> bytes | None:
        """The object, or None."""
        try:
            data = self._fs.cat_file(self._path(name), **self._limits)
        except FileNotFoundError:
            return None
        return bytes(data)

    def write(self, name: str, data: bytes) -> None:
        """Create or replace. Object stores do so atomically; a plain directory does by rename."""
        path = self._path(name)
        if not self._local:
            self._fs.pipe_file(path, data, **self._limits)
            return
        self._fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        # Several writers of one entry each have a name of their own until the rename.
        temporary = f"{path}.{os.getpid()}.{threading.get_ident()}.tmp"
        self._fs.pipe_file(temporary, data)
        os.replace(temporary, path)


class RedisTransport:
    """``redis://[:password@]host:port/db`` or ``rediss://``, with ``?ttl=SECONDS`` for entries that expire."""

    def __init__(self, url: str, timeout: float) -> None:
        import redis

        parts = urlsplit(url)
        query = parse_qs(parts.query)
        self._ttl = int(query.pop("ttl", ["0"])[0]) or None
        kept = "&".join(f"{name}={value}" for name, values in query.items() for value in values)
        self._client: Any = redis.Redis.from_url(
            urlunsplit(parts._replace(query=kept)), socket_timeout=timeout, socket_connect_timeout=timeout
        )

    def read(self, name: str) -> bytes | None:
        """The value, or None."""
        data = self._client.get(f"{PREFIX}:{name}")
        return None if data is None else bytes(data)

    def write(self, name: str, data: bytes) -> None:
        """Set the value."""
        self._client.set(f"{PREFIX}:{name}", data, ex=self._ttl)


_REDIS = ("redis", "rediss", "unix")


def check(url: str) -> None:
    """Whether there is a transport for a URL. Raises ImportError naming what to install, ValueError for another URL."""
    scheme = urlsplit(url).scheme
    if not scheme:
        raise ValueError(f"store {url!r} is not a URL (examples: s3://bucket/path, redis://host:6379/0, file:///path)")
    try:
        if scheme in _REDIS:
            import_module("redis")
        else:
            import_module("fsspec").get_filesystem_class(scheme)
    except ImportError as error:
        raise ImportError(f"store {scheme}:// needs another package ({error}): see docs/compilation.md") from error
    except ValueError as error:
        raise ValueError(f"store {scheme}://: {error}") from None


def open_transport(url: str, timeout: float) -> Transport:
    """The transport of a URL. Raises as `check`."""
    check(url)
    return RedisTransport(url, timeout) if urlsplit(url).scheme in _REDIS else FsspecTransport(url, timeout)
