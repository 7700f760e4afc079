"""The oracle: a plain recogniser that follows the definition of `Grammar` and shares no code with the machine.

It is an Earley recogniser (J. Earley, 1970) over expression nodes. An *item* ``(node, position, frame)`` says that
expression ``node`` has been matched up to ``position`` (whose meaning depends on the kind of node), and that completing
it completes ``frame``. A *frame* is "expression ``e``, begun at byte ``i``". There is one per ``(e, i)``, so left
recursion and ambiguity terminate; it holds the items that wait for it. An expression at the end of another completes
the frame of the outer one, so right recursion does not pile up frames. (The machine of `automata.machine` also has
items and frames; docs/architecture.md tells them apart.)

Unproductive expressions (no text satisfies them) are never begun. So every item can be completed, and
`Recogniser.allowed_bytes` is exact: a byte is in it if and only if some continuation leads to an accepted text.

Nothing here is fast. Tests compare the fast code with it.
"""

from __future__ import annotations

from collections.abc import Callable

from dotllm.grammar import kinds as K
from dotllm.grammar.grammar import Grammar
from tests.grammar.reference_facts import READERS, Facts, Frame, Item


def accepts(grammar: Grammar, data: bytes) -> bool:
    """Whether ``data`` is a text of ``grammar``."""
    recogniser = Recogniser(grammar)
    return all(recogniser.feed(byte) for byte in data) and recogniser.can_finish


class Recogniser:
    """Reads a text byte by byte, or token ids where the grammar asks for tokens."""

    def __init__(self, grammar: Grammar) -> None:
        self._facts = Facts(grammar)
        self._at = 0
        self._root = Frame(0)
        self._items: list[Item] = []
        self._finish = False
        if self._facts.productive[grammar.start]:
            self._close([self._facts.begin(grammar.start, self._root)], [])

    def feed(self, byte: int) -> bool:
        """Read one byte. Returns False and changes nothing if no text of the grammar continues with it."""
        return self._step(lambda item: self._facts.after_byte(item, byte))

    def feed_token(self, token_id: int) -> bool:
        """Read one token by its id (only `K.TOKENS` reads ids). Returns False and changes nothing if not allowed."""
        return self._step(lambda item: self._facts.after_token(item, token_id))

    @property
    def can_finish(self) -> bool:
        """Whether the text read so far is a text of the grammar."""
        return self._finish

    def allowed_bytes(self) -> set[int]:
        """Every byte that can follow."""
        return {byte for item in self._items for byte in self._facts.next_bytes(item)}

    def allows_token(self, token_id: int) -> bool:
        """Whether this token, read by its id, can follow."""
        return any(self._facts.after_token(item, token_id) is not None for item in self._items)

    def copy(self) -> Recogniser:
        """An independent recogniser at the same place."""
        other = Recogniser.__new__(Recogniser)
        other.__dict__.update(self.__dict__)  # earlier frames and `_items` are never changed in place
        return other

    def _step(self, after: Callable[[Item], Item | Frame | None]) -> bool:
        items: list[Item] = []
        complete: list[Frame] = []
        for item in self._items:
            found = after(item)
            if isinstance(found, Frame):
                complete.append(found)
            elif found is not None:
                items.append(found)
        if not items and not complete:
            return False
        self._at += 1
        self._close(items, complete)
        return True

    def _close(self, items: list[Item], complete: list[Frame]) -> None:
        """Take all steps that need no input: begin the expressions that can begin here, and finish the frames that are
        complete."""
        closure = _Closure(self._facts, self._at)
        closure.run(items, complete)
        self._items = closure.reading
        self._finish = self._root in closure.done


