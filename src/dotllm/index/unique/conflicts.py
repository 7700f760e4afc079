"""Decides whether the unfinished value can still equal an earlier item. Conservative: a wrong answer is always "yes".

If the members of an object may be written again (additional keys may), only its keys are compared. In an object that
must not repeat a key, a key is compared like an item, but only while it is being written.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from dotllm.index.unique.scanner import AFTER, ARRAY, COLON, KEY, NAME, NUMBER, OBJECT, STRING, VALUE, WORD, Open, State
from dotllm.index.unique.values import Chain, Container, Seen, Value, number_may_equal, step_of

_LOOKED_AT = 4  # the most complete parts of an open container that are examined


def earlier_values(state: State) -> int:
    """The number of items of enclosing arrays that the current one must differ from, plus the keys of enclosing objects
    (repeating a key yields no new value)."""
    count, top = 0, state.top
    while True:
        if top.kind != ARRAY:
            count += len(top.done)
        if top.below is None:
            return count
        top = top.below


def has_fewer_conflicts(state: State, completions: int) -> bool:
    """Whether fewer than ``completions`` of the `earlier_values` can still equal the current value. Costs more than
    `earlier_values`."""
    count = 0
    inside: list[Open] = []
    top: Open | None = state.top
    while top is not None and count < completions:
        left = completions - count
        if top.kind == OBJECT:
            count += len(top.done)
        elif isinstance(top.done, Seen):
            if inside:
                values = candidates(top.done, inside, state)
                equal = (value for value in values if _may_equal(inside, state, value))
                count += sum(1 for _ in islice(equal, left))
            elif state.mode == STRING:
                count += sum(1 for _ in islice(top.done.strings(state.text), left)) + 1
            elif state.mode == NUMBER:
                values = top.done.with_number("", state.text)
                equal = (value for value in values if number_may_equal(state.text, value))
                count += sum(1 for _ in islice(equal, left))
            elif state.mode == WORD:
                count += top.done.words(state.text)
            elif state.mode != AFTER:
                count += len(top.done)
        inside.append(top)
        top = top.below
    return count < completions


def cannot_conflict(state: State) -> bool:
    """Whether no current item, in any enclosing array, can equal an earlier one, whatever follows."""
    inside: list[Open] = []  # the open containers of the current item, innermost first
    top: Open | None = state.top
    if state.top.keys is not None and _key_may_conflict(state, state.top.keys):
        return False
    while top is not None:
        if isinstance(top.done, Seen) and len(top.done):
            if not inside:
                if state.mode != AFTER and _scalar_may_conflict(state, top.done):
                    return False
            elif any(_may_equal(inside, state, value) for value in candidates(top.done, inside, state)):
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
    if state.mode == WORD:
        return seen.words(state.text) > 0
    return False  # (it is complete)


def candidates(seen: Seen, inside: list[Open], state: State) -> Iterable[Value]:
    """The items that the current item may equal, judged by one of its parts: a complete scalar that is not written
    again, otherwise the part being written. ``inside``: the item's open containers, innermost first."""
    result, path = _with_complete_part(seen, inside)
    if result is not None:
        return result
    top, mode = inside[0], state.mode
    if mode == NAME:
        return seen.with_path(path + step_of(state.text))
    if mode == COLON:
        return seen.with_path(path + step_of(top.key))
    path += _step_into(top)
    if mode == STRING:
        return seen.with_beginning(path, state.text)
    return seen.with_number(path, state.text) if mode == NUMBER else seen.others


def _with_complete_part(seen: Seen, inside: list[Open]) -> tuple[Iterable[Value] | None, str]:
    """The items that share some complete scalar with the current item (None if that has none), and the path of
    ``inside[0]``."""
    path = ""
    for level in range(len(inside) - 1, -1, -1):
        top = inside[level]
        for name, value in _latest(top):
            result = seen.with_scalar(path + step_of(name), value)
            if result is not None:
                return result, ""
        if level:
            path += _step_into(top)
    return None, path


def _step_into(top: Open) -> str:
    return step_of(top.key if top.kind == OBJECT else len(top.done))


def _latest(top: Open) -> Iterator[tuple[str | int, Value]]:
    """Some complete parts of an open container that no longer change, as (key or position, value), the last first."""
    done: Chain = top.done.order if isinstance(top.done, Seen) else top.done
    skipped = 0 if top.kind != OBJECT else done.size - top.fixed
    for back, part in enumerate(islice(done.latest(), skipped, skipped + _LOOKED_AT)):
        yield part if top.kind == OBJECT else (done.size - skipped - back - 1, part)


