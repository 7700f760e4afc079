"""What must be taken out of a mask of the machine: the tokens after which an item (or a key) is repeated, or must be.

Such a token either runs along the text of an item that was, which is a walk over the few nodes of the token trie that
do; or it completes the present item and goes on with the next, so it holds a comma. Which of the latter need a look at
what has been seen is found out once for each configuration: nearly always none.
"""

from __future__ import annotations

import numpy as np

from dotllm.arrays import Int32
from dotllm.index.unique.likeness import Leaf, is_free, seen_by
from dotllm.index.unique.paths import Paths
from dotllm.index.unique.room import any_has_room, emptied, enough_for, room, shape_of
from dotllm.index.unique.scanner import AFTER, COLON, KEY, NAME, NUMBER, STRING, UNIQUE, VALUE, WHITESPACE, State
from dotllm.index.unique.threads import Thread, Threads, step, walk
from dotllm.index.unique.tokens import ROOT, Tokens, listed

_STRUCTURE = frozenset(b'"{}[],:-0123456789tfn')
_CLOSES = frozenset(b"]}")
_COMPLETING = (b",", b"]", b"}")
_MOST_ADDED = 7  # items and members that a token completes without a look
_KEPT = 1 << 16  # configurations
_LEAVES = 256


def mask_of(paths: Paths, tokens: Tokens, thread: Thread, row: Int32) -> Int32 | None:
    """``row``, the machine's mask of a thread, without the tokens that lead nowhere; None: there are none."""
    bad = _going_on(paths, tokens, thread, row)
    state = thread.state
    if isinstance(state, State):
        leaf = _leaf(paths, state)
        if not (leaf.is_free(state.text) if leaf.is_inside(state) else is_free(state)):
            bad += _along(paths, tokens, thread, row, leaf)
    if not bad:
        return None
    mask = row.copy()
    where = np.array(bad, np.int64)
    bits = np.left_shift(np.uint32(1), (where & 31).astype(np.uint32)).view(np.int32)
    np.bitwise_and.at(mask, where >> 5, ~bits)
    return mask


def _going_on(paths: Paths, tokens: Tokens, thread: Thread, row: Int32) -> list[int]:
    """Tokens that lead nowhere because of what they hold behind the present item."""
    config, state = thread
    ways = enough_for((seen_by(state) if isinstance(state, State) else 0) + _MOST_ADDED + 1)
    key = (config, ways, *(shape_of(state) if isinstance(state, State) else ()))
    unsafe = paths.unsafe.get(key)
    if unsafe is None:
        if len(paths.unsafe) >= _KEPT:
            paths.unsafe.clear()
        if not isinstance(state, State):
            among, free = tokens.opening, thread
        else:
            among = tokens.leaving if state.mode in (STRING, NAME) else tokens.going_on
            free = Thread(config, emptied(state))
        unsafe = tuple(
            token for token in listed(row & among) if not _is_safe(paths, free, tokens.bytes_of(token), ways)
        )
        paths.unsafe[key] = unsafe
    return [token for token in unsafe if not _leads_on(paths, thread, tokens.bytes_of(token))]


def _is_safe(paths: Paths, thread: Thread, data: bytes, ways: int) -> bool:
    """Whether a token that leaves the present item completes no other one, and ends where at least so many ``ways`` go
    on: then it needs no look at the items that were, if the present one is like none of them and they are fewer."""
    if sum(map(data.count, _COMPLETING)) > _MOST_ADDED:
        return False
    threads: Threads = (thread,)
    state = thread.state
    limit = int(not isinstance(state, State) or state.mode != AFTER or state.top.kind != UNIQUE)
    completed = 0
    keys_left = int(isinstance(state, State) and state.mode in (KEY, NAME))  # the present one is looked at by `_along`
    for byte in _significant(paths, thread, data):
        before = threads[0].state
        threads = step(paths, threads, byte)
        if len(threads) != 1:
            return False
        after = threads[0].state
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
    return completed <= limit and room(paths, threads[0], ways - 1) >= ways


def _leads_on(paths: Paths, thread: Thread, data: bytes) -> bool:
    threads = walk(paths, (thread,), _significant(paths, thread, data))
    return any_has_room(paths, threads)


def _significant(paths: Paths, thread: Thread, data: bytes) -> bytes:
    """A token without white space at its end that stands between tokens of JSON: that leads to ever new configurations
    and changes nothing."""
    shorter = data.rstrip(b" \t\n\r")
    if len(shorter) < len(data):
        ends = walk(paths, (thread,), shorter)
        if all(isinstance(end.state, State) and end.state.mode in (VALUE, AFTER, KEY, COLON) for end in ends):
            return shorter
    return data


def _leaf(paths: Paths, state: State) -> Leaf:
    """That of the string that one is in, or that may begin: the same from its first byte to its last."""
    names = state.mode in (KEY, NAME)
    found = paths.leaves.get(id(state.top))
    if found is None or found.top is not state.top or found.names != names:
        if len(paths.leaves) >= _LEAVES:
            paths.leaves.clear()
        found = paths.leaves[id(state.top)] = Leaf(state.top, names=names)
    return found


def _along(paths: Paths, tokens: Tokens, start: Thread, row: Int32, leaf: Leaf) -> list[int]:
    """Tokens that lead nowhere and run along the text of an item that was."""
    bad: list[int] = []
    agenda: list[tuple[int, Threads]] = []
    state = start.state
    assert isinstance(state, State)

    def is_harmless(after: Thread) -> bool:
        state = after.state
        if not isinstance(state, State):
            return True
        return leaf.is_free(state.text) if leaf.is_inside(state) else is_free(state)

    def take(threads: Threads, byte: int, child: int) -> None:
        after = step(paths, threads, byte)
        if not after:
            if any(paths.step(thread.config, byte) >= 0 for thread in threads):
                bad.extend(_allowed(tokens.below(child), row))
            return
        if any(is_harmless(thread) for thread in after):
            return
        # (White space between tokens of JSON changes nothing.)
        if len(after) != len(threads) or any(a.state is not b.state for a, b in zip(after, threads, strict=True)):
            here = tokens.ending_at(child)
            if here and not any_has_room(paths, after):
                bad.extend(t for t in here if row[t >> 5] >> (t & 31) & 1)
        agenda.append((child, after))

    if state.mode in (VALUE, AFTER, KEY, COLON):
        only_blanks = all(byte in WHITESPACE for byte in paths.allowed(start.config))
        for byte in _STRUCTURE:
            if paths.step(start.config, byte) < 0 and not only_blanks:
                continue
            for blank, child in tokens.behind_blanks.get(byte, ()):
                threads = walk(paths, (start,), blank)
                if threads:
                    take(threads, byte, child)
    else:
        agenda.append((ROOT, (start,)))
    while agenda:
        node, threads = agenda.pop()
        children = tokens.children(node)
        inside = threads[0].state
        if len(threads) == 1 and isinstance(inside, State) and leaf.is_inside(inside) and not inside.pending:
            likely = leaf.next_bytes(inside.text)
            for byte in likely:
                if byte in children:
                    take(threads, byte, children[byte])
            continue
        for byte, child in children.items():
            take(threads, byte, child)
    return bad


def _allowed(tokens: Int32, row: Int32) -> list[int]:
    return [int(t) for t in tokens[(row[tokens >> 5] >> (tokens & 31)) & 1 != 0]]
