"""From vLLM's call for a new request to its grammar: the hook, the backend, and the objects shared by a process."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from dotllm import system
from dotllm.compilation import Specification
from dotllm.compilation.errors import CompilationError
from dotllm.errors import InvalidSpecError, SpecError, UnsupportedError
from dotllm.index.token_space import TokenSpace
from dotllm.vllm_plugin.enforce import compile_hook, per_process
from dotllm.vllm_plugin.enforce.backend import EngineBackend
from dotllm.vllm_plugin.enforce.request_grammar import RequestGrammar
from dotllm.vllm_plugin.enforce.validation import claim
from dotllm.vllm_plugin.extra import jump_forward
from dotllm.vllm_plugin.extra.answer_limit import AnswerLimit
from dotllm.vllm_plugin.extra.jump_forward import forced_after
from dotllm.vllm_plugin.settings import BACKEND
from dotllm.vllm_plugin.speed import warm_start
from tests.vllm_plugin.engine_core.test_coalesced import engine

pytestmark = pytest.mark.serve

PIECES = ["</s>", "<end>", "<stop>", *"abcd", "ab", " "]
EOS, END, STOP, A, B, C, D, AB, SPACE = range(len(PIECES))
WIDTH = 70
"""Width of the model's output: more than the tokenizer's tokens, and three words of a mask."""


class Tokenizer:
    """A tokenizer with SentencePiece's interface."""

    decode = staticmethod(lambda ids: "".join(PIECES[i] for i in ids))
    id_to_piece = staticmethod(lambda i: PIECES[i])
    get_piece_size = staticmethod(lambda: len(PIECES))
    eos_id = staticmethod(lambda: EOS)
    encode = staticmethod(lambda text: [PIECES.index(character) for character in text])
    IsControl = staticmethod(lambda i: i < A)
    IsByte = IsUnknown = IsUnused = staticmethod(lambda i: False)


class Unknown: ...


def configuration(backend: str = "auto", **others: Any) -> Any:
    """vLLM's configuration."""
    model = {
        "try_get_generation_config": lambda: {"eos_token_id": [END]}, "get_vocab_size": lambda: WIDTH,
        "max_model_len": 100, "skip_tokenizer_init": False, "runner_type": "generate",
    }  # fmt: skip
    options = {
        "backend": backend, "disable_any_whitespace": False, "disable_additional_properties": False,
    }  # fmt: skip
    return engine(model, structured_outputs_config=SimpleNamespace(**options), **others)


@pytest.fixture(autouse=True)
def _extras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_hook.GIVEN, "limit", AnswerLimit)
    monkeypatch.setattr(compile_hook.GIVEN, "spelling", jump_forward.spelling)


def test_an_answer_limit_that_is_off_is_refused(manager: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_hook.GIVEN, "limit", None)
    one = request("ab", max_tokens=4, extra_args={"dotllm_finish": True})
    compile_hook._grammar_init(manager, one, original=not_called)
    with pytest.raises(UnsupportedError, match="answer-limit, which is off"):
        one.structured_output_request.grammar.result(20)


def test_masses_are_for_front_ends_that_take_them_off(manager: Any) -> None:
    """vLLM's Rust front end has chosen xgrammar. It would read a token id that does not exist."""
    one = request("ab", logprobs=0, extra_args={"dotllm_mass": True})
    one.structured_output_request.params._backend = "xgrammar"
    compile_hook._grammar_init(manager, one, original=not_called)
    with pytest.raises(UnsupportedError, match="Python front end"):
        one.structured_output_request.grammar.result(20)
    claim(one.structured_output_request.params)
    assert compiled(manager, one)


@pytest.fixture(autouse=True)
def _compiles_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOTLLM_DISK_BYTES", "0")
    monkeypatch.setenv("DOTLLM_COMPILE_PROCESSES", "0")


@pytest.fixture
def manager() -> Iterator[Any]:
    """vLLM's ``StructuredOutputManager`` right after the start."""
    made = SimpleNamespace(
        backend=None, vllm_config=configuration(), tokenizer=Tokenizer(), reasoner_cls=None, backend_name=None,
        _use_async_grammar_compilation=True,
    )  # fmt: skip
    yield made
    if isinstance(made.backend, EngineBackend):
        made.backend.destroy()


