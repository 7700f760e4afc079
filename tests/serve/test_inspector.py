"""The inspector on a server: protected by the server's API key, it follows requests token by token."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serve.conftest import NAME
from tests.serve.zygote import Server

pytestmark = pytest.mark.serve
KEY = "a-secret"
SCHEMA = {"type": "object", "properties": {"n": {"enum": [1, 2, 3]}}, "required": ["n"], "additionalProperties": False}


@pytest.fixture(scope="module")
def inspected(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("inspected")
    flags = ("--max-model-len", "1024", "--api-key", KEY)
    with Server(demo_model, directory / "log", name=NAME, flags=flags, environment={"DOTLLM_INSPECT": "on"}) as running:
        running.wait()
        yield running
        assert running.healthy(), running.log_tail(60)


def ask(server: Server, question: str, key: str = KEY, **body: Any) -> dict[str, Any]:
    return post(server, f"/v1/dotllm/inspect/{question}", body, key)


def post(server: Server, path: str, body: dict[str, Any], key: str = KEY) -> dict[str, Any]:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    url = f"{server.url}{path}"
    with urllib.request.urlopen(
        urllib.request.Request(url, json.dumps(body).encode(), headers), timeout=120
    ) as response:
        found: dict[str, Any] = json.load(response)
        return found


def test_a_request_is_followed(inspected: Server) -> None:
    from openai import OpenAI

    client = OpenAI(base_url=f"{inspected.url}/v1", api_key=KEY, timeout=300.0, max_retries=0)
    answer = client.chat.completions.create(
        model=NAME,
        messages=[{"role": "user", "content": "a number"}],
        max_tokens=200,
        extra_body={"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": True}},
    )
    client.chat.completions.create(model=NAME, messages=[{"role": "user", "content": "free"}], max_tokens=3)
    (known,) = ask(inspected, "requests")["requests"]
    assert (known["kind"], known["end"]) == ("json_schema", "stop")
    request = ask(inspected, "request", id=known["id"])
    assert json.loads(request["text"]) == SCHEMA and request["options"] == {"any_whitespace": False}
    walked = ask(inspected, "walk", **{name: request[name] for name in ("kind", "text", "options", "tokens")})
    assert walked["bad"] is None and walked["finished"]
    written = "".join(step["text"] for step in walked["steps"] if not step.get("special"))
    assert written == answer.choices[0].message.content
    masses, fields = request["mass"], request["fields"]
    assert len(masses) == len(request["tokens"]), "with the inspector, all requests ask"
    assert all(mass <= 1e-5 for mass in masses) and any(mass < -1 for mass in masses)
    assert fields.keys() == {"", "/n"} and {one["value"] for one in fields["/n"]["members"]} == {1, 2, 3}


@pytest.mark.parametrize("chat", [True, False])
def test_an_answer_says_its_masses(inspected: Server, chat: bool) -> None:
    body: dict[str, Any] = {"model": NAME, "max_tokens": 200, "structured_outputs": {"json": SCHEMA}, "temperature": 0}
    body |= {"messages": [{"role": "user", "content": "x"}]} if chat else {"prompt": "x"}
    body |= {"return_token_ids": True, "logprobs": True if chat else 1}
    path = "/v1/chat/completions" if chat else "/v1/completions"
    (choice,) = post(inspected, path, body | {"vllm_xargs": {"dotllm_confidence": True}})["choices"]
    said = choice["dotllm"]
    assert len(said["mass"]) == len(choice["token_ids"]) and max(said["mass"]) <= 1e-5 and min(said["mass"]) < -1
    own = [one["logprob"] for one in choice["logprobs"]["content"]] if chat else choice["logprobs"]["token_logprobs"]
    assert said["after"] == pytest.approx(own, abs=1e-5), "vLLM's own log probabilities are those under the mask"
    members = said["fields"]["/n"]["members"]
    known = [one["probability"] for one in members if one["probability"] is not None]
    assert len(members) == 3 and sum(known) <= 1.001
    (without,) = post(inspected, path, body)["choices"]
    assert without["token_ids"] == choice["token_ids"] and "dotllm" not in without, "it changes no answer"


def test_the_page_says_nothing_of_requests(inspected: Server) -> None:
    with urllib.request.urlopen(f"{inspected.url}/dotllm/inspect", timeout=60) as response:
        page = response.read().decode()
        assert response.headers["Content-Security-Policy"].startswith("default-src 'none'")
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert data["live"] and data["start"] is None and data["size"] > 1000


@pytest.mark.parametrize("question", ["requests", "request", "walk"])
def test_questions_need_the_key(inspected: Server, question: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(inspected, question, key="another")
    assert refused.value.code == 401


def test_bad_questions(inspected: Server) -> None:
    for question, body in (("request", {"id": "unknown"}), ("nothing", {})):
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask(inspected, question, **body)
        assert refused.value.code == 400
