"""Finds the masks along drafts: one row for each guide, and another after each of its draft tokens, in one kernel
call.

Speculative decoding verifies several tokens of a sequence in one pass of the model, so it needs the mask before each of
them. The guides do not move; only configurations are computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numba as nb
import numpy as np

from dotllm.arrays import Bool, Int32, Int64, UInt8
from dotllm.automata.machine.arena import FUEL
from dotllm.automata.machine.layout import FINISHED, H_FUEL
from dotllm.automata.machine.run import advance
from dotllm.index.batch import Failures, advance_guides, for_each_stateful, moved_on, recover_each, rows_of
from dotllm.index.callers import WRONG_COUNT, error_of, integers
from dotllm.index.guide import Guide
from dotllm.index.kernels import B1, I1, L1, MACHINE, NEEDS_ROW, U8, I, check_configurations, known_rows, pointer
from dotllm.index.walkable import Locks, machines_of
from dotllm.jit import kernel

NO_MASK = -1  # not a row: a token sampled there is not used
NOWHERE = -1  # not a configuration: the draft before it is not allowed


@kernel(I(L1, I1, I1, L1, U8, I1, B1, I, I, I1, I1))
def configs_along(
    machines: Int64,
    configs: Int32,
    starts: Int32,
    drafts: Int64,
    token_data: UInt8,
    token_offset: Int32,
    ends: Bool,
    words: int,
    fuel: int,
    out: Int32,
    codes: Int32,
) -> int:
    """out[starts[g] + g + j]: the configuration of guide g after j of its drafts[starts[g]:starts[g + 1]], or NOWHERE.

    codes [guides], in and out. In: 0 if guide g is done and is skipped; any other code: walk it. Out: 0, or the error
    of `automata.machine.run.advance`, after which guide g must be walked again. Returns 0, or the error of
    `check_configurations`; then nothing has been done.
    """
    wrong = check_configurations(machines, configs)
    if wrong < 0:
        return wrong
    for g in range(configs.shape[0]):
        if codes[g] == 0:
            continue
        at = MACHINE * g
        mem = nb.carray(pointer(machines[at]), (machines[at + 1],), nb.int32)
        token_rows = nb.carray(pointer(machines[at + 2]), (machines[at + 3], words), nb.int32)
        entry = starts[g] + g
        config = I(configs[g])
        codes[g] = 0
        out[entry] = config
        for j in range(starts[g], starts[g + 1]):
            entry += 1
            if config >= 0:
                mem[H_FUEL] = fuel
                config = advance(mem, config, drafts[j], token_data, token_offset, ends, token_rows)
                if config < NEEDS_ROW:
                    codes[g] = config
                    break
            out[entry] = config
    return 0


class Walk:
    """The configurations along drafts: for each guide, before its first draft, after it, and so on."""

    def __init__(self, guides: Sequence[Guide], drafts: Sequence[Sequence[int]]) -> None:
        """Walk all drafts. Hold the locks of the guides' indexes. Raises what `mask_rows_along` raises."""
        indexes = [guide.index for guide in guides]
        space = indexes[0].space
        counts = np.fromiter(map(len, drafts), np.int32, len(drafts))
        self.starts = np.zeros(len(guides) + 1, np.int32)
        """int32 [guides + 1]: where each guide's drafts begin in the list of all drafts."""
        np.cumsum(counts, out=self.starts[1:])
        flat = integers(list(chain.from_iterable(drafts)), "drafts")
        self.configs = np.full(len(flat) + len(guides), NOWHERE, np.int32)
        """int32 [sum(1 + drafts)]: NOWHERE after a draft that is not allowed, and for a guide that failed."""
        self.owner = np.repeat(np.arange(len(guides)), counts + 1)
        """int64 [sum(1 + drafts)]: the guide of each configuration."""
        self.failures: Failures = {}
        own = np.fromiter((g.config for g in guides), np.int32, len(guides))
        codes = np.ones(len(guides), np.int32)
        self.machines = machines_of(indexes)
        while codes.any():
            wrong = configs_along(
                self.machines, own, self.starts, flat, space.token_data, space.token_offset, space.ends,
                space.words, FUEL, self.configs, codes,
            )  # fmt: skip
            if wrong < 0:
                raise error_of(wrong, guides)
            met = np.flatnonzero(codes).tolist()
            if met:
                refused = recover_each((g, indexes[g], int(codes[g])) for g in met)
                for g in moved_on(guides, indexes, refused):
                    indexes[g], own[g] = guides[g].index, guides[g].config
                self.failures.update(refused)
                codes[[*refused]] = 0
                self.machines = machines_of(indexes)
        for g in self.failures:
            self.configs[self.owner == g] = NOWHERE


def mask_rows_along(guides: Sequence[Guide], drafts: Sequence[Sequence[int]]) -> tuple[Int32, Int32, Failures]:
    """Rows and configurations, both int32 [sum(1 + len(drafts[g]))], and why guides failed.

    Guide g owns 1 + len(drafts[g]) entries: before its first draft, after it, and so on. After a draft that is not
    allowed (or is padding, below 0) the row is NO_MASK: nothing sampled there can be kept. FINISHED has the row of the
    end tokens, as in `mask_rows`. A failed guide's entries are NO_MASK and NOWHERE.

    Raises:
        TypeError: the drafts are not integers.
        ValueError: there is not one list for each guide, or the guides are of different vocabularies.
        IndexError: a guide has been set to a configuration that its index does not have.
    """  # noqa: DOC501 - functions make the errors
    if len(drafts) != len(guides):
        raise error_of(WRONG_COUNT, guides, drafts)
    if not guides:
        return np.empty(0, np.int32), np.empty(0, np.int32), {}
    indexes = [guide.index for guide in guides]
    with Locks(indexes):
        while True:
            rows, configs, failures = _rows_along(guides, drafts)
            if not moved_on(guides, indexes, failures):  # (otherwise everything is looked up again on the new indexes)
                return rows, configs, failures
            indexes = [guide.index for guide in guides]


