"""The engine core's side: finds the masks of a step as row numbers, in one call for the batch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np

from dotllm.arrays import Int32
from dotllm.automata.machine.layout import FINISHED
from dotllm.device_masks.message import MaskRows, positions
from dotllm.device_masks.sender import StepMasks
from dotllm.index import NO_LIMIT, mask_rows
from dotllm.index.draft_rows import NO_MASK, mask_rows_along
from dotllm.index.limits import tight_guides
from dotllm.index.mask_table import END_ROW
from dotllm.vllm_plugin import settings
from dotllm.vllm_plugin.enforce.request_grammar import RequestGrammar
from dotllm.vllm_plugin.speed.request_state import reasoning_end, tokens_left
from dotllm.vllm_plugin.vllm_types import Request, StructuredOutputManager
from dotllm.vllm_plugin.workarounds.implicit_ends import masked_ends

Drafts = Sequence[Sequence[int]]
"""The draft tokens of each request, padded with -1; empty where nothing is drafted."""
_MASKED = "_dotllm_masked_in_reasoning"  # attribute of a ``StructuredOutputRequest``


def rows_of_step(
    grammars: Sequence[RequestGrammar], drafts: Drafts = (), lefts: Sequence[int] = ()
) -> tuple[Int32, Int32]:
    """(counts, rows) for the grammars of a step. ``lefts``: how many tokens each may still generate, including the
    drafts; needed if any grammar has a limit.

    A text that has ended has no mask (with ``ignore_eos`` generation continues without one). A grammar that fails ends
    its request, and allows only the end until then.
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
    tight: list[int] = []
    if RequestGrammar.limited and lefts:
        limits = [NO_LIMIT if g.limit is None else left for g, left in zip(grammars, lefts, strict=True)]
        tight = tight_guides(guides, limits, configs, counts)
    others = [i for i, g in enumerate(grammars) if not g.is_plain or g.guide.config == FINISHED]
    ends = np.cumsum(counts).tolist() if others else []
    for i in others:
        own, left = slice(ends[i] - int(counts[i]), ends[i]), lefts[i] if lefts else 0
        own_configs = np.array([guides[i].config]) if configs is None else configs[own]
        _change_rows(grammars[i], rows[own], own_configs, drafts[i] if drafts else None, left, is_tight=i in tight)
    return counts, rows


def _change_rows(
    grammar: RequestGrammar, rows: Int32, configs: Int32, drafts: Sequence[int] | None, left: int, *, is_tight: bool
) -> None:
    """Change ``rows``, those of ``grammar``, where its index does not decide alone: a text has ended, there are stop
    tokens, text is forced, or a limit is near. ``configs``: before each row. ``drafts``: None if the step has none."""
    guide, limit, spelling = grammar.guide, grammar.limit, grammar.spelling
    if limit is not None and not is_tight:
        limit.note(left, -1)
    if not (grammar.stops or is_tight or grammar.failed or guide.config == FINISHED or guide.is_stateful):
        if drafts is not None or spelling is None:  # (with drafts, no text has a spelling of ours)
            return
        known = spelling.known_rows(guide.index.space.epoch).get(guide.config)
        if known is not None:
            rows[0] = known if known >= 0 else rows[0]
            return
    only = grammar.only_row() if drafts is None else -1
    if is_tight and not grammar.failed and not grammar.is_terminated():
        changed = limit.change_rows(grammar, drafts or (), left, rows, configs)
        only = only if changed < 0 else -1
    for at in range(len(rows)):
        if grammar.failed:
            rows[at] = END_ROW
        elif grammar.is_terminated():
            rows[at] = NO_MASK
        elif only >= 0:
            rows[at] = only
        elif rows[at] >= 0:
            rows[at] = grammar.row_with_stops(int(rows[at]), int(configs[at]))


def message_of(
    manager: StructuredOutputManager, sender: StepMasks, asked: Sequence[Request], drafts: Drafts
) -> MaskRows | Int32 | None:
    """The message for the requests that a step constrains; None if a grammar is another backend's."""
    result = rows_asked(manager, sender, asked, drafts)
    return None if result is None else sender.message(*result)


