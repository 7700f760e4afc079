"""A thread: where the machine is, and what has been read of the array (or object) that one is in.

There is one, unless an array may at the same time be one with ``uniqueItems`` and one without (alternatives that
overlap; likewise an object): then the text is followed as both, and is allowed as long as one of them goes on.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from dotllm.index.unique.paths import ALL, NONE, OPENINGS, Paths
from dotllm.index.unique.scanner import AFTER, KEY, OBJECT, OUTSIDE, START, VALUE, WHITESPACE, End, State, feed


class Thread(NamedTuple):
    """``state`` is OUTSIDE where no array without equal items is open, and no object without equal keys."""

    config: int
    state: State | End


Threads = tuple[Thread, ...]


def step(paths: Paths, threads: Threads, byte: int) -> Threads:
    """After one byte; none are left: not allowed."""
    if len(threads) == 1:
        return one_step(paths, threads[0], byte)
    out: list[Thread] = []
    for thread in threads:
        out.extend(after for after in one_step(paths, thread, byte) if after not in out)
    return tuple(out)


def one_step(paths: Paths, thread: Thread, byte: int) -> Threads:
    """`step` of one thread."""
    config, state = thread
    if byte in OPENINGS:
        begins = not isinstance(state, State) or state.mode == VALUE
        opening = paths.opening(config, byte) if begins else NONE
        if opening != NONE:
            here = (paths.step(config, byte), -1) if opening == ALL else paths.split(config, byte)
            inside = feed(state, byte, True) if isinstance(state, State) else START[byte]
            out = [Thread(here[0], inside)] if here[0] >= 0 else []
            if here[1] >= 0:
                out.append(Thread(here[1], feed(state, byte) if isinstance(state, State) else OUTSIDE))
            return tuple(out)
    after = paths.step(config, byte)
    if after < 0:
        return ()
    if isinstance(state, State):
        state = feed(state, byte)
        if not isinstance(state, State):
            if state is not OUTSIDE:
                return ()
        elif state.top.kind == OBJECT and state.top.fixed == len(state.top.done) - 1 and state.mode in (AFTER, KEY):
            state = _fixed(paths, after, state)
    return (Thread(after, state),)


def _fixed(paths: Paths, config: int, state: State) -> State:
    """A member is complete: whether its key may come again is asked of the machine."""
    top = state.top
    quoted = json.dumps(top.done[-1][0], ensure_ascii=False).encode()
    for part in (b",", quoted, b":") if state.mode == AFTER else (quoted, b":"):
        for i, byte in enumerate(part):
            after = paths.step(config, byte)
            if after < 0:
                if i == 0 and any(paths.step(config, blank) >= 0 for blank in WHITESPACE):
                    return state  # perhaps behind some white space
                return state._replace(top=top._replace(fixed=len(top.done)))
            config = after
    return state


def walk(paths: Paths, threads: Threads, data: bytes) -> Threads:
    """After several bytes."""
    for byte in data:
        threads = step(paths, threads, byte)
        if not threads:
            break
    return threads
