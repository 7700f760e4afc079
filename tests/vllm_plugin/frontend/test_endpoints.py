"""A constrained stream begins with the engine's first output, on every API; an earlier refusal is an HTTP status.

The serving class and the engine are played; our wrappers and vLLM's own collector of outputs between them are real.
(Live: `tests.serve.test_api_refusals`.)
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from functools import partial, partialmethod
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from dotllm.compilation import validation_cache
from dotllm.errors import InvalidSpecError, Pointer
from dotllm.vllm_plugin import registry
from dotllm.vllm_plugin.api import endpoints, served
from dotllm.vllm_plugin.enforce import engine_info, errors, request_errors
from tests.diagnosis.test_tool_place import BAD, GOOD, chat_tool, tag_of
from tests.vllm_plugin.frontend.test_unsupported_fields import completion_request, serve

GOOD_REGEX, BAD_REGEX = "[0-9]{3}", "("


@pytest.fixture(autouse=True)
def _served() -> Iterator[None]:
    registry.apply_required()
    serve("auto")
    validation_cache._remembered.cache_clear()
    yield
    engine_info.remember(None)


def sampling(**fields: Any) -> Any:
    from vllm.sampling_params import SamplingParams, StructuredOutputsParams

    return SamplingParams(structured_outputs=StructuredOutputsParams(**fields) if fields else None)


class Engine:
    """`AsyncLLM` as an endpoint sees it: ``says`` is its first output, after ``seconds``."""

    def __init__(self, says: Any = "token", seconds: float = 0.01) -> None:
        self.says, self.seconds = says, seconds
        self.sent: list[dict[str, Any]] = []
        self.aborted: list[str] = []

    async def _add_request(self, request_id: str, prompt: str, params: Any, **kwargs: Any) -> Any:
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine.output_processor import RequestOutputCollector

        self.sent.append({"params": params, **kwargs})
        if self.says == "not taken":
            raise request_errors.as_http(503, "too many")
        collector = RequestOutputCollector(RequestOutputKind.DELTA, request_id)
        asyncio.get_running_loop().call_later(self.seconds, collector.put, self.says)
        return collector

    add_request = partialmethod(endpoints._add_request, original=_add_request)

    async def abort(self, request_id: str, *, internal: bool) -> None:
        self.aborted.append(request_id)

    async def generate(self, params: Any) -> AsyncGenerator[Any, None]:
        collector = await self.add_request("1", "?", params, reasoning_ended=None)
        yield await collector.get()
        yield "more"


class Serving:
    """Endpoints of several APIs; ``form`` determines what their streams say first."""

    def __init__(self, engine: Engine, form: str = "chat") -> None:
        self.engine, self.form = engine, form

    async def _create(self, request: Any) -> Any:
        call = endpoints.current.get()
        assert call is not None
        call.params = request.params
        outputs = self.engine.generate(request.params)
        if request.stream:
            return self._stream(outputs)
        return [output async for output in outputs]

    async def _stream(self, outputs: Any) -> AsyncGenerator[Any, None]:
        if self.form == "responses":
            yield "created"
            yield "in progress"
        try:
            async for output in outputs:
                yield output
        except Exception as error:  # vLLM would log its traceback and report it after the status 200
            pytest.fail(f"error: {error}")
        yield "[DONE]"

    create = partialmethod(endpoints._endpoint, original=_create)


def ask(serving: Serving, params: Any, *, stream: bool, **fields: Any) -> Any:
    request = SimpleNamespace(stream=stream, params=params, **fields)

    async def all_of_it() -> Any:
        answer = await serving.create(request)
        return [chunk async for chunk in answer] if isinstance(answer, AsyncGenerator) else answer

    return asyncio.run(asyncio.wait_for(all_of_it(), 20))


FORMS = ("chat", "responses")
BEFORE = {"chat": [], "responses": ["created", "in progress"]}


@pytest.mark.parametrize("form", FORMS)
def test_what_is_right_comes_as_ever(form: str) -> None:
    for params in (sampling(regex=GOOD_REGEX), sampling()):
        assert ask(Serving(Engine(), form), params, stream=True) == [*BEFORE[form], "token", "more", "[DONE]"]
        assert ask(Serving(Engine(), form), params, stream=False) == ["token", "more"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 503, 500])
def test_what_the_engine_refuses_is_a_status(form: str, stream: bool, status: int) -> None:
    error = request_errors.as_http(status, "too much (at /properties/a)")
    with pytest.raises(type(error), match=r"^too much \(at /properties/a\)$"):
        ask(Serving(Engine(error), form), sampling(regex=GOOD_REGEX), stream=stream)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stream", [False, True])
def test_what_vllm_does_not_take_is_a_status(form: str, stream: bool) -> None:
    with pytest.raises(Exception, match="too many"):
        ask(Serving(Engine("not taken"), form), sampling(regex=GOOD_REGEX), stream=stream)


@pytest.mark.parametrize("form", FORMS)
def test_nothing_leaves_before_the_engine_has_said_something(form: str) -> None:
    async def begin() -> Any:
        task = asyncio.create_task(serving.create(SimpleNamespace(stream=True, params=sampling(regex="a"))))
        await asyncio.sleep(0.2)
        begun = task.done()
        answer = await task
        return begun, await anext(answer)

    serving = Serving(Engine(seconds=1.0), form)
    assert asyncio.run(begin()) == (False, (BEFORE[form] or ["token"])[0])


def test_streams_without_a_constraint_do_not_wait() -> None:
    async def begin() -> Any:
        return await anext(await serving.create(SimpleNamespace(stream=True, params=sampling())))

    serving = Serving(Engine(seconds=1000.0), "responses")
    assert asyncio.run(asyncio.wait_for(begin(), 20)) == "created"


@pytest.mark.parametrize("form", FORMS)
def test_a_client_that_goes_away_ends_its_request(form: str) -> None:
    async def goes() -> None:
        task = asyncio.create_task(serving.create(SimpleNamespace(stream=True, params=sampling(regex="a"))))
        while not serving.engine.sent:
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    serving = Serving(Engine(seconds=1000.0), form)
    asyncio.run(asyncio.wait_for(goes(), 20))
    assert serving.engine.aborted == ["1"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("anthropic", [False, True])
def test_a_refused_tool_is_named_by_its_place_in_the_request(stream: bool, anthropic: bool) -> None:
    """The engine's error names a place in the structural tag that vLLM has made from the tools."""
    tag = tag_of(GOOD, BAD)
    said = "unknown type 'strin' (at /format/elements/1/content/json_schema/properties/a~1b/type)"
    serving: Any = Serving(Engine(request_errors.as_http(400, said)))
    if anthropic:
        serving.create_messages = None
    tools = [chat_tool("f", GOOD), chat_tool("bad", BAD)]
    place = "/tools/1/input_schema" if anthropic else "/tools/1/function/parameters"
    for choice, words in (
        ("required", f"tool 'bad': unknown type 'strin' (at {place}/properties/a~1b/type)"),
        ("none", said),
    ):
        with pytest.raises(Exception) as refused:
            ask(serving, sampling(structural_tag=tag), stream=stream, tools=tools, tool_choice=choice)
        assert str(refused.value) == words


