"""JSON values in a form whose equality is JSON Schema's (Core §4.2.2), whatever the spelling.

A string is a ``str``, an array or object a `Container`; any other value is a tuple that begins with its kind. A number
is its sign, its digits without zeros at either end, and the exponent of the last digit: this is exact for any exponent,
while a `Fraction` would have to write out all digits.

Equal containers are one Python object (hash consing: J.-C. Filliâtre and S. Conchon, "Type-safe modular hash-consing",
ML 2006). So comparing and hashing take the same short time for every value, and never recurse: a text may be nested
deeper than Python's stack.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

# A persistent sorted list of (key, value): an insertion makes a new list, which shares nearly everything with the old
# one.
#
# A B-tree whose path to the new entry is copied (J. R. Driscoll et al., "Making data structures persistent", JCSS 38,
# 1989), so each of the thousands of versions that a guide may go back to costs a few hundred bytes.

Key = tuple[str, str, str]
_MOST = 16  # the most entries of a node
NODE_BYTES = 350  # the approximate bytes of a copied node


class Node(NamedTuple):
    """``keys``: the keys of a leaf's entries, or the first key of each of the ``children``."""

    keys: tuple[Key, ...] = ()
    values: tuple[Any, ...] = ()
    children: tuple[Node, ...] = ()


EMPTY = Node()


def inserted(root: Node, key: Key, value: object) -> Node:
    """``root`` with one more entry, after those with the same key."""
    parts = _inserted(root, key, value)
    return parts[0] if len(parts) == 1 else Node(tuple(part.keys[0] for part in parts), (), parts)


def _inserted(node: Node, key: Key, value: object) -> tuple[Node, ...]:
    keys, values, children = node
    if not children:
        at = bisect_right(keys, key)
        keys, values = (*keys[:at], key, *keys[at:]), (*values[:at], value, *values[at:])
    else:
        at = max(0, bisect_right(keys, key) - 1)
        parts = _inserted(children[at], key, value)
        keys = (*keys[:at], *(part.keys[0] for part in parts), *keys[at + 1 :])
        children = (*children[:at], *parts, *children[at + 1 :])
    if len(keys) <= _MOST:
        return (Node(keys, values, children),)
    half = _MOST // 2
    return Node(keys[:half], values[:half], children[:half]), Node(keys[half:], values[half:], children[half:])


def entries(node: Node, first: Key) -> Iterator[tuple[Key, Any]]:
    """The entries (key, value) from the key ``first`` on."""
    if not node.children:
        for at in range(bisect_left(node.keys, first), len(node.keys)):
            yield node.keys[at], node.values[at]
        return
    begin = max(0, bisect_left(node.keys, first) - 1)  # (equal keys may begin in the child before)
    for at in range(begin, len(node.children)):
        yield from entries(node.children[at], first)


def find(node: Node, first: Key) -> Key | None:
    """The first key that is not below ``first``."""
    behind: Key | None = None
    while node.children:
        at = max(0, bisect_left(node.keys, first) - 1)
        if at + 1 < len(node.keys):
            behind = node.keys[at + 1]
        node = node.children[at]
    at = bisect_left(node.keys, first)
    return node.keys[at] if at < len(node.keys) else behind


def depth(node: Node) -> int:
    """The number of nodes that an insertion copies."""
    levels = 1
    while node.children:
        node, levels = node.children[0], levels + 1
    return levels


class Container:
    """An array or an object. Only `array` and `object_of` make containers, so equal containers are identical."""

    __slots__ = ("__weakref__", "items", "members")

    def __init__(self, items: tuple[Value, ...], members: Mapping[str, Value] | None) -> None:
        self.items = items
        """The items of an array; empty in an object."""
        self.members = members
        """The members of an object; None in an array."""


Value = str | tuple[Any, ...] | Container
"""A string, ``("word", "true")``, ``("number", negative, digits, exponent)``, or a `Container`."""

_containers: WeakValueDictionary[object, Container] = WeakValueDictionary()
_making = threading.Lock()  # (guides may be walked in several threads)


def array(items: tuple[Value, ...]) -> Container:
    """The array of these items."""
    with _making:
        known = _containers.get(items)
        if known is None:
            known = _containers[items] = Container(items, None)
    return known


def object_of(members: Mapping[str, Value]) -> Container:
    """The object of these members."""
    key = frozenset(members.items())
    with _making:
        known = _containers.get(key)
        if known is None:
            known = _containers[key] = Container((), members)
    return known


ZERO: Value = ("number", False, "", 0)
_ITEM_BYTES = 400  # the approximate bytes of one value, with its states


def _integer(text: str) -> int:
    """As ``int``, but without Python's limit on digits."""
    sign, digits = (-1, text[1:]) if text[:1] == "-" else (1, text.removeprefix("+"))
    number = 0
    for at in range(0, len(digits), 4000):
        part = digits[at : at + 4000]
        number = number * 10 ** len(part) + int(part)
    return sign * number


