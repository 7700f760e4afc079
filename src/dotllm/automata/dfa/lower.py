"""Dfa → Grammar: an automaton over characters as a network whose edges the caller spells."""

from __future__ import annotations

from collections.abc import Callable

from dotllm.automata.charset import CharSet
from dotllm.automata.dfa.dfa import Dfa
from dotllm.grammar import Expression, Grammar


def dfa_to_grammar(dfa: Dfa, grammar: Grammar, lower_chars: Callable[[CharSet], Expression]) -> Expression:
    """``dfa`` as one expression of ``grammar``.

    ``lower_chars`` gives the spelling of one character out of a set: ``grammar.chars`` for plain text, an alternative
    of raw and escaped forms inside a JSON string. It is called once per distinct set. The states are those of the
    minimal automaton, so the expression of a language does not depend on how it was computed.
    """
    if dfa.start == 0:
        return grammar.never()
    spelled: dict[int, Expression] = {}
    edges: list[tuple[int, Expression, int]] = []
    for source, row in enumerate(dfa.rows):
        targets: dict[int, int] = {}
        for cls, target in enumerate(row):
            if target:
                targets[target] = targets.get(target, 0) | 1 << cls
        for target, classes in targets.items():
            expression = spelled.get(classes)
            if expression is None:
                expression = spelled[classes] = lower_chars(dfa.alphabet.charset(classes))
            edges.append((source, expression, target))
    finals = [state for state, accepts in enumerate(dfa.accepting.tolist()) if accepts]
    if not edges:
        return grammar.empty()
    return grammar.network(len(dfa.rows), dfa.start, finals, edges)
