"""A constraint in the form of another API, server or client is refused, naming this API's field; other fields pass.

Each request takes the front end's path (`tests.fuzz.requests.ask`): parsing, our hooks, the check of parameters.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

from dotllm.vllm_plugin.api import foreign_fields
from tests.fuzz.requests import Outcome, ask

CORPUS = Path(__file__).parents[2] / "corpus" / "client_bodies.jsonl"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}},
    "required": ["name"],
    "additionalProperties": False,
}
PATTERN, GRAMMAR, LARK = "[0-9]+", 'root ::= "a" | "b"', 'start: "a" | B\nB: /b+/'
TAG = json.dumps({"type": "structural_tag", "format": {"type": "json_schema", "json_schema": SCHEMA}})
GRAMMAR_OBJECT = {"rules": GRAMMAR}
FUNCTION = {"name": "f", "parameters": SCHEMA}
TOOL = {"type": "function", "function": FUNCTION}
NAMED = {"name": "x", "schema": SCHEMA}
BASE: dict[str, dict[str, Any]] = {
    "chat": {"model": "m", "messages": [{"role": "user", "content": "?"}]},
    "batch": {"model": "m", "messages": [[{"role": "user", "content": "?"}]]},
    "completion": {"model": "m", "prompt": "?"},
    "response": {"model": "m", "input": "?"},
    "message": {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "?"}]},
    "tokens": {"model": "m", "token_ids": [1], "sampling_params": {"max_tokens": 5}},
}
OPENAI = ("chat", "batch", "completion", "response")

FOREIGN: list[tuple[str, Any]] = [
    ("guided_json", SCHEMA), ("guided_json", json.dumps(SCHEMA)), ("guided_json", {}), ("guided_regex", PATTERN),
    ("guided_choice", ["a"]), ("guided_grammar", GRAMMAR), ("guided_json_object", True),
    ("guided_whitespace_pattern", " "),
    ("guided_decoding", {"json": SCHEMA}), ("guided_decoding", {"regex": PATTERN, "backend": "outlines"}),
    ("structured_output", {"json": SCHEMA}), ("structured_output", {"choice": ["a"]}), ("structured_output", True),
    ("structured_generation", {"schema": SCHEMA}),
    ("extra_body", {"structured_outputs": {"json": SCHEMA}}), ("extra_body", {"guided_regex": PATTERN}),
    ("extra_body", {"response_format": {"type": "json_schema", "json_schema": NAMED}}),
    ("extra_body", {"tools": [TOOL], "tool_choice": "required"}), ("extra_body", {"choice": ["a", "b"]}),
    ("extra_json", {"grammar": GRAMMAR}), ("model_kwargs", {"response_format": {"type": "json_object"}}),
    ("format", SCHEMA), ("format", "json"), ("format", {"type": "json_schema", "schema": SCHEMA}),
    ("schema", SCHEMA), ("schema", json.dumps(SCHEMA)), ("response_schema", SCHEMA), ("responseSchema", SCHEMA),
    ("json_schema", SCHEMA), ("json_schema", json.dumps(SCHEMA)), ("output_schema", SCHEMA), ("json", SCHEMA),
    ("text_format", SCHEMA), ("text_format", {"type": "json_schema", **NAMED}), ("response_model", "Weather"),
    ("response-schema", SCHEMA), ("anything", SCHEMA), ("anything", {"deeper": SCHEMA}),
    ("anything", {"deeper": {"still": SCHEMA}}), ("anything", [{"deeper": SCHEMA}]),
    ("anything", {"deeper": json.dumps(SCHEMA)}), ("anything", GRAMMAR), ("anything", {"deeper": LARK}),
    ("anything", {"anyOf": [{"type": "null"}, SCHEMA]}), ("anything", {"$ref": "#/$defs/a", "$defs": {"a": SCHEMA}}),
    ("json_mode", True), ("response_mime_type", "application/json"), ("json_object", True),
    ("generationConfig", {"responseMimeType": "application/json", "responseSchema": SCHEMA}),
    ("regex", PATTERN), ("json_regex", PATTERN), ("ebnf", GRAMMAR), ("gbnf", GRAMMAR), ("grammar", GRAMMAR),
    ("grammar", {"type": "json", "value": SCHEMA}), ("lark_grammar", LARK), ("choice", ["a", "b"]),
    ("structural_tag", TAG), ("whitespace_pattern", " "), ("disable_any_whitespace", True),
    ("parameters", {"grammar": {"type": "regex", "value": PATTERN}}), ("sampling_params", {"json_schema": json.dumps(SCHEMA)}),
    ("sampling_params", {"ebnf": GRAMMAR}), ("nvext", {"guided_json": SCHEMA}), ("nvext", {"guided_choice": ["a"]}),
    ("options", {"format": "json"}),
    ("anything", {"guided_regex": PATTERN}), ("anything", {"guided_extra": SCHEMA}), ("anything", {"structured_outputs": {"regex": PATTERN}}),
    ("anything", {"response_format": {"type": "json_object"}}), ("anything", {"response_format": "json_object"}), ("anything", {"output_type": "json_schema"}),
    ("anything", {"json_schema": NAMED}), ("anything", {"ebnf": "x"}), ("anything", {"structural_tag": TAG}), ("anything", {"tools": [TOOL]}),
    ("anything", {"grammar": {"type": "regex", "value": PATTERN}}), ("anything", {"lark": LARK}), ("anything", {"whitespace_pattern": " "}),
    ("extra_body", {"sampling_params": {"regex": PATTERN}}), ("extra_body", {"extra_body": {"options": {"json_mode": True}}}),
    ("extra", [[SCHEMA]]), ("extra", [[[[{"deeper": [[SCHEMA]]}]]]]), ("extra", [[GRAMMAR_OBJECT]]), ("a", {"b": {"c": {"d": SCHEMA}}}),
    ("vllm_xargs", {"guided_json": json.dumps(SCHEMA)}), ("vllm_xargs", {"guided_json": SCHEMA}), ("vllm_xargs", {"regex": PATTERN}),
    ("vllm_xargs", {"guided_regex": PATTERN}), ("vllm_xargs", {"anything": json.dumps(SCHEMA)}), ("vllm_xargs", {"anything": SCHEMA}),
    ("vllm_xargs", {"grammar": GRAMMAR}), ("vllm_xargs", {"choice": ["a", "b"]}), ("vllm_xargs", {"structured_outputs": "{}"}),
    ("vllm_xargs", {"json_mode": True}), ("vllm_xargs", {"pattern": PATTERN}), ("vllm_xargs", {"response_type": "json"}),
    ("constraint", {"type": "regex", "value": PATTERN}), ("constraint", {"type": "json_schema", "schema": {}}),
    ("constraints", [{"type": "choice", "choices": ["a"]}]), ("constraint", {"type": "json_object"}), ("constraint", {"type": "lark", "grammar": "x"}),
    ("pattern", PATTERN), ("enum", ["a", "b"]), ("choices", ["a", "b"]), ("extra_body", {"pattern": PATTERN}), ("response_choices", ["a"]),
    ("json_mode", "yes"), ("json_mode", 1), ("json_mode", "on"), ("json_mode", "strict"), ("json_output", {"strict": True}), ("json", True),
    ("response_type", "json"), ("output_type", "json_object"), ("outputFormat", "json"), ("answer_mode", "json_schema"), ("output_mime_type", "application/ld+json"),
    ("response_content_type", "application/json; charset=utf-8"), ("output_pattern", PATTERN), ("answer_choices", ["a", "b"]), ("answerRegex", PATTERN),
    ("dotllm_property_order", "any"), ("dotllm_finish", True), ("extra_body", {"dotllm_finish": True}), ("anything", {"dotllm_number_digits": "any"}),
    ("functions", [FUNCTION]), ("function_call", {"name": "f"}), ("functions", [{"name": "f"}]),
    ("tool_config", {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": SCHEMA}}}]}),
]  # fmt: skip

HARMLESS: list[dict[str, Any]] = [
    {"metadata": {"run": "5", "schema": json.dumps(SCHEMA)}}, {"litellm_metadata": {"a": SCHEMA}},
    {"user": "root ::= x"}, {"safety_identifier": "x"}, {"guided_decoding_backend": "outlines"},
    {"prediction": {"type": "content", "content": GRAMMAR}}, {"guided_json": None, "functions": None},
    {"functions": [], "function_call": "auto"}, {"extra_body": {}}, {"extra_body": {"top_k": 5}},
    {"audio": {"voice": "alloy", "format": "wav"}}, {"modalities": ["text"]}, {"verbosity": "low"},
    {"logging": {"format": "json", "level": "info"}}, {"format": "markdown"}, {"schema": None},
    {"reasoning_split": True}, {"enable_thinking": False}, {"thinking_budget": 5}, {"best_of": 1},
    {"warehouse": {"schema": "public", "tables": ["a"]}}, {"quiz": {"choice": ["a", "b"], "answer": 1}},
    {"posthog_properties": {"properties": {"plan": "pro"}}}, {"cart": {"items": [{"type": "fruit"}], "required": True}},
    {"trace": {"type": "span", "name": "x", "start": "start: 5 o'clock"}}, {"note": "start: Monday\nend: Tuesday"},
    {"grammar_check": True}, {"schema_version": "2"}, {"json_mode": False}, {"structured_output": False},
    {"structured_output": {"backend": "x"}}, {"stats": {"functions": ["a"], "regex": False}}, {"title": "a"},
    {"web_search_options": {"user_location": {"type": "approximate", "approximate": {"country": "GB"}}}},
    {"provider": {"order": ["a"], "require_parameters": True}}, {"plugins": [{"id": "web", "max_results": 1}]},
    {"cache": {"no-cache": True}}, {"cache_control": {"type": "ephemeral"}}, {"service_tier": "auto"},
    {"moderation": {"model": "x"}}, {"anything": {"a": {"b": {"c": {"d": 1}}}}}, {"anything": "{not JSON"},
    {"limits": {"minimum": 1, "maximum": 5}}, {"person": {"name": "x", "description": "y", "title": "z"}},
    {"json_mode": "no"}, {"json_mode": "off"}, {"json_mode": 0}, {"json_mode": ""}, {"json": False}, {"response_type": "text"},
    {"output_type": "audio"}, {"log_type": "json"}, {"answer_mode": "fast"}, {"result_format": "markdown"}, {"pattern": ""}, {"choices": []},
    {"logging": {"pattern": "%d %m"}}, {"poll": {"choices": ["a", "b"]}}, {"filter": {"type": "regex"}}, {"event": {"type": "choice", "id": 5}},
    {"matrix": [[1, 2], [[3]], [["a"]]]}, {"vllm_xargs": {"foo": 1, "bar": "text", "words": ["a"]}}, {"vllm_xargs": {"format": "markdown"}},
    {"vllm_xargs": {"dotllm_finish": "true"}}, {"type": "text"}, {"type": "chat", "properties": {"plan": "pro"}}, {"required": True},
    {"event": {"type": "object.created", "id": 5}}, {"event": {"type": "object", "id": 5}},
    # In an object that is not a request, names have other meanings.
    {"filter": {"field": "name", "regex": "^A"}}, {"guardrail": {"rules": [{"regexp": "secret"}]}}, {"where": {"name_regex": "^A"}},
    {"logging": {"json_output": True}}, {"logging": {"json_mode": "on"}}, {"log": {"output_format": "json"}}, {"export": {"output_type": "json"}},
    {"logging": {"format": {"type": "json"}}}, {"webhook": {"response_content_type": "application/json"}}, {"speech": {"response_format": {"type": "mp3"}}},
    {"capabilities": {"structured_outputs": True, "json_object": True, "json_schema": True}}, {"model_info": {"structured_output": {"since": "2024"}}},
    {"ui": {"guided_tour": True}}, {"shop": {"response_model": "orders", "json_schema": "public"}}, {"bots": {"lark": "token"}},
]  # fmt: skip


@pytest.mark.parametrize("kind", BASE)
@pytest.mark.parametrize(("name", "value"), FOREIGN, ids=[f"{name}-{i}" for i, (name, _) in enumerate(FOREIGN)])
def test_a_constraint_that_is_not_read_is_refused(kind: str, name: str, value: Any) -> None:
    outcome = ask(kind, {**BASE[kind], name: value})
    assert outcome.error is None and outcome.refusal is not None, "answered as if it had not been asked for"
    assert outcome.code == "unknown_field" and (outcome.param or "").split(".")[0] == name
    remedy = outcome.refusal.partition(": use ")[2]
    theirs = {
        "response": "text.format|structured_outputs|tool",
        "message": "output_config|tool|/v1/chat",
        "tokens": "sampling_params.structured_outputs|sampling_params.extra_args|/v1/chat/completions/render",
    }
    words = theirs.get(kind, "response_format|structured_outputs|tool").split("|")
    assert any(word in remedy for word in [*words, "vllm_xargs"]), outcome.refusal


OF_PARAMETERS = ("guided_json", "guided_regex", "guided_decoding", "response_format", "regex", "json_schema", "ebnf")


@pytest.mark.parametrize(("name", "value"), [case for case in FOREIGN if case[0] in OF_PARAMETERS])
def test_the_parameters_of_the_tokens_api(name: str, value: Any) -> None:
    for fields, at in (({name: value}, name), ({"extra_args": {name: value}}, f"extra_args.{name}")):
        outcome = ask("tokens", {**BASE["tokens"], "sampling_params": fields})
        assert outcome.code == "unknown_field"
        assert outcome.param in (
            at,
            f"sampling_params.{at}",
            f"sampling_params.{at}.json",
            f"sampling_params.{at}.regex",
        )
    passes = ask(
        "tokens", {**BASE["tokens"], "sampling_params": {"temperature": 0, "extra_args": {"foo": 1}, "foo": 1}}
    )
    assert passes == Outcome(is_free=True)


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        ({"type": "json", "value": SCHEMA}, "json"), ({"type": "json_schema", "value": SCHEMA}, "json"),
        ({"type": "regex", "value": PATTERN}, "regex"), ({"type": "json_object"}, "json_object"),
        ({"type": "choice", "choices": ["a"]}, "choice"), ({"type": "lark", "grammar": LARK}, "grammar"),
        (GRAMMAR, "grammar"),
    ],
)  # fmt: skip
def test_what_tgi_names_a_grammar(value: Any, remedy: str) -> None:
    """TGI's ``grammar`` also holds schemas and regular expressions: the remedy is the field for those."""
    for fields in ({"grammar": value}, {"parameters": {"grammar": value}}):
        (found,) = foreign_fields.constraints_in(fields)
        assert found.kind == remedy


