"""Run by test_coalescence_law.py in a separate process: samples answers at temperature 1.

python coalescence_law_script.py MODEL REGEX SPECULATION SAMPLES PROMPT-TOKEN…     SPECULATION: JSON, or null.
Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # one process and one seed: the same samples every time

import dotllm  # noqa: F401  # prepares vLLM's configuration


def main() -> None:
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    model, regex, speculation, samples, *prompt = sys.argv[1:]
    llm = LLM(
        model,
        enforce_eager=True,
        dtype="float32",
        max_model_len=128,
        max_num_seqs=256,
        seed=0,
        speculative_config=json.loads(speculation),
    )
    core = llm.llm_engine.engine_core.engine_core
    kept = 0
    make = core.scheduler.make_spec_decoding_stats

    def counted(stats: Any, **of_request: Any) -> Any:
        nonlocal kept
        kept += of_request["num_accepted_tokens"]
        return make(stats, **of_request)

    core.scheduler.make_spec_decoding_stats = counted
    params = SamplingParams(
        temperature=1.0, n=int(samples), max_tokens=64, detokenize=False,
        structured_outputs=StructuredOutputsParams(regex=regex),
    )  # fmt: skip
    outputs = llm.generate({"prompt_token_ids": [int(token) for token in prompt]}, params, use_tqdm=False)[0].outputs
    entered = core.structured_output_manager.backend.compiler.metrics.value("dotllm_forced_tokens")
    print("RESULT " + json.dumps({"ids": [list(o.token_ids) for o in outputs], "entered": entered, "kept": kept}))


if __name__ == "__main__":
    main()
