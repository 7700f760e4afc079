"""Remembers the tokens that spell forced text: coalescence enters them, and its masks allow them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, ref

import numpy as np

if TYPE_CHECKING:
    from dotllm.index import Guide, Walkable

_MEMO = 1 << 16  # how many configurations of an index are remembered
_spellings: WeakKeyDictionary[Walkable, ForcedSpelling] = WeakKeyDictionary()


class ForcedSpelling:
    """The forced tokens after each configuration of one index, which is passed in (nothing here keeps it alive).

    Once text has been spelt from a configuration, later configurations continue that spelling (a new spelling of the
    rest could differ). So the text that is entered is the text that the masks allow.
    """

    def __init__(self, index: Walkable) -> None:
        self.index = ref(index)
        self._tokens: dict[int, tuple[int, ...]] = {}
        self._next: dict[int, int] = {}
        """the configuration after the first of those tokens"""
        self._rows: dict[int, int] = {}
        self._epoch = -1

    @staticmethod
    def of(index: Walkable) -> ForcedSpelling:
        """The spelling of ``index`` in this process."""
        known = _spellings.get(index)
        return _spellings.setdefault(index, ForcedSpelling(index)) if known is None else known

    def after(self, index: Walkable, config: int) -> tuple[int, ...]:
        """Tokens that spell what must come after ``config``; empty if nothing is forced. Raises BudgetExceededError."""
        tokens = self._tokens.get(config)
        return self._find(index, config) if tokens is None else tokens

    def row(self, index: Walkable, config: int) -> int:
        """The mask row that allows only the first token `after` ``config``; -1 if nothing is forced. Raises
        BudgetExceededError."""
        row = self.known_rows(index.space.epoch).get(config)
        if row is None:
            row = -1
            for token in self.after(index, config)[:1]:
                mask = np.zeros(index.space.words, np.int32)
                mask.view(np.uint32)[token >> 5] = 1 << (token & 31)
                row = index.space.intern(mask)
            self._rows[config] = row
        return row

    def known_rows(self, epoch: int) -> dict[int, int]:
        """The rows that `row` has found, by configuration. No index knows these rows, so their numbers hold for one
        epoch of the row table (see `TokenSpace`)."""
        if epoch != self._epoch:
            self._rows.clear()
            self._epoch = epoch
        return self._rows

    def follow(self, guide: Guide, tokens: Iterable[int]) -> bool:
        """Let ``guide`` take ``tokens``, the first that come `after` its configuration; False if one is not allowed."""
        for token in tokens:
            known = self._next.get(guide.config) if guide.index is self.index() else None
            if known is not None:
                guide.follow(known)
            elif not guide.advance(token):  # `_next` has forgotten it meanwhile
                return False
        return True

    def _find(self, index: Walkable, config: int) -> tuple[int, ...]:
        from dotllm.index.guide import forced_tokens

        known = self._tokens
        if len(known) >= _MEMO:
            for remembered in (known, self._next, self._rows):
                remembered.clear()
        tokens: list[int] = []
        configs = [config]
        for token in forced_tokens(index, config):
            earlier = known.get(configs[-1])
            if earlier:  # the text from here on has been spelt before: that spelling is kept
                tokens.extend(earlier)
                break
            after = index.advance(configs[-1], token)
            if after < 0:
                break
            tokens.append(token)
            configs.append(after)
        for i, (passed, after) in enumerate(pairwise(configs)):
            known.setdefault(passed, tuple(tokens[i:]))
            self._next.setdefault(passed, after)
        return known.setdefault(config, tuple(tokens))
