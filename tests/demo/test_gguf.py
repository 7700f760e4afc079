"""The reader of GGUF on files written by plain Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dotllm.demo.gguf import Gguf, UnreadableGguf
from tests.demo import gguf_file

METADATA = {
    "general.name": "é",
    "n": 7,
    "yes": True,
    "x": 0.5,
    "list": ["a", "", "日本"],
    "numbers": [1, 2, 3],
    "flags": [False, True],
}


@pytest.mark.parametrize("seed", range(8))
def test_reads_what_was_written(seed: int, tmp_path: Path) -> None:
    draw = np.random.default_rng(seed)
    tensors = []
    for number in range(6):
        shape = (int(draw.integers(1, 5)), 32 * int(draw.integers(1, 4)))[: int(draw.integers(1, 3))]
        shape = shape if shape[-1] % 32 == 0 else (32,)
        weights = (draw.normal(size=shape) * 10.0 ** draw.integers(-3, 3)).astype(np.float32)
        tensors.append((f"t{number}", str(draw.choice(["F32", "Q4_1", "Q8_0"])), weights))
    kept = gguf_file.write(tmp_path / "file", METADATA, tensors)
    gguf = Gguf(tmp_path / "file")
    assert gguf.metadata == METADATA
    read = dict(gguf.tensors())
    assert read.keys() == kept.keys()
    for name, _, weights in tensors:
        assert read[name].shape == weights.shape and read[name].dtype == np.float32
        np.testing.assert_allclose(read[name], kept[name], rtol=1e-6, atol=1e-7)


def test_what_it_cannot_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"GGML" + bytes(100))
    with pytest.raises(UnreadableGguf, match="GGUF"):
        Gguf(path)
    path.write_bytes(b"GGUF\x01" + bytes(100))
    with pytest.raises(UnreadableGguf, match="version 1"):
        Gguf(path)
    gguf_file.write(path, {}, [("t", "F32", np.zeros(32, np.float32))])
    changed = path.read_bytes().replace(b"\x20\0\0\0\0\0\0\0\0\0\0\0", b"\x20\0\0\0\0\0\0\0\x0e\0\0\0", 1)
    path.write_bytes(changed)
    with pytest.raises(UnreadableGguf, match="encoding 14"):
        list(Gguf(path).tensors())
