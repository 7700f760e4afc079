"""Which character sets of a new automaton are worth tables of the vocabulary (`vocabulary.charset_table`).

A table costs time once: a walk over all tokens, and a sort of those that leave the set. That is 1 ms for ``[a-z]``, and
12 ms for a set that lacks a few letters, because half of all tokens leave it. A table saves time at every mask in a
loop over the set, which would otherwise walk the tokens that stay inside: up to 3 ms. A node with a loop has two or
three such masks. A counted loop (``{1,63}``) has more, because every position near its limit has a mask of its own.

`worth_tables` compares the two, in milliseconds:

    cost  = 1 (2.5 for a set of nearly all characters) + tokens that leave the set / 6,000
    saved = nodes with a loop over the set × 2 masks (20 if counted) × tokens that stay inside / 50,000

A set gets a table if it saves at least its cost. A request waits for all tables of its automaton, so they may cost
`MOST_MS` together: sets in counted loops come first, then those with the largest gain.

A set that is no gain for one automaton may be one for many. So ``saved`` of a set without a table is kept and added to
that of the next automaton with this set. So the time for tables and for masks without them is at most about twice what
it would be if all automata were known beforehand (as in the ski-rental problem).
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
"""Sets without tables, and the milliseconds that tables would have saved so far."""


def worth_tables(
    new: Sequence[tuple[int, CharSet, int]],
    counted: Callable[[], Collection[int]],
    tokens_at: Callable[[CharSet], tuple[int, int]],
    passed_over: PassedOver,
) -> set[int]:
    """The numbers of the sets out of ``new`` (number, set, nodes that loop over it) that get a table. Updates
    ``passed_over`` for the others.

    ``counted`` gives the numbers of sets in counted loops; ``tokens_at`` estimates how many tokens stay in a set and
    how many leave it.
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
