"""The texts of a grammar, quoted in another text: in a JSON string, or raw, without a reader's marks.

A tool call holds an argument as a JSON string, or raw between two marks. A grammar describes the argument; the answer
must hold its quoted form. The reader looks for its marks everywhere, so no mark may occur in the quoted text.

Quoting reads a text character by character. What it writes for a character, and whether that would complete a mark,
depends on the end of the text written so far: on a state of the automaton of Aho and Corasick over the marks. So the
quoted texts of a grammar are again the texts of a grammar, by the construction of Bar-Hillel, Perles and Shamir ("On
formal properties of simple phrase structure grammars", 1961): one rule for each triple of a rule, a state before it
and a state after it. Between rules the state is nearly always the first one, so the grammar hardly grows. Elsewhere
most rules begin with a character of no mark, which leads to the first state: such a rule has one copy.

*In a JSON string* every text can be quoted, in exactly one way: as most writers of JSON do it, with a character that
would complete a mark escaped (``</tool_call\\u003e``). *Raw*, a text that contains a mark is left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence

from dotllm import cancellation
from dotllm.charset import CharSet
from dotllm.errors import BudgetExceededError, UnsupportedError
from dotllm.grammar import Expression, Grammar, Rule
from dotllm.grammar import kinds as K
from dotllm.languages.tag_dispatch import prefix_tree

_MOST_FIRST_CALLS = 50
"""The depth to which chains of first calls are followed to find states from which a rule begins alike."""
MAX_EDGES = 200_000
"""The most edges that all automata of a quoted grammar may have together."""
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPED = frozenset({'"', "\\", *map(chr, range(32))})
"""The characters that a JSON string can hold only escaped."""


class Quoting:
    """How characters are written, and which strings in the result a reader would take for marks."""

    def __init__(self, marks: Iterable[str], *, in_json: bool) -> None:
        self.in_json = in_json
        self._children, _, self._completes, _, order, self._fail = prefix_tree(
            (), [mark.encode() for mark in marks if mark]
        )
        for state in order:
            self._completes[state] |= self._completes[self._fail[state]]
        written = {character for mark in marks for character in mark}
        self.each = CharSet.of("".join(written | _ESCAPED if in_json else written))
        """The characters handled one by one; all others are written as they are and lead to the first state."""

    def _after(self, state: int, text: bytes) -> int | None:
        """The state after ``text``; None if it completes a mark."""
        for byte in text:
            while state and byte not in self._children[state]:  # bounded: by the length of the marks
                state = self._fail[state]
            state = self._children[state].get(byte, 0)
            if self._completes[state]:
                return None
        return state

    def character(self, state: int, character: str) -> tuple[bytes, int] | None:
        """What is written for a character after ``state``, and the next state; None if it cannot be written."""
        plain = character
        if self.in_json and character in _ESCAPED:
            plain = _SHORT.get(character) or f"\\u{ord(character):04x}"
        raw = plain.encode()
        after = self._after(state, raw)
        if after is None and self.in_json:
            raw = "".join(f"\\u{unit:04x}" for unit in _units(character)).encode()
            after = self._after(state, raw)
        return None if after is None else (raw, after)

    def text(self, state: int, text: bytes) -> tuple[bytes, int] | None:
        """What is written for ``text`` after ``state``, and the next state; None if it cannot be written."""
        try:
            characters = text.decode()
        except UnicodeDecodeError:  # parts of characters, which occur in automata over bytes
            after = self._after(state, text)
            return None if after is None else (text, after)
        parts = []
        for character in characters:
            spelling = self.character(state, character)
            if spelling is None:
                return None
            parts.append(spelling[0])
            state = spelling[1]
        return b"".join(parts), state

    def may_end(self, state: int, closing: str) -> bool:
        """Whether ``closing`` may follow: no mark is completed before its last byte."""
        return self._after(state, closing.encode()[:-1]) is not None


def _units(character: str) -> Iterator[int]:
    """The UTF-16 code units of a character, as JSON escapes them."""
    raw = character.encode("utf-16-be")
    return (int.from_bytes(raw[i : i + 2], "big") for i in range(0, len(raw), 2))


def quoted(source: Grammar, into: Grammar, quoting: Quoting, closing: str = "") -> Expression:
    """The quoted texts of ``source`` as an expression of ``into``; ``closing`` follows them.

    Raises:
        UnsupportedError: ``source`` asks for tokens, unique items or keys, or parts in any order.
        BudgetExceededError: the result is too large.
    """
    if source.token_sets:
        raise UnsupportedError(
            "tokens by name or id are not supported in text quoted in a call", keyword="token", help="write their text"
        )
    if source.unique_rules or K.UNORDERED in source.kind:
        raise UnsupportedError(
            "uniqueItems, uniqueness of keys and parts in any order are not supported in text quoted in a call",
            keyword="uniqueItems",
            help="remove it from the schema in the grammar",
        )
    return _Quoted(source, into, quoting).start(closing)


Label = int
"""An expression of the source: a set, a text or a rule call."""
_At = tuple[int, int]
"""A state of a rule's automaton, and a state of the quoting."""


