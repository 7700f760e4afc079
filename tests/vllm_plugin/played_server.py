"""vLLM's whole front end in this process, on a played engine core: HTTP requests without a model.

Routers, serving classes, parsers, `AsyncLLM` and its processors are vLLM's with our hooks. The engine core compiles a
request's constraint as ours does, and then walks at random under its masks, to an end if the limit allows that. Without
a constraint it says `FREE`. With a reasoning parser it first says `THOUGHTS`, unless the prompt has ended the reasoning.
So in milliseconds a test sees the status, headers and body that a client would see.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from dotllm import Vocabulary
from dotllm.compilation import compiler
from dotllm.errors import SpecError
from dotllm.vllm_plugin import registry, releases
from dotllm.vllm_plugin.enforce import engine_info, errors
from dotllm.vllm_plugin.extra.mass import wire
from dotllm.vllm_plugin.specification import of_sampling_params

FREE = "free text"
THOUGHTS = 'They want {"json"}.'
NAME = "played"
_COMFORT = 60
"""An answer may have this many random tokens above its minimum."""


class Core:
    """The client of an engine core that does not exist."""

    def __init__(self, vllm_config: Any, tokenizer: Any) -> None:
        self.vllm_config, self.tokenizer = vllm_config, tokenizer
        self.vocabulary = Vocabulary.from_tokenizer(tokenizer)
        self.outputs: asyncio.Queue[Any] = asyncio.Queue()
        self.resources = SimpleNamespace(engine_dead=False)
        self.engine_ranks_managed = [0]
        self.constraints: list[Any] = []
        """The constraints that it was sent; None for free text."""
        self._tasks: list[Any] = []
        self.cuts = False
        """Whether answers continue until their limit cuts them."""

    async def get_output_async(self) -> Any:
        return await self.outputs.get()

    async def get_supported_tasks_async(self) -> tuple[str, ...]:
        return ("generate",)

    async def add_request_async(self, request: Any) -> None:
        from vllm.v1.engine import FinishReason

        params = request.sampling_params
        constraint = params.structured_outputs
        self.constraints.append(constraint)
        random = Random(json.dumps([len(request.prompt_token_ids or ()), params.max_tokens]))
        stop_reason, reason = None, FinishReason.STOP
        thoughts = self._thoughts(request)[: params.max_tokens]
        most = params.max_tokens - len(thoughts)
        try:
            tokens, done = self._free(most) if constraint is None else self._walk(params, most, random)
            reason = FinishReason.STOP if done else FinishReason.LENGTH
        except SpecError as error:
            thoughts, tokens, reason, stop_reason = [], [], FinishReason.ERROR, errors.encode(error)
        known, masses = self._known(params, tokens)
        unknown: list[Any] = [None] * len(thoughts)
        said = self._say(
            request.request_id, [*thoughts, *tokens], reason, stop_reason,
            [*unknown, *known], [*unknown, *masses] if masses else [],
        )  # fmt: skip
        self._tasks.append(asyncio.ensure_future(said))

    def _thoughts(self, request: Any) -> list[int]:
        """The tokens before the answer, up to the end of the reasoning: no mask applies to them."""
        from vllm.reasoning import ReasoningParserManager

        parser = self.vllm_config.structured_outputs_config.reasoning_parser
        if not parser or request.reasoning_ended:
            return []
        made = ReasoningParserManager.get_reasoning_parser(parser)
        reasoner = made(self.tokenizer, **(request.reasoning_parser_kwargs or {}))
        if request.reasoning_ended is None and reasoner.is_reasoning_end(request.prompt_token_ids):
            return []
        text = f"{reasoner.reasoning_start_str}\n{THOUGHTS}\n{reasoner.reasoning_end_str}"
        tokens: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return tokens

    async def _say(
        self, name: str, tokens: list[int], reason: Any, stop_reason: str | None, known: list[Any], masses: list[Any]
    ) -> None:
        """Send one token after another, each in a separate output, with the log probabilities and the mass known."""
        from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs

        for at in range(max(1, len(tokens))):
            ends = {"finish_reason": reason, "stop_reason": stop_reason} if at + 1 >= len(tokens) else {}
            logprobs = known[at] if at < len(known) else None
            output = EngineCoreOutput(name, tokens[at : at + 1], new_logprobs=logprobs, **ends)
            first = [wire.carrier({name: masses[at]})] if masses and masses[at] is not None else []
            self.outputs.put_nowait(EngineCoreOutputs(outputs=[*first, output]))
            for _ in range(8):  # until the output has gone through the front end
                await asyncio.sleep(0)

    def _known(self, params: Any, tokens: list[int]) -> tuple[list[Any], list[float]]:
        """The log probabilities and the masses of each token, where they are asked for, as if the model found all
        tokens equally likely."""
        from vllm.v1.outputs import LogprobsLists

        asks, number = wire.asks(params), params.num_logprobs
        if params.structured_outputs is None or not (asks or number is not None):
            return [], []
        specification = of_sampling_params(params, self.vllm_config.structured_outputs_config)
        guide = compiler.build(specification, self.vocabulary).guide()
        known, masses = list[Any](), list[float]()
        for token in tokens:
            allowed = list(guide.allowed_tokens())
            if number is not None:
                ids = [token, *allowed[:number], *[0] * number][: 1 + number]
                values = [-math.log(len(allowed))] * (1 + min(number, len(allowed))) + [-math.inf] * number
                shape = np.array([ids], np.int32), np.array([values[: 1 + number]], np.float32)
                known.append(LogprobsLists(*shape, np.ones(1, np.int32)))
            if asks:
                masses.append(math.log(len(allowed) / self.vocabulary.size))
            guide.advance(token)
        return known, masses

    def _free(self, limit: int) -> tuple[list[int], bool]:
        tokens = self.tokenizer.encode(FREE, add_special_tokens=False)[:limit]
        return [*tokens, self.vocabulary.eos_token_ids[0]], True

    def _walk(self, params: Any, limit: int, random: Random) -> tuple[list[int], bool]:
        specification = of_sampling_params(params, self.vllm_config.structured_outputs_config)
        guide = compiler.build(specification, self.vocabulary).guide()
        tokens, ends = list[int](), [*{*self.vocabulary.eos_token_ids}]
        needed = guide.tokens_to_finish
        closes = not self.cuts and needed <= limit
        most = min(limit, needed + _COMFORT) if closes else limit
        while len(tokens) < most:
            row = guide.mask_within(most - len(tokens)) if closes else None
            row = guide.index.masks[guide.mask_row] if row is None else row
            bits = np.unpackbits(row.view(np.uint8), bitorder="little")
            bits[ends] = 0
            inner = np.flatnonzero(bits)
            if guide.can_finish and (closes or not len(inner)):
                return [*tokens, ends[0]], True
            tokens.append(int(random.choice(inner)))
            assert guide.advance(tokens[-1])
        return tokens, False

    async def abort_requests_async(self, request_ids: list[str]) -> None:
        pass

    async def reset_mm_cache_async(self) -> None:
        pass

    def shutdown(self, timeout: float | None = None) -> None:
        pass


class Answer(NamedTuple):
    """An answer over HTTP."""

    status: int
    body: Any
    """Parsed JSON; for a stream, the list of its events' data."""
    headers: dict[str, str]
    constraints: list[Any]
    """The constraints that the engine received for it."""

    @property
    def error(self) -> dict[str, Any]:
        """The error object."""
        found: dict[str, Any] = self.body["error"]
        return found

    @property
    def is_free(self) -> bool:
        """Whether the engine was asked for text without a constraint."""
        return bool(self.constraints) and self.constraints[-1] is None

    @property
    def warnings(self) -> list[str]:
        """The warnings in the header."""
        found: list[str] = json.loads(self.headers.get("x-dotllm-warnings", "[]"))
        return found


