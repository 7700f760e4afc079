"""Caches the machine's steps by bytes, and finds where marked arrays and objects begin.

Most steps of a look-ahead have been taken before: the inside of a string is one configuration. The cache belongs to an
index and, like its configurations, lives as long as the index.
"""

from __future__ import annotations

import json
import re
import weakref
from functools import cached_property
from typing import ClassVar, NamedTuple

import numba as nb
import numpy as np

from dotllm.arrays import Int32, UInt8
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.arena import FUEL
from dotllm.automata.machine.closure import begin, close, touch
from dotllm.automata.machine.layout import MEM
from dotllm.automata.machine.run import advance_bytes, configuration, resolve_stack, run_bytes, token_step
from dotllm.errors import BudgetExceededError
from dotllm.index.kernels import I1, I2, U8, I
from dotllm.index.unique.conflicts import StringConflicts
from dotllm.index.unique.scanner import AFTER, KEY, OBJECT, OUTSIDE, START, VALUE, WHITESPACE, End, State, feed
from dotllm.index.walkable import Walkable
from dotllm.jit import inner_kernel, kernel
from dotllm.vocabulary import Vocabulary

OPENINGS = b"[{"
_KEPT = 1 << 16  # the most configurations cached (some 30 MB); then the cache is cleared

NONE, ALL, SOME = range(3)
"""Whether the next bracket begins an array without equal items (or an object without equal keys): in no possible text,
in all, or in some."""


@kernel(I(nb.int32[::1], U8, I, I1, I))
def expand(mem: Int32, class_bytes: UInt8, config: int, out: Int32, fuel: int) -> int:
    """out[c]: the configuration after a byte of class c; 0: not allowed. Returns 0, or the error of a kernel."""
    for cls in range(out.shape[0]):
        at = mem[L.AT_CONFIG] + 3 * config
        state, stack = I(mem[at]), I(mem[at + 1])
        mem[L.H_FUEL] = fuel
        after = run_bytes(mem, state, stack, class_bytes, cls, cls + 1)
        if after > 0:
            after = configuration(mem, after, mem[L.H_OUT])
        if after < 0:
            return after
        out[cls] = after
    return 0


@inner_kernel(I(MEM, I, I), inlined=True)
def resolved(mem: Int32, raw: int, stack: int) -> int:
    """The configuration of a raw state over a stack, or an error."""
    state = resolve_stack(mem, raw, stack)
    return configuration(mem, state, mem[L.H_OUT]) if state >= 0 else state


@kernel(I(MEM, I, I2))
def only(mem: Int32, config: int, items: Int32) -> int:
    """The configuration that keeps only ``items`` of ``config``, or an error. items int32 [n, 2]: (node, frame set)."""
    begin(mem)
    for i in range(items.shape[0]):
        done = touch(mem, items[i, 0], items[i, 1])
        if done < 0:
            return done
    raw = close(mem)
    return raw if raw < 0 else resolved(mem, raw, I(mem[mem[L.AT_CONFIG] + 3 * config + 1]))


@kernel(I(MEM, I, I2, I))
def by_id(mem: Int32, config: int, token_rows: Int32, token: int) -> int:
    """The configuration after a token that the grammar asks for by its id; -1 if it does not ask for it; or an
    error."""
    at = mem[L.AT_CONFIG] + 3 * config
    raw = token_step(mem, I(mem[at]), token_rows, token)
    if raw <= 0:
        return raw if raw < 0 else I(-1)
    return resolved(mem, raw, I(mem[at + 1]))


ANY_STEPS = 1 << 60


