"""Engine core: the masks of a step as row numbers, found in one call for the batch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

import numpy as np

from dotllm.arrays import Int32
from dotllm.automata.machine.layout import FINISHED
from dotllm.device_masks.message import MaskRows, positions
from dotllm.device_masks.sender import StepMasks
from dotllm.index import mask_rows
from dotllm.index.draft_rows import NO_MASK, mask_rows_along
from dotllm.index.mask_table import END_ROW
from dotllm.vllm_plugin.engine_core.request_grammar import RequestGrammar
from dotllm.vllm_plugin.vllm_types import Request, StructuredOutputManager
from dotllm.vllm_plugin.workarounds.implicit_ends import masked_ends

Drafts = Sequence[Sequence[int]]
"""By request its draft tokens, padded with -1; none where nothing is drafted."""


def rows_of_step(grammars: Sequence[RequestGrammar], drafts: Drafts = ()) -> tuple[Int32, Int32]:
    """(counts, rows) for the grammars of a step.

    A text that has ended has no mask (with ``ignore_eos`` generation goes on freely), as vLLM has it. A grammar that
    fails ends its request, and may only produce the end until then.
    """
    guides = [g.guide for g in grammars]
    counts, configs = np.ones(len(grammars), np.int32), None
    if drafts:
        counts += np.fromiter(map(len, drafts), np.int32, len(drafts))
        rows, configs, failures = mask_rows_along(guides, drafts)
        rows[configs == FINISHED] = NO_MASK
    else:
        rows, failures = mask_rows(guides)
    for i, error in failures.items():
        grammars[i].fail("masks", error)
    special = []
    epoch = guides[0].index.space.epoch if guides else 0
    for i, (grammar, guide) in enumerate(zip(grammars, guides, strict=True)):
        if grammar.stops or grammar.failed or guide.config == FINISHED or guide.is_stateful:
            special.append(i)
        elif not drafts and grammar.spelling is not None:  # (where there are drafts, no text has a spelling of ours)
            only = grammar.spelling.known_rows(epoch).get(guide.config)
            if only is None:
                special.append(i)
            elif only >= 0:
                rows[i] = only
    if special:
        starts = np.concatenate([[0], np.cumsum(counts)]).tolist()
        for i in special:
            grammar = grammars[i]
            only = -1 if drafts else grammar.only_row()
            for at in range(starts[i], starts[i + 1]):
                if grammar.failed:
                    rows[at] = END_ROW
                elif grammar.is_terminated():
                    rows[at] = NO_MASK
                elif only >= 0:
                    rows[at] = only
                elif rows[at] >= 0:
                    config = grammar.guide.config if configs is None else int(configs[at])
                    rows[at] = grammar.row_with_stops(int(rows[at]), config)
    return counts, rows


def message_of(
    manager: StructuredOutputManager, sender: StepMasks, asked: Sequence[Request], drafts: Drafts
) -> MaskRows | Int32 | None:
    """The message for the requests that a step constrains; None if a grammar is another backend's.

    Where a reasoning parser decides, a request is free until its reasoning ends, which it may do within its drafts.
    """
    if manager.reasoner_cls is None:
        grammars = _grammars(asked)
        return None if grammars is None else sender.message(*rows_of_step(grammars, drafts))
    from vllm.v1.structured_output.utils import strip_speculative_padding

    counts, free, behind = [], [], []
    at = 0
    for request, tokens in zip(asked, drafts or repeat(()), strict=False):
        valid = strip_speculative_padding(list(tokens))
        # the first draft that the grammar takes, and the first position that it constrains
        begins, holds = manager._get_constraint_bounds(request, valid)
        if holds:
            free.append((at, at + holds, sender.all_but(masked_ends(manager, request))))
        if holds <= len(valid):
            behind.append((request, tokens[begins:], at + begins))
        counts.append(1 + len(tokens))
        at += counts[-1]
    rows = np.full(at, NO_MASK, np.int32)
    if behind:
        constrained, left, first = zip(*behind, strict=True)
        grammars = _grammars(constrained)
        if grammars is None:
            return None
        own_counts, own = rows_of_step(grammars, left if drafts else ())
        rows[positions(own_counts, first)] = own
    for start, end, row in free:
        rows[start:end] = row
    return sender.message(np.array(counts, np.int32), rows)


def _grammars(asked: Sequence[Request]) -> list[RequestGrammar] | None:
    structured = [request.structured_output_request for request in asked]
    grammars = [one._grammar for one in structured if one is not None]
    if set(map(type, grammars)) != {RequestGrammar}:  # a compile that nobody has looked at since it ended, or others'
        grammars = [one.grammar for one in structured if one is not None]
    return grammars if set(map(type, grammars)) == {RequestGrammar} else None
