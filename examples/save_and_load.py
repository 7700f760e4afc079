"""Compile an index once, and load it where it is needed: ``python examples/save_and_load.py``.

An index grows while sequences walk it. `save` keeps what they have found, so later processes start with known masks.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from loop import vocabulary, write

from dotllm import Index

if __name__ == "__main__":
    index = Index.from_json_schema({"enum": ["sun", "rain", {"snow": True}]}, vocabulary())
    texts = [write(index, seed) for seed in range(5)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weather.index"
        index.save(path)
        loaded = Index.load(path, vocabulary())  # ValueError if it was made for another tokenizer
        print(f"{path.stat().st_size} bytes, {loaded.configurations} configurations known")
    assert [write(loaded, seed) for seed in range(5)] == texts
    print(texts)