def test_the_front_end_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine reports what is bad; vLLM's validation, which runs in the event loop, lets it pass."""
    from dotllm.vllm_plugin.enforce import validation

    monkeypatch.setattr(validation_cache, "_check", lambda *_: pytest.fail("in the event loop?"))
    engine, model_config = Engine(), SimpleNamespace(is_diffusion=False)
    for stream in (False, True):
        ask(Serving(engine), sampling(regex=BAD_REGEX), stream=stream)
    for sent in engine.sent:
        validation.validate(sent["params"], model_config, engine_info.config(), object())


@pytest.mark.parametrize("pattern", [GOOD_REGEX, BAD_REGEX])
def test_a_stream_that_may_reason_is_checked_here(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first words are not a verdict, since the engine may still be compiling."""
    monkeypatch.setattr(served, "may_reason", lambda: True)
    serving = Serving(Engine())
    if pattern == GOOD_REGEX:
        assert ask(serving, sampling(regex=pattern), stream=True) == ["token", "more", "[DONE]"]
    else:
        with pytest.raises(Exception, match="regular expression"):
            ask(serving, sampling(regex=pattern), stream=True)


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_in_the_background_is_checked_here(stream: bool) -> None:
    """Its status is "queued" at first, whatever happens later."""
    fields = {"stream": stream, "background": True}

    async def create(serving: Any, request: Any) -> Any:
        endpoints.current.get().params = request.params  # type: ignore[union-attr]
        return "queued"

    endpoint = partial(endpoints._endpoint, original=create)
    assert asyncio.run(endpoint(None, SimpleNamespace(params=sampling(regex=GOOD_REGEX), **fields))) == "queued"
    with pytest.raises(Exception, match="regular expression"):
        asyncio.run(endpoint(None, SimpleNamespace(params=sampling(regex=BAD_REGEX), **fields)))


def test_a_slow_check_holds_up_neither_its_request_nor_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(served, "may_reason", lambda: True)
    monkeypatch.setattr(validation_cache, "TIMEOUT_S", 0.05)
    monkeypatch.setattr(validation_cache, "_check", lambda *_: go_on.wait(60))
    serving = Serving(Engine())

    async def beside() -> float:
        request = SimpleNamespace(stream=True, params=sampling(regex=GOOD_REGEX))
        longest, asked = 0.0, asyncio.create_task(serving.create(request))
        while not asked.done():
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - began)
        assert [chunk async for chunk in await asked] == ["token", "more", "[DONE]"]
        return longest

    try:
        assert asyncio.run(asyncio.wait_for(beside(), 20)) < 10.0
    finally:
        go_on.set()


@pytest.mark.parametrize("first", [True, False])
def test_one_of_several_prompts_is_not_taken(first: bool) -> None:
    """Before any output, the refusal is a status; after another prompt's output, it is vLLM's own last event."""
    from vllm.utils.async_utils import merge_async_iterators

    good, bad = (
        Engine(seconds=0.3 if first else 0.01),
        Engine(request_errors.as_http(400, "too much"), seconds=0.1),
    )

    class Completions(Serving):
        async def _create(self, request: Any) -> Any:
            call = endpoints.current.get()
            assert call is not None
            call.params = request.params
            return self._say(merge_async_iterators(*(engine.generate(request.params) for engine in (good, bad))))

        async def _say(self, outputs: Any) -> AsyncGenerator[Any, None]:
            try:
                async for _, output in outputs:
                    yield output
            except Exception as error:
                yield f"error: {error}"

        create = partialmethod(endpoints._endpoint, original=_create)

    if first:
        with pytest.raises(Exception, match=r"^too much$"):
            ask(Completions(good), sampling(regex="a"), stream=True)
        assert good.aborted == ["1"]
    else:
        said = ask(Completions(good), sampling(regex="a"), stream=True)
        assert said == ["token", "more", "error: too much"]


def test_completions_are_constrained_from_their_first_token() -> None:
    for params, said in ((sampling(regex="a"), True), (sampling(), None)):
        engine = Engine()
        completions: Any = Serving(engine)
        completions.create_completion = None
        ask(completions, params, stream=False)
        ask(Serving(engine), params, stream=False)  # this one is a chat
        assert [sent["reasoning_ended"] for sent in engine.sent] == [said, None]


def test_rendered_completions_say_so_in_a_field_of_vllms() -> None:
    from vllm.entrypoints.scale_out.token_in_token_out.protocol import GenerateRequest

    async def rendered(serving: Any, request: Any) -> Any:
        return [GenerateRequest(token_ids=[1], sampling_params=params) for params in request]

    render = partial(endpoints._render_completion_request, original=rendered)
    found = asyncio.run(render(None, [sampling(regex="a"), sampling()]))
    assert [one.reasoning_ended for one in found] == [True, None]
    again = GenerateRequest.model_validate_json(found[0].model_dump_json())
    assert again.reasoning_ended is True and not again.sampling_params.extra_args
    serve("xgrammar")
    [theirs] = asyncio.run(render(None, [sampling(regex="a")]))
    assert theirs.reasoning_ended is None


def test_an_error_of_the_check_is_said_as_the_engine_says_it() -> None:
    """A refusal has one text on both paths: the engine sends what `SpecError` writes."""
    error = InvalidSpecError("unknown type 'x'", location=Pointer("/a"), keyword="type")
    sent = errors.decode(errors.encode(error))
    assert sent == (400, str(error), error.code, None)


def test_what_a_tokenizer_says_to_half_a_surrogate_pair_becomes_a_refusal_of_the_field() -> None:
    from vllm.exceptions import VLLMValidationError

    async def create_completion(self: Any, request: Any) -> Any:
        raise TypeError("TextEncodeInput must be Union[TextInputSequence, Tuple[InputSequence, InputSequence]]")

    endpoint = partial(endpoints._endpoint, original=create_completion)
    with pytest.raises(VLLMValidationError, match=r"prompt contains '\\ud800', a lone surrogate"):
        asyncio.run(endpoint(None, completion_request(prompt="\ud800")))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="TextEncodeInput"):
        asyncio.run(endpoint(None, completion_request(prompt="a")))  # type: ignore[arg-type]


def test_an_error_of_vllms_own_is_said_as_vllm_says_it() -> None:
    from vllm.exceptions import VLLMValidationError

    error = VLLMValidationError("temperature must be non-negative", parameter="temperature", value=-1)

    async def create_completion(self: Any, request: Any) -> Any:
        raise error

    endpoint = partial(endpoints._endpoint, original=create_completion)
    with pytest.raises(VLLMValidationError) as raised:
        asyncio.run(endpoint(None, completion_request(prompt="a")))  # type: ignore[arg-type]
    assert str(raised.value) == str(error)


@pytest.mark.parametrize("before", ["first", "last"])
def test_each_request_is_its_own_engines(before: str) -> None:
    """With two engines in one process, the last one made does not decide about the other's requests."""
    from types import SimpleNamespace as Namespace

    def config(backend: str) -> Any:
        return Namespace(structured_outputs_config=Namespace(backend=backend, reasoning_parser=""), model_config=None)

    configs = {"auto": config("auto"), "xgrammar": config("xgrammar")}
    for backend in configs if before == "last" else reversed(configs):
        engine_info.remember(configs[backend])

    async def ask(backend: str) -> Any:
        engine: Any = Engine()
        engine.vllm_config = configs[backend]
        params = sampling(regex="a")
        await engine.add_request("1", "?", params)
        return params.structured_outputs._backend

    async def both() -> list[Any]:
        return await asyncio.gather(ask("auto"), ask("xgrammar"), ask("auto"))

    assert asyncio.run(both()) == ["dotllm", None, "dotllm"]


def test_what_pools_is_as_without_us() -> None:
    """Embeddings, scores, ranks and classes reach the engine unchanged."""
    from vllm.pooling_params import PoolingParams

    engine = Engine()
    for task in ("embed", "classify", "token_embed", "token_classify"):
        asyncio.run(engine.add_request("1", "?", PoolingParams(task=task)))
    assert [set(sent) for sent in engine.sent] == [{"params"}] * 4
    for params in (PoolingParams(), None):
        assert not served.is_constrained(params)


def test_nothing_is_asked_of_the_engine_for_a_request_without_a_constraint() -> None:
    """Its configuration may be a test's stand-in: vLLM's own test_admission_control has one with a single field."""
    with engine_info.of(SimpleNamespace(vllm_config=SimpleNamespace())):
        assert not served.is_constrained(sampling())
        assert not served.is_constrained(None)


@pytest.mark.parametrize("stream", [False, True])
def test_nothing_to_compile_with_is_503_and_when_to_try_again(stream: bool) -> None:
    from dotllm.compilation.errors import ProcessDied, QueueFull
    from dotllm.vllm_plugin.api import response_headers

    for failure in (QueueFull("the queue is full"), ProcessDied(-9, again=True)):
        said = errors.decode(errors.encode(failure))
        assert said is not None and said.status == 503
        headers = response_headers._Headers()
        token = response_headers._headers.set(headers)
        try:
            with pytest.raises(Exception, match=r"full|tried twice, and the request may be sent again"):
                ask(Serving(Engine(request_errors.as_http(*said))), sampling(regex="a"), stream=stream)
        finally:
            response_headers._headers.reset(token)
        assert headers.fields() == [(b"retry-after", b"2")]


@pytest.mark.parametrize("stream", [False, True])
def test_an_api_with_codes_says_that_nothing_can_compile(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from dotllm.compilation.errors import ProcessDied

    said = errors.decode(errors.encode(ProcessDied(-9, again=True)))
    assert said is not None
    monkeypatch.setattr(Serving, "__module__", "vllm.entrypoints.openai.chat_completion.serving")
    answer = ask(Serving(Engine(request_errors.as_http(*said))), sampling(regex="a"), stream=stream)
    assert answer.error.code == 503, "the routes answer with this status"
    written = answer.model_dump()["error"]
    assert written["code"] == "dotllm.unavailable" and written["type"] == "Service Unavailable"
    assert written["message"].startswith("the compile process ended with status -9, as the one before it did")
    failed = request_errors.as_http(500, "a bug")
    with pytest.raises(type(failed), match="a bug"):
        ask(Serving(Engine(failed)), sampling(regex="a"), stream=stream)


def test_a_chat_without_its_reasoning_reasons_all_the_same() -> None:
    """vLLM constrained it from its first token, and its parser took the answer for reasoning, which is left out."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    parser = SimpleNamespace(reasoning_parser=object(), is_reasoning_end=lambda tokens: 7 in tokens)
    for include in (True, False):
        request = ChatCompletionRequest(messages=[{"role": "user", "content": "?"}], include_reasoning=include)
        assert request.resolve_reasoning_ended(parser, [1]) is False
        assert request.resolve_reasoning_ended(parser, [1, 7]) is True
        assert request.resolve_reasoning_ended(None, []) is None
        assert request.include_reasoning is include
        serve("xgrammar")
        assert request.resolve_reasoning_ended(parser, [1]) is (not include)
        serve("auto")
