"""Guide: one sequence on an Index.

A guide holds only the numbers of its current and earlier configurations, so rollback, fork and preemption are list
operations.

A number belongs to one index, which may become full. Then the guide moves: its configuration is made again on another
index of the same automaton (`GrammarIndex.newest`), and the earlier numbers stay those of the old index. Many long
texts may fill the new index, too, so the second move is to a private index. A text that fills its private index needs
more memory than an index may have, and ends with an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import index as as_integer
from typing import TypeVar

import numba as nb
import numpy as np

from dotllm.arrays import Int32, Int64, UInt8
from dotllm.automata.machine.arena import ArenaFull
from dotllm.automata.machine.layout import FINISHED, INITIAL
from dotllm.index.callers import NO_SIGNATURE, error_of, not_a_bitmask
from dotllm.index.kernels import write_row
from dotllm.index.token_space import TokenSpace
from dotllm.index.walkable import Walkable
from dotllm.jit import kernel

# Spells forced text as tokens.
#
# If only one text can follow, its canonical tokenisation is a good draft, except for its last tokens. The tokenizer
# would have read the text after them, too, and might have merged it with them (`"name` + `":`). So a token is dropped
# if a longer token could replace it: the draft stops before the first token at whose start the rest of the forced text
# is a proper prefix of another token.

MAX_FORCED = 512  # bytes of look-ahead


@kernel(nb.int64(nb.uint8[::1], nb.int32[::1], nb.int64, nb.uint8[::1], nb.int64[::1]))
def first_open(trie_byte: UInt8, trie_end: Int32, nodes: int, text: UInt8, starts: Int64) -> int:
    """How many of ``starts`` (ascending offsets into ``text``) come before the first from which the rest of the text is
    a proper prefix of a token."""
    for i in range(starts.shape[0]):
        low, high = nb.int64(0), nb.int64(nodes)
        at = starts[i]
        while at < text.shape[0]:
            node = low
            while node < high and trie_byte[node] != text[at]:
                node = nb.int64(trie_end[node])
            if node >= high:
                break
            low, high = node + 1, nb.int64(trie_end[node])
            at += 1
        if at == text.shape[0] and high > low:
            return i
    return starts.shape[0]


def stable_tokens(space: TokenSpace, text: bytes, tokens: list[int]) -> list[int]:
    """The leading tokens of a canonical tokenisation of ``text`` that stay the same whatever follows."""
    offset = space.token_offset
    lengths = offset[[token + 1 for token in tokens]] - offset[tokens]
    starts = np.cumsum(lengths) - lengths
    kept = first_open(
        space.trie_byte, space.trie_end, space.main_end, np.frombuffer(text, np.uint8).copy(), starts.astype(np.int64)
    )
    return tokens[:kept]


def forced_tokens(index: Walkable, config: int) -> list[int]:
    """The canonical tokens of the text that must come after ``config``, up to the first that later text could change.

    Empty if no tokens spell the forced text: if the vocabulary lacks single bytes, the text may end inside a token.
    """
    text = index.forced_bytes(config, MAX_FORCED)
    try:
        return stable_tokens(index.space, text, index.vocabulary.encode(text)) if text else []
    except ValueError:
        return []


T = TypeVar("T")


def write_mask(masks: Int32, number: int, bitmask: Int32, row: int) -> None:
    """`Guide.write_mask` for row ``number`` of the table ``masks`` int32 [rows, words]; raises the same errors."""
    row = as_integer(row)
    try:
        code = write_row(masks, number, bitmask, row)
    except NO_SIGNATURE:
        raise not_a_bitmask(bitmask, masks.shape[1], "") from None
    if code < 0:
        raise error_of(code, (), [row], bitmask, masks.shape[1])


class Guide:
    """One sequence on an `Index`, made by `Index.guide`: what has come, and what may come next.

    Not thread-safe (its Index is).
    """

    __slots__ = ("_history", "_lease", "_left", "_own", "config", "index")

    is_stateful = False
    """Whether the masks depend on more than ``config`` (see `unique`)."""

    def __init__(self, index: Walkable) -> None:
        self.index, self._lease = index, index.lease
        self.config = INITIAL
        self._history: list[int] = []
        self._left: tuple[tuple[int, Walkable, object], ...] = ()
        # (number of tokens taken, the index that was left then, its lease)
        self._own: tuple[Walkable, object] | None = None
        # (a private index, shared with the guides forked from this one; its lease)

    def __repr__(self) -> str:
        end = "finished" if self.is_finished else "may end" if self.can_finish else "may not end"
        return f"<{type(self).__name__} after {self.tokens_taken} tokens, {end}>"

    def advance(self, token_id: int) -> bool:
        """Take one token. False: it is not allowed, and nothing has changed."""
        while True:
            try:
                after = self.index.advance(self.config, token_id)
                break
            except ArenaFull:
                if not self.move_on():
                    raise
        if after < 0:
            return False
        self.follow(after)
        return True

    def follow(self, config: int) -> None:
        """Go to the configuration that a step has just found, as one token. It is not checked. Not for stateful
        guides."""
        self._history.append(self.config)
        self.config = config

    def catch_up(self, configs: list[int], config: int) -> None:
        """`follow` the configurations of ``configs`` (the first is the present one), then ``config``."""
        self._history.extend(configs)
        self.config = config

    def accept_string(self, text: str | bytes) -> bool:
        """Take a text, whichever tokens spell it; it is one step for `rollback`. False: it is not allowed here, and
        nothing has changed. (Special tokens that a grammar names have no text: `advance` takes them.)"""
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        after = self.with_room(lambda: self.index.advance_bytes(self.config, data))
        if after < 0:
            return False
        self.follow(after)
        return True

    def accepts(self, token_ids: Sequence[int]) -> int:
        """The number of leading ``token_ids`` that would be allowed, one after another. Nothing changes."""

        def count() -> int:
            config = self.config
            for n, token in enumerate(token_ids):
                config = self.index.advance(config, token)
                if config < 0:
                    return n
            return len(token_ids)

        return self.with_room(count)

    def rollback(self, n: int) -> None:
        """Undo the last ``n`` tokens. Raises ValueError if there were fewer."""
        if not 0 <= n <= len(self._history):
            raise ValueError(f"cannot undo {n} tokens: the guide has taken {len(self._history)}")
        if n:
            self.config = self._history[-n]
            del self._history[-n:]
            while self._left and self._left[-1][0] > len(self._history):
                self._stand_on(self._left[-1][1])
                self._left = self._left[:-1]

    def fork(self) -> Guide:
        """An independent guide at the same configuration, with the same history."""
        other = type(self)(self.index)
        other.config = self.config
        other._history = self._history.copy()
        other._left, other._own = self._left, self._own
        return other

    def __copy__(self) -> Guide:
        return self.fork()

    def __deepcopy__(self, memo: object) -> Guide:
        return self.fork()  # (the index is shared by all sequences)

    def reset(self) -> None:
        """Go back to the beginning."""
        self.config = INITIAL
        self._history.clear()
        if self._left:
            self._stand_on(self._left[0][1].newest())
            self._left, self._own = (), None

    def move_on(self) -> bool:
        """Move to another index of the same automaton because this one is full (`ArenaFull`). False: this guide has
        filled a private index."""
        index = self.index
        if self._own is not None and index is self._own[0]:
            return False
        with index.lock:
            if not self._left and self._carry_to(index.newest(index)):
                return True
            if self._own is None:
                own = index.renewed()
                self._own = own, own.lease
            return self._carry_to(self._own[0])

    def with_room(self, act: Callable[[], T]) -> T:
        """Call ``act``, which asks the index about this guide's configuration. If the index is full, move and retry."""
        while True:
            try:
                return act()
            except ArenaFull:
                if not self.move_on():
                    raise

    def _carry_to(self, index: Walkable) -> bool:
        """Move to ``index``; False: there is no room for the configuration. Hold the lock."""
        try:
            config = index.carried(self.index, self.config)
        except ArenaFull:
            return False
        self._left = (*self._left, (len(self._history), self.index, self._lease))
        self._stand_on(index)
        self.config = config
        return True

    def _stand_on(self, index: Walkable) -> None:
        self.index, self._lease = index, index.lease

    @property
    def tokens_taken(self) -> int:
        """The number of tokens that have been taken (and not undone)."""
        return len(self._history)

    @property
    def can_finish(self) -> bool:
        """Whether the text may end here."""
        return self.index.can_finish(self.config)

    @property
    def is_finished(self) -> bool:
        """Whether an end token has been taken."""
        return self.config == FINISHED

    @property
    def mask_row(self) -> int:
        """The number of the row of `Index.masks` with the tokens that are allowed next."""
        try:
            return self.index.mask_row(self.config)
        except ArenaFull:
            return self.with_room(lambda: self.index.mask_row(self.config))

    def write_mask(self, bitmask: Int32, row: int = 0, tokens_left: int | None = None) -> None:
        """Write the allowed tokens into ``bitmask[row]``; bitmask is int32 [rows, at least words]. Raises TypeError,
        ValueError or IndexError for any other bitmask or row.

        ``tokens_left``: the number of tokens that may still come, including the next one and the end token; None: no
        limit. With a limit, only those tokens are allowed after which the remaining tokens can end the text (see
        `tokens_to_finish`). Raises TooFewTokensError if there are none.
        """
        mask = None if tokens_left is None else self.mask_within(tokens_left)
        if mask is None:
            write_mask(self.index.masks, self.mask_row, bitmask, row)
        else:
            write_mask(mask[None], 0, bitmask, row)

    @property
    def tokens_to_finish(self) -> int:
        """The number of tokens that suffice to end the text, including the end token; 0 after it.

        With at least this many tokens left, masks under a limit (`write_mask`) lead to an end in time, whichever of the
        allowed tokens are taken. Some texts may need fewer tokens (`automata.machine.plans` says which).
        """
        return self.with_room(lambda: self.index.tokens_to_finish(self.config))

    def mask_within(self, tokens_left: int) -> Int32 | None:
        """The mask, int32 [words], with ``tokens_left`` as in `write_mask`; None: the mask of `mask_row`."""
        return self.with_room(lambda: self.index.mask_within(self.config, tokens_left))

    def allowed_tokens(self) -> Iterable[int]:
        """The ids of all tokens allowed next (for inspection; in a loop, use the mask)."""
        import numpy as np

        bits = np.unpackbits(self.index.masks[self.mask_row].view(np.uint8), bitorder="little")
        return [int(i) for i in np.nonzero(bits)[0]]

    @property
    def is_ambiguous(self) -> bool:
        """Whether there is more than one configuration (see `unique.paths.Branch`)."""
        return False

    def forced_bytes(self) -> bytes:
        """The bytes that must come next, whatever the model prefers."""
        return self.with_room(lambda: self.index.forced_bytes(self.config))

    def forced_tokens(self) -> list[int]:
        """Tokens that spell `forced_bytes` canonically; each is allowed when it is reached.

        The last tokens are left out if they could merge with the text after them (`stable_tokens`).
        """
        # what only one of several configurations forces is not forced
        return [] if self.is_ambiguous else self.with_room(lambda: forced_tokens(self.index, self.config))
