"""Reads GGUF files: metadata, and tensors as float32 arrays.

This is dotllm's own code, not a package, because the demo needs three of the format's forty encodings, and the rest of
the project needs none.
Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, blocks: ggml-common.h there.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Codes of metadata types → formats of `struct`."""
STRING, ARRAY = 8, 9
BLOCK = 32
"""Number of weights that share a scale."""
BLOCKS = {
    "F32": np.dtype("<f4"),
    "Q4_1": np.dtype([("scale", "<f2"), ("least", "<f2"), ("nibbles", "u1", BLOCK // 2)]),
    "Q8_0": np.dtype([("scale", "<f2"), ("weights", "i1", BLOCK)]),
}
ENCODINGS = {0: "F32", 3: "Q4_1", 8: "Q8_0"}


class UnreadableGguf(ValueError):
    """The file is not GGUF, or uses an encoding that this reader does not know."""


class Gguf:
    """An open file: ``metadata`` by key; `tensors` reads the weights."""

    def __init__(self, path: Path) -> None:
        """Raises UnreadableGguf."""
        with path.open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if self._bytes[:4] != b"GGUF":
            raise UnreadableGguf(f"{path} does not begin with GGUF")
        self._at = 4
        version, tensors, keys = self._scalar("I"), self._scalar("Q"), self._scalar("Q")
        if version not in (2, 3):
            raise UnreadableGguf(f"{path}: version {version} of GGUF; 2 and 3 are known")
        self.metadata: dict[str, Any] = {}
        for _ in range(keys):
            key = self._string()
            self.metadata[key] = self._value(self._scalar("I"))
        self._tensors = [self._tensor() for _ in range(tensors)]
        alignment = self.metadata.get("general.alignment", 32)
        self._data = -(-self._at // alignment) * alignment

    def tensors(self) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """Read names and weights in the order of the file, with the contiguous axis last.

        Yields:
            (name, weights): one tensor at a time, each wholly in memory.

        Raises:
            UnreadableGguf: a tensor's encoding is unknown.
        """
        for name, shape, code, offset in self._tensors:
            if code not in ENCODINGS:
                raise UnreadableGguf(f"{name} has the encoding {code}; known: {ENCODINGS}")
            encoding = ENCODINGS[code]
            size = int(np.prod(shape)) // (1 if encoding == "F32" else BLOCK)
            blocks = np.frombuffer(self._bytes, BLOCKS[encoding], size, self._data + offset)
            yield name, decode(encoding, blocks).reshape(shape)

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        shape = tuple(self._scalar("Q") for _ in range(self._scalar("I")))
        return name, shape[::-1], self._scalar("I"), self._scalar("Q")

    def _value(self, code: int) -> Any:
        if code == STRING:
            return self._string()
        if code == ARRAY:
            kind, length = self._scalar("I"), self._scalar("Q")
            return [self._value(kind) for _ in range(length)]
        if code not in SCALARS:
            raise UnreadableGguf(f"metadata of type {code}")
        return self._scalar(SCALARS[code])

    def _scalar(self, letter: str) -> Any:
        (value,) = struct.unpack_from(f"<{letter}", self._bytes, self._at)
        self._at += struct.calcsize(letter)
        return value

    def _string(self) -> str:
        length = self._scalar("Q")
        self._at += length
        return self._bytes[self._at - length : self._at].decode()


def decode(encoding: str, blocks: NDArray[Any]) -> NDArray[np.float32]:
    """The weights of ``blocks``, as a flat array."""
    if encoding == "F32":
        return blocks.astype(np.float32)
    scale = blocks["scale"].astype(np.float32)[:, None]
    if encoding == "Q8_0":
        weights = blocks["weights"].astype(np.float32) * scale
    else:  # a byte's low half is a weight of the block's first half, its high half one of the second half
        nibbles = np.concatenate([blocks["nibbles"] & 15, blocks["nibbles"] >> 4], axis=1)
        weights = nibbles.astype(np.float32) * scale + blocks["least"].astype(np.float32)[:, None]
    return weights.reshape(-1)
