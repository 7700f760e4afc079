"""Turns a Dfa over characters into the content of a JSON string: a network whose edges are spelled characters.

The network is small and its masks are cheap, because:

* a set of characters that leads from many states to one state is spelled once, from a state of its own that is
  reached by epsilon;
* the escapes that lead to one state share the state after the backslash;
* a loop over a large set is one node, never shared, which the machine speeds up with tables of the vocabulary;
* a length limit does not multiply the states: if the rest of the string is a loop over one set of characters, it is a
  counted repetition; elsewhere the machine counts the characters (`Grammar.network`). Only a lower limit is counted
  state by state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from dotllm import cancellation
from dotllm.automata.dfa import Budget, Dfa
from dotllm.automata.dfa.dfa import dfa_to_grammar, topological_order
from dotllm.charset import CharSet
from dotllm.errors import BudgetExceededError
from dotllm.grammar.grammar import Expression, Grammar
from dotllm.languages.json_schema.strings.length_kernels import FAR, count_characters, distances
from dotllm.languages.json_schema.strings.spelling import (
    Spelling,
    after_backslash,
    character,
    in_bytes,
    one_of,
    ranges_beside,
    spelled,
)
from dotllm.languages.json_schema.strings.string_kernels import (
    MUST_ESCAPE_WORDS,
    group_edges,
    spelled_edges,
    spelled_network,
)

Ints = NDArray[np.int32]

_NOTHING = CharSet(())

# The most states of an automaton combined with a length. The longest host name takes 25,000.
MAX_COUNTED_STATES = 60_000

# An automaton that has at most this many states with its length limit is built with the limit: its masks need no
# counter.
FEW_STATES = 64

# A set of characters beyond ASCII that is read at this many places or more is a rule.
_VERY_MANY = 8192

# The most characters over which the lengths of an automaton's strings are explored: half a second.
MOST_STEPS = 1 << 20

# The largest number that Grammar.repeat takes.
MAX_LENGTH = 2**30 - 1


def bounds(dfa: Dfa, low: int, high: int | None) -> tuple[int, int | None]:
    """The part of ``low`` <= length <= ``high`` that ``dfa`` does not already imply."""
    if not low and high is None:
        return 0, None
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
    if not low and high is None:
        return bool(dfa)
    implied = dfa.length_bounds()
    if implied is None or (high is not None and implied[0] > high):
        return False
    shortest, longest = implied
    if shortest >= low or (high is None and longest is None) or (longest is not None and longest == low):
        return True
    if longest is not None and longest < low:
        return False
    last = min(x for x in (high, longest) if x is not None)
    accepting = sum(1 << int(state) for state in np.flatnonzero(dfa.accepting))
    return any(reached & accepting for reached in _reached(dfa, low, last))


def _reached(dfa: Dfa, low: int, last: int) -> Iterator[int]:
    """The states reached by ``low`` to ``last`` characters.

    Each set determines the next, so the sequence ends in a cycle, which Brent's algorithm finds without storing the
    sets (https://doi.org/10.1007/BF01933190). Below ``low``, whole turns of the cycle are skipped.

    Yields:
        For each length the set of states, as bits, until the sets repeat.

    Raises:
        BudgetExceededError: there is no cycle within `MOST_STEPS`.
    """
    targets = [sum({1 << to for to in row if to}) for row in dfa.rows]
    reached, n = 1 << dfa.start, 0
    turtle, since, power = reached, 0, 1
    for _ in range(MOST_STEPS):
        if n >= low:
            yield reached
        if n == last:
            return
        cancellation.check()
        after, rest = 0, reached
        while rest:  # bounded: by the states, as bits
            bit = rest & -rest
            after |= targets[bit.bit_length() - 1]
            rest ^= bit
        reached, n, since = after, n + 1, since + 1
        if reached == turtle:
            if n - since >= low:
                return
            n += (low - n) // since * since if n < low else 0
            turtle, since, power = reached, 0, 1
        elif since == power:
            turtle, since, power = reached, 0, 2 * power
    raise BudgetExceededError("the lengths of the strings of a pattern could not be determined", keyword="minLength")


def repeat(grammar: Grammar, character: Expression, low: int, high: int | None) -> Expression:
    """``low`` to ``high`` characters. No text has 2**30 characters, so a larger ``high`` is cut to that limit.

    Raises:
        BudgetExceededError: ``low`` is larger than `MAX_LENGTH`.
    """
    if low > MAX_LENGTH:
        raise BudgetExceededError(f"strings of at least {low} characters", keyword="minLength")
    return grammar.repeat(character, low, None if high is None else min(high, MAX_LENGTH))


def content(grammar: Grammar, dfa: Dfa, low: int = 0, high: int | None = None) -> Expression:
    """The content between the quotes, for the strings of ``dfa`` with ``low`` to ``high`` characters.

    Raises `BudgetExceededError` if the automaton has to count to more than the budget allows.
    """
    if low or high is not None:
        low, high = bounds(dfa, low, high)
    if low or high is not None:
        counted = _counted(grammar, dfa, low, high)
        if counted is not None:
            return counted
        if high is not None and high * len(dfa) > FEW_STATES:
            return counting(grammar, limited(dfa, low, None), high)
        dfa = limited(dfa, low, high)
    return copied(grammar, dfa)


def _character(grammar: Grammar, characters: CharSet, once: bool) -> Expression:
    return character(grammar, characters, once=once)


def limited(dfa: Dfa, low: int, high: int | None) -> Dfa:
    """The strings of ``dfa`` of ``low`` to ``high`` characters, counted state by state. Raises BudgetExceededError."""
    low, high = bounds(dfa, low, high)
    if not low and high is None:
        return dfa
    keyword = "minLength" if high is None else "maxLength"
    most = FAR if high is None else high
    budget = Budget(MAX_COUNTED_STATES, 10 * Budget().steps)
    shortest, longest = distances(dfa.table, dfa.accepting)
    if shortest[dfa.start] > most or longest[dfa.start] < low:
        return Dfa.never()
    capacity, limit = 1024, budget.states_over(dfa.alphabet.size)
    while True:
        table, origin = np.empty((capacity, dfa.alphabet.size), np.int32), np.empty(capacity, np.int32)
        states = count_characters(dfa.table, dfa.accepting, dfa.start, shortest, longest, low, most, table, origin)
        if states >= 0:
            break
        if capacity == limit:
            what = f"a pattern or format of {low} to {'any number of' if high is None else high} characters"
            raise BudgetExceededError(f"{what} needs an automaton of more than {limit:,} states", keyword=keyword)
        capacity = min(4 * capacity, limit)
    accepting = (origin[:states] >= 0) & dfa.accepting[np.maximum(origin[:states], 0)]
    try:
        return Dfa.of_table(dfa.alphabet, table[:states], accepting, 1, budget, "a pattern with a length")
    except BudgetExceededError as error:
        raise BudgetExceededError(error.message, keyword=keyword) from None


def counting(
    grammar: Grammar, dfa: Dfa, high: int, write: Callable[[Grammar, CharSet, bool], Expression] = _character
) -> Expression:
    """The strings of ``dfa`` of at most ``high`` characters, which the machine counts: an edge for each character.
    ``write`` writes a character of a set; its last argument tells whether the place is outside a loop."""
    if not has_length(dfa, 0, high):
        return grammar.never()
    edges, uses, sets = group_edges(dfa.table)
    which, target, _ = uses.T
    source, use = edges[np.argsort(edges[:, 0], kind="stable")].T
    source, to, which = source, target[use], which[use]
    characters = [dfa.alphabet.charset(_bits(words)) for words in sets.tolist()]
    # Expressions by set: outside a loop, and in a loop.
    written = np.zeros((len(sets), 2), np.int32)
    looping = (source == to).astype(np.int32)
    for code in np.unique(2 * which + looping).tolist():
        written[code >> 1, code & 1] = write(grammar, characters[code >> 1], not code & 1)
    finals = np.flatnonzero(dfa.accepting)
    head = np.array([len(dfa.table), dfa.start, len(finals)])
    edges = np.stack((source, written[which, looping], to), axis=1)
    layout = np.concatenate((head, finals, edges.ravel()), dtype=np.int32)
    return grammar.flat_network(layout.tobytes(), min(high, MAX_LENGTH))


def strings_of_length(grammar: Grammar, dfa: Dfa, low: int, high: int | None) -> Expression:
    """The strings of ``dfa`` with ``low`` to ``high`` characters as they are, not spelled as in JSON."""
    low, high = bounds(dfa, low, high)
    if high is not None and high * len(dfa) > FEW_STATES:
        return counting(grammar, limited(dfa, low, None), high, lambda into, characters, _: into.chars(characters))
    return dfa_to_grammar(limited(dfa, low, high), grammar, grammar.chars)


def copied(grammar: Grammar, dfa: Dfa) -> Expression:
    """A whole Dfa; state 0, which is dead, has no edges."""
    if dfa.is_empty():
        return grammar.never()
    alphabet = dfa.alphabet
    starts, class_of = alphabet.arrays
    edges, uses, raw, about, escapes, beyonds = spelled_edges(dfa.table, starts, class_of, MUST_ESCAPE_WORDS)
    if not len(uses):
        return grammar.empty()
    beyond = [alphabet.beyond_ascii(_bits(words)) for words in beyonds.tolist()]
    of_beyond = np.array(
        [(len(charset.ranges), bool(charset and charset.ranges[0][0] == 0x80)) for charset in beyond], np.int32
    )
    layout, times, places = spelled_network(
        dfa.accepting, dfa.start, edges, uses, raw, about, of_beyond, len(escapes),
        grammar.empty(), grammar.literal(b"\\"),
    )  # fmt: skip
    # The expressions of the sets, outside loops and in loops, and of the escapes after a backslash.
    first, count, first_escape, count_escapes = places.tolist()
    expressions = np.zeros(len(times), np.int32)
    members, of_set = raw.tolist(), about.tolist()
    beside = [ranges_beside(charset) for charset in beyond]
    several: list[Expression | None] = [None] * len(beyond)
    usual: list[int] = []  # codes of nearly all sets; `_read_once` would find the same expressions
    ascii_members: list[int] = []
    beyond_ascii: list[Expression] = []
    for code in times.nonzero()[0].tolist():
        low, high = members[code >> 1]
        runs, _, number = of_set[code >> 1]
        if not code & 1 and runs and runs <= beside[number] and times[code] < _VERY_MANY:
            expression = several[number] = several[number] or in_bytes(grammar, beyond[number])
            usual.append(code)
            ascii_members.append(low | high << 64)
            beyond_ascii.append(expression)
            continue
        way = spelled(low | high << 64, beyond[number])
        expressions[code] = grammar.chars(way.raw) if code & 1 else _read_once(grammar, way, int(times[code]))
    if usual:
        sets = grammar.each_byteset(ascii_members)
        expressions[usual] = grammar.each_alt(2, [*chain.from_iterable(zip(sets, beyond_ascii, strict=True))])
    missing = layout[first : first + 3 * count : 3]
    missing[:] = expressions[missing]
    if count_escapes:
        after = [after_backslash(grammar, spelled(low | high << 64, _NOTHING)) for low, high in escapes.tolist()]
        missing = layout[first_escape : first_escape + 3 * count_escapes : 3]
        missing[:] = np.array(after, np.int32)[missing]
    return grammar.flat_network(layout.tobytes())


def _read_once(grammar: Grammar, way: Spelling, times: int) -> Expression:
    """A character that is written raw, at ``times`` places. Beyond ASCII it may take dozens of nodes at each place;
    at very many places it is a rule of its own, which is slower to follow."""
    if times < _VERY_MANY or not way.beyond:
        return one_of(grammar, way)
    rule = grammar.rule("character")
    grammar.define(rule, one_of(grammar, spelled(0, way.beyond)))
    return grammar.alt([grammar.byteset(way.ascii), grammar.call(rule)])


def _bits(words: list[int]) -> int:
    bits = 0
    for at, word in enumerate(words):
        bits |= word << 64 * at
    return bits


def _counted(grammar: Grammar, dfa: Dfa, low: int, high: int | None) -> Expression | None:
    """The strings of ``low`` to ``high`` characters if no loop must be counted, else None.

    That is, every loop reads one character of a set, no other edge leaves its state, and the string may end there. Also
    None if there would be too many states: one for each state of ``dfa`` and each number of characters before it.
    """
    edges, uses, sets = group_edges(dfa.table)
    characters = [dfa.alphabet.charset(_bits(words)) for words in sets.tolist()]
    loops: dict[int, CharSet] = {}
    leaving: dict[int, list[tuple[CharSet, int]]] = {}
    all_uses = uses.tolist()
    for source, use in edges.tolist():
        which, target, _ = all_uses[use]
        if source == target:
            loops[source] = characters[which]
        else:
            leaving.setdefault(source, []).append((characters[which], target))
    accepting = dfa.accepting.tolist()
    onwards = [[target for _, target in leaving.get(state, ())] for state in range(len(dfa.table))]
    has_cycle = len(topological_order(onwards, dfa.start)) < len(dfa)
    if has_cycle or any(state in leaving or not accepting[state] for state in loops):
        return None
    states, last = 2, 1
    finals = [last]
    numbers: dict[tuple[int, int], int] = {(dfa.start, 0): 0}
    pending = [(dfa.start, 0)]
    out: list[tuple[int, Expression, int]] = []
    read_one = {charset: character(grammar, charset) for charset in characters}
    budget = Budget().states
    for state, read in pending:  # bounded: by the states
        place = numbers[state, read]
        if state in loops:
            most = None if high is None else high - read
            out.append((place, repeat(grammar, read_one[loops[state]], max(0, low - read), most), last))
            continue
        if accepting[state] and read >= low:
            finals.append(place)
        if high is not None and read >= high:
            continue
        for charset, target in leaving.get(state, ()):
            key = (target, read + 1)
            if key not in numbers:
                numbers[key] = states
                states += 1
                pending.append(key)
            out.append((place, read_one[charset], numbers[key]))
        if states > budget:
            return None
    return grammar.network(states, 0, finals, out)