def number(text: str) -> Value:
    """The value of a number, from its text."""
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    significant = digits.rstrip("0")
    if not significant:
        return ZERO
    last = len(digits) - len(significant) - len(fraction) + (_integer(exponent) if exponent else 0)
    return ("number", mantissa.startswith("-"), significant, last)


def _digits(text: str) -> str:
    """The digits of a number's mantissa, without leading zeros."""
    return text.lower().partition("e")[0].lstrip("-").replace(".", "").lstrip("0")


def number_may_equal(text: str, value: Value) -> bool:
    """Whether a number that begins with ``text`` can equal ``value``, in some spelling of RFC 8259."""
    if not isinstance(value, tuple) or value[0] != "number":
        return False
    _, negative, significant, _ = value
    digits = _digits(text)
    if not significant:
        return not digits
    if text.startswith("-") != negative:
        return False
    if "e" in text.lower():
        return bool(digits.rstrip("0") == significant)
    return bool((significant + "0" * len(digits)).startswith(digits))


class Chain:
    """Values in order. Immutable: adding a value makes another chain, which refers to this one."""

    __slots__ = ("_hash", "before", "last", "size")

    def __init__(self, before: Chain | None = None, last: Any = None) -> None:
        self.before = before
        self.last = last
        self.size: int = 0 if before is None else before.size + 1
        self._hash: int = 0 if before is None else hash((before._hash, last))

    def plus(self, value: Any) -> Chain:
        """This chain with one more value."""
        return Chain(self, value)

    def latest(self) -> Iterator[Any]:
        """The values, the last one first."""
        chain = self
        while chain.before is not None:
            yield chain.last
            chain = chain.before

    def __iter__(self) -> Iterator[Any]:
        return reversed([*self.latest()])

    @property
    def nbytes(self) -> int:
        """Its approximate bytes, with the states on the way, but without the bytes of the values themselves."""
        return _ITEM_BYTES * self.size

    def __len__(self) -> int:
        return self.size

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Chain) or self.size != other.size or self._hash != other._hash:
            return False
        return all(mine == its for mine, its in zip(self.latest(), other.latest(), strict=True))


NOTHING = Chain()
_STRING, _NUMBER, _WORD, _EMPTY, _WHOLE = "snweh"
_LAST = chr(0x10FFFF)


def step_of(key: str | int) -> str:
    """The part of a path that leads to a member or an item."""
    return "/" + (key.replace("~", "~0").replace("/", "~1") if isinstance(key, str) else str(key))


def scalar_key(path: str, value: Value) -> Key | None:
    """The key under which `Seen` keeps a scalar or empty container at this path of an item; None for other values."""
    if isinstance(value, str):
        return (path, _STRING, value)
    if isinstance(value, Container):
        return None if value.items or value.members else (path, _EMPTY, "")
    return (path, _WORD, value[1]) if value[0] == "word" else (path, _NUMBER, "-" * value[1] + value[2])


