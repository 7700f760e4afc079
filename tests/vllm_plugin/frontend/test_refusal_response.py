"""The body of a refusal has OpenAI's ``param`` and ``code``; the HTTP status stays where vLLM looks for it."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from dotllm import Index
from dotllm.diagnosis.openai_error import error_fields, param
from dotllm.errors import CODES, InvalidSpecError, Pointer, SpecError
from dotllm.vllm_plugin.api import endpoints
from dotllm.vllm_plugin.api.refusal_response import refusal_response
from dotllm.vllm_plugin.enforce import errors, request_errors
from tests.languages.json_schema.verdicts import byte_vocabulary


@pytest.mark.parametrize("site", ["", "https://example.com/"])
@pytest.mark.parametrize("code", CODES)
def test_the_body(code: str, site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ``url`` is a real URL, or absent."""
    from vllm.entrypoints.serve.engine.protocol import ErrorResponse

    monkeypatch.setattr("dotllm.errors.SITE", site)

    response = refusal_response()(error=error_fields("no", code, None, "response_format"))
    assert isinstance(response, ErrorResponse) and response.error.code == 400
    for body in (response.model_dump(), response.model_dump(mode="json", by_alias=True)):
        error = body["error"]
        assert error.pop("url", None) == (f"{site}docs/errors.md#{code}" if site else None)
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
        ({"text": SimpleNamespace()}, "dotllm_finish must be true or false", "vllm_xargs.dotllm_finish"),
        ({"text": SimpleNamespace()}, "vllm_xargs.dotllm_mass must be true", "vllm_xargs.dotllm_mass"),
        ({"structured_outputs": SimpleNamespace(json="{}")}, "structured_outputs.disable_any_whitespace says how", "structured_outputs.disable_any_whitespace"),
        ({"text": SimpleNamespace()}, "stop contains a lone surrogate", "stop"),
        ({"text": SimpleNamespace()}, "stop_token_ids forbid every token", "stop_token_ids"),
        ({"text": SimpleNamespace()}, "bad_words forbid every token", "bad_words"),
    ],
)  # fmt: skip
def test_the_field(request_: dict[str, Any], message: str, expected: str | None) -> None:
    assert param(SimpleNamespace(**request_), message) == expected


def test_the_code_comes_from_the_engine() -> None:
    refusal = InvalidSpecError("no", location=Pointer("/a"), code="unknown_type")
    failure = errors.decode(errors.encode(refusal))
    assert failure == (400, "no (at /a)", "unknown_type", None)
    assert request_errors.as_http(*failure).dotllm_code == "unknown_type"  # type: ignore[attr-defined]
    other = errors.decode(errors.encode(RuntimeError("gone")))
    assert other is not None and (other.status, other.code) == (500, "")


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({"max_tokens": 5}, "max_tokens"),
        ({"max_tokens": None, "max_completion_tokens": 5}, "max_completion_tokens"),
        ({"max_tokens": None, "max_completion_tokens": None}, "max_tokens"),
        ({"max_output_tokens": 5, "text": SimpleNamespace()}, "max_output_tokens"),
    ],
)
def test_the_engine_says_which_field_beside_the_constraint_it_refuses(request_: dict[str, Any], field: str) -> None:
    refusal = InvalidSpecError("the shortest answer takes 9 tokens", keyword="max_tokens")
    failure = errors.decode(errors.encode(refusal))
    assert failure is not None and failure.field == "max_tokens"
    said: Any = request_errors.as_http(*failure)
    fields = error_fields(said.args[0], said.dotllm_code, SimpleNamespace(**request_), said.parameter)
    assert (fields["param"], fields["message"]) == (field, "the shortest answer takes 9 tokens")
    rule = InvalidSpecError("unknown rule", keyword="stop", location=Pointer("/a"))
    failure = errors.decode(errors.encode(rule))
    assert failure is not None and failure.field is None, "a name in the specification"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"whitespace_pattern": "["}, "structured_outputs.whitespace_pattern"),
        ({"whitespace_pattern": "x"}, "structured_outputs.whitespace_pattern"),
        ({"source": "x" * 20_000}, "vllm_xargs.dotllm_source"),
    ],
)
def test_an_option_that_a_compile_refuses_is_the_field(options: dict[str, Any], field: str) -> None:
    """It was the schema."""
    request = SimpleNamespace(structured_outputs=SimpleNamespace(json={"type": "object"}))
    with pytest.raises(SpecError) as refused:
        Index.from_json_schema({"type": "object"}, byte_vocabulary(), **options)
    said: Any = request_errors.as_http(*errors.decode(errors.encode(refused.value)))  # type: ignore[misc]
    assert error_fields(said.args[0], said.dotllm_code, request, said.parameter)["param"] == field
    tag = {"type": "json_schema", "json_schema": {"type": "object"}, "whitespace_pattern": "["}
    with pytest.raises(SpecError) as refused:
        Index.from_structural_tag({"type": "structural_tag", "format": tag}, byte_vocabulary())
    failure = errors.decode(errors.encode(refused.value))
    assert failure is not None and failure.field is None, "a field of a structural tag"


@pytest.mark.parametrize(
    ("status", "code", "said"), [(400, "unsatisfiable", "unsatisfiable"), (503, "", "unavailable"), (500, "", "")]
)
def test_a_refusal_that_ends_a_stream_has_our_code_and_no_traceback(
    status: int, code: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With only the tier enforce, every refused stream ends like this. Errors of ours are logged with a traceback."""
    from vllm.entrypoints.generate.base.serving import GenerateBaseServing

    endpoints.HOOK.apply()
    endpoints.HOOK.apply()
    error = request_errors.as_http(status, "nothing can match", code)
    assert GenerateBaseServing.create_error_response(error).error.code == status
    serving = GenerateBaseServing.__new__(GenerateBaseServing)
    event = json.loads(serving.create_streaming_error_response(error))["error"]
    assert event["message"] == "nothing can match" and event["code"] == ("dotllm." + said if said else status)
    for name in endpoints._STREAMING:
        caplog.clear()
        logger = logging.getLogger(name)
        logger.addHandler(caplog.handler)
        try:
            raise error
        except Exception:
            logger.exception("Error in stream generator.")
        finally:
            logger.removeHandler(caplog.handler)
        record = caplog.records[0]
        assert (record.exc_info is None) == (status != 500)
        assert record.levelname == ("ERROR" if status == 500 else "WARNING")
        assert status == 500 or "nothing can match" in record.getMessage()
