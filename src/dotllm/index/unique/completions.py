"""Can the unfinished value still become one that the array does not have?

Nearly always there are more completions than earlier items. Counting paths from a configuration gives a lower bound on
the number of completions. The count stops at a limit, because inside an array of few values every path leads to other
states. It is repeated with a higher limit when the items outnumber the bound. If the bound does not decide (a pattern
with few endings, an object whose last member is complete), a depth-first search looks for one completion.
"""

from __future__ import annotations

from dotllm.errors import BudgetExceededError
from dotllm.index.unique.branches import Branch, Branches, one_step
from dotllm.index.unique.conflicts import cannot_conflict, conflict_bound, earlier_values
from dotllm.index.unique.paths import Paths
from dotllm.index.unique.scanner import AFTER, COLON, NAME, NUMBER, OBJECT, STRING, UNIQUE, WHITESPACE, Open, State
from dotllm.index.unique.values import Seen

UNBOUNDED = 1 << 24  # more than an array ever has items
_COUNT_STEPS = (16, 256, 4096, UNBOUNDED)  # counting stops at one of these
_COUNTED = 8  # numbers inside of an item that are looked at
_LEVELS = 64
_MOST_CONFIGS = 512  # looked at for one number
_MOST_VISITED = 400
_FEW = 8
_MOST_SEARCHED = 20_000  # (configuration, value so far)
_NONZERO = tuple(b"123456789")
_ENDS = tuple(b",]} \n")
_IN_NUMBERS = WHITESPACE | frozenset(b"0123456789eE+-")
# What leads soonest to many completions: ends, then strings and numbers, then the rest; escapes last.
_ORDER = {byte: i for i, byte in enumerate(b',]}"aebcdfghijklmnopqrstuvwxyz123456789')}
_ORDER[0x5C] = 1000

Shape = tuple[int, ...]


def shape_of(state: State) -> Shape:
    """The mode and what is open, innermost first: with the configuration, all that counting depends on."""
    out = [state.mode, len(state.pending)]
    top: Open | None = state.top
    while top is not None:
        out.append(top.kind if top.keys is None else -top.kind)
        top = top.below
    return tuple(out)


def emptied(state: State) -> State:
    """The same with arrays that have no items yet, and nothing read of the present one: a member of each shape."""
    kinds: list[Open] = []
    top: Open | None = state.top
    while top is not None:
        kinds.append(top)
        top = top.below
    below: Open | None = None
    for old in reversed(kinds):
        keys = Seen() if old.keys is not None else None
        below = Open(old.kind, Seen() if old.kind == UNIQUE else (), below, old.key, keys=keys)
    assert below is not None  # a state has at least one
    return State(below, state.mode, state.text, state.pending)


def can_complete(paths: Paths, branch: Branch) -> bool:
    """Whether some completion of ``branch`` repeats no item and no key. Raises BudgetExceededError."""
    state = branch.state
    if not isinstance(state, State) or cannot_conflict(state):
        return True
    count = earlier_values(state)
    if count_lower_bound(paths, branch, count) > count:
        return True
    count = conflict_bound(state)
    return count_lower_bound(paths, branch, count) > count or _exists_completion(paths, (branch,))


def any_can_complete(paths: Paths, branches: Branches) -> bool:
    """Whether `can_complete` holds for one of ``branches``."""
    return any(can_complete(paths, branch) for branch in branches)


def count_step(count: int) -> int:
    """The limit up to which completions are counted, to see whether there are ``count``."""
    return next((step for step in _COUNT_STEPS if step >= count), UNBOUNDED)


def count_lower_bound(paths: Paths, branch: Branch, others: int) -> int:
    """Lower bound on the distinct values that the present item can still take; counting stops above ``others``."""
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
    while agenda and len(seen) < _MOST_VISITED and numbers < _COUNTED:
        branch = agenda.pop()
        config, state = branch
        assert isinstance(state, State)
        if state.mode in (STRING, NAME) and not state.pending:
            most = max(most, _strings(paths, config, stop_at))
        elif state.mode == NUMBER:
            most = max(most, _numbers(paths, config, stop_at))
            numbers += 1
        if most >= stop_at:
            return most
        if state.mode == AFTER and state.top.kind == UNIQUE and branch is not start:
            continue  # an item is complete, and is perhaps none that may be
        if state.mode == COLON and state.top.keys is not None:
            continue  # so is a key
        for byte in _next_bytes(state, paths.allowed(config)):
            for after in one_step(paths, branch, byte):
                if not isinstance(after.state, State):
                    continue
                key = (after.config, shape_of(after.state))
                if key not in seen:
                    seen.add(key)
                    agenda.append(Branch(after.config, emptied(after.state)))
    return most


def _next_bytes(state: State, allowed: tuple[int, ...]) -> list[int]:
    """The bytes with which counting goes on, the most promising last, without those counted already."""
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
            for byte, alike in paths.plain:
                target = paths.step(config, byte)
                if target == config and alike > 1:
                    return UNBOUNDED  # a loop
                if target >= 0:
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
    """A key that is equal for two states on one path whose completions are the same values. (But for zeros at the end
    of a fraction, which only more zeros follow.)"""
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


def _may_append_digit(paths: Paths, config: int) -> bool:
    """Whether a digit that is not zero may follow in this number, before an exponent."""
    agenda, seen = [config], {config}
    while agenda:
        config = agenda.pop()
        if any(paths.step(config, byte) >= 0 for byte in _NONZERO):
            return True
        zero = paths.step(config, 0x30)
        if zero >= 0 and zero not in seen:
            seen.add(zero)
            agenda.append(zero)
    return False


def _exists_completion(paths: Paths, branches: Branches) -> bool:
    """Whether some completion is allowed: a depth-first search; BudgetExceededError after _MOST_SEARCHED steps."""
    stack = list(branches)
    looked_at = 0
    visited: set[object] = set()
    while stack:
        branch = stack.pop()
        state = branch.state
        assert isinstance(state, State)
        key = (branch.config, _value_key(state))
        if key in visited:  # only zeros, the exponent of a zero, or a member written again, lie between
            if state.mode == NUMBER and not _has_exponent(state) and _may_append_digit(paths, branch.config):
                return True  # behind any number of zeros: infinitely many numbers
            continue
        visited.add(key)
        looked_at += 1
        if looked_at > _MOST_SEARCHED:
            raise BudgetExceededError(
                f"uniqueItems: none of {_MOST_SEARCHED} ways to go on is free", keyword="uniqueItems"
            )
        in_text = state.mode in (STRING, NAME)
        allowed = paths.allowed(branch.config)
        bytes_ = [b for b in allowed if b not in WHITESPACE] if not in_text else list(allowed)
        for byte in sorted(bytes_ or allowed, key=_rank, reverse=True):
            for after in one_step(paths, branch, byte):
                if not isinstance(after.state, State) or cannot_conflict(after.state):
                    return True
                count = conflict_bound(after.state)
                if count_lower_bound(paths, after, count) > count:
                    return True
                stack.append(after)
    return False
