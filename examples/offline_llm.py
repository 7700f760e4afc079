"""vLLM without a server, a batch of prompts with different constraints: ``python examples/offline_llm.py MODEL``."""

from __future__ import annotations

import sys

import dotllm.vllm_plugin


def main(model: str) -> None:
    """Print an answer for each kind of constraint."""
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    dotllm.vllm_plugin.register()  # before the engine is configured
    llm = LLM(model, max_model_len=2048, enforce_eager=True)  # a thinking model: reasoning_parser="qwen3"
    kinds = [
        StructuredOutputsParams(choice=["yes", "no"]),
        StructuredOutputsParams(regex=r"[0-9]{1,3} %"),
        StructuredOutputsParams(json={"enum": ["wet", "dry", None]}),
    ]
    prompts = ["Is water wet?", "How wet, in percent?", "In one word of JSON?"]
    parameters = [SamplingParams(max_tokens=200, structured_outputs=kind) for kind in kinds]
    for output in llm.generate(prompts, parameters, use_tqdm=False):
        print(repr(output.prompt), "->", output.outputs[0].text)


if __name__ == "__main__":  # vLLM spawns processes that import this file
    main(sys.argv[1])
