"""Objects that exist once in a process: one vocabulary for each tokenizer, one compiler for each vocabulary."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dotllm.compilation import CompilationManager
    from dotllm.languages.token_names import TokenNames
    from dotllm.vllm_plugin.vllm_types import ModelConfig
    from dotllm.vocabulary import Vocabulary

_lock = threading.Lock()
_vocabularies: weakref.WeakKeyDictionary[object, dict[tuple[int, tuple[int, ...]], Vocabulary]] = (
    weakref.WeakKeyDictionary()
)
_compilers: dict[Vocabulary, tuple[CompilationManager, set[int]]] = {}  # with the ids of the backends that use it
_further_ends: dict[int, tuple[ModelConfig, tuple[int, ...]]] = {}  # by the config's id


def further_ends(model_config: ModelConfig) -> tuple[int, ...]:
    """The end tokens of the model's generation config, as vLLM reads it. Chat models often have several.

    vLLM passes them with each request, among its stop tokens. As per-request stop tokens they would give each request a
    mask row of its own in each step. Every request has them, so they become EOS tokens of the vocabulary.
    """
    known = _further_ends.get(id(model_config))
    if known is None:  # reading it may take a request to a model hub
        from dotllm.vocabulary.content import ids_of

        ends = ids_of(model_config.try_get_generation_config().get("eos_token_id"))
        known = _further_ends[id(model_config)] = model_config, ends
    return known[1]


def vocabulary(tokenizer: object, size: int, further_eos: tuple[int, ...]) -> Vocabulary:
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


def compiler(vocabulary: Vocabulary, holder: object = None) -> CompilationManager:
    """The `CompilationManager` of ``vocabulary``: one per process, until its last ``holder`` closes it."""
    from vllm.platforms import current_platform

    from dotllm.compilation import CompilationManager

    with _lock:
        if vocabulary not in _compilers:
            _compilers[vocabulary] = CompilationManager(vocabulary), set()
            if current_platform.is_cuda_alike():  # launching a GPU's step takes Python longer than a compile does
                _compilers[vocabulary][0].always_offload()
        made, holders = _compilers[vocabulary]
        if holder is not None:
            holders.add(id(holder))
        return made


def close_compiler(vocabulary: Vocabulary, holder: object = None) -> None:
    """Close the compiler of ``vocabulary`` (unless others hold it). New indexes go to the caches that outlive this
    process."""
    with _lock:
        made, holders = _compilers.get(vocabulary, (None, set()))
        holders.discard(id(holder))
        if made is None or holders:
            return
        del _compilers[vocabulary]
    made.close()


def vocabulary_of_model(tokenizer: object, model_config: ModelConfig) -> Vocabulary:
    """The `vocabulary` of an engine."""
    return vocabulary(tokenizer, model_config.get_vocab_size(), further_ends(model_config))


def token_names(tokenizer: object, model_config: ModelConfig) -> TokenNames:
    """The tokens that a specification may name."""
    from dotllm.languages.token_names import TokenNames

    return TokenNames.of(vocabulary_of_model(tokenizer, model_config))
