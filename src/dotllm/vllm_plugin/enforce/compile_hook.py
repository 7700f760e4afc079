"""Makes the engine core compile and guide requests with dotllm.

``StructuredOutputManager.grammar_init`` is where vLLM starts compiling for a new request. If the engine's backend is
``auto``, we put our backend and our future there, and vLLM's manager does the rest. We touch nothing inside the
manager, because most releases rewrite it. We do not use vLLM's thread pool: it limits neither time nor queue length,
and compiles equal specifications again.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dotllm.errors import UnsupportedError
from dotllm.vllm_plugin import specification as requests
from dotllm.vllm_plugin.hook import Hook, Original
from dotllm.vllm_plugin.settings import BACKEND, is_ours
from dotllm.vllm_plugin.vllm_types import Request, StructuredOutputManager, VllmConfig

if TYPE_CHECKING:
    from dotllm.vllm_plugin.enforce.backend import EngineBackend
    from dotllm.vllm_plugin.enforce.request_grammar import RequestGrammar, SpellingOf


@dataclass
class Given:
    """What the hooks of the tier extra add to requests; the core imports none of them."""

    limit: Callable[[StructuredOutputManager, Request, int], Any] | None = None
    """Makes the `AnswerLimit` of a request whose answer must end in time."""
    spelling: Callable[[VllmConfig], Callable[[Request], SpellingOf | None]] = lambda config: lambda request: None
    """For an engine: how a request's forced text is spelt; None: as the model chooses (`jump_forward`)."""


GIVEN = Given()


def backend_of(manager: StructuredOutputManager) -> EngineBackend | None:
    """The `EngineBackend` of an engine's manager: None before its first constrained request, and with another backend.

    This checks the type, not attributes, because xgrammar's backend also has a ``compiler``.
    """
    if manager.backend is None:
        return None
    from dotllm.vllm_plugin.enforce.backend import EngineBackend

    return manager.backend if isinstance(manager.backend, EngineBackend) else None


def begin(manager: StructuredOutputManager, request: Request) -> Future[RequestGrammar]:
    """Start compiling for ``request``. Returns a future of its grammar. Never raises: a failure is in the future."""
    from dotllm.vllm_plugin.enforce.backend import EngineBackend

    config, params = manager.vllm_config, request.sampling_params
    try:
        # A front end without our plugin (vLLM's Rust one) has chosen a backend of vLLM's for a request that is ours. It
        # would not know what to do with masses, and has not checked our fields.
        if params.structured_outputs._backend != BACKEND and requests.MASS in (params.extra_args or ()):
            raise UnsupportedError(f"{requests.MASS} needs vLLM's Python front end", keyword=requests.MASS)
        params.structured_outputs._backend = BACKEND
        if manager.backend is None:
            width, spelling_of = config.model_config.get_vocab_size(), GIVEN.spelling(config)
            manager.backend = EngineBackend(config, manager.tokenizer, width, spelling_of=spelling_of)
            if hasattr(manager, "backend_name"):  # 0.33: vLLM's guard against two backends in one engine
                manager.backend_name = BACKEND
        specification = requests.of_sampling_params(params, config.structured_outputs_config)
        limit = None
        if (more := requests.answer_tokens(params)) is not None:
            if GIVEN.limit is None:
                text = "answers that end within max_tokens need the hook answer-limit, which is off here (DOTLLM_HOOKS)"
                raise UnsupportedError(text, keyword=requests.FINISH)
            limit = GIVEN.limit(manager, request, more)
        future: Future[RequestGrammar] = manager.backend.begin(specification, request, limit)
        if not manager._use_async_grammar_compilation:
            # external_launcher: one scheduler per rank, and all must see the grammar ready in the same step.
            future.exception()
    except Exception as error:
        future = Future()
        future.set_exception(error)
    return future


HOOK = Hook(
    summary="dotllm compiles the specifications of the engine, in threads of its own",
    required=True,
    without_it="nothing would be constrained",
)


@HOOK.replaces("vllm.v1.structured_output:StructuredOutputManager.grammar_init")
def _grammar_init(self: StructuredOutputManager, request: Request, *, original: Original) -> None:
    structured = request.structured_output_request
    if structured is None or not is_ours(self.vllm_config.structured_outputs_config.backend):
        original(self, request)
    else:
        structured.grammar = begin(self, request)