def request(regex: str, **parameters: Any) -> Any:
    """vLLM's request, with a prompt of three tokens."""
    from vllm.sampling_params import SamplingParams, StructuredOutputsParams

    structured = StructuredOutputsParams(regex=regex)
    sampling = SamplingParams(structured_outputs=structured, **parameters)
    return SimpleNamespace(
        sampling_params=sampling, resumable=False, max_tokens=sampling.max_tokens, num_output_tokens=0, num_tokens=3,
        structured_output_request=SimpleNamespace(params=structured, grammar=None),
    )  # fmt: skip


def not_called(*_: Any) -> None:
    raise AssertionError("vLLM would compile")


def compiled(manager: Any, one: Any) -> RequestGrammar:
    """The request's grammar, made by vLLM's call."""
    compile_hook._grammar_init(manager, one, original=not_called)
    grammar: RequestGrammar = one.structured_output_request.grammar.result(60)
    grammar.begin()
    return grammar


def allowed(manager: Any, grammar: RequestGrammar) -> set[int]:
    bitmask = manager.backend.allocate_token_bitmask(2)
    grammar.fill_bitmask(bitmask, 1)
    assert bitmask[0].tolist() == [-1] * 3, "all tokens, for who has no constraint"
    return {token for token in range(WIDTH) if int(bitmask[1, token >> 5]) >> (token & 31) & 1}


def test_a_request_gets_the_grammar_it_asks_for(manager: Any) -> None:
    """The grammar agrees with `re` on every text of up to three letters."""
    one = request("a[bc]?d*")
    assert compile_hook.backend_of(manager) is None
    grammar = compiled(manager, one)
    assert one.structured_output_request.params._backend == BACKEND == manager.backend_name
    assert compile_hook.backend_of(manager) is manager.backend
    for length in range(4):
        for text in product((A, B, C, D), repeat=length):
            grammar.reset()
            taken = all(grammar.accept_tokens("r", [token]) for token in text) and grammar.accept_tokens("r", [EOS])
            assert taken == bool(re.fullmatch("a[bc]?d*", "".join(PIECES[token] for token in text)))


def test_equal_specifications_share_an_index_and_nothing_else(manager: Any) -> None:
    one, other, third = (compiled(manager, request(regex)) for regex in ("ab", "ab", "ac"))
    assert one.guide.index is other.guide.index is not third.guide.index
    assert one.accept_tokens("r", [AB])
    assert (allowed(manager, one), allowed(manager, other)) == ({EOS, END}, {A, AB})


def test_stop_tokens_of_the_request_and_ends_of_the_model(manager: Any) -> None:
    stops, plain = compiled(manager, request("a", stop_token_ids=[STOP])), compiled(manager, request("a"))
    for grammar in (stops, plain):
        assert allowed(manager, grammar) == {A} and grammar.accept_tokens("r", [A])
    assert (allowed(manager, stops), allowed(manager, plain)) == ({EOS, END, STOP}, {EOS, END})


def test_beam_search_compiles_at_once_and_ends_with_all_ends_or_the_tokenizers_own(manager: Any) -> None:
    for all_ends in (True, False):
        searched = Specification.create("regex", "a")
        backend = EngineBackend(
            manager.vllm_config, tokenizer=manager.tokenizer, vocab_size=WIDTH, ends_of_model=all_ends,
            searched=searched,
        )  # fmt: skip
        try:
            manager.backend = backend
            grammar: Any = backend.compile_grammar(None, "")  # type: ignore[arg-type]
            assert grammar.accept_tokens("r", [A])
            assert allowed(manager, grammar) == ({EOS, END} if all_ends else {EOS})
            assert TokenSpace.of(backend.vocabulary) is grammar.guide.index.space
        finally:
            backend.destroy()


