"""The inspector (`dotllm.inspector`) on a server: its page, its questions, and the requests of this process.

Off by default; then nothing of vLLM's is replaced. The page says nothing of requests. Its questions are below ``/v1``,
which vLLM guards with its API key.
"""

from __future__ import annotations

import asyncio
import functools
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from dotllm.errors import SpecError
from dotllm.inspector import live
from dotllm.inspector.inspector import BadQuestion, Inspector
from dotllm.inspector.page import POLICY, page
from dotllm.vllm_plugin import settings
from dotllm.vllm_plugin.engine_core import per_process
from dotllm.vllm_plugin.frontend import engine_info, friction, validation
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
def _inspector() -> Inspector:
    tokenizer, model_config = engine_info.tokenizer_and_model()
    return live.LiveInspector(per_process.vocabulary_of_model(tokenizer, model_config), model_config.model, _live)


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
    from starlette.responses import JSONResponse, Response

    one = _live.get(request.path_params["name"])
    if one is None or one.request.prompt_token_ids is None or one.request.mm_features:
        return Response("this request is not known any more, or its prompt is more than tokens", 400)
    prompt, params, lora = one.request.prompt_token_ids, one.request.sampling_params, one.request.lora_request
    answer = friction.Answer(one.specification, prompt, one.tokens, params, lora, one.request.reasoning_ended)
    return JSONResponse(await friction.measure(request.app.state.engine_client, answer))


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
            answer_of = friction.under_constraint(request.reasoning_ended)
            live.begin(_live, request.request_id, live.Live(specification, answer_of, request))


@HOOK.replaces(f"{_PROCESSOR}.process_outputs")
def _process_outputs(
    self: object, engine_core_outputs: Sequence[EngineCoreOutput], *args: Any, original: Original, **kwargs: Any
) -> Any:
    for one in engine_core_outputs:
        live.take(_live, one.request_id, one.new_token_ids, one.finish_reason)
    return original(self, engine_core_outputs, *args, **kwargs)
