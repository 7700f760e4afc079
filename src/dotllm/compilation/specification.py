"""Specification: a user's constraint, as a value that has the same key everywhere.

The key names a compiled index in every cache, on every machine, so it covers everything that decides what the index
allows: the kind, the text exactly as it came, the options, the vocabulary, and the engine (`engine_fingerprint`). Two
texts that mean the same but are written differently have different keys: one more compile, never a wrong answer. vLLM
serialises schemas with ``json.dumps`` before a backend sees them, so formatting seldom differs;
`Specification.from_value` does the same.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from dotllm._version import __version__

OptionValue = str | int | bool | None

JSON_FIELDS = ("disable_any_whitespace", "disable_additional_properties", "whitespace_pattern")
"""vLLM's fields that say how JSON is written."""


def json_options(fields: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """The options that `JSON_FIELDS` stand for. Fields that are not set, and all others, are left out."""
    said = {name: fields.get(name) for name in JSON_FIELDS}
    return {
        name.removeprefix("disable_"): value if name == "whitespace_pattern" else False
        for name, value in said.items()
        if value is not None and value is not False
    }


class Kind(str, Enum):
    """The six kinds of structured request (and the constructor of `Index` that takes each)."""

    JSON_SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"
    REGEX = "regex"
    CHOICE = "choice"  # the text is a JSON list of strings
    GRAMMAR = "grammar"
    STRUCTURAL_TAG = "structural_tag"


@dataclass(frozen=True)
class Specification:
    """One specification. ``options`` are keyword arguments of the `Index` constructor of this kind, sorted by name."""

    kind: Kind
    text: str
    options: tuple[tuple[str, OptionValue], ...] = ()

    @classmethod
    def create(cls, kind: Kind | str, text: str, options: Mapping[str, OptionValue] | None = None) -> Specification:
        """Make a specification from the name of a kind, a text and options.

        Options that are None are dropped, and so are those about declared properties if the kind declares none; False
        is kept (``any_whitespace=False``). Callers leave out default values, so that equal specifications share a key.
        """
        without = ("order", "additional_properties") if kind == Kind.JSON_OBJECT else ()
        kept = sorted(
            (name, value) for name, value in (options or {}).items() if value is not None and name not in without
        )
        return cls(Kind(kind), text, tuple(kept))

    @classmethod
    def from_value(
        cls, kind: Kind | str, value: Any, options: Mapping[str, OptionValue] | None = None
    ) -> Specification:
        """Make a specification from the value of an API field (see `as_text`)."""
        return cls.create(kind, cls.as_text(Kind(kind), value), options)

    @staticmethod
    def as_text(kind: Kind, value: Any) -> str:
        """The value of an API field as text: a string as it is, anything else as vLLM writes it (``json.dumps``)."""
        if kind is Kind.JSON_OBJECT:
            return ""
        return value if isinstance(value, str) else json.dumps(value)

    def key(self, context: bytes) -> str:
        """SHA-256 (hex) over ``context`` (engine and vocabulary, see `context`) and this specification.

        Each field is preceded by its length, so no two specifications give the same bytes.
        """
        digest = _begun(context, self.kind, *chain.from_iterable(self.options)).copy()
        digest.update(_framed(self.text))
        key: str = digest.hexdigest()
        return key

    @property
    def is_of_one_text(self) -> bool:
        """Whether it depends on a text in its request (``source``). Hardly any other request has the same
        specification, and the text, which a user wrote, must not leave this process."""
        return any(name == "source" for name, _ in self.options)

    @property
    def size(self) -> int:
        """Characters of the text, from which the cost of a compile is estimated."""
        return len(self.text)

    @property
    def nbytes(self) -> int:
        """Bytes of the text in UTF-8: limits on specifications are in this unit."""
        return len(self.text) if self.text.isascii() else len(_encoded(self.text))

    def to_json(self) -> dict[str, Any]:
        """As a JSON object (sent to compile workers; no pickle)."""
        return {"kind": self.kind.value, "text": self.text, "options": dict(self.options)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Specification:
        """The inverse of `to_json`."""
        return cls.create(data["kind"], data["text"], data["options"])


def _encoded(text: str) -> bytes:
    # A lone surrogate (JSON's "\ud800" arrives as one) has no UTF-8 form, but must not crash the key.
    return text.encode("utf-8", "surrogatepass")


def _framed(field: str) -> bytes:
    raw = _encoded(field)
    return len(raw).to_bytes(8, "little") + raw


@lru_cache(maxsize=256, typed=True)  # (True equals 1, but not in JSON)
def _begun(context: bytes, kind: Kind, *options: OptionValue) -> Any:
    """The key's digest up to the text, remembered because every request needs it. ``options``: names and values,
    alternating."""
    pairs = json.dumps(list(zip(options[::2], options[1::2], strict=True)), separators=(",", ":"))
    return hashlib.sha256(context + _framed(kind.value) + _framed(pairs))


# The fingerprints of the engine and the vocabulary: a stored index depends on both, and on its specification.
#
# The engine's fingerprint is a hash of its own files, not a version number that somebody must remember to raise: an
# index compiled before a bug was fixed must never be served after the fix. Two installations of the same release share
# their indexes. A checkout with a changed line in the engine does not, and must not, share with them.


PACKAGE = Path(__file__).parent.parent
# These packages decide the contents of an index. The vocabulary is here for its trie; its tokens have their own
# fingerprint.
ENGINE_PACKAGES = ("allocate", "automata", "grammar", "index", "languages", "vocabulary")
# In addition: the modules at the root, which the packages share, and the module that turns a specification into a call
# of the engine.
ENGINE_FILES = ("*.py", "compilation/compiler.py", "compilation/specification.py")


def engine_files(root: Path) -> list[Path]:
    """Every file of the package at ``root`` that an index depends on, including tables of data, in a fixed order."""
    paths = {path for pattern in ENGINE_FILES for path in root.glob(pattern)}
    for package in ENGINE_PACKAGES:
        paths.update(path for path in (root / package).rglob("*") if path.is_file() and path.suffix != ".pyc")
    return sorted(paths)


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
        # An installation without sources (a frozen application): only its version identifies the engine. A release
        # never changes under one version.
        digest.update(b"\0no sources\0")
    return digest.hexdigest()


def context(vocabulary_fingerprint: str, engine: str | None = None) -> bytes:
    """The engine and the vocabulary in 32 bytes, with which `Specification.key` starts."""
    engine = engine_fingerprint() if engine is None else engine
    return hashlib.sha256(f"dotllm index\0{engine}\0{vocabulary_fingerprint}".encode()).digest()
