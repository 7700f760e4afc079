"""Specification: what a user asked for, as a value with one key everywhere.

The key names a compiled index in every cache, on every machine, so it covers all that decides what the index allows:
the kind, the text exactly as it came, the options, the vocabulary, and the engine that compiles (`fingerprint`). Two
texts that mean the same but are written differently have different keys: one more compile, never a wrong answer. vLLM
serialises schemas with ``json.dumps`` before a backend sees them, so formatting differs less than one would think;
`Specification.from_value` does the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import chain
from typing import Any

OptionValue = str | int | bool | None


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
        """From a kind's name and loose options.

        Options that are None are dropped; False is kept (``any_whitespace=False``). Callers leave out default values,
        so that equal specifications share a key.
        """
        kept = sorted((name, value) for name, value in (options or {}).items() if value is not None)
        return cls(Kind(kind), text, tuple(kept))

    @classmethod
    def from_value(
        cls, kind: Kind | str, value: Any, options: Mapping[str, OptionValue] | None = None
    ) -> Specification:
        """From the value of an API field: a string as it is, anything else as vLLM writes it (``json.dumps``)."""
        kind = Kind(kind)
        if kind is Kind.JSON_OBJECT:
            return cls.create(kind, "", options)
        return cls.create(kind, value if isinstance(value, str) else json.dumps(value), options)

    def key(self, context: bytes) -> str:
        """SHA-256 (hex) over ``context`` (engine and vocabulary, see `fingerprint.context`) and this specification.

        Fields are framed by their lengths, so no two specifications run into the same bytes.
        """
        digest = _begun(context, self.kind, *chain.from_iterable(self.options)).copy()
        digest.update(_framed(self.text))
        key: str = digest.hexdigest()
        return key

    @property
    def size(self) -> int:
        """Characters of the text: what the cost of a compile is guessed from before it runs."""
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
    """The key's digest up to the text, which every request asks for; ``options``: names and values in turn."""
    pairs = json.dumps(list(zip(options[::2], options[1::2], strict=True)), separators=(",", ":"))
    return hashlib.sha256(context + _framed(kind.value) + _framed(pairs))
