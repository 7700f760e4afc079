"""Makes the engine core compile and guide requests with dotllm.

``StructuredOutputManager.grammar_init`` is where vLLM starts compiling for a new request. If the engine's backend is
``auto``, we put our backend and our future there, and vLLM's manager does the rest. We touch nothing inside the
manager, because most releases rewrite it. We do not use vLLM's thread pool: it limits neither time nor queue length,
and compiles equal specifications again.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING

from dotllm.errors import UnsupportedError
from dotllm.vllm_plugin import specification as requests
from dotllm.vllm_plugin.enforce.extras import GIVEN
from dotllm.vllm_plugin.hook import Hook, Original
from dotllm.vllm_plugin.settings import BACKEND, is_ours
from dotllm.vllm_plugin.vllm_types import GrammarOutput, Request, StructuredOutputManager

if TYPE_CHECKING:
    from dotllm.vllm_plugin.enforce.backend import EngineBackend
    from dotllm.vllm_plugin.enforce.request_grammar import RequestGrammar


def backend_of(manager: StructuredOutputManager) -> EngineBackend | None:
    """The `EngineBackend` of an engine's manager: None before its first constrained request, and with another backend.

    This checks the type, not attributes, because xgrammar's backend also has a ``compiler``.
    """
    if manager.backend is None:
        return None
    from dotllm.vllm_plugin.enforce.backend import EngineBackend

    return manager.backend if isinstance(manager.backend, EngineBackend) else None


def observe_masks(manager: StructuredOutputManager, masks: GrammarOutput | None, seconds: float) -> None:
    """Count the masks of a step, and the time that they took, in our metrics."""
    backend = backend_of(manager)
    if backend is not None and masks is not None:
        metrics = backend.compiler.metrics
        metrics.observe("dotllm_mask_seconds", value=seconds)
        metrics.add("dotllm_mask_rows", amount=float(len(masks.structured_output_request_ids)))


def begin(manager: StructuredOutputManager, request: Request) -> Future[RequestGrammar]:
    """Start compiling for ``request``. Returns a future of its grammar. Never raises: a failure is in the future."""
    from dotllm.vllm_plugin.enforce.backend import EngineBackend

    try:
        if manager.backend is None:
            manager.backend = EngineBackend(
                manager.vllm_config,
                tokenizer=manager.tokenizer,
                vocab_size=manager.vllm_config.model_config.get_vocab_size(),
            )
            if hasattr(manager, "backend_name"):  # 0.33: vLLM's guard against two backends in one engine
                manager.backend_name = BACKEND
        params, config = request.sampling_params, manager.vllm_config.structured_outputs_config
        specification, more = requests.of_sampling_params(params, config), requests.answer_tokens(params)
        if more is not None and GIVEN.limit is None:
            raise UnsupportedError(
                "answers that end within max_tokens need the hook answer-limit, which is off here (DOTLLM_HOOKS)",
                keyword=requests.FINISH,
            )
        limit = None if more is None or GIVEN.limit is None else GIVEN.limit(manager, request, more)
        future: Future[RequestGrammar] = manager.backend.begin(specification, request, limit)
        if not manager._use_async_grammar_compilation:
            # external_launcher: one scheduler per rank, and all must see the grammar ready in the same step.
            future.exception()
    except Exception as error:
        future = Future()
        future.set_exception(error)
    return future


HOOK = Hook(
    name="manager",
    summary="dotllm compiles the specifications of the engine, in threads of its own",
    required=True,
    without_it="nothing would be constrained",
)


@HOOK.replaces("vllm.v1.structured_output:StructuredOutputManager.grammar_init")
def _grammar_init(self: StructuredOutputManager, request: Request, *, original: Original) -> None:
    structured = request.structured_output_request
    if structured is None or not is_ours(self.vllm_config.structured_outputs_config.backend):
        original(self, request)
        return
    # A front end without our plugin (vLLM's Rust one) has chosen a backend of vLLM's for a request that is ours. It
    # would not know what to do with masses, and has not checked our fields.
    fields = request.sampling_params.extra_args
    if structured.params._backend != BACKEND and isinstance(fields, dict) and requests.MASS in fields:
        refusal = UnsupportedError(f"{requests.MASS} needs vLLM's Python front end", keyword=requests.MASS)
        structured.grammar = Future()
        structured.grammar.set_exception(refusal)
        return
    structured.params._backend = BACKEND
    structured.grammar = begin(self, request)
