"""The tokens to remove from a mask of the machine: those that repeat an item or a key, or leave only repetitions
possible.

Such a token spells a part of an earlier item: a walk along this item visits the few nodes of the token trie that spell
it. Or the token completes the present item and begins the next, so it holds a comma. For each configuration it is found
once which tokens with a comma depend on the earlier items: nearly always none.
"""

from __future__ import annotations

import numpy as np

from dotllm.arrays import Int32
from dotllm.index.unique.branches import Branch, Branches, step, walk
from dotllm.index.unique.completions import any_can_complete, count_lower_bound, count_step, emptied, shape_of
from dotllm.index.unique.conflicts import StringConflicts, cannot_conflict, earlier_values
from dotllm.index.unique.paths import Paths
from dotllm.index.unique.scanner import AFTER, COLON, KEY, NAME, NUMBER, STRING, UNIQUE, VALUE, WHITESPACE, State
from dotllm.index.unique.tokens import ROOT, Tokens, listed

_STRUCTURE = frozenset(b'"{}[],:-0123456789tfn')
_CLOSES = frozenset(b"]}")
_COMPLETING = (b",", b"]", b"}")
_MOST_ADDED = 7  # items and members that a token completes without a look
_KEPT = 1 << 16  # configurations
_KEPT_CONFLICTS = 256


def mask_of(paths: Paths, tokens: Tokens, branch: Branch, row: Int32) -> Int32 | None:
    """``row`` int32 [words], the machine's mask of a branch, without the tokens that lead nowhere; None: as it is."""
    bad = _stuck_behind_item(paths, tokens, branch, row)
    state = branch.state
    if isinstance(state, State):
        conflicts = conflicts_of(paths, state)
        if not (conflicts.cannot_conflict(state.text) if conflicts.is_inside(state) else cannot_conflict(state)):
            bad += _repeating_tokens(paths, tokens, branch, row, conflicts)
    if not bad:
        return None
    mask = row.copy()
    where = np.array(bad, np.int64)
    bits = np.left_shift(np.uint32(1), (where & 31).astype(np.uint32)).view(np.int32)
    np.bitwise_and.at(mask, where >> 5, ~bits)
    return mask


def _stuck_behind_item(paths: Paths, tokens: Tokens, branch: Branch, row: Int32) -> list[int]:
    """The tokens that complete the present item and lead nowhere: what follows in them can only repeat an item."""
    config, state = branch
    completions = count_step((earlier_values(state) if isinstance(state, State) else 0) + _MOST_ADDED + 1)
    key = (config, completions, *(shape_of(state) if isinstance(state, State) else ()))
    unsafe = paths.unsafe.get(key)
    if unsafe is None:
        if len(paths.unsafe) >= _KEPT:
            paths.unsafe.clear()
        if not isinstance(state, State):
            among, free = tokens.opening, branch
        else:
            among = tokens.leaving if state.mode in (STRING, NAME) else tokens.going_on
            free = Branch(config, emptied(state))
        unsafe = tuple(
            token for token in listed(row & among) if not _is_safe(paths, free, tokens.bytes_of(token), completions)
        )
        paths.unsafe[key] = unsafe
    return [token for token in unsafe if not _can_go_on(paths, branch, tokens.bytes_of(token))]


def _is_safe(paths: Paths, branch: Branch, data: bytes, completions: int) -> bool:
    """Whether a token that leaves the present item completes no other one, and at least so many ``completions`` are
    possible behind it.

    Such a token needs no look at the earlier items, if the present one equals none of them and they are fewer.
    """
    if sum(map(data.count, _COMPLETING)) > _MOST_ADDED:
        return False
    branches: Branches = (branch,)
    state = branch.state
    limit = int(not isinstance(state, State) or state.mode != AFTER or state.top.kind != UNIQUE)
    completed = 0
    keys_left = int(
        isinstance(state, State) and state.mode in (KEY, NAME)
    )  # `_repeating_tokens` looks at the present one
    for byte in _without_trailing_blanks(paths, branch, data):
        before = branches[0].state
        branches = step(paths, branches, byte)
        if len(branches) != 1:
            return False
        after = branches[0].state
        if isinstance(after, State) and after.top.keys is not None and byte == 0x22 and after.mode == COLON:
            keys_left -= 1
            if keys_left < 0:
                return False
        if isinstance(before, State) and before.mode == NUMBER and before.top.kind == UNIQUE:
            completed += not isinstance(after, State) or after.mode != NUMBER
            if byte not in _CLOSES:
                continue
        if isinstance(after, State) and after.mode == AFTER and after.top.kind == UNIQUE and byte not in WHITESPACE:
            completed += 1
    return completed <= limit and count_lower_bound(paths, branches[0], completions - 1) >= completions


