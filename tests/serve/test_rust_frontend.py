"""vLLM's Rust front end, which runs no plugins, with our engine core: HTTP in, HTTP out.

CPU builds of vLLM lack its program. ``make test-sources VLLM=0.33.0`` runs these tests with the program and the sources
from the release's wheel. `test_engine_core` tests the engine core without it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dotllm.demo.server import Server
from tests.serve.raw import complete, together

PROGRAM = Path(getattr(find_spec("vllm"), "origin", None) or "none").parent / "vllm-rs"
pytestmark = [
    pytest.mark.serve,
    pytest.mark.skipif(
        not PROGRAM.exists(), reason="this build of vLLM has no Rust front end (make test-sources VLLM=0.33.0)"
    ),
]
NAME = "rust"
SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["x", "y"]}, "count": {"type": "integer", "minimum": 3, "maximum": 99}},
    "required": ["kind", "count"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"name": "count", "parameters": SCHEMA, "strict": True}}]
ENFORCED: dict[str, tuple[dict[str, Any], str]] = {
    "regex": ({"structured_outputs": {"regex": "[a-c]{3,6}[0-9]"}}, "[a-c]{3,6}[0-9]"),
    "choice": ({"structured_outputs": {"choice": ["yes", "no"]}}, "yes|no"),
    "grammar": ({"structured_outputs": {"grammar": 'root ::= "b" "a"'}}, "ba"),
    "tag": (
        {
            "structured_outputs": {
                "structural_tag": '{"type": "structural_tag", "format": {"type": "const_string", "value": "done"}}'
            }
        },
        "done",
    ),
    "json": ({"structured_outputs": {"json": {"enum": ["a", 1, None]}}}, '"a"|1|null'),
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no regex": ({"regex": "[a-"}, "missing ']'"),
    "no schema": ({"json": {"type": "strin"}}, 'did you mean "string"?'),
    "nothing fits": ({"json": {"type": "integer", "minimum": 3, "maximum": 2}}, '"minimum": 3'),
}


@pytest.fixture(scope="module")
def server(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    environment = {
        "VLLM_USE_RUST_FRONTEND": "1",
        "VLLM_RUST_FRONTEND_PATH": str(PROGRAM.resolve()),
        "DOTLLM_DISK_BYTES": "0",
    }
    flags = ("--max-model-len", "2048", "--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    log = tmp_path_factory.mktemp("rust") / "log"
    with Server(demo_model, log, name=NAME, flags=flags, environment=environment) as running:
        running.wait()
        assert "RustFrontend" in running.log_tail(100)
        yield running
        assert running.healthy(), f"the server did not survive its tests:\n{running.log_tail(60)}"


@pytest.mark.parametrize("kind", ENFORCED)
def test_a_constraint_is_enforced(server: Server, kind: str) -> None:
    fields, valid = ENFORCED[kind]
    answer = complete(server, NAME, max_tokens=32, **fields)
    assert answer.status == 200 and re.fullmatch(valid, answer.text), answer


def chat(server: Server, **fields: Any) -> Any:
    messages = [{"role": "user", "content": "How many?"}]
    return complete(server, NAME, path="/v1/chat/completions", messages=messages, max_tokens=512, **fields)


def test_a_chat_answers_to_its_schema(server: Server) -> None:
    schema = {"name": "count", "schema": SCHEMA, "strict": True}
    answer = chat(server, response_format={"type": "json_schema", "json_schema": schema})
    jsonschema.validate(json.loads(answer.body["choices"][0]["message"]["content"]), SCHEMA)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "count"}}])
def test_a_tool_call_has_valid_arguments(server: Server, choice: Any) -> None:
    calls = chat(server, tools=TOOLS, tool_choice=choice).body["choices"][0]["message"]["tool_calls"]
    for call in calls:
        assert call["function"]["name"] == "count"
        jsonschema.validate(json.loads(call["function"]["arguments"]), SCHEMA)
    assert calls


@pytest.mark.parametrize("kind", REFUSED)
def test_a_refusal_is_that_requests_alone(server: Server, kind: str) -> None:
    constraint, says = REFUSED[kind]
    fine = {"structured_outputs": {"regex": "[a-c]{3,6}[0-9]"}}
    answers = together(16, lambda i: complete(server, NAME, **({"structured_outputs": constraint} if i % 2 else fine)))
    assert Counter(answer.status for answer in answers) == {200: 8, 400: 8}
    assert all(says in answer.message for answer in answers[1::2])


def test_many_requests_at_once_with_one_new_schema(server: Server) -> None:
    schema = {"type": "object", "properties": {"never_seen": {"type": "integer"}}, "required": ["never_seen"]}
    answers = together(64, lambda i: complete(server, NAME, max_tokens=256, structured_outputs={"json": schema}))
    assert Counter(answer.status for answer in answers) == {200: 64}
    ended = [answer for answer in answers if answer.body["choices"][0]["finish_reason"] == "stop"]
    for answer in ended:
        jsonschema.validate(json.loads(answer.text), schema)
    assert ended
