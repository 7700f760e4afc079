"""Run by test_offline.py in a separate process: vLLM's offline engine with dotllm. Prints one JSON object.

python offline_script.py MODEL
"""

from __future__ import annotations

import json
import sys
from typing import Any

import dotllm.vllm_plugin


def read_again(llm: Any) -> list[list[float]]:
    """The log probability of each token of an answer without the mask: computed from its mass, and given by the model
    when it reads the answer as a prompt. A request without log probabilities has the same masses."""
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    asking, alone = (
        SamplingParams(
            max_tokens=40, seed=3, logprobs=logprobs, extra_args={"dotllm_mass": True},
            structured_outputs=StructuredOutputsParams(regex="[a-f]{9,20}"),
        )
        for logprobs in (0, None)
    )  # fmt: skip
    (output,) = llm.generate("Hello", asking, use_tqdm=False)
    (answer,) = output.outputs
    (other,) = llm.generate("Hello", alone, use_tqdm=False)[0].outputs
    masses = [[round(position.log_mass, 4) for position in one.logprobs] for one in (answer, other)]
    assert answer.token_ids == other.token_ids and masses[0] == masses[1] and not any(other.logprobs)
    tokens = [*output.prompt_token_ids, *answer.token_ids]
    again = llm.generate({"prompt_token_ids": tokens}, SamplingParams(max_tokens=1, prompt_logprobs=0), use_tqdm=False)
    said = again[0].prompt_logprobs[len(output.prompt_token_ids) :]
    return [
        [position[token].logprob + position.log_mass, read[token].logprob]
        for token, position, read in zip(answer.token_ids, answer.logprobs, said, strict=True)
    ]


def main() -> None:
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import BeamSearchParams, StructuredOutputsParams

    dotllm.vllm_plugin.register()  # else vLLM refuses the option below, which it checks before it loads plugins
    llm = LLM(
        sys.argv[1],
        structured_outputs_config={"disable_any_whitespace": True},
        enforce_eager=True,
        max_model_len=2048,
        max_num_seqs=16,
        seed=0,
    )

    def generate(count: int = 4, **structured: object) -> list[str]:
        params = SamplingParams(
            temperature=1.0, max_tokens=200, n=count, structured_outputs=StructuredOutputsParams(**structured)
        )
        return [choice.text for choice in llm.generate("Hello", params, use_tqdm=False)[0].outputs]

    result: dict[str, object] = {
        "regex": generate(regex=r"[0-9]{4}-[01][0-9]"),
        "choice": generate(choice=["yes", "no"]),
        "json": generate(json={"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
                               "additionalProperties": False}),
    }  # fmt: skip
    try:
        generate(regex="(")
    except Exception as error:
        result["refused"] = f"{type(error).__name__}: {error}"
    # The test injects a fault (`faults`): a specification with "boom" fails while it compiles.
    both = [
        SamplingParams(max_tokens=20, structured_outputs=StructuredOutputsParams(regex=regex))
        for regex in ("boom[0-9]", "fine[0-9]")
    ]
    ended = [output.outputs[0] for output in llm.generate(["Hello"] * 2, both, use_tqdm=False)]
    result["failed"] = [[choice.text, choice.finish_reason, choice.stop_reason] for choice in ended]
    result["after"] = generate(choice=["alive"])

    result["before"] = read_again(llm)

    def beams(width: int, **constraint: Any) -> list[str]:
        params = BeamSearchParams(
            beam_width=width, max_tokens=20, structured_outputs=StructuredOutputsParams(**constraint)
        )
        return [sequence.text for sequence in llm.beam_search([{"prompt": "Hello"}], params)[0].sequences]

    result["beams"] = beams(2, choice=["one", "two", "three"])
    result["ends of beams"] = beams(8, choice=["7"])
    array = {"type": "array", "items": {"const": 1}, "minItems": 3, "maxItems": 3}
    for refused in ({"regex": "("}, {"regex": r"(a)\1"}, {"json": {"type": "strin"}}):
        try:
            beams(2, **refused)
        except Exception as error:
            result.setdefault("refused beams", []).append(type(error).__name__)  # type: ignore[union-attr]
    result["beams of compact JSON"] = beams(4, json=array, disable_any_whitespace=True)
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