class _Automaton:
    """The automaton of a rule's body, without epsilon edges."""

    def __init__(self, grammar: Grammar, body: int) -> None:
        self._empty: list[list[int]] = [[], []]
        self._edges: list[list[tuple[Label, int]]] = [[], []]
        self.size = 0
        todo = [(int(body), 0, 1)]
        while todo:  # bounded: by MAX_EDGES, see `_expand`
            self._expand(grammar, *todo.pop(), todo)
        closures = [self._closure(state) for state in range(len(self._empty))]
        self.out = [[edge for each in closure for edge in self._edges[each]] for closure in closures]
        self.is_final = [1 in closure for closure in closures]

    def _new(self) -> int:
        self._empty.append([])
        self._edges.append([])
        return len(self._empty) - 1

    def _expand(self, grammar: Grammar, node: int, begin: int, end: int, todo: list[tuple[int, int, int]]) -> None:
        self.size += 1
        if self.size > MAX_EDGES:
            raise _too_large()
        cancellation.check()
        kind, a, b, c = grammar.kind[node], grammar.a[node], grammar.b[node], grammar.c[node]
        if kind == K.EMPTY:
            self._empty[begin].append(end)
        elif kind == K.SEQ:
            for part in grammar.children[a : a + b - 1]:
                after = self._new()
                todo.append((part, begin, after))
                begin = after
            todo.append((grammar.children[a + b - 1], begin, end))
        elif kind == K.ALT:
            todo += [(part, begin, end) for part in grammar.children[a : a + b]]
        elif kind == K.REPEAT:
            self._repeat(a, b, c, begin, end, todo)
        elif kind == K.NETWORK:
            self._network(grammar.children[a : a + b], c, begin, end, todo)
        elif kind != K.NEVER:
            self._edges[begin].append((node, end))

    def _repeat(self, body: int, least: int, most: int, begin: int, end: int, todo: list[tuple[int, int, int]]) -> None:
        if max(least, most) > MAX_EDGES:
            raise _too_large()
        for _ in range(least):
            after = self._new()
            todo.append((body, begin, after))
            begin = after
        if most < 0:
            loop = self._new()
            self._empty[begin].append(loop)
            self._empty[loop].append(end)
            todo.append((body, loop, loop))
            return
        self._empty[begin].append(end)
        for _ in range(most - least):
            after = self._new()
            todo.append((body, begin, after))
            self._empty[after].append(end)
            begin = after

    def _network(
        self, layout: Sequence[int], most_edges: int, begin: int, end: int, todo: list[tuple[int, int, int]]
    ) -> None:
        """Add the network's states: for a counted network, one copy of them for each number of edges."""
        states, start, finals = layout[0], layout[1], layout[3 : 3 + layout[2]]
        edges = layout[3 + layout[2] :]
        if states * (most_edges + 1) > MAX_EDGES:
            raise _too_large()
        layers = [[self._new() for _ in range(states)] for _ in range(most_edges + 1)]
        self._empty[begin].append(layers[0][start])
        for layer, following in zip(layers, layers[1:] if most_edges else layers, strict=False):
            for at in range(0, len(edges), 3):
                todo.append((edges[at + 1], layer[edges[at]], following[edges[at + 2]]))
        for layer in layers:
            for final in finals:
                self._empty[layer[final]].append(end)

    def _closure(self, state: int) -> list[int]:
        reached, seen = [state], {state}
        for each in reached:  # bounded: by the states, each added once
            new = dict.fromkeys(target for target in self._empty[each] if target not in seen)
            seen |= new.keys()
            reached += new
        return reached


