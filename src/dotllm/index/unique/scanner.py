"""Reads the text of a marked array or object byte by byte.

A state is immutable, so going back, forking and looking ahead cost nothing.

The machine has accepted every byte, so the text is JSON that fits the schema, and only its values matter here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dotllm.index.unique.values import NOTHING, Chain, Seen, Value, array, number, object_of

ARRAY, UNIQUE, OBJECT = range(3)
VALUE, AFTER, KEY, COLON, STRING, NAME, NUMBER, WORD = range(8)
"""What comes next: a value (or the end of an empty array) · a comma or a bracket · a key (or the end of the object) · a
colon · the rest of a string, of a key, of a number, of a word."""

WHITESPACE = frozenset(b" \t\n\r")
_SHORT = {0x22: '"', 0x5C: "\\", 0x2F: "/", 0x62: "\b", 0x66: "\f", 0x6E: "\n", 0x72: "\r", 0x74: "\t"}
_NUMBER = frozenset(b"0123456789+-.eE")
_BEGINS_NUMBER = frozenset(b"-0123456789")
_BEGINS_WORD = frozenset(b"tfn")
_WORDS = frozenset(("true", "false", "null"))


class Open(NamedTuple):
    """An array or an object that is not closed. ``done``: a `Seen` in a UNIQUE array, a `Chain` of values in an ARRAY,
    of (key, value) in an OBJECT; ``key``: the key whose value is being read; ``fixed``: the number of leading members
    of an OBJECT that will certainly not be written again (additional keys may be); ``keys``: the keys of an OBJECT that
    must not repeat a key, otherwise None."""

    kind: int
    done: Any
    below: Open | None
    key: str = ""
    fixed: int = 0
    keys: Seen | None = None


class State(NamedTuple):
    """``text``: the part read of a string (decoded), number or word; ``pending``: the bytes of an incomplete
    character."""

    top: Open
    mode: int
    text: str = ""
    pending: bytes = b""


def remembered(state: State) -> int:
    """The approximate bytes of the items and keys of all open arrays and objects."""
    count, top = len(state.text), state.top
    while True:
        count += top.done.nbytes + (top.keys.nbytes if top.keys is not None else 0)
        if top.below is None:
            return count
        top = top.below


def nesting(state: State) -> int:
    """The number of open arrays and objects."""
    count, top = 1, state.top
    while top.below is not None:
        count, top = count + 1, top.below
    return count


START = {
    0x5B: State(Open(UNIQUE, Seen(), None), VALUE),
    0x7B: State(Open(OBJECT, NOTHING, None, keys=Seen()), KEY),
}
"""The state after the opening bracket of an outermost array or object."""


class End:
    """Returned by `feed` in place of a state."""

    __slots__ = ()


OUTSIDE = End()
"""The outermost array or object is closed, or has not begun."""
REPEATED = End()
"""The array already has the item that is now complete, or the object has the key."""


def feed(state: State, byte: int, unique: bool = False) -> State | End:
    """The state after one more byte. ``unique``: the bracket that begins here belongs to an array without equal items,
    or to an object without equal keys."""
    mode = state.mode
    if mode == STRING or mode == NAME:
        return _in_string(state, byte)
    if mode == NUMBER:
        if byte in _NUMBER:
            return state._replace(text=state.text + chr(byte))
        ended = _complete(state.top, number(state.text))
        return feed(ended, byte) if isinstance(ended, State) else ended
    if mode == WORD:
        text = state.text + chr(byte)
        return _complete(state.top, ("word", text)) if text in _WORDS else state._replace(text=text)
    if byte in WHITESPACE:
        return state
    top = state.top
    if mode == VALUE:
        if byte == 0x22:
            return State(top, STRING)
        if byte in _BEGINS_NUMBER:
            return State(top, NUMBER, chr(byte))
        if byte in _BEGINS_WORD:
            return State(top, WORD, chr(byte))
        if byte == 0x7B:
            return State(Open(OBJECT, NOTHING, top, keys=Seen() if unique else None), KEY)
        if byte == 0x5B:
            return State(Open(UNIQUE, Seen(), top) if unique else Open(ARRAY, NOTHING, top), VALUE)
        return _close(top)
    if mode == AFTER:
        if byte == 0x2C:
            return State(top, KEY if top.kind == OBJECT else VALUE)
        return _close(top)
    if mode == KEY:
        return State(top, NAME) if byte == 0x22 else _close(top)
    return State(top, VALUE)  # after a colon


def _in_string(state: State, byte: int) -> State | End:
    top, mode, text, pending = state
    if not pending:
        if byte == 0x22:
            return _complete(top, text) if mode == STRING else _named(top, text)
        if byte == 0x5C or byte >= 0xC2:
            return State(top, mode, text, bytes((byte,)))
        return State(top, mode, text + chr(byte))
    pending += bytes((byte,))
    if pending[0] != 0x5C:  # UTF-8
        length = 2 if pending[0] < 0xE0 else 3 if pending[0] < 0xF0 else 4
        if len(pending) < length:
            return State(top, mode, text, pending)
        return State(top, mode, text + pending.decode())
    if len(pending) == 2 and byte in _SHORT:
        return State(top, mode, text + _SHORT[byte])
    if len(pending) not in (6, 12):  # \uXXXX, or two of them
        return State(top, mode, text, pending)
    unit = int(pending[-4:], 16)
    if len(pending) == 6:
        if 0xD800 <= unit < 0xDC00:
            return State(top, mode, text, pending)
        return State(top, mode, text + chr(unit))
    return State(top, mode, text + chr(0x10000 + ((int(pending[2:6], 16) & 0x3FF) << 10) + (unit & 0x3FF)))


def _named(top: Open, key: str) -> State | End:
    """The state after a complete key in ``top``."""
    keys = top.keys
    if keys is not None:
        if keys.has(key):
            return REPEATED
        keys = keys.plus(key)
    return State(top._replace(key=key, keys=keys), COLON)


def _complete(top: Open, value: Value) -> State | End:
    """The state after a complete value in ``top``."""
    done: Seen | Chain = top.done
    if isinstance(done, Seen):
        return REPEATED if done.has(value) else State(top._replace(done=done.plus(value)), AFTER)
    if top.kind == OBJECT:
        fixed = len(done) + 1 if top.keys is not None else top.fixed
        return State(top._replace(done=done.plus((top.key, value)), key="", fixed=fixed), AFTER)
    return State(top._replace(done=done.plus(value)), AFTER)


def _close(top: Open) -> State | End:
    """The state after the closing bracket of ``top``."""
    if top.below is None:
        return OUTSIDE
    if top.kind == OBJECT:
        return _complete(top.below, object_of(dict(top.done)))
    return _complete(top.below, array(top.done.items if isinstance(top.done, Seen) else tuple(top.done)))
