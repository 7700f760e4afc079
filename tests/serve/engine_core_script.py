"""Run by test_engine_core.py in a separate process: an engine core, asked like a front end without our plugin asks it.

python engine_core_script.py MODEL     Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.serve import played_platform

played_platform.prepare(second=False, asynchronous=False)

ASKED: dict[str, tuple[str, dict[str, Any]]] = {  # the backend that vLLM's front end would choose; the constraint
    "regex": ("xgrammar", {"regex": "[a-c]{3,6}[0-9]"}),
    "choice": ("guidance", {"choice": ["yes", "no"]}),
    "json": ("xgrammar", {"json": '{"enum": ["a", 1, null]}'}),
    "grammar": ("guidance", {"grammar": 'start: "a" | "b" start'}),
    "tag": ("xgrammar", {"structural_tag": '{"format": {"type": "const_string", "value": "done"}}'}),
    "no regex": ("xgrammar", {"regex": "(7"}),
    "no schema": ("guidance", {"json": '{"type": "strin"}'}),
    "nothing fits": ("outlines", {"json": '{"allOf": [{"type": "string"}, {"type": "null"}]}'}),
}


def main() -> None:
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams
    from vllm.v1.engine import EngineCoreRequest
    from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

    llm = LLM(sys.argv[1], enforce_eager=True, max_model_len=256, max_num_seqs=8, seed=0)
    core: Any = llm.llm_engine.engine_core.engine_core
    encoder, decoder = MsgpackEncoder(), MsgpackDecoder(EngineCoreRequest)
    eos = int(llm.get_tokenizer().eos_token_id)
    for name, (backend, constraint) in ASKED.items():
        structured = StructuredOutputsParams(**constraint)
        structured._backend, structured._backend_was_auto = backend, True
        params = SamplingParams(temperature=1.0, max_tokens=30, structured_outputs=structured)
        params.update_from_generation_config({}, eos)
        request = EngineCoreRequest(name, [1, 2, 3], None, params, None, 0.0, None, None, None)
        core.add_request(*core.preprocess_add_request(decoder.decode(encoder.encode(request))))
    tokens: dict[str, list[int]] = {name: [] for name in ASKED}
    ends: dict[str, Any] = {}
    while core.scheduler.has_requests():
        outputs, _ = core.step_fn()
        for of_client in (outputs or {}).values():
            for one in of_client.outputs:
                tokens[one.request_id] += one.new_token_ids
                if one.finish_reason is not None:
                    error = getattr(one, "error", None)
                    ends[one.request_id] = [str(one.finish_reason), one.stop_reason, error and error.message]
    texts = {name: llm.get_tokenizer().decode(ids, skip_special_tokens=True) for name, ids in tokens.items()}
    print("RESULT " + json.dumps({"texts": texts, "ends": ends}))


if __name__ == "__main__":
    main()
