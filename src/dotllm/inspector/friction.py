"""How much a constraint works against its model: the share of the model's own probability that each mask took away.

A server's logits are masked in place, and what they were before is lost. So the model reads the answer once more, as a
prompt without a constraint, and says for each position which tokens it finds likeliest. Those that the mask forbids
were taken away for certain; what is not among the likeliest is either. This gives two bounds, which are near each
other where the model is sure of something. Requests that nobody asks about cost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dotllm.api import Index
from dotllm.inspector.continuations import allowed

LIKELIEST = 20
"""Tokens of a position; vLLM gives no more by default."""


def taken(index: Index, tokens: Sequence[int], likeliest: Sequence[Mapping[int, float]]) -> list[tuple[float, float]]:
    """Of each of ``tokens``, the least and the most of the probability that the mask before it took away.

    ``likeliest``: of each position tokens with the logarithms of their probabilities.
    """
    guide, found = index.guide(), []
    for token, place in zip(tokens, likeliest, strict=False):
        mask = allowed(guide)
        kept = gone = 0.0
        for other, logarithm in place.items():
            if mask[other >> 5] >> (other & 31) & 1:
                kept += math.exp(logarithm)
            else:
                gone += math.exp(logarithm)
        found.append((min(gone, 1.0), min(1.0, max(gone, 1 - kept))))
        if not guide.advance(token):
            break
    return found