def test_a_failure_is_in_the_future(manager: Any) -> None:
    refused = compile_hook.begin(manager, request(r"(a)\1"))
    with pytest.raises(SpecError):
        refused.result(60)
    manager.backend.destroy()
    closed = compile_hook.begin(manager, request("abc"))
    with pytest.raises(CompilationError, match="closed"):
        closed.result(60)
    manager.backend, manager.tokenizer = None, Unknown()
    with pytest.raises(SpecError, match="Unknown"):
        compile_hook.begin(manager, request("abc")).result(0)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_ranks_with_schedulers_of_their_own_wait(
    manager: Any, monkeypatch: pytest.MonkeyPatch, *, asynchronous: bool
) -> None:
    manager._use_async_grammar_compilation = asynchronous
    monkeypatch.setattr(manager, "backend", backend := object.__new__(EngineBackend))
    waited: list[int] = []
    future = SimpleNamespace(exception=lambda: waited.append(1))
    monkeypatch.setattr(backend, "begin", lambda *_: future, raising=False)
    assert compile_hook.begin(manager, request("a")) is future
    assert len(waited) == (not asynchronous)
    manager.backend = None


@pytest.mark.parametrize("why", ["another backend", "no constraint"])
def test_what_is_not_ours_is_vllms(manager: Any, why: str) -> None:
    one, seen = request("a"), []
    if why == "another backend":
        manager.vllm_config = configuration("xgrammar")
    else:
        one.structured_output_request = None
    compile_hook._grammar_init(manager, one, original=lambda *given: seen.append(given))
    assert seen == [(manager, one)] and manager.backend is None


def test_an_answer_that_is_to_end_in_time(manager: Any) -> None:
    """The shortest answer for "ab" takes two tokens, EOS included; the model has 97 left."""
    fields = {"extra_args": {"dotllm_finish": True}}
    with pytest.raises(InvalidSpecError, match="takes 2 tokens"):
        compiled(manager, request("ab", max_tokens=1, **fields))
    grammar = compiled(manager, request("ab", max_tokens=2, **fields))
    assert grammar.limit is not None
    with pytest.raises(InvalidSpecError, match="takes 99 tokens"):
        compiled(manager, request("a{98}", max_tokens=1000, **fields))
    assert compiled(manager, request("a{96}", max_tokens=1000, **fields)).limit is not None
    assert compiled(manager, request("ab", max_tokens=1)).limit is None