@pytest.mark.parametrize("kind", BASE)
def test_what_is_no_constraint_passes(kind: str) -> None:
    for fields in HARMLESS:
        if kind in ("batch", "tokens") and "dotllm_finish" in str(fields):  # they have no vllm_xargs
            continue
        assert ask(kind, {**BASE[kind], **fields}) == Outcome(is_free=True), fields


@pytest.mark.parametrize("kind", BASE)
def test_a_removed_field_may_repeat_what_is_said(kind: str) -> None:
    own: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"structured_outputs": {"json": SCHEMA}}, {"guided_json": SCHEMA, "schema": json.dumps(SCHEMA)}),
        ({"structured_outputs": {"json": json.dumps(SCHEMA)}}, {"guided_json": SCHEMA}),
        ({"structured_outputs": {"grammar": GRAMMAR}}, {"guided_grammar": GRAMMAR, "guided_decoding_backend": "x"}),
        ({"structured_outputs": {"regex": PATTERN}}, {"guided_regex": PATTERN, "regex": PATTERN}),
        ({"structured_outputs": {"choice": ["a"]}}, {"guided_choice": ["a"]}),
        ({"structured_outputs": {"choice": ["a"]}}, {"extra_body": {"structured_outputs": {"choice": ["a"]}}}),
    ]
    if kind == "response":
        own.append(({"text": {"format": {"type": "json_schema", **NAMED}}}, {"guided_json": SCHEMA}))
    elif kind == "message":
        own = [({"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}, {"guided_json": SCHEMA})]
    else:
        form = {"type": "json_schema", "json_schema": NAMED}
        own.append(({"response_format": form}, {"guided_json": SCHEMA, "extra_body": {"response_format": form}}))
        own.append(({"response_format": {"type": "json_object"}}, {"json_mode": True}))
    if kind == "tokens":
        own = [({"sampling_params": read}, repeated) for read, repeated in own if "structured_outputs" in read]
    others = {"guided_json": {"type": "null"}, "guided_grammar": LARK, "guided_regex": "b", "guided_choice": ["b"]}
    for read, repeated in own:
        assert ask(kind, {**BASE[kind], **read, **repeated}) == Outcome(), (read, repeated)
        for name in repeated.keys() & others.keys():
            differs = ask(kind, {**BASE[kind], **read, **repeated, name: others[name]})
            assert differs.param == name, "one of two would win without a word"


HALF_KNOWN: list[tuple[str, dict[str, Any], str]] = [
    ("chat", {"response_format": {"type": "json_schema", "schema": SCHEMA}}, "response_format.json_schema.schema"),
    ("chat", {"response_format": {"type": "json_schema", "json_schema": SCHEMA}}, "response_format.json_schema.schema"),
    ("chat", {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}, "response_format.json_schema.name"),
    ("chat", {"response_format": {"type": "json_schema", "json_schema": NAMED, "schema": {"type": "null"}}}, "response_format.schema"),
    ("chat", {"response_format": {"type": "json_schema", "json_schema": {**NAMED, "grammar": GRAMMAR}}}, "response_format.json_schema.grammar"),
    ("chat", {"response_format": {"type": "json_object", "schema": SCHEMA}}, "response_format.schema"),
    ("chat", {"response_format": {"type": "json", "value": SCHEMA}}, "response_format.type"),
    ("chat", {"response_format": {"type": "regex", "pattern": PATTERN}}, "response_format.type"),
    ("chat", {"response_format": {"type": "grammar", "grammar": GRAMMAR}}, "response_format.type"),
    ("chat", {"response_format": {"type": "text", "regex": PATTERN}}, "response_format.regex"),
    ("chat", {"response_format": "json_object"}, "response_format"),
    ("chat", {"response_format": SCHEMA}, "response_format.type"),
    ("chat", {"structured_outputs": {"json_schema": SCHEMA}}, "structured_outputs.json_schema"),
    ("tokens", {"sampling_params": {"structured_outputs": {"json_schema": SCHEMA}}}, "sampling_params.structured_outputs.json_schema"),
    ("tokens", {"sampling_params": {"structured_outputs": {"regex": "a", "jsn": SCHEMA}}}, "sampling_params.structured_outputs.jsn"),
    ("tokens", {"sampling_params": {"structured_outputs": [1]}}, "sampling_params.structured_outputs"),
    ("chat", {"tools": [{**TOOL, "strict": True}]}, "tools[0].strict"),
    ("chat", {"tools": [{"type": "function", "function": {"name": "f"}, "parameters": SCHEMA}]}, "tools[0].parameters"),
    ("chat", {"tools": [{"type": "function", "function": {"name": "f", "input_schema": SCHEMA}}]}, "tools[0].function.input_schema"),
    ("batch", {"response_format": {"type": "regex", "pattern": PATTERN}}, "response_format.type"),
    ("batch", {"tools": [TOOL], "tool_choice": "none"}, "tools"),
    ("completion", {"tools": [TOOL]}, "tools"),
    ("completion", {"response_format": {"type": "grammar", "grammar": GRAMMAR}}, "response_format.type"),
    ("response", {"text": {"format": {"type": "json_schema", "json_schema": NAMED}}}, "text.format.schema"),
    ("response", {"text": {"format": {"type": "json_schema", "schema": SCHEMA}}}, "text.format.name"),
    ("response", {"text": {"type": "json_schema", **NAMED}}, "text.schema"),
    ("response", {"text": {"type": "json_object"}}, "text.type"),
    ("response", {"text": SCHEMA}, "text"),
    ("response", {"text": {"format": {"type": "grammar", "syntax": "lark", "definition": LARK}}}, "text.format.type"),
    ("response", {"text": {"format": {"type": "text", "schema": SCHEMA}}}, "text.format.schema"),
    ("message", {"output_config": {"schema": SCHEMA}}, "output_config.schema"),
    ("message", {"output_config": {"format": SCHEMA}}, "output_config.format.type"),
    ("message", {"output_config": {"format": {"type": "json_object"}}}, "output_config.format.type"),
    ("message", {"output_config": {"format": {"type": "json_schema", "json_schema": SCHEMA}}}, "output_config.format.schema"),
    ("message", {"output_config": {"format": {"type": "json_schema", "schema": {}}}}, "output_config.format.schema"),
    ("message", {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA, "regex": PATTERN}}}, "output_config.format.regex"),
    ("message", {"output_config": {"response_format": {"type": "json_object"}}}, "output_config.response_format"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "fields", "param"), HALF_KNOWN)
def test_a_known_field_with_the_constraint_in_a_place_that_is_not_read(kind: str, fields: Any, param: str) -> None:
    outcome = ask(kind, {**BASE[kind], **fields})
    assert outcome.param == param and outcome.refusal is not None and "validation error" not in outcome.refusal


PATHS = {"/v1/chat/completions": "chat", "/v1/responses": "response", "/v1/messages": "message"}
BODIES = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]
REFUSED = {
    ("anthropic", "tools"): "vLLM: a tool without input_schema (Anthropic's own web_search)",
    ("litellm", "guided_choice"): "not read here",
    ("openai_py", "tools"): "vLLM: custom tools are for Responses",
    ("strands", "response_format"): "a format without a name",
}
"""The refused bodies by client and field, and why they are refused."""


