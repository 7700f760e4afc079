"""What the answers to one API request say about their masses: read from vLLM's outputs, put into the response.

Each choice and each event of a stream has ``dotllm``: the ``mass`` of its tokens and, if the request asks for log
probabilities, the log probability of each token ``before`` its mask and ``after`` it. With confidence, a whole choice,
or the last event of a choice, also has its ``fields``.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import json
import math
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dotllm.cancellation import Cancelled
from dotllm.errors import EngineFault, SpecError
from dotllm.inspector.confidence import LIKELIEST, UNKNOWN, Place
from dotllm.vllm_plugin import tiers
from dotllm.vllm_plugin.api import served
from dotllm.vllm_plugin.enforce import engine_info, per_process, validation
from dotllm.vllm_plugin.extra.mass import wire
from dotllm.vllm_plugin.specification import CONFIDENCE, MASS, is_true
from dotllm.vllm_plugin.vllm_types import CompletionOutput, SamplingParams

if TYPE_CHECKING:
    from dotllm.inspector.inspector import Inspector
    from dotllm.vocabulary import Vocabulary

_RAW = "raw_logprobs"
_PATIENCE_S = 20.0  # a compile may take half of it
_thread = ThreadPoolExecutor(1, "dotllm-confidence")
_DATA, _EVENT = "data: ", "data: {"
_DIGITS = 6


class Position(dict[int, Any]):
    """vLLM's log probabilities at the position of one token, by token id, with the mass."""

    log_mass: float | None = None

    @classmethod
    def with_mass(cls, mass: float | None, logprobs: Mapping[int, Any] = MappingProxyType({})) -> Position:
        """The position of a token with this ``mass``, and ``logprobs`` if they are known."""
        position = cls(logprobs)
        position.log_mass = mass
        return position


def positions_of(logprobs: Any) -> list[Place]:
    """The places of vLLM's positions of log probabilities; the sampled token comes first in each."""
    return [
        Place(
            row.log_mass if isinstance(row, Position) else None, {token: known.logprob for token, known in row.items()}
        )
        for row in logprobs or ()
    ]


def places_of(logprobs: Any, masses: Sequence[float | None]) -> list[Place]:
    """The places of vLLM's ``LogprobsLists``, as the engine core sends them, with the masses of the same tokens; it may
    send None."""
    if logprobs is None:
        return []
    rows = zip(logprobs.logprob_token_ids.tolist(), logprobs.logprobs.tolist(), masses, strict=False)
    return [Place(mass, dict(zip(ids, values, strict=True))) for ids, values, mass in rows]


def _rounded(value: float | None) -> float | None:
    return round(value, _DIGITS) if value is not None and math.isfinite(value) else None


