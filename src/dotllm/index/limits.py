"""Masks under a limit on the tokens left (see `automata.machine.plans`).

A limit changes nothing as long as enough tokens remain, whatever token comes next. How many tokens are enough is
remembered for each configuration, so such a limit costs one comparison; one kernel call compares a whole batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numba as nb
import numpy as np

from dotllm.arrays import Bool, Int32, Int64
from dotllm.automata.machine.arena import FUEL, too_long
from dotllm.automata.machine.layout import FINISHED, H_FUEL, H_HAS_WAYS, H_NODES, H_WAY_COST, WAY_ARRAYS
from dotllm.automata.machine.masks import enough_tokens, find_row_within
from dotllm.automata.machine.plans import NEVER, TRIE, Trie, bytes_from, tokens_from
from dotllm.automata.machine.walk import CharsetTables
from dotllm.automata.machine.ways import MOST, find_ways
from dotllm.errors import TooFewTokensError, UnsupportedError
from dotllm.index.callers import WRONG_COUNT, error_of
from dotllm.index.guide import Guide
from dotllm.index.kernels import B1, I1, L1, MACHINE, I, pointer
from dotllm.index.token_space import TokenSpace
from dotllm.index.walkable import Locks, Walkable, machines_of
from dotllm.jit import kernel

NO_LIMIT = -1  # in place of a number of tokens left


def trie_of(space: TokenSpace) -> Trie:
    """The token trie of a vocabulary, for kernels."""
    return Trie(
        space.trie_byte,
        space.trie_depth,
        space.trie_end,
        space.trie_token_start,
        space.trie_tokens,
        space.main_end,
        space.trie_below,
    )


def find_shortest_ways(index: Walkable) -> None:
    """Find the shortest ways, unless they have been found. Hold the index's lock."""
    if index.mem[H_HAS_WAYS] == 0:
        index.run(lambda mem: int(find_ways(mem, index.space.spellable_bytes)))


def find_ways_apart(index: Walkable) -> None:
    """`find_shortest_ways` without the index's lock: it may take seconds for a large automaton, and the engine's thread
    waits for that lock. So the ways are found in another arena, and copied."""
    if index.mem[H_HAS_WAYS] == 0:
        apart = index.renewed()
        find_shortest_ways(apart)
        with index.lock:
            take_ways(index.mem, apart.mem)


def take_ways(mem: Int32, there: Int32) -> None:
    """Copy the shortest ways from another arena of the same automaton, if they have been found only there."""
    if mem[H_HAS_WAYS] == 0 and there[H_HAS_WAYS] != 0:
        first, size = mem.item(H_WAY_COST), WAY_ARRAYS * mem.item(H_NODES)
        mem[first : first + size] = there[there.item(H_WAY_COST) :][:size]
        mem[H_HAS_WAYS] = 1


def tokens_to_finish(index: Walkable, config: int) -> int:
    """See `GrammarIndex.tokens_to_finish`. Hold the index's lock."""
    find_shortest_ways(index)
    trie = trie_of(index.space)
    tokens = index.run(lambda mem: int(tokens_from(mem, trie, config)))
    if tokens >= NEVER and index.run(lambda mem: int(bytes_from(mem, trie, config))) >= MOST:
        raise too_long()
    if tokens >= NEVER:
        raise UnsupportedError(
            "no tokens of the vocabulary spell the shortest text, so no token limit can be guaranteed",
            keyword="vocabulary",
        )
    return tokens


def is_tight(index: Walkable, config: int, tokens_left: int) -> bool:
    """Whether a limit may change the mask; True if unknown. Hold the index's lock."""
    find_shortest_ways(index)
    trie, by_bytes = trie_of(index.space), index.space.counts_bytes
    if by_bytes:
        index.mask_row(config)  # facts about a row hold for all configurations that share it
    return not 0 <= index.run(lambda mem: int(enough_tokens(mem, trie, by_bytes, config))) <= tokens_left


def mask_within(index: Walkable, config: int, tokens_left: int) -> Int32 | None:
    """See `GrammarIndex.mask_within`. Hold the index's lock."""
    tokens_left = min(tokens_left, NEVER)  # (kernels have 32 bits)
    if not is_tight(index, config, tokens_left):
        return None
    needed = tokens_to_finish(index, config)
    if tokens_left < needed:
        raise TooFewTokensError(needed, tokens_left)
    space, trie = index.space, trie_of(index.space)
    charsets = CharsetTables(space.sets, space.set_rows, space.set_ints, *space.unfinished)
    out = np.zeros(space.words, np.int32)
    most = index.run(
        lambda mem: int(find_row_within(mem, trie, charsets, index.token_rows, space.eos, config, tokens_left, out))
    )
    return out if tokens_left <= most else None


@kernel(I(L1, I1, I1, L1, TRIE, nb.boolean, I, B1))
def find_tight(
    machines: Int64, configs: Int32, counts: Int32, tokens_left: Int64, trie: Trie, by_bytes: bool, fuel: int,
    tight: Bool,
) -> int:  # fmt: skip
    """tight[g] = whether guide g's limit may change the mask at one of its configurations, which are the next
    ``counts[g]`` of ``configs`` (true if unknown). Returns 0.

    The limit is tokens_left[g] at the first of these configurations, one less at the next, and so on.
    """
    entry = 0
    for g in range(counts.shape[0]):
        mem = nb.carray(pointer(machines[MACHINE * g]), (machines[MACHINE * g + 1],), nb.int32)
        tight[g] = False
        for j in range(counts[g]):
            if tokens_left[g] != NO_LIMIT and not tight[g] and configs[entry + j] > FINISHED:
                mem[H_FUEL] = fuel
                enough = enough_tokens(mem, trie, by_bytes, configs[entry + j])
                tight[g] = enough < 0 or tokens_left[g] - j < enough
        entry += counts[g]
    return 0


def tight_guides(
    guides: Sequence[Guide], tokens_left: Sequence[int], configs: Int32 | None = None, counts: Int32 | None = None
) -> list[int]:
    """The guides whose limits may change a mask, including stateful guides and those for which it is unknown.

    tokens_left: for each guide, the number of tokens that may still come, as for `Guide.write_mask`, or `NO_LIMIT`;
    configs int32 [sum(counts)]: counts[g] configurations of each guide g, along its drafts (by default, only its
    present one).

    Raises:
        ValueError: ``tokens_left`` does not have one number for each guide.
    """  # noqa: DOC501 - a function makes the error
    if len(tokens_left) != len(guides):
        raise error_of(WRONG_COUNT, guides, tokens_left)
    limited = [g for g, left in enumerate(tokens_left) if left != NO_LIMIT]
    if not limited:
        return limited
    indexes = [guide.index for guide in guides]
    space = indexes[0].space
    if configs is None or counts is None:
        configs, counts = np.array([guide.config for guide in guides], np.int32), np.ones(len(guides), np.int32)
    tight = np.empty(len(guides), np.bool_)
    with Locks(indexes):
        find_tight(
            machines_of(indexes), configs, counts, np.array(tokens_left, np.int64), trie_of(space),
            space.counts_bytes, FUEL, tight,
        )  # fmt: skip
    return [g for g in limited if tight[g] or guides[g].is_stateful]
