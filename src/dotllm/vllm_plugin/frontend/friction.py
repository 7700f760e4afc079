"""``vllm_xargs.dotllm_friction``: an answer says how much of the model's probability each mask took away.

The model reads the answer again, as a prompt (`dotllm.inspector.friction` says why). So masks, steps and requests that
do not ask are as they are. Chats and completions that are not streamed know the field, all others refuse it.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import uuid4

from dotllm.compilation import Specification
from dotllm.inspector.friction import LIKELIEST
from dotllm.inspector.inspector import Inspector
from dotllm.vllm_plugin.engine_core import per_process
from dotllm.vllm_plugin.frontend import engine_info, validation

FIELD = "dotllm_friction"


class Answer(NamedTuple):
    """The answer to a request, and what it was asked with."""

    specification: Specification
    prompt: list[int]
    tokens: list[int]
    params: Any
    """vLLM's ``SamplingParams``."""
    lora_request: Any
    reasoning_ended: bool | None


@functools.cache
def _inspector() -> Inspector:
    return Inspector(per_process.vocabulary_of_model(*engine_info.tokenizer_and_model()))


def under_constraint(reasoning_ended: bool | None) -> Callable[[list[int]], list[int]]:
    """What takes those under the constraint out of the tokens of an answer: all, or those after the reasoning."""
    configured = engine_info.config()
    if configured is None or not configured.reasoning_parser or reasoning_ended:
        return list
    from vllm.reasoning import ReasoningParserManager

    parser: Any = ReasoningParserManager.get_reasoning_parser(configured.reasoning_parser)
    return parser(engine_info.tokenizer_and_model()[0]).extract_content_ids  # type: ignore[no-any-return]


async def measure(engine: Any, answer: Answer) -> dict[str, Any]:
    """`Inspector.friction` of an answer, as far as the model's length has room for it. ``engine``: vLLM's client."""
    most = engine.model_config.max_model_len - 1
    prompt: Any = {"prompt_token_ids": [*answer.prompt, *answer.tokens][:most]}
    allowed = engine.model_config.max_logprobs  # -1: any number
    number = LIKELIEST if allowed < 0 else min(LIKELIEST, allowed)
    params = type(answer.params)(max_tokens=1, prompt_logprobs=number, detokenize=False)
    again = engine.generate(prompt, params, f"{FIELD}-{uuid4()}", lora_request=answer.lora_request)
    outputs = [output async for output in again]
    positions = outputs[-1].prompt_logprobs[len(answer.prompt) :]
    constrained = under_constraint(answer.reasoning_ended)(answer.tokens[: len(positions)])
    likeliest = [
        {token: found.logprob for token, found in position.items()}
        for position in positions[len(positions) - len(constrained) :]
    ]
    return await asyncio.to_thread(lambda: _inspector().friction(answer.specification, constrained, likeliest))


def is_asked_for(request: Any) -> bool:
    """Whether ``request`` asks for it, which is taken out of it; vLLM then returns the tokens, too. Raises as
    `validation.refuse`."""
    xargs = getattr(request, "vllm_xargs", None)
    if not xargs or FIELD not in xargs:
        return False
    if request.stream or not hasattr(request, "return_token_ids"):
        validation.refuse(f"vllm_xargs.{FIELD} is for chats and completions that are not streamed", "vllm_xargs")
    if xargs.pop(FIELD) not in (True, 1):
        validation.refuse(f"vllm_xargs.{FIELD} must be true", "vllm_xargs")
    request.return_token_ids = True
    return True


def refuse_what_is_not_text(prompt: object) -> None:
    """Images, audio and embeddings are not read again. Raises as `validation.refuse`."""
    if isinstance(prompt, dict) and prompt.get("type", "token") != "token":
        validation.refuse(f"vllm_xargs.{FIELD}: the prompt is not text alone", "vllm_xargs")


async def add(engine: Any, params: Any, lora_request: Any, reasoning_ended: bool | None, response: Any) -> None:
    """Put ``dotllm_friction`` into each choice of a response of vLLM's; an error has none."""
    for choice in getattr(response, "choices", ()):
        prompt = getattr(choice, "prompt_token_ids", None) or response.prompt_token_ids
        specification = validation.specification_of(params, engine_info.config())
        answer = Answer(specification, prompt, choice.token_ids, params, lora_request, reasoning_ended)
        choice.dotllm_friction = await measure(engine, answer)
