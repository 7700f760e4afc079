"""Run by test_coalescence.py in a separate process: one engine with canonical coalescence, asked many things.

python coalescence_script.py MODEL RUNNER     RUNNER: V1, "V1 async" or "V2 async". Prints one JSON object.

The same engine answers the same requests in three modes: text is ``entered`` wherever possible; nothing is entered
under the same ``masks``; coalescence is ``off`` (then no batch is asked, and nothing aborted). Only V1 is asked
everything, since each step of the others takes long. Unless COALESCENCE=all, the others are asked only `DIFFERENT` of
the combinations with a constraint, and V2 no free requests, none next to an aborted one, and only one under the same
masks. The KV cache is too small for a batch, so requests are preempted.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.serve import played_platform

MODEL, RUNNER = sys.argv[1:3]
played_platform.prepare(second=RUNNER.startswith("V2"), asynchronous=RUNNER.endswith("async"))


SCHEMA = {
    "type": "object",
    "properties": {
        "measurement_station": {"enum": ["northern harbour", "southern harbour"]},
        "temperature_in_celsius": {"type": "integer", "minimum": 0, "maximum": 99},
        "is_calibrated_instrument": {"type": "boolean"},
    },
    "required": ["measurement_station", "temperature_in_celsius", "is_calibrated_instrument"],
    "additionalProperties": False,
}
COMPACT = {"json": SCHEMA, "disable_any_whitespace": True}
PROMPTS = [f"Request number {i}" for i in range(6)]
DIFFERENT = ("seed", "stop token in JSON", "seeds of several", "stop string inside", "few tokens", "at least")
"""What runners may treat differently: random draws, and ends among entered tokens. V2 is asked the first only: the ends
are the scheduler's, as with V1."""
EVERY = os.environ.get("COALESCENCE") == "all"


class Engine:
    """vLLM's engine; its steps are counted."""

    def __init__(self) -> None:
        from vllm import LLM

        self.llm = LLM(
            MODEL,
            enforce_eager=True,
            dtype="float32",
            max_model_len=160,
            max_num_seqs=8,
            block_size=32,
            num_gpu_blocks_override=9,
            seed=0,
        )
        core: Any = self.llm.llm_engine.engine_core.engine_core
        self.scheduler, self.manager = core.scheduler, core.structured_output_manager
        self.rule = self.scheduler._forced.pays
        self.eos = int(self.llm.get_tokenizer().eos_token_id)
        self.steps = self.preemptions = 0
        schedule, preempt = self.scheduler.schedule, self.scheduler._preempt_request

        def counted(*args: Any, **kwargs: Any) -> Any:
            output = schedule(*args, **kwargs)
            self.steps += output.total_num_scheduled_tokens > 0
            return output

        def preempted(*args: Any, **kwargs: Any) -> Any:
            self.preemptions += 1
            return preempt(*args, **kwargs)

        self.scheduler.schedule, self.scheduler._preempt_request = counted, preempted

    def mode(self, name: str) -> None:
        """Switch to entered, masks or off."""
        from dotllm.vllm_plugin.enforce.compile_hook import GIVEN
        from dotllm.vllm_plugin.extra import jump_forward

        never = SimpleNamespace(may_pay=lambda *_, **__: False)
        self.scheduler._forced.pays = self.rule if name == "entered" else never
        GIVEN.spelling = (lambda config, request: None) if name == "off" else jump_forward.spelling

    def ask(self, prompts: list[str], **parameters: Any) -> dict[str, Any]:
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        constraint = parameters.pop("constraint", COMPACT)
        before, preemptions = self.steps, self.preemptions
        params = [
            SamplingParams(
                **{"max_tokens": 120, "temperature": 0.0, **parameters},
                structured_outputs=StructuredOutputsParams(**constraint) if constraint else None,
            )
            for _ in prompts
        ]
        answers = [answer for one in self.llm.generate(prompts, params, use_tqdm=False) for answer in one.outputs]
        return {
            "steps": self.steps - before,
            "preemptions": self.preemptions - preemptions,
            "ids": [list(answer.token_ids) for answer in answers],
            "texts": [answer.text for answer in answers],
            "reasons": [answer.finish_reason for answer in answers],
        }

    def abort_one(self) -> dict[str, list[int]]:
        """The answers of three requests by name, with a fourth request that is aborted in the middle."""
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        vllm = self.llm.llm_engine
        answers: dict[str, list[int]] = {}
        for name in ("a", "b", "aborted", "c"):
            constraint = StructuredOutputsParams(**COMPACT)
            params = SamplingParams(max_tokens=120, temperature=0.0, structured_outputs=constraint)
            vllm.add_request(name, f"Request {name}", params)
        steps = 0
        while vllm.has_unfinished_requests():
            for output in vllm.step():
                answers[output.request_id] = list(output.outputs[0].token_ids)
            steps += 1
            if steps == 4:
                vllm.abort_request(["aborted"])
        return answers

    def beams(self) -> list[str]:
        from vllm.sampling_params import BeamSearchParams, StructuredOutputsParams

        constraint = StructuredOutputsParams(choice=["alphabetical order", "alphabetical sort"])
        params = BeamSearchParams(beam_width=4, max_tokens=30, structured_outputs=constraint)
        return [one.text for one in self.llm.beam_search([{"prompt": "Hello"}], params)[0].sequences]

    def counters(self) -> list[float]:
        """Tokens entered and steps saved, as in /metrics."""
        metrics = self.manager.backend.compiler.metrics
        return [metrics.value("dotllm_forced_tokens"), metrics.value("dotllm_steps_saved")]


