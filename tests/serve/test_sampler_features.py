"""Each feature of vLLM's sampler with a constraint: every answer is valid, whatever else is asked for.

On V1; with SAMPLER=all also with asynchronous scheduling, speculation and V2 (`sampler_script.py`). The features are
modes of log-probabilities, the detection of repetitions, a budget for thinking, users' logits processors, and on V2
sampling masks, watermarks and replayed traces.
"""

from __future__ import annotations

import math
import os
import re
from typing import Any

import pytest

from dotllm.demo import model
from tests.serve import api_model, scripts
from tests.serve.sampler_script import ENGINES, REGEX

pytestmark = pytest.mark.serve

RUN = list(ENGINES) if os.environ.get("SAMPLER") == "all" else ["V1"]
"""Whether to run all engines, which takes minutes. Otherwise only V1, which vLLM uses on CPUs."""
JSON = r'\{"name":"(ab|cd)","count":[0-9]{1,2}\}'
PLAIN = [name for name in RUN if "ngram" not in name]
WITH_PROCESSORS = [name for name in RUN if name not in ("V1 ngram", "V2 replay async")]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The script's results, by engine."""
    folder = tmp_path_factory.mktemp("sampler")
    made = api_model.make(folder / "api", model.make(folder / "small", vocabulary_size=1000))
    return {
        name: scripts.run("sampler_script.py", made, name, imports_vllm_itself=name.startswith("V2"))[0] for name in RUN
    }


@pytest.fixture(params=PLAIN)
def result(request: pytest.FixtureRequest, results: dict[str, Any]) -> Any:
    return results[request.param]


@pytest.fixture(params=WITH_PROCESSORS)
def processed(request: pytest.FixtureRequest, results: dict[str, Any]) -> Any:
    return results[request.param]


def all_match(asked: Any, valid: str, count: int = 4) -> None:
    assert len(asked["texts"]) == count
    for text, (reason, _) in zip(asked["texts"], asked["reasons"], strict=True):
        assert reason == "stop" and re.fullmatch(valid, text), (text, reason)


@pytest.mark.parametrize("name", ["plain", "at least", "penalties", "few candidates", "likely ones"])
def test_a_constraint_holds_beside(result: Any, name: str) -> None:
    all_match(result[name], REGEX)


def test_json_beside_what_the_engine_adds(result: Any) -> None:
    all_match(result["json"], JSON)


def test_tokens_that_a_request_allows_or_forbids_hold_as_well(result: Any) -> None:
    all_match(result["allowed"], "(bbb7){3,6}")
    all_match(result["bad words"], "[a-c]{8}")  # by tokens of several letters, and "b"
    forbidden = {result["tokens"][letter] for letter in "ac"}
    assert not any(forbidden & {*ids} for ids in result["bad words"]["ids"])


def test_a_bias_chooses_among_what_is_allowed(result: Any) -> None:
    all_match(result["bias"], "(bbb[0-9]){3,6}")


def test_seeds_and_several_answers(result: Any) -> None:
    first, second = result["seeded"]
    all_match(first, REGEX, 8)
    assert first["ids"] == second["ids"]


@pytest.mark.parametrize("engine", PLAIN)
def test_log_probabilities_in_each_mode(results: dict[str, Any], engine: str) -> None:
    found, mode = results[engine]["logprobs"], ENGINES[engine]["logprobs_mode"]
    all_match(found, REGEX)
    for answer in found["logprobs"]:
        assert all(math.isfinite(value) and 3 <= count <= 4 for value, count in answer)
        assert mode.endswith("logits") or all(value <= 0 for value, _ in answer)


def test_a_repetition_ends_an_answer(result: Any) -> None:
    for text, (reason, _) in zip(result["repetition"]["texts"], result["repetition"]["reasons"], strict=True):
        assert reason == "repetition" and ("ab" * 30).startswith(text) and len(text) < 30


@pytest.mark.parametrize("budget", ["budget", "no budget"])
def test_a_budget_for_thinking_ends_it_and_the_constraint_begins(result: Any, budget: str) -> None:
    """Thoughts in the prompt count, and exhaust both budgets."""
    all_match(result[budget], f"</think>{REGEX}")
    assert {ids[0] for ids in result[budget]["ids"]} == {result["tokens"]["</think>"]}
    all_match(result["budget in the answer"], REGEX)


@pytest.mark.skipif("V2 replay async" not in RUN, reason="only with SAMPLER=all")
def test_sampling_masks_are_within_the_constraint(results: dict[str, Any]) -> None:
    found = results["V2 replay async"]["masked"]
    all_match(found, REGEX)
    for ids, mask in zip(found["ids"], found["masks"], strict=True):
        assert len(mask) == len(ids) and all(token in step for token, step in zip(ids, mask, strict=True))
        assert all(len(step) <= 8 for step in mask)


@pytest.mark.skipif("V2 replay async" not in RUN, reason="only with SAMPLER=all")
def test_a_trace_cannot_be_replayed_under_a_constraint(results: dict[str, Any]) -> None:
    assert re.search("structured|trace", results["V2 replay async"]["traced"]["error"])


def test_a_processor_for_each_sequence(processed: Any) -> None:
    """Also if sequences are preempted, or if drafts come before the answer's tokens."""
    all_match(processed["others"], REGEX)
    all_match(processed["stateful"], "[a-z]{5,9}", 12)
    all_match(processed["stateful, greedy"], "[a-z]{5,9}")
    all_match(processed["stateful, long"], "[A-Za-z0-9 ]{90,150}", 12)
    for name in ("stateful", "stateful, greedy", "stateful, long"):
        for ids in processed[name]["ids"]:
            assert len(set(ids)) == len(ids), "a token has come twice"
    assert processed["most"] >= 8 and processed["alive"] == 0, "its states outlive their sequences"


def test_a_processor_refuses_a_request_and_is_named_where_it_leaves_nothing(processed: Any) -> None:
    assert "no_token_twice is true or false, not 'perhaps'" in processed["refused"]["error"]
    for reason, stop_reason in processed["nothing left"]["reasons"]:
        assert reason == "error" and "no_token_twice" in str(stop_reason)


@pytest.mark.parametrize("engine", [name for name in WITH_PROCESSORS if "ngram" not in name])
def test_there_were_too_few_blocks(results: dict[str, Any], engine: str) -> None:
    assert results[engine]["preemptions"] > 0


@pytest.mark.skipif("V1 ngram" not in RUN, reason="only with SAMPLER=all")
def test_v1_has_no_processors_under_speculation_and_says_so(results: dict[str, Any]) -> None:
    assert "not supported when speculative decoding" in results["V1 ngram"]["error"]