def _rows_along(guides: Sequence[Guide], drafts: Sequence[Sequence[int]]) -> tuple[Int32, Int32, Failures]:
    """`mask_rows_along` on the guides' present indexes. Hold their locks."""
    walk = Walk(guides, drafts)
    indexes = [guide.index for guide in guides]
    out, owner, failures = walk.configs, walk.owner, walk.failures
    rows = np.full(len(out), NO_MASK, np.int32)
    real = np.nonzero(out >= 0)[0]
    known = np.empty(len(real), np.int32)
    known_rows(walk.machines.reshape(-1, MACHINE)[owner[real]].ravel(), out[real], known)
    rows[real] = known
    missing = real[known < 0]
    if len(missing):
        computed, trouble = rows_of([indexes[g] for g in owner[missing].tolist()], out[missing])
        rows[missing] = computed
        for at, refusal in trouble.items():
            failures[int(owner[missing[at]])] = refusal
    if indexes[0].space.has_stateful_guides:
        _set_own_rows(guides, drafts, walk.starts, rows, failures)
    for g in failures:
        rows[owner == g], out[owner == g] = NO_MASK, NOWHERE
    return rows, out, failures


def allowed_drafts(guides: Sequence[Guide], drafts: Sequence[Sequence[int]]) -> list[int]:
    """How many of its drafts each guide allows (`Guide.accepts`). Below 0: the guide is stateful or has failed; ask the
    guide itself.

    Raises:
        Exception: what `mask_rows_along` raises.
    """  # noqa: DOC501 - functions make the errors
    if len(drafts) != len(guides):
        raise error_of(WRONG_COUNT, guides, drafts)
    if not guides:
        return []
    with Locks([guide.index for guide in guides]):
        walk = Walk(guides, drafts)
    allowed: Int32 = np.bincount(walk.owner, walk.configs >= 0, len(guides)).astype(np.int32) - 1
    return [-1 if guide.is_stateful else count for guide, count in zip(guides, allowed.tolist(), strict=True)]


def advance_along(guides: Sequence[Guide], tokens: Sequence[Sequence[int]]) -> list[bool]:
    """Let each guide (all distinct) take its tokens if it allows all of them. Returns, for each guide, whether it did.

    Guides that fail stay where they are. So do stateful guides, unless every guide has exactly one token.

    Raises:
        Exception: what `mask_rows_along` raises.
    """  # noqa: DOC501 - functions make the errors
    if len(tokens) != len(guides):
        raise error_of(WRONG_COUNT, guides, tokens)
    if all(len(own) == 1 for own in tokens):
        return advance_guides(guides, [token for (token,) in tokens])[0]
    with Locks([guide.index for guide in guides]):
        walk = Walk(guides, tokens)
        configs, end = walk.configs.tolist(), 0
        taken = []
        for guide, own in zip(guides, tokens, strict=True):
            end += 1 + len(own)
            taken.append(configs[end - 1] >= 0 and not guide.is_stateful)
            for config in configs[end - len(own) : end] if taken[-1] else ():
                guide.follow(config)
    return taken


def limit_rows(guide: Guide, drafts: Sequence[int], tokens_left: int, rows: Int32, configs: Int32) -> int:
    """Set the rows that a limit changes along one guide's drafts, and drop the positions after a draft that the limit
    forbids. Returns the first changed position; -1: none.

    rows, configs: int32 [1 + len(drafts)], as `mask_rows_along` finds them without a limit.

    Raises:
        TooFewTokensError: the text cannot end within so few tokens.
    """
    ahead = guide.fork() if len(drafts) else guide
    changed = -1
    for j in range(len(rows)):
        if rows[j] == NO_MASK or configs[j] == FINISHED:
            break
        mask = ahead.mask_within(tokens_left - j)
        if mask is not None:
            changed = j if changed < 0 else changed
            rows[j] = guide.index.space.intern(mask)
            if j < len(drafts) and not is_set(mask, drafts[j]):
                rows[j + 1 :], configs[j + 1 :] = NO_MASK, NOWHERE
                break
        if j < len(drafts) and not ahead.advance(drafts[j]):
            break
    return changed


def is_set(mask: Int32, token: int) -> bool:
    """Whether a mask int32 [words] allows a token."""
    return 0 <= token < 32 * len(mask) and bool(mask[token >> 5] >> (token & 31) & 1)


def _set_own_rows(
    guides: Sequence[Guide], drafts: Sequence[Sequence[int]], starts: Int32, rows: Int32, failures: Failures
) -> None:
    """Set the rows of stateful guides, whose masks depend on more than their configuration."""

    def set_rows(g: int, guide: Guide) -> None:
        ahead = guide.fork()
        at = int(starts[g]) + g
        rows[at] = ahead.mask_row
        rows[at + 1 : at + 1 + len(drafts[g])] = NO_MASK
        for j, token in enumerate(drafts[g], 1):
            if not ahead.advance(token):
                break
            rows[at + j] = ahead.mask_row

    for_each_stateful(guides, failures, set_rows)
