"""The tokens to remove from a mask of the machine: those that repeat an item or a key, and those after which only
repetitions are possible.

Either such a token spells a part of an earlier item: a walk along this item visits the few nodes of the token trie that
spell it. Or the token completes the current item and begins the next, so it contains a comma. The tokens with a comma
that depend on earlier items are found once for each configuration: nearly always there are none.
"""

from __future__ import annotations

import numpy as np

from dotllm.arrays import Int32
from dotllm.errors import BudgetExceededError
from dotllm.index.unique.conflicts import StringConflicts, cannot_conflict, earlier_values, has_fewer_conflicts
from dotllm.index.unique.paths import ROOT, Branch, Branches, Paths, Tokens, listed, one_step, step, walk
from dotllm.index.unique.scanner import (
    AFTER,
    COLON,
    KEY,
    NAME,
    NUMBER,
    OBJECT,
    STRING,
    UNIQUE,
    VALUE,
    WHITESPACE,
    Open,
    State,
)
from dotllm.index.unique.values import NOTHING, Seen

# Decides whether the unfinished value can still become a value that the array does not have.
#
# Nearly always there are more completions than earlier items. Counting paths from a configuration gives a lower bound
# on the number of completions. The count stops at a limit, because inside an array of few values every path leads to
# new states. It is repeated with a higher limit when the items outnumber the bound. If the bound does not decide (a
# pattern with few endings, an object whose last member is complete), a depth-first search looks for one completion.

UNBOUNDED = 1 << 24  # more than the items of any array
_COUNT_STEPS = (16, 256, 4096, UNBOUNDED)  # counting stops at one of these numbers
_COUNTED = 8  # the most numbers inside an item that are examined
_LEVELS = 64
_DEEPEST_COUNTED = 256  # arrays inside each other
_DEEPEST_VISITED = 8  # containers inside the current item that counting examines
_MOST_CONFIGS = 512  # the most bytes examined for one number
_MOST_VISITED = 400
_FEW = 8
_MOST_SEARCHED = 20_000  # (configuration, value so far)
_NONZERO = tuple(b"123456789")
_ENDS = tuple(b",]} \n")
_IN_NUMBERS = WHITESPACE | frozenset(b"0123456789eE+-")
# Bytes in the order in which they lead to many completions: ends, then strings and numbers, then the rest; escapes
# last.
_ORDER = {byte: i for i, byte in enumerate(b',]}"aebcdfghijklmnopqrstuvwxyz123456789')}
_ORDER[0x5C] = 1000

Shape = tuple[int, ...]


def shape_of(state: State) -> Shape:
    """The mode and the open containers, innermost first: counting depends only on these and the configuration."""
    out = [state.mode, len(state.pending)]
    top: Open | None = state.top
    while top is not None:
        out.append(top.kind if top.keys is None else -top.kind)
        top = top.below
    return tuple(out)


def emptied(state: State) -> State:
    """The same state with open containers that have no items, members or keys yet: the representative of its
    shape."""
    kinds: list[Open] = []
    top: Open | None = state.top
    while top is not None:
        kinds.append(top)
        top = top.below
    below: Open | None = None
    for old in reversed(kinds):
        keys = Seen() if old.keys is not None else None
        below = Open(old.kind, Seen() if old.kind == UNIQUE else NOTHING, below, old.key, keys=keys)
    assert below is not None  # a state has at least one container
    return State(below, state.mode, state.text, state.pending)


def can_complete(paths: Paths, branch: Branch) -> bool:
    """Whether some completion of ``branch`` repeats no item and no key. Raises BudgetExceededError."""
    state = branch.state
    if not isinstance(state, State) or cannot_conflict(state):
        return True
    count = earlier_values(state)
    completions = count_lower_bound(paths, branch, count)
    return completions > count or has_fewer_conflicts(state, completions) or _exists_completion(paths, (branch,))


def any_can_complete(paths: Paths, branches: Branches) -> bool:
    """Whether `can_complete` holds for one of ``branches``."""
    return any(can_complete(paths, branch) for branch in branches)


def count_step(count: int) -> int:
    """The limit up to which completions are counted to decide whether there are ``count``."""
    return next((step for step in _COUNT_STEPS if step >= count), UNBOUNDED)


