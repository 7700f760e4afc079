"""A generation loop over the engine alone, with NumPy: ``python examples/loop.py``.

The other library examples call `write`. Its model is random, so its texts are nonsense of the right form. Set
``TOKENIZER`` to the name or folder of a transformers tokenizer; otherwise the demo's is made on the spot.
"""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from dotllm import Index, Vocabulary
from dotllm.numpy import allocate_token_bitmask, apply_token_bitmask_inplace, fill_next_token_bitmask


@cache
def vocabulary() -> Vocabulary:
    """Make it once per tokenizer: it takes a second for 100,000 tokens."""
    from transformers import AutoTokenizer

    if name := os.environ.get("TOKENIZER"):
        return Vocabulary.from_tokenizer(AutoTokenizer.from_pretrained(name))
    from dotllm.demo import model

    with tempfile.TemporaryDirectory() as folder:
        return Vocabulary.from_tokenizer(AutoTokenizer.from_pretrained(model.make(Path(folder) / "model")))


def write(index: Index, seed: int = 1) -> str:
    """One text of the index; each token is drawn at random from the allowed ones."""
    words, random = index.vocabulary, np.random.default_rng(seed)
    guide, bitmask, text = index.guide(), allocate_token_bitmask(1, words.size), b""
    while not guide.is_finished:
        logits = random.gumbel(
            size=(1, words.size)
        )  # your model's; taking the largest after adding Gumbel noise is sampling
        fill_next_token_bitmask(guide, bitmask)
        apply_token_bitmask_inplace(logits, bitmask)
        token = int(logits.argmax())
        guide.advance(token)  # the end token, too
        text += words.token_bytes(token) or b""
    return text.decode()


if __name__ == "__main__":
    print(write(Index.from_regex(r"[0-9]{4}-(0[1-9]|1[0-2])", vocabulary())))
