"""Which chat templates think, and which reasoning parser the warning names. The excerpts are from real templates."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from dotllm import system
from dotllm.vllm_plugin.api import reasoning_warning

QWEN3 = (
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}"
)
R1 = "{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<|Assistant|><think>\\n'}}"
V31 = "{% if not thinking is defined %}{% set thinking = false %}{% endif %}{{'<|Assistant|>'}}{{'</think>'}}"
MAGISTRAL = "{{- '[THINK]' + block['thinking'] + '[/THINK]' }}"
SEED = "{{ bos_token + role + '\\n<seed:think>' }}"
COHERE = "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|><|START_THINKING|>{{ message.tool_plan }}<|END_THINKING|>"
LLAMA = "{% for message in messages %}<|start_header_id|>{{ message['role'] }}\n{{ message['content'] }}{% endfor %}"


@pytest.mark.parametrize(
    ("model_type", "template", "parser"),
    [
        ("qwen3", QWEN3, "qwen3"),
        ("qwen3_moe", QWEN3, "qwen3"),
        ("qwen2", R1, "deepseek_r1"),
        ("llama", R1, "deepseek_r1"),
        ("llama", R1 + "{% if enable_thinking %}", "…, the one for its family"),
        ("llama4", R1, "…, the one for its family"),
        ("deepseek_v3", R1, "deepseek_r1"),
        ("deepseek_v3", V31, "deepseek_v3"),
        ("glm4_moe", QWEN3, "glm45"),
        ("mistral", MAGISTRAL, "mistral"),
        ("seed_oss", SEED, "seed_oss"),
        ("cohere2", COHERE, "cohere_command3"),
        ("kimi_k2", QWEN3, "kimi_k2"),
        ("gemma4_text", QWEN3, "gemma4"),
        ("something_new", QWEN3, "…, the one for its family"),
    ],
)
def test_the_parser_is_named_where_it_is_known(model_type: str, template: str, parser: str) -> None:
    text = reasoning_warning.text_for(model_type, template)
    assert f"--reasoning-parser {parser}" in text
    assert ("enable_thinking" in text) == ("enable_thinking" in template)


@pytest.mark.parametrize("template", ["", LLAMA, "You are a thinking assistant. I think, think about it."])
def test_templates_that_do_not_think(template: str) -> None:
    assert not reasoning_warning.text_for("qwen3", template)


def test_all_names_are_parsers_of_vllms() -> None:
    from vllm.reasoning import ReasoningParserManager

    assert set(reasoning_warning._PARSERS.values()) <= set(ReasoningParserManager.list_registered())


@pytest.mark.parametrize(
    ("changed", "lines"),
    [({}, 1), ({"reasoning_parser": "qwen3"}, 0), ({"backend": "xgrammar"}, 0), ({"rank": 1}, 0), ({"rank": -1}, 1)],
)
def test_it_is_said_once_where_it_is_true(
    changed: dict[str, Any], lines: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    said = {"reasoning_parser": "", "backend": "auto", "rank": 0, **changed}
    config = SimpleNamespace(
        structured_outputs_config=SimpleNamespace(reasoning_parser=said["reasoning_parser"], backend=said["backend"]),
        parallel_config=SimpleNamespace(_api_process_rank=said["rank"]),
        model_config=SimpleNamespace(hf_config=SimpleNamespace(model_type="qwen3")),
    )
    tokenizer = SimpleNamespace(get_chat_template=lambda *_, **__: QWEN3)
    monkeypatch.setattr("vllm.tokenizers.cached_tokenizer_from_config", lambda **_: tokenizer)
    with caplog.at_level(logging.WARNING, "dotllm"):
        reasoning_warning.warn(config)
    assert len(caplog.records) == lines


def test_a_tokenizer_without_a_template_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any, **__: Any) -> str:
        raise ValueError("tokenizer.chat_template is not set")

    monkeypatch.setattr(
        "vllm.tokenizers.cached_tokenizer_from_config", lambda **_: SimpleNamespace(get_chat_template=none)
    )
    config = SimpleNamespace(
        structured_outputs_config=SimpleNamespace(reasoning_parser="", backend="auto"),
        parallel_config=SimpleNamespace(_api_process_rank=0),
        model_config=SimpleNamespace(hf_config=SimpleNamespace(model_type="qwen3")),
    )
    reasoning_warning.warn(config)


def test_a_front_end_says_it_at_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []
    made: list[Any] = []
    monkeypatch.setattr(system, "run_in_background", lambda work, name: work())
    monkeypatch.setattr(reasoning_warning, "warn", said.append)
    config: Any = SimpleNamespace(
        structured_outputs_config=SimpleNamespace(reasoning_parser="qwen3", backend="auto"),
        model_config=SimpleNamespace(runner_type="generate", skip_tokenizer_init=False),
    )
    reasoning_warning._init(object(), config, original=lambda _, config: made.append(config))
    assert said == made == [config]
