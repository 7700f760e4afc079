"""Schemas that a forced call follows, even if the client has not asked for it.

A client that demands a call (``tool_choice``: required, or a named tool) wants arguments that its tool can take, but
few clients say ``strict``. Of 32 such calls by client libraries, none was valid without this; of 40 with it, 34 were.
So a tool that does not mention ``strict`` is strict in a forced call. ``"strict": false`` and ``--tool-strict-level``
mean what they mean in vLLM.

A request is never refused for what its client has not asked for. If such a schema cannot be enforced, the request is
served as vLLM serves it, and its answer says so in a warning. Some refusals are found while the constraint is made
(`constraints`). The engine, which compiles everything, finds the rest: the request is sent again (`endpoints`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dotllm.vllm_plugin.api import response_headers
from dotllm.vllm_plugin.tools import argument_types, tag_rewrite
from dotllm.vllm_plugin.vllm_types import SamplingParams, StructuredOutputsParams


class Unasked:
    """A constraint with such schemas, and the constraint that vLLM makes of the request."""

    def __init__(self, functions: Sequence[Any], as_vllm: Callable[[], StructuredOutputsParams | None]) -> None:
        self._functions, self._as_vllm = functions, as_vllm
        self.constraint: StructuredOutputsParams | None = None
        """The parameters that the engine gets."""

    def is_in(self, params: Any) -> bool:
        """Whether ``params`` still have this constraint."""
        return self.constraint is not None and params.structured_outputs is self.constraint

    def leave(self, params: SamplingParams, reason: str) -> None:
        """Give ``params`` the constraint that vLLM makes: the schemas cannot be enforced, for this ``reason``."""
        params.structured_outputs = self._as_vllm()
        for function in self._functions:
            argument_types.convert_again(function)
        warn(self._functions, reason)


def functions_of(request: Any, strict_level: int) -> list[Any]:
    """The functions of ``request`` whose schemas are followed unasked. ``strict_level``: the server's; 0 leaves
    strictness to the tools."""
    choice = request.tool_choice
    named = getattr(choice, "function", choice)
    name = getattr(named, "name", None)
    if strict_level or not (choice == "required" or name is not None):
        return []
    return [
        function
        for _, called, function in tag_rewrite.functions(request.tools or ())
        if name in (None, called)
        and getattr(function, "strict", True) is None
        and function.parameters
        and not tag_rewrite.excludes_objects(function)
    ]


@contextmanager
def followed(functions: Sequence[Any]) -> Iterator[None]:
    """A context in which the functions are strict."""
    for function in functions:
        function.strict = True
    try:
        yield
    finally:
        for function in functions:
            function.strict = None


@contextmanager
def left_open(functions: Sequence[Any]) -> Iterator[None]:
    """A context in which the functions take any object."""
    schemas = [function.parameters for function in functions]
    for function in functions:
        function.parameters = {"type": "object"}
    try:
        yield
    finally:
        for function, schema in zip(functions, schemas, strict=True):
            function.parameters = schema


def warn(functions: Sequence[Any], reason: str) -> None:
    """Let the answer say that the schemas are not followed."""
    names = ", ".join(repr(function.name) for function in functions)
    response_headers.warn(f"the call need not follow the schema of {names}, as for a tool that is not strict: {reason}")
