"""One schema in one engine: compile it, feed every instance token by token, and record the engine's verdicts.

An instance is fed as ``json.dumps(data, ensure_ascii=False)``, cut into the tokenizer's canonical tokens. It is
*accepted* if every mask on the way allows the next token and the last mask allows EOS, which is MaskBench's rule.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from typing import Any

from benchmarks import adapters, clock, specs, tokens
from benchmarks.adapters.base import Compiled, Engine, Matcher, Options, Refused, Spec
from benchmarks.histogram import Histogram
from benchmarks.isolation import peak_rss_bytes
from benchmarks.walk import allowed

Record = dict[str, Any]


class Judge:
    """An engine that is set up once and judges schema after schema."""

    def __init__(self, engine: Engine, vocabulary: tokens.Tokens) -> None:
        self.engine = engine
        self.tokens = vocabulary

    def __call__(self, row: Record) -> Record:
        """A line of the data set → the record of the results file."""
        record: Record = {"name": row["name"], "verdict": "pass", "wrong": []}
        fill, advance = Histogram(), Histogram()
        start = clock.cpu_ns()
        try:
            compiled = self.engine.compile(Spec(row["name"], "json_schema", row["schema"]))
        except Refused as error:
            took = (clock.cpu_ns() - start) / 1e6
            if error.unsatisfiable and not any(test["valid"] for test in row["tests"]):
                # Refused by name because nothing is valid: every verdict is right.
                return record | {"reason": str(error), "compile_ms": took}
            return record | {"verdict": "refused", "reason": str(error), "keyword": error.keyword, "compile_ms": took}
        compiled_at = clock.cpu_ns()
        matcher = compiled.matcher()
        matcher.fill()
        end = clock.cpu_ns()
        record["compile_ms"] = (compiled_at - start) / 1e6
        record["ttfm_ms"] = (end - start) / 1e6
        fill.extend([end - compiled_at])
        self._tests(row, compiled, matcher, record, fill, advance)
        record["fill"], record["advance"] = fill.to_json(), advance.to_json()
        record["growth"] = compiled.growth()
        record["peak_rss"] = peak_rss_bytes()
        return record

    def _tests(
        self, row: Record, compiled: Compiled, first: Matcher, record: Record, fill: Histogram, advance: Histogram
    ) -> None:
        matcher: Matcher | None = first
        counts = {"valid": 0, "invalid": 0, "tokens": 0}
        for number, test in enumerate(row["tests"]):
            text = specs.dumps(test["data"], compact=False)
            try:
                ids = self.tokens.encode(text)
            except UnicodeEncodeError:  # a lone surrogate is not text; its escaped spelling is
                text = json.dumps(test["data"])
                ids = self.tokens.encode(text)
            stopped = self._feed(matcher or compiled.matcher(), ids, fill, advance, filled=matcher is not None)
            matcher = None
            counts["valid" if test["valid"] else "invalid"] += 1
            counts["tokens"] += len(ids) if stopped is None else stopped
            if (stopped is None) == test["valid"]:
                continue
            problem = "valid_rejected" if test["valid"] else "invalid_accepted"
            record["verdict"] = "wrong"
            wrong: Record = {"test": number, "problem": problem, "description": test.get("description", "")}
            if stopped is not None:
                wrong["after"] = self._text(ids[:stopped])[-80:]
                wrong["forbidden"] = self._text(ids[stopped : stopped + 1]) or "EOS"
            record["wrong"].append(wrong)
        record["counts"] = counts

    def _text(self, ids: list[int]) -> str:
        return b"".join(self.tokens.tokens[i] or b"" for i in ids).decode(errors="replace")

    def _feed(
        self, matcher: Matcher, ids: list[int], fill: Histogram, advance: Histogram, *, filled: bool
    ) -> int | None:
        """Position of the first token (or EOS) that is not allowed; None if the text is accepted."""
        compute, step, bits = matcher.fill, matcher.advance, matcher.bits
        now, overhead = clock.cpu_ns, clock.OVERHEAD_NS
        fills, advances = [], []
        stopped: int | None = None
        for position, token in enumerate([*ids, self.tokens.eos]):
            if position or not filled:
                start = now()
                compute()
                fills.append(max(0, now() - start - overhead))
            if not allowed(bits, token):
                stopped = position
                break
            if position < len(ids):
                start = now()
                taken = step(token)
                advances.append(max(0, now() - start - overhead))
                if not taken:
                    stopped = position
                    break
        fill.extend(fills)
        advance.extend(advances)
        return stopped


def start(name: str, mask_options: Options) -> Callable[[Record], Record]:
    """Set an engine up in this process (called in the child of `isolation.Isolated`)."""
    vocabulary = tokens.load()
    engine = adapters.load(name, vocabulary, mask_options)
    judge = Judge(engine, vocabulary)
    warm_up = {"name": "", "schema": {"type": "object", "properties": {"a": {"type": "string"}}}, "tests": []}
    judge(warm_up | {"tests": [{"valid": True, "data": {"a": "b"}}]})
    gc.collect()
    gc.freeze()
    return judge
