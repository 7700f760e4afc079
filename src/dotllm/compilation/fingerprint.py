"""Which engine, which vocabulary: what a stored index depends on besides its specification.

The engine's fingerprint is a hash of its own files, not a version number that has to be raised by hand: an
index compiled before a bug was fixed must never be served after it. Two installations of one release agree; a checkout
with one changed line in the engine does not share with them, which is right.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from dotllm._version import __version__

PACKAGE = Path(__file__).parent.parent
# What decides the contents of an index. The vocabulary is here for its trie; its tokens are fingerprinted apart.
ENGINE_PACKAGES = ("allocate", "automata", "grammar", "index", "languages", "vocabulary")
# Beside these, the modules at the root, which the packages share, and how a specification becomes a call of the engine.
ENGINE_FILES = ("*.py", "system/*.py", "compilation/compiler.py", "compilation/specification.py")


def engine_files(root: Path) -> list[Path]:
    """Every file of the package at ``root`` that an index depends on, tables of data among them, in a fixed order."""
    found = {path for pattern in ENGINE_FILES for path in root.glob(pattern)}
    for package in ENGINE_PACKAGES:
        found.update(path for path in (root / package).rglob("*") if path.is_file() and path.suffix != ".pyc")
    return sorted(found)


@functools.cache
def engine_fingerprint() -> str:
    """SHA-256 (hex) over the files of the engine. A few milliseconds, once per process."""
    digest = hashlib.sha256(__version__.encode())
    files = engine_files(PACKAGE)
    for path in files:
        content = path.read_bytes()
        digest.update(f"\0{path.relative_to(PACKAGE).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    if not any(path.suffix == ".py" for path in files):
        # An installation without sources (a frozen application): nothing tells two builds of one version apart, so the
        # version alone must do. Releases never change under one version.
        digest.update(b"\0no sources\0")
    return digest.hexdigest()


def context(vocabulary_fingerprint: str, engine: str | None = None) -> bytes:
    """What `Specification.key` starts from: engine and vocabulary, in 32 bytes."""
    engine = engine_fingerprint() if engine is None else engine
    return hashlib.sha256(f"dotllm index\0{engine}\0{vocabulary_fingerprint}".encode()).digest()