def count_lower_bound(paths: Paths, branch: Branch, others: int) -> int:
    """A lower bound on the distinct values that the current item can still take; counting stops above ``others``."""
    config, state = branch
    if not isinstance(state, State):
        return UNBOUNDED
    exponent = state.mode == NUMBER and _has_exponent(state)
    key = (config, exponent, *shape_of(state))
    completions, counted_to = paths.counts.get(key, (0, 0))
    if completions <= others and completions >= counted_to:
        stop_at = count_step(others + 1)
        completions = 1 if exponent else _count(paths, Branch(config, emptied(state)), stop_at)
        paths.counts[key] = completions, UNBOUNDED + 1 if exponent or stop_at == UNBOUNDED else stop_at
    return completions


def _count(paths: Paths, start: Branch, stop_at: int) -> int:
    most = 1
    numbers = 0
    agenda = [start]
    assert isinstance(start.state, State)
    seen = {(start.config, shape_of(start.state))}
    deepest = len(shape_of(start.state)) + _DEEPEST_VISITED
    while agenda and len(seen) < _MOST_VISITED and numbers < _COUNTED:
        branch = agenda.pop()
        config, state = branch
        assert isinstance(state, State)
        if state.mode in (STRING, NAME) and not state.pending:
            most = max(most, _strings(paths, config, stop_at))
        elif state.mode == NUMBER:
            most = max(most, _numbers(paths, config, stop_at))
            numbers += 1
        elif state.mode == VALUE:
            most = max(most, _arrays(paths, config, stop_at))
        if most >= stop_at:
            return most
        if state.mode == AFTER and state.top.kind == UNIQUE and branch is not start:
            continue  # an item is complete, and perhaps not allowed
        if state.mode == COLON and state.top.keys is not None:
            continue  # likewise a key
        for byte in _next_bytes(state, paths.allowed(config)):
            for after in one_step(paths, branch, byte):
                if not isinstance(after.state, State):
                    continue
                key = (after.config, shape_of(after.state))
                if key not in seen and len(key[1]) < deepest:
                    seen.add(key)
                    agenda.append(Branch(after.config, emptied(after.state)))
    return most


def _arrays(paths: Paths, config: int, stop_at: int) -> int:
    """Lower bound on the distinct arrays that may begin here: [], [[]], [[[]]] …"""
    step = paths.index.advance_bytes  # (`Paths.step` would take all other bytes, too)
    count, inner, before = 0, config, -1
    for depth in range(1, min(stop_at, _DEEPEST_COUNTED) + 1):
        inner = step(inner, b"[")
        if inner < 0:
            break
        first = after = step(inner, b"]")
        for level in range(depth - 1):
            if after < 0 or (level == 1 and after == before):  # as one level further up, which can be closed
                break
            after = step(after, b"]")
        if after < 0:
            break
        count, before = depth, first
    return count


def _next_bytes(state: State, allowed: tuple[int, ...]) -> list[int]:
    """The bytes with which counting continues, the most promising last, without those counted already."""
    if state.mode in (STRING, NAME):
        if state.pending or len(allowed) <= _FEW:  # such as a key that the schema names
            return list(allowed[:_FEW])
        return [b for b in allowed if b == 0x22]
    if state.mode == NUMBER and state.top.kind == UNIQUE:
        return [b for b in allowed if b == 0x2E]  # the others complete the item
    left_out = _IN_NUMBERS if state.mode == NUMBER else WHITESPACE
    return sorted((b for b in allowed if b not in left_out), key=_rank, reverse=True)


def _rank(byte: int) -> int:
    return _ORDER.get(byte, 500)


def _strings(paths: Paths, config: int, stop_at: int) -> int:
    """Lower bound on the distinct strings: paths of plain characters, level by level."""
    level, ended, looked_at = {config: 1}, 0, 0
    for _ in range(_LEVELS):
        after: dict[int, int] = {}
        for config, count in level.items():
            if paths.step(config, 0x22) >= 0:
                ended += count
            for target, alike in paths.plain_steps(config):
                if target == config and alike > 1:
                    return UNBOUNDED  # a loop
                after[target] = after.get(target, 0) + alike * count
        level = after
        looked_at += len(level)
        if not level or looked_at > _MOST_CONFIGS or sum(level.values()) + ended >= stop_at:
            break
    return min(UNBOUNDED, sum(level.values()) + ended)


