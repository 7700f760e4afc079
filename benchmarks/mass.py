"""The cost of masses: the time of a step whose requests ask for nothing, for masses, for log probabilities, for both.

    python -m benchmarks.mass MODEL                 # on a GPU; prints a table
    python -m benchmarks.mass MODEL --batches 1 4 --tokens 16 --rounds 2

All requests of a batch write the same number of tokens, so the batch takes that number of steps. The kinds take turns,
because a machine's speed drifts. Log probabilities are vLLM's, of the sampled token (``logprobs=0``).
``tests/serve/mass_script.py MODEL GPU null 200`` checks whether masses are right.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

ASKS = {"extra_args": {"dotllm_mass": True}}
KINDS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "mass": ASKS,
    "logprobs": {"logprobs": 0},
    "both": {"logprobs": 0, **ASKS},
}


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--batches", type=int, nargs="+", default=(1, 32, 256))
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=[*KINDS], help="by default all")
    parser.add_argument("--load-format", default="auto", help="dummy: random weights, for a folder without any")
    asked = parser.parse_args()
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    import dotllm.vllm_plugin

    dotllm.vllm_plugin.register()
    llm = LLM(
        asked.model,
        load_format=asked.load_format,
        max_model_len=512 + asked.tokens,
        max_num_seqs=max(asked.batches),
        seed=0,
    )
    text = StructuredOutputsParams(regex=f"[a-z ]{{{8 * asked.tokens},}}")

    def seconds(batch: int, kind: str) -> float:
        params = SamplingParams(max_tokens=asked.tokens, temperature=1.0, structured_outputs=text, **KINDS[kind])
        prompts = [f"Number {number}: write." for number in range(batch)]
        start = time.perf_counter()
        outputs = llm.generate(prompts, params, use_tqdm=False)
        took = time.perf_counter() - start
        assert all(len(output.outputs[0].token_ids) == asked.tokens for output in outputs)
        return took

    pairs = [(a, b) for a, b in (("mass", "nothing"), ("both", "logprobs")) if {a, b} <= {*asked.kinds}]
    columns = (*(f"{kind}, ms a step" for kind in asked.kinds), *(f"{a} against {b} (quartiles)" for a, b in pairs))
    print("| batch | " + " | ".join(columns) + " |")
    print("| --- " * (1 + len(columns)) + "|")
    for batch in asked.batches:
        taken: dict[str, list[float]] = {kind: [] for kind in asked.kinds}
        for number in range(1 + asked.rounds):
            for kind in asked.kinds:
                took = seconds(batch, kind)
                if number:  # (kernels are compiled in the first round)
                    taken[kind].append(1000 * took / asked.tokens)
        cells = [f"{statistics.median(times):.3f}" for times in taken.values()]
        for a, b in pairs:
            low, middle, high = statistics.quantiles([x / y - 1 for x, y in zip(taken[a], taken[b], strict=True)], n=4)
            cells.append(f"{middle:+.1%} ({low:+.1%} to {high:+.1%})")
        print(f"| {batch} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
