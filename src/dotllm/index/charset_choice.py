"""Which character sets of a new automaton are worth tables of the vocabulary (`vocabulary.charset_table`).

To make a table, all tokens are walked, and those that leave the set are sorted: 1 ms for ``[a-z]``, 12 ms for a set
that lacks a few letters, because half of all tokens leave it. Without one, a mask in a loop over the set walks the
tokens that stay inside, which may be none or nearly all: up to 3 ms, but for two or three states only, unless the loop
is counted (``{1,63}``): near its limit every position has a mask of its own. So what is saved depends on the tokens
inside, on how many nodes loop over the set, and on how; and since a request waits for all tables of its automaton,
they may take so long together and no longer.

What is not worth a table for one automaton may be for many: of the sets that are passed over it is added up what masks
are thought to have cost for want of their tables, and a set whose sum has reached the price of its table gets one. So
nothing costs much more than twice what it would if all automata were known beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from dotllm.charset import MAX_CODE_POINT, CharSet
from dotllm.grammar.grammar import Grammar
from dotllm.grammar.kinds import ExpressionKind
from dotllm.grammar.transform import children_of

MOST_MS = 8.0
"""All new tables of an automaton together, but that one for a counted loop is always made if it pays."""

_NARROW_MS, _WIDE_MS, _EXITS_PER_MS = 1.0, 2.5, 6_000  # to make one
_INSIDE_PER_MS = 50_000  # to compute a mask without one
_MASKS, _COUNTED_MASKS = 2, 20  # at a node
_WIDE_SIZE = MAX_CODE_POINT - 0x1000
_MOST_PASSED_OVER = 4096  # sets of which the sum is kept: whoever sends specifications chooses the sets

PassedOver = dict[CharSet, float]
"""Sets without tables, and how many milliseconds masks are thought to have cost for want of them."""


def worth_tables(
    new: Sequence[tuple[int, CharSet, int]],
    counted: Callable[[], Collection[int]],
    tokens_at: Callable[[CharSet], tuple[int, int]],
    passed_over: PassedOver,
) -> set[int]:
    """Those of ``new`` (number, set, nodes that loop over it) that pay. Updates ``passed_over`` for the others.

    ``counted``: the numbers of those that counted loops are over; ``tokens_at``: about how many tokens stay inside a
    set, and how many leave it.
    """
    if not new:
        return set()
    in_counted = counted()
    would_save: PassedOver = {}
    wanted: list[tuple[bool, float, float, int]] = []
    for number, charset, nodes in new:
        inside, exits = tokens_at(charset)
        cost = (_WIDE_MS if charset.size > _WIDE_SIZE else _NARROW_MS) + exits / _EXITS_PER_MS
        is_counted = number in in_counted
        saved = nodes * (_COUNTED_MASKS if is_counted else _MASKS) * inside / _INSIDE_PER_MS
        saved += passed_over.get(charset, 0.0)
        would_save[charset] = saved
        if cost <= saved:
            wanted.append((not is_counted, cost - saved, cost, number))
    found: set[int] = set()
    spent = 0.0
    for not_counted, _, cost, number in sorted(wanted):
        if spent + cost <= MOST_MS or not (found or not_counted):
            found.add(number)
            spent += cost
    if len(passed_over) > _MOST_PASSED_OVER:
        passed_over.clear()
    for number, charset, _ in new:
        if number not in found:
            passed_over[charset] = would_save[charset]
        else:
            passed_over.pop(charset, None)
    return found


def counted_charsets(grammar: Grammar) -> set[int]:
    """The character sets (their numbers in ``grammar.charsets``) that stand in counted repetitions and networks."""
    found: set[int] = set()
    pending: list[int] = []
    kind, low, high = (np.array(column, np.int32) for column in (grammar.kind, grammar.b, grammar.c))
    repeats = (kind == ExpressionKind.REPEAT) & (high != 1) & ((high > 0) | (low > 1))
    for node in np.flatnonzero(repeats | ((kind == ExpressionKind.NETWORK) & (high > 0))).tolist():
        pending.extend(children_of(grammar, node))
    seen: set[int] = set()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if grammar.kind[node] == ExpressionKind.CHARS:
            found.add(grammar.a[node])
        elif grammar.kind[node] != ExpressionKind.CALL:
            pending.extend(children_of(grammar, node))
    return found
