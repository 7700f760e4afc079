"""A front end's start: it warns if the model reasons before it answers and no parser separates its reasoning from its
answers, and loads what its first constrained request needs.

Without ``--reasoning-parser`` a constraint holds from the first token. So a model whose chat template lets it think
cannot think, or writes its answer where its reasoning belongs. Its answers are valid but worse. The text of the
template shows whether the model thinks. The model's type, or marks in the template, give the name of the parser
(https://docs.vllm.ai/en/latest/features/reasoning_outputs.html).
"""

from __future__ import annotations

import logging
import re
from typing import Any

from dotllm.compilation import Kind, Specification, validation_cache
from dotllm.vllm_plugin.hook import Hook, Original, Target
from dotllm.vllm_plugin.settings import is_ours
from dotllm.vllm_plugin.speed.warm_start import in_background
from dotllm.vllm_plugin.vllm_types import VllmConfig

logger = logging.getLogger(__name__)

HOOK = Hook(
    summary="a front end says at its start which reasoning parser is missing, and loads what its first request needs",
    targets=(Target("vllm.tokenizers.registry", "cached_tokenizer_from_config", ("model_config",)),),
    without_it="nothing says that a model that thinks needs a reasoning parser; the first request takes longer",
)

_MARKS = re.compile(r"</?(?:\w+:)?think>|\[/?THINK\]|<\|(?:START|END)_THINKING\|>|\benable_thinking\b|\bthinking is\b")
_OFF = "enable_thinking"  # a template's variable by which a request decides; "thinking is" shows one, too
_CHOSEN = rf".*({_OFF}|thinking is)"
_PARSERS = {
    "glm4_moe": "glm45",
    "hunyuan_v1": "hunyuan_a13b",
    "ernie4_5": "ernie45",
    ".* <seed:think> ": "seed_oss",
    r".* \[THINK\] ": "mistral",
    r".* <\|START_THINKING\|> ": "cohere_command3",
    f"deepseek_v3{_CHOSEN}": "deepseek_v3",
    "deepseek_v3": "deepseek_r1",
    f"(qwen2|llama) (?!{_CHOSEN}).*</think> ": "deepseek_r1",  # R1's distilled models, QwQ and similar ones
}
"""vLLM's parsers, by a pattern for the beginning of a model's type and its template's marks, separated by spaces. Other
parsers have the name with which the type begins (qwen3, kimi_k2, gemma4, …)."""


def text_for(model_type: str, template: str) -> str:
    """The warning; "" if nothing in the template shows that the model thinks."""
    marks = list(dict.fromkeys(match[0] for match in _MARKS.finditer(template)))
    if not marks:
        return ""
    from vllm.reasoning import ReasoningParserManager

    registered = ReasoningParserManager.list_registered()
    seen = f"{model_type} {' '.join(marks)} "
    known = [parser for beginning, parser in _PARSERS.items() if re.match(beginning, seen)]
    known += sorted((parser for parser in registered if model_type.startswith(parser)), key=len, reverse=True)
    parser = next((parser for parser in known if parser in registered), "…, the one for its family")
    off = """, or with --default-chat-template-kwargs '{"enable_thinking": false}'""" if _OFF in marks else ""
    return (
        f"the model's chat template lets it think ({', '.join(marks)}), but no reasoning parser is set: constraints "
        "hold from the first token, so it cannot think before a constrained answer, or writes the answer as its "
        f"thoughts, and other answers contain the thoughts as text. Start with --reasoning-parser {parser}{off}"
    )


def warn(vllm_config: VllmConfig) -> None:
    """Log the warning if this engine needs it, in one of its front ends."""
    config, model_config = vllm_config.structured_outputs_config, vllm_config.model_config
    if config.reasoning_parser or not is_ours(config.backend) or vllm_config.parallel_config._api_process_rank > 0:
        return
    from vllm.tokenizers import cached_tokenizer_from_config

    tokenizer = cached_tokenizer_from_config(model_config=model_config)
    try:
        template = tokenizer.get_chat_template(None, tools=None)
    except Exception:  # of many kinds: there is no template, or the tokenizer does not support templates
        return
    text = text_for(model_config.hf_config.model_type, str(template))
    if text:
        logger.warning("dotllm: %s", text)


def prepare(vllm_config: VllmConfig) -> None:
    """Warn about a missing reasoning parser. Load what is needed for the warnings of a specification and for the types
    of arguments; with a reasoning parser, also what checking needs (`endpoints`)."""
    warn(vllm_config)
    from dotllm.compilation import spec_warnings  # noqa: F401
    from dotllm.languages.json_schema import flat_properties  # noqa: F401

    if vllm_config.structured_outputs_config.reasoning_parser:
        for kind, text in ((Kind.JSON_SCHEMA, '{"type": "string", "pattern": "a"}'), (Kind.REGEX, "a")):
            validation_cache.check(Specification.create(kind, text))


@HOOK.replaces("vllm.v1.engine.input_processor:InputProcessor.__init__")
def _init(self: object, vllm_config: VllmConfig, *args: Any, original: Original, **kwargs: Any) -> None:
    in_background(prepare, vllm_config)
    original(self, vllm_config, *args, **kwargs)
