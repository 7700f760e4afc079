"""Masks under a limit on the tokens that are left (see `automata.machine.plans`).

A limit changes nothing as long as it suffices whatever token comes next. How many tokens are enough for that is kept
for each configuration once it has been found, so such a limit costs a comparison.
"""

from __future__ import annotations

import numpy as np

from dotllm.arrays import Int32
from dotllm.automata.machine.layout import USED_WAYS
from dotllm.automata.machine.plans.masks_within import enough_tokens, find_row_within
from dotllm.automata.machine.plans.places import NEVER, tokens_from
from dotllm.automata.machine.plans.trie import Trie
from dotllm.automata.machine.plans.ways import find_ways
from dotllm.automata.machine.walk import CharsetTables
from dotllm.errors import TooFewTokens, Unsupported
from dotllm.index.token_space import TokenSpace
from dotllm.index.walkable import Walkable


def trie_of(space: TokenSpace) -> Trie:
    """The token trie of a vocabulary, for kernels."""
    return Trie(
        space.trie_byte, space.trie_depth, space.trie_end, space.trie_token_start, space.trie_tokens, space.main_end
    )


class Limits:
    """What an index knows of limits. Hold its lock while calling."""

    def __init__(self, index: Walkable) -> None:
        self._enough: dict[int, int] = {}
        """By configuration, how many tokens are no limit, whatever comes next."""
        unspellable = index.vocabulary.unspellable_bytes
        self._counts_bytes = unspellable == index.vocabulary.missing_bytes
        spellable = np.array([byte not in unspellable for byte in range(256)])
        if index.mem[USED_WAYS] == 0:
            index.run(lambda mem: int(find_ways(mem, spellable)))

    def is_tight(self, index: Walkable, config: int, tokens_left: int) -> bool:
        """Whether the mask under the limit may differ from the ordinary one, as far as is known."""
        enough = self._enough.get(config)
        if enough is None and self._counts_bytes:
            trie = trie_of(index.space)
            index.mask_row(config)  # what is known of a row holds for all who share it
            enough = index.run(lambda mem: int(enough_tokens(mem, trie, config)))
            if enough < 0:
                return True
            self._enough[config] = enough
        return enough is None or tokens_left < enough

    def tokens_to_finish(self, index: Walkable, config: int) -> int:
        """See `GrammarIndex.tokens_to_finish`.

        Raises:
            Unsupported: no tokens of the vocabulary spell the shortest text.
        """
        trie = trie_of(index.space)
        tokens = index.run(lambda mem: int(tokens_from(mem, trie, config)))
        if tokens >= NEVER:
            raise Unsupported(
                "no tokens of the vocabulary spell the shortest text, so no limit can be kept", keyword="vocabulary"
            )
        return tokens

    def mask(self, index: Walkable, config: int, tokens_left: int) -> Int32 | None:
        """See `GrammarIndex.mask_within`.

        Raises:
            TooFewTokens: the text cannot be ended with so few tokens.
        """
        needed = self.tokens_to_finish(index, config)
        if tokens_left < needed:
            raise TooFewTokens(needed, tokens_left)
        space, trie = index.space, trie_of(index.space)
        charsets = CharsetTables(space.sets, space.set_rows, space.set_ints, *space.unfinished)
        out = np.zeros(space.words, np.int32)
        most = index.run(
            lambda mem: int(find_row_within(mem, trie, charsets, index.token_rows, space.eos, config, tokens_left, out))
        )
        self._enough[config] = most + 1
        return out if tokens_left <= most else None