class Paths:
    """See the module. `of` returns the paths of an index."""

    _known: ClassVar[weakref.WeakKeyDictionary[Walkable, Paths]] = weakref.WeakKeyDictionary()

    @classmethod
    def of(cls, index: Walkable) -> Paths:
        """The paths of ``index``."""
        result = cls._known.get(index)
        if result is None:
            result = cls._known[index] = cls(index)
        return result

    def __init__(self, index: Walkable) -> None:
        self._index = weakref.ref(index)
        self._rows: dict[int, list[int]] = {}
        self._steps: dict[tuple[int, int], int] = {}
        self._openings: dict[tuple[int, int], int] = {}
        self._splits: dict[tuple[int, int], tuple[int, int]] = {}
        self._allowed: dict[int, tuple[int, ...]] = {}
        self._plain_steps: dict[int, tuple[tuple[int, int], ...]] = {}
        mem = index.mem
        first, classes = int(mem[L.H_CLASS_BYTE]), int(mem[L.H_CLASSES])
        self._class_bytes = mem[first : first + classes].astype(np.uint8)
        self._after: Int32 = np.empty(classes, np.int32)  # what `expand` fills, under the index's lock
        self._one_byte = [self._class_bytes[cls : cls + 1] for cls in range(classes)]
        first = int(mem[L.H_CLASS_OF])
        self._class_of = mem[first : first + 256].tolist()
        self._plain = self._plain_classes()
        self.openings = self._marked_brackets()
        self.counts: dict[object, tuple[int, int]] = {}  # of `count_lower_bound`: bound, last limit
        self.string_conflicts: dict[int, StringConflicts] = {}  # by the id of the object that holds them; see `masks`
        self.unsafe: dict[object, tuple[int, ...]] = {}  # see `masks`
        self.ways: dict[tuple[int, bool], list[tuple[int, int]]] = {}  # see `plans`
        self.fewest_tokens: dict[int, bytes] = {}  # texts, by configuration; see `plans`
        self.plan_texts: dict[int, tuple[bytes, bool]] = {}  # by configuration; see `plans`
        self.search_steps = ANY_STEPS  # steps that searches may still take; see `plans`
        self.repeats_nothing: bool | None = None  # see `plans`
        self.needs_several = False  # the shortest way through an array has several items; see `plans`

    @property
    def index(self) -> Walkable:
        """The index of these paths."""
        index = self._index()
        assert index is not None  # callers have a guide, which keeps it alive
        return index

    def step(self, config: int, byte: int) -> int:
        """The configuration after one byte; -1: not allowed.

        Only this byte is tried: a token reads a byte or two of most configurations, and in some, each further byte
        leads to a new state.
        """
        cls = self._class_of[byte]
        row = self._rows.get(config)
        if row is not None:
            return row[cls]
        after = self._steps.get((config, cls))
        if after is None:
            if len(self._steps) >= _KEPT:
                self._steps.clear()
            index, data = self.index, self._one_byte[cls]
            with index.lock:
                after = index.run(lambda mem: int(advance_bytes(mem, config, data)))
            self._steps[config, cls] = after
        return after

    def _expand(self, config: int) -> list[int]:
        """The configurations after one byte, by the byte's class."""
        known = self._rows.get(config)
        if known is not None:
            return known
        if len(self._rows) >= _KEPT:
            self._rows.clear()
        index = self.index
        with index.lock:
            index.run(lambda mem: int(expand(mem, self._class_bytes, config, self._after, FUEL)))
            row = [after or -1 for after in self._after.tolist()]
        self._rows[config] = row
        return row

    def _marked_brackets(self) -> bytes:
        """The brackets of OPENINGS that begin a marked array or object somewhere."""
        return bytes(b for b in OPENINGS if any(self._takes(node, b) for node in self.index.unique_nodes))

    def _takes(self, node: int, byte: int) -> bool:
        """Whether ``byte`` may be read at a node of the automaton."""
        mem = self.index.mem
        edges = mem[mem[L.H_EDGE_START] + node : mem[L.H_EDGE_START] + node + 2].tolist()
        packed = mem[mem[L.H_EDGE_BYTES] + edges[0] : mem[L.H_EDGE_BYTES] + edges[1]].tolist()
        return any(p & 255 <= byte <= p >> 8 for p in packed)

    def _plain_classes(self) -> list[tuple[int, int]]:
        """(a byte, the number of bytes in its class) for the characters that need no escape in a JSON string."""
        counts: dict[int, list[int]] = {}
        for byte in range(0x20, 0x7F):
            if byte not in b'"\\':
                counts.setdefault(self._class_of[byte], []).append(byte)
        return [(alike[0], len(alike)) for alike in counts.values()]

    def plain_steps(self, config: int) -> tuple[tuple[int, int], ...]:
        """(a configuration, how many characters that need no escape lead to it), for all such configurations."""
        result = self._plain_steps.get(config)
        if result is None:
            if len(self._plain_steps) >= _KEPT:
                self._plain_steps.clear()
            counts: dict[int, int] = {}
            row = self._expand(config)
            for byte, alike in self._plain:
                target = row[self._class_of[byte]]
                if target >= 0:
                    counts[target] = counts.get(target, 0) + alike
            result = self._plain_steps[config] = tuple(counts.items())
        return result

    def allowed(self, config: int) -> tuple[int, ...]:
        """The bytes that may come next."""
        result = self._allowed.get(config)
        if result is None:
            if len(self._allowed) >= _KEPT:
                self._allowed.clear()
            row = self._expand(config)
            result = tuple(byte for byte in range(256) if row[self._class_of[byte]] >= 0)
            self._allowed[config] = result
        return result

    def opening(self, config: int, bracket: int) -> int:
        """NONE, ALL or SOME, for the bracket (one of OPENINGS) that may come next."""
        result = self._openings.get((config, bracket))
        if result is None:
            marked, others = self._items(config, bracket)
            result = self._openings[config, bracket] = NONE if not marked else ALL if not others else SOME
        return result

    def may_mark(self, config: int, data: bytes) -> bool:
        """Whether a marked array or object may begin in ``data``, read at ``config`` outside of all of them. (True if
        ``data`` is not allowed.)"""
        last = max((data.rfind(bracket) for bracket in self.openings), default=-1)
        for byte in data[: last + 1]:
            if config < 0 or (byte in self.openings and self.opening(config, byte) != NONE):
                return True
            config = self.step(config, byte)
        return False

    def split(self, config: int, bracket: int) -> tuple[int, int]:
        """For SOME: the configurations after the bracket if it is marked, and if it is not."""
        result = self._splits.get((config, bracket))
        if result is None:
            marked, others = self._items(config, bracket)
            result = self._splits[config, bracket] = (
                self.step(self._only(config, marked), bracket),
                self.step(self._only(config, others), bracket),
            )
        return result

    def by_id(self, config: int, token: int) -> int:
        """The configuration after ``token`` if the grammar asks for it by its id; otherwise -1. Not for FINISHED."""
        index = self.index
        with index.lock:
            return index.run(lambda mem: int(by_id(mem, config, index.token_rows, token)))

    def _items(self, config: int, bracket: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """The items (node, frame set) that take a bracket: the marked items, and the others (which do not matter if
        none is marked)."""
        index = self.index
        marked: list[tuple[int, int]] = []
        others: list[tuple[int, int]] = []
        with index.lock:
            mem = index.mem
            state = int(mem[mem[L.AT_CONFIG] + 3 * config])
            entry = mem[L.AT_STATE] + L.S_WIDTH * state
            first = int(mem[L.AT_POOL] + mem[entry + L.S_OFFSET])
            flat = mem[first : first + int(mem[entry + L.S_LENGTH])].tolist()
            if index.unique_nodes.isdisjoint(flat[::2]):
                return marked, others
            for node, frames in zip(flat[::2], flat[1::2], strict=True):
                if self._takes(node, bracket):
                    (marked if node in index.unique_nodes else others).append((node, frames))
        return marked, others

    def _only(self, config: int, items: list[tuple[int, int]]) -> int:
        """The configuration that keeps only ``items`` of ``config``."""
        index, pairs = self.index, np.array(items, np.int32)
        with index.lock:
            return index.run(lambda mem: int(only(mem, config, pairs)))


# Data derived once from a vocabulary: tokens that may hold more than one item, and the children of trie nodes.


# A comma, perhaps after the closing quote of the current string, or after a bracket.
_GOES_ON = re.compile(rb",")
_LEAVES_AND_GOES_ON = re.compile(rb'".*,', re.DOTALL)
_OPENS_AND_GOES_ON = re.compile(rb"[\[{].*,", re.DOTALL)
_OPENS = re.compile(rb"[\[{]")
_BREAKS = re.compile(rb'["\\]')

ROOT = -1


class Tokens:
    """The data derived from one vocabulary (`of`)."""

    _known: ClassVar[weakref.WeakKeyDictionary[Vocabulary, Tokens]] = weakref.WeakKeyDictionary()

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> Tokens:
        """The tokens of ``vocabulary``."""
        result = cls._known.get(vocabulary)
        if result is None:
            result = cls._known[vocabulary] = cls(vocabulary)
        return result

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.trie = vocabulary.trie
        self._words = vocabulary.words
        self._data = vocabulary.token_data.tobytes()
        self._offset = vocabulary.token_offset
        self._children: dict[int, dict[int, int]] = {}
        self._ending: dict[int, list[int]] = {}

    def bytes_of(self, token: int) -> bytes:
        """The bytes of a token; b"" if it stands for no text."""
        return self._data[self._offset[token] : self._offset[token + 1]]

    @cached_property
    def going_on(self) -> Int32:
        """Bitmask: tokens with a comma."""
        return self._matching(_GOES_ON, b",")

    @cached_property
    def leaving(self) -> Int32:
        """Bitmask: tokens in which a comma follows a quote."""
        return self._matching(_LEAVES_AND_GOES_ON, b'"')

    @cached_property
    def opening(self) -> Int32:
        """Bitmask: tokens in which a comma follows an opening bracket."""
        return self._matching(_OPENS_AND_GOES_ON, b",")

    @cached_property
    def opening_texts(self) -> list[tuple[int, bytes]]:
        """The tokens of `opening` (a dozen of 131,072), with their bytes."""
        return [(token, self.bytes_of(token)) for token in listed(self.opening)]

    @cached_property
    def with_brackets(self) -> Int32:
        """Bitmask: tokens with an opening bracket."""
        return self._matching(_OPENS, b"[") | self._matching(_OPENS, b"{")

    @cached_property
    def breaking(self) -> Int32:
        """Bitmask: tokens that do more than continue a string: they have a quote or a backslash."""
        return self._matching(_BREAKS, b'"') | self._matching(_BREAKS, b"\\")

    def children(self, node: int) -> dict[int, int]:
        """The children of a node of the token trie, by byte."""
        result = self._children.get(node)
        if result is None:
            trie = self.trie
            at, end = (0, len(trie.byte)) if node == ROOT else (node + 1, int(trie.end[node]))
            result = {}
            while at < end:
                result[int(trie.byte[at])] = at
                at = int(trie.end[at])
            self._children[node] = result
        return result

    @cached_property
    def behind_blanks(self) -> dict[int, list[tuple[bytes, int]]]:
        """A byte of JSON's structure → (white space, node) for each trie node that it reaches after white space."""
        out: dict[int, list[tuple[bytes, int]]] = {}
        agenda = [(b"", ROOT)]
        while agenda:
            blank, node = agenda.pop()
            for byte, child in self.children(node).items():
                if byte in b" \t\n\r":
                    agenda.append((blank + bytes((byte,)), child))
                elif byte in b'"{}[],:-0123456789tfn':
                    out.setdefault(byte, []).append((blank, child))
        return out

    def ending_at(self, node: int) -> list[int]:
        """The tokens that end at a node."""
        result = self._ending.get(node)
        if result is None:
            start = self.trie.token_start
            result = self._ending[node] = self.trie.tokens[start[node] : start[node + 1]].tolist()
        return result

    def below(self, node: int) -> Int32:
        """The tokens that end at a node or below it."""
        start = self.trie.token_start
        return self.trie.tokens[start[node] : start[int(self.trie.end[node])]]

    def _matching(self, pattern: re.Pattern[bytes], needed: bytes) -> Int32:
        """Bitmask of the tokens in which ``pattern`` matches. Only tokens with the byte ``needed`` are tried."""
        members = np.zeros(self._words * 32, np.uint8)
        at = np.flatnonzero(np.frombuffer(self._data, np.uint8) == needed[0])
        candidates = np.unique(np.searchsorted(self._offset, at, side="right") - 1)
        for token in candidates.tolist():
            if pattern.search(self.bytes_of(token)):
                members[token] = 1
        return np.packbits(members, bitorder="little").view(np.int32)


def listed(mask: Int32) -> list[int]:
    """The tokens of a bitmask."""
    words = np.flatnonzero(mask)
    bits = np.unpackbits(mask[words].view(np.uint8), bitorder="little").reshape(-1, 32)
    rows, columns = np.nonzero(bits)
    tokens: list[int] = (words[rows] * 32 + columns).tolist()
    return tokens


def first_of(mask: Int32) -> int:
    """The first token of a bitmask, which has one. Listing all of them takes milliseconds."""
    word = int(np.argmax(mask != 0))
    bits = int(mask[word]) & 0xFFFFFFFF
    return 32 * word + (bits & -bits).bit_length() - 1


# A branch: a configuration of the machine, and the text read so far of the marked array (or object) around it.
#
# Nearly always there is one branch. There are more if alternatives overlap, so that the same text may be an array with
# ``uniqueItems`` or an array without it (likewise an object). Then every branch follows the text, and the text is
# allowed as long as at least one branch can continue.


class Branch(NamedTuple):
    """``state``: the scanner's state; OUTSIDE if no marked array or object is open."""

    config: int
    state: State | End


Branches = tuple[Branch, ...]
MOST_BRANCHES = 64  # after a token: each takes a fraction of a millisecond at every step
_MOST_WITHIN_TOKEN = 1024


def step(paths: Paths, branches: Branches, byte: int) -> Branches:
    """The branches after one byte; (): the byte is not allowed. Raises BudgetExceededError if there are too many."""
    if len(branches) == 1:
        return one_step(paths, branches[0], byte)
    out: list[Branch] = []
    by_config: dict[int, list[Branch]] = {}
    for branch in branches:
        for after in one_step(paths, branch, byte):
            same = by_config.setdefault(after.config, [])
            if after not in same:
                same.append(after)
                out.append(after)
    check_branches(len(out), _MOST_WITHIN_TOKEN)
    return tuple(out)


def check_branches(count: int, most: int = MOST_BRANCHES) -> None:
    """Raise BudgetExceededError for too many branches: each nested array that may be marked or not doubles them."""
    if count > most:
        raise BudgetExceededError(
            f"nested arrays can be read in more than {most} ways that differ in which arrays have 'uniqueItems': give "
            "all alternatives of an array the same 'uniqueItems'",
            keyword="uniqueItems",
        )


def one_step(paths: Paths, branch: Branch, byte: int) -> Branches:
    """`step` for a single branch."""
    config, state = branch
    if byte in OPENINGS:
        begins = not isinstance(state, State) or state.mode == VALUE
        opening = paths.opening(config, byte) if begins else NONE
        if opening != NONE:
            configs = (paths.step(config, byte), -1) if opening == ALL else paths.split(config, byte)
            inside = feed(state, byte, True) if isinstance(state, State) else START[byte]
            out = [Branch(configs[0], inside)] if configs[0] >= 0 else []
            if configs[1] >= 0:
                out.append(Branch(configs[1], feed(state, byte) if isinstance(state, State) else OUTSIDE))
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
    quoted = json.dumps(top.done.last[0], ensure_ascii=False).encode()
    for part in (b",", quoted, b":") if state.mode == AFTER else (quoted, b":"):
        for i, byte in enumerate(part):
            after = paths.step(config, byte)
            if after < 0:
                if i == 0 and any(paths.step(config, blank) >= 0 for blank in WHITESPACE):
                    return state  # perhaps after some white space
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
