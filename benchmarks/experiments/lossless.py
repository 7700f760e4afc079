"""What coalescence saves with a model that has learnt to spell: drafts accepted, forward steps and tokens per second.

    python -m benchmarks.experiments.trained_model FOLDER          # once: some minutes
    python -m benchmarks.experiments.lossless FOLDER [--out FILE]

One engine a mode, one after another, in a process of its own, on this machine's CPU: off, lossless and canonical, with
and without white space, on workloads of `dotllm bench-structured` whose key names the model has not seen. Free requests
run too, since the mode's scheduling is theirs as well. Time on a CPU says little about a GPU; drafts and steps are the
same there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import dotllm  # noqa: F401  # prepares vLLM's configuration, before vLLM is imported

MODES = ("off", "lossless", "canonical")
WORKLOADS = ("tools", "closed")
CONCURRENCY = (1, 8)
REQUESTS = 16
FREE_TOKENS = 64
# The model is small: threads that wait for one another would cost more than they do, and measure what else runs here.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
OUT = Path(__file__).parent.parent / "results" / "lossless.json"

Point = dict[str, Any]


class Engine:
    """vLLM with dotllm in this process, and counts of its steps."""

    def __init__(self, model: str, compact: bool) -> None:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the scheduler is counted in this process
        from vllm import LLM
        from vllm.v1.core.sched.scheduler import Scheduler

        from dotllm.vllm_plugin import register

        register()  # vLLM checks the configuration before it loads plugins
        original = Scheduler.schedule

        def schedule(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            out = original(scheduler, *args, **kwargs)
            self.steps += out.total_num_scheduled_tokens > 0
            return out

        self.steps = 0
        Scheduler.schedule = schedule
        self.llm = LLM(
            model,
            structured_outputs_config={"disable_any_whitespace": compact},
            enforce_eager=True,
            max_model_len=1024,
            max_num_seqs=16,
            seed=0,
        )
        core = self.llm.llm_engine.engine_core.engine_core
        self.scheduler = core.scheduler
        self.asynchronous = bool(core.vllm_config.scheduler_config.async_scheduling)

    def run(self, workload: str | None, concurrency: int) -> Point:
        """`REQUESTS` requests, so many at a time; ``workload`` None: unconstrained."""
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        from dotllm.bench import workloads
        from dotllm.bench.plan import WORDS
        from dotllm.demo.tokenizer import TURN_END, TURN_START

        constraints = workloads.load(workload) if workload else [None]
        wanted = [constraints[i % len(constraints)] for i in range(REQUESTS)]
        prompts, params = [], []
        for number, constraint in enumerate(wanted):
            words = " ".join(WORDS[(number * 7 + k) % len(WORDS)] for k in range(8))
            prompts.append(f"{TURN_START}user\n{words}{TURN_END}\n{TURN_START}assistant\n")
            structured = StructuredOutputsParams(json=constraint.value) if constraint else None
            params.append(
                SamplingParams(temperature=1.0, max_tokens=400, structured_outputs=structured)
                if constraint
                else SamplingParams(temperature=1.0, max_tokens=FREE_TOKENS, ignore_eos=True)
            )
        before = dict(getattr(self.scheduler, "coalescence", {}))
        self.steps, tokens, valid, ended = 0, 0, 0, 0
        start = time.perf_counter()
        answers = []
        for first in range(0, REQUESTS, concurrency):
            chosen = slice(first, first + concurrency)
            answers += [o.outputs[0] for o in self.llm.generate(prompts[chosen], params[chosen], use_tqdm=False)]
        seconds = time.perf_counter() - start
        for constraint, answer in zip(wanted, answers, strict=True):
            tokens += len(answer.token_ids)
            if constraint is not None and answer.finish_reason == "stop":
                ended += 1
                valid += constraint.fault(answer.text) is None
        self.texts = [answer.text for answer in answers]
        point: Point = {
            "workload": workload or "unconstrained",
            "concurrency": concurrency,
            "asynchronous": self.asynchronous,
            "requests": REQUESTS,
            "tokens_per_request": round(tokens / REQUESTS, 1),
            "steps_per_request": round(self.steps * concurrency / REQUESTS, 1),
            "output_tokens_per_s": round(tokens / seconds, 1),
            "requests_per_s": round(REQUESTS / seconds, 2),
        }
        if workload:
            drafts = {name: value - before.get(name, 0) for name, value in self._counts().items()}
            point |= {"ended": ended, "valid": valid, **drafts}
        return point

    def _counts(self) -> dict[str, int]:
        return {k: v for k, v in getattr(self.scheduler, "coalescence", {}).items() if k != "steps_saved"}


def child(model: str, compact: bool) -> None:
    """All points of the mode in the environment, as a line of JSON."""
    engine = Engine(model, compact)
    for workload in (WORKLOADS[0], None):  # warm: vLLM compiles its sampler at first use
        for concurrency in CONCURRENCY:
            engine.run(workload, concurrency)
    points, texts = [], {}
    for workload in WORKLOADS:
        points += [engine.run(workload, c) for c in CONCURRENCY]
        texts[workload] = engine.texts
    points += [engine.run(None, c) for c in CONCURRENCY]
    print("RESULT " + json.dumps({"points": points, "texts": texts}))


def forced_share(texts: dict[str, list[str]], compact: bool) -> dict[str, float]:
    """The share of bytes in finished answers that the grammar forces, by workload."""
    from dotllm import Index, Vocabulary
    from dotllm.bench import workloads

    vocabulary = Vocabulary.from_bytes([bytes([i]) for i in range(256)] + [None], eos_token_ids=256)
    found = {}
    for name, answers in texts.items():
        constraints = workloads.load(name)
        forced = total = 0
        for number, answer in enumerate(answers):
            schema = constraints[number % len(constraints)].value
            index = Index.from_json_schema(schema, vocabulary, any_whitespace=not compact)
            guide, rest = index.guide(), answer.encode()
            total += len(rest)
            while rest:
                text = index.forced_bytes(guide.config, 512)
                forced += len(text)
                step, rest = rest[: len(text) or 1], rest[len(text) or 1 :]
                if not all(guide.advance(byte) for byte in step):
                    break  # cut by the limit of tokens
        found[name] = round(forced / total, 3)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--about", type=json.loads, default={}, help="what trained_model printed")
    parser.add_argument("--styles", default="compact,spaced")
    parser.add_argument("--modes", default=",".join(MODES), help="what is in FILE of other modes is kept")
    parser.add_argument("--child", choices=("compact", "spaced"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.model, options.child == "compact")
        return
    from rich.console import Console
    from rich.table import Table

    from dotllm.demo.server import CPU_ENVIRONMENT

    known = json.loads(options.out.read_text()) if options.out.exists() else {}
    points: list[Point] = known.get("points", [])
    shares: dict[str, dict[str, float]] = known.get("forced_bytes", {})
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for style in options.styles.split(","):
        for mode in options.modes.split(","):
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.experiments.lossless", options.model, "--child", style],
                capture_output=True,
                text=True,
                env={
                    **os.environ,
                    **CPU_ENVIRONMENT,
                    **ONE_THREAD,
                    "DOTLLM_COALESCENCE": mode,
                    "DOTLLM_DISK_BYTES": "0",
                },
            )
            line = next((line for line in done.stdout.splitlines() if line.startswith("RESULT ")), None)
            if line is None:
                sys.exit(done.stdout[-2000:] + done.stderr[-3000:])
            result = json.loads(line.removeprefix("RESULT "))
            points = [p for p in points if (p["style"], p["mode"]) != (style, mode)]
            points += [{"style": style, "mode": mode, **p} for p in result["points"]]
            if mode == "off":
                shares[style] = forced_share(result["texts"], style == "compact")
            about = options.about or known.get("about", {})
            options.out.write_text(json.dumps({"about": about, "forced_bytes": shares, "points": points}, indent=1))
    columns = ("style", "workload", "concurrency", "mode", "tokens_per_request", "steps_per_request")
    table = Table(*columns, "accepted", "output_tokens_per_s", "requests_per_s", "valid")
    for p in sorted(points, key=lambda p: (p["style"], p["workload"], p["concurrency"])):
        share = f"{p['accepted'] / p['proposed']:.1%}" if p.get("proposed") else "-"
        valid = f"{p['valid']}/{p['ended']}" if "valid" in p else "-"
        figures = [str(p[c]) for c in ("output_tokens_per_s", "requests_per_s")]
        table.add_row(*(str(p[c]) for c in columns), share, *figures, valid)
    Console(width=150).print(table, shares)


if __name__ == "__main__":
    main()
