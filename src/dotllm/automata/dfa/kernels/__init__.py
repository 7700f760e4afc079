"""The loops of the DFA algebra. (These do not call each other: each would be compiled
again with its caller.)

A table is int32[states, classes], total; the canonical form that `canonical` gives every result is:

* state 0 is dead (not accepting, all transitions to itself), whether reachable or not;
* the start is state 1, or 0 when the language is empty;
* the other states are reachable, live, pairwise different, and numbered by breadth-first search in class order;
* no two columns are alike.

`product` and `determinise` return (table, accepting, steps) of an automaton that is yet to be minimised (`equivalence`,
then `canonical`), with the same dead state and start. They can explode, so they take ``max_states`` and ``fuel``: a
result of more steps than ``fuel`` is void, a limit was hit.
"""

from dotllm.automata.dfa.kernels.minimise import canonical, equivalence
from dotllm.automata.dfa.kernels.product import product
from dotllm.automata.dfa.kernels.subsets import determinise
from dotllm.automata.dfa.kernels.trie import trie

__all__ = ["canonical", "determinise", "equivalence", "product", "trie"]
