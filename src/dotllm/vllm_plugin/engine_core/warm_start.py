"""What the engine needs before its first structured request, prepared while vLLM loads the model.

Loading Numba's compiled kernels takes a fraction of a second (compiling them, once per machine, some seconds) and the
vocabulary of a tokenizer as long, the processes that compile a second each. The engine core does it in a thread that it
starts first of all, and the front end what it needs itself (`front_end`); the first request waits for what is missing.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dotllm.vllm_plugin import background
from dotllm.vllm_plugin.hook import Hook, Target
from dotllm.vllm_plugin.settings import is_ours

if TYPE_CHECKING:
    from dotllm.compilation import CompilationManager
    from dotllm.languages.token_names import TokenNames

logger = logging.getLogger(__name__)

_lock = threading.Lock()
_vocabularies: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()
_compilers: dict[Any, CompilationManager] = {}
_further_ends: dict[int, tuple[Any, tuple[int, ...]]] = {}  # by the id of a model config, which is kept with them


def further_ends(model_config: Any) -> tuple[int, ...]:
    """The ids that end a text by the model's generation config, as vLLM reads it. Chat models often have several.

    vLLM tells us of them with each request, among its stop tokens. But tokens that only some requests stop at make
    these requests' masks others than their index's, which costs each step; those that all stop at need not.
    """
    known = _further_ends.get(id(model_config))
    if known is None:  # reading it may take a request to a model hub
        from dotllm.vocabulary.content import ids_of

        ends = ids_of(model_config.try_get_generation_config().get("eos_token_id"))
        known = _further_ends[id(model_config)] = model_config, ends
    return known[1]


def vocabulary(tokenizer: Any, size: int, further_eos: tuple[int, ...]) -> Any:
    """The `Vocabulary` of ``tokenizer``, padded to ``size`` ids (a model's output may be wider); made once per process.
    ``further_eos`` end a text, too.

    Raises:
        dotllm.errors.SpecError: the bytes of this tokenizer's tokens cannot be known.
    """
    from dotllm.vocabulary import Vocabulary

    with _lock:
        made = _vocabularies.setdefault(tokenizer, {})
        key = size, further_eos
        if key not in made:
            made[key] = Vocabulary.from_tokenizer(tokenizer, further_eos_token_ids=further_eos, size=size)
        return made[key]


def compiler(vocabulary: Any) -> CompilationManager:
    """The `CompilationManager` of ``vocabulary``: one per process, until `close_compiler`."""
    from vllm.platforms import current_platform

    from dotllm.compilation import CompilationManager

    with _lock:
        made = _compilers.get(vocabulary)
        if made is None:
            made = _compilers[vocabulary] = CompilationManager(vocabulary)
            if current_platform.is_cuda_alike():  # to launch a step of a GPU takes Python longer than a compile does
                made.spare_the_loop()
        return made


def close_compiler(vocabulary: Any) -> None:
    """Close the one of ``vocabulary``; what is new goes to the caches that outlive this process."""
    with _lock:
        made = _compilers.pop(vocabulary, None)
    if made is not None:
        made.close()


def _vocabulary_of_model(tokenizer: Any, model_config: Any) -> Any:
    return vocabulary(tokenizer, model_config.get_vocab_size(), further_ends(model_config))


def token_names(tokenizer: Any, model_config: Any) -> TokenNames:
    """The tokens that a specification may name."""
    from dotllm.languages.token_names import TokenNames

    tokens = _vocabulary_of_model(tokenizer, model_config)
    return TokenNames(tokens.special_tokens, tokens.added_tokens)


def prepare_engine(vllm_config: Any) -> None:
    """Load the kernels, and make the vocabulary of the engine's tokenizer with its tables for popular sets; load what
    the shared store needs (s3fs is a second of imports); start the processes that compile."""
    from vllm.tokenizers import cached_tokenizer_from_config

    from dotllm.api import Index
    from dotllm.compilation import CompilationOptions
    from dotllm.compilation import compiler as engine
    from dotllm.compilation.transports import open_transport

    model_config = vllm_config.model_config
    tokens = _vocabulary_of_model(cached_tokenizer_from_config(model_config=model_config), model_config)
    tokens.prepare()
    engine.prepare()
    Index.from_grammar_object(_letter(), tokens).guide().mask_row  # noqa: B018  # computing the mask is the point
    import dotllm.vllm_plugin.engine_core.backend  # noqa: F401  # what the first request would import

    options = CompilationOptions.from_environment()
    if options.store:
        open_transport(options.store, options.store_timeout)
    compiler(tokens).start_processes()


def _letter() -> Any:
    from dotllm.grammar import Grammar

    grammar = Grammar()
    grammar.start = grammar.literal("a")
    return grammar


def in_background(prepare: Callable[[Any], None], vllm_config: Any) -> None:
    """Run ``prepare(vllm_config)`` in a thread, if this engine is ours; a failure is logged."""
    config = vllm_config.structured_outputs_config
    if not is_ours(config.backend) or vllm_config.model_config.skip_tokenizer_init:
        return

    def run() -> None:
        started = time.monotonic()
        try:
            prepare(vllm_config)
        except Exception:
            # Not lost: the first request does the same work, and fails with the same error if there is one.
            logger.warning("dotllm could not get ready ahead of the first request", exc_info=True)
        else:
            logger.info("dotllm: %s done in %.1f s", prepare.__name__, time.monotonic() - started)

    background.run(run, "dotllm-prepare")


HOOK = Hook(
    name="warm-start",
    summary="kernels and vocabulary are prepared while the model loads",
    targets=(Target("vllm.tokenizers.registry", "cached_tokenizer_from_config", ("model_config",)),),
    without_it="the first structured request after a start takes some seconds longer",
)


# The engine core makes its executor right after it has loaded the plugins, and the executor loads the model.
@HOOK.replaces("vllm.v1.executor.abstract:Executor.__init__")
def _init_with(original: Any) -> Any:
    def __init__(self: Any, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        in_background(prepare_engine, vllm_config)
        original(self, vllm_config, *args, **kwargs)

    return __init__
