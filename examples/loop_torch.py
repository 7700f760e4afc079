"""A generation loop with torch, on the model's device: ``python examples/loop_torch.py``.

Bitmasks are filled on the CPU and applied where the logits are.
"""

from __future__ import annotations

import torch
from loop import vocabulary

from dotllm import Index
from dotllm.torch import allocate_token_bitmask, apply_token_bitmask_inplace, fill_next_token_bitmask

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

if __name__ == "__main__":
    words = vocabulary()
    guide = Index.from_json_schema({"enum": ["sun", "rain", None]}, words).guide()
    bitmask = allocate_token_bitmask(1, words.size)
    tokens: list[int] = []
    while not guide.is_finished:
        logits = torch.randn(1, words.size, device=DEVICE)  # your model's
        fill_next_token_bitmask(guide, bitmask)
        apply_token_bitmask_inplace(logits, bitmask.to(DEVICE))
        token = int(torch.multinomial(logits.softmax(-1), 1))
        guide.advance(token)  # the end token, too
        tokens.append(token)
    print(b"".join(words.token_bytes(token) or b"" for token in tokens).decode())
