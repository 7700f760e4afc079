"""The algebra of regular languages over code points: `Dfa`, its operations, and its lowering to a Grammar."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dotllm.exports import exports

if TYPE_CHECKING:
    from dotllm.automata.dfa.classes import Classes
    from dotllm.automata.dfa.dfa import Dfa, dfa_to_grammar, union_of
    from dotllm.automata.dfa.nfa import Budget, NfaArrays, NfaBuilder

__all__ = ["Budget", "Classes", "Dfa", "NfaArrays", "NfaBuilder", "dfa_to_grammar", "union_of"]

__getattr__, __dir__ = exports(
    __name__, classes="Classes", dfa="Dfa dfa_to_grammar union_of", nfa="Budget NfaArrays NfaBuilder"
)