@pytest.mark.parametrize("body", BODIES, ids=[f"{row['client']}-{i}" for i, row in enumerate(BODIES)])
def test_bodies_of_client_libraries(body: dict[str, Any]) -> None:
    """Recorded from 30 libraries: their formats are enforced, and nothing harmless is refused."""
    kind, sent = PATHS.get(body["path"]), body["body"]
    if kind is None:
        pytest.skip("counts tokens")
    outcome = ask(kind, sent)
    assert outcome.error is None
    if outcome.refusal is not None:
        reasons = [field for client, field in REFUSED if client == body["client"] and field in sent]
        assert reasons, outcome.refusal
        return
    text, config = sent.get("text") or {}, sent.get("output_config") or {}
    form = sent.get("response_format") or text.get("format") or config.get("format") or {"type": "text"}
    choice = sent.get("tool_choice") or "auto"
    mode = choice["type"] if isinstance(choice, dict) else choice
    strict = [tool for tool in sent.get("tools") or () if (tool.get("function") or tool).get("strict")]
    asks = form["type"] != "text" or "structured_outputs" in sent or mode not in ("auto", "none")
    asks |= mode == "auto" and bool(strict)
    assert outcome.is_free is not asks or (not asks and sent.get("parallel_tool_calls") is False)


def test_a_schema_is_told_from_a_dictionary() -> None:
    schemas: list[Any] = [
        SCHEMA, json.dumps(SCHEMA), {"type": "string"}, {"type": ["string", "null"], "x-order": 1}, {"enum": ["a"]},
        {"anyOf": [{"type": "string"}, {"type": "null"}]}, {"items": {"type": "string"}}, {"$ref": "#/a"},
        {"properties": {"a": {"enum": [1]}}, "custom": 1}, {"type": "object", "properties": {}}, {"const": 5},
    ]  # fmt: skip
    others: list[Any] = [
        None, True, 5, "", "{}", {}, [], [SCHEMA], {"type": "text"}, {"type": "enabled", "budget_tokens": 5},
        {"properties": {"a": 1}}, {"items": [1]}, {"name": "x"}, {"type": []}, {"type": [[]]}, {"type": {}},
        {"minimum": 5}, {"enum": ["a"], "custom": 1}, "{" * 5000, "{" + '"a":{' * 5000,
    ]  # fmt: skip
    assert all(map(foreign_fields.is_schema, schemas))
    assert not any(map(foreign_fields.is_schema, others))


