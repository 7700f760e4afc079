"""Is a model right as often as it is sure? The probabilities of chosen members, and whether they are right.

    python -m benchmarks.calibration MODEL [--batch 32] [--json benchmarks/results/calibration.json] [--go-on]

The questions are cases of BFCL (package bfcl-eval) with one call, to a function that has an enumeration or a boolean
among its parameters and in the right answer: the first two cases of each function, because its questions are alike.
(Parallel calls are left out: one could only guess which call an answer means.) Each question is asked once, at
temperature 0, and only for these arguments, because the others would take most of the time. A row is one argument of
an answer: the probability of the chosen value, the mass that the masks left, the number of members, and whether BFCL
lists the value as right. No server is needed: the function that answers ``dotllm_confidence``
(`dotllm.inspector.confidence`) makes the rows from the masses and log probabilities of an offline engine.

A server has only the 20 likeliest tokens of each place, which do not distinguish the members of a large enumeration.
If only values known to a server counted, the unsure ones would be missing, so here a place has `WIDE` tokens.
``served`` is the probability that a server would have given, or null if it would not know.
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

from dotllm import Index, SpecError, Vocabulary
from dotllm.bench.quality import bfcl
from dotllm.bench.quality.cases import Case
from dotllm.inspector.confidence import LIKELIEST, Field, Place, confidence

SETS = ("simple_python", "live_simple", "multiple", "live_multiple")
OF_EACH_FUNCTION = 2
WIDE = 256
"""Tokens whose probabilities are requested at each place."""
FILE = Path(__file__).parent / "results" / "calibration.json"
_UNREAD = re.compile(r"[ ,./\-_*^]")
"""Characters that BFCL's judge does not compare in strings."""


def cases() -> Iterator[Case]:
    """Cases whose right answer has an enumeration or a boolean; their functions keep only such parameters."""
    # The cases of a function are consecutive, so that consecutive prompts begin alike.
    of_functions: dict[str, list[Case]] = {}
    for case in _all():
        alike = of_functions.setdefault(json.dumps(case.functions[0].tool(strict=None)), [])
        if len(alike) < OF_EACH_FUNCTION and all(case.question != other.question for other in alike):
            alike.append(case)
    for _, alike in sorted(of_functions.items()):
        yield from alike


def _all() -> Iterator[Case]:
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


def _index(case: Case, vocabulary: Vocabulary) -> Index | None:
    try:
        return Index.from_json_schema(case.schema(), vocabulary, any_whitespace=False)
    except SpecError as error:  # (an array with an enumeration that was meant for its items)
        print(error.message)
        return None


def rows(case: Case, index: Index, output: Any) -> Iterator[dict[str, Any]]:
    """The rows of one answer."""
    ((_, wanted),) = case.wanted
    tokens = list(output.token_ids)
    all_known, served = (confidence(index, tokens, _places(output, most)) for most in (WIDE, LIKELIEST))
    for key, value in json.loads(output.text).items():
        field, name = all_known[f"/{key}"], json.dumps(value)
        members = _probabilities(field)
        yield {
            "case": case.name, "key": key, "probability": members.get(name), "members": len(members),
            "served": _probabilities(served[f"/{key}"]).get(name), "mass": field.mass,
            "right": _plain(value) in [_plain(right) for right in wanted[key]],
        }  # fmt: skip


def _places(output: Any, most: int) -> list[Place]:
    """The places of an answer's tokens, each with its ``most`` likeliest tokens, as a server has them."""
    return [
        Place(
            position.log_mass,
            {token: value.logprob for token, value in position.items() if value.rank <= most or token == sampled},
        )
        for sampled, position in zip(output.token_ids, output.logprobs, strict=True)
    ]


def _probabilities(field: Field) -> dict[str, float | None]:
    return {json.dumps(each["value"]): each["probability"] for each in field.members or ()}


def _plain(value: Any) -> Any:
    return _UNREAD.sub("", value).lower() if isinstance(value, str) else (type(value).__name__, value)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--json", type=Path, default=FILE)
    parser.add_argument("--go-on", action="store_true", help="begin after the cases of the file")
    asked = parser.parse_args()
    done = json.loads(asked.json.read_text()) if asked.go_on else {"cases": 0, "rows": []}
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    import dotllm.vllm_plugin

    dotllm.vllm_plugin.register()
    llm = LLM(
        asked.model, max_model_len=1536, max_num_seqs=asked.batch, max_logprobs=WIDE, dtype="float32",
        enforce_eager=True, seed=0,
    )  # fmt: skip
    vocabulary, found = Vocabulary.from_tokenizer(llm.get_tokenizer()), done["rows"]
    todo = [(case, index) for case in cases() if (index := _index(case, vocabulary))]
    for at in range(done["cases"], len(todo), asked.batch):
        batch, began = todo[at : at + asked.batch], time.monotonic()
        params = [
            SamplingParams(
                temperature=0,
                max_tokens=100,
                logprobs=WIDE,
                extra_args={"dotllm_mass": True},
                structured_outputs=StructuredOutputsParams(json=case.schema(), disable_any_whitespace=True),
            )
            for case, _ in batch
        ]
        prompts = [[{"role": "system", "content": case.system(with_schema=False)}, *case.question] for case, _ in batch]
        for (case, index), answer in zip(batch, llm.chat(prompts, params, use_tqdm=False), strict=True):
            if answer.outputs[0].finish_reason == "stop":
                found += rows(case, index, answer.outputs[0])
        head = {"model": Path(asked.model).name, "cases": at + len(batch), "of": len(todo)}
        lines = ",\n  ".join(map(json.dumps, found))
        asked.json.write_text(f'{json.dumps(head)[:-1]}, "rows": [\n  {lines}\n]}}\n')
        known = [row for row in found if row["probability"] is not None]
        print(
            f"{at + len(batch)} cases, {len(found)} values, {len(known)} known, {time.monotonic() - began:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
