"""Engine core: the masks of a step as row numbers, found in one call for the batch; and which rows must be sent."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dotllm.automata.machine.layout import FINISHED
from dotllm.errors import SpecError
from dotllm.index import Guide, mask_rows
from dotllm.index.batch import Failures
from dotllm.index.draft_rows import mask_rows_along
from dotllm.index.token_space import END_ROW, TokenSpace
from dotllm.vllm_plugin.engine_core.request_grammar import RequestGrammar
from dotllm.vllm_plugin.gpu_masks.forbidden_rows import ForbiddenRows
from dotllm.vllm_plugin.gpu_masks.message import NO_MASK, TABLE_SLOTS, Int32, MaskRows

MAX_GUIDES_ONE_BY_ONE = 3  # guides, whose rows are found sooner one by one
_NO_SLOTS: Int32 = np.zeros(0, np.int32)


class RowSender:
    """Knows which rows the workers have; one for the lifetime of an engine core and its workers.

    Row r has slot r while r < TABLE_SLOTS. Rows beyond are put behind the table for one step only, and sent whenever
    they are needed.
    """

    def __init__(self, space: TokenSpace) -> None:
        self.space = space
        self.forbidden = ForbiddenRows(space)
        self.sender = secrets.randbits(62)
        # The version of each row that the workers have: row numbers are used again (see `TokenSpace`).
        self._sent = np.zeros(TABLE_SLOTS, np.int64)

    def fresh(self, rows: Int32) -> tuple[Int32, Int32]:
        """(slots, rows) of those ``rows`` (all below TABLE_SLOTS) that the workers do not have; they are sent now."""
        versions = self.space.versions
        rows = rows[self._sent[rows] != versions[rows]]
        if len(rows):
            rows = np.unique(rows)
            self._sent[rows] = versions[rows]
        return rows, self.space.rows[rows]

    def _are_there(self, rows: Int32) -> bool:
        """Whether the workers have all of ``rows`` in their table; some may be NO_MASK."""
        if len(rows) <= MAX_GUIDES_ONE_BY_ONE:
            sent, versions = self._sent, self.space.versions
            return all(r < 0 or (r < TABLE_SLOTS and sent[r] == versions[r]) for r in rows.tolist())
        if rows.min() < 0:
            rows = rows[rows >= 0]
        if len(rows) and rows.max() >= TABLE_SLOTS:
            return False
        return bool((self._sent[rows] == self.space.versions[rows]).all())

    def message(self, counts: Int32, rows: Int32) -> MaskRows:
        """The message for ``rows`` (int32 [positions], row numbers or NO_MASK)."""
        if self._are_there(rows):  # which they nearly always are
            return MaskRows(self.sender, counts, rows, _NO_SLOTS, self.space.rows[:0])
        slots = rows
        new_slots, new_rows = self.fresh(rows[(rows >= 0) & (rows < TABLE_SLOTS)])
        beyond = rows >= TABLE_SLOTS
        if beyond.any():
            passing, place = np.unique(rows[beyond], return_inverse=True)
            slots = rows.copy()
            slots[beyond] = TABLE_SLOTS + place
            new_slots = np.concatenate([new_slots, TABLE_SLOTS + np.arange(len(passing), dtype=np.int32)])
            new_rows = np.concatenate([new_rows, self.space.rows[passing]])
        return MaskRows(self.sender, counts, slots, new_slots, new_rows)


def rows_of_step(
    grammars: Sequence[RequestGrammar], drafts: Mapping[int, Sequence[int]] | None = None
) -> tuple[Int32, Int32]:
    """(counts, rows) for the grammars of a step; drafts: by position in ``grammars``.

    A text that has ended has no mask (with ``ignore_eos`` generation goes on freely), as vLLM has it. A grammar that
    fails ends its request, and may only produce the end until then.
    """
    n = len(grammars)
    guides = [g.guide for g in grammars]
    if drafts:
        lists = [drafts.get(i, ()) for i in range(n)]
        counts = np.fromiter((1 + len(d) for d in lists), np.int32, n)
        rows, configs, failures = mask_rows_along(guides, lists)
    else:
        counts = np.ones(n, np.int32)
        rows, failures = masks_of(guides)
        configs = None
    for i, error in failures.items():
        grammars[i].fail("masks", error)
    forced = set()
    if not drafts:  # (where there are drafts, no text has a spelling of ours)
        for i, grammar in enumerate(grammars):
            only = grammar.only_row() if grammar.spells_forced_text else -1
            if only >= 0:
                rows[i] = only
                forced.add(i)
    special = [
        i
        for i, (grammar, guide) in enumerate(zip(grammars, guides, strict=True))
        if grammar.own_masks or grammar.failed or grammar.stopped or guide.config == FINISHED or guide.remembers
        if i not in forced
    ]
    if special:
        starts = np.concatenate([[0], np.cumsum(counts)]).tolist()
        for i in special:
            grammar = grammars[i]
            for at in range(starts[i], starts[i + 1]):
                if grammar.failed:
                    rows[at] = END_ROW
                elif grammar.is_terminated():
                    rows[at] = NO_MASK
                elif rows[at] >= 0:
                    config = grammar.guide.config if configs is None else int(configs[at])
                    rows[at] = grammar.row_with_stops(int(rows[at]), config)
    return counts, rows


def masks_of(guides: Sequence[Guide]) -> tuple[Int32, Failures]:
    """`mask_rows`, as it is soonest."""
    return mask_rows(guides) if len(guides) > MAX_GUIDES_ONE_BY_ONE else _one_by_one(guides)


def _one_by_one(guides: Sequence[Guide]) -> tuple[Int32, Failures]:
    """`mask_rows`."""
    rows, failures = np.empty(len(guides), np.int32), {}
    for i, guide in enumerate(guides):
        try:
            rows[i] = guide.mask_row
        except SpecError as error:
            rows[i], failures[i] = NO_MASK, error
    return rows, failures


def are_ours(grammars: Iterable[Any]) -> bool:
    """Whether vLLM's grammar objects are all dotllm's."""
    return set(map(type, grammars)) == {RequestGrammar}
