"""Run by test_coalescence_law.py in a process of its own: samples answers at temperature 1 under canonical coalescence.

python coalescence_law_script.py MODEL REGEX SAMPLES PROMPT-TOKEN…     Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import sys

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # one process and one seed: the same samples every time

import dotllm  # noqa: F401  # prepares vLLM's configuration


def main() -> None:
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    model, regex, samples, *prompt = sys.argv[1:]
    llm = LLM(
        model,
        enforce_eager=True,
        dtype="float32",
        max_model_len=128,
        max_num_seqs=256,
        seed=0,
    )
    params = SamplingParams(
        temperature=1.0, n=int(samples), max_tokens=64, structured_outputs=StructuredOutputsParams(regex=regex)
    )
    outputs = llm.generate({"prompt_token_ids": [int(token) for token in prompt]}, params, use_tqdm=False)[0].outputs
    metrics = llm.llm_engine.engine_core.engine_core.structured_output_manager.backend.compiler.metrics
    entered = metrics.value("dotllm_forced_tokens")
    print("RESULT " + json.dumps({"ids": [list(o.token_ids) for o in outputs], "entered": entered}))


if __name__ == "__main__":
    main()
