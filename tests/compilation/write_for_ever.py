"""Writes entries until it is killed: entry n is the byte n, 20,000 times or more. Says "x" when it begins."""

import itertools
import sys
from pathlib import Path

from dotllm.compilation.cache.disk import DiskCache

cache = DiskCache(Path(sys.argv[1]), 1 << 20)


def fill(path: Path, number: int, length: int) -> None:
    with path.open("wb", buffering=0) as file:
        for _ in range(10):
            file.write(bytes([number]) * (length // 10))


for turn in itertools.count():
    length = 20_000 + 1000 * (turn % 20)
    cache.put(f"{turn % 40:064x}", lambda path: fill(path, turn % 40, length), length)  # noqa: B023  (called at once)
    if turn == 0:
        print("x", flush=True)