class Seen:
    """The items of an array so far, in order, or the keys of an object. Immutable: adding an item makes another `Seen`.

    All scalars of all items are in one sorted tree, by their paths, so the few items that agree with what has been read
    of the current item are found quickly.
    """

    __slots__ = ("_hash", "_tree", "nbytes", "order")

    def __init__(self) -> None:
        self.order = NOTHING
        """The items, as a chain."""
        self._tree = EMPTY
        self._hash = 0
        self.nbytes = 0
        """The approximate bytes of all items, and of earlier versions of this object."""

    def plus(self, item: Value) -> Seen:
        """These items with one more."""
        new = Seen()
        new.order = self.order.plus(item)
        new._hash = self._hash ^ hash(item)
        tree, nbytes = self._tree, self.nbytes + _ITEM_BYTES
        for key in _keys(item):
            tree = inserted(tree, key, item)
            nbytes += NODE_BYTES * depth(tree) + len(key[0]) + len(key[2])
        new._tree, new.nbytes = tree, nbytes
        return new

    @property
    def items(self) -> tuple[Value, ...]:
        """All items."""
        return tuple(self.order)

    @property
    def others(self) -> Iterator[Value]:
        """The arrays and objects among the items."""
        return self._while(("", _WHOLE, ""), lambda key: key[:2] == ("", _WHOLE))

    def has(self, item: Value) -> bool:
        """Whether the value is one of the items."""
        key = scalar_key("", item) or ("", _WHOLE, str(hash(item)))
        return any(other == item for other in self._while(key, key.__eq__))

    def with_scalar(self, path: str, value: Value) -> Iterator[Value] | None:
        """The items that may have this value at ``path``; None if such values are not indexed."""
        key = scalar_key(path, value)
        return None if key is None else self._while(key, key.__eq__)

    def with_path(self, path: str) -> Iterator[Value]:
        """The items that have a path beginning with ``path``."""
        return self._while((path, "", ""), lambda key: key[0].startswith(path))

    def with_beginning(self, path: str, text: str) -> Iterator[Value]:
        """The items with a string at ``path`` that begins with ``text``."""
        return self._while(
            (path, _STRING, text), lambda key: key[0] == path and key[1] == _STRING and key[2].startswith(text)
        )

    def with_number(self, path: str, text: str) -> Iterator[Value]:
        """The items with a number at ``path`` that a number beginning with ``text`` may equal, and perhaps others."""
        wanted = "-" * text.startswith("-") + _digits(text)
        whole = "" if wanted == "-" else wanted.rstrip("0")
        longer = self._while(
            (path, _NUMBER, wanted), lambda key: key[0] == path and key[1] == _NUMBER and key[2].startswith(wanted)
        )
        if whole == wanted:
            return longer
        exactly = (path, _NUMBER, whole)
        return chain(self._while(exactly, exactly.__eq__), longer)

    def may_have_string(self, text: str, path: str = "") -> bool:
        """Whether some item has a string at ``path`` that begins with ``text``."""
        result = find(self._tree, (path, _STRING, text))
        return result is not None and result[:2] == (path, _STRING) and result[2].startswith(text)

    def next_characters(self, text: str, path: str = "") -> Iterator[str]:
        """What follows ``text`` in the strings at ``path``: characters, or "" for the end, each once."""
        entry = find(self._tree, (path, _STRING, text))
        while entry is not None and entry[:2] == (path, _STRING) and entry[2].startswith(text):
            if len(entry[2]) == len(text):
                yield ""
                entry = find(self._tree, (path, _STRING, text + "\0"))
                continue
            char = entry[2][len(text)]
            yield char
            if char == _LAST:
                return
            entry = find(self._tree, (path, _STRING, text + chr(ord(char) + 1)))

    def names(self, text: str, path: str) -> Iterator[str]:
        """The keys that begin with ``text`` in objects at ``path`` (and positions of items); a key may come twice."""
        begun = path + step_of(text)
        entry = find(self._tree, (begun, "", ""))
        while entry is not None and entry[0].startswith(begun):
            name, slash, _ = entry[0][len(path) + 1 :].partition("/")
            yield name.replace("~1", "/").replace("~0", "~")
            whole = path + "/" + name  # after all its paths ("0" follows "/"), where the next names are
            entry = find(self._tree, (whole + "0", "", "") if slash else (whole, _LAST, ""))

    def strings(self, text: str, path: str = "") -> Iterator[str]:
        """The strings at ``path`` that begin with ``text``."""
        for key, _ in entries(self._tree, (path, _STRING, text)):
            if key[:2] != (path, _STRING) or not key[2].startswith(text):
                return
            yield key[2]

    def words(self, text: str) -> int:
        """The number of items that are true, false or null and begin with ``text``."""
        return sum(1 for _ in self._while(("", _WORD, text), lambda key: key[1] == _WORD and key[2].startswith(text)))

    def may_have_number(self, text: str) -> bool:
        """Whether some item is a number that a number beginning with ``text`` may equal (see `number_may_equal`)."""
        digits, exponent = _digits(text), "e" in text.lower()
        if not digits:
            is_negative = text.startswith("-")
            return self._has("", exactly=exponent or is_negative) or (
                not exponent and is_negative and self._has("-", exactly=False)
            )
        wanted = "-" * text.startswith("-") + digits
        return self._has(wanted.rstrip("0"), exactly=True) or (not exponent and self._has(wanted, exactly=False))

    def _has(self, digits: str, *, exactly: bool) -> bool:
        result = find(self._tree, ("", _NUMBER, digits))
        if result is None or result[:2] != ("", _NUMBER):
            return False
        return result[2] == digits if exactly else result[2].startswith(digits)

    def _while(self, first: Key, fits: Callable[[Key], bool]) -> Iterator[Value]:
        for key, item in entries(self._tree, first):
            if not fits(key):
                return
            yield item

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Seen) and self._hash == other._hash and self.order == other.order)

    def __hash__(self) -> int:
        return self._hash

    def __len__(self) -> int:
        return self.order.size


def _keys(item: Value) -> Iterator[Key]:
    """The keys of an item's scalars and empty containers, and, for a container, the key of the whole."""
    if isinstance(item, Container):
        yield ("", _WHOLE, str(hash(item)))
    agenda: list[tuple[str, Value]] = [("", item)]
    while agenda:
        path, value = agenda.pop()
        key = scalar_key(path, value)
        if key is not None:
            yield key
        elif isinstance(value, Container):
            parts: Iterable[tuple[str | int, Value]] = enumerate(value.items)
            if value.members is not None:
                parts = value.members.items()
            agenda += [(path + step_of(name), part) for name, part in parts]
