"""The hooks on the installed vLLM, in this process."""

from __future__ import annotations

import copy
import json
import os
import pickle
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from dotllm import allowed_plugins
from dotllm.compilation import validation_cache
from dotllm.vllm_plugin import registry, tiers
from dotllm.vllm_plugin import specification as requests
from dotllm.vllm_plugin.api import config as engine_config
from dotllm.vllm_plugin.enforce import compile_hook, engine_info, validation
from dotllm.vllm_plugin.hook import Hook, HookError


@pytest.fixture(scope="module", autouse=True)
def hooks() -> None:
    registry.apply_required()


@pytest.fixture(autouse=True)
def no_engine() -> Iterator[None]:
    yield
    engine_info.remember(None)


def engine(backend: str) -> Any:
    config = SimpleNamespace(backend=backend, disable_any_whitespace=False, disable_additional_properties=False)
    return SimpleNamespace(structured_outputs_config=config)


def test_every_hook_holds_and_applies_twice() -> None:
    assert {entry.name: fault for entry, fault in registry.apply_all().items() if fault} == {}
    for entry in registry.ENTRIES:
        entry.hook().apply()


def test_a_required_hook_that_fails_stops_the_server(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise AttributeError("moved")

    def broken(name: str, *, required: bool) -> registry.Entry:
        hook = Hook("", (), fail, required, "all is lost")
        monkeypatch.setattr(compile_hook, "HOOK", hook)
        return registry.Entry(name, "enforce", "worker", "enforce.compile_hook")

    monkeypatch.setattr(registry, "ENTRIES", (broken("harmless", required=False),))
    for _ in range(2):
        registry.apply_required()
    assert [record.getMessage() for record in caplog.records if "harmless" in record.getMessage()] == [
        "dotllm hook 'harmless' does not hold on this vLLM (AttributeError: moved): all is lost"
    ]
    monkeypatch.setattr(registry, "ENTRIES", (broken("core", required=True),))
    with pytest.raises(HookError, match=r"(?s)core.*moved.*all is lost$"):
        registry.apply_required()


@pytest.mark.parametrize("module", ["is_not_there", "hook", "tiers"])
def test_an_extra_that_fails_leaves_the_rest_on(
    module: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its module cannot be imported, or its hook is missing or has the wrong type."""
    applied: list[str] = []
    good = Hook("", (), lambda: applied.append("good"), required=True)
    monkeypatch.setattr(compile_hook, "HOOK", good)
    monkeypatch.setattr(tiers, "HOOK", "not a hook", raising=False)
    entries = (
        registry.Entry(f"broken extra {module}", "extra", "engine core", module),
        registry.Entry(f"good {module}", "enforce", "engine core", "enforce.compile_hook"),
    )
    monkeypatch.setattr(registry, "ENTRIES", entries)
    registry.apply_required(["engine core"])
    assert applied == ["good"] and f"broken extra {module}" in caplog.text
    monkeypatch.setattr(registry, "ENTRIES", (entries[0]._replace(tier="enforce"),))
    with pytest.raises(HookError, match="cannot be imported"):
        registry.apply_required(["engine core"])


def test_the_configuration_knows_us(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.config import VllmConfig
    from vllm.config.structured_outputs import StructuredOutputsConfig

    ours = StructuredOutputsConfig(disable_any_whitespace=True)
    assert ours.backend == "auto" and VllmConfig(structured_outputs_config=ours).structured_outputs_config is ours
    monkeypatch.setenv("DOTLLM_DEFAULT_BACKEND", "vllm")
    with pytest.raises(ValueError, match="disable_any_whitespace"):
        StructuredOutputsConfig(disable_any_whitespace=True)
    monkeypatch.delenv("DOTLLM_DEFAULT_BACKEND")
    with pytest.raises(ValueError, match="'auto'"):
        StructuredOutputsConfig(backend="dotllm")
    with pytest.raises(ValueError, match="disable_any_whitespace"):
        StructuredOutputsConfig(backend="outlines", disable_any_whitespace=True)
    engine_config.allow_options()
    assert StructuredOutputsConfig(disable_any_whitespace=True).backend == "auto"


def sampling(**structured: Any) -> Any:
    from vllm.sampling_params import SamplingParams, StructuredOutputsParams

    return SamplingParams(structured_outputs=StructuredOutputsParams(**structured))


def validate(params: Any, backend: str = "auto", tokenizer: Any = "a tokenizer", **model: Any) -> None:
    config = SimpleNamespace(backend=backend, disable_any_whitespace=False, disable_additional_properties=False)
    params._validate_structured_outputs(SimpleNamespace(**{"is_diffusion": False, **model}), config, tokenizer)


def test_validation_marks_what_it_accepts() -> None:
    params = sampling(regex="a+")
    validate(params)
    assert params.structured_outputs._backend == "dotllm"
    validate(params)  # the same parameters serve many prompts


def test_a_schema_goes_to_the_engine_whatever_its_integers() -> None:
    """msgspec, which vLLM uses to send requests, refuses integers beyond 64 bits: that was a 500 without a message."""
    import msgspec

    schema = {"enum": [10**40, "b"], "description": "\ud800"}
    params = sampling(json=schema)
    validate(params)
    assert json.loads(params.structured_outputs.json) == schema
    msgspec.msgpack.encode(params.structured_outputs.json)


def test_validation_refuses_with_the_reason() -> None:
    from vllm.exceptions import VLLMValidationError

    with pytest.raises(VLLMValidationError, match="empty list"):
        validate(sampling(choice=[]))
    with pytest.raises(VLLMValidationError, match="skip_tokenizer_init"):
        validate(sampling(regex="a"), tokenizer=None)
    with pytest.raises(VLLMValidationError, match="uniqueItems"):
        validate(
            sampling(json={"type": "array", "contains": {"type": "string"}, "minContains": 2, "uniqueItems": True})
        )
    chosen = sampling(regex="a")
    chosen.structured_outputs._backend = "xgrammar"
    with pytest.raises(VLLMValidationError, match="_backend"):
        validate(chosen)


def test_other_backends_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    params = sampling(regex="a+")
    validate(params, "xgrammar")
    assert params.structured_outputs._backend == "xgrammar"
    monkeypatch.setenv("DOTLLM_DEFAULT_BACKEND", "vllm")
    params = sampling(regex="a+")
    validate(params, "auto")
    assert params.structured_outputs._backend == "xgrammar"


def test_diffusion_models_are_refused() -> None:
    from vllm.exceptions import VLLMValidationError

    with pytest.raises(VLLMValidationError, match="diffusion"):
        validate(sampling(regex="a"), is_diffusion=True)


def test_xgrammar_is_not_asked_about_structural_tags() -> None:
    from vllm.v1.structured_output import backend_xgrammar

    judged = backend_xgrammar.validate_xgrammar_grammar
    judged(sampling(structural_tag='{"anything": "that is a JSON object"}'))
    for malformed in ("[]", "{", "[" * 100_000):
        with pytest.raises(ValueError, match=r"JSON|nested"):
            judged(sampling(structural_tag=malformed))
    judged(sampling(json={"type": "integer", "multipleOf": 3}))  # xgrammar refuses it, dotllm enforces it
    with pytest.raises(ValueError, match="no effect"):
        judged(sampling(regex="a", whitespace_pattern=" "))
    engine_info.remember(engine("xgrammar"))
    with pytest.raises(Exception, match=r"(?i)structural"):
        judged(sampling(structural_tag='{"anything": "that is a JSON object"}'))


@pytest.mark.parametrize("all_ends", [False, True])
def test_offline_beams_end_where_vllm_ends_them(all_ends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Since 0.33 at all tokens that the model's generation config names; before, only at the tokenizer's EOS."""
    from vllm.entrypoints.generate.beam_search import offline
    from vllm.exceptions import VLLMValidationError
    from vllm.sampling_params import StructuredOutputsParams

    from dotllm.vllm_plugin.enforce import backend

    if all_ends:
        monkeypatch.setattr(offline, "get_beam_search_eos_token_ids", lambda *_: {0, 2}, raising=False)
    else:
        monkeypatch.delattr(offline, "get_beam_search_eos_token_ids", raising=False)
    made: list[dict[str, Any]] = []

    class Backend:
        def __init__(self, config: Any, **arguments: Any) -> None:
            made.append(arguments)

        def allocate_token_bitmask(self, rows: int) -> None: ...

    monkeypatch.setattr(backend, "EngineBackend", Backend)
    llm = SimpleNamespace(
        llm_engine=SimpleNamespace(vllm_config=engine("auto")),
        model_config=SimpleNamespace(get_vocab_size=lambda: 3, is_diffusion=False),
    )
    begin: Any = offline.BeamSearchOfflineMixin._init_beam_search_structured_output
    begin(llm, sampling(regex="a").structured_outputs, object())
    for refused in ({"regex": r"(a)\1"}, {"json": {"type": "strin"}}, {"json": "{"}):
        with pytest.raises(VLLMValidationError):
            begin(llm, StructuredOutputsParams(**refused), object())
    assert [arguments["ends_of_model"] for arguments in made] == [all_ends]


@pytest.mark.parametrize("chosen", ["dotllm", "xgrammar", "guidance"])
def test_the_manager_takes_all_requests_of_its_engine_and_never_raises(chosen: str) -> None:
    """Whatever backend a front end without our plugin has chosen (such as vLLM's Rust front end). If anything fails in
    the engine core while a request arrives, the error is in the request's future."""
    from vllm.v1.structured_output import StructuredOutputManager

    manager: Any = object.__new__(StructuredOutputManager)
    manager.backend = None
    manager.vllm_config = SimpleNamespace(model_config=None, **vars(engine("auto")))
    params = sampling(regex="a+")
    params.structured_outputs._backend = chosen
    request = SimpleNamespace(
        sampling_params=params,
        structured_output_request=SimpleNamespace(params=params.structured_outputs, grammar=None),
    )
    manager.grammar_init(request)
    future = request.structured_output_request.grammar
    assert isinstance(future, Future)
    assert isinstance(future.exception(), Exception)
    assert params.structured_outputs._backend == "dotllm", "who asks for ours later knows it"
    manager.grammar_init(SimpleNamespace(structured_output_request=None))


def test_the_manager_leaves_an_engine_on_another_backend_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.structured_output import StructuredOutputManager

    asked: list[Any] = []
    hook = partial(compile_hook._grammar_init, original=lambda manager, request: asked.append(request))
    request = SimpleNamespace(structured_output_request=SimpleNamespace(params=sampling(regex="a").structured_outputs))
    manager: Any = object.__new__(StructuredOutputManager)
    manager.vllm_config = engine("guidance")
    hook(manager, request)
    manager.vllm_config = engine("auto")
    monkeypatch.setenv("DOTLLM_DEFAULT_BACKEND", "vllm")
    hook(manager, request)
    assert asked == [request, request]


def test_what_is_left_to_the_engine_is_not_compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server's endpoints have claimed it, because vLLM validates in the event loop."""
    from vllm.exceptions import VLLMValidationError

    def claimed(**constraint: Any) -> Any:
        params = sampling(**constraint)
        validation.claim(params.structured_outputs)
        return params

    with monkeypatch.context() as patched:
        patched.setattr(validation_cache, "check", lambda *_: pytest.fail("compiled"))
        validate(claimed(regex="(7"))
        validate(schema := claimed(json={"const": 2**70}))
        assert json.loads(schema.structured_outputs.json) == {"const": 2**70}, "msgpack has no such integers"
        for constraint, fault in (
            ({"regex": "\0"}, "NUL"),
            ({"regex": "\ud800"}, "surrogate|Unicode"),
            ({"choice": ["a", "\ud800"]}, "surrogate|Unicode"),
            ({"json": {"const": {1, 2}}}, "not JSON"),
            ({"grammar": " "}, "empty"),
        ):
            with pytest.raises(VLLMValidationError, match=fault):  # it could not be sent, or is cheap to see
                validate(claimed(**constraint))
        with pytest.raises(VLLMValidationError, match="no field 'dotllm_ordr'"):
            refused = claimed(regex="a")
            refused.extra_args = {"dotllm_ordr": "any"}
            validate(refused)
    with pytest.raises(VLLMValidationError, match="regular expression"):
        validate(sampling(regex="(7"))


@pytest.mark.parametrize("left_to_engine", [False, True])
def test_what_is_accepted_reaches_the_engine(left_to_engine: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM checks a constraint only when it is made, and again in the thread that receives the engine's requests. An
    exception ends this thread, and from then on all requests of the engine wait for ever."""
    from vllm.exceptions import VLLMValidationError
    from vllm.sampling_params import SamplingParams
    from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

    monkeypatch.setattr(validation_cache, "check", lambda *_: None)
    values = (None, "a", "", b"a", 1, 2**70, 0.5, True, False, ["a"], ("a", "b"), ["a", 1], [], {"a"}, {}, {1: 2})
    sent = 0
    for field, value in product((*requests.KINDS, *requests.OPTIONS), (*values, {"const": 2**70}, object())):
        for kind, constraint in (("regex", "a"), ("json", {}), (field, value)):
            params = sampling(regex="b")
            params.structured_outputs.regex = None
            setattr(params.structured_outputs, kind, constraint)
            setattr(params.structured_outputs, field, value)
            if left_to_engine:
                validation.claim(params.structured_outputs)
            try:
                validate(params)
            except VLLMValidationError:
                continue
            MsgpackDecoder(SamplingParams).decode(MsgpackEncoder().encode(params))
            sent += 1
    assert sent > 20


def test_a_constraint_that_was_changed_is_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine refused it, too, but `LLM.generate` then returned an empty answer and only logged the reason."""
    from vllm.exceptions import VLLMValidationError

    params = sampling(regex="a")
    validate(params)
    with monkeypatch.context() as patched:
        patched.setattr(validation_cache, "_refusal", lambda *_: pytest.fail("compiled"))
        validate(params)
    params.structured_outputs.regex = "(7"
    with pytest.raises(VLLMValidationError, match="regular expression"):
        validate(params)


@pytest.mark.parametrize("left_to_engine", [False, True])
def test_a_schema_that_is_changed_in_place_is_read_again(left_to_engine: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dict is sent as text. The text of the first use once stayed, so later answers followed the old schema."""

    def sent(params: Any, backend: str = "auto") -> Any:
        if left_to_engine:
            validation.claim(params.structured_outputs)
        validate(params, backend)
        clone = params.clone().structured_outputs
        decoded = MsgpackDecoder(SamplingParams).decode(MsgpackEncoder().encode(params)).structured_outputs
        assert decoded == clone == params.structured_outputs
        assert vars(decoded).keys() == vars(sampling(json={}).structured_outputs).keys()
        return json.loads(clone.json) if isinstance(clone.json, str) else clone.json

    from vllm.sampling_params import SamplingParams
    from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

    monkeypatch.setattr(validation_cache, "check", lambda *_: None)
    schema: dict[str, Any] = {"properties": {"a": {"type": "integer"}}}
    params = sampling(json=schema)
    assert sent(params) == sent(params) == schema
    shallow, deep, before = copy.copy(params), copy.deepcopy(params), copy.deepcopy(schema)
    schema["properties"]["a"]["type"] = "string"
    assert sent(params) == sent(shallow) == sent(params) == schema
    assert sent(deep) == before  # its dict was never this one
    params.structured_outputs.json = json.dumps(before)
    assert sent(params) == before
    params.structured_outputs.json = schema
    assert sent(params) == schema
    schema["properties"].clear()
    assert pickle.loads(pickle.dumps(params)).structured_outputs == params.structured_outputs
    if not left_to_engine:
        assert sent(params, "xgrammar") == schema  # an engine of the same process on another backend


@pytest.mark.parametrize(("tokenizer", "diffusion", "reason"), [(None, False, "tokenizer"), ("t", True, "diffusion")])
@pytest.mark.parametrize("kind", [{"regex": "a"}, {"structural_tag": '{"format": {"type": "any_text"}}'}])
def test_models_without_constraints_say_so(tokenizer: Any, diffusion: bool, reason: str, kind: dict[str, Any]) -> None:
    from vllm.exceptions import VLLMValidationError

    config, model_config = engine("auto").structured_outputs_config, SimpleNamespace(is_diffusion=diffusion)
    with pytest.raises(VLLMValidationError, match=reason):
        validation.validate(sampling(**kind), model_config, config, tokenizer)


def test_parameters_may_be_used_with_two_engines_of_a_process() -> None:
    """First with our engine, then with one on another backend."""
    params = sampling(regex="a+")
    for _ in range(2):
        validate(params)
        assert params.structured_outputs._backend == "dotllm"
        validate(params, "xgrammar")
        assert params.structured_outputs._backend == "xgrammar"
        params.structured_outputs._backend = None


def test_the_processes_of_ray_get_our_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """``--data-parallel-backend ray``: they inherit nothing; vLLM copies the variables that it knows by name."""
    from vllm.ray.ray_env import get_env_vars_to_copy

    from dotllm.cli.options import OPTIONS

    for before in ("", "MINE_", "MINE_, DOTLLM_"):
        monkeypatch.setenv("VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY", before)
        monkeypatch.setenv("MINE_TOO", "1")
        for option in OPTIONS:
            monkeypatch.setenv(option.variable, "1")
        for _ in range(2):
            allowed_plugins.allow_plugin()
        copied = get_env_vars_to_copy()
        assert {option.variable for option in OPTIONS} <= copied
        assert ("MINE_TOO" in copied) == bool(before)
    assert os.environ["VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY"] == "MINE_, DOTLLM_"
