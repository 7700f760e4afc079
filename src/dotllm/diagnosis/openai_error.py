"""OpenAI's error object for a refusal: the field of the request, and a code that programs can read.

https://platform.openai.com/docs/guides/error-codes
"""

from __future__ import annotations

import re
from typing import Any

from dotllm import errors
from dotllm.diagnosis.json_places import SCHEMA_FIELDS
from dotllm.errors import SpecError

_TOOL = re.compile(
    r"\(at /tools/(\d+)/((?:tools/\d+/)?)"
    r"(function/parameters|parameters|input_schema|(?:custom/format/grammar|format)/definition)"
)
_FORMAT = re.compile(rf"\(at /({'|'.join(SCHEMA_FIELDS).replace('.', '/')})/")
"""The place of a format next to tools (`json_places.located`)."""
SENT = (
    "stop", "bad_words", "vllm_xargs", "kv_transfer_params", "chat_template_kwargs", "request_id", "top_k",
    "thinking_token_budget", "repetition_detection",
)  # fmt: skip
"""Fields that go to the engine as they are."""
PROMPT = ("prompt", "suffix", "input", "instructions", "messages", "tools")
"""Fields that a prompt is made of."""
BESIDE = (*SENT, *PROMPT, "max_tokens", "min_tokens", "stop_token_ids", "allowed_token_ids", "use_beam_search")
"""Fields that a refusal may be about, other than the constraint."""
_OPTION = r"structured_outputs\.(?:disable_\w+|whitespace_pattern)"
_FIELD_OF_OPTION = {"whitespace_pattern": "structured_outputs.whitespace_pattern", "source": "dotllm_source"}
"""The fields of options that a compile refuses."""
_BEGINS = re.compile(rf"(vllm_xargs(?:\.\w+)?|{'|'.join(BESIDE)}|dotllm_\w+|{_OPTION})(?![\w=])")
"""The beginnings of messages about such fields."""
_LIMITS = ("max_completion_tokens", "max_output_tokens", "max_tokens")
"""The names of ``max_tokens`` in the APIs."""
_STRUCTURED = ("json", "json_object", "regex", "choice", "grammar", "structural_tag")


def error_fields(message: str, code: str, request: Any, parameter: str | None = None) -> dict[str, Any]:
    """``message``, ``type``, ``param`` and ``reason`` of the refusal of ``request`` with ``code`` (of
    `dotllm.errors.CODES`), and a ``url`` if the documentation has an address.

    ``parameter``: the field, if it is known.
    """
    field = param(request, message) if parameter is None else _as_written(request, parameter)
    fields = {"message": message, "type": "BadRequestError", "param": field, "reason": code}
    return {**fields, "url": errors.page("errors", code)} if errors.SITE else fields


def param(request: Any, message: str) -> str | None:
    """The field of ``request`` that ``message`` refuses, as OpenAI's errors name it; None if it is not known."""
    tool = _TOOL.search(message)
    if tool is not None:
        inner = re.sub(r"tools/(\d+)/", r".tools[\1]", tool[2])
        return f"tools[{tool[1]}]{inner}.{tool[3].replace('/', '.')}"
    begins, own = _BEGINS.match(message), _FORMAT.search(message)
    if begins is not None:
        return _as_written(request, begins[1])
    if own is not None:
        return own[1].replace("/", ".")
    structured = getattr(request, "structured_outputs", None)
    for kind in _STRUCTURED if structured is not None else ():
        if getattr(structured, kind, None) is not None:
            return f"structured_outputs.{kind}"
    response_format = getattr(request, "response_format", None)
    if response_format is not None:
        has_schema = getattr(response_format, "type", "") == "json_schema"
        return "response_format.json_schema.schema" if has_schema else "response_format"
    return "text.format.schema" if getattr(request, "text", None) is not None else None


def beside(error: SpecError) -> str | None:
    """The field that ``error`` is about, if it is not the constraint; else None."""
    if error.location is not None:
        return None
    is_field = error.keyword in BESIDE or error.keyword.startswith("dotllm_")
    return error.keyword if is_field else _FIELD_OF_OPTION.get(error.keyword)


def _as_written(request: Any, field: str) -> str:
    """The name that ``request`` has for a field other than the constraint."""
    if field.startswith("dotllm_"):
        return f"vllm_xargs.{field}"
    if field != "max_tokens":
        return field
    known = [name for name in _LIMITS if hasattr(request, name)]
    return next((name for name in known if getattr(request, name) is not None), known[-1] if known else field)
