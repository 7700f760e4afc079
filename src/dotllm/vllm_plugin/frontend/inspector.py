"""The inspector (`dotllm.inspector`) on a server: its page, its questions, and the requests of this process.

Off by default; then nothing of vLLM's is replaced. The page says nothing of requests. Its questions are below ``/v1``,
which vLLM guards with its API key.
"""

from __future__ import annotations

import asyncio
import functools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

from dotllm.errors import SpecError
from dotllm.inspector import live
from dotllm.inspector.friction import LIKELIEST
from dotllm.inspector.inspector import BadQuestion
from dotllm.inspector.page import POLICY, page
from dotllm.vllm_plugin import settings
from dotllm.vllm_plugin.engine_core import per_process
from dotllm.vllm_plugin.frontend import engine_info, validation
from dotllm.vllm_plugin.hook import Hook, Original
from dotllm.vllm_plugin.vllm_types import EngineCoreOutput

HOOK = Hook(
    name="inspector",
    summary="with --dotllm-inspect: the inspector's page at /dotllm/inspect follows requests token by token",
    where=settings.inspects,
    without_it="a server has no inspector",
)
_PROCESSOR = "vllm.v1.engine.output_processor:OutputProcessor"
_live: OrderedDict[str, live.Live] = OrderedDict()


@functools.cache
def _inspector() -> live.LiveInspector:
    tokenizer, model_config = engine_info.tokenizer_and_model()
    return live.LiveInspector(per_process.vocabulary_of_model(tokenizer, model_config), model_config.model, _live)


def _answer_of(request: Any) -> Callable[[list[int]], list[int]]:
    """What takes the tokens under the constraint out of all tokens of ``request``."""
    configured = engine_info.config()
    if configured is None or not configured.reasoning_parser or request.reasoning_ended:
        return list
    from vllm.reasoning import ReasoningParserManager

    parser: Any = ReasoningParserManager.get_reasoning_parser(configured.reasoning_parser)
    return parser(engine_info.tokenizer_and_model()[0]).extract_content_ids  # type: ignore[no-any-return]


async def _page(request: Any) -> Any:
    from starlette.responses import HTMLResponse

    text = page(_inspector(), None, questions="../v1/dotllm/inspect/", live=True)
    return HTMLResponse(text, headers={"Content-Security-Policy": POLICY})


async def _answer(request: Any) -> Any:
    from starlette.responses import Response

    body, question = await request.body(), request.path_params["question"]
    try:
        answer = await asyncio.to_thread(lambda: _inspector().answer_text(question, body))
    except BadQuestion as error:
        return Response(str(error), 400)
    return Response(answer, media_type="application/json")


async def _friction(request: Any) -> Any:
    """The model reads an answer again, as a prompt (`dotllm.inspector.friction`)."""
    from starlette.responses import JSONResponse, Response

    name, engine = request.path_params["name"], request.app.state.engine_client
    asked = _live[name].request if name in _live else None
    if asked is None or asked.prompt_token_ids is None or asked.mm_features:
        return Response("this request is not known any more, or its prompt is more than tokens", 400)
    tokens = [*asked.prompt_token_ids, *_live[name].tokens][: engine.model_config.max_model_len - 1]
    params = type(asked.sampling_params)(max_tokens=1, prompt_logprobs=LIKELIEST, detokenize=False)
    again = engine.generate({"prompt_token_ids": tokens}, params, f"inspect-{uuid4()}", lora_request=asked.lora_request)
    outputs = [one async for one in again]
    likeliest = outputs[-1].prompt_logprobs[len(asked.prompt_token_ids) :]
    plain = [{token: found.logprob for token, found in place.items()} for place in likeliest]
    return JSONResponse(await asyncio.to_thread(_inspector().friction, name, plain))


@HOOK.replaces("vllm.plugins.endpoint_plugins.interface:attach_endpoint_plugins")
def _attach_endpoint_plugins(app: Any, supported_tasks: Any, *, original: Original) -> None:
    original(app, supported_tasks)
    app.add_route("/dotllm/inspect", _page, ["GET"], include_in_schema=False)
    app.add_route("/v1/dotllm/inspect/friction/{name}", _friction, ["POST"], include_in_schema=False)
    app.add_route("/v1/dotllm/inspect/{question}", _answer, ["POST"], include_in_schema=False)


@HOOK.replaces(f"{_PROCESSOR}.add_request")
def _add_request(self: object, request: Any, prompt: str | None, *args: Any, original: Original, **kwargs: Any) -> None:
    original(self, request, prompt, *args, **kwargs)
    if engine_info.is_constrained(request.sampling_params):
        with suppress(SpecError):  # the engine refuses it
            specification = validation.specification_of(request.sampling_params, engine_info.config())
            live.begin(_live, request.request_id, live.Live(specification, _answer_of(request), request))


@HOOK.replaces(f"{_PROCESSOR}.process_outputs")
def _process_outputs(
    self: object, engine_core_outputs: Sequence[EngineCoreOutput], *args: Any, original: Original, **kwargs: Any
) -> Any:
    for one in engine_core_outputs:
        live.take(_live, one.request_id, one.new_token_ids, one.finish_reason)
    return original(self, engine_core_outputs, *args, **kwargs)