class PlayedServer:
    """The application, and one event loop for it."""

    def __init__(self, app: Any, core: Core, loop: asyncio.AbstractEventLoop) -> None:
        self.app, self.core, self._loop = app, core, loop

    def get(self, path: str) -> Answer:
        return self._ask("GET", path, b"")

    def post(self, path: str, body: Any) -> Answer:
        """``body``: the text of a request, or a value that is sent as JSON."""
        text = body if isinstance(body, str) else json.dumps(body)
        return self._ask("POST", path, text.encode("utf-8", "surrogatepass"))

    def answer(self, method: str, path: str, content: bytes, headers: dict[str, str]) -> Any:
        """httpx's response to any request."""
        import httpx

        async def ask() -> Any:
            transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://played", timeout=60) as client:
                return await client.request(method, path, content=content, headers=headers)

        engine_info.remember(self.core.vllm_config)  # other tests may have remembered another
        return self._loop.run_until_complete(asyncio.wait_for(ask(), 60))

    def _ask(self, method: str, path: str, content: bytes) -> Answer:
        before = len(self.core.constraints)
        answer = self.answer(method, path, content, {"content-type": "application/json"})
        body: Any = answer.text
        if "event-stream" in answer.headers.get("content-type", ""):
            lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
            body = [json.loads(line) for line in lines if line != "[DONE]"]
        else:
            with suppress(ValueError):
                body = json.loads(answer.text)
        return Answer(answer.status_code, body, dict(answer.headers), self.core.constraints[before:])

    def run(self, coroutine: Any) -> Any:
        """Run a coroutine in the server's loop, and return its result."""
        return self._loop.run_until_complete(coroutine)


@contextmanager
def started(model: Path, *flags: str, parser: str = "hermes", plugin: bool = True) -> Iterator[PlayedServer]:
    """A server of ``model`` (only its tokenizer and configuration are read); plain vLLM without ``plugin``."""
    from unittest import mock

    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.launchers.api_server import app_state
    from vllm.entrypoints.launchers.app import build_app
    from vllm.utils.argparse_utils import FlexibleArgumentParser
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.core_client import EngineCoreClient

    if releases.is_since("0.33"):
        from vllm.entrypoints.common.cli_args import make_arg_parser
    else:
        from vllm.entrypoints.launchers.cli_args import make_arg_parser

    if plugin:
        registry.apply_required()
    tools = ("--enable-auto-tool-choice", "--tool-call-parser", parser) if parser else ()
    arguments = make_arg_parser(FlexibleArgumentParser()).parse_args(
        ["--model", str(model), "--served-model-name", NAME, "--max-model-len", "4096", *tools, *flags]
    )
    arguments.model_tag = None
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    cores: list[Core] = []

    def core(vllm_config: Any, renderer: Any, **_: Any) -> Core:
        cores.append(Core(vllm_config, renderer.tokenizer))
        return cores[-1]

    async def start() -> Any:
        config = AsyncEngineArgs.from_cli_args(arguments).create_engine_config()
        with mock.patch.object(EngineCoreClient, "make_async_mp_client", core):
            engine = AsyncLLM.from_vllm_config(config, disable_log_stats=True)
        tasks = await engine.get_supported_tasks()
        app = build_app(arguments, tasks, engine.model_config)
        await app_state.init_app_state(engine, app.state, arguments, tasks)
        return app, engine

    app, engine = loop.run_until_complete(start())
    try:
        yield PlayedServer(app, cores[0], loop)
    finally:
        engine.shutdown()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        engine_info.remember(None)
