"""Request bodies through a front end's path, without a server: parsing, our hooks, and the check of the parameters."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

from dotllm.errors import SpecError


@cache
def _hooks() -> None:
    from dotllm.vllm_plugin import registry

    registry.apply_required()


def ask(body: Any, backend: str = "dotllm") -> BaseException | None:
    """What becomes an HTTP 500, if anything does."""
    _hooks()
    from pydantic import ValidationError
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    from dotllm.vllm_plugin.frontend import engine_info, validation

    config = SimpleNamespace(
        backend=backend, reasoning_parser="", disable_any_whitespace=False, disable_additional_properties=False
    )
    engine_info.remember(SimpleNamespace(structured_outputs_config=config, model_config=SimpleNamespace()))  # type: ignore[arg-type]
    try:
        parameters = ChatCompletionRequest.model_validate(body).to_sampling_params(8, {})
        if backend == "dotllm" and parameters.structured_outputs is not None:
            validation.specification_of(parameters, config)  # type: ignore[arg-type]
    except (ValidationError, SpecError, ValueError):  # HTTP 400 (vLLM's own errors of requests are ValueErrors)
        return None
    except Exception as error:
        return error
    finally:
        engine_info.remember(None)
    return None


def ask_vllm(body: Any) -> BaseException | None:
    """The same on one of vLLM's own backends."""
    return ask(body, "guidance")
