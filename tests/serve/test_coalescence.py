"""Canonical coalescence on vLLM's real model runners: forced text is entered, and nothing else changes.

The runners are V1 as on CPUs, V1 with asynchronous scheduling, and V2, each on this machine's CPU (`played_platform`).
`coalescence_script.py` has the requests; some are preempted, and some are aborted in the middle.
"""

from __future__ import annotations

import os
import re
from typing import Any

import pytest

from dotllm.demo import model
from tests.serve import scripts

pytestmark = pytest.mark.serve

RUNNERS = ("V1", "V1 async", "V2 async")
EVERY = os.environ.get("COALESCENCE") == "all"
VALID = (
    r'\{"measurement_station":"(northern|southern) harbour","temperature_in_celsius":[0-9]{1,2},'
    r'"is_calibrated_instrument":(true|false)\}'
)
ALPHA = "alphabetical order"
WITHOUT_END = ("few tokens", "one token", "tokens to the end of a piece")

NOT_COALESCED = (
    "single letters allowed", "bad words", "bias", "log-probabilities", "of the prompt", "presence", "frequency",
    "repetition", "many",
)  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The script's results, by runner. Triton's interpreter needs a while for each token of the vocabulary."""
    small = model.make(tmp_path_factory.mktemp("coalescence") / "model", vocabulary_size=1000)
    environment = {"DOTLLM_COALESCENCE": "canonical"}
    return {
        runner: scripts.run(
            "coalescence_script.py", small, runner, environment=environment, imports_vllm_itself=runner[:2] == "V2"
        )[0]
        for runner in RUNNERS
    }


@pytest.fixture(params=RUNNERS)
def result(request: pytest.FixtureRequest, results: dict[str, Any]) -> Any:
    return results[request.param]


def test_entered_text_is_what_would_have_been_generated(result: Any, results: dict[str, Any]) -> None:
    """Compares tokens at temperature 0, also of preempted requests and of those next to an aborted one."""
    masks = results["V1"]["masks"]
    for run in ("greedy", "batch"):
        assert result["entered"][run]["ids"] == masks[run]["ids"]
    assert result["entered"]["batch"]["preemptions"] and masks["batch"]["preemptions"]
    if result is results["V2 async"] and not EVERY:
        return
    assert result["entered"]["free"]["ids"] == masks["free"]["ids"]
    for name in ("a", "b", "c"):
        assert result["entered"]["abort"][name] == masks["abort"][name]
    assert len(result["entered"]["abort"]["aborted"]) < 46, "it had not come to its end"


def test_fewer_steps(results: dict[str, Any]) -> None:
    """51 tokens, seven of them free. With asynchronous scheduling, the first forced token is in flight anyway."""
    for runner, result in results.items():
        tokens = len(result["entered"]["greedy"]["ids"][0])
        at_once = not runner.endswith("async")
        if "masks" in result:
            assert result["masks"]["greedy"]["steps"] == tokens + (not at_once)
        assert result["entered"]["greedy"]["steps"] <= (10 if at_once else 15) < tokens / 3
        if runner != "V2 async" or EVERY:
            assert result["entered"]["free"]["steps"] == results["V1"]["off"]["free"]["steps"], "they pay nothing"


def test_what_is_entered_is_counted(results: dict[str, Any]) -> None:
    for runner, result in results.items():
        tokens, steps = result["entered"]["counters"]
        assert tokens > 200 and 0 < steps <= tokens
        assert (steps == tokens) == (not runner.endswith("async"))
        off = results["V1"]["off"]
        assert result.get("masks", off)["counters"] == off["counters"] == [0, 0]


def test_beams_are_left_alone(results: dict[str, Any]) -> None:
    beams = [results["V1"][mode]["beams"] for mode in ("entered", "masks", "off")]
    assert beams[0] == beams[1] == beams[2] and beams[0]


def test_answers_are_valid_exactly_where_they_are_without(result: Any, results: dict[str, Any]) -> None:
    """With any other parameter: stops, lengths, penalties, forbidden words, ….

    If a combination is answered without coalescence, coalescence never refuses it, cuts its answer or makes it invalid.
    """
    assert len(results["V1"]["law"]) >= 14 and len(results["V1 async"]["law"]) >= 6 and result["law"]
    for name, modes in result["law"].items():
        entered, off = modes["entered"], results["V1"]["law"][name]["off"]
        assert "error" not in entered and "error" not in off, (name, modes)
        assert set(entered["reasons"]) == set(off["reasons"]), name
        for text in (*entered["texts"], *off["texts"]):
            assert is_right(name, text), (name, text)


def is_right(name: str, text: str) -> bool:
    """Whether ``text`` is an answer to this request of the script."""
    if name in ("stop token inside", "stop token at the start", "single letters allowed", "bad words", "bias"):
        return text == ALPHA
    if name in WITHOUT_END:
        return '{"measurement_station":"'.startswith(text) and bool(text)
    if name == "stop string inside":
        return bool(re.fullmatch(r'\{"measurement_station":"(northern|southern) harbour","temperature_in_', text))
    if name == "stop string in what is free":
        return bool(re.fullmatch(VALID, text + "}"))
    if name == "ignores the end":
        return bool(re.match(VALID, text))
    return bool(re.fullmatch(VALID, text))


def test_requests_that_are_not_coalesced_are_exactly_as_without(results: dict[str, Any]) -> None:
    law = results["V1"]["law"]
    for name in (*NOT_COALESCED, "seed", "seeds of several"):
        modes = law[name]
        hot = name in ("bad words", "frequency", "many")  # (sampled without a seed)
        assert hot or modes["entered"]["ids"] == modes["off"]["ids"], name
        assert hot or modes["entered"]["steps"] == modes["off"]["steps"], name
    for name in sorted(law.keys() - {*NOT_COALESCED, "seed", "seeds of several", "one token"}):
        assert law[name]["entered"]["steps"] < law[name]["off"]["steps"], name


def test_a_seed_decides_all_draws(results: dict[str, Any]) -> None:
    """V2 draws by position, so requests with a seed are coalesced there, and their answers stay the same."""
    drawn = results["V2 async"]["law"]["seed"]
    assert drawn["entered"]["ids"] == drawn["masks"]["ids"]
    assert drawn["entered"]["steps"] < drawn["masks"]["steps"]
