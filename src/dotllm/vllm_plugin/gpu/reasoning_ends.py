"""Which tokens can end a request's reasoning, so that vLLM need not be asked about every other one (`asked`).

vLLM asks its reasoning parser about each token of each constrained request that reasons, a microsecond in the engine's
loop: with 256 requests a fiftieth of the step of an 8B model. Most parsers look for one token, or for a set of tokens
that they name. Of those that do anything else nothing is known here, and vLLM is asked.
"""

from __future__ import annotations

from typing import Any


def ends_of(reasoner: Any) -> frozenset[int] | None:
    """Tokens without one of which a step does not end the reasoning; None: not known."""
    from vllm.reasoning.basic_parsers import BaseThinkingReasoningParser

    found: frozenset[int] | None = None
    if hasattr(reasoner, "find_reasoning_end"):  # parsers made of a grammar of states, since 0.32
        found = getattr(reasoner, "reasoning_end_token_ids", None)
    elif getattr(type(reasoner), "is_reasoning_end_streaming", None) is (
        BaseThinkingReasoningParser.is_reasoning_end_streaming
    ):
        found = frozenset([reasoner.end_token_id])
    return found or None
