"""Guide: one sequence on an Index.

All it holds is the number of its configuration and the numbers before it, so going back, forking and being preempted
are list operations; nothing of the Index belongs to a guide.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index as as_integer

from dotllm.arrays import Int32
from dotllm.automata.machine.layout import FINISHED, INITIAL
from dotllm.index.callers import NO_SIGNATURE, error_of, not_a_bitmask
from dotllm.index.forced import forced_tokens
from dotllm.index.kernels import write_row
from dotllm.index.walkable import Walkable


def write_mask(masks: Int32, number: int, bitmask: Int32, row: int) -> None:
    """`Guide.write_mask` for row ``number`` of the table ``masks`` int32 [rows, words]; raises what that raises."""
    row = as_integer(row)
    try:
        code = write_row(masks, number, bitmask, row)
    except NO_SIGNATURE:
        raise not_a_bitmask(bitmask, masks.shape[1], "") from None
    if code < 0:
        raise error_of(code, (), [row], bitmask, masks.shape[1])


class Guide:
    """One sequence on an `Index`, which makes it (`Index.guide`): what may come next, and what has come.

    Not thread-safe (its Index is).
    """

    __slots__ = ("_history", "config", "index")

    is_stateful = False
    """Whether the masks depend on more than ``config`` (see `unique`)."""

    def __init__(self, index: Walkable) -> None:
        self.index = index
        self.config = INITIAL
        self._history: list[int] = []

    def __repr__(self) -> str:
        end = "finished" if self.is_finished else "may end" if self.can_finish else "may not end"
        return f"<{type(self).__name__} after {self.tokens_taken} tokens, {end}>"

    def advance(self, token_id: int) -> bool:
        """Take one token. False: it is not allowed, and nothing has changed."""
        after = self.index.advance(self.config, token_id)
        if after < 0:
            return False
        self.follow(after)
        return True

    def move(self, config: int) -> None:
        """Go to a configuration that `Index.advance` found, as one token. Raises IndexError if there is none of that
        number, TypeError if it is no integer."""
        self.follow(self.index.check_configuration(config))

    def follow(self, config: int) -> None:
        """As `move`, to a configuration that a step has just led to: it is not looked at."""
        self._history.append(self.config)
        self.config = config

    def accepts(self, token_ids: Sequence[int]) -> int:
        """How many of ``token_ids`` would be allowed, one after another. Nothing changes."""
        config = self.config
        for n, token in enumerate(token_ids):
            config = self.index.advance(config, token)
            if config < 0:
                return n
        return len(token_ids)

    def rollback(self, n: int) -> None:
        """Undo the last ``n`` tokens.

        Raises:
            ValueError: there were fewer.
        """
        if not 0 <= n <= len(self._history):
            raise ValueError(f"cannot undo {n} tokens of {len(self._history)}")
        if n:
            self.config = self._history[-n]
            del self._history[-n:]

    def fork(self) -> Guide:
        """An independent guide at the same configuration, with the same history."""
        other = Guide(self.index)
        other.config = self.config
        other._history = self._history.copy()
        return other

    def reset(self) -> None:
        """Back to the beginning."""
        self.config = INITIAL
        self._history.clear()

    @property
    def tokens_taken(self) -> int:
        """How many tokens have been taken (and not undone)."""
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
        """The number of the row of `Index.masks` that says which tokens are allowed next."""
        return self.index.mask_row(self.config)

    def write_mask(self, bitmask: Int32, row: int = 0, tokens_left: int | None = None) -> None:
        """Write the allowed tokens into ``bitmask[row]``; bitmask is int32 [rows, at least words]. Raises TypeError,
        ValueError or IndexError for anything else.

        ``tokens_left``: how many tokens may come yet, the next one and the end token included; None: no limit. Then
        only those tokens are allowed after which the text can be ended with the tokens that are left (see
        `tokens_to_finish`). Raises TooFewTokensError if there is none.
        """
        mask = None if tokens_left is None else self.mask_within(tokens_left)
        if mask is None:
            write_mask(self.index.masks, self.mask_row, bitmask, row)
        else:
            write_mask(mask[None], 0, bitmask, row)

    @property
    def tokens_to_finish(self) -> int:
        """How many tokens suffice to end the text, the end token included; 0 behind it.

        With so many left, or more, masks under a limit (`write_mask`) lead to an end in time, whichever of the tokens
        they allow are taken. Texts may exist that take fewer tokens (`automata.machine.plans` says which).
        """
        return self.index.tokens_to_finish(self.config)

    def mask_within(self, tokens_left: int) -> Int32 | None:
        """The mask, int32 [words], with ``tokens_left`` as `write_mask` has it; None: that of `mask_row`."""
        return self.index.mask_within(self.config, tokens_left)

    def allowed_tokens(self) -> Iterable[int]:
        """The ids of all tokens allowed next (for inspection; the mask is what to use)."""
        import numpy as np

        bits = np.unpackbits(self.index.masks[self.mask_row].view(np.uint8), bitorder="little")
        return [int(i) for i in np.nonzero(bits)[0]]

    @property
    def is_ambiguous(self) -> bool:
        """Whether there is more than one configuration (see `unique.branches`)."""
        return False

    def forced_bytes(self) -> bytes:
        """The bytes that must come next, whatever the model would like."""
        return self.index.forced_bytes(self.config)

    def forced_tokens(self) -> list[int]:
        """Tokens that spell `forced_bytes`, canonically, each of them allowed when it is reached.

        The last ones are left out if they could merge with what follows (`forced`).
        """
        # of several configurations one alone forces nothing
        return [] if self.is_ambiguous else forced_tokens(self.index, self.config)
