"""What an answer asks the engine for its friction, and which requests may ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.exceptions import VLLMValidationError

from dotllm.compilation import Specification
from dotllm.diagnosis.why import byte_vocabulary
from dotllm.inspector.inspector import Inspector
from dotllm.vllm_plugin.frontend import engine_info, friction


class Params:
    def __init__(self, **fields: Any) -> None:
        self.fields = fields


class Engine:
    """Says of each position that its token has half of the probability, and "x" the other half."""

    def __init__(self, max_model_len: int, max_logprobs: int = 20) -> None:
        self.model_config = SimpleNamespace(max_model_len=max_model_len, max_logprobs=max_logprobs)

    async def generate(self, prompt: Any, params: Params, request_id: str, lora_request: Any) -> AsyncIterator[Any]:
        self.prompt, self.params, self.lora_request = prompt["prompt_token_ids"], params.fields, lora_request
        half = SimpleNamespace(logprob=-0.6931471805599453)
        yield SimpleNamespace(prompt_logprobs=[None, *({token: half, ord("x"): half} for token in self.prompt[1:])])


@pytest.fixture(autouse=True)
def inspector(monkeypatch: pytest.MonkeyPatch) -> None:
    engine_info.remember(None)
    monkeypatch.setattr(friction, "_inspector", lambda: Inspector(byte_vocabulary()))


def measured(engine: Engine) -> dict[str, Any]:
    digits = Specification.create("regex", "[0-9]*x?")
    answer = friction.Answer(digits, list(b"prompt"), [*b"12x", 256], Params(temperature=0.3), "adapter", None)
    return asyncio.run(friction.measure(engine, answer))


def test_the_model_reads_the_answer_again_without_the_constraint() -> None:
    engine = Engine(max_model_len=100)
    found = measured(engine)["taken"]
    assert engine.prompt == [*b"prompt12x", 256] and engine.lora_request == "adapter"
    assert engine.params == {"max_tokens": 1, "prompt_logprobs": 20, "detokenize": False}
    assert [round(least, 6) for least, _ in found] == [0, 0, 0, 0.5], "x may come anywhere but after x"


def test_it_asks_for_no_more_than_the_server_allows() -> None:
    engine = Engine(max_model_len=9, max_logprobs=5)
    assert len(measured(engine)["taken"]) == 2 and len(engine.prompt) == 8
    assert engine.params["prompt_logprobs"] == 5
    engine = Engine(max_model_len=9, max_logprobs=-1)
    measured(engine)
    assert engine.params["prompt_logprobs"] == 20


def test_who_may_ask() -> None:
    def request(**fields: Any) -> SimpleNamespace:
        xargs = {friction.FIELD: True, "other": 1}
        return SimpleNamespace(**({"vllm_xargs": xargs, "stream": False, "return_token_ids": None} | fields))

    asking = request()
    assert friction.is_asked_for(asking) and asking.return_token_ids and asking.vllm_xargs == {"other": 1}
    for other in (request(vllm_xargs=None), request(vllm_xargs={"other": 1})):
        before = dict(other.vllm_xargs or {})
        assert not friction.is_asked_for(other) and (other.vllm_xargs or {}) == before
    with pytest.raises(VLLMValidationError, match="must be true"):
        friction.is_asked_for(request(vllm_xargs={friction.FIELD: "yes"}))
    for other in (request(stream=True), SimpleNamespace(vllm_xargs={friction.FIELD: True}, stream=False)):
        with pytest.raises(VLLMValidationError, match="not streamed"):
            friction.is_asked_for(other)


def test_a_prompt_that_is_not_text_alone_is_refused() -> None:
    friction.refuse_what_is_not_text({"type": "token", "prompt_token_ids": [1]})
    friction.refuse_what_is_not_text("text")
    for kind in ("multimodal", "embeds", "enc_dec"):
        with pytest.raises(VLLMValidationError, match="not text alone"):
            friction.refuse_what_is_not_text({"type": kind})
