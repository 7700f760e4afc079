"""Run by test_model_classes.py in a separate process: an engine for each kind of model, asked for every specification.

python model_classes_script.py DEMO_MODEL FOLDER KIND…     KIND: a key of `model_classes.KINDS`. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.serve import model_classes, played_platform

LONGEST = 100  # tokens


def prompts(kind: str, count: int) -> list[Any]:
    """A prompt for each request, each with a different text, image or sound."""
    import numpy as np
    from PIL import Image

    size = (model_classes.IMAGE_SIZE, model_classes.IMAGE_SIZE)
    if kind == "image":
        pictures = [Image.new("RGB", size, (4 * i % 255, 20, 30)) for i in range(count)]
        return [
            {"prompt": "Question: what is it? Answer:", "multi_modal_data": {"image": picture}} for picture in pictures
        ]
    if kind == "audio":
        sounds = [np.sin(np.arange(8000) * (i + 1) / 100).astype(np.float32) for i in range(count)]
        return [{"prompt": "<|startoftranscript|>", "multi_modal_data": {"audio": (one, 16000)}} for one in sounds]
    return [f"Request {i}" for i in range(count)]


def ask(kind: str, folder: Path, demo_model: Path, keep: list[Any]) -> dict[str, Any]:
    """Ask a model of ``kind``. Returns how many answers ended, and the wrong answers."""
    from vllm import LLM, SamplingParams
    from vllm.lora.request import LoRARequest
    from vllm.sampling_params import StructuredOutputsParams

    from tests.serve.specifications import CASES as cases

    options = model_classes.make(folder / "model", demo_model, kind)
    dtype = "bfloat16" if kind == "Qwen3-Next" else "float32"  # vLLM's GDN attention on CPUs supports nothing else
    llm = LLM(
        str(folder / "model"), load_format="dummy", dtype=dtype, enforce_eager=True, max_num_seqs=16, seed=0,
        max_model_len=448 if kind == "audio" else 512, block_size=32, num_gpu_blocks_override=200, **options,
    )  # fmt: skip
    keep.append(llm)  # the first one that is freed would take the process's shared state with it
    more: dict[str, Any] = {}
    if kind == "LoRA":
        loras = [LoRARequest(path.name, i + 1, str(path)) for i, path in enumerate(model_classes.adapters(folder))]
        more = {"lora_request": [loras[i % 2] for i in range(len(cases))]}
    params = [
        SamplingParams(
            temperature=1.0, seed=i, max_tokens=LONGEST, structured_outputs=StructuredOutputsParams(**case.offline())
        )
        for i, case in enumerate(cases)
    ]
    outputs = llm.generate(prompts(kind, len(cases)), params, use_tqdm=False, **more)
    ended, wrong = 0, []
    for case, output in zip(cases, outputs, strict=True):
        answer = output.outputs[0]
        ended += answer.finish_reason == "stop"
        try:
            assert answer.finish_reason in ("stop", "length"), answer.stop_reason
            if answer.finish_reason == "stop":
                case.judge(answer.text)
        except Exception as error:
            wrong.append([case.name, answer.text, repr(error)])
    return {"asked": len(cases), "ended": ended, "wrong": wrong}


def main(demo_model: str, folder: str, *kinds: str) -> None:
    played_platform.prepare(second=False, asynchronous=False)
    found: dict[str, Any] = {}
    keep: list[Any] = []
    for kind in kinds:
        try:
            found[kind] = ask(kind, Path(folder) / kind, Path(demo_model), keep)
        except Exception as error:
            found[kind] = {"error": f"{type(error).__name__}: {error}"}
        print(f"{kind}: {found[kind]}", flush=True)
    print("RESULT " + json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
