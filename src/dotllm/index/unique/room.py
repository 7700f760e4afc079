"""Is there another way on? What has begun must still be able to become something that the array does not have.

Nearly always there are more ways than the array has items: a lower bound on the number of ways is found by counting
paths from a configuration, once (and again if the items have become more than were counted: where each path leads to
other states, as inside an array of few values, counting all would cost too much). Only where that does not decide (a
pattern with few endings, an object whose last member is complete) the ways themselves are looked for.
"""

from __future__ import annotations

from dotllm.errors import BudgetExceeded
from dotllm.index.unique.likeness import is_free, rivals, seen_by
from dotllm.index.unique.paths import Paths
from dotllm.index.unique.scanner import AFTER, COLON, NAME, NUMBER, OBJECT, STRING, UNIQUE, WHITESPACE, Open, State
from dotllm.index.unique.threads import Thread, Threads, one_step
from dotllm.index.unique.values import Seen

PLENTY = 1 << 24  # more than an array ever has items
_ENOUGH = (16, 256, 4096, PLENTY)  # counting stops at one of these
_COUNTED = 8  # numbers inside of an item that are looked at
_LEVELS = 64
_CONFIGS = 512  # looked at for one number
_PLACES = 400
_FEW = 8
_SEARCHED = 20_000  # places
_NONZERO = tuple(b"123456789")
_ENDS = tuple(b",]} \n")
_IN_NUMBERS = WHITESPACE | frozenset(b"0123456789eE+-")
# What leads soonest to where there is room: ends, then strings and numbers, then the rest; escapes last.
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


def has_room(paths: Paths, thread: Thread) -> bool:
    """Whether something allowed follows."""
    state = thread.state
    if not isinstance(state, State) or is_free(state):
        return True
    count = seen_by(state)
    if room(paths, thread, count) > count:
        return True
    count = rivals(state)
    return room(paths, thread, count) > count or _found(paths, (thread,))


def any_has_room(paths: Paths, threads: Threads) -> bool:
    return any(has_room(paths, thread) for thread in threads)


def enough_for(count: int) -> int:
    """How far to count where ``count`` ways are asked for."""
    return next((step for step in _ENOUGH if step >= count), PLENTY)


def room(paths: Paths, thread: Thread, others: int) -> int:
    """At least so many different values can the present item still become. Counted no further than to know whether it
    is more than ``others``."""
    config, state = thread
    if not isinstance(state, State):
        return PLENTY
    exponent = state.mode == NUMBER and _has_exponent(state)
    key = (config, exponent, *shape_of(state))
    ways, counted_to = paths.rooms.get(key, (0, 0))
    if ways <= others and ways >= counted_to:
        enough = enough_for(others + 1)
        ways = 1 if exponent else _room(paths, Thread(config, emptied(state)), enough)
        paths.rooms[key] = ways, PLENTY + 1 if exponent or enough == PLENTY else enough
    return ways


def _room(paths: Paths, start: Thread, enough: int) -> int:
    most = 1
    numbers = 0
    agenda = [start]
    assert isinstance(start.state, State)
    seen = {(start.config, shape_of(start.state))}
    while agenda and len(seen) < _PLACES and numbers < _COUNTED:
        thread = agenda.pop()
        config, state = thread
        assert isinstance(state, State)
        if state.mode in (STRING, NAME) and not state.pending:
            most = max(most, _strings(paths, config, enough))
        elif state.mode == NUMBER:
            most = max(most, _numbers(paths, config, enough))
            numbers += 1
        if most >= enough:
            return most
        if state.mode == AFTER and state.top.kind == UNIQUE and thread is not start:
            continue  # an item is complete, and is perhaps none that may be
        if state.mode == COLON and state.top.keys is not None:
            continue  # so is a key
        for byte in _ways(state, paths.allowed(config)):
            for after in one_step(paths, thread, byte):
                if not isinstance(after.state, State):
                    continue
                place = (after.config, shape_of(after.state))
                if place not in seen:
                    seen.add(place)
                    agenda.append(Thread(after.config, emptied(after.state)))
    return most


def _ways(state: State, allowed: tuple[int, ...]) -> list[int]:
    """The bytes to go on with, the most promising last; those that have been counted are left out."""
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


def _strings(paths: Paths, config: int, enough: int) -> int:
    """How many different strings at least: paths of plain characters, level by level."""
    level, ended, looked_at = {config: 1}, 0, 0
    for _ in range(_LEVELS):
        after: dict[int, int] = {}
        for place, count in level.items():
            if paths.step(place, 0x22) >= 0:
                ended += count
            for byte, alike in paths.plain:
                there = paths.step(place, byte)
                if there == place and alike > 1:
                    return PLENTY  # a loop
                if there >= 0:
                    after[there] = after.get(there, 0) + alike * count
        level = after
        looked_at += len(level)
        if not level or looked_at > _CONFIGS or sum(level.values()) + ended >= enough:
            break
    return min(PLENTY, sum(level.values()) + ended)


def _numbers(paths: Paths, config: int, enough: int) -> int:
    """The same for numbers: other digits but zero that are appended make another number."""
    level, ended = {config: 1}, 0
    for _ in range(24):
        after: dict[int, int] = {}
        for place, count in level.items():
            for byte in _NONZERO:
                there = paths.step(place, byte)
                if there >= 0:
                    after[there] = after.get(there, 0) + count
        level = after
        for place, count in level.items():
            if ended < enough and any(paths.step(place, byte) >= 0 for byte in _ENDS):
                ended += count
        if not level or len(level) > _CONFIGS or ended >= enough:
            break
    return min(PLENTY, max(1, ended))


def _alike(state: State) -> object:
    """Equal for two states on one way to which the same can be added, and which are then the same value: but for zeros
    at the end of a fraction, behind which nothing but zeros follows."""
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


def _goes_on(paths: Paths, config: int) -> bool:
    """Whether a digit that is not zero may follow in this number, before an exponent."""
    agenda, seen = [config], {config}
    while agenda:
        place = agenda.pop()
        if any(paths.step(place, byte) >= 0 for byte in _NONZERO):
            return True
        zero = paths.step(place, 0x30)
        if zero >= 0 and zero not in seen:
            seen.add(zero)
            agenda.append(zero)
    return False


def _found(paths: Paths, threads: Threads) -> bool:
    """Whether a way on exists: they are tried, deepest first."""
    stack = list(threads)
    looked_at = 0
    places: set[object] = set()
    while stack:
        thread = stack.pop()
        state = thread.state
        assert isinstance(state, State)
        place = (thread.config, _alike(state))
        if place in places:  # only zeros, the exponent of a zero, or a member written again, lie between
            if state.mode == NUMBER and not _has_exponent(state) and _goes_on(paths, thread.config):
                return True  # behind any number of zeros: infinitely many numbers
            continue
        places.add(place)
        looked_at += 1
        if looked_at > _SEARCHED:
            raise BudgetExceeded(f"uniqueItems: none of {_SEARCHED} ways to go on is free", keyword="uniqueItems")
        in_text = state.mode in (STRING, NAME)
        allowed = paths.allowed(thread.config)
        bytes_ = [b for b in allowed if b not in WHITESPACE] if not in_text else list(allowed)
        for byte in sorted(bytes_ or allowed, key=_rank, reverse=True):
            for after in one_step(paths, thread, byte):
                if not isinstance(after.state, State) or is_free(after.state):
                    return True
                count = rivals(after.state)
                if room(paths, after, count) > count:
                    return True
                stack.append(after)
    return False
