"""Writes GGUF files according to the specification, in plain Python, as input for the reader."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CODES = {"F32": 0, "Q4_1": 3, "Q8_0": 8}


def write(
    path: Path, metadata: Mapping[str, Any], tensors: Sequence[tuple[str, str, NDArray[np.float32]]]
) -> dict[str, Any]:
    """Tensors are (name, encoding, weights). Returns what a reader must find: the weights after rounding."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        head += _string(key) + _value(value)
    data, kept = b"", {}
    for name, encoding, weights in tensors:
        data += b"\0" * (-len(data) % 32)
        shape = weights.shape[::-1]
        head += _string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, CODES[encoding], len(data))
        packed, rounded = _pack(encoding, weights.reshape(-1))
        data += packed
        kept[name] = np.array(rounded, np.float32).reshape(weights.shape)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + data)
    return kept


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _string(value)
    kind = _value(value[0])[:4]
    return struct.pack("<I", 9) + kind + struct.pack("<Q", len(value)) + b"".join(_value(item)[4:] for item in value)


def _pack(encoding: str, weights: NDArray[np.float32]) -> tuple[bytes, list[float]]:
    if encoding == "F32":
        return weights.astype("<f4").tobytes(), [float(w) for w in weights]
    packed, rounded = b"", []
    for block in weights.reshape(-1, 32):
        if encoding == "Q8_0":
            scale = float(np.float16(max(abs(block)) / 127))
            levels = [round(float(w) / scale) if scale else 0 for w in block]
            packed += struct.pack("<e32b", scale, *levels)
            rounded += [scale * level for level in levels]
            continue
        least = float(np.float16(min(block)))
        scale = float(np.float16((max(block) - min(block)) / 15))
        levels = [min(15, max(0, round((float(w) - least) / scale))) if scale else 0 for w in block]
        nibbles = [levels[i] | levels[i + 16] << 4 for i in range(16)]
        packed += struct.pack("<ee16B", scale, least, *nibbles)
        rounded += [scale * level + least for level in levels]
    return packed, rounded
