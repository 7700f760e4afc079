"""Syntax tree → `NfaBuilder` (Thompson, 1968), for the parts of an expression that need the DFA algebra."""

from __future__ import annotations

from collections.abc import Callable

from dotllm.automata.dfa import Budget, Dfa, NfaBuilder
from dotllm.charset import MAX_CODE_POINT, CharSet
from dotllm.languages.regex.syntax import Alt, Chars, Empty, Never, Node, Repeat, Seq, Text


def size(node: Node) -> int:
    """About how many states `connect` makes of ``node``."""
    if isinstance(node, Text):
        return len(node.text)
    if isinstance(node, Seq):
        return len(node.parts) + sum(map(size, node.parts))
    if isinstance(node, Alt):
        return sum(map(size, node.choices))
    if isinstance(node, Repeat):
        return (1 + size(node.body)) * (max(node.minimum, 1) if node.maximum is None else node.maximum)
    return 0


def plain_automaton(
    node: Node,
    budget: Budget,
    last: int = MAX_CODE_POINT,
    assertion: Callable[[Node], CharSet] | None = None,
    loops: CharSet | None = None,
) -> Dfa:
    """The language of an expression, in which assertions are characters of their own; raises BudgetExceededError.

    ``assertion`` gives the mark that stands for an assertion, ``loops`` the marks that may be read anywhere, ``last``
    the largest of them (see `lookaround`).
    """
    if size(node) > budget.states:
        raise budget.exceeded("the pattern")
    nfa = NfaBuilder(budget, last)
    start, end = nfa.state(), nfa.state()
    nfa.starts.append(start)
    nfa.finals.append(end)
    connect(nfa, node, start, end, assertion)
    if loops:
        for state in range(nfa.states):
            nfa.edge(state, loops, state)
    return Dfa.of_nfa(nfa.arrays(), budget)


def connect(
    nfa: NfaBuilder, node: Node, start: int, end: int, assertion: Callable[[Node], CharSet] | None = None
) -> None:
    """Make ``node`` what is read from state ``start`` to state ``end``. Repetitions are unrolled."""
    if isinstance(node, Text):
        at = start
        for char in node.text[:-1]:
            following = nfa.state()
            nfa.edge(at, CharSet(((ord(char), ord(char)),)), following)
            at = following
        last = ord(node.text[-1])
        nfa.edge(at, CharSet(((last, last),)), end)
    elif isinstance(node, Chars):
        nfa.edge(start, node.charset, end)
    elif isinstance(node, Seq):
        at = start
        for part in node.parts[:-1]:
            following = nfa.state()
            connect(nfa, part, at, following, assertion)
            at = following
        connect(nfa, node.parts[-1], at, end, assertion)
    elif isinstance(node, Alt):
        for choice in node.choices:
            connect(nfa, choice, start, end, assertion)
    elif isinstance(node, Repeat):
        _repeat(nfa, node, start, end, assertion)
    elif isinstance(node, Empty):
        nfa.epsilon(start, end)
    elif not isinstance(node, Never):
        if assertion is None:
            raise AssertionError(f"{type(node).__name__} in a plain expression")
        nfa.edge(start, assertion(node), end)


def _repeat(nfa: NfaBuilder, node: Repeat, start: int, end: int, assertion: Callable[[Node], CharSet] | None) -> None:
    at = start
    copies = node.minimum if node.maximum is not None else max(node.minimum - 1, 0)
    for _ in range(copies):
        following = nfa.state()
        connect(nfa, node.body, at, following, assertion)
        at = following
    if node.maximum is None:
        # States of their own on the loop: ``at`` and ``end`` may lie on others.
        enter = nfa.state()
        leave = nfa.state() if node.minimum else enter
        nfa.epsilon(at, enter)
        connect(nfa, node.body, enter, leave, assertion)
        if node.minimum:
            nfa.epsilon(leave, enter)
        nfa.epsilon(leave, end)
        return
    for _ in range(node.maximum - node.minimum):
        following = nfa.state()
        nfa.epsilon(at, end)
        connect(nfa, node.body, at, following, assertion)
        at = following
    nfa.epsilon(at, end)
