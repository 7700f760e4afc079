"""What an answer says about its masses and the confidence of its values, and which requests may ask for them."""

from __future__ import annotations

import math
from typing import Any

import pytest

pytest.importorskip("vllm")

from tests.vllm_plugin.frontend.test_http_refusals import ask, forced, refused
from tests.vllm_plugin.played_server import PlayedServer

SCHEMA = {
    "type": "object",
    "properties": {"mood": {"enum": ["glad", "sad", None]}, "sure": {"type": "boolean"}, "why": {"type": "string"}},
    "required": ["mood", "sure", "why"],
}
FORM = {"structured_outputs": {"json": SCHEMA}, "return_token_ids": True}


def said_by(choices: list[dict[str, Any]]) -> dict[str, Any]:
    """What the choices, or the events, of one answer say in total."""
    found: dict[str, Any] = {"mass": [], "before": [], "after": [], "tokens": []}
    for choice in choices:
        found["tokens"] += choice.get("token_ids") or ()
        for name, values in choice.get("dotllm", {}).items():
            found[name] = found[name] + values if name != "fields" else values
    return found


def check(server: PlayedServer, said: dict[str, Any], *, logprobs: bool = True) -> None:
    """All tokens of the played model are equally likely, so the masks alone determine the figures. logprobs: whether
    the request asks for log probabilities, too."""
    size = math.log(server.core.vocabulary.size)
    tokens = said["tokens"]
    assert len(tokens) == len(said["mass"]) > 10 and len(set(said["mass"])) > 2
    if not logprobs:
        assert said["before"] == said["after"] == []
        assert all(-size - 1e-5 <= mass <= 0 for mass in said["mass"])
        return
    assert len(tokens) == len(said["before"]) == len(said["after"])
    assert said["before"] == pytest.approx([-size] * len(tokens), abs=1e-4)
    assert [a + mass for a, mass in zip(said["after"], said["mass"], strict=True)] == pytest.approx(
        said["before"], abs=1e-5
    )


LOGPROBS = {"chat": {"logprobs": True}, "completion": {"logprobs": 0}}


@pytest.mark.parametrize("logprobs", [False, True])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", ["chat", "completion"])
def test_an_answer_says_the_mass_of_each_token(played: PlayedServer, api: str, stream: bool, logprobs: bool) -> None:
    """vLLM computes log probabilities only if the client asks for them."""
    fields = {**FORM, "vllm_xargs": {"dotllm_mass": True}, "stream": stream, **(LOGPROBS[api] if logprobs else {})}
    answer = ask(played, api, fields)
    assert answer.status == 200, answer.body
    choices = [choice for event in answer.body for choice in event["choices"]] if stream else answer.body["choices"]
    said = said_by(choices)
    check(played, said, logprobs=logprobs)
    for choice in choices if stream else ():  # a chat begins with an event that has a role and no token
        assert len(choice.get("dotllm", {}).get("mass", ())) == len(choice.get("token_ids") or ())
    assert "fields" not in said and any(choice.get("logprobs") for choice in choices) == logprobs


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", ["chat", "completion"])
def test_the_confidence_of_values(played: PlayedServer, api: str, stream: bool) -> None:
    answer = ask(played, api, {**FORM, "vllm_xargs": {"dotllm_confidence": True}, "stream": stream})
    choices = [choice for event in answer.body for choice in event["choices"]] if stream else answer.body["choices"]
    check(played, said_by(choices))
    last = [choice for choice in choices if "fields" in choice.get("dotllm", {})]
    assert len(last) == 1 and last[0]["finish_reason"] == "stop", "in the last event"
    fields = last[0]["dotllm"]["fields"]
    assert fields.keys() == {"", "/mood", "/sure", "/why"}
    assert fields["/why"]["members"] is None and 0 < fields["/sure"]["probability"] <= 1
    assert [one["value"] for one in fields["/sure"]["members"]] == [False, True]
    assert {one["value"] for one in fields["/mood"]["members"]} == {"glad", "sad", None}
    assert all(field["mass"] < 0 for field in fields.values())
    assert fields[""]["mass"] < fields["/mood"]["mass"]


