"""The automaton of expressions at the left edge of a left-recursive component (see `transform`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from dotllm import cancellation
from dotllm.errors import UnsupportedError
from dotllm.grammar import kinds as K
from dotllm.grammar.analysis import EMPTY, OTHER
from dotllm.grammar.components import strongly_connected
from dotllm.grammar.grammar import Expression, Grammar

Edge = tuple[int, Expression, int]
NOWHERE = -1


class Rewriting(Protocol):
    """The grammar ``old`` and its rewritten form ``new``; node numbers refer to ``old`` unless stated otherwise."""

    old: Grammar
    new: Grammar
    derives: list[int]
    full: dict[int, Expression]
    """The expression of ``new`` that has the texts of a node."""
    nonempty: dict[int, Expression]
    """The expression of ``new`` that has a node's non-empty texts."""

    def network(self, node: int) -> tuple[int, int, list[int], list[tuple[int, int, int]]]:
        """States, start, finals and productive edges of a NETWORK of ``old``."""


class LeftCorners:
    """Collects the edges of a network for expressions of which nothing has been read yet. State 0 is the start.

    ``inside`` says which expressions are taken apart; the others become edges. ``hubs`` maps every rule whose left
    calls are inside to its hub state.
    """

    def __init__(self, rewriting: Rewriting, inside: Callable[[int], bool]) -> None:
        self.r = rewriting
        self.inside = inside
        self.states = 1
        self.hubs: dict[int, int] = {}
        self.edges: dict[Edge, None] = {}  # a dict, as an ordered set

    def state(self) -> int:
        """A new state."""
        self.states += 1
        return self.states - 1

    def edge(self, source: int, expression: Expression, target: int) -> None:
        """Add an edge, unless it leads NOWHERE or is an epsilon edge from a state to itself."""
        if target != NOWHERE and (source != target or expression != self.r.new.empty()):
            self.edges[source, expression, target] = None

    def begin(self, node: int, source: int, if_empty: int, if_some: int) -> None:
        """Add edges from ``source``, where nothing has been read: to ``if_some`` for the non-empty texts of ``node``,
        and to ``if_empty`` (unless that is NOWHERE) for the empty text.

        Raises:
            UnsupportedError: a left call is in an unordered or a counted part.
        """
        r, old = self.r, self.r.old
        empty = r.new.empty()
        agenda = [(node, source, if_empty, if_some)]
        while agenda:
            cancellation.check()
            node, source, if_empty, if_some = agenda.pop()
            kind, a, b, c = old.kind[node], old.a[node], old.b[node], old.c[node]
            inside = self.inside(node)
            if inside and kind == K.SEQ:
                agenda += self._sequence(old.children[a : a + b], source, if_empty, if_some)
                continue
            if inside and kind == K.NETWORK and not c:
                agenda += self._network(node, source, if_empty, if_some)
                continue
            if r.derives[node] & EMPTY:
                self.edge(source, empty, if_empty)
            if not r.derives[node] & OTHER:
                continue
            if inside and kind == K.CALL:
                self.edge(self.hubs[a], empty, if_some)
            elif inside and kind == K.ALT:
                agenda += [(child, source, NOWHERE, if_some) for child in old.children[a : a + b]]
            elif inside and kind == K.REPEAT:
                # The first non-empty round begins here; the others are an ordinary loop.
                low = 0 if r.derives[a] & EMPTY else max(b - 1, 0)
                rest = r.new.repeat(r.nonempty[a], low, None if c < 0 else c - 1)
                behind = if_some
                if rest != empty:
                    behind = self.state()
                    self.edge(behind, rest, if_some)
                agenda.append((a, source, NOWHERE, behind))
            elif inside:
                raise UnsupportedError(
                    "left recursion through unordered or counted parts cannot be removed", keyword="left recursion"
                )
            else:
                self.edge(source, r.nonempty[node], if_some)

    def _sequence(
        self, parts: Sequence[int], source: int, if_empty: int, if_some: int
    ) -> list[tuple[int, int, int, int]]:
        """Two rows of states: nothing read yet (returned, for `begin`), and something read."""
        r = self.r
        nothing, something = source, NOWHERE
        begin = []
        reading = True
        for i, part in enumerate(parts):
            last = i == len(parts) - 1
            behind = if_some if last else self.state()
            if something != NOWHERE:
                self.edge(something, r.full[part], behind)
            if reading:
                reading = bool(r.derives[part] & EMPTY)
                after = if_empty if last else self.state() if reading else NOWHERE
                begin.append((part, nothing, after, behind))
                nothing = after
            something = behind
        return begin

    def _network(self, node: int, source: int, if_empty: int, if_some: int) -> list[tuple[int, int, int, int]]:
        """Two copies of the states: nothing read yet (only for states at the left edge), and something read."""
        r, empty = self.r, self.r.new.empty()
        _, start, finals, edges = r.network(node)
        at_left = {start}
        agenda = [start]
        silent: dict[int, list[int]] = {}
        for s, expression, t in edges:
            if r.derives[expression] & EMPTY:
                silent.setdefault(s, []).append(t)
        while agenda:  # bounded: by the states, each added once
            for t in silent.get(agenda.pop(), ()):
                if t not in at_left:
                    at_left.add(t)
                    agenda.append(t)
        nothing = {s: self.state() for s in sorted(at_left)}
        something = {s: self.state() for s in sorted({t for _, _, t in edges})}
        self.edge(source, empty, nothing[start])
        begin = []
        for s, expression, t in edges:
            if s in something:
                self.edge(something[s], r.full[expression], something[t])
            if s in nothing:
                begin.append((expression, nothing[s], nothing.get(t, NOWHERE), something[t]))
        for final in finals:
            if final in something:
                self.edge(something[final], empty, if_some)
            if final in nothing:
                self.edge(nothing[final], empty, if_empty)
        return begin

    def contracted(self) -> tuple[int, list[int], list[Edge]]:
        """Number of states, new number of each, and edges, after making every cycle of epsilon edges one state."""
        empty = self.r.new.empty()
        graph: list[list[int]] = [[] for _ in range(self.states)]
        for source, expression, target in self.edges:
            if expression == empty:
                graph[source].append(target)
        number = strongly_connected(graph)
        # The start, to which no edge leads, must be 0 again.
        swap = {number[0]: 0, 0: number[0]}
        place = [swap.get(n, n) for n in number]
        edges = {(place[s], e, place[t]): None for s, e, t in self.edges if e != empty or place[s] != place[t]}
        return max(number) + 1, place, list(edges)
