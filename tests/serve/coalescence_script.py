"""Run by test_coalescence.py in a process of its own: counts forward steps with and without coalescence.

python coalescence_script.py MODEL ENVIRONMENTS     Prints one JSON object for each of ENVIRONMENTS, a JSON object too:
                                                    {mode: {variable: value}}; a mode that ends with --ngram has drafts.

Every mode has an engine, and a process, of its own. The processes are forks of this one, made when vLLM is imported and
nothing of it has begun: importing it takes longer than all of a mode's requests.
"""

from __future__ import annotations

import json
import os
import sys

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the scheduler is counted in this process

import dotllm  # noqa: F401  # prepares vLLM's configuration

SCHEMA = {
    "type": "object",
    "properties": {
        "measurement_station": {"enum": ["northern harbour", "southern harbour"]},
        "temperature_in_celsius": {"type": "integer", "minimum": 0, "maximum": 99},
        "is_calibrated_instrument": {"type": "boolean"},
    },
    "required": ["measurement_station", "temperature_in_celsius", "is_calibrated_instrument"],
    "additionalProperties": False,
}


def main() -> None:
    import vllm.entrypoints.llm
    import vllm.v1.engine.llm_engine
    import vllm.v1.executor.multiproc_executor  # noqa: F401

    for mode, environment in json.loads(sys.argv[2]).items():
        child = os.fork()
        if not child:
            os.environ.update(environment)
            print("RESULT " + json.dumps({"mode": mode, **measure(sys.argv[1], ngram=mode.endswith("--ngram"))}))
            return
        _, status = os.waitpid(child, 0)
        if status:
            sys.exit(f"{mode} ended with status {os.waitstatus_to_exitcode(status)}")


def measure(model: str, ngram: bool) -> dict[str, object]:
    """What one engine does, with this process's environment."""
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams
    from vllm.v1.core.sched.scheduler import Scheduler

    from dotllm.vllm_plugin import register

    register()  # vLLM checks the configuration before it loads plugins
    speculative = None
    if ngram:
        speculative = {"method": "ngram", "num_speculative_tokens": 8, "prompt_lookup_max": 3, "prompt_lookup_min": 2}
    steps = 0
    original = Scheduler.schedule

    def schedule(self: object, *args: object, **kwargs: object) -> object:
        nonlocal steps
        out = original(self, *args, **kwargs)
        steps += out.total_num_scheduled_tokens > 0
        return out

    Scheduler.schedule = schedule
    llm = LLM(
        model,
        structured_outputs_config={"disable_any_whitespace": True},
        enforce_eager=True,
        max_model_len=1024,
        max_num_seqs=16,
        seed=0,
        speculative_config=speculative,
    )
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler

    def run(prompts: list[str], temperature: float, constrained: bool = True) -> dict[str, object]:
        nonlocal steps
        steps = 0
        params = SamplingParams(
            temperature=temperature,
            max_tokens=200 if constrained else 12,
            ignore_eos=not constrained,
            structured_outputs=StructuredOutputsParams(json=SCHEMA) if constrained else None,
        )
        outputs = [o.outputs[0] for o in llm.generate(prompts, params, use_tqdm=False)]
        return {"steps": steps, "ids": [list(o.token_ids) for o in outputs], "texts": [o.text for o in outputs]}

    # A request whose schema still compiles may repeat a step, on a slow machine: not what is counted here.
    run(["Hello"], 0.0)
    several = [f"Request number {i}" for i in range(6)]
    return {
        "greedy": run(["Hello"], 0.0),
        "greedy batch": run(several, 0.0),
        "sampled": run(several, 1.0),
        "free": run(several, 0.0, constrained=False),
        "counts": getattr(scheduler, "coalescence", None),
        "metrics": [
            llm.llm_engine.engine_core.engine_core.structured_output_manager.backend.compiler.metrics.value(*name)
            for name in (("dotllm_forced_tokens", "proposed"), ("dotllm_forced_tokens", "accepted"))
        ],
    }


if __name__ == "__main__":
    main()
