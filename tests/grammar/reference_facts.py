"""What the oracle (`reference`) knows about a grammar before it reads, and the form of its items."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

from dotllm.grammar import kinds as K
from dotllm.grammar.grammar import Expression, Grammar
from dotllm.grammar.kinds import UNDEFINED

# Where an item is in its node: an int (matched bytes, matched parts, or a network's state), or (first, last + 1,
# matched bytes) for the words of a LITERALS that are still possible, or the matched bytes of a code point.
Position = int | tuple[int, int, int] | bytes


class Frame:
    """One expression begun at one place, with the items that wait for its completion."""

    __slots__ = ("start", "waiters")

    def __init__(self, start: int) -> None:
        self.start = start
        self.waiters: list[Item] = []


Item = tuple[int, Position, Frame]


READERS = frozenset({K.LITERAL, K.BYTES, K.CHARS, K.LITERALS, K.TOKENS})
Edges = dict[int, list[tuple[int, int]]]


class Facts:
    """The facts of a grammar: which nodes are nullable, which are productive, and how each steps."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self._chars: dict[tuple[int, bytes], frozenset[int]] = {}
        self._networks = {node: _network(grammar, node) for node, kind in enumerate(grammar.kind) if kind == K.NETWORK}
        self.productive = self._least_fixpoint(self._is_productive)
        self.nullable = self._least_fixpoint(self._is_nullable)
        self.choices = {
            node: [child for child in self._children(node) if self.productive[child]]
            for node, kind in enumerate(grammar.kind)
            if kind == K.ALT
        }
        self.networks = {
            node: (finals, self._useful(finals, edges)) for node, (_, finals, edges) in self._networks.items()
        }
        # For counted networks: the number of edges from each state to the nearest final one.
        self.distances = {
            node: _distances(finals, edges) for node, (finals, edges) in self.networks.items() if grammar.c[node]
        }

    def minimum(self, node: int) -> int:
        """The least number of *non-empty* rounds of a REPEAT."""
        return 0 if self.nullable[self.grammar.a[node]] else self.grammar.b[node]

    def body(self, call: int) -> Expression:
        """The expression that a CALL calls."""
        body = self.grammar.rule_body[self.grammar.a[call]]
        assert body != UNDEFINED  # an undefined rule is not productive, so its calls are never begun
        return Expression(body)

    def unordered(self, node: int) -> tuple[int, dict[int, int], int, int]:
        """Separator, productive parts by number, how many parts are required, and how many may come only once."""
        grammar = self.grammar
        at, c = grammar.a[node], grammar.c[node]
        parts = enumerate(grammar.children[at + 1 : at + grammar.b[node]])
        return grammar.children[at], {i: part for i, part in parts if self.productive[part]}, c & 0x7FFF, c >> 15

    def begin(self, node: int, frame: Frame) -> Item:
        """The item in which nothing of ``node`` has been matched yet."""
        kind = self.grammar.kind[node]
        if kind == K.LITERALS:
            return node, (0, len(self.grammar.literal_sets[self.grammar.a[node]]), 0), frame
        if kind == K.CHARS:
            return node, b"", frame
        if kind == K.NETWORK:
            return node, self._networks[node][0], frame
        return node, 0, frame

    def is_word(self, item: Item) -> bool:
        """Whether the first word that is still possible is complete."""
        node, position, _ = item
        assert isinstance(position, tuple)
        return len(self.grammar.literal_sets[self.grammar.a[node]][position[0]]) == position[2]

    def next_bytes(self, item: Item) -> Iterator[int]:
        """The bytes an item can read."""
        node, position, _ = item
        grammar, a = self.grammar, self.grammar.a[node]
        kind = grammar.kind[node]
        if kind == K.LITERAL:
            assert isinstance(position, int)
            yield grammar.data[a + position]
        elif kind == K.BYTES:
            members = grammar.byteset_mask(a)
            yield from (byte for byte in range(256) if members >> byte & 1)
        elif kind == K.CHARS:
            assert isinstance(position, bytes)
            yield from self._continuations(a, position)
        elif kind == K.LITERALS:
            words = grammar.literal_sets[a]
            assert isinstance(position, tuple)
            first, last, length = position
            first += len(words[first]) == length
            while first < last:  # bounded: by the words, each passed once
                yield words[first][length]
                first = _end_of_prefix(words, words[first][: length + 1], first, last)

    def after_byte(self, item: Item, byte: int) -> Item | Frame | None:
        """The item after reading ``byte``; its frame if the byte completes it; None if the byte does not fit."""
        node, position, frame = item
        grammar, a = self.grammar, self.grammar.a[node]
        kind = grammar.kind[node]
        if kind == K.BYTES:
            return frame if grammar.byteset_mask(a) >> byte & 1 else None
        if isinstance(position, bytes):
            read = position + bytes((byte,))
            if byte not in self._continuations(a, position):
                return None
            return (node, read, frame) if self._continuations(a, read) else frame
        if byte not in self.next_bytes(item):
            return None
        if isinstance(position, tuple):
            words = grammar.literal_sets[a]
            prefix = words[position[0]][: position[2]] + bytes((byte,))
            first = bisect_left(words, prefix, position[0], position[1])
            return node, (first, _end_of_prefix(words, prefix, first, position[1]), len(prefix)), frame
        return frame if position + 1 == grammar.b[node] else (node, position + 1, frame)

    def after_token(self, item: Item, token_id: int) -> Frame | None:
        """The frame that reading a token by its id completes, or None."""
        node, _, frame = item
        if self.grammar.kind[node] != K.TOKENS:
            return None
        ids, exclude = self.grammar.token_sets[self.grammar.a[node]]
        return frame if (token_id in ids) != exclude else None

    def _continuations(self, charset: int, read: bytes) -> frozenset[int]:
        """The bytes that can follow ``read``, the first bytes of a code point of a character set; none at its end."""
        found = self._chars.get((charset, read))
        if found is None:
            found = self._chars[charset, read] = frozenset(
                byte
                for sequence in self.grammar.charsets[charset].utf8()
                if len(sequence) > len(read)
                and all(low <= byte <= high for byte, (low, high) in zip(read, sequence, strict=False))
                for byte in range(sequence[len(read)][0], sequence[len(read)][1] + 1)
            )
        return found

    def _children(self, node: int) -> list[int]:
        grammar = self.grammar
        kind, a, b = grammar.kind[node], grammar.a[node], grammar.b[node]
        if kind in (K.SEQ, K.ALT, K.UNORDERED):
            return list(grammar.children[a : a + b])
        if kind == K.REPEAT:
            return [a]
        if kind == K.CALL:
            body = grammar.rule_body[a]
            return [] if body == UNDEFINED else [body]
        if kind == K.NETWORK:
            return [expression for out in self._networks[node][2].values() for expression, _ in out]
        return []

    def _least_fixpoint(self, holds: Callable[[int, list[bool]], bool]) -> list[bool]:
        """The least assignment of truth values to nodes that satisfies ``holds``, a monotone function of a node and the
        values of its children."""
        parents: list[list[int]] = [[] for _ in self.grammar.kind]
        for node in range(len(parents)):
            for child in self._children(node):
                parents[child].append(node)
        values = [False] * len(parents)
        agenda = list(range(len(parents)))
        while agenda:  # bounded: by the edges of the grammar
            node = agenda.pop()
            if not values[node] and holds(node, values):
                values[node] = True
                agenda += parents[node]
        return values

    def _is_productive(self, node: int, productive: list[bool]) -> bool:
        """Whether some text satisfies ``node``, given what is known about its children."""
        kind = self.grammar.kind[node]
        if kind == K.NEVER:
            return False
        if kind == K.SEQ:
            return all(productive[child] for child in self._children(node))
        if kind in (K.ALT, K.CALL):
            return any(productive[child] for child in self._children(node))
        if kind == K.REPEAT:
            return self.grammar.b[node] == 0 or productive[self.grammar.a[node]]
        if kind == K.NETWORK:
            return self._reaches_final(node, productive)
        if kind == K.TOKENS:
            ids, exclude = self.grammar.token_sets[self.grammar.a[node]]
            return exclude or bool(ids)
        if kind == K.UNORDERED:
            separator, *parts = (productive[child] for child in self._children(node))
            return separator and any(parts) and all(parts[: self.grammar.c[node] & 0x7FFF])
        return True

    def _is_nullable(self, node: int, nullable: list[bool]) -> bool:
        """Whether ``node`` accepts the empty string, given what is known about its children."""
        kind = self.grammar.kind[node]
        if kind == K.SEQ:
            return all(nullable[child] for child in self._children(node))
        if kind in (K.ALT, K.CALL):
            return any(nullable[child] for child in self._children(node))
        if kind == K.REPEAT:
            return self.grammar.b[node] == 0 or nullable[self.grammar.a[node]]
        if kind == K.NETWORK:
            return self._reaches_final(node, nullable)
        if kind == K.LITERALS:
            return b"" in self.grammar.literal_sets[self.grammar.a[node]]
        return kind == K.EMPTY

    def _reaches_final(self, node: int, usable: list[bool]) -> bool:
        """Whether a network has a path from its start to a final state over ``usable`` edges, within its limit."""
        start, finals, edges = self._networks[node]
        most = self.grammar.c[node] or len(self.grammar.children)
        reached, latest, taken = {start}, {start}, 0
        while latest and taken < most:  # bounded: by the states, each added once
            after = {to for state in latest for expression, to in edges.get(state, ()) if usable[expression]}
            latest = after - reached
            reached |= latest
            taken += 1
        return not finals.isdisjoint(reached)

    def _useful(self, finals: set[int], edges: Edges) -> Edges:
        """The productive edges from whose target a final state can be reached."""
        sources: dict[int, list[int]] = {}
        for source, out in edges.items():
            for expression, target in out:
                if self.productive[expression]:
                    sources.setdefault(target, []).append(source)
        useful, agenda = set(finals), list(finals)
        while agenda:  # bounded: by the states, each added once
            for source in sources.get(agenda.pop(), ()):
                if source not in useful:
                    useful.add(source)
                    agenda.append(source)
        kept = {
            source: [
                (expression, target) for expression, target in out if self.productive[expression] and target in useful
            ]
            for source, out in edges.items()
        }
        return {source: out for source, out in kept.items() if out}


