"""A Dfa over characters as the inside of a JSON string: a network whose edges are spelled characters.

What keeps the network small, and its masks cheap:

* a set of characters that leads to the same place from many states is spelled once, in a state of its own reached by epsilon
  ("any character but c" occurs at every node of a prefix tree of keys);
* the escapes that lead to one state share the state after the backslash;
* a length limit does not multiply the states where the rest of the string is a loop over one set of characters: there
  it is a counted repetition. Only loops before that are counted state by state.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dotllm.automata.charset import CharSet
from dotllm.automata.dfa import Budget, Dfa
from dotllm.errors import BudgetExceeded
from dotllm.grammar.fragment import Fragment
from dotllm.grammar.grammar import Expression, Grammar
from dotllm.languages.json_schema.spelling import after_backslash, character, spelling

# Repetitions of more characters than this are refused by name (Grammar.repeat takes numbers below 2**30).
MAX_LENGTH = 2**30 - 1


def bounds(dfa: Dfa, low: int, high: int | None) -> tuple[int, int | None]:
    """The part of ``low`` <= length <= ``high`` that ``dfa`` does not already imply."""
    implied = dfa.length_bounds()
    if implied is None:
        return 0, None
    shortest, longest = implied
    return (
        0 if low <= shortest else low,
        None if high is None or (longest is not None and longest <= high) else high,
    )


def has_length(dfa: Dfa, low: int, high: int | None) -> bool:
    """Whether some string of ``dfa`` has a length from ``low`` to ``high``."""
    implied = dfa.length_bounds()
    if implied is None or (high is not None and implied[0] > high):
        return False
    shortest, longest = implied
    if shortest >= low or (high is None and longest is None) or (longest is not None and longest == low):
        return True
    if longest is not None and longest < low:
        return False
    # The states reached by exactly n characters, as a bit set.
    last = min(x for x in (high, longest) if x is not None) if (high, longest) != (None, None) else low + len(dfa)
    targets = [sum({1 << to for to in row if to}) for row in dfa.rows]
    accepting = sum(1 << int(state) for state in np.flatnonzero(dfa.accepting))
    reached, n = 1 << dfa.start, 0
    seen: set[int] = set()
    while n <= last and reached:
        if n >= low:
            if reached & accepting:
                return True
            if reached in seen:
                return False
            seen.add(reached)
        after, rest = 0, reached
        while rest:
            bit = rest & -rest
            after |= targets[bit.bit_length() - 1]
            rest ^= bit
        reached, n = after, n + 1
    return False


@lru_cache(maxsize=512)
def content(dfa: Dfa, low: int = 0, high: int | None = None) -> Fragment:
    """What stands between the quotes, for the strings of ``dfa`` with ``low`` to ``high`` characters.

    Raises `BudgetExceeded` if the automaton has to count to more than the budget allows.
    """
    low, high = bounds(dfa, low, high)
    grammar = Grammar()
    network = _Network(grammar)
    if (low, high) != (0, None) and not network.count(dfa, low, high):
        dfa = _limited(dfa, low, high)
        low, high = 0, None
    if (low, high) == (0, None):
        network.copy(dfa)
    grammar.start = network.expression() if not dfa.is_empty() else grammar.never()
    return Fragment(grammar)


def _limited(dfa: Dfa, low: int, high: int | None) -> Dfa:
    budget = Budget()
    try:
        return dfa.intersection(Dfa.length(low, high, budget), budget)
    except BudgetExceeded as error:
        keyword = "minLength" if high is None else "maxLength"
        raise BudgetExceeded(f"a pattern beside {keyword} is too large: {error.message}", keyword=keyword) from None


class _Network:
    """States and spelled edges, collected for one call of `Grammar.network`. State 0 is the start."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.states = 1
        self.finals: list[int] = []
        self.edges: list[tuple[int, Expression, int]] = []
        self.escapes: dict[tuple[object, int], int] = {}

    def expression(self) -> Expression:
        if not self.edges:
            return self.grammar.empty() if self.finals else self.grammar.never()
        return self.grammar.network(self.states, 0, self.finals, self.edges)

    def new_state(self) -> int:
        self.states += 1
        return self.states - 1

    def copy(self, dfa: Dfa) -> None:
        """All of a Dfa; its states 1.. become 0.. (start is 1)."""
        if dfa.is_empty():
            return
        self.states = len(dfa)
        self.finals = [int(state) - 1 for state in np.flatnonzero(dfa.accepting)]
        self.spell([(s - 1, characters, t - 1) for s, characters, t in _edges(dfa)])

    def count(self, dfa: Dfa, low: int, high: int | None) -> bool:
        """The strings of ``low`` to ``high`` characters, if that needs no counting in loops; else False, and nothing done."""
        loops: dict[int, CharSet] = {}
        leaving: dict[int, list[tuple[CharSet, int]]] = {}
        edges = _edges(dfa)
        for source, characters, target in edges:
            if source == target:
                loops[source] = characters
            else:
                leaving.setdefault(source, []).append((characters, target))
        if any(state in leaving for state in loops) or not all(dfa.accepting[state] for state in loops):
            return False
        order = _topological(leaving, dfa.start)
        if order is None:
            return False
        last = self.new_state()
        self.finals.append(last)
        numbers: dict[tuple[int, int], int] = {(dfa.start, 0): 0}
        pending = [(dfa.start, 0)]
        spelled: list[tuple[int, CharSet, int]] = []
        budget = Budget().states
        for state, read in pending:
            here = numbers[state, read]
            if state in loops:
                body = character(self.grammar, loops[state])
                most = None if high is None else high - read
                self.edges.append((here, self.grammar.repeat(body, max(0, low - read), most), last))
                continue
            if dfa.accepting[state] and read >= low:
                self.finals.append(here)
            if high is not None and read >= high:
                continue
            for characters, target in leaving.get(state, ()):
                if high is not None and target not in loops and not dfa.accepting[target] and read + 1 >= high:
                    continue
                key = (target, read + 1)
                if key not in numbers:
                    numbers[key] = self.new_state()
                    pending.append(key)
                spelled.append((here, characters, numbers[key]))
            if self.states > budget:
                raise BudgetExceeded(f"a pattern with a length needs more than {budget} states", keyword="maxLength")
        self.spell(spelled)
        return True

    def spell(self, edges: list[tuple[int, CharSet, int]]) -> None:
        """Add edges over characters, sharing those that several states have in common."""
        uses: dict[tuple[CharSet, int], list[int]] = {}
        for source, characters, target in edges:
            uses.setdefault((characters, target), []).append(source)
        nothing = self.grammar.empty()
        for (characters, target), sources in uses.items():
            written = spelling(characters)
            shared = len(sources) > 1 and (written.raw.size > 1 or any(written.escaped))
            if shared:
                via = self.new_state()
                self.edges.extend((source, nothing, via) for source in sources)
                sources = [via]
            for source in sources:
                if written.raw:
                    self.edges.append((source, self.grammar.chars(written.raw), target))
                if any(written.escaped):
                    key = (written.escaped, target)
                    if key not in self.escapes:
                        self.escapes[key] = self.new_state()
                        self.edges.append((self.escapes[key], after_backslash(self.grammar, written), target))
                    self.edges.append((source, self.grammar.literal(b"\\"), self.escapes[key]))


def _edges(dfa: Dfa) -> list[tuple[int, CharSet, int]]:
    """(source, characters, target), one for each pair of live states."""
    found: list[tuple[int, CharSet, int]] = []
    sets: dict[int, CharSet] = {}
    for source, row in enumerate(dfa.rows):
        targets: dict[int, int] = {}
        for cls, target in enumerate(row):
            if target:
                targets[target] = targets.get(target, 0) | 1 << cls
        for target, classes in targets.items():
            characters = sets.get(classes)
            if characters is None:
                characters = sets[classes] = dfa.alphabet.charset(classes)
            found.append((source, characters, target))
    return found


def _topological(leaving: dict[int, list[tuple[CharSet, int]]], start: int) -> list[int] | None:
    """The states in an order in which edges lead forward, or None if there is a cycle."""
    arrivals: dict[int, int] = {}
    for edges in leaving.values():
        for _, target in edges:
            arrivals[target] = arrivals.get(target, 0) + 1
    if arrivals.get(start):
        return None
    order = [start]
    for state in order:
        for _, target in leaving.get(state, ()):
            arrivals[target] -= 1
            if not arrivals[target]:
                order.append(target)
    return order if not any(arrivals.values()) else None