@pytest.mark.parametrize("mode", ["off", "canonical"])
def test_forced_text_is_spelt_where_the_engine_and_the_request_let_it(
    manager: Any, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv("DOTLLM_COALESCENCE", mode)
    grammar = compiled(manager, request("abd", max_tokens=9))
    assert allowed(manager, grammar) == ({A} if mode == "canonical" else {A, AB})
    assert allowed(manager, compiled(manager, request("abd", logprobs=1))) == {A, AB}
    assert allowed(manager, compiled(manager, request("abd", seed=1))) == allowed(manager, grammar)
    manager.vllm_config.use_v2_model_runner = False  # V1's runner draws from a generator for each request
    manager.backend.spelling_of = compile_hook.GIVEN.spelling(manager.vllm_config)
    assert allowed(manager, compiled(manager, request("abd", seed=1))) == {A, AB}


def test_a_mode_that_does_not_exist_is_named_to_each_request(manager: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one must not leave a backend that lacks a part."""
    monkeypatch.setenv("DOTLLM_COALESCENCE", "some")
    for _ in range(2):
        with pytest.raises(ValueError, match="DOTLLM_COALESCENCE='some'"):
            compile_hook.begin(manager, request("ab")).result(0)
    assert manager.backend is None


def test_forced_text_that_would_be_too_long_for_a_limit_is_left_to_the_model(
    manager: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tokenizer spells "abab" with four tokens, the shortest way has two; EOS follows both."""
    monkeypatch.setenv("DOTLLM_COALESCENCE", "canonical")
    one = request("[cd]abab[cd]", max_tokens=50, extra_args={"dotllm_finish": True})
    for left in range(4, 9):
        grammar = compiled(manager, one)
        assert list(forced_after(grammar, C, left)) == ([A, B, A, B] if left >= 6 else [])
    free = compiled(manager, request("[cd]abab[cd]", max_tokens=50))
    assert list(forced_after(free, D, 1)) == [A, B, A, B] and list(forced_after(free, A, 9)) == []


def test_a_vocabulary_and_a_compiler_for_each_tokenizer_and_width() -> None:
    tokenizer, other = Tokenizer(), Tokenizer()
    one = per_process.vocabulary(tokenizer, WIDTH, (END,))
    assert one.size == WIDTH and one.eos_token_ids == (EOS, END)
    assert per_process.vocabulary(tokenizer, WIDTH, (END,)) is one
    different = [
        per_process.vocabulary(*key)
        for key in ((tokenizer, 80, (END,)), (tokenizer, WIDTH, ()), (other, WIDTH, (END,)))
    ]
    assert one not in different and [found.eos_token_ids for found in different] == [(EOS, END), (EOS,), (EOS, END)]
    compiler = per_process.compiler(one)
    try:
        assert per_process.compiler(one) is compiler
    finally:
        per_process.close_compiler(one)
    per_process.close_compiler(one)
    with pytest.raises(CompilationError, match="closed"):
        compiler.submit(Specification.create("regex", "a")).result(60)
    again = per_process.compiler(one)
    per_process.close_compiler(one)
    assert again is not compiler


def test_beam_search_in_the_process_of_the_engine_leaves_it_its_compiler(manager: Any) -> None:
    compiled(manager, request("a"))
    searched = Specification.create("regex", "ab*")
    for new in ("[bc]a", "[bc]d"):
        other = EngineBackend(manager.vllm_config, tokenizer=manager.tokenizer, vocab_size=WIDTH, searched=searched)
        assert other.compiler is manager.backend.compiler
        other.destroy()
        other.destroy()
        assert compiled(manager, request(new)).accept_tokens("r", [B])
    compiler = manager.backend.compiler
    manager.backend.destroy()
    with pytest.raises(CompilationError, match="closed"):
        compiler.submit(Specification.create("regex", "cd")).result(60)


@pytest.mark.parametrize("gpu", [False, True])
def test_on_a_gpu_processes_compile(monkeypatch: pytest.MonkeyPatch, *, gpu: bool) -> None:
    from vllm import platforms

    from dotllm.compilation import CompilationManager

    offloaded: list[object] = []
    monkeypatch.setattr(CompilationManager, "always_offload", lambda one: offloaded.append(one))
    monkeypatch.setattr(platforms.current_platform, "is_cuda_alike", lambda: gpu, raising=False)
    vocabulary = per_process.vocabulary(Tokenizer(), WIDTH, ())
    made = per_process.compiler(vocabulary)
    per_process.close_compiler(vocabulary)
    assert offloaded == ([made] if gpu else [])


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "run_in_background", lambda work, name: work())


@pytest.mark.usefixtures("at_once")
def test_an_engine_of_ours_gets_ready_while_its_model_loads(caplog: pytest.LogCaptureFixture) -> None:
    prepared: list[Any] = []

    def prepare(config: Any) -> None:
        prepared.append(config)
        if config is broken:
            raise ValueError("broken")

    config, other, blind, broken = configuration(), configuration("xgrammar"), configuration(), configuration()
    blind.model_config.skip_tokenizer_init = True
    with caplog.at_level(logging.INFO):
        for one in (config, other, blind):
            warm_start.in_background(prepare, one)
        assert prepared == [config] and "prepare done in" in caplog.text
        caplog.clear()
        warm_start.in_background(prepare, broken)
        assert "could not prepare" in caplog.text and "done in" not in caplog.text


@pytest.mark.usefixtures("at_once")
def test_what_is_made_ahead_is_what_the_first_request_uses(manager: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import vllm.tokenizers

    from dotllm.compilation import CompilationManager

    started: list[Any] = []
    monkeypatch.setattr(CompilationManager, "start_processes", lambda one: started.append(one))
    monkeypatch.setattr(vllm.tokenizers, "cached_tokenizer_from_config", lambda **_: manager.tokenizer)
    seen: list[Any] = []
    warm_start._init(
        manager, manager.vllm_config, 1, two=2, original=lambda *given, **named: seen.append((given, named))
    )
    assert seen == [((manager, manager.vllm_config, 1), {"two": 2})]
    compiled(manager, request("a"))
    assert started == [manager.backend.compiler]