def _numbers(paths: Paths, config: int, stop_at: int) -> int:
    """Lower bound on the distinct numbers: each appended digit except zero makes another number."""
    level, ended = {config: 1}, 0
    for _ in range(24):
        after: dict[int, int] = {}
        for config, count in level.items():
            for byte in _NONZERO:
                target = paths.step(config, byte)
                if target >= 0:
                    after[target] = after.get(target, 0) + count
        level = after
        for config, count in level.items():
            if ended < stop_at and any(paths.step(config, byte) >= 0 for byte in _ENDS):
                ended += count
        if not level or len(level) > _MOST_CONFIGS or ended >= stop_at:
            break
    return min(UNBOUNDED, max(1, ended))


def _value_key(state: State) -> object:
    """A key that two states on one path share only if their completions are the same values. (It also ignores zeros at
    the end of a fraction.)"""
    frames: list[object] = []
    top: Open | None = state.top
    while top is not None:
        done = top.done
        frames.append((top.kind, frozenset(dict(done).items()) if top.kind == OBJECT else done, top.key))
        top = top.below
    text = state.text
    if state.mode == NUMBER:
        mantissa, e, exponent = text.lower().partition("e")
        if e and not mantissa.strip("-0."):
            exponent = ""
        sign = exponent[:1] if exponent[:1] in "+-" else ""
        text = (mantissa.rstrip("0") if "." in mantissa else mantissa) + e + sign + exponent[len(sign) :].lstrip("0")
    return (tuple(frames), state.mode, text, state.pending)


def _has_exponent(state: State) -> bool:
    return "e" in state.text or "E" in state.text


def _exists_completion(paths: Paths, branches: Branches) -> bool:
    """Whether some completion is allowed, by depth-first search. BudgetExceededError after _MOST_SEARCHED steps."""
    stack = list(branches)
    looked_at = 0
    visited: set[object] = set()
    while stack:
        branch = stack.pop()
        state = branch.state
        assert isinstance(state, State)
        key = (branch.config, _value_key(state))
        if key in visited:  # the two differ only in zeros, the exponent of a zero, or a repeated member
            continue  # (had another digit been possible between the zeros, their numbers would have been too many)
        visited.add(key)
        looked_at += 1
        if looked_at > _MOST_SEARCHED:
            raise BudgetExceededError(
                f"uniqueItems: none of the {_MOST_SEARCHED} continuations tried avoids a repetition",
                keyword="uniqueItems",
            )
        in_text = state.mode in (STRING, NAME)
        allowed = paths.allowed(branch.config)
        bytes_ = [b for b in allowed if b not in WHITESPACE] if not in_text else list(allowed)
        for byte in sorted(bytes_ or allowed, key=_rank, reverse=True):
            for after in one_step(paths, branch, byte):
                if not isinstance(after.state, State) or cannot_conflict(after.state):
                    return True
                completions = count_lower_bound(paths, after, earlier_values(after.state))
                if has_fewer_conflicts(after.state, completions):
                    return True
                stack.append(after)
    return False


_STRUCTURE = frozenset(b'"{}[],:-0123456789tfn')
_CLOSES = frozenset(b"]}")
_COMPLETING = (b",", b"]", b"}")
_MOST_ADDED = 7  # the most items and members that a token may complete without a check
_KEPT = 1 << 16  # configurations
_KEPT_CONFLICTS = 256


def mask_of(paths: Paths, tokens: Tokens, branch: Branch, row: Int32) -> Int32 | None:
    """``row`` int32 [words], the machine's mask of a branch, without the tokens that lead nowhere; None if there are no
    such tokens."""
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
    """The tokens that complete the current item and lead nowhere, because the text after it can only repeat an item."""
    config, state = branch
    completions = count_step((earlier_values(state) if isinstance(state, State) else 0) + _MOST_ADDED + 1)
    key = (config, completions, *(shape_of(state) if isinstance(state, State) else ()))
    unsafe = paths.unsafe.get(key)
    if unsafe is None:
        if len(paths.unsafe) >= _KEPT:
            paths.unsafe.clear()
        if not isinstance(state, State):
            free = branch
            allowed = ((t, data) for t, data in tokens.opening_texts if row.item(t >> 5) >> (t & 31) & 1)
            among = [token for token, data in allowed if paths.may_mark(config, data)]
        else:
            free = Branch(config, emptied(state))
            among = listed(row & (tokens.leaving if state.mode in (STRING, NAME) else tokens.going_on))
        unsafe = tuple(token for token in among if not _is_safe(paths, free, tokens.bytes_of(token), completions))
        paths.unsafe[key] = unsafe
    return [token for token in unsafe if not _can_go_on(paths, branch, tokens.bytes_of(token))]


