"""Run by test_mass.py in a separate process, or by hand on a GPU: masses against float64 over the full logits.

python mass_script.py MODEL RUNNER SPECULATION ROUNDS       RUNNER: CPU, V1, "V1 async" or "V2 async", which are played
on this machine's CPU; or GPU: what vLLM chooses for a device. SPECULATION: JSON or null. Each round asks all of
`SPECIFICATIONS`. Prints one JSON object.

The expected masses are noted before and after vLLM's function (with our hooks) masks the logits: log-sum-exps in
float64 of every row of every request. The scheduler's output tells which positions of a step became tokens.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.serve import played_platform

MODEL, RUNNER, SPECULATION, ROUNDS = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
if RUNNER not in ("CPU", "GPU"):
    played_platform.prepare(second=RUNNER.startswith("V2"), asynchronous=RUNNER.endswith("async"))

SPECIFICATIONS: list[dict[str, Any]] = [
    {"json": {"type": "array", "items": {"enum": ["abc", "ab", "c0"]}, "minItems": 20, "maxItems": 40}},
    {"json": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "boolean"}}}},
    {"regex": "[abc012]{90,110}"},
    {"regex": '("[abc]{1,3}"){12,19}'},
    {"grammar": 'start: item ("," item)*\nitem: /[abc]{1,4}/ | "(" start ")"'},
    {"choice": ["yes", "no", "perhaps"]},
]
KEPT = 300
"""Number of rows of logits that are kept, for the log probability of the sampled token."""


class Expected:
    """The expected values of each position, by request and step."""

    def __init__(self) -> None:
        self.steps: dict[str, list[list[tuple[float, Any]]]] = defaultdict(list)
        self.accepted: dict[str, list[int]] = defaultdict(list)
        self._kept = 0

    def note(self, logits: Any, first: dict[str, tuple[int, int]], mask: Any) -> None:
        """Call ``mask``, which masks ``logits``. first: each request's first row and number of rows."""
        before = logits.double().logsumexp(1)
        rows = {name: logits[at].double().log_softmax(0).cpu() for name, (at, _) in first.items() if self._kept < KEPT}
        mask()
        masses = (logits.double().logsumexp(1) - before).tolist()
        self._kept += len(rows)
        for name, (at, count) in first.items():
            own = [(mass, None) for mass in masses[at : at + count]]
            self.steps[name].append([(own[0][0], rows.get(name)), *own[1:]])

    def of(self, name: str) -> list[tuple[float, Any]]:
        """The mass of each token of a request, and the log probabilities before the mask if they were kept."""
        return [one for step, n in zip(self.steps[name], self.accepted[name], strict=False) for one in step[:n]]


def watch(llm: Any, expected: Expected) -> None:
    """Note what vLLM masks, and which tokens it accepts."""
    from vllm.v1.worker import gpu_model_runner
    from vllm.v1.worker.gpu.structured_outputs import StructuredOutputsWorker

    core: Any = llm.llm_engine.engine_core.engine_core
    v1, v2, update = gpu_model_runner.apply_grammar_bitmask, None, core.scheduler.update_from_output

    def noted_v1(step: Any, grammar: Any, batch: Any, logits: Any) -> None:
        first, at = {}, 0
        for name in batch.req_ids:
            count = 1 + len(step.scheduled_spec_decode_tokens.get(name, ()))
            first[name], at = (at, count), at + count
        asked = set(grammar.structured_output_request_ids)
        own = {name: one for name, one in first.items() if name in asked}
        expected.note(logits, own, lambda: v1(step, grammar, batch, logits))

    v2 = StructuredOutputsWorker.apply_grammar_bitmask

    def noted_v2(self: Any, logits: Any, batch: Any, names: list[str], masks: Any) -> None:
        ends = batch.cu_num_logits.tolist()
        rows = {name: (ends[i], ends[i + 1] - ends[i]) for i, name in enumerate(batch.req_ids) if name in set(names)}
        expected.note(logits, rows, lambda: v2(self, logits, batch, names, masks))

    def updated(step: Any, output: Any) -> Any:
        outputs = update(step, output)
        for client in outputs.values():
            for one in client.outputs:
                if one.new_token_ids:
                    expected.accepted[one.request_id].append(len(one.new_token_ids))
        return outputs

    gpu_model_runner.apply_grammar_bitmask = noted_v1
    StructuredOutputsWorker.apply_grammar_bitmask = noted_v2
    core.scheduler.update_from_output = updated


def main() -> None:
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    small = {"enforce_eager": True, "dtype": "float32", "max_model_len": 192, "max_num_seqs": 32, "block_size": 32}
    llm = LLM(
        MODEL, seed=0, trust_remote_code=True, speculative_config=SPECULATION, **({} if RUNNER == "GPU" else small)
    )
    expected = Expected()
    watch(llm, expected)
    asked = [(f"Request {i}: a {n} of abc012, ", one) for i in range(ROUNDS) for n, one in enumerate(SPECIFICATIONS)]
    params = [
        SamplingParams(
            temperature=0.9,
            max_tokens=120,
            logprobs=(0, 3, None, 2, None)[n % 5],
            extra_args={"dotllm_mass": True} if n % 5 < 3 else None,
            structured_outputs=StructuredOutputsParams(**one),
        )
        for n, (_, one) in enumerate(asked)
    ]
    outputs = llm.generate([prompt for prompt, _ in asked], params, use_tqdm=False)
    names = {name.partition("-")[0]: name for name in expected.steps}
    tokens, worst, worst_before, rows, unasked = 0, 0.0, 0.0, 0, 0
    for one, own in zip(outputs, params, strict=True):
        answer, known = one.outputs[0], expected.of(names[one.request_id])
        asks = bool(own.extra_args)
        silent = own.logprobs is None and not asks
        assert answer.logprobs is None if silent else len(answer.logprobs) == len(answer.token_ids)
        if not asks:
            assert not any(hasattr(position, "log_mass") for position in answer.logprobs or ())
            unasked += 1
            continue
        assert len(known) == len(answer.token_ids), (len(known), len(answer.token_ids))
        for token, position, (mass, row) in zip(answer.token_ids, answer.logprobs, known, strict=True):
            assert len(position) <= (0 if own.logprobs is None else 1 + own.logprobs)
            tokens += 1
            worst = max(worst, abs(position.log_mass - mass))
            if row is not None and own.logprobs is not None:
                rows += 1
                worst_before = max(worst_before, abs(position.log_mass + position[token].logprob - float(row[token])))
    runner = type(llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner).__module__
    drafted = sum(len(step) > 1 for steps in expected.steps.values() for step in steps)
    several = sum(n > 1 for numbers in expected.accepted.values() for n in numbers)
    found = {"tokens": tokens, "worst": worst, "rows": rows, "worst_before": worst_before, "unasked": unasked}
    print("RESULT " + json.dumps(found | {"runner": runner, "drafted": drafted, "several": several}))


if __name__ == "__main__":
    main()
