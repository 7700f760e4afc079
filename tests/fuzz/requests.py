"""Request bodies on a front end's path, without a server: parsing, our hooks, and the validation of parameters."""

from __future__ import annotations

import pkgutil
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

from dotllm.errors import SpecError


@cache
def _hooks() -> None:
    from dotllm.vllm_plugin import registry

    registry.apply_required()


CLASSES = {
    "chat": "vllm.entrypoints.openai.chat_completion.protocol:ChatCompletionRequest",
    "batch": "vllm.entrypoints.openai.chat_completion.protocol:BatchChatCompletionRequest",
    "completion": "vllm.entrypoints.openai.completion.protocol:CompletionRequest",
    "response": "vllm.entrypoints.openai.responses.protocol:ResponsesRequest",
    "message": "vllm.entrypoints.anthropic.protocol:AnthropicMessagesRequest",
    "tokens": "vllm.entrypoints.scale_out.token_in_token_out.protocol:GenerateRequest",
}
PATHS = {
    "chat": "/v1/chat/completions",
    "batch": "/v1/chat/completions/batch",
    "completion": "/v1/completions",
    "response": "/v1/responses",
    "message": "/v1/messages",
}
"""Where a server takes requests of these classes."""


class _Tokenizer:
    """A tokenizer with what vLLM's hermes parser needs to make a constraint from tools."""

    def encode(self, text: str, **_: Any) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: list[int], **_: Any) -> str:
        return bytes(tokens).decode()

    def get_vocab(self) -> dict[str, int]:
        return {}


def with_tools(request: Any) -> Any:
    """``request`` after vLLM has made a constraint from its tools with the hermes parser."""
    from vllm.parser.parser_manager import ParserManager

    if not getattr(request, "tools", None) or getattr(request, "tool_choice", "none") == "none":
        return request
    parser_class = ParserManager.get_parser(tool_parser_name="hermes", enable_auto_tools=True)
    return parser_class(_Tokenizer(), request.tools).adjust_request(request)


_SPECIFICATIONS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
_FORMATS = ("json_schema", "json_object", "structural_tag")


class Outcome(NamedTuple):
    """What a front end makes of a request."""

    error: BaseException | None = None
    """the cause of an HTTP 500"""
    is_free: bool = False
    """accepted, and nothing constrains the answer"""
    refusal: str | None = None
    """the message of an HTTP 400"""
    param: str | None = None
    code: str | None = None


def asks(kind: str, body: Any) -> bool:
    """Whether a request demands a constraint, so that its answer must not be free."""
    if kind == "tokens":
        body = body.get("sampling_params") or {}
    structured = body.get("structured_outputs")
    if kind != "message" and isinstance(structured, dict) and any(structured.get(name) for name in _SPECIFICATIONS):
        return True
    fields = {"response": ("text", "format"), "message": ("output_config", "format")}.get(kind, ("response_format",))
    for field in fields:
        body = body.get(field) if isinstance(body, dict) else None
    return isinstance(body, dict) and body.get("type") in _FORMATS


def ask(kind: str, body: Any, backend: str = "auto") -> Outcome:
    """What a front end makes of a request; ``kind`` is one of `CLASSES`."""
    _hooks()
    from pydantic import ValidationError
    from vllm.entrypoints.anthropic.serving import AnthropicServingMessages
    from vllm.exceptions import VLLMValidationError

    from dotllm.vllm_plugin.enforce import engine_info, validation

    config = SimpleNamespace(
        backend=backend, reasoning_parser="", disable_any_whitespace=False, disable_additional_properties=False
    )
    engine_info.remember(SimpleNamespace(structured_outputs_config=config, model_config=SimpleNamespace()))  # type: ignore[arg-type]
    assert engine_info.serves() == (backend == "auto"), "otherwise none of our hooks would do anything"
    try:
        request = pkgutil.resolve_name(CLASSES[kind]).model_validate(body)
        if kind == "message":
            request = AnthropicServingMessages.to_chat_completion_request(request)
        elif kind == "batch":
            request = request.to_chat_completion_request(request.messages[0])
        is_ready = kind == "tokens"  # its parameters come with it
        parameters = request.sampling_params if is_ready else with_tools(request).to_sampling_params(8, {})
        if backend == "auto" and parameters.structured_outputs is not None:
            validation.specification_of(parameters, config)  # type: ignore[arg-type]
    except (ValidationError, VLLMValidationError, SpecError, ValueError) as error:  # HTTP 400
        message = error.args[0] if isinstance(error, VLLMValidationError) else str(error)
        return Outcome(None, False, message, getattr(error, "parameter", None), getattr(error, "dotllm_code", None))
    except Exception as error:
        return Outcome(error)
    finally:
        engine_info.remember(None)
    return Outcome(is_free=parameters.structured_outputs is None)


def ask_vllm(kind: str, body: Any) -> Outcome:
    """Like `ask`, with one of vLLM's own backends."""
    return ask(kind, body, "guidance")