def _is_safe(paths: Paths, branch: Branch, data: bytes, completions: int) -> bool:
    """Whether a token that leaves the current item completes no other item, and at least ``completions`` completions
    are possible after it.

    Such a token needs no comparison with earlier items if the current item equals none of them and they are fewer than
    ``completions``.
    """
    if sum(map(data.count, _COMPLETING)) > _MOST_ADDED:
        return False
    branches: Branches = (branch,)
    state = branch.state
    limit = int(not isinstance(state, State) or state.mode != AFTER or state.top.kind != UNIQUE)
    completed = 0
    keys_left = int(
        isinstance(state, State) and state.mode in (KEY, NAME)
    )  # `_repeating_tokens` checks the current key
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
    """A token without the white space at its end, if that stands between JSON's own tokens. Such white space changes
    nothing, but leads to ever new configurations."""
    shorter = data.rstrip(b" \t\n\r")
    if len(shorter) < len(data):
        ends = walk(paths, (branch,), shorter)
        if all(isinstance(end.state, State) and end.state.mode in (VALUE, AFTER, KEY, COLON) for end in ends):
            return shorter
    return data


def conflicts_of(paths: Paths, state: State) -> StringConflicts:
    """The conflicts of the string that is open or may begin. They stay the same up to the string's last byte."""
    names = state.mode in (KEY, NAME)
    result = paths.string_conflicts.get(id(state.top))
    if result is None or result.top is not state.top or result.names != names:
        if len(paths.string_conflicts) >= _KEPT_CONFLICTS:
            paths.string_conflicts.clear()
        result = paths.string_conflicts[id(state.top)] = StringConflicts(state.top, names=names)
    return result


def _repeating_tokens(paths: Paths, tokens: Tokens, start: Branch, row: Int32, conflicts: StringConflicts) -> list[int]:
    """The tokens that spell a part of an earlier item and lead nowhere."""
    bad: list[int] = []
    agenda: list[tuple[int, Branches, bool | None]] = []  # with whether they are stuck; None: not examined
    state = start.state
    assert isinstance(state, State)

    def is_harmless(after: Branch) -> bool:
        state = after.state
        if not isinstance(state, State):
            return True
        return conflicts.cannot_conflict(state.text) if conflicts.is_inside(state) else cannot_conflict(state)

    def take(branches: Branches, byte: int, child: int, is_stuck: bool | None) -> None:
        after = step(paths, branches, byte)
        if not after:
            if any(paths.step(branch.config, byte) >= 0 for branch in branches):
                bad.extend(_allowed(tokens.below(child), row))
            return
        if any(is_harmless(branch) for branch in after):
            return
        # White space between tokens of JSON changes nothing.
        if len(after) != len(branches) or any(a.state is not b.state for a, b in zip(after, branches, strict=True)):
            is_stuck = None
        ending = tokens.ending_at(child)
        if ending:
            if is_stuck is None:
                is_stuck = not any_can_complete(paths, after)
            if is_stuck:
                bad.extend(t for t in ending if row[t >> 5] >> (t & 31) & 1)
        agenda.append((child, after, is_stuck))

    if state.mode in (VALUE, AFTER, KEY, COLON):
        only_blanks = all(byte in WHITESPACE for byte in paths.allowed(start.config))
        for byte in _STRUCTURE:
            if paths.step(start.config, byte) < 0 and not only_blanks:
                continue
            for blank, child in tokens.behind_blanks.get(byte, ()):
                branches = walk(paths, (start,), blank)
                if branches:
                    take(branches, byte, child, False)
    else:
        agenda.append((ROOT, (start,), False))
    while agenda:
        node, branches, is_stuck = agenda.pop()
        children = tokens.children(node)
        inside = branches[0].state
        if len(branches) == 1 and isinstance(inside, State) and conflicts.is_inside(inside) and not inside.pending:
            likely = conflicts.next_bytes(inside.text)
            for byte in likely:
                if byte in children:
                    take(branches, byte, children[byte], is_stuck)
            continue
        for byte, child in children.items():
            take(branches, byte, child, is_stuck)
    return bad


def _allowed(tokens: Int32, row: Int32) -> list[int]:
    return [int(t) for t in tokens[(row[tokens >> 5] >> (tokens & 31)) & 1 != 0]]