def _can_go_on(paths: Paths, branch: Branch, data: bytes) -> bool:
    branches = walk(paths, (branch,), _without_trailing_blanks(paths, branch, data))
    return any_can_complete(paths, branches)


def _without_trailing_blanks(paths: Paths, branch: Branch, data: bytes) -> bytes:
    """A token without white space at its end that stands between tokens of JSON: that leads to ever new configurations
    and changes nothing."""
    shorter = data.rstrip(b" \t\n\r")
    if len(shorter) < len(data):
        ends = walk(paths, (branch,), shorter)
        if all(isinstance(end.state, State) and end.state.mode in (VALUE, AFTER, KEY, COLON) for end in ends):
            return shorter
    return data


def conflicts_of(paths: Paths, state: State) -> StringConflicts:
    """The conflicts of the string that is open or may begin. They stay the same up to its last byte."""
    names = state.mode in (KEY, NAME)
    found = paths.string_conflicts.get(id(state.top))
    if found is None or found.top is not state.top or found.names != names:
        if len(paths.string_conflicts) >= _KEPT_CONFLICTS:
            paths.string_conflicts.clear()
        found = paths.string_conflicts[id(state.top)] = StringConflicts(state.top, names=names)
    return found


def _repeating_tokens(paths: Paths, tokens: Tokens, start: Branch, row: Int32, conflicts: StringConflicts) -> list[int]:
    """The tokens that spell a part of an earlier item and lead nowhere."""
    bad: list[int] = []
    agenda: list[tuple[int, Branches]] = []
    state = start.state
    assert isinstance(state, State)

    def is_harmless(after: Branch) -> bool:
        state = after.state
        if not isinstance(state, State):
            return True
        return conflicts.cannot_conflict(state.text) if conflicts.is_inside(state) else cannot_conflict(state)

    def take(branches: Branches, byte: int, child: int) -> None:
        after = step(paths, branches, byte)
        if not after:
            if any(paths.step(branch.config, byte) >= 0 for branch in branches):
                bad.extend(_allowed(tokens.below(child), row))
            return
        if any(is_harmless(branch) for branch in after):
            return
        # (White space between tokens of JSON changes nothing.)
        if len(after) != len(branches) or any(a.state is not b.state for a, b in zip(after, branches, strict=True)):
            here = tokens.ending_at(child)
            if here and not any_can_complete(paths, after):
                bad.extend(t for t in here if row[t >> 5] >> (t & 31) & 1)
        agenda.append((child, after))

    if state.mode in (VALUE, AFTER, KEY, COLON):
        only_blanks = all(byte in WHITESPACE for byte in paths.allowed(start.config))
        for byte in _STRUCTURE:
            if paths.step(start.config, byte) < 0 and not only_blanks:
                continue
            for blank, child in tokens.behind_blanks.get(byte, ()):
                branches = walk(paths, (start,), blank)
                if branches:
                    take(branches, byte, child)
    else:
        agenda.append((ROOT, (start,)))
    while agenda:
        node, branches = agenda.pop()
        children = tokens.children(node)
        inside = branches[0].state
        if len(branches) == 1 and isinstance(inside, State) and conflicts.is_inside(inside) and not inside.pending:
            likely = conflicts.next_bytes(inside.text)
            for byte in likely:
                if byte in children:
                    take(branches, byte, children[byte])
            continue
        for byte, child in children.items():
            take(branches, byte, child)
    return bad


def _allowed(tokens: Int32, row: Int32) -> list[int]:
    return [int(t) for t in tokens[(row[tokens >> 5] >> (tokens & 31)) & 1 != 0]]
