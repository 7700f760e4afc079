"""One API request while its endpoint runs, and the context variable that leads to it.

It is not an argument, because vLLM makes the request's parameters, and gives them to its engine, several calls deeper.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from dotllm.diagnosis import json_places, openai_error
from dotllm.vllm_plugin.extra.mass.record import Record
from dotllm.vllm_plugin.tools import custom_tools
from dotllm.vllm_plugin.tools.unasked import Unasked
from dotllm.vllm_plugin.vllm_types import SamplingParams


class Call:
    """One API request, in its endpoint."""

    def __init__(self, serving: object, request: Any) -> None:
        self.request, self._field = request, openai_error.param(request, "") or ""  # (vLLM moves its format into a tag)
        # In ``/inference/v1/generate`` they come with the request; elsewhere they are made later.
        self.params: SamplingParams | None = getattr(request, "sampling_params", None)
        self.of_anthropic = hasattr(serving, "create_messages")
        self.is_batch = hasattr(serving, "create_batch_chat_completion")
        self.is_completion = hasattr(serving, "create_completion")
        is_chat = hasattr(serving, "create_chat_completion") and not self.is_batch
        is_openai = type(serving).__module__.startswith("vllm.entrypoints.openai.")
        self.says_masses = is_openai and (is_chat or self.is_completion)
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
        own = self._field if self.request.tool_choice == "auto" else ""  # a tag for a forced call leaves it out
        grammars = custom_tools.places(tools)
        return json_places.located(message, tag, tools, grammars, of_anthropic=self.of_anthropic, own=own)


current: ContextVar[Call | None] = ContextVar("dotllm_call", default=None)
