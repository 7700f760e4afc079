"""Engine core: one table that the GPU walks: where it lies there, who stands on it, what must be sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dotllm.arrays import Int64
from dotllm.index import Index, mask_rows
from dotllm.index.gpu_tables import FLAGS, NEXT, UNKNOWN_ROW, ByteTable
from dotllm.vllm_plugin.gpu_masks.message import Int32
from dotllm.vllm_plugin.jump_forward.forced_tokens import ForcedTokens

# flags of a table's row that only this side reads: whether `Entry.spelling` was asked, and said more than one token
LOOKED_AT, FORCED = 8, 16
REMEMBERED = 1 << 14  # forced texts, and their ends


class Entry:
    """A table on the GPU: of one index, for requests with the same further stop tokens (they are part of its masks) and
    the same say about the spelling of forced text."""

    def __init__(self, index: Index, stops: tuple[int, ...] = (), spells_forced_text: bool = False) -> None:
        self.index = index
        self.forced = ForcedTokens.shared() if spells_forced_text else None
        self.own_rows = bool(stops) or spells_forced_text
        """whether masks may differ from the index's"""
        self.table = ByteTable(index)
        self.seen: tuple[Any, Any, Any] = (index.machine, self.table.rows, self.table.since)
        """what slots point at: these move when they grow, and the old ones must outlive the pointing"""
        self.link: Int64 | None = None
        """`gpu_tables.link_of` this, once it was asked for"""
        self._spelling: dict[int, tuple[int, ...]] = {}
        self._after: dict[tuple[int, int], int] = {}
        self.slots: set[int] = set()
        self.base = 0
        self.capacity = 0  # rows there is room for at ``base``; 0: not on the heap
        self.sent = 0  # rows that are there; the device takes those behind for unknown
        self.changed: set[int] = set()  # rows to send; guarded by the index's lock, like the table
        self.found_ahead: set[int] = set()  # masks that `prefetch` has found
        self.gone = False  # nobody will come to it any more
        self.uses = 0  # requests that have begun with it
        self.filled = False  # the places near the start have been visited ahead (see `prefetch`)

    def is_seen(self) -> bool:
        """Whether nothing of what slots point at has moved since it was looked up (``seen``)."""
        return self.seen[0] is self.index.machine and self.seen[1] is self.table.rows

    def mask_rows(self, configs: Sequence[int], stop: Int64 | None = None) -> list[int]:
        """The masks of ``configs``, for requests without stop tokens of their own; negative: not found. stop: see
        `index.mask_rows`."""
        if self.forced is not None:  # which is spelt when somebody comes by: from where it begins, not from its middle
            one_way = np.count_nonzero(self.table.rows[configs, NEXT:], axis=1) == 1
            rows = np.full(len(configs), UNKNOWN_ROW, np.int32)
            rows[~one_way] = self._index_rows(np.asarray(configs, np.int32)[~one_way], stop)
            return [int(row) for row in rows]
        return [int(row) for row in self._index_rows(configs, stop)]

    def spelling(self, config: int) -> tuple[int, ...]:
        """The tokens that are forced after ``config`` (see `ForcedTokens`); remembered in the table's flags.

        Raises BudgetExceeded.
        """
        tokens = self._spelling.get(config)
        if tokens is None:
            assert self.forced is not None
            with self.index.lock:
                tokens = self.forced.after(self.index, config)
                rows = self.table.rows
                if config < len(rows):
                    rows[config, FLAGS] |= LOOKED_AT | (FORCED if len(tokens) > 1 else 0)
            if len(tokens) > 1:  # else its flag says so from now on
                if len(self._spelling) >= REMEMBERED:
                    self._spelling.clear()
                self._spelling[config] = tokens
        return tokens

    def after(self, config: int, forced: Sequence[int]) -> int:
        """The configuration after ``forced``, the first tokens of `spelling` (so their number says which)."""
        found = self._after.get((config, len(forced)))
        if found is None:
            found = config
            for token in forced:
                found = self.index.advance(found, token)
                if found < 0:
                    raise AssertionError(f"token {token} was forced and is not allowed")
            if len(self._after) >= REMEMBERED:
                self._after.clear()
            self._after[config, len(forced)] = found
        return found

    def _index_rows(self, configs: Sequence[int] | Int32, stop: Int64 | None) -> Int32:
        guides = []
        for config in configs:
            guide = self.index.guide()
            guide.config = int(config)
            guides.append(guide)
        return mask_rows(guides, threads=1, stop=stop)[0]
