"""Run by test_speculation.py in a separate process: one engine, with or without speculation, asked many things.

python speculation_script.py MODEL RUNNER SPECULATION ROUNDS     RUNNER: V1, "V1 async" or "V2 async". SPECULATION: JSON
or null. Each round asks all of `SPECIFICATIONS` once. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.serve import played_platform

MODEL, RUNNER, SPECULATION, ROUNDS = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])
played_platform.prepare(second=RUNNER.startswith("V2"), asynchronous=RUNNER.endswith("async"))

from tests.serve.specifications import CASES  # noqa: E402  # imports dotllm, and that vLLM's versions

TAG = {"begin": "<a>", "content": {"type": "json_schema", "json_schema": {"enum": [1, "b"]}}, "end": "</a>"}
SPECIFICATIONS: list[dict[str, Any]] = [
    *(case.offline() for case in CASES),
    {"grammar": 'start: item ("," item)*\nitem: /[abc]{1,4}/ | "(" start ")"'},
    {"grammar": 'root ::= "1" ("0" | "2"){2,6} "b"?'},
    {"regex": '("[abc]{1,3}"){2,9}'},
    {"regex": "[abc012]{30,60}"},
    {"json": {"type": "array", "items": {"enum": ["abc", "ab", "c0"]}, "minItems": 6, "maxItems": 9}},
    {"structural_tag": json.dumps({"type": "structural_tag", "format": {"type": "tag", **TAG}})},
]


def main() -> None:
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    llm = LLM(
        MODEL,
        enforce_eager=True,
        dtype="float32",
        max_model_len=192,
        max_num_seqs=32,
        block_size=32,
        seed=0,
        trust_remote_code=True,  # for the configuration of our own MiMo
        speculative_config=SPECULATION,
    )
    core: Any = llm.llm_engine.engine_core.engine_core
    drafts = {"allowed": 0, "kept": 0}
    make = core.scheduler.make_spec_decoding_stats

    def counted(stats: Any, **of_request: Any) -> Any:
        invalid = (of_request["num_invalid_spec_tokens"] or {}).get(of_request["request_id"], 0)
        drafts["allowed"] += of_request["num_draft_tokens"] - invalid
        drafts["kept"] += of_request["num_accepted_tokens"]
        return make(stats, **of_request)

    core.scheduler.make_spec_decoding_stats = counted
    asked = [
        (f"Request {i}: a {n} of abc012, " * (1 + i % 3), one)
        for i in range(ROUNDS)
        for n, one in enumerate(SPECIFICATIONS)
    ]
    params = [
        SamplingParams(temperature=0.0, max_tokens=40, structured_outputs=StructuredOutputsParams(**one))
        for _, one in asked
    ]
    start = time.monotonic()
    outputs = llm.generate([prompt for prompt, _ in asked], params, use_tqdm=False)
    answers = [[[*one.outputs[0].token_ids], one.outputs[0].finish_reason] for one in outputs]
    seconds = time.monotonic() - start
    runner = type(core.model_executor.driver_worker.worker.model_runner).__module__
    print("RESULT " + json.dumps({"answers": answers, "drafts": drafts, "runner": runner, "seconds": seconds}))


if __name__ == "__main__":
    main()
