"""The algebra of regular languages over code points: Dfa, its operations, and its way into a Grammar."""

from dotllm.automata.dfa.budget import Budget
from dotllm.automata.dfa.dfa import Dfa, union_of
from dotllm.automata.dfa.lower import dfa_to_grammar
from dotllm.automata.dfa.nfa import NfaArrays, NfaBuilder

__all__ = ["Budget", "Dfa", "NfaArrays", "NfaBuilder", "dfa_to_grammar", "union_of"]
