"""Can the unfinished value still equal an earlier item? Conservative: false positives only.

If the members of an object may be written again (additional keys may), only its keys are compared. In an object that
must not repeat a key, a key is compared like an item, but only while it is being written.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import cached_property, lru_cache
from typing import Any

from dotllm.index.unique.scanner import AFTER, ARRAY, COLON, KEY, NAME, NUMBER, OBJECT, STRING, VALUE, Open, State
from dotllm.index.unique.values import Seen, Value, number_may_equal


def earlier_values(state: State) -> int:
    """How many items the enclosing arrays have that the present one must differ from, plus the keys of the enclosing
    objects: repeating a key yields no new value."""
    count, top = 0, state.top
    while True:
        if top.kind != ARRAY:
            count += len(top.done)
        if top.below is None:
            return count
        top = top.below


def conflict_bound(state: State) -> int:
    """`earlier_values` without those that the present value cannot equal any more: fewer, at more cost."""
    count = 0
    inside: list[Open] = []
    top: Open | None = state.top
    while top is not None:
        if top.kind == OBJECT:
            count += len(top.done)
        elif isinstance(top.done, Seen):
            if inside:
                count += sum(_may_equal(inside, len(inside) - 1, state, value) for value in top.done.others)
            elif state.mode == STRING:
                at = bisect_left(top.done.strings, state.text)
                count += bisect_left(top.done.strings, state.text + chr(0x10FFFF), at) - at + 1
            elif state.mode != AFTER:
                count += sum(_scalar_may_equal(state, value) for value in top.done.items)
        inside.append(top)
        top = top.below
    return count


def cannot_conflict(state: State) -> bool:
    """Whether no present item, of whatever enclosing array, can equal an earlier one, whatever follows."""
    inside: list[Open] = []  # what is open in the present item, innermost first
    top: Open | None = state.top
    if state.top.keys is not None and _key_may_conflict(state, state.top.keys):
        return False
    while top is not None:
        if isinstance(top.done, Seen) and len(top.done):
            if not inside:
                if state.mode != AFTER and _scalar_may_conflict(state, top.done):
                    return False
            elif any(_may_equal(inside, len(inside) - 1, state, value) for value in top.done.others):
                return False
        inside.append(top)
        top = top.below
    return True


def _key_may_conflict(state: State, keys: Seen) -> bool:
    if state.mode == KEY:
        return len(keys) > 0
    return state.mode == NAME and keys.may_have_string(state.text)


def _scalar_may_conflict(state: State, seen: Seen) -> bool:
    if state.mode == VALUE:
        return True
    if state.mode == STRING:
        return seen.may_have_string(state.text)
    if state.mode == NUMBER:
        return seen.may_have_number(state.text)
    return any(_scalar_may_equal(state, value) for value in seen.others)


class StringConflicts:
    """The strings that must not be completed in ``top`` as a value (as a key, if ``names``): with them the present item
    might equal an earlier one, or a key is repeated. Inside of such a string nothing else decides."""

    def __init__(self, top: Open, *, names: bool) -> None:
        self.top = top
        self.names = names
        self.mode = NAME if names else STRING

    @cached_property
    def strings(self) -> list[str]:
        """All of them, sorted."""
        return sorted(_conflicting_strings(State(self.top, self.mode)))

    def is_inside(self, state: State) -> bool:
        """Whether ``state`` is inside of the string that this is about."""
        return state.mode == self.mode and state.top is self.top

    def cannot_conflict(self, text: str) -> bool:
        """Same as the module's `cannot_conflict`, for a position inside this string."""
        at = bisect_left(self.strings, text)
        return at == len(self.strings) or not self.strings[at].startswith(text)

    def next_bytes(self, text: str) -> list[int]:
        """How the strings that begin with ``text`` go on: a character, the end, or an escape."""
        out = {0x5C}
        strings = self.strings
        at = bisect_left(strings, text)
        while at < len(strings) and strings[at].startswith(text):
            if len(strings[at]) == len(text):
                out.add(0x22)
                at += 1
                continue
            char = strings[at][len(text)]
            out.add(char.encode()[0])
            at = bisect_left(strings, text + chr(ord(char) + 1), at) if ord(char) < 0x10FFFF else len(strings)
        return sorted(out)


def _conflicting_strings(state: State) -> set[str]:
    out: set[str] = set()
    inside: list[Open] = []
    top: Open | None = state.top
    if state.mode == NAME and state.top.keys is not None:
        out.update(state.top.keys.strings)
    while top is not None:
        if isinstance(top.done, Seen):
            if not inside:
                out.update(top.done.strings)
            else:
                for value in top.done.others:
                    if _may_equal(inside, len(inside) - 1, state, value):
                        out.update(_string_at(inside, value, state.mode))
        inside.append(top)
        top = top.below
    return out


def _string_at(inside: list[Open], value: Value, mode: int) -> Iterable[str]:
    """The string of ``value`` at the position of the present string, if there is one; its keys for a key."""
    part: Any = value
    for i in range(len(inside) - 1, -1, -1):
        top = inside[i]
        if mode == NAME and i == 0:
            return [key for key, _ in part[1]]
        part = _members(part)[top.key] if top.kind == OBJECT else part[1][len(top.done)]
    return [part] if isinstance(part, str) else []


def _scalar_may_equal(state: State, value: Value) -> bool:
    mode = state.mode
    if mode == VALUE:
        return True
    if mode == STRING:
        return isinstance(value, str) and value.startswith(state.text)
    if isinstance(value, str):
        return False
    if mode == NUMBER:
        return number_may_equal(state.text, value)
    return bool(value[0] == "word" and value[1].startswith(state.text))


def _may_equal(inside: list[Open], i: int, state: State, value: Value) -> bool:
    """Whether the container ``inside[i]``, with what is open in it, can still equal ``value``."""
    if i < 0:
        return _scalar_may_equal(state, value)
    top = inside[i]
    if isinstance(value, str) or value[0] != ("object" if top.kind == OBJECT else "array"):
        return False
    if top.kind == OBJECT:
        return _object_may_equal(inside, i, state, _members(value))
    done = top.done if top.kind == ARRAY else top.done.items
    items = value[1]
    if len(items) < len(done) or items[: len(done)] != done:
        return False
    if i == 0 and state.mode in (AFTER, VALUE):
        return True
    return len(items) > len(done) and _may_equal(inside, i - 1, state, items[len(done)])


@lru_cache(maxsize=1 << 14)
def _members(value: Value) -> dict[str, Value]:
    return dict(value[1])  # type: ignore[arg-type]  # pairs


def _object_may_equal(inside: list[Open], i: int, state: State, members: dict[str, Value]) -> bool:
    top = inside[i]
    for i_done, (key, member) in enumerate(top.done):
        wanted = members.get(key)
        if wanted is None or (i_done < top.fixed and wanted != member):
            return False
    if i == 0:
        if state.mode in (AFTER, KEY):
            return True
        if state.mode == NAME:
            return any(key.startswith(state.text) for key in members)
        if state.mode == COLON:
            return top.key in members
    return top.key in members and _may_equal(inside, i - 1, state, members[top.key])
