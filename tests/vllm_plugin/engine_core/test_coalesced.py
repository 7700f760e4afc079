"""Which engines and which requests are coalesced."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dotllm.vllm_plugin import settings
from dotllm.vllm_plugin.enforce import errors
from dotllm.vllm_plugin.extra import jump_forward
from dotllm.vllm_plugin.speed import pending_grammars, request_state

MODEL = {
    "is_diffusion": False, "is_hybrid": False, "is_attention_free": False, "uses_mrope": False,
    "logits_processors": None, "return_sampling_mask": False,
}  # fmt: skip
PARALLEL = {"node_rank_within_dp": 0, "pipeline_parallel_size": 1, "prefill_context_parallel_size": 1}


@pytest.fixture(autouse=True)
def canonical(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOTLLM_COALESCENCE", "canonical")


def engine(model: dict[str, Any] | None = None, parallel: dict[str, Any] | None = None, **others: Any) -> Any:
    """vLLM's configuration of an engine that enters text, except for the given values."""
    return SimpleNamespace(
        model_config=SimpleNamespace(**{**MODEL, **(model or {})}),
        parallel_config=SimpleNamespace(**{**PARALLEL, **(parallel or {})}),
        **{
            "speculative_config": None, "kv_transfer_config": None, "use_v2_model_runner": True,
            "aux_output_config": SimpleNamespace(enabled=False), **others,
        },
    )  # fmt: skip


def test_engines() -> None:
    assert jump_forward.why_not(engine()) == ""
    assert jump_forward.why_not(engine({"uses_mrope": True}, use_v2_model_runner=False)) == ""


@pytest.mark.parametrize(
    "left_out",
    [
        engine({"is_diffusion": True}), engine({"is_hybrid": True}), engine({"is_attention_free": True}),
        engine({"uses_mrope": True}), engine({"logits_processors": ["mine.Processor"]}),
        engine({"return_sampling_mask": True}), engine(parallel={"pipeline_parallel_size": 2}),
        engine(parallel={"prefill_context_parallel_size": 2}), engine(speculative_config=object()),
        engine(kv_transfer_config=object()), engine(aux_output_config=SimpleNamespace(enabled=True)),
    ],
)  # fmt: skip
def test_engines_that_are_left_out(left_out: Any) -> None:
    assert jump_forward.why_not(left_out)


def test_logits_processors_that_plug_in_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "_installed_processors", lambda: ("a plugin's",))
    assert "logits processors" in jump_forward.why_not(engine())


def test_a_mode_that_does_not_exist_is_an_error_that_says_what_to_use(monkeypatch: pytest.MonkeyPatch) -> None:
    from dotllm.cli import options

    monkeypatch.setenv("DOTLLM_COALESCENCE", "lossless")
    with pytest.raises(ValueError, match="expected one of off, canonical"):
        settings.value("DOTLLM_COALESCENCE")
    with pytest.raises(ValueError, match="expected one of off, canonical"):
        jump_forward.why_not(engine())  # an engine asks this at its start, and so does not start
    assert "expected one of off, canonical" in (options.refused({}) or "")


def request(**parameters: Any) -> Any:
    """vLLM's request with these sampling parameters."""
    sampling = pytest.importorskip("vllm").SamplingParams(**parameters)
    return SimpleNamespace(sampling_params=sampling, resumable=False)


@pytest.mark.serve
@pytest.mark.parametrize(
    "parameters",
    [
        {}, {"temperature": 0.0}, {"top_k": 3, "top_p": 0.5, "min_p": 0.1}, {"stop": ["x"]}, {"stop_token_ids": [3]},
        {"min_tokens": 4}, {"ignore_eos": True}, {"n": 3}, {"presence_penalty": 0, "repetition_penalty": 1},
        {"bad_words": []}, {"logit_bias": {}}, {"watermarking": False}, {"extra_args": {"dotllm_finish": True}},
        {"flat_logprobs": True}, {"stream_interval": 3}, {"detokenize": False},
    ],
)  # fmt: skip
def test_requests(parameters: dict[str, Any]) -> None:
    assert jump_forward.may_be(request(**parameters), keeps_generators=True)


@pytest.mark.serve
@pytest.mark.parametrize(
    "parameters",
    [
        {"logprobs": 1}, {"prompt_logprobs": 1}, {"presence_penalty": 0.5}, {"frequency_penalty": 0.5},
        {"repetition_penalty": 1.1}, {"bad_words": ["x"]}, {"allowed_token_ids": [1, 2]}, {"logit_bias": {5: -100.0}},
        {"logprobs": 0}, {"prompt_logprobs": 0}, {"logprob_token_ids": [5, 6]}, {"logprob_token_ids": []},
        {"prompt_logprob_token_ids": [[0]], "prompt_logprobs": None}, {"watermarking": True},
        {"thinking_token_budget": 0}, {"trace_decode_token_ids": [1]}, {"extra_args": {"dotllm_mass": True}},
    ],
)  # fmt: skip
def test_requests_whose_tokens_must_all_be_sampled(parameters: dict[str, Any]) -> None:
    assert not jump_forward.may_be(request(**parameters), keeps_generators=False)


@pytest.mark.serve
def test_a_parameter_that_nobody_here_knows_declines() -> None:
    """A later vLLM may add a parameter, with any meaning."""
    import msgspec

    known = pytest.importorskip("vllm").SamplingParams
    later = msgspec.defstruct("SamplingParams", [("new", int, 0)], bases=(known,), kw_only=True)
    for new, may in ((0, True), (1, False)):
        one = SimpleNamespace(sampling_params=later(new=new), resumable=False)
        assert jump_forward.may_be(one, keeps_generators=False) is may


@pytest.mark.serve
def test_all_parameters_of_this_release_are_sorted() -> None:
    """A name that vLLM lacks would mean nothing. The oldest and the newest supported release have the same names."""
    plain = request_state._plain(pytest.importorskip("vllm").SamplingParams)
    lists = {*jump_forward._HARMLESS, *jump_forward._HARMLESS_EMPTY, *pending_grammars._MAY_BE_DROPPED}
    assert lists <= {*plain}
    assert not any(plain[name] for name in jump_forward._HARMLESS_EMPTY)


@pytest.mark.serve
def test_a_seed_has_a_generator_of_its_own_in_the_first_runner() -> None:
    assert not jump_forward.may_be(request(seed=1), keeps_generators=True)
    assert jump_forward.may_be(request(seed=1), keeps_generators=False)


@pytest.mark.serve
def test_a_stream_of_prompts_is_left_alone() -> None:
    one = request()
    one.resumable = True
    assert not jump_forward.may_be(one, keeps_generators=False)
