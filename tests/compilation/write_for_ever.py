"""Writes entries until it is killed: entry n is the byte n, at least 20,000 times. Prints "x" after the first entry."""

import itertools
import sys
from pathlib import Path

from dotllm.compilation.disk import DiskCache, seal


def write_in_pieces(path: Path, data: bytes) -> None:
    with path.open("wb", buffering=0) as file:
        for start in range(0, len(data), 2048):
            file.write(data[start : start + 2048])


Path.write_bytes = write_in_pieces  # type: ignore[method-assign,assignment]  # so that a kill comes between two of them
cache = DiskCache(Path(sys.argv[1]), 1 << 20)
for turn in itertools.count():
    key = f"{turn % 40:064x}"
    cache.put(key, seal(bytes([turn % 40]) * (20_000 + 1000 * (turn % 20)), key))
    if turn == 0:
        print("x", flush=True)
