"""The tokens that spell forced text, remembered: what coalescence enters, and what its masks allow."""

from __future__ import annotations

import functools
import weakref

import numpy as np

from dotllm.index import Index
from dotllm.index.forced import MAX_FORCED, stable_tokens
from dotllm.index.index import FINISHED
from dotllm.index.token_space import TokenSpace

_MEMO = 1 << 16  # configurations of an index that are remembered


class ForcedTokens:
    """The forced tokens after each configuration, by index.

    Where text has been spelt from some configuration, those after it continue the same spelling (a rest spelt anew
    could differ), so that what is entered is what the masks allow.
    """

    def __init__(self) -> None:
        self._known: weakref.WeakKeyDictionary[Index, dict[int, tuple[int, ...]]] = weakref.WeakKeyDictionary()
        # (epoch, row) by token, for each table of rows: a process may have more than one vocabulary
        self._rows: weakref.WeakKeyDictionary[TokenSpace, dict[int, tuple[int, int]]] = weakref.WeakKeyDictionary()

    @staticmethod
    @functools.cache
    def shared() -> ForcedTokens:
        """The one of this process."""
        return ForcedTokens()

    def after(self, index: Index, config: int) -> tuple[int, ...]:
        """Tokens that spell what must come after ``config``; empty if nothing is forced. Raises BudgetExceeded."""
        known = self._known.get(index)
        if known is None:
            known = self._known[index] = {}
        tokens = known.get(config)
        if tokens is None:
            if len(known) >= _MEMO:
                known.clear()
            tokens = self._find(index, config, known)
        return tokens

    def _find(self, index: Index, config: int, known: dict[int, tuple[int, ...]]) -> tuple[int, ...]:
        text = b"" if config == FINISHED else index.forced_bytes(config, MAX_FORCED)
        spelt = stable_tokens(index.space, text, index.vocabulary.encode(text)) if text else []
        tokens: list[int] = []
        places = [config]
        for token in spelt:
            here = places[-1]
            earlier = known.get(here)
            if earlier:  # this far the text has been spelt before: it goes on as it did then
                tokens.extend(earlier)
                break
            after = index.advance(here, token)
            if after < 0:
                break
            tokens.append(token)
            places.append(after)
        for i, place in enumerate(places[:-1]):
            known.setdefault(place, tuple(tokens[i:]))
        return known.setdefault(config, tuple(tokens))

    def row(self, space: TokenSpace, token: int) -> int:
        """The mask row that allows ``token`` alone.

        No index knows this row, so its number holds for an epoch of the table of rows (see `TokenSpace`).
        """
        rows = self._rows.get(space)
        if rows is None:
            rows = self._rows[space] = {}
        epoch, row = rows.get(token, (-1, -1))
        if epoch != space.epoch:
            mask = np.zeros(space.words, np.int32)
            mask[token >> 5] = np.uint32(1 << (token & 31)).view(np.int32)
            row = space.intern(mask)
            rows[token] = (space.epoch, row)
        return row
