"""The content of a trained model's answers: the right city and number, not only valid JSON.

All tests share one server, started like ``dotllm demo``'s, with SmolLM2-135M-Instruct from the package index.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from dotllm.demo import example, trained
from dotllm.demo.server import Server
from tests import documentation
from tests.cases import sample
from tests.conftest import ROOT

pytestmark = pytest.mark.serve
MODEL = ROOT / ".cache" / "models" / trained.NAME
OSAKA = {"city": "Osaka", "celsius": 19, "sky": "rain"}


@pytest.fixture(scope="module")
def trained_client(trained_server: Server) -> Any:
    from openai import OpenAI

    return OpenAI(base_url=f"{trained_server.url}/v1", api_key="-", timeout=300.0, max_retries=0)


def ask(question: str) -> dict[str, Any]:
    return {"model": "demo", "messages": [{"role": "user", "content": question}]}


def test_the_demos_answers_are_right(trained_server: Server) -> None:
    names: dict[str, Any] = {}
    answers = [example.ask(asked, trained_server.url, "demo", names) for asked in example.EXAMPLES]
    assert answers == [asked.expected for asked in example.EXAMPLES]


def test_without_the_constraint_there_is_no_object(trained_server: Server) -> None:
    free = example.ask_freely(example.EXAMPLES[0], trained_server.url, "demo", 20)
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(free)
    assert "1945" in example.ask_freely(example.EXAMPLES[2], trained_server.url, "demo", 20)


@pytest.mark.parametrize("page", ["README.md", "docs/first-answer.md"])
def test_pages_answers_are_right(page: str, trained_server: Server) -> None:
    names: dict[str, Any] = {}
    for block in documentation.blocks("server")[page]:
        code = block.code.replace("http://localhost:8000", trained_server.url).replace("Qwen/Qwen3-8B", "demo")
        block._replace(code=code).run(names)
    first = names["answer"].choices[0] if page == "README.md" else names["choice"]
    assert first.message.parsed.model_dump() == OSAKA and first.finish_reason == "stop"
    if page != "README.md":
        assert names["call"].function.name == "note_weather"
        assert json.loads(names["call"].function.arguments) == OSAKA


@pytest.mark.parametrize(("city", "celsius", "sky"), sample([("Osaka", 19, "rain"), ("Oslo", 3, "snow")]))
def test_a_stream_says_what_the_question_says(city: str, celsius: int, sky: str, trained_client: Any) -> None:
    words = {"rain": "rainy", "snow": "snowy"}[sky]
    properties = {
        "city": {"type": "string", "maxLength": 40},
        "celsius": {"type": "integer"},
        "sky": {"enum": ["sun", "cloud", "rain", "snow"]},
    }
    schema = {"type": "object", "properties": properties, "required": list(properties)}  # closed by default
    named = {"name": "weather", "schema": schema}
    stream = trained_client.chat.completions.create(
        **ask(f"{city} is {words} today, {celsius} degrees. Reply in JSON."),
        response_format={"type": "json_schema", "json_schema": named},
        stream=True,
        max_completion_tokens=200,
    )
    pieces = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
    assert len(pieces) > 5
    answer = json.loads("".join(pieces))
    assert (answer["city"], answer["celsius"]) == (city, celsius)
    assert answer.keys() == properties.keys()


def test_a_chat_remembers(trained_client: Any) -> None:
    messages = [
        {"role": "user", "content": "My name is Ana and I live in Lisbon."},
        {"role": "assistant", "content": "Nice to meet you, Ana!"},
        {"role": "user", "content": "Who am I, and where do I live? Reply in JSON."},
    ]
    properties = {"name": {"type": "string", "maxLength": 30}, "city": {"type": "string", "maxLength": 30}}
    schema = {"type": "object", "properties": properties, "required": ["name", "city"], "additionalProperties": False}
    completion = trained_client.chat.completions.create(
        model="demo",
        messages=messages,
        response_format={"type": "json_schema", "json_schema": {"name": "person", "schema": schema}},
    )
    assert json.loads(completion.choices[0].message.content) == {"name": "Ana", "city": "Lisbon"}


def test_instructor(trained_client: Any) -> None:
    instructor = pytest.importorskip("instructor")
    from examples.instructor_client import Weather

    client = instructor.from_openai(trained_client, mode=instructor.Mode.JSON_SCHEMA)
    weather = client.chat.completions.create(
        **ask("Osaka is rainy today, 19 degrees."), response_model=Weather, max_retries=0
    )
    assert weather.model_dump() == OSAKA