def test_several_answers_to_several_prompts(played: PlayedServer) -> None:
    for stream in (False, True):
        fields = {**FORM, "prompt": ["one", "two"], "n": 2, "stream": stream, "vllm_xargs": {"dotllm_confidence": True}}
        answer = ask(played, "completion", fields)
        choices = [choice for event in answer.body for choice in event["choices"]] if stream else answer.body["choices"]
        for index in range(4):
            said = said_by([choice for choice in choices if choice["index"] == index])
            check(played, said)
            assert "/mood" in said["fields"]


def test_a_choice_and_what_is_no_json(played: PlayedServer) -> None:
    asked = {"vllm_xargs": {"dotllm_confidence": True}, "return_token_ids": True}
    (choice,) = ask(played, "chat", {**asked, "structured_outputs": {"choice": ["red", "green"]}}).body["choices"]
    assert {one["value"] for one in choice["dotllm"]["fields"][""]["members"]} == {"red", "green"}
    (choice,) = ask(played, "chat", {**asked, "structured_outputs": {"regex": "[a-c]{3,9}"}}).body["choices"]
    assert choice["dotllm"]["fields"] is None and len(choice["dotllm"]["mass"]) == len(choice["token_ids"])
    cut = ask(played, "chat", {**asked, "structured_outputs": {"json": SCHEMA}, "max_tokens": 3}).body["choices"][0]
    assert cut["dotllm"]["fields"] == {} and len(cut["dotllm"]["mass"]) == 3


def test_log_probabilities_that_a_client_asks_for_stay_its_own(played: PlayedServer) -> None:
    for fields in ({"vllm_xargs": {"dotllm_confidence": True}}, {}):
        choice = ask(played, "chat", {**FORM, **fields, "logprobs": True, "top_logprobs": 2}).body["choices"][0]
        content = choice["logprobs"]["content"]
        assert len(content) == len(choice["token_ids"]) and {len(one["top_logprobs"]) for one in content} <= {1, 2}
        assert ("dotllm" in choice) == bool(fields)


def test_tool_calls_are_still_read(played: PlayedServer) -> None:
    for stream in (False, True):
        fields = {**forced("chat", SCHEMA, True), "stream": stream, "vllm_xargs": {"dotllm_confidence": True}}
        answer = ask(played, "chat", {**fields, "return_token_ids": True})
        choices = [choice for event in answer.body for choice in event["choices"]] if stream else answer.body["choices"]
        said = said_by(choices)
        assert len(said["mass"]) > 10 and choices[-1]["finish_reason"] == "tool_calls"
        assert said["fields"].keys() == {"/0", "/0/mood", "/0/sure", "/0/why"}, "of the call's arguments"
        assert stream or len(said["mass"]) == len(said["tokens"])


@pytest.mark.parametrize("name", ["dotllm_mass", "dotllm_confidence"])
def test_who_may_ask(played: PlayedServer, name: str) -> None:
    for api in ("response", "message", "batch"):  # (a batch does not read vllm_xargs)
        error = refused(played, api, {"vllm_xargs": {name: True}})
        assert error["param"] == f"vllm_xargs.{name}"
        assert ("is not read here" if api == "batch" else "is for chats and completions") in error["message"]
    for api in ("chat", "completion"):
        error = refused(played, api, {"vllm_xargs": {name: True}})
        assert error["param"] == f"vllm_xargs.{name}" and "has no constraint" in error["message"]
        error = refused(played, api, {**FORM, "vllm_xargs": {name: "much"}})
        assert error["param"] == f"vllm_xargs.{name}" and "must be true or false" in error["message"]
        answer = ask(played, api, {**FORM, "vllm_xargs": {name: False}})
        assert answer.status == 200 and "dotllm" not in answer.body["choices"][0]
    gone = refused(played, "chat", {**FORM, "vllm_xargs": {"dotllm_friction": True}})
    assert "'dotllm_mass'" in gone["message"]


def test_a_server_whose_log_probabilities_are_others(played: PlayedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(played.core.vllm_config.model_config, "logprobs_mode", "processed_logits")
    error = refused(played, "chat", {**FORM, "vllm_xargs": {"dotllm_mass": True}})
    assert "--logprobs-mode processed_logits" in error["message"]


def test_a_tier_that_is_off(played: PlayedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOTLLM_HOOKS", "enforce,speed,api,tools,workaround")
    error = refused(played, "chat", {**FORM, "vllm_xargs": {"dotllm_mass": True}})
    assert "needs the tier extra, which is off" in error["message"]
