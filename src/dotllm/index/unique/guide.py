"""UniqueGuide: a sequence on an Index whose arrays must not repeat items, or whose objects must not repeat keys.

A UniqueGuide holds branches (see `paths.Branch`) where a `Guide` holds a configuration. Branches are immutable, so
going back and forking work as in a `Guide`. Its masks depend on the items read, so no other guide shares them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index as as_integer
from typing import NamedTuple

import numpy as np

from dotllm.arrays import Int32
from dotllm.automata.machine.arena import ArenaFull
from dotllm.automata.machine.layout import FINISHED, INITIAL
from dotllm.errors import BudgetExceededError, TooFewTokensError, UnsupportedError
from dotllm.index.guide import Guide, write_mask
from dotllm.index.unique import masks, plans
from dotllm.index.unique.masks import any_can_complete
from dotllm.index.unique.paths import Branch, Branches, Paths, Tokens, check_branches, walk
from dotllm.index.unique.scanner import NAME, NUMBER, OUTSIDE, STRING, State, nesting, remembered
from dotllm.index.walkable import Walkable

_MOST_REMEMBERED = 64 << 20  # the most bytes of one answer's items
_DEEPEST = 500  # the most open containers: each costs time at each token, and JSON parsers stop at 128 to 1,000


class _Shorter(NamedTuple):
    """A guide's place inside a string or number. Its text is the first ``length`` characters of the text after the next
    token. (Keeping every prefix of a long string would take memory quadratic in the string's length.)"""

    config: int
    length: int
    pending: bytes


def _before(branches: Branches, after: Branches) -> Branches | _Shorter:
    """The part of ``branches`` to keep, given the branches ``after`` the next token."""
    if len(branches) != 1 or len(after) != 1:
        return branches
    (config, state), (_, later) = branches[0], after[0]
    if not isinstance(state, State) or not isinstance(later, State) or state.mode not in _IN_TEXT:
        return branches
    if state.top is not later.top or state.mode != later.mode:
        return branches
    return _Shorter(config, len(state.text), state.pending)


def _restored(before: Branches | _Shorter, after: Branches) -> Branches:
    """The branches from which `_before` has made ``before``."""
    if not isinstance(before, _Shorter):
        return before
    state = after[0].state
    assert isinstance(state, State)
    return (Branch(before.config, state._replace(text=state.text[: before.length], pending=before.pending)),)


_IN_TEXT = (STRING, NAME, NUMBER)
_BEGINNING: Branches = (Branch(INITIAL, OUTSIDE),)


class UniqueGuide(Guide):
    """See the module. Like a `Guide`, not thread-safe."""

    __slots__ = ("__weakref__", "_branches", "_mask", "_past", "_paths", "_plan", "_tokens")

    is_stateful = True

    def __init__(self, index: Walkable) -> None:
        self._branches = _BEGINNING
        self._past: list[Branches | _Shorter] = []
        super().__init__(index)
        self._paths = Paths.of(index)
        self._tokens = Tokens.of(index.vocabulary)
        self._mask: tuple[Branches, Int32] | None = None
        self._plan: tuple[Branches, plans.Plan] | None = None
        index.remembering.add(self)

    @property
    def nbytes(self) -> int:
        """The approximate bytes of all items and keys that it remembers."""
        return sum(remembered(branch.state) for branch in self._branches if isinstance(branch.state, State))

    @property
    def config(self) -> int:
        """The configuration of the first branch. Setting it forgets all items: no marked array or object is open."""
        return self._branches[0].config

    @config.setter
    def config(self, config: int) -> None:
        self._past[-1:] = [_restored(before, self._branches) for before in self._past[-1:]]
        self._branches = (Branch(config, OUTSIDE),)

    def advance(self, token_id: int) -> bool:
        """As `Guide.advance`."""
        after = self.with_room(lambda: self._after(self._branches, token_id))
        before = self._branches
        if not after:
            return False
        planned = self._plan
        self._take(after)
        if planned is not None:  # the rest of the plan stays possible
            following = plans.next_token(self._tokens, planned[1]) if planned[0] is before else None
            self._plan = (after, planned[1].behind(self._tokens, token_id)) if following == token_id else None
        return True

    def accept_string(self, text: str | bytes) -> bool:
        """As `Guide.accept_string`."""
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text

        def branches_after() -> Branches:
            open_ones = tuple(branch for branch in self._branches if branch.config != FINISHED)
            after = walk(self._paths, open_ones, data)
            return tuple(branch for branch in after if any_can_complete(self._paths, (branch,)))

        after = self.with_room(branches_after)
        if after:
            self._take(after)
        return bool(after)

    def _take(self, after: Branches) -> None:
        """Move to the branches ``after`` a step. Raises BudgetExceededError: too many, too large, or too deep."""
        check_branches(len(after))
        states = [branch.state for branch in after if isinstance(branch.state, State)]
        if sum(map(remembered, states)) > _MOST_REMEMBERED:
            raise BudgetExceededError(
                f"the items that must differ take more than {_MOST_REMEMBERED >> 20} MiB", keyword="uniqueItems"
            )
        if any(nesting(state) > _DEEPEST for state in states):
            raise BudgetExceededError(
                f"items that must differ are nested more than {_DEEPEST} deep", keyword="uniqueItems"
            )
        self._past.append(_before(self._branches, after))
        self._history.append(self.config)
        self._branches, self._plan = after, None

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

        def count() -> int:
            branches = self._branches
            for n, token in enumerate(token_ids):
                branches = self._after(branches, token)
                if not branches:
                    return n
            return len(token_ids)

        return self.with_room(count)

    def rollback(self, n: int) -> None:
        """As `Guide.rollback`."""
        later = self._branches
        super().rollback(n)
        if n:
            for before in reversed(self._past[-n:]):
                later = _restored(before, later)
            self._branches = later
            del self._past[-n:]

    def fork(self) -> UniqueGuide:
        """As `Guide.fork`."""
        other = super().fork()
        assert isinstance(other, UniqueGuide)
        other._branches, other._past = self._branches, self._past.copy()
        other._plan = self._plan
        return other

    def reset(self) -> None:
        """As `Guide.reset`."""
        super().reset()
        self._branches = _BEGINNING
        self._past.clear()

    def _carry_to(self, index: Walkable) -> bool:
        before, branches = self.index, self._branches
        if not super()._carry_to(index):
            return False
        try:
            self._branches = tuple(Branch(index.carried(before, branch.config), branch.state) for branch in branches)
        except ArenaFull:
            self._left = self._left[:-1]
            self._stand_on(before)
            self._branches = branches
            return False
        return True

    def _stand_on(self, index: Walkable) -> None:
        super()._stand_on(index)
        self._paths, self._plan = Paths.of(index), None

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
        """The allowed tokens, int32 [words]; do not write to it."""
        if self._mask is None or self._mask[0] is not self._branches:
            mask = self.with_room(self._find_mask)
            self._mask = (self._branches, mask)
        return self._mask[1]

    def _find_mask(self) -> Int32:
        parts = [self._mask_of(branch) for branch in self._branches]
        out = parts[0]
        for part in parts[1:]:
            out = out | part
        if not np.count_nonzero(out):  # (`any` takes four times as long)
            raise self.index.space.spells_nothing()
        return out

    def _mask_of(self, branch: Branch) -> Int32:
        index = self.index
        with index.lock:  # the row belongs to this index, and stays valid
            row = index.masks[index.mask_row(branch.config)]
        own = masks.mask_of(self._paths, self._tokens, branch, row) if branch.config != FINISHED else None
        return row if own is None else own

    @property
    def mask_row(self) -> int:
        """As `Guide.mask_row`; if the index does not refer to the row, the number is valid for one epoch
        (`TokenSpace`)."""
        return self.index.space.intern(np.ascontiguousarray(self.mask))

    def write_mask(self, bitmask: Int32, row: int = 0, tokens_left: int | None = None) -> None:
        """As `Guide.write_mask`."""
        mask = None if tokens_left is None else self.mask_within(tokens_left)
        write_mask(np.ascontiguousarray(self.mask if mask is None else mask)[None], 0, bitmask, row)

    def _planned(self) -> plans.Plan:
        if self._plan is None or self._plan[0] is not self._branches:
            plan = plans.plan_of(self._paths, self._tokens, self._branches)
            if plan is None:
                message = "no token limit can be guaranteed: no item was found that differs from all earlier items"
                raise UnsupportedError(message, keyword="uniqueItems")
            self._plan = (self._branches, plan)
        return self._plan[1]

    @property
    def tokens_to_finish(self) -> int:
        """As `Guide.tokens_to_finish`. Raises UnsupportedError if no limit can be kept (`plans`)."""
        with self.index.lock:
            return self.with_room(self._needed)

    def _needed(self) -> int:
        plans.check_shortest_texts(self._paths)
        return self._planned().needed

    def mask_within(self, tokens_left: int) -> Int32 | None:
        """As `Guide.mask_within`; some tokens after which an earlier item blocks the shortest way may be missing."""
        return self.with_room(lambda: self._mask_within(as_integer(tokens_left)))

    def _mask_within(self, tokens_left: int) -> Int32 | None:
        with self.index.lock:
            plans.check_shortest_texts(self._paths)
            if self.is_finished or plans.is_far(self._paths, self._branches, tokens_left):
                return None
            plan = self._planned()
            if tokens_left < plan.needed:
                raise TooFewTokensError(plan.needed, tokens_left)

            def fits(branch: Branch, token: int) -> bool:
                after = self._after((branch,), token)
                result = plans.plan_of(self._paths, self._tokens, after) if after else None
                return result is not None and result.needed < tokens_left

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
