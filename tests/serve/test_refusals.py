"""A request that cannot be enforced is answered with HTTP 400 and the reason; the server stays alive."""

from __future__ import annotations

from typing import Any

import pytest

from dotllm.demo.server import Server
from tests.serve.conftest import NAME

pytestmark = pytest.mark.serve


def schema(value: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "bad", "schema": value}}}


def structured(**fields: Any) -> dict[str, Any]:
    return {"structured_outputs": fields}


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("unclosed group", structured(regex="(ab"), r"\(|group|parenthes"),
    ("bad escape", structured(regex=r"[z-a]"), "range|z-a"),
    ("back-reference", structured(regex=r"(a+)b\1"), "reference"),
    ("impossible anchor", structured(regex=r"a^b"), "satisf|match|nothing"),
    ("NUL in a regex", structured(regex="a\0b"), "NUL"),
    ("30,000 parentheses", structured(regex="(" * 30_000 + "a" + ")" * 30_000), "nest|deep"),
    ("type is a number", schema({"type": 1}), "type"),
    ("unknown type", schema({"type": "strin"}), "strin"),
    ("schema is not JSON", structured(json='{"type": '), "JSON"),
    ("empty schema text", structured(json="  "), "json"),
    ("unsatisfiable", schema({"type": "string", "minLength": 3, "maxLength": 2}), "satisf|nothing|minLength"),
    (
        "unsupported keyword",
        schema({"type": "array", "contains": {"type": "number"}, "minContains": 2, "uniqueItems": True}),
        "uniqueItems",
    ),
    ("broken reference", schema({"$ref": "#/$defs/nowhere"}), "nowhere"),
    ("bad pattern", schema({"type": "string", "pattern": "("}), "pattern"),
    ("no choice", structured(choice=[]), "choice"),
    ("json_object false", structured(json_object=False), "json_object"),
    ("empty grammar", structured(grammar=" "), "grammar"),
    ("unknown order", {**schema({}), "vllm_xargs": {"dotllm_property_order": "up"}}, "dotllm_property_order"),
    (
        "order of a regex",
        {**structured(regex="a"), "vllm_xargs": {"dotllm_property_order": "any"}},
        "how JSON is written",
    ),
]


@pytest.mark.parametrize(("body", "reason"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_refused_with_the_reason(client: Any, body: dict[str, Any], reason: str, stream: bool) -> None:
    from openai import BadRequestError

    with pytest.raises(BadRequestError, match=rf"(?i){reason}"):
        client.chat.completions.create(
            model=NAME,
            messages=[{"role": "user", "content": "?"}],
            max_completion_tokens=5,
            stream=stream,
            extra_body=body,
        )


def test_the_same_refusal_twice(client: Any) -> None:
    """The second refusal comes from memory."""
    from openai import BadRequestError

    messages = []
    for _ in range(2):
        with pytest.raises(BadRequestError) as caught:
            client.completions.create(model=NAME, prompt="?", extra_body=structured(regex="(again"))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_online_beam_search_is_refused_under_a_constraint(client: Any) -> None:
    """vLLM would answer 200 with free text."""
    from openai import BadRequestError

    for body in (structured(choice=["a"]), schema({"type": "null"})):
        with pytest.raises(BadRequestError, match="use_beam_search"):
            client.completions.create(
                model=NAME, prompt="?", n=2, max_tokens=5, extra_body={"use_beam_search": True, **body}
            )
    free = client.completions.create(
        model=NAME, prompt="?", n=2, max_tokens=5, temperature=0, extra_body={"use_beam_search": True}
    )
    assert len(free.choices) == 2


def test_deeply_nested_json_body(server: Server, client: Any) -> None:
    from openai import APIStatusError

    levels = 100_000  # (Python 3.12 reads 3,000)
    nested: Any = {"type": "null"}
    for _ in range(levels):
        nested = {"items": nested}
    with pytest.raises((APIStatusError, RecursionError)) as caught:
        client.completions.create(model=NAME, prompt="?", extra_body=structured(json=nested))
    if isinstance(caught.value, APIStatusError):
        assert caught.value.status_code == 400
    text = '{"items":' * levels + "true" + "}" * levels
    with pytest.raises(APIStatusError) as refused:
        client.completions.create(model=NAME, prompt="?", extra_body=structured(json=text))
    assert refused.value.status_code == 400
    assert "nested" in str(refused.value)


@pytest.mark.parametrize("stream", [False, True])
def test_a_long_one(server: Server, stream: bool) -> None:
    """Its error has the form of the API."""
    from anthropic import Anthropic, BadRequestError

    anthropic = Anthropic(base_url=server.url, api_key="none", timeout=120.0, max_retries=0)
    properties = {f"p{i}-{stream}": {"type": "string", "description": "x" * 100} for i in range(60)}
    bad = {"type": "object", "properties": {**properties, "z": {"type": "strin"}}}
    for _ in range(2):
        with pytest.raises(BadRequestError, match="strin"):
            anthropic.messages.create(
                model=NAME,
                messages=[{"role": "user", "content": "?"}],
                max_tokens=5,
                stream=stream,
                extra_body={"output_config": {"format": {"type": "json_schema", "schema": bad}}},
            )


@pytest.mark.parametrize(("stream", "n"), [(False, 1), (True, 1), (True, 2)], ids=["whole", "streamed", "two streamed"])
@pytest.mark.parametrize(
    "field",
    [
        {"allowed_token_ids": [5]},
        {"bad_words": ["yes", "y", "ye"]},
        {"allowed_token_ids": [5], "stop_token_ids": [0]},  # (if nothing is left, token 0 is sampled)
    ],
    ids=["allowed", "bad", "stops"],
)
def test_parameters_that_contradict_the_constraint(client: Any, field: dict[str, Any], stream: bool, n: int) -> None:
    """The error names the parameter once nothing is left to sample."""
    from openai import APIError

    with pytest.raises(APIError, match=f"{next(iter(field))} forbid"):
        reply = client.completions.create(
            model=NAME,
            prompt="?",
            max_tokens=20,
            stream=stream,
            n=n,
            extra_body={**structured(choice=["yes"]), **field},
        )
        list(reply)


def test_alive_after_all_of_it(server: Server, client: Any) -> None:
    reply = client.completions.create(model=NAME, prompt="?", max_tokens=20, extra_body=structured(choice=["alive"]))
    assert reply.choices[0].text == "alive"
    assert server.healthy()


def test_order_of_properties_is_the_requests_choice(client: Any) -> None:
    import json

    two = {"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}}, "required": ["a", "b"]}
    closed = {**two, "additionalProperties": False}
    for order, expected in (("declared", {("a", "b")}), ("any", {("a", "b"), ("b", "a")})):
        answer = client.chat.completions.create(
            model=NAME,
            messages=[{"role": "user", "content": "?"}],
            max_completion_tokens=400,
            n=8,
            extra_body={**schema(closed), "vllm_xargs": {"dotllm_property_order": order}},
        )
        documents = [json.loads(one.message.content) for one in answer.choices if one.finish_reason == "stop"]
        assert documents and {tuple(document) for document in documents} <= expected
