"""/v1/completions under a constraint is constrained from its first token, whatever the server's reasoning parser.

With a reasoning parser vLLM constrains nothing before the end of the reasoning. A chat has reasoning, and an answer
behind it; a completion is one text, nobody parses reasoning out of it, and a model that does not reason there never
comes to the constraint: vLLM answers 200 with free text. The constraint is for the text that is returned, all of it.

So its reasoning has ended before it begins: `endpoints` says so to the engine, and a rendered request
(``/v1/completions/render``) in its own field, with which it makes its way to ``/inference/v1/generate``.
"""

from __future__ import annotations

import importlib
from typing import Any

from dotllm.vllm_plugin.frontend import engine_info
from dotllm.vllm_plugin.hook import Hook, Target

_PROTOCOL = "vllm.entrypoints.openai.completion.protocol"

HOOK = Hook(
    name="completions",
    summary="a rendered completion is constrained from its first token",
    targets=(
        Target("vllm.entrypoints.scale_out.token_in_token_out.protocol", "GenerateRequest.reasoning_ended"),
        Target("vllm.v1.engine", "EngineCoreRequest.reasoning_ended"),
    ),
    without_it="with a reasoning parser, rendered completions of a model that does not reason are free text",
)


def is_one(request: Any) -> bool:
    """Whether a request of an API is a completion."""
    return isinstance(request, importlib.import_module(_PROTOCOL).CompletionRequest)


@HOOK.replaces("vllm.entrypoints.scale_out.render.serving:ServingRender.render_completion_request")
def _render_completion_request_with(original: Any) -> Any:
    async def render_completion_request(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        rendered = await original(self, request, *args, **kwargs)
        for one in rendered if isinstance(rendered, list) else ():
            if engine_info.is_constrained(one.sampling_params) and one.reasoning_ended is None:
                one.reasoning_ended = True
        return rendered

    return render_completion_request
