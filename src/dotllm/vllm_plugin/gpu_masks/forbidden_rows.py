"""Masks that allow everything but some tokens: of requests that reason, since vLLM 0.33.

Some tokens end the reasoning and are the first of the answer (the beginning of a tool call). Where the grammar does not
allow such a token for a beginning, vLLM forbids it while the model reasons. A server has one or two of these masks.
"""

from __future__ import annotations

import numpy as np

from dotllm.index.token_space import TokenSpace
from dotllm.vllm_plugin.gpu_masks.message import NO_MASK


class ForbiddenRows:
    """Their row numbers in a token space."""

    def __init__(self, space: TokenSpace) -> None:
        self._space = space
        self._rows: dict[tuple[int, ...], tuple[int, int]] = {}  # (epoch, row)

    def row(self, tokens: tuple[int, ...]) -> int:
        """The mask of all but ``tokens``, or NO_MASK without any. No index knows it, so its number is good for an epoch
        (see `TokenSpace`). Raises BudgetExceeded when there is no room for it."""
        if not tokens:
            return NO_MASK
        space = self._space
        epoch, row = self._rows.get(tokens, (-1, -1))
        if epoch != space.epoch:
            mask = np.full(space.words, -1, np.int32)
            for token in tokens:
                mask.view(np.uint32)[token >> 5] &= ~np.uint32(1 << (token & 31))
            row = space.intern(mask)
            self._rows[tokens] = (space.epoch, row)
        return row
