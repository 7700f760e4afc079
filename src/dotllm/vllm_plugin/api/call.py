"""One API request while its endpoint runs, and the context variable that leads to it.

An endpoint cannot pass it on as an argument, because vLLM makes the request's parameters, and gives them to its engine,
several calls deeper.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from dotllm.diagnosis import json_places
from dotllm.vllm_plugin.extra.mass.record import Record
from dotllm.vllm_plugin.tools import custom_tools
from dotllm.vllm_plugin.tools.unasked import Unasked
from dotllm.vllm_plugin.vllm_types import SamplingParams

_OPENAI = "vllm.entrypoints.openai."


class Call:
    """One API request, in its endpoint."""

    def __init__(self, serving: object, request: Any) -> None:
        self.request = request
        # In ``/inference/v1/generate`` they come with the request; elsewhere they are made later.
        self.params: SamplingParams | None = getattr(request, "sampling_params", None)
        self.of_anthropic = hasattr(serving, "create_messages")
        self.is_batch = hasattr(serving, "create_batch_chat_completion")
        self.is_completion = hasattr(serving, "create_completion")
        is_chat = hasattr(serving, "create_chat_completion") and not self.is_batch
        self.says_masses = type(serving).__module__.startswith(_OPENAI) and (is_chat or self.is_completion)
        """Whether its answer can report its masses (other APIs make their answers from a chat's)."""
        self.in_background = bool(getattr(request, "background", False))
        # (A batch has the field but does not read it.)
        self.streams = bool(getattr(request, "stream", False)) and not self.in_background and not self.is_batch
        self.record: Record | None = None
        """The record of its masses, if it asks for them."""
        self.unasked: Unasked | None = None
        self.answered = False
        """Whether the engine has produced output for this request."""

    def located(self, message: str) -> str:
        """The message of a refusal, with its place in the request if that is in a tool."""
        tag = getattr(getattr(self.params, "structured_outputs", None), "structural_tag", None)
        tools = getattr(self.request, "tools", None)
        if not tag or not isinstance(tools, list) or getattr(self.request, "tool_choice", "none") == "none":
            return message
        return json_places.located(message, tag, tools, custom_tools.places(tools), of_anthropic=self.of_anthropic)


current: ContextVar[Call | None] = ContextVar("dotllm_call", default=None)
