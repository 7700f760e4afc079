"""Nodes with epsilons (`automata.thompson`) → the finished NFA: what cannot end dropped, epsilons replaced by closures.

In this order: bytes that no token holds (`edges`), what matches the empty string (`nullable`), what can reach the end
(`productive`, `distances`), tail calls and what is reached without consuming anything (`closures`), the order of pushes
(`pushes`), and bytes that no edge tells apart (`edges`).
"""

from dotllm.automata.nfa_passes.finish import finish

__all__ = ["finish"]
