"""A factory of logits processors for your own framework: ``python examples/logits_processor.py``.

Many frameworks take a function (token ids so far, logits) → logits for each request. One index serves all requests.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from loop import vocabulary
from numpy.typing import NDArray

from dotllm import Index
from dotllm.numpy import allocate_token_bitmask, apply_token_bitmask_inplace, fill_next_token_bitmask

Processor = Callable[[list[int], NDArray[np.float32]], NDArray[np.float32]]


def factory(index: Index) -> Callable[[], Processor]:
    """Return a function that makes the processor of a new request."""

    def make() -> Processor:
        guide, bitmask = index.guide(), allocate_token_bitmask(1, index.vocabulary.size)

        def process(tokens: list[int], logits: NDArray[np.float32]) -> NDArray[np.float32]:
            """``tokens``: the generated ids, without the prompt; ``logits``: float [vocabulary]."""
            for token in tokens[guide.tokens_taken :]:
                if not guide.advance(token):
                    raise ValueError(f"token {token} is not allowed: the framework has changed what was sampled")
            fill_next_token_bitmask(guide, bitmask)
            masked = logits[None].copy()
            apply_token_bitmask_inplace(masked, bitmask)
            return masked[0]

        return process

    return make


if __name__ == "__main__":
    new_request = factory(Index.from_choice(["yes", "no"], vocabulary()))
    random, process, tokens = np.random.default_rng(0), new_request(), []
    while not tokens or vocabulary().token_bytes(tokens[-1]):
        tokens.append(int(process(tokens, random.normal(size=vocabulary().size).astype(np.float32)).argmax()))
    print(b"".join(vocabulary().token_bytes(token) or b"" for token in tokens).decode())
