"""While a model reasons, a token that ends the reasoning and belongs to the answer must be able to begin it.

Parsers such as Qwen3's read ``<tool_call>`` as the end of the reasoning and as the first token of the answer. With
tools, the grammar begins with this token. Under any other constraint (a JSON Schema, a regular expression, …) the
grammar does not allow it, and nothing masks it, because the request is unconstrained while it reasons. vLLM 0.32 passes
it to the grammar, which can only end the request. vLLM 0.33 masks such tokens
(``StructuredOutputManager._masked_reasoning_ends``), and this file does so for 0.32.

vLLM 0.32. To be deleted with it (`masked_ends` is vLLM's own method then).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from dotllm.vllm_plugin.vllm_types import Request, StructuredOutputManager


def implicit_ends(reasoner: object) -> tuple[int, ...]:
    """Tokens that end the reasoning and belong to the answer. Only one kind of parser tells vLLM which."""
    from vllm.parser.engine.adapters import ParserEngineReasoningAdapter

    if not isinstance(reasoner, ParserEngineReasoningAdapter):
        return ()
    ends = sorted(reasoner.reasoning_end_token_ids)
    return tuple(token for token in ends if reasoner.find_reasoning_end([token]).implicit)


def masked_ends(manager: StructuredOutputManager, request: Request) -> tuple[int, ...]:
    """Those of `implicit_ends` that ``request`` must not sample while it reasons: no answer begins with them."""
    if not needed():
        return manager._masked_reasoning_ends(request)  # type: ignore[attr-defined, no-any-return]  # since 0.33
    structured: Any = request.structured_output_request
    ends = implicit_ends(manager._get_reasoner(request))
    return tuple(token for token in ends if not structured.grammar.validate_tokens([token]))


@cache
def needed() -> bool:
    """Whether the installed vLLM does not mask such ends."""
    from vllm.v1.structured_output.request import StructuredOutputRequest

    return not hasattr(StructuredOutputRequest, "masked_reasoning_end_ids")
