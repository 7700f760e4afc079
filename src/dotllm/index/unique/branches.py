"""A branch: a configuration of the machine, and what has been read of the marked array (or object) around it.

Nearly always there is one branch. There are more if alternatives overlap, and the same text may be an array with
``uniqueItems`` or one without (likewise an object). Then every branch follows the text, and a text is allowed as long
as one branch can go on.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from dotllm.index.unique.paths import ALL, NONE, OPENINGS, Paths
from dotllm.index.unique.scanner import AFTER, KEY, OBJECT, OUTSIDE, START, VALUE, WHITESPACE, End, State, feed


class Branch(NamedTuple):
    """``state``: what the scanner has read; OUTSIDE if no marked array or object is open."""

    config: int
    state: State | End


Branches = tuple[Branch, ...]


def step(paths: Paths, branches: Branches, byte: int) -> Branches:
    """The branches after one byte; (): the byte is not allowed."""
    if len(branches) == 1:
        return one_step(paths, branches[0], byte)
    out: list[Branch] = []
    for branch in branches:
        out.extend(after for after in one_step(paths, branch, byte) if after not in out)
    return tuple(out)


def one_step(paths: Paths, branch: Branch, byte: int) -> Branches:
    """`step` for a single branch."""
    config, state = branch
    if byte in OPENINGS:
        begins = not isinstance(state, State) or state.mode == VALUE
        opening = paths.opening(config, byte) if begins else NONE
        if opening != NONE:
            here = (paths.step(config, byte), -1) if opening == ALL else paths.split(config, byte)
            inside = feed(state, byte, True) if isinstance(state, State) else START[byte]
            out = [Branch(here[0], inside)] if here[0] >= 0 else []
            if here[1] >= 0:
                out.append(Branch(here[1], feed(state, byte) if isinstance(state, State) else OUTSIDE))
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
    return (Branch(after, state),)


def _fixed(paths: Paths, config: int, state: State) -> State:
    """``state`` after a complete member, with ``fixed`` raised if the machine no longer accepts the member's key."""
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


def walk(paths: Paths, branches: Branches, data: bytes) -> Branches:
    """The branches after several bytes."""
    for byte in data:
        branches = step(paths, branches, byte)
        if not branches:
            break
    return branches
