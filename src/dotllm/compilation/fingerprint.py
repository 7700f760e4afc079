"""Which engine, which vocabulary: what a stored index depends on besides its specification.

The engine's fingerprint is a hash of its own source files, not a version number somebody has to remember to raise: an
index compiled before a bug was fixed must never be served after it. Two installations of one release agree; a checkout
with one changed line in the engine does not share with them, which is right.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import dotllm

# What decides the contents of an index. The vocabulary is here for its trie; its tokens are fingerprinted apart.
ENGINE_PACKAGES = ("automata", "grammar", "index", "languages", "vocabulary")


@functools.cache
def engine_fingerprint() -> str:
    """SHA-256 (hex) over the engine's source files, in a fixed order. A few milliseconds, once per process."""
    root = Path(dotllm.__file__).parent
    digest = hashlib.sha256(dotllm.__version__.encode())
    found = 0
    for package in ENGINE_PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            source = path.read_bytes()
            name = path.relative_to(root).as_posix()
            digest.update(f"\0{name}\0{len(source)}\0".encode())
            digest.update(source)
            found += 1
    if not found:
        # An installation without sources (a frozen application): nothing tells two builds of one version apart, so the
        # version alone must do. Releases never change under one version.
        digest.update(b"\0no sources\0")
    return digest.hexdigest()


def context(vocabulary_fingerprint: str, engine: str | None = None) -> bytes:
    """What `Specification.key` starts from: engine and vocabulary, in 32 bytes."""
    engine = engine_fingerprint() if engine is None else engine
    return hashlib.sha256(f"dotllm index\0{engine}\0{vocabulary_fingerprint}".encode()).digest()
