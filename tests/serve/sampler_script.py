"""Run by test_sampler_features.py in a separate process: the features of vLLM's sampler, with constraints.

python sampler_script.py MODEL ENGINE     ENGINE: a key of `ENGINES`. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.serve import played_platform

PROCESSORS = {"logits_processors": ["tests.serve.no_token_twice:no_token_twice"]}
NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 3}
REPLAY = {"return_sampling_mask": True, "logprobs_mode": "processed_logprobs", "enable_trace_replay": True}
FEW_BLOCKS = {"num_gpu_blocks_override": 9}
ENGINES: dict[str, dict[str, Any]] = {
    "V1": {"logprobs_mode": "raw_logits", **PROCESSORS, **FEW_BLOCKS},
    "V1 async": {"logprobs_mode": "processed_logits", **PROCESSORS, **FEW_BLOCKS},
    "V1 ngram": {"speculative_config": NGRAM, **PROCESSORS},
    "V2 async": {"logprobs_mode": "raw_logprobs", **PROCESSORS, **FEW_BLOCKS},
    "V2 ngram async": {"logprobs_mode": "processed_logits", "speculative_config": NGRAM, **PROCESSORS},
    "V2 replay async": {**REPLAY, "watermark_config": {"key": 7}},
}
"""The options of each engine. The name tells the model runner, the special feature, and the scheduling."""
REGEX = "([a-c]{3}[0-9]){3,6}"
LETTERS = {"regex": "[a-z]{5,9}"}
COMPACT = {
    "json": {
        "type": "object",
        "properties": {"name": {"enum": ["ab", "cd"]}, "count": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["name", "count"],
        "additionalProperties": False,
    },
    "disable_any_whitespace": True,
}


class Engine:
    """vLLM's engine, in this process."""

    def __init__(self, model: str, **options: Any) -> None:
        self.always = {"top_k": 20} if options.get("return_sampling_mask") else {}  # (vLLM requires it then)
        from vllm import LLM
        from vllm.config.reasoning import ReasoningConfig

        self.llm = LLM(
            model, enforce_eager=True, dtype="float32", max_model_len=192, max_num_seqs=16, block_size=32, seed=0,
            reasoning_parser="qwen3", enable_prefix_caching=False,
            reasoning_config=ReasoningConfig(reasoning_start_str="<think>", reasoning_end_str="</think>"), **options,
        )  # fmt: skip
        core: Any = self.llm.llm_engine.engine_core.engine_core
        self.preemptions, preempt = 0, core.scheduler._preempt_request

        def counted(*arguments: Any, **more: Any) -> Any:
            self.preemptions += 1
            return preempt(*arguments, **more)

        core.scheduler._preempt_request = counted

    def token(self, text: str) -> int:
        """The only token of ``text``."""
        [token] = self.llm.get_tokenizer().encode(text, add_special_tokens=False)
        return int(token)

    def ask(
        self, count: int = 4, *, prompt: str = "<think></think>Say it: ", constraint: Any = None, **more: Any
    ) -> Any:
        """The answers to ``count`` prompts under one constraint (`REGEX` by default)."""
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        structured = StructuredOutputsParams(**(constraint or {"regex": REGEX}))
        try:
            params = SamplingParams(
                **{"temperature": 1.0, "max_tokens": 80, **self.always, **more}, structured_outputs=structured
            )
            outputs = self.llm.generate([f"{prompt}{i}" for i in range(count)], params, use_tqdm=False)
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}
        answers = [answer for output in outputs for answer in output.outputs]
        masks = [getattr(answer, "sampling_mask", None) for answer in answers]
        return {
            "texts": [answer.text for answer in answers],
            "ids": [[*answer.token_ids] for answer in answers],
            "reasons": [[answer.finish_reason, answer.stop_reason] for answer in answers],
            "logprobs": [
                [[at[token].logprob, len(at)] for at, token in zip(answer.logprobs, answer.token_ids, strict=True)]
                for answer in answers
                if answer.logprobs
            ],
            "masks": [None if mask is None else mask.token_ids for mask in masks],
        }


def asked_of_all(engine: Engine) -> dict[str, Any]:
    """Requests for what every engine supports."""
    from vllm.sampling_params import RepetitionDetectionParams

    b, digit, mark = engine.token("b"), engine.token("7"), engine.token("!")
    repetition = RepetitionDetectionParams(max_pattern_size=2, min_count=4)
    return {
        "tokens": {text: engine.token(text) for text in ("a", "b", "c", "</think>")},
        "plain": engine.ask(),
        "json": engine.ask(constraint=COMPACT),
        "logprobs": engine.ask(logprobs=3, prompt_logprobs=1),
        "repetition": engine.ask(constraint={"regex": "(ab){30}"}, repetition_detection=repetition),
        "budget": engine.ask(prompt="<think>Let me see", thinking_token_budget=6),
        "no budget": engine.ask(prompt="<think>Let me see", thinking_token_budget=0),
        "budget in the answer": engine.ask(thinking_token_budget=0),
        "allowed": engine.ask(allowed_token_ids=[b, digit]),
        "bad words": engine.ask(bad_words=["a", "c"], constraint={"regex": "[a-c]{8}"}),
        "at least": engine.ask(min_tokens=60),
        "penalties": engine.ask(repetition_penalty=1.5, presence_penalty=1.0, frequency_penalty=1.0),
        "few candidates": engine.ask(top_k=5, top_p=0.8),
        "seeded": [engine.ask(n=2, seed=3) for _ in range(2)],
        "bias": engine.ask(logit_bias={mark: 100.0, b: 90.0}),
        "likely ones": engine.ask(min_p=0.2),
    }


def asked_of_processors(engine: Engine) -> dict[str, Any]:
    """A processor for each sequence; a dozen long answers at the same time, for which there are too few blocks."""
    from tests.serve.no_token_twice import NoTokenTwice

    twice = {"no_token_twice": True}
    found = {
        "others": engine.ask(extra_args={"no_token_twice": False}),
        "refused": engine.ask(extra_args={"no_token_twice": "perhaps"}),
        "stateful": engine.ask(n=3, constraint=LETTERS, extra_args=twice),
        "stateful, greedy": engine.ask(constraint=LETTERS, temperature=0.0, extra_args=twice),
        "stateful, long": engine.ask(
            12, constraint={"regex": "[A-Za-z0-9 ]{90,150}"}, extra_args=twice, max_tokens=150
        ),
        "nothing left": engine.ask(constraint={"regex": "a{90}"}, extra_args=twice),
    }
    engine.ask(1)  # (one more step, which removes the last sequences)
    return {**found, "preemptions": engine.preemptions, "alive": NoTokenTwice.alive, "most": NoTokenTwice.most_at_once}


def main(model: str, name: str) -> None:
    second, options = name.startswith("V2"), ENGINES[name]
    played_platform.prepare(second=second, asynchronous=name.endswith("async"))
    try:
        engine = Engine(model, **options)
    except ValueError as error:
        found: dict[str, Any] = {"error": str(error)}
    else:
        found = asked_of_all(engine) if "speculative_config" not in options else {}
        found |= asked_of_processors(engine) if "logits_processors" in options else {}
        if "enable_trace_replay" in options:
            found["traced"] = engine.ask(1, trace_decode_token_ids=[5, 6, 7])
            found["masked"] = engine.ask(top_k=8)
    print("RESULT " + json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