class _Closure:
    """The steps that can be taken at one place in the text without reading."""

    def __init__(self, facts: Facts, at: int) -> None:
        self.facts, self.grammar, self.at = facts, facts.grammar, at
        self.done: set[Frame] = set()
        self.reading: list[Item] = []
        """The items that wait for a byte or a token."""
        self._seen: set[Item] = set()
        self._frames: dict[int, Frame] = {}  # by expression: the frames that begin here
        self._agenda: list[Item] = []
        self._visit: dict[int, Callable[[int, int, Frame], None]] = {
            K.EMPTY: lambda node, position, frame: self._finish(frame),
            K.SEQ: self._sequence,
            K.ALT: self._alternatives,
            K.CALL: self._call,
            K.REPEAT: self._repeat,
            K.NETWORK: self._network,
            K.UNORDERED: self._unordered,
        }

    def run(self, items: list[Item], complete: list[Frame]) -> None:
        """Start from ``items`` and from the frames in ``complete``."""
        for frame in complete:
            self._finish(frame)
        for item in items:
            self._add(item)
        while self._agenda:  # bounded: by the texts of tests, which alone ask this recogniser
            item = self._agenda.pop()
            node, position, frame = item
            kind = self.grammar.kind[node]
            if kind in READERS:
                if kind == K.LITERALS and self.facts.is_word(item):
                    self._finish(frame)
                self.reading.append(item)
            elif kind != K.NEVER:
                assert isinstance(position, int)
                self._visit[kind](node, position, frame)

    def _add(self, item: Item) -> None:
        if item not in self._seen:
            self._seen.add(item)
            self._agenda.append(item)

    def _resume(self, waiter: Item, frame: Frame) -> None:
        # An empty round of a repetition changes nothing (the minimum of such a loop is 0, see `Facts.minimum`).
        if frame.start < self.at or self.grammar.kind[waiter[0]] != K.REPEAT:
            self._add(waiter)

    def _finish(self, frame: Frame) -> None:
        if frame not in self.done:
            self.done.add(frame)
            for waiter in tuple(frame.waiters):
                self._resume(waiter, frame)

    def _begin(self, expression: int, then: Item) -> None:
        """Match ``expression`` from here, and continue with ``then`` once it is complete."""
        frame = self._frames.get(expression)
        if frame is None:
            frame = self._frames[expression] = Frame(self.at)
            self._add(self.facts.begin(expression, frame))
        if then not in frame.waiters:
            frame.waiters.append(then)
            if frame in self.done:
                self._resume(then, frame)

    def _sequence(self, node: int, position: int, frame: Frame) -> None:
        child = self.grammar.children[self.grammar.a[node] + position]
        if position + 1 == self.grammar.b[node]:
            self._add(self.facts.begin(child, frame))
        else:
            self._begin(child, (node, position + 1, frame))

    def _alternatives(self, node: int, position: int, frame: Frame) -> None:
        for child in self.facts.choices[node]:
            self._add(self.facts.begin(child, frame))

    def _call(self, node: int, position: int, frame: Frame) -> None:
        self._add(self.facts.begin(self.facts.body(node), frame))

    def _repeat(self, node: int, position: int, frame: Frame) -> None:
        body, minimum, maximum = self.grammar.a[node], self.facts.minimum(node), self.grammar.c[node]
        if position >= minimum:
            self._finish(frame)
        if self.facts.productive[body] and position != maximum:
            if position + 1 == maximum:
                self._add(self.facts.begin(body, frame))
            else:
                # Without a limit, all counts from the minimum on are the same.
                count = position + 1 if maximum >= 0 else min(position + 1, minimum)
                self._begin(body, (node, count, frame))

    def _network(self, node: int, position: int, frame: Frame) -> None:
        finals, edges = self.facts.networks[node]
        most, states = self.grammar.c[node], self.grammar.children[self.grammar.a[node]]
        # With a limit on the edges, the position also holds how many have been taken.
        taken, position = divmod(position, states) if most else (0, position)
        if position in finals:
            self._finish(frame)
        for expression, target in edges.get(position, ()):
            if most:
                if taken + 1 + self.facts.distances[node][target] <= most:
                    self._begin(expression, (node, (taken + 1) * states + target, frame))
            elif target in finals and target not in edges:
                self._add(self.facts.begin(expression, frame))
            else:
                self._begin(expression, (node, target, frame))

    def _unordered(self, node: int, position: int, frame: Frame) -> None:
        """The steps of an UNORDERED. Its position says which parts have been used (as bits) and whether a part has just
        been matched."""
        separator, parts, required, once = self.facts.unordered(node)
        used, behind = position >> 1, position & 1
        free = [i for i in parts if i >= once or not used >> i & 1]
        if not behind:
            for i in free:
                self._begin(parts[i], (node, (used | (1 << i if i < once else 0)) << 1 | 1, frame))
        else:
            if used & (1 << required) - 1 == (1 << required) - 1:
                self._finish(frame)
            if free:
                self._begin(separator, (node, used << 1, frame))
