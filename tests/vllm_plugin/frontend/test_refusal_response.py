"""The body of a refusal has OpenAI's ``param`` and ``code``; the HTTP status stays where vLLM looks for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from dotllm.diagnosis.openai_error import error_fields, param
from dotllm.errors import CODES, InvalidSpecError, Pointer
from dotllm.vllm_plugin.engine_core import errors
from dotllm.vllm_plugin.frontend.refusal_response import refusal_response


@pytest.mark.parametrize("code", CODES)
def test_the_body(code: str) -> None:
    from vllm.entrypoints.serve.engine.protocol import ErrorResponse

    response = refusal_response()(error=error_fields("no", code, None, "response_format"))
    assert isinstance(response, ErrorResponse) and response.error.code == 400
    for body in (response.model_dump(), response.model_dump(mode="json", by_alias=True)):
        error = body["error"]
        assert error.pop("url").endswith(f"#{code}")
        assert error == {
            "message": "no",
            "type": "BadRequestError",
            "param": "response_format",
            "code": f"dotllm.{code}",
        }


@pytest.mark.parametrize(
    ("request_", "message", "expected"),
    [
        ({"response_format": SimpleNamespace(type="json_schema")}, "no", "response_format.json_schema.schema"),
        ({"response_format": SimpleNamespace(type="structural_tag")}, "no (at /format)", "response_format"),
        ({"structured_outputs": SimpleNamespace(json=None, regex="(")}, "no (at offset 1)", "structured_outputs.regex"),
        ({"tools": []}, "no (at /tools/1/function/parameters/type)", "tools[1].function.parameters"),
        ({"tools": []}, "no (at /tools/1/parameters/type)", "tools[1].parameters"),
        ({"tools": []}, "no (at /tools/0/tools/2/parameters/type)", "tools[0].tools[2].parameters"),
        ({"text": SimpleNamespace()}, "no", "text.format.schema"),
        ({}, "no", None),
        ({"text": SimpleNamespace()}, "vllm_xargs has no field 'dotllm_x'", "vllm_xargs"),
        ({"text": SimpleNamespace()}, "dotllm_finish must be true or false", "vllm_xargs"),
        ({"text": SimpleNamespace()}, "stop contains half of a surrogate pair", "stop"),
        ({"text": SimpleNamespace()}, "stop_token_ids forbid every token", "stop_token_ids"),
        ({"text": SimpleNamespace()}, "bad_words forbid every token", "bad_words"),
    ],
)
def test_the_field(request_: dict[str, Any], message: str, expected: str | None) -> None:
    assert param(SimpleNamespace(**request_), message) == expected


def test_the_code_comes_from_the_engine() -> None:
    refusal = InvalidSpecError("no", location=Pointer("/a"), code="unknown_type")
    failure = errors.decode(errors.encode(refusal))
    assert failure == (400, "no (at /a)", "unknown_type")
    assert errors.as_http(*failure).dotllm_code == "unknown_type"  # type: ignore[attr-defined]
    other = errors.decode(errors.encode(RuntimeError("gone")))
    assert other is not None and (other.status, other.code) == (500, "")
