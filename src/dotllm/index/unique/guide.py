"""UniqueGuide: a sequence on an Index with arrays without equal items, or objects without equal keys.

A UniqueGuide holds branches (see `branches`) where a `Guide` holds a configuration. Branches are immutable, so going
back and forking work as in a `Guide`. Its masks depend on the items read, so no other guide shares them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index as as_integer

import numpy as np

from dotllm.arrays import Int32
from dotllm.automata.machine.layout import FINISHED, INITIAL
from dotllm.errors import TooFewTokensError, UnsupportedError
from dotllm.index.guide import Guide, write_mask
from dotllm.index.unique import masks, plans
from dotllm.index.unique.branches import Branch, Branches, walk
from dotllm.index.unique.completions import any_can_complete
from dotllm.index.unique.paths import Paths
from dotllm.index.unique.scanner import OUTSIDE
from dotllm.index.unique.tokens import Tokens
from dotllm.index.walkable import Walkable

_BEGINNING: Branches = (Branch(INITIAL, OUTSIDE),)


class UniqueGuide(Guide):
    """See the module. Not thread-safe, as a `Guide`."""

    __slots__ = ("_branches", "_mask", "_past", "_paths", "_plan", "_tokens")

    is_stateful = True

    def __init__(self, index: Walkable) -> None:
        super().__init__(index)
        self._paths = Paths.of(index)
        self._tokens = Tokens.of(index.vocabulary)
        self._branches = _BEGINNING
        self._past: list[Branches] = []
        self._mask: tuple[Branches, Int32] | None = None
        self._plan: tuple[Branches, plans.Plan] | None = None

    @property
    def config(self) -> int:
        """The configuration of the first branch. To set it is to forget all items: the guide then stands outside marked
        arrays.
        """
        return self._branches[0].config

    @config.setter
    def config(self, config: int) -> None:
        self._branches = (Branch(config, OUTSIDE),)

    def advance(self, token_id: int) -> bool:
        """As `Guide.advance`."""
        after = self._after(self._branches, token_id)
        if not after:
            return False
        self._past.append(self._branches)
        self._history.append(self.config)
        if self._plan is not None:  # what has been planned stays possible
            planned = plans.next_token(self._tokens, self._plan[1]) if self._plan[0] is self._branches else None
            self._plan = (after, self._plan[1].behind(self._tokens, token_id)) if planned == token_id else None
        self._branches = after
        return True

    def follow(self, config: int) -> None:
        """As `Guide.follow`, to a configuration outside marked arrays and objects."""
        self._past.append(self._branches)
        super().follow(config)

    def _after(self, branches: Branches, token: int) -> Branches:
        """The branches after a token; (): the token is not allowed."""
        index, token = self.index, as_integer(token)
        if not 0 <= token < index.space.size:
            return ()
        data = self._tokens.bytes_of(token)
        is_end = bool(index.space.ends[token])
        if len(branches) == 1 and branches[0].state is OUTSIDE and (is_end or not self._opens(data)):
            after = index.advance(branches[0].config, token)
            return (Branch(after, OUTSIDE),) if after >= 0 else ()
        if is_end and any(branch.state is OUTSIDE and index.can_finish(branch.config) for branch in branches):
            return (Branch(FINISHED, OUTSIDE),)
        out: list[Branch] = []
        for branch in branches:
            if branch.config == FINISHED:
                continue
            if data:
                out.extend(walk(self._paths, (branch,), data))
            if branch.state is OUTSIDE:
                by_id = self._paths.by_id(branch.config, token)
                if by_id >= 0:
                    out.append(Branch(by_id, OUTSIDE))
        distinct = tuple(branch for i, branch in enumerate(out) if branch not in out[:i])
        return tuple(branch for branch in distinct if any_can_complete(self._paths, (branch,)))

    def _opens(self, data: bytes) -> bool:
        return any(bracket in data for bracket in self._paths.openings)

    def accepts(self, token_ids: Sequence[int]) -> int:
        """As `Guide.accepts`."""
        branches = self._branches
        for n, token in enumerate(token_ids):
            branches = self._after(branches, token)
            if not branches:
                return n
        return len(token_ids)

    def rollback(self, n: int) -> None:
        """As `Guide.rollback`."""
        super().rollback(n)
        if n:
            self._branches = self._past[-n]
            del self._past[-n:]

    def fork(self) -> UniqueGuide:
        """As `Guide.fork`."""
        other = UniqueGuide(self.index)
        other._branches = self._branches
        other._history, other._past = self._history.copy(), self._past.copy()
        other._plan = self._plan
        return other

    def reset(self) -> None:
        """As `Guide.reset`."""
        super().reset()
        self._branches = _BEGINNING
        self._past.clear()

    @property
    def can_finish(self) -> bool:
        """Whether the text may end here in one of the branches."""
        return any(branch.state is OUTSIDE and self.index.can_finish(branch.config) for branch in self._branches)

    @property
    def is_ambiguous(self) -> bool:
        """Whether there are several branches."""
        return len(self._branches) > 1

    @property
    def mask(self) -> Int32:
        """The allowed tokens, int32 [words]; not to be written to."""
        if self._mask is None or self._mask[0] is not self._branches:
            self._mask = (self._branches, self._find_mask())
        return self._mask[1]

    def _find_mask(self) -> Int32:
        parts = [self._mask_of(branch) for branch in self._branches]
        out = parts[0]
        for part in parts[1:]:
            out = out | part
        if not out.any():
            raise self.index.space.spells_nothing()
        return out

    def _mask_of(self, branch: Branch) -> Int32:
        index = self.index
        with index.lock:  # the row is this index's, and stays
            row = index.masks[index.mask_row(branch.config)]
        own = masks.mask_of(self._paths, self._tokens, branch, row) if branch.config != FINISHED else None
        return row if own is None else own

    @property
    def mask_row(self) -> int:
        """As `Guide.mask_row`; if the index does not know the row, its number is good for an epoch (`TokenSpace`)."""
        return self.index.space.intern(np.ascontiguousarray(self.mask))

    def write_mask(self, bitmask: Int32, row: int = 0, tokens_left: int | None = None) -> None:
        """As `Guide.write_mask`."""
        mask = None if tokens_left is None else self.mask_within(tokens_left)
        write_mask(np.ascontiguousarray(self.mask if mask is None else mask)[None], 0, bitmask, row)

    def _planned(self) -> plans.Plan:
        if self._plan is None or self._plan[0] is not self._branches:
            plan = plans.plan_of(self._paths, self._tokens, self._branches)
            if plan is None:
                message = "no limit can be kept: no item is found that no earlier one equals"
                raise UnsupportedError(message, keyword="uniqueItems")
            self._plan = (self._branches, plan)
        return self._plan[1]

    @property
    def tokens_to_finish(self) -> int:
        """As `Guide.tokens_to_finish`. Raises UnsupportedError where no limit can be kept (`plans`)."""
        with self.index.lock:
            plans.check_shortest_texts(self._paths)
            return self._planned().needed

    def mask_within(self, tokens_left: int) -> Int32 | None:
        """As `Guide.mask_within`; of the tokens after which an earlier item is in the way some may be missing."""
        tokens_left = as_integer(tokens_left)
        with self.index.lock:
            plans.check_shortest_texts(self._paths)
            if self.is_finished or plans.is_far(self._paths, self._branches, tokens_left):
                return None
            plan = self._planned()
            if tokens_left < plan.needed:
                raise TooFewTokensError(plan.needed, tokens_left)

            def fits(branch: Branch, token: int) -> bool:
                after = self._after((branch,), token)
                found = plans.plan_of(self._paths, self._tokens, after) if after else None
                return found is not None and found.needed < tokens_left

            out = np.zeros_like(self.mask)
            for branch in self._branches:
                own = self._mask_of(branch)
                out |= plans.within(self._paths, self._tokens, branch, own, tokens_left, fits)
            token = plans.next_token(self._tokens, plan)
            if token is not None:
                out[token >> 5] |= np.uint32(1 << (token & 31)).view(np.int32)
            return None if (out == self.mask).all() else out

    def allowed_tokens(self) -> Iterable[int]:
        """As `Guide.allowed_tokens`."""
        bits = np.unpackbits(self.mask.view(np.uint8), bitorder="little")
        return [int(i) for i in np.nonzero(bits)[0]]

    def forced_bytes(self) -> bytes:
        """The bytes that the grammar forces. (The items read may force more bytes; these are not found.)"""
        return b"" if self.is_ambiguous else super().forced_bytes()