def tokens_of(engine: Engine, text: str) -> list[int]:
    return list(engine.llm.get_tokenizer().encode(text, add_special_tokens=False))


def combinations(engine: Engine) -> dict[str, dict[str, Any]]:
    """Parameters that can be combined with a constraint. `test_coalescence.py` knows what the answers look like."""
    alpha = {"choice": ["alphabetical order"]}
    pieces = tokens_of(engine, "alphabetical order")
    inside = [piece for piece in pieces[1:-1] if len(engine.llm.get_tokenizer().decode([piece])) > 1]  # letters stay
    coalesced: dict[str, dict[str, Any]] = {
        "hot": {"temperature": 1.5},
        "seed": {"temperature": 1.0, "seed": 7},
        "several": {"temperature": 1.0, "n": 2},
        "seeds of several": {"temperature": 1.0, "n": 2, "seed": 3},
        "stop token inside": {"constraint": alpha, "stop_token_ids": inside},
        "stop token at the start": {"constraint": alpha, "stop_token_ids": pieces[:1], "temperature": 1.0},
        "stop token in JSON": {"stop_token_ids": tokens_of(engine, "measurement_station")[:2], "temperature": 1.0},
        "stop string inside": {"stop": ["celsius"]},
        "stop string in what is free": {"stop": ["true", "false"], "include_stop_str_in_output": True},
        "few tokens": {"max_tokens": 5},
        "one token": {"max_tokens": 1},
        "tokens to the end of a piece": {"max_tokens": 9},
        "at least": {"min_tokens": 10},
        "ignores the end": {"ignore_eos": True, "max_tokens": 80},
    }
    if RUNNER != "V1":
        asked = DIFFERENT[: 1 if RUNNER.startswith("V2") else None]
        return coalesced if EVERY else {name: coalesced[name] for name in asked}
    return coalesced | {  # these need other kernels of the sampler, not all of which run in Triton's interpreter
        "few candidates": {"temperature": 1.5, "top_k": 40, "top_p": 0.9, "min_p": 0.01},
        "single letters allowed": {"constraint": alpha, "allowed_token_ids": letters(engine)},
        "bad words": {"constraint": alpha, "bad_words": ["alphabetical", "al", "order"], "temperature": 1.0},
        "bias": {"constraint": alpha, "logit_bias": dict.fromkeys(pieces, -100.0)},
        "log-probabilities": {"logprobs": 2},
        "of the prompt": {"prompt_logprobs": 1},
        "presence": {"presence_penalty": 0.7},
        "frequency": {"frequency_penalty": 0.7, "temperature": 1.0},
        "repetition": {"repetition_penalty": 1.3},
        "many": {"logprobs": 1, "stop_token_ids": inside, "logit_bias": {pieces[0]: -5.0}, "n": 2, "temperature": 1.0,
                 "presence_penalty": 0.2, "min_tokens": 3},
    }  # fmt: skip


def letters(engine: Engine) -> list[int]:
    """The tokens of single letters, and EOS."""
    return sorted({*(token for letter in "alphbetic order" for token in tokens_of(engine, letter)), engine.eos})


def modes() -> tuple[str, ...]:
    """The modes in which all is asked but the combinations."""
    if RUNNER == "V1":
        return "entered", "masks", "off"
    return ("entered",) if RUNNER.startswith("V2") and not EVERY else ("entered", "masks")


def main() -> None:
    engine = Engine()
    engine.ask(["Hello"])  # (its schema still has to compile, so it may repeat a step)
    found: dict[str, Any] = {}
    before = engine.counters()
    first = RUNNER == "V1"
    for mode in modes():
        engine.mode(mode)
        found[mode] = {"greedy": engine.ask(["Hello"])}
        if mode == "entered" or (first and mode == "masks"):
            found[mode]["batch"] = engine.ask(PROMPTS)
        if first or (mode == "entered" and (EVERY or not RUNNER.startswith("V2"))):
            found[mode] |= {
                "free": engine.ask(PROMPTS, constraint=None, max_tokens=12, ignore_eos=True),
                "abort": engine.abort_one() if mode != "off" else {},
                "beams": engine.beams() if first else [],
            }
        found[mode]["counters"] = [now - then for now, then in zip(engine.counters(), before, strict=True)]
        before = engine.counters()
    law: dict[str, Any] = {}
    for name, parameters in combinations(engine).items():
        law[name] = {}
        for mode in ("entered", "off") if first else ("entered", "masks") if name == "seed" else ("entered",):
            engine.mode(mode)
            try:
                law[name][mode] = engine.ask(PROMPTS[: 3 if first else 1], **parameters)
            except Exception as error:
                law[name][mode] = {"error": f"{type(error).__name__}: {error}"}
    print("RESULT " + json.dumps({**found, "law": law}))


if __name__ == "__main__":
    main()