class StringConflicts:
    """The strings that must not be completed in ``top`` as a value (as a key, if ``names``): they might make the
    current item equal an earlier one, or repeat a key. Inside such a string nothing else matters."""

    def __init__(self, top: Open, *, names: bool) -> None:
        self.top = top
        self.names = names
        self.mode = NAME if names else STRING
        self._seen: list[tuple[Seen, str]] = []  # with the path of those strings
        self._named: list[tuple[Seen, str]] = []  # with the path of the objects that have those keys
        self._others: list[str] = []  # sorted
        self._find()

    def _find(self) -> None:
        state, others = State(self.top, self.mode), set[str]()
        inside: list[Open] = []
        if self.names and self.top.keys is not None:
            self._seen.append((self.top.keys, ""))
        top: Open | None = self.top
        while top is not None:
            if isinstance(top.done, Seen):
                if not inside:
                    self._seen.append((top.done, ""))
                else:
                    values, path = _with_complete_part(top.done, inside)
                    if values is None and self.names:
                        self._named.append((top.done, path))
                    elif values is None:
                        self._seen.append((top.done, path + _step_into(inside[0])))
                    for value in values or ():
                        if _may_equal(inside, state, value):
                            others.update(_string_at(inside, value, self.mode))
            inside.append(top)
            top = top.below
        self._others = sorted(others)

    def is_inside(self, state: State) -> bool:
        """Whether ``state`` is inside this string."""
        return state.mode == self.mode and state.top is self.top

    def strings(self, text: str) -> Iterator[str]:
        """The strings that begin with ``text``."""
        for seen, path in self._seen:
            yield from seen.strings(text, path)
        for seen, path in self._named:
            yield from seen.names(text, path)
        for at in range(bisect_left(self._others, text), len(self._others)):
            if not self._others[at].startswith(text):
                return
            yield self._others[at]

    def cannot_conflict(self, text: str) -> bool:
        """Same as the module's `cannot_conflict`, for a position inside this string."""
        if any(seen.may_have_string(text, path) for seen, path in self._seen):
            return False
        if any(True for seen, path in self._named for _ in seen.names(text, path)):
            return False
        at = bisect_left(self._others, text)
        return at == len(self._others) or not self._others[at].startswith(text)

    def next_bytes(self, text: str) -> list[int]:
        """The next bytes of the strings that begin with ``text``: a character, the end, or an escape."""
        out = {0x5C}
        for seen, path in self._seen:
            out.update(char.encode()[0] if char else 0x22 for char in seen.next_characters(text, path))
        for seen, path in self._named:
            out.update(
                (name[len(text)].encode()[0] if len(name) > len(text) else 0x22) for name in seen.names(text, path)
            )
        others = self._others
        at = bisect_left(others, text)
        while at < len(others) and others[at].startswith(text):
            if len(others[at]) == len(text):
                out.add(0x22)
                at += 1
                continue
            char = others[at][len(text)]
            out.add(char.encode()[0])
            at = bisect_left(others, text + chr(ord(char) + 1), at) if ord(char) < 0x10FFFF else len(others)
        return sorted(out)


def _string_at(inside: list[Open], value: Value, mode: int) -> Iterable[str]:
    """The string of ``value`` at the position of the current string, if any; for a key, the object's keys."""
    part: Any = value
    for i in range(len(inside) - 1, -1, -1):
        top = inside[i]
        if mode == NAME and i == 0:
            return list(part.members)
        part = part.members[top.key] if top.kind == OBJECT else part.items[len(top.done)]
    return [part] if isinstance(part, str) else []


def _scalar_may_equal(state: State, value: Value) -> bool:
    mode = state.mode
    if mode == VALUE:
        return True
    if mode == STRING:
        return isinstance(value, str) and value.startswith(state.text)
    if not isinstance(value, tuple):
        return False
    if mode == NUMBER:
        return number_may_equal(state.text, value)
    return bool(value[0] == "word" and value[1].startswith(state.text))


def _may_equal(inside: list[Open], state: State, value: Value) -> bool:
    """Whether the current item, with the containers open ``inside`` it (innermost first), can still equal ``value``."""
    for level in range(len(inside) - 1, -1, -1):
        top = inside[level]
        if not isinstance(value, Container) or (value.members is not None) != (top.kind == OBJECT):
            return False
        if not _begins(top, value):
            return False
        members = value.members
        if level == 0 and state.mode in ((AFTER, VALUE) if members is None else (AFTER, KEY)):
            return True
        if members is None:
            if len(value.items) == len(top.done):
                return False
            value = value.items[len(top.done)]
        elif level == 0 and state.mode == NAME:
            return any(key.startswith(state.text) for key in members)
        elif top.key not in members:
            return False
        elif level == 0 and state.mode == COLON:
            return True
        else:
            value = members[top.key]
    return _scalar_may_equal(state, value)


def _begins(top: Open, value: Container) -> bool:
    """Whether ``value`` has the complete parts of ``top``: as its first items, or among its members."""
    if value.members is None:
        done: Chain = top.done if top.kind == ARRAY else top.done.order
        if len(value.items) < len(done):
            return False
        return all(item == mine for item, mine in zip(reversed(value.items[: len(done)]), done.latest(), strict=True))
    for i, (key, member) in enumerate(top.done):
        wanted = value.members.get(key)
        if wanted is None or (i < top.fixed and wanted != member):
            return False
    return True
