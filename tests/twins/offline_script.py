"""Run by `processes.offline` with and without the plugin: what each method of vLLM's ``LLM`` returns.

python offline_script.py KIND MODEL      prints RESULT and one JSON object, by call
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from typing import Any

PROMPTS = ["Hello, my name is", "The capital of France is", ""]
CHAT = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "Hello!"}]
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}
LENGTH = 12
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": LENGTH}


def main(kind: str, model: str) -> None:
    """See the module."""
    from vllm import LLM

    pooling: dict[str, Any] = {} if kind == "generate" else {"runner": "pooling"}
    more: dict[str, Any] = {
        "embed": {"convert": "embed"},
        "reward": {"pooler_config": {"task": "token_classify"}},
    }.get(kind, {})
    llm = LLM(
        model, enforce_eager=True, max_model_len=512, max_num_seqs=16, seed=0, disable_log_stats=False,
        load_format="auto" if kind in ("generate", "embed") else "dummy", **pooling, **more,
    )  # fmt: skip
    calls = dict(generative(llm) if kind == "generate" else poolings(llm))
    print("RESULT " + json.dumps({name: outcome(call) for name, call in calls.items()}))


def outcome(call: Callable[[], Any]) -> Any:
    """The result of the call, or the class and text of its error."""
    try:
        return plain(call())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def plain(found: Any) -> Any:
    """The parts that JSON can express, without times."""
    if dataclasses.is_dataclass(found) and not isinstance(found, type):
        found = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
    if isinstance(found, dict):
        return {str(name): plain(inner) for name, inner in found.items() if name not in ("metrics", "request_id")}
    if isinstance(found, list | tuple):
        return [plain(inner) for inner in found]
    if found is None or isinstance(found, str | int | float | bool):
        return found
    if hasattr(found, "tolist"):
        return found.tolist()
    return plain(vars(found)) if hasattr(found, "__dict__") else str(type(found))


def sampling() -> dict[str, dict[str, Any]]:
    """Sampling parameters by name. Every field occurs at least once (`test_models`)."""
    from vllm.sampling_params import RepetitionDetectionParams, RequestOutputKind, StructuredOutputsParams

    return {
        "greedy": GREEDY,
        "seeded": {"temperature": 1.2, "top_p": 0.9, "top_k": 30, "min_p": 0.01, "seed": 3, "max_tokens": LENGTH},
        "three": {"temperature": 0.8, "n": 3, "seed": 4, "max_tokens": LENGTH},
        "penalties": {**GREEDY, "presence_penalty": 1.5, "frequency_penalty": 0.5, "repetition_penalty": 1.3},
        "stop": {**GREEDY, "stop": ["e", "a"]}, "stop kept": {**GREEDY, "stop": ["e"], "include_stop_str_in_output": True},
        "stop tokens": {**GREEDY, "stop_token_ids": [5, 6, 7], "min_tokens": 4}, "ends ignored": {**GREEDY, "ignore_eos": True},
        "log probabilities": {**GREEDY, "logprobs": 3}, "prompt's log probabilities": {**GREEDY, "prompt_logprobs": 2},
        "bias": {**GREEDY, "logit_bias": {50: 20.0}}, "allowed": {**GREEDY, "allowed_token_ids": [50, 51, 52]},
        "bad words": {**GREEDY, "bad_words": ["the", "is"]}, "raw": {**GREEDY, "detokenize": False},
        "special tokens": {**GREEDY, "skip_special_tokens": False, "spaces_between_special_tokens": False},
        "final only": {**GREEDY, "output_kind": RequestOutputKind.FINAL_ONLY},
        "arguments": {**GREEDY, "extra_args": {"mine": 1}},
        "repetition": {**GREEDY, "repetition_detection": RepetitionDetectionParams(max_pattern_size=2, min_count=2)},
        "lists of log probabilities": {**GREEDY, "logprobs": 3, "prompt_logprobs": 2, "flat_logprobs": True},
        "log probabilities of tokens": {**GREEDY, "logprob_token_ids": [50, 51]},
        "prompt's log probabilities of tokens": {**GREEDY, "prompt_logprob_token_ids": [[50], [51]], "prompt_logprob_start": 1},
        "without watermark": {**GREEDY, "watermarking": False}, "in intervals": {**GREEDY, "stream_interval": 4},
        "in place": {**GREEDY, "skip_clone": True}, "prompt read anew": {**GREEDY, "skip_reading_prefix_cache": True},
        "a budget of thoughts": {**GREEDY, "thinking_token_budget": 2},
        "routes of experts": {**GREEDY, "routed_experts_prompt_start": 1},
        "a trace": {**GREEDY, "trace_decode_token_ids": [50, 51, 52]},
        "a choice": {**GREEDY, "structured_outputs": StructuredOutputsParams(choice=["yes", "no"])},
        "a temperature below 0": {"temperature": -1}, "no tokens": {"max_tokens": 0}, "n of 0": {"n": 0},
        "top_p of 2": {"top_p": 2.0}, "too many log probabilities": {"logprobs": 10_000},
        "a token that is none": {**GREEDY, "allowed_token_ids": [10_000_000]},
    }  # fmt: skip


def generative(llm: Any) -> Any:
    """Calls of a generating model."""
    from vllm import SamplingParams
    from vllm.sampling_params import BeamSearchParams

    for name, given in sampling().items():
        yield (
            f"generate, {name}",
            lambda given=given: llm.generate(PROMPTS[:2], SamplingParams(**given), use_tqdm=False),
        )
    few = SamplingParams(**GREEDY)
    # (Of two prompts, the second may join a step later, and then the first gets other random numbers.)
    unseeded = SamplingParams(temperature=1.0, max_tokens=LENGTH)
    yield "generate, unseeded", lambda: llm.generate(PROMPTS[0], unseeded, use_tqdm=False)
    yield "generate, empty prompt", lambda: llm.generate(PROMPTS, few, use_tqdm=False)
    yield "generate, tokens", lambda: llm.generate({"prompt_token_ids": [1, 2, 3]}, few, use_tqdm=False)
    yield "generate, too long", lambda: llm.generate("long " * 2000, few, use_tqdm=False)
    yield (
        "generate, parameters for each",
        lambda: llm.generate(PROMPTS[:2], [few, SamplingParams(temperature=1, seed=1, max_tokens=3)], use_tqdm=False),
    )
    yield (
        "generate, default parameters",
        lambda: [len(llm.generate(PROMPTS[0], use_tqdm=False)), llm.get_default_sampling_params()],
    )
    yield "generate, priority", lambda: llm.generate(PROMPTS[0], few, priority=1, use_tqdm=False)
    yield (
        "generate, cut prompt",
        lambda: llm.generate(PROMPTS[0], few, tokenization_kwargs={"truncate_prompt_tokens": 2}, use_tqdm=False),
    )
    yield "enqueue", lambda: [
        len(llm.enqueue(PROMPTS[:2], few, use_tqdm=False)), len(llm.enqueue_chat(CHAT, few, use_tqdm=False)),
        llm.wait_for_completion(use_tqdm=False),
    ]  # fmt: skip
    yield "chat", lambda: llm.chat(CHAT, few, use_tqdm=False)
    yield "chat, two", lambda: llm.chat([CHAT, CHAT[1:]], few, use_tqdm=False)
    yield "chat, tools", lambda: llm.chat(CHAT, few, tools=[TOOL], use_tqdm=False)
    yield "chat, going on", lambda: llm.chat(
        [*CHAT, {"role": "assistant", "content": "Yes"}], few, add_generation_prompt=False, continue_final_message=True,
        use_tqdm=False,
    )  # fmt: skip
    yield "chat, reasoning", lambda: llm.chat(CHAT, few, chat_template_kwargs={"enable_thinking": True}, use_tqdm=False)
    beam_fields: dict[str, dict[str, Any]] = {
        "1": {"beam_width": 1}, "2": {"beam_width": 2}, "5": {"beam_width": 5}, "0": {"beam_width": 0},
        "ends ignored": {"beam_width": 2, "ignore_eos": True}, "warm": {"beam_width": 2, "temperature": 1.5},
        "longer": {"beam_width": 2, "length_penalty": 2.0}, "without watermark": {"beam_width": 2, "watermarking": False},
        "special tokens": {"beam_width": 2, "skip_special_tokens": False, "include_stop_str_in_output": True},
    }  # fmt: skip
    for name, given in beam_fields.items():
        yield (
            f"beam_search, {name}",
            lambda given=given: [
                [[one.tokens, one.text, one.cum_logprob] for one in output.sequences]
                for output in llm.beam_search(
                    [{"prompt": text} for text in PROMPTS[:2]], BeamSearchParams(max_tokens=6, **given)
                )
            ],
        )
    yield "embed of a model that writes", lambda: llm.embed(PROMPTS[0], use_tqdm=False)
    yield "encode of a model that writes", lambda: llm.encode(PROMPTS[0], use_tqdm=False)
    yield (
        "metrics",
        lambda: sorted({metric.name for metric in llm.get_metrics() if not metric.name.startswith("dotllm")}),
    )
    yield "prefix cache", lambda: llm.reset_prefix_cache()
    yield "after it", lambda: llm.generate(PROMPTS[0], few, use_tqdm=False)
    yield "sleep", lambda: [llm.sleep(), llm.wake_up()]
    yield "after waking", lambda: llm.generate(PROMPTS[0], few, use_tqdm=False)
    yield "world", lambda: llm.get_world_size()
    yield "a call of each worker", lambda: llm.collective_rpc("check_health")
    yield "tokenizer", lambda: llm.get_tokenizer().encode(PROMPTS[0])


def poolings(llm: Any) -> Any:
    """Calls of a pooling model."""
    from vllm import PoolingParams

    texts = PROMPTS[:2]
    for name in ("embed", "classify", "reward"):
        if hasattr(llm, name):
            yield name, lambda name=name: getattr(llm, name)(texts, use_tqdm=False)
    yield "encode", lambda: llm.encode(texts, use_tqdm=False)
    for task in ("embed", "classify", "score", "token_embed", "token_classify", "plugin"):
        yield f"encode, {task}", lambda task=task: llm.encode(texts, pooling_task=task, use_tqdm=False)
    yield (
        "encode, without activation",
        lambda: llm.encode(texts, PoolingParams(use_activation=False), pooling_task="embed", use_tqdm=False),
    )
    yield (
        "encode, dimensions",
        lambda: llm.encode(texts, PoolingParams(dimensions=16), pooling_task="embed", use_tqdm=False),
    )
    for name, given in {
        "returned tokens": {"returned_token_ids": [1, 2]}, "step tag": {"step_tag_id": 3},
        "text read anew": {"skip_reading_prefix_cache": True}, "other arguments": {"extra_kwargs": {"mine": 1}},
    }.items():  # fmt: skip
        yield f"encode, {name}", lambda given=given: llm.encode(texts, PoolingParams(**given), use_tqdm=False)
    yield "encode, tokens", lambda: llm.encode([{"prompt_token_ids": [1, 2, 3]}], use_tqdm=False)
    yield "encode, too long", lambda: llm.encode("long " * 2000, use_tqdm=False)
    yield "score", lambda: llm.score(texts[0], texts, use_tqdm=False)
    yield "score, pairs", lambda: llm.score(texts, texts, use_tqdm=False)
    yield "score, one for each", lambda: llm.score(texts, texts[:1], use_tqdm=False)
    yield "chat of a model that pools", lambda: llm.chat(CHAT, use_tqdm=False)
    yield "beam_search of a model that pools", lambda: llm.beam_search([{"prompt": texts[0]}], None)
    yield "generate of a model that pools", lambda: llm.generate(texts, use_tqdm=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
