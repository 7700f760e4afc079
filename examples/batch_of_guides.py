"""A batch of requests, each with its own constraint: ``python examples/batch_of_guides.py``.

Guides that share an index share its masks. Masks that are not known yet are computed on several cores.
"""

from __future__ import annotations

import numpy as np
from loop import vocabulary

from dotllm import Index
from dotllm.numpy import allocate_token_bitmask, apply_token_bitmask_inplace, fill_next_token_bitmask_par

if __name__ == "__main__":
    words, random = vocabulary(), np.random.default_rng(1)
    dates = Index.from_regex(r"20[0-9]{2}-(0[1-9]|1[0-2])", words)
    moods = Index.from_choice(["calm", "angry"], words)
    guides = [index.guide() for index in (dates, moods, dates, moods)]
    texts = [b""] * len(guides)
    bitmask = allocate_token_bitmask(len(guides), words.size)
    while running := [row for row, guide in enumerate(guides) if not guide.is_finished]:
        logits = random.gumbel(size=(len(guides), words.size))  # your model's
        fill_next_token_bitmask_par([(guides[row], row) for row in running], bitmask)
        apply_token_bitmask_inplace(logits, bitmask)
        for row in running:
            token = int(logits[row].argmax())
            guides[row].advance(token)
            texts[row] += words.token_bytes(token) or b""
    print(*(text.decode() for text in texts), sep="\n")