class _Choice:
    """One answer."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.places: list[Place] = []
        self.told = 0
        """How many tokens the response has reported."""

    def news(self) -> dict[str, Any]:
        """What the response is to report about the tokens that it has not reported."""
        at, self.told = self.told, len(self.tokens)
        pairs = list(zip(self.tokens[at:], self.places[at:], strict=True))
        masses = [place.log_mass for _, place in pairs]
        said = {"mass": masses}
        if any(place.likeliest for _, place in pairs):
            after = [place.likeliest.get(token) for token, place in pairs]
            before = [None if a is None or mass is None else a + mass for a, mass in zip(after, masses, strict=True)]
            said |= {"before": before, "after": after}
        return {name: list(map(_rounded, values)) for name, values in said.items()}


class Record:
    """See the module. ``confidence``: whether the request asks for the confidence of values."""

    def __init__(self, *, confidence: bool) -> None:
        self.confidence = confidence
        self.params: Any = None
        """The parameters of its prompts."""
        self.engine: object = None
        """vLLM's client of the engine that answers."""
        self.reasoning_ended: bool | None = None
        self._choices: dict[int, _Choice] = {}
        self._prompts = 0

    def let_ask(self, params: Any) -> None:
        """Let the ``params`` of its next prompt ask for what is recorded. Raises as `validation.refuse` does."""
        if not served.is_constrained(params):
            name = CONFIDENCE if self.confidence else MASS
            validation.refuse(f"vllm_xargs.{name}: the request has no constraint", name)
        ask(params, confidence=self.confidence)
        self.params = params

    def noting(self, outputs: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
        """vLLM's ``outputs`` for the next of its prompts, recorded on the way."""
        number, self._prompts = self._prompts, self._prompts + 1
        return self._noted(number * self.params.n, outputs)

    async def _noted(self, first: int, outputs: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
        try:
            async for output in outputs:
                for answer in output.outputs:
                    self._note(first + answer.index, answer)
                yield output
        finally:
            await outputs.aclose()

    def _note(self, number: int, output: CompletionOutput) -> None:
        choice = self._choices.setdefault(number, _Choice())
        places = positions_of(output.logprobs)
        tokens = list(output.token_ids)
        choice.places += (places + [UNKNOWN] * len(tokens))[: len(tokens)]
        choice.tokens += tokens

    async def add(self, answer: Any) -> Any:
        """The ``answer`` of an endpoint, with what is known of it; an error stays as it is."""
        if isinstance(answer, AsyncGenerator):
            return self._told(answer)
        for choice in getattr(answer, "choices", ()):
            choice.dotllm = await self._about(choice.index, ends=True)
        return answer

    async def _told(self, stream: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
        try:
            async for event in stream:
                yield await self._with_news(event)
        finally:
            await stream.aclose()

    async def _with_news(self, event: Any) -> Any:
        """``event`` of a stream, as vLLM writes it, with what is new; a chat begins with one of a role and no token."""
        if not isinstance(event, str) or not event.startswith(_EVENT):
            return event
        said = json.loads(event.removeprefix(_DATA))
        for choice in (part for part in said.get("choices") or () if "role" not in part.get("delta", ())):
            about = await self._about(choice["index"], ends=choice.get("finish_reason") is not None)
            if any(about.values()):
                choice["dotllm"] = about
        return f"{_DATA}{json.dumps(said, ensure_ascii=False, separators=(',', ':'))}\n\n"

    async def _about(self, number: int, *, ends: bool) -> dict[str, Any]:
        choice = self._choices.setdefault(number, _Choice())
        about: dict[str, Any] = choice.news()
        if ends and self.confidence:
            with engine_info.of(self.engine):
                about["fields"] = await fields_of(self.params, choice.tokens, choice.places, self.reasoning_ended)
        return about


async def fields_of(
    params: Any, tokens: list[int], places: list[Place], reasoning_ended: bool | None
) -> dict[str, Any] | None:
    """The confidence of the values of an answer, by JSON Pointer; None if it is unknown."""
    constrained = under_constraint(reasoning_ended)(tokens)
    kept = places[len(places) - len(constrained) :]

    def confidence() -> dict[str, Any] | None:
        try:
            specification = validation.specification_of(params, engine_info.config())
            return inspector().confidence(specification, constrained, kept)
        except (SpecError, EngineFault, Cancelled):  # (a front end has less time for a compile than the engine)
            return None

    context = contextvars.copy_context()  # with this engine's vocabulary
    looking = asyncio.get_running_loop().run_in_executor(_thread, context.run, confidence)
    try:
        return await asyncio.wait_for(looking, _PATIENCE_S)
    except asyncio.TimeoutError:  # (a task that has not begun is cancelled)
        return None


def inspector() -> Inspector:
    """The inspector for the engine's vocabulary."""
    return _inspector_of(per_process.vocabulary_of_model(*served.tokenizer_and_model()))


@functools.lru_cache(maxsize=2)
def _inspector_of(vocabulary: Vocabulary) -> Inspector:
    from dotllm.inspector.inspector import Inspector

    return Inspector(vocabulary)


def under_constraint(reasoning_ended: bool | None) -> Callable[[list[int]], list[int]]:
    """A function that selects the constrained tokens of an answer: all, or those after the reasoning."""
    configured = engine_info.config()
    if configured is None or not configured.reasoning_parser or reasoning_ended:
        return list
    from vllm.reasoning import ReasoningParserManager

    parser: Any = ReasoningParserManager.get_reasoning_parser(configured.reasoning_parser)
    return parser(served.tokenizer_and_model()[0]).extract_content_ids  # type: ignore[no-any-return]


def is_wanted(request: Any, *, may_say: bool) -> Record | None:
    """The `Record` for an API request that asks for mass or confidence in its ``vllm_xargs``; None for any other.
    may_say: whether answers of this API can report them. Raises as `validation.refuse` does."""
    fields = getattr(request, "vllm_xargs", None)
    if not isinstance(fields, dict):
        return None
    with validation.refused_as_by_vllm():
        wanted = [name for name in (MASS, CONFIDENCE) if is_true(fields, name)]
    if not wanted:
        return None
    name = wanted[-1]
    if tiers.EXTRA not in tiers.chosen():
        validation.refuse(f"vllm_xargs.{name} needs the tier {tiers.EXTRA}, which is off ({tiers.VARIABLE})", name)
    if not may_say:
        validation.refuse(f"vllm_xargs.{name} is for chats and completions that are not a batch", name)
    if why := why_not():
        validation.refuse(f"vllm_xargs.{name}: {why}", name)
    return Record(confidence=name == CONFIDENCE)


def why_not() -> str:
    """Why this engine's masses are not known; "" if they are."""
    config = engine_info.configuration()
    if config is None:
        return ""
    mode = config.model_config.logprobs_mode
    if mode != _RAW:
        return f"the server has --logprobs-mode {mode}; it needs {_RAW}, which is vLLM's default"
    if config.use_v2_model_runner and config.parallel_config.enable_batch_sharded_sampling:
        return "it is not known with --enable-batch-sharded-sampling: each rank samples a part of the batch"
    return ""


def ask(params: SamplingParams, *, confidence: bool) -> None:
    """Let an API request ask for its masses, and with ``confidence`` for the likeliest tokens."""
    config = engine_info.configuration()
    most = LIKELIEST if config is None else config.model_config.max_logprobs  # -1: any number
    wire.ask(params, (LIKELIEST if most < 0 else min(LIKELIEST, most)) if confidence else 0)


def refuse_what_is_not_said(params: Any) -> None:
    """Refuse a request for masses in an API whose answers do not report them. Raises as `validation.refuse` does."""
    if wire.asks(params):
        validation.refuse(f"vllm_xargs.{MASS} is for chats and completions that are not a batch", MASS)