def _network(grammar: Grammar, node: int) -> tuple[int, set[int], Edges]:
    """Start, finals and edges of a NETWORK, from the layout that `Grammar.network` documents."""
    at, end = grammar.a[node], grammar.a[node] + grammar.b[node]
    start, count = grammar.children[at + 1], grammar.children[at + 2]
    finals = set(grammar.children[at + 3 : at + 3 + count])
    edges: Edges = {}
    for edge in range(at + 3 + count, end, 3):
        source, expression, target = grammar.children[edge : edge + 3]
        edges.setdefault(source, []).append((expression, target))
    return start, finals, edges


def _distances(finals: set[int], edges: Edges) -> dict[int, int]:
    """The number of edges from each state to the nearest final one, for states that have such a path."""
    distances, latest = dict.fromkeys(finals, 0), set(finals)
    while latest:  # bounded: by the states, each added once
        sources = {source for source, out in edges.items() for _, target in out if target in latest}
        latest = sources - distances.keys()
        distances.update(dict.fromkeys(latest, 1 + max(distances.values())))
    return distances


def _end_of_prefix(words: list[bytes], prefix: bytes, first: int, last: int) -> int:
    """The end of the words in ``words[first:last]`` that begin with ``prefix``; ``words[first]`` begins with it."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        return last
    return bisect_left(words, stripped[:-1] + bytes((stripped[-1] + 1,)), first, last)
