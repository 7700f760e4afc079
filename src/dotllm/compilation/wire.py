"""Messages to other processes and machines as plain data: vocabularies and failures. No pickle."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dotllm import errors
from dotllm.compilation.errors import CompilationError, CompileMemory, CompileTimeout

_REFUSALS: dict[str, type[errors.SpecError]] = {
    error.__name__: error
    for error in (
        errors.SpecError,
        errors.InvalidSpecError,
        errors.UnsupportedError,
        errors.BudgetExceededError,
        CompileTimeout,
        CompileMemory,
    )
}
_KINDS = frozenset(_REFUSALS.values())
_PLACES: dict[str, Any] = {place.__name__: place for place in (errors.Offset, errors.Pointer, errors.LineColumn)}


def pack_vocabulary(vocabulary: Any) -> bytes:
    """The content of a `Vocabulary` as a NumPy archive."""
    names = json.dumps([dict(vocabulary.special_tokens), dict(vocabulary.added_tokens)]).encode()
    buffer = io.BytesIO()
    np.savez(
        buffer,
        token_data=vocabulary.token_data,
        token_offset=vocabulary.token_offset,
        eos_token_ids=np.asarray(vocabulary.eos_token_ids, np.int32),
        names=np.frombuffer(names, np.uint8),
    )
    return buffer.getvalue()


def unpack_vocabulary(data: bytes) -> Any:
    """The inverse of `pack_vocabulary`."""
    from dotllm.vocabulary import Vocabulary
    from dotllm.vocabulary.content import Content

    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return Vocabulary(
            Content(
                arrays["token_data"],
                arrays["token_offset"],
                tuple(arrays["eos_token_ids"].tolist()),
                *json.loads(arrays["names"].tobytes()),
            )
        )


def pack_error(error: BaseException, memory: int) -> dict[str, Any]:
    """A failure as data. A refusal keeps all its fields; a private subclass is sent as its nearest public base class.

    memory: bytes that a compile may have. A `MemoryError` becomes a refusal that names this limit.
    """
    if isinstance(error, MemoryError):
        error = CompileMemory.beyond(memory)
    if isinstance(error, errors.SpecError):
        return {
            "type": next(kind.__name__ for kind in type(error).__mro__ if kind in _KINDS),
            "message": error.message,
            "location": pack_location(error.location),
            "keyword": error.keyword,
            "code": error.code,
            "help": error.help,
            "related": [[pack_location(place), text] for place, text in error.related],
        }
    return {"type": type(error).__name__, "message": str(error)}


def unpack_error(data: Mapping[str, Any]) -> Exception:
    """The inverse of `pack_error`; any failure but a refusal becomes a `CompilationError`."""
    refusal = _REFUSALS.get(data["type"])
    if refusal is None:
        return CompilationError(f"{data['type']}: {data['message']}")
    return refusal(
        data["message"],
        location=unpack_location(data["location"]),
        keyword=data["keyword"],
        code=data["code"],
        help=data["help"],
        related=[errors.Related(unpack_location(place), text) for place, text in data["related"]],
    )


def pack_location(location: errors.Location | None) -> list[Any] | None:
    """A place in a specification as data: the name of its class, and its fields in order."""
    if location is None:
        return None
    places = tuple(_PLACES.values())
    held = (pack_location(part) if isinstance(part, places) else part for part in vars(location).values())
    return [type(location).__name__, *held]


def unpack_location(data: Sequence[Any] | None) -> Any:
    """The inverse of `pack_location`."""
    if data is None:
        return None
    name, *held = data
    return _PLACES[name](*(unpack_location(part) if isinstance(part, list) else part for part in held))
