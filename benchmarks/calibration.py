"""Is a model right as often as it is sure? The probabilities of chosen members, and whether they are right.

    python -m benchmarks.calibration MODEL [--batch 32] [--json benchmarks/results/calibration.json]

The questions are the cases of BFCL (package bfcl-eval) whose function has an enumeration or a boolean among its
parameters, and in the right answer. Each is asked once, at temperature 0, for these arguments alone: the others would
take most of the time. A row is one argument of an answer: the probability of the value that was chosen, the mass that
the masks left, the number of members, and whether BFCL has the value among the right ones. No server is needed: the
rows come from the masses and log probabilities of an offline engine, by the function that answers ``dotllm_confidence``
(`dotllm.inspector.confidence`).
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from dotllm import Index, Vocabulary
from dotllm.bench.quality import bfcl
from dotllm.bench.quality.cases import Case
from dotllm.inspector.confidence import LIKELIEST, Place, confidence

SETS = ("simple_python", "live_simple", "multiple")
FILE = Path(__file__).parent / "results" / "calibration.json"
_UNREAD = re.compile(r"[ ,./\-_*^]")
"""Characters that BFCL's judge does not compare in strings."""


def cases() -> Iterator[Case]:
    """Those in which the right value of an enumeration or a boolean is known, with a function of such parameters."""
    for name in SETS:
        for case in bfcl.cases(name):
            ((called, wanted),) = case.wanted
            function = next(function for function in case.functions if function.name == called)
            properties = {
                key: part
                for key, part in function.parameters.get("properties", {}).items()
                if (part.get("enum") or part.get("type") == "boolean") and set(map(str, wanted.get(key, ()))) - {""}
            }
            if properties:
                schema = {"type": "object", "properties": properties, "required": list(properties)}
                yield replace(case, functions=[replace(function, parameters=schema)], shape="arguments")


def rows(case: Case, index: Index, output: Any) -> Iterator[dict[str, Any]]:
    """Of one answer."""
    ((_, wanted),) = case.wanted
    places = [
        Place(position.log_mass, {token: value.logprob for token, value in position.items()})
        for position in output.logprobs
    ]
    fields = confidence(index, list(output.token_ids), places)
    for key, value in json.loads(output.text).items():
        field = fields[f"/{key}"]
        members = {json.dumps(each["value"]): each["probability"] for each in field.members or ()}
        yield {
            "case": case.name, "key": key, "probability": members.get(json.dumps(value)), "members": len(members),
            "mass": field.mass, "right": _plain(value) in [_plain(right) for right in wanted[key]],
        }  # fmt: skip


def _plain(value: Any) -> Any:
    return _UNREAD.sub("", value).lower() if isinstance(value, str) else (type(value).__name__, value)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--json", type=Path, default=FILE)
    asked = parser.parse_args()
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    import dotllm.vllm_plugin

    dotllm.vllm_plugin.register()
    llm = LLM(asked.model, max_model_len=1024, max_num_seqs=asked.batch, dtype="float32", enforce_eager=True, seed=0)
    vocabulary, found, todo = Vocabulary.from_tokenizer(llm.get_tokenizer()), list[dict[str, Any]](), [*cases()]
    # Cases of one function follow one another, so their prompts begin alike.
    todo.sort(key=lambda case: json.dumps(case.functions[0].tool(strict=None)))
    for at in range(0, len(todo), asked.batch):
        batch, began = todo[at : at + asked.batch], time.monotonic()
        params = [
            SamplingParams(
                temperature=0,
                max_tokens=100,
                logprobs=LIKELIEST,
                extra_args={"dotllm_mass": True},
                structured_outputs=StructuredOutputsParams(json=case.schema(), disable_any_whitespace=True),
            )
            for case in batch
        ]
        prompts = [[{"role": "system", "content": case.system(with_schema=False)}, *case.question] for case in batch]
        for case, answer in zip(batch, llm.chat(prompts, params, use_tqdm=False), strict=True):
            if answer.outputs[0].finish_reason == "stop":
                index = Index.from_json_schema(case.schema(), vocabulary, any_whitespace=False)
                found += rows(case, index, answer.outputs[0])
        head = {"model": Path(asked.model).name, "cases": at + len(batch)}
        lines = ",\n  ".join(map(json.dumps, found))
        asked.json.write_text(f'{json.dumps(head)[:-1]}, "rows": [\n  {lines}\n]}}\n')
        known = [row for row in found if row["probability"] is not None]
        print(
            f"{at + len(batch)} cases, {len(found)} values, {len(known)} known, {time.monotonic() - began:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