class _Quoted:
    def __init__(self, source: Grammar, into: Grammar, quoting: Quoting) -> None:
        self.source, self.into, self.quoting = source, into, quoting
        self._automata: dict[int, _Automaton] = {}
        self._ends: dict[_At, set[int]] = {}
        """The states after a rule, by the rule and the state before it."""
        self._callers: dict[_At, set[_At]] = {}
        self._edges: dict[_At, list[tuple[_At, Expression | _At, _At]]] = {}
        self._leaves: dict[tuple[int, int], list[tuple[Expression, int]]] = {}
        self._expressions: dict[object, Expression] = {}
        """By the text written: equal texts share an expression."""
        self._entries: dict[_At, int] = {}
        self._firsts: dict[tuple[int, tuple[object, ...]], int] = {}
        self._rules: dict[tuple[int, int, frozenset[int]], Rule] = {}
        self._agenda: list[tuple[int, int, frozenset[int]]] = []
        self._size = 0

    def start(self, closing: str) -> Expression:
        root = -1  # the start, as if it were a rule
        self._find_ends(root)
        ends = {state for state in self._ends[root, 0] if self.quoting.may_end(state, closing)}
        expression = self._body(root, 0, ends)
        while self._agenda:  # checks for cancellation
            cancellation.check()
            rule, before, afters = self._agenda.pop()
            self.into.define(self._rules[rule, before, afters], self._body(rule, before, afters))
        return expression

    def _automaton(self, rule: int) -> _Automaton:
        if rule not in self._automata:
            body = self.source.start if rule < 0 else self.source.rule_body[rule]
            self._automata[rule] = _Automaton(self.source, body)
        return self._automata[rule]

    def _find_ends(self, root: int) -> None:
        """Explore all rules from the states in which they begin, until no new state is found after any rule."""
        todo = deque([(root, 0)])
        self._ends[root, 0] = set()
        waiting = set(todo)
        while todo:  # bounded: by the edges, which `_explore` counts; and it looks for cancellation
            cancellation.check()
            rule, before = place = todo.popleft()
            waiting.discard(place)
            for called in self._explore(rule, before):
                if called not in self._ends:
                    self._ends[called] = set()
                    todo.append(called)
                    waiting.add(called)
                self._callers.setdefault(called, set()).add(place)
            automaton = self._automaton(rule)
            states = {(0, before), *(target for _, _, target in self._edges[place])}
            ends = {quoting for state, quoting in states if automaton.is_final[state]}
            if ends != self._ends[place]:
                self._ends[place] = ends
                again = self._callers.get(place, set()) - waiting
                todo.extend(again)
                waiting |= again

    def _explore(self, rule: int, before: int) -> set[_At]:
        """Find the edges of a rule's automaton from ``before``; return its calls, each with the state before it."""
        automaton, edges, calls = self._automaton(rule), list[tuple[_At, Expression | _At, _At]](), set[_At]()
        seen = {(0, before)}
        todo = [(0, before)]
        while todo:  # bounded: by the states of both automata, each taken once
            state, quoting = place = todo.pop()
            for label, target in automaton.out[state]:
                if self.source.kind[label] == K.CALL:
                    called = (self.source.a[label], self._entry(self.source.a[label], quoting))
                    calls.add(called)
                    spellings: list[tuple[Expression | _At, int]] = [
                        (called, end) for end in self._ends.get(called, ())
                    ]
                else:
                    spellings = [*self._written(label, quoting)]
                for written, end in spellings:
                    edges.append((place, written, (target, end)))
                    if (target, end) not in seen:
                        seen.add((target, end))
                        todo.append((target, end))
        self._size += len(edges) - len(self._edges.get((rule, before), ()))
        if self._size > MAX_EDGES:
            raise _too_large()
        self._edges[rule, before] = edges
        return calls

    def _entry(self, rule: int, before: int, depth: int = 0) -> int:
        """The first known state from which the rule's first edges are the same as from ``before``.

        It is ``before`` itself for a rule that may be empty (it ends where it begins), for a rule that calls itself
        first, and where first calls are nested more than ``_MOST_FIRST_CALLS`` deep.
        """
        key = (rule, before)
        if key not in self._entries:
            self._entries[key] = before
            automaton, edges = self._automaton(rule), list[object]()
            if automaton.is_final[0] or depth > _MOST_FIRST_CALLS:
                return before
            for label, target in automaton.out[0]:
                if self.source.kind[label] == K.CALL:
                    called = self.source.a[label]
                    edges.append((target, called, self._entry(called, before, depth + 1)))
                else:
                    edges.append((target, tuple(self._written(label, before))))
            self._entries[key] = self._firsts.setdefault((rule, tuple(edges)), before)
        return self._entries[key]

    def _call(self, rule: int, before: int, afters: frozenset[int]) -> Expression:
        key = (rule, before, afters)
        if key not in self._rules:
            self._rules[key] = self.into.rule(self.source.rule_names[rule])
            self._agenda.append(key)
        return self.into.call(self._rules[key])

    def _body(self, rule: int, before: int, afters: Collection[int]) -> Expression:
        """The automaton of a rule from the quoting state ``before`` to any of ``afters``.

        Its final states without further edges are merged. So a call in last position is one call, wherever it ends,
        not one call, with a copy of the called rule, for each state after it.
        """
        edges, automaton = self._edges[rule, before], self._automaton(rule)
        backwards: dict[_At, list[_At]] = {}
        for begin, _, end in edges:
            backwards.setdefault(end, []).append(begin)
        finals = {(0, before), *(end for _, _, end in edges)}
        last = [at for at in sorted(finals) if at[1] in afters and automaton.is_final[at[0]]]
        alive, todo = dict.fromkeys(last), [*last]
        while todo:  # bounded: by the edges
            for at in backwards.get(todo.pop(), ()):
                if at not in alive:
                    alive[at] = None
                    todo.append(at)
        if (0, before) not in alive:
            return self.into.never()
        edges = [edge for edge in edges if edge[0] in alive and edge[2] in alive]
        sources = {begin for begin, _, _ in edges}
        number = {at: i for i, at in enumerate(at for at in alive if at in sources)}
        end_of_all = len(number)
        written = list[tuple[int, Expression, int]]()
        calls: dict[tuple[int, _At, int], set[int]] = {}
        for begin, label, end in edges:
            way = (number[begin], label, number.get(end, end_of_all))
            if isinstance(label, tuple):
                calls.setdefault((way[0], label, way[2]), set()).add(end[1])
            else:
                written.append((way[0], label, way[2]))
        written += [(begin, self._call(*label, frozenset(to)), end) for (begin, label, end), to in calls.items()]
        ends = {number.get(at, end_of_all) for at in last}
        return self.into.network(end_of_all + 1, number.get((0, before), end_of_all), sorted(ends), written)

    # --- what is written for the parts of the source

    def _written(self, label: Label, before: int) -> list[tuple[Expression, int]]:
        key = (label, before)
        if key not in self._leaves:
            self._leaves[key] = [*self._leaf(label, before)]
        return self._leaves[key]

    def _leaf(self, label: Label, before: int) -> Iterator[tuple[Expression, int]]:
        source, into = self.source, self.into
        kind, a = source.kind[label], source.a[label]
        if kind == K.CHARS:
            yield from self._characters(source.charsets[a], before)
            return
        if kind == K.BYTES:
            mask = source.byteset_mask(a)
            ascii_characters = "".join(chr(byte) for byte in range(128) if mask >> byte & 1)
            yield from self._characters(CharSet.of(ascii_characters), before)
            texts = [bytes([byte]) for byte in range(128, 256) if mask >> byte & 1]
        elif kind == K.LITERAL:
            texts = [bytes(source.data[a : a + source.b[label]])]
        else:
            texts = source.literal_sets[a]
        by_end: dict[int, list[bytes]] = {}
        for text in texts:
            spelling = self.quoting.text(before, text)
            if spelling is not None:
                by_end.setdefault(spelling[1], []).append(spelling[0])
        for end, written in by_end.items():
            key = tuple(written)
            if key not in self._expressions:
                self._expressions[key] = into.literals(written)
            yield self._expressions[key], end

    def _characters(self, characters: CharSet, before: int) -> Iterator[tuple[Expression, int]]:
        into, each = self.into, self.quoting.each
        by_end: dict[int, list[bytes]] = {}
        for first, last in (characters & each).ranges:
            for code_point in range(first, last + 1):
                spelling = self.quoting.character(before, chr(code_point))
                if spelling is not None:
                    by_end.setdefault(spelling[1], []).append(spelling[0])
        others = characters - each
        if others:
            by_end.setdefault(0, [])
        for end, written in by_end.items():
            key = (tuple(written), others if end == 0 else None)
            if key not in self._expressions:
                parts = [self._any_of(written)] if written else []
                parts += [into.chars(others)] if others and end == 0 else []
                self._expressions[key] = into.alt(parts)
            yield self._expressions[key], end

    def _any_of(self, written: Iterable[bytes]) -> Expression:
        """Any of these texts; those that differ only in the last byte share it: an edge is copied many times."""
        lasts: dict[bytes, list[int]] = {}
        for text in written:
            lasts.setdefault(text[:-1], []).append(text[-1])
        into = self.into
        return into.alt([into.seq([into.literal(text), into.bytes_in(last)]) for text, last in lasts.items()])


def _too_large() -> BudgetExceededError:
    return BudgetExceededError(
        f"a grammar that needs more than {MAX_EDGES:,} edges where its text is quoted in a call",
        keyword="grammar",
        code="too_large",
        help="use smaller counts of repetitions",
    )
