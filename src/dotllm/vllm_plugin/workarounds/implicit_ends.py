"""While a model reasons, a token that ends the reasoning and belongs to the answer must be one the answer begins with.

Parsers such as Qwen3's take ``<tool_call>`` for the end of the reasoning and for the first token of the answer. Under
tools that is how the grammar begins. Under any other constraint (a JSON Schema, a regular expression, …) it is a token
that the grammar does not allow, and nothing masks it, since the request is free while it reasons: vLLM 0.32 hands it to
the grammar, which can only end the request. Since 0.33 vLLM masks such tokens itself; here the same is done for 0.32.

vLLM fills a full mask for a request that reasons. Which of them must not be sampled there depends on the request, of
which vLLM's ``_fill_bitmasks`` sees the grammar only: so they are kept with the grammar. `gpu.constrained`, which has
the masks on the GPU noted, asks `forbidden` itself.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from dotllm.vllm_plugin.hook import Hook, Target, replace_once, require_parameters

_FORBIDDEN = "dotllm_forbidden_in_reasoning"  # attribute of a grammar

Entries = list[tuple[Any, int, bool]]
"""What vLLM fills: (grammar, row, whether its mask holds)"""


def implicit_ends(reasoner: Any) -> tuple[int, ...]:
    """Tokens that end the reasoning and belong to the answer, where vLLM does not mask them itself."""
    if hasattr(reasoner, "implicit_reasoning_end_token_ids"):  # since 0.33
        return ()
    find = getattr(reasoner, "find_reasoning_end", None)
    if find is None:
        return ()
    ends = ((token, find([token])) for token in sorted(getattr(reasoner, "reasoning_end_token_ids", None) or ()))
    return tuple(token for token, end in ends if end is not None and getattr(end, "implicit", False))


def forbidden(manager: Any, request: Any) -> tuple[int, ...]:
    """Tokens that ``request``, while it reasons, must not sample. manager: vLLM's ``StructuredOutputManager``."""
    from dotllm.vllm_plugin.engine_core.request_grammar import RequestGrammar

    grammar = request.structured_output_request.grammar
    if not isinstance(grammar, RequestGrammar):  # another backend's, or one that is not there
        return ()
    found: tuple[int, ...] | None = getattr(grammar, _FORBIDDEN, None)
    if found is None:
        reasoner = manager._get_reasoner(request)
        found = tuple(token for token in implicit_ends(reasoner) if not grammar.validate_tokens([token]))
        setattr(grammar, _FORBIDDEN, found)
    return found


def _grammar_bitmask_with(original: Any) -> Any:
    def grammar_bitmask(
        self: Any, requests: Any, structured_output_request_ids: list[str], scheduled_spec_decode_tokens: Any
    ) -> Any:
        if self.reasoner_cls is not None:
            for name in structured_output_request_ids:
                if not requests[name].structured_output_request.reasoning_ended:
                    forbidden(self, requests[name])
        return original(self, requests, structured_output_request_ids, scheduled_spec_decode_tokens)

    return grammar_bitmask


def _fill_bitmasks_with(original: Any) -> Any:
    require_parameters(original, ("self", "batch"), no_more=True)

    def _fill_bitmasks(self: Any, batch: Any) -> None:
        entries: Entries = list(batch)
        original(self, entries)
        for grammar, row, holds, *_ in entries:
            if not holds:
                for token in getattr(grammar, _FORBIDDEN, ()):
                    self._grammar_bitmask[row, token >> 5] &= _all_but(token & 31)

    return _fill_bitmasks


def _all_but(bit: int) -> int:
    """An int32 of all bits but one."""
    return ~(1 << bit) if bit < 31 else 2**31 - 1


@cache
def needed() -> bool:
    """Whether the installed vLLM's parsers say which ends belong to the answer, and it does not mask them."""
    from vllm.parser.engine.parser_engine import ReasoningEnd
    from vllm.v1.structured_output.request import StructuredOutputRequest

    return "implicit" in ReasoningEnd._fields and not hasattr(StructuredOutputRequest, "masked_reasoning_end_ids")


def _apply() -> None:
    if not needed():
        return
    from vllm.v1.structured_output import StructuredOutputManager

    replace_once(StructuredOutputManager, "_fill_bitmasks", _fill_bitmasks_with)
    replace_once(StructuredOutputManager, "grammar_bitmask", _grammar_bitmask_with)


_MANAGER = "vllm.v1.structured_output"

HOOK = Hook(
    name="implicit-reasoning-ends",
    summary="while it reasons, a model does not begin an answer that the constraint forbids (vLLM 0.32)",
    targets=(
        Target(_MANAGER, "StructuredOutputManager._fill_bitmasks", ("self", "batch")),
        Target(
            _MANAGER,
            "StructuredOutputManager.grammar_bitmask",
            ("self", "requests", "structured_output_request_ids", "scheduled_spec_decode_tokens"),
        ),
    ),
    apply=_apply,
    required=False,
    without_it="a request whose model calls a tool in place of the answer it was asked for ends with an error",
)
