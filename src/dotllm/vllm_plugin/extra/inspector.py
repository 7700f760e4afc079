"""The inspector (`dotllm.inspector`) on a server: its page, its questions, and the requests of this process.

It is off by default and then replaces nothing in vLLM. The page says nothing about requests. Its questions go to paths
below ``/v1``, which vLLM guards with its API key.
"""

from __future__ import annotations

import asyncio
import functools
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dotllm.errors import SpecError
from dotllm.vllm_plugin import settings
from dotllm.vllm_plugin.api import served
from dotllm.vllm_plugin.enforce import engine_info, per_process, validation
from dotllm.vllm_plugin.extra.mass import record
from dotllm.vllm_plugin.extra.mass.answers import masses_of
from dotllm.vllm_plugin.hook import Hook, Original
from dotllm.vllm_plugin.vllm_types import EngineCoreOutput

if TYPE_CHECKING:
    from dotllm.inspector import inspector
    from dotllm.inspector.inspector import Inspector

HOOK = Hook(
    summary="with --dotllm-inspect: the inspector's page at /dotllm/inspect follows requests token by token",
    where=lambda: settings.value(settings.INSPECT) == "on",
    without_it="a server has no inspector",
)
_PROCESSOR = "vllm.v1.engine.output_processor:OutputProcessor"
_live: OrderedDict[str, inspector.Live] = OrderedDict()


@functools.cache
def _inspector() -> Inspector:
    from dotllm.inspector import inspector

    tokenizer, model_config = served.tokenizer_and_model()
    return inspector.LiveInspector(per_process.vocabulary_of_model(tokenizer, model_config), model_config.model, _live)


async def _page(request: Any) -> Any:
    from starlette.responses import HTMLResponse

    from dotllm.inspector.server import POLICY, page

    text = page(_inspector(), None, questions="../v1/dotllm/inspect/", live=True)
    return HTMLResponse(text, headers={"Content-Security-Policy": POLICY})


async def _answer(request: Any) -> Any:
    from starlette.responses import Response

    from dotllm.inspector.inspector import BadQuestion

    body, question = await request.body(), request.path_params["question"]
    try:
        answer = await asyncio.to_thread(lambda: _inspector().answer_text(question, body))
    except BadQuestion as error:
        return Response(str(error), 400)
    return Response(answer, media_type="application/json")


@HOOK.replaces("vllm.plugins.endpoint_plugins.interface:attach_endpoint_plugins")
def _attach_endpoint_plugins(app: Any, supported_tasks: Any, *, original: Original) -> None:
    original(app, supported_tasks)
    app.add_route("/dotllm/inspect", _page, ["GET"], include_in_schema=False)
    app.add_route("/v1/dotllm/inspect/{question}", _answer, ["POST"], include_in_schema=False)


@HOOK.replaces(f"{_PROCESSOR}.add_request")
def _add_request(self: object, request: Any, prompt: str | None, *args: Any, original: Original, **kwargs: Any) -> None:
    constrained = served.is_constrained(request.sampling_params)
    if constrained and not record.why_not():  # (vLLM sends it to the engine after this)
        record.ask(request.sampling_params, confidence=True)
    original(self, request, prompt, *args, **kwargs)
    if constrained:
        from dotllm.inspector import inspector

        with suppress(SpecError):  # the engine refuses it
            specification = validation.specification_of(request.sampling_params, engine_info.config())
            answer_of = record.under_constraint(request.reasoning_ended)
            inspector.begin(_live, request.request_id, inspector.Live(specification, answer_of))


@HOOK.replaces(f"{_PROCESSOR}.process_outputs")
def _process_outputs(
    self: Any, engine_core_outputs: Sequence[EngineCoreOutput], *args: Any, original: Original, **kwargs: Any
) -> Any:
    from dotllm.inspector import inspector

    known = [(output, self.request_states.get(output.request_id)) for output in engine_core_outputs]
    answer = original(self, engine_core_outputs, *args, **kwargs)
    for output, state in known:
        is_shown = state is not None and output.request_id in _live
        places = record.places_of(output.new_logprobs, masses_of(state.logprobs_processor)) if is_shown else ()
        inspector.take(_live, output.request_id, output.new_token_ids, output.finish_reason, places)
    return answer