def test_no_value_is_too_deep_or_too_large() -> None:
    deep: Any = {}
    for _ in range(900):
        deep = {"extra_body": {"items": [deep], "properties": {"a": deep}}}
    assert list(foreign_fields.constraints_in({"a": deep, "extra_body": deep})) == []


@pytest.mark.parametrize("kind", BASE)
@pytest.mark.parametrize(
    "fields",
    [SCHEMA, {"properties": SCHEMA["properties"], "required": ["name"]}, {"extra_body": SCHEMA}, {"const": 5}, {"oneOf": [SCHEMA]}],
)  # fmt: skip
def test_a_schema_that_is_spread_among_the_fields_is_refused(kind: str, fields: dict[str, Any]) -> None:
    outcome = ask(kind, {**BASE[kind], **fields})
    assert outcome.code == "unknown_field" and outcome.refusal is not None
    assert (outcome.param or "").split(".")[-1] in (*SCHEMA, "const", "oneOf")


@pytest.mark.parametrize("kind", sorted(BASE.keys() - {"batch"}))
def test_an_operator_may_read_any_field_of_vllm_xargs(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's own logits processors may read any field."""

    def asked(fields: dict[str, Any]) -> Outcome:
        arguments = {"sampling_params": {"extra_args": fields}} if kind == "tokens" else {"vllm_xargs": fields}
        return ask(kind, {**BASE[kind], **arguments})

    fields = {"regex": PATTERN, "choice": ["a"]}
    assert asked(fields).code == "unknown_field"
    monkeypatch.setattr("dotllm.vllm_plugin.enforce.errors._installed_processors", lambda: ("mine",))
    assert asked(fields) == Outcome(is_free=True)
    assert asked({"dotllm_x": 1}).code == "unknown_field", "ours all the same"