def rows_asked(
    manager: StructuredOutputManager, sender: StepMasks, asked: Sequence[Request], drafts: Drafts = ()
) -> tuple[Int32, Int32] | None:
    """`rows_of_step` for the requests that a step constrains; None if a grammar is another backend's.

    With a reasoning parser, a request is unconstrained until its reasoning ends, which may happen within its drafts.
    """
    lefts = [0] * len(asked)
    if RequestGrammar.limited:
        longest = manager.vllm_config.model_config.max_model_len
        lefts = [tokens_left(request, longest) for request in asked]
    if manager.reasoner_cls is None:
        grammars = _grammars(asked)
        return None if grammars is None else rows_of_step(grammars, drafts, lefts)
    from vllm.v1.structured_output.utils import strip_speculative_padding

    counts, free, behind = [], [], []
    at = 0
    for request, tokens, left in zip(asked, drafts or repeat(()), lefts, strict=False):
        valid = strip_speculative_padding(list(tokens))
        # the first draft that the grammar takes, and the first position that it constrains
        begins, holds = manager._get_constraint_bounds(request, valid)
        if holds:
            free.append((at, _reasoning_rows(manager, sender, request, valid[: holds - 1], left)))
        if holds <= len(valid):
            behind.append((request, tokens[begins:], left - begins, at + begins))
        counts.append(1 + len(tokens))
        at += counts[-1]
    rows = np.full(at, NO_MASK, np.int32)
    if behind:
        constrained, own_drafts, own_lefts, first = zip(*behind, strict=True)
        grammars = _grammars(constrained)
        if grammars is None:
            return None
        own_counts, own = rows_of_step(grammars, own_drafts if drafts else (), own_lefts)
        rows[positions(own_counts, first)] = own
    for start, own_rows in free:
        rows[start : start + len(own_rows)] = own_rows
    return np.array(counts, np.int32), rows


def _reasoning_rows(
    manager: StructuredOutputManager, sender: StepMasks, request: Request, drafts: Sequence[int], left: int
) -> list[int]:
    """The rows of a request that reasons, before each of ``drafts`` and after the last."""
    masked = _masked_in_reasoning(manager, request)
    limit: Any = getattr(getattr(request.structured_output_request, "_grammar", None), "limit", None)
    if limit is None:  # (a grammar that still compiles has none)
        return [sender.row(masked, allowed=False)] * (1 + len(drafts))
    result: list[int] = limit.reasoning_rows(sender, request, drafts, left, masked)
    return result


def _masked_in_reasoning(manager: StructuredOutputManager, request: Request) -> tuple[int, ...]:
    """The tokens that ``request`` must not generate while it reasons: any that would end its whole answer, or begin an
    answer that its constraint forbids. Found once: the grammar does not advance before the reasoning ends."""
    structured, parameters = request.structured_output_request, request.sampling_params
    known = getattr(structured, _MASKED, None)
    if known is None or known[0] is not parameters:  # (a session that goes on may have other stop tokens)
        masked = masked_ends(manager, request)
        if settings.value(settings.END_IN_REASONING) == "forbid":
            masked += tuple(sorted(parameters.all_stop_token_ids.difference(reasoning_end(manager, request))))
        known = parameters, masked
        setattr(structured, _MASKED, known)
    return known[1]


def _grammars(asked: Sequence[Request]) -> list[RequestGrammar] | None:
    """The grammars of ``asked``, which begin with their first mask; None if vLLM is to find the masks itself."""
    grammars = [
        structured._grammar for request in asked if (structured := request.structured_output_request) is not None
    ]
    if set(map(type, grammars)) != {RequestGrammar}:  # an ended compile that nothing has read yet, or other backends
        grammars = [
            structured.grammar for request in asked if (structured := request.structured_output_request) is not None
        ]
        if set(map(type, grammars)) != {RequestGrammar}:
            return None
    begun = [grammar.has_begun or grammar.begin() for grammar in grammars]
    return grammars if all(begun) else None
